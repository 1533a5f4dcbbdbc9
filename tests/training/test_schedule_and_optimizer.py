"""The learning rate and Lion against values computed by hand."""

from math import cos, pi

import pytest
import torch

from grass_gnn.config import TrainingConfig
from grass_gnn.training.optim import learning_rate, make_optimizer


def rate(step, total, **settings):
    return learning_rate(step, total, TrainingConfig(**settings))


def test_schedule_passes_through_its_three_rates():
    settings = {"learning_rate": 5e-4, "final_learning_rate": 1e-6, "warmup": 0.1}
    total = 1000  # the peak is at step 0.1 × 1000 − 1 = 99
    assert rate(0, total, **settings) == pytest.approx(1e-7)
    assert rate(99, total, **settings) == pytest.approx(5e-4)
    assert rate(999, total, **settings) == pytest.approx(1e-6)
    assert rate(49.5, total, **settings) == pytest.approx((1e-7 + 5e-4) / 2)
    assert rate(549, total, **settings) == pytest.approx((5e-4 + 1e-6) / 2)
    quarter = 1e-6 + (5e-4 - 1e-6) * (1 + cos(pi / 4)) / 2
    assert rate(99 + 225, total, **settings) == pytest.approx(quarter)


def test_hold_keeps_the_peak_and_shortens_the_decay():
    settings = {"learning_rate": 5e-4, "final_learning_rate": 1e-6, "warmup": 0.1, "hold": 0.5}
    assert {rate(step, 1000, **settings) for step in (99, 100, 400, 599)} == {5e-4}
    assert rate(600, 1000, **settings) < 5e-4
    assert rate(799, 1000, **settings) == pytest.approx((5e-4 + 1e-6) / 2)  # half of 599 … 999
    assert rate(999, 1000, **settings) == pytest.approx(1e-6)
    assert rate(999, 1000, warmup=0.1, hold=1.0) == 1e-3  # no decay at all


@pytest.mark.parametrize("total", [1, 2, 3, 10])
def test_very_short_runs_have_finite_rates_within_bounds(total):
    for step in range(total):
        assert 1e-7 <= rate(step, total) <= 1e-3


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
