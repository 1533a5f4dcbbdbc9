"""Muon against singular value decompositions, and as an optimiser of runs."""

import pytest
import torch

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.config import TrainingConfig
from grass_gnn.training.muon import COEFFICIENTS, MOMENTUM, STEPS, Lion, orthogonal
from grass_gnn.training.optim import make_optimizer


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
        lr=1e-3,
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
