"""The learning rate against values computed by hand."""

from math import cos, pi

import pytest

from grass_gnn.config import TrainingConfig
from grass_gnn.training.optim import learning_rate


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
