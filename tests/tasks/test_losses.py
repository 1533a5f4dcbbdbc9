"""Losses against hand-written sums, scikit-learn and torch."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error
from torch.nn import functional as F

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import class_weights, make_task


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(5)


def classification(loss="cross-entropy", classes=4):
    config = TaskConfig(kind="classification", outputs=classes, loss=loss, metric="accuracy")
    return make_task(config)


def test_regression_losses_equal_scikit_learn_and_skip_missing_targets(generator):
    prediction = torch.randn(30, 2, generator=generator)
    target = torch.randn(30, 2, generator=generator)
    target[3, 1] = target[7, 0] = float("nan")
    known = ~torch.isnan(target)
    for loss, function in (("l1", mean_absolute_error), ("mse", mean_squared_error)):
        task = make_task(TaskConfig(outputs=2, loss=loss))
        expected = function(target[known], prediction[known])
        assert float(task.loss(prediction, target, 0.1)) == pytest.approx(expected, rel=1e-5)


def test_l1_with_its_tail_by_hand_in_standard_deviations():
    task = make_task(TaskConfig(outputs=2, loss="l1+tail", target_scale=[2.0, 0.5]))
    target = torch.tensor([[0.0, 1.0], [float("nan"), -1.0], [3.0, 0.0]])
    prediction = torch.tensor([[1.0, 1.0], [7.0, 1.0], [-3.0, 3.0]], requires_grad=True)
    # Errors in standard deviations: 0.5, 0; 4; −3 and 6. Only 4 and −3 are between one and five.
    expected = [0.5, 0.0, 4 + 3**2, 3 + 2**2, 6 + 4**2]
    loss = task.loss(prediction, target, 0.1)
    assert loss.item() == pytest.approx(sum(expected) / 5)
    loss.backward()
    slopes = torch.tensor([[1 / 2, 0], [0, 7 / 0.5], [-5 / 2, 1 / 0.5]]) / 5
    assert torch.allclose(prediction.grad, slopes)


def test_cross_entropy_equals_scikit_learn_without_smoothing(generator):
    logits = torch.randn(50, 4, generator=generator)
    target = torch.randint(4, (50,), generator=generator)
    expected = log_loss(target, logits.double().softmax(1), labels=range(4))
    found = classification().loss(logits, target, 0.0)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.4])
def test_weighted_cross_entropy_weighs_the_smoothing_term_too(generator, q):
    logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    target = torch.tensor([0] * 30 + [1] * 8 + [2] * 2)
    counts = np.bincount(target, minlength=3)
    weight = (40 - counts) / 40
    log_p = logits.log_softmax(1).numpy()
    total = 0.0
    for row, label in zip(log_p, target.numpy(), strict=True):
        total -= (1 - q) * weight[label] * row[label] + q / 3 * (weight * row).sum()
    expected = total / weight[target].sum()
    found = classification("weighted-cross-entropy", 3).loss(logits, target, q)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_class_weights_count_absent_classes():
    weights = class_weights(torch.tensor([0, 0, 0, 2]), 4)
    assert weights.tolist() == pytest.approx([0.25, 1, 0.75, 1])


@pytest.mark.parametrize("q", [0.0, 0.1])
def test_binary_cross_entropy_smooths_both_ways(generator, q):
    task = make_task(TaskConfig(kind="multilabel", outputs=3, loss="bce", metric="ap"))
    logits = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    target = (torch.rand(20, 3, generator=generator) > 0.5).double()
    target[0, 0] = float("nan")
    known = ~torch.isnan(target)
    t = target[known] * (1 - q) + q / 2
    p = logits[known].sigmoid()
    expected = -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    assert float(task.loss(logits, target, q)) == pytest.approx(float(expected), rel=1e-9)
    assert float(expected) == pytest.approx(float(F.binary_cross_entropy(p, t)), rel=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e-13])
def test_tiny_units_are_scaled_so_that_gradients_are_not(generator, unit):
    target = unit * torch.randn(30, 1, generator=generator)
    scaling = make_task(TaskConfig()).scaling([target])
    assert scaling["target_scale"][0] == pytest.approx(float(target.std(correction=0)), rel=1e-4)
    task = make_task(TaskConfig(**scaling))
    assert 0.1 < float(task.loss(torch.zeros(30, 1), target, 0.0)) < 10
    assert make_task(TaskConfig()).scaling([torch.full((30, 1), unit)])["target_scale"] == [1.0]
