"""Optimisers against values computed by hand, the library for Lion, and decompositions for Muon."""

import lion_pytorch
import pytest
import torch

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.config import TrainingConfig
from grass_gnn.training.optimizers import (
    COEFFICIENTS,
    LIONS_SHARE,
    MOMENTUM,
    STEPS,
    Lion,
    make_optimizer,
    orthogonal,
)


def test_lion_by_hand_and_biases_undecayed():
    linear = torch.nn.Linear(1, 1)
    with torch.no_grad():
        linear.weight.fill_(2.0)
        linear.bias.fill_(2.0)
    lr, wd, b1, b2 = 0.1, 0.5, 0.95, 0.98
    training = TrainingConfig(learning_rate=lr, weight_decay=wd, betas=(b1, b2))
    optimizer = make_optimizer(linear, training)
    w = b = 2.0
    m = 0.0
    for gradient in (1.0, -0.01, -3.0):
        linear.weight.grad = torch.full((1, 1), gradient)
        linear.bias.grad = torch.full((1,), gradient)
        optimizer.step()
        update = b1 * m + (1 - b1) * gradient
        sign = (update > 0) - (update < 0)
        w = w * (1 - lr * wd) - lr * sign
        b = b - lr * sign
        m = b2 * m + (1 - b2) * gradient
        assert linear.weight.item() == pytest.approx(w, rel=1e-6)
        assert linear.bias.item() == pytest.approx(b, rel=1e-6)


def test_adamw_has_the_papers_epsilon_and_decays_only_weights():
    training = TrainingConfig(optimizer="adamw", weight_decay=0.5)
    optimizer = make_optimizer(torch.nn.Linear(2, 2), training)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
    assert optimizer.defaults["eps"] == 1e-7


def test_lion_gives_the_same_bytes_as_the_library():
    """With decay and without, over steps in which a parameter has no gradient."""
    models = [small_model(), small_model()]
    training = TrainingConfig(weight_decay=0.5)
    ours = make_optimizer(models[0], training)
    groups = [{"params": [], "weight_decay": 0.5}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in models[1].named_parameters():
        groups["bias" in name]["params"].append(parameter)
    theirs = lion_pytorch.Lion(groups, lr=training.learning_rate, betas=training.betas)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        for number, pair in enumerate(zip(*(m.parameters() for m in models), strict=True)):
            gradient = torch.randn(pair[0].shape, generator=generator)
            for parameter in pair:
                parameter.grad = None if step == 2 and number % 3 == 0 else gradient.clone()
        ours.step()
        theirs.step()
    assert all(map(torch.equal, *(m.parameters() for m in models)))
    state = theirs.state_dict()
    ours.load_state_dict(state)  # a checkpoint of a run that was started with the library
    assert ours.state_dict()["state"].keys() == state["state"].keys()


def by_svd(matrix):
    """The result of Newton–Schulz from singular values: the same polynomial of each of them."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    a, b, c = COEFFICIENTS
    s = s / s.square().sum().sqrt()
    for _ in range(STEPS):
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ v * max(matrix.shape) ** 0.5


@pytest.mark.parametrize("shape", [(8, 8), (5, 8), (8, 5), (1, 7), (7, 1)])
def test_orthogonal_is_the_polynomial_of_the_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if shape == (7, 1):  # seven squares of 1 × 1
        expected = torch.cat([by_svd(row[None]) for row in matrix])
    else:
        expected = by_svd(matrix)
    torch.testing.assert_close(orthogonal([matrix])[0].double(), expected, rtol=1e-3, atol=1e-4)


def test_results_are_nearly_orthogonal_whatever_the_scale():
    for scale in (1e-12, 1.0, 1e12):
        matrix = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)) * scale
        values = torch.linalg.svdvals(orthogonal([matrix])[0]) / 32**0.5
        assert values.max() < 1.3
        assert values.median() > 0.6


def test_stacked_squares_and_other_shapes_are_computed_one_by_one():
    generator = torch.Generator().manual_seed(2)
    shapes = [(12, 4), (4, 4), (6, 4), (12, 4), (3, 4)]
    matrices = [torch.randn(shape, generator=generator) for shape in shapes]
    together = orthogonal(matrices)
    for matrix, result in zip(matrices, together, strict=True):
        assert result.shape == matrix.shape
        squares = matrix.split(4) if matrix.size(0) in (4, 12) else [matrix]
        expected = torch.cat([by_svd(square) for square in squares])
        torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-3)


def test_zeros_stay_zeros():
    assert torch.equal(orthogonal([torch.zeros(4, 4)])[0], torch.zeros(4, 4))


def small_model():
    torch.manual_seed(0)
    return GRASS(GRASSConfig.preset("zinc").override({"model.layers": 2, "model.dim": 8}))


def test_matrices_of_layers_are_orthogonal_and_the_rest_is_lions():
    model, training = small_model(), TrainingConfig(optimizer="muon", weight_decay=0.5)
    other = small_model()
    lion = Lion(
        [
            {"params": [p for n, p in other.named_parameters() if "bias" not in n]},
            {"params": [p for n, p in other.named_parameters() if "bias" in n]},
        ],
        lr=LIONS_SHARE * 1e-3,
        betas=training.betas,
    )
    lion.param_groups[0]["weight_decay"] = 0.5
    optimizer = make_optimizer(model, training)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    momenta = {name: torch.zeros_like(p) for name, p in before.items()}
    for _ in range(3):
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
            momenta[name] = MOMENTUM * momenta[name] + (1 - MOMENTUM) * p.grad
        optimizer.step()
        lion.step()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            if name.startswith("layers.") and p.ndim == 2:
                ahead = (1 - MOMENTUM) * p.grad + MOMENTUM * momenta[name]
                update = torch.cat([by_svd(square) for square in ahead.split(8)])
                before[name] = before[name] * (1 - 1e-3 * 0.5) - 1e-3 * update.float()
                torch.testing.assert_close(p.detach(), before[name], rtol=1e-4, atol=1e-5)
            else:
                assert torch.equal(p, q)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before)


@pytest.mark.parametrize("name", ["lion", "muon"])
def test_parameters_without_gradients_stay_as_they_are(name):
    model = small_model()
    optimizer = make_optimizer(model, TrainingConfig(optimizer=name))
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()  # as after a step that was skipped
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    model.head.out.weight.grad = torch.ones_like(model.head.out.weight)
    optimizer.step()
    changed = [n for n, p in model.named_parameters() if not torch.equal(p, before.pop(0))]
    assert changed == ["head.out.weight"]


def test_a_restored_state_continues_to_the_same_bytes():
    def steps(model, optimizer, numbers):
        for number in numbers:
            generator = torch.Generator().manual_seed(number)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimizer.step()

    training = TrainingConfig(optimizer="muon")
    whole, first = small_model(), small_model()
    steps(whole, make_optimizer(whole, training), range(4))
    optimizer = make_optimizer(first, training)
    steps(first, optimizer, range(2))
    second = small_model()
    second.load_state_dict(first.state_dict())
    restored = make_optimizer(second, training)
    restored.load_state_dict(optimizer.state_dict())
    steps(second, restored, range(2, 4))
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True)
    )
