"""Metrics against scikit-learn, OGB's evaluator and torchmetrics."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import make_task


@pytest.fixture(params=range(3))
def random(request):
    return torch.Generator().manual_seed(request.param)


def task(kind, outputs, metric):
    losses = {"regression": "l1", "classification": "cross-entropy"}
    config = TaskConfig(kind=kind, outputs=outputs, loss=losses.get(kind, "bce"), metric=metric)
    return make_task(config)


def test_multiclass_metrics_equal_scikit_learn(random):
    p = torch.rand(200, 5, generator=random)
    t = torch.randint(5, (200,), generator=random)
    hard = p.argmax(1)
    expected = {
        "accuracy": sk.accuracy_score(t, hard),
        "class-accuracy": sk.balanced_accuracy_score(t, hard),
        "f1": sk.f1_score(t, hard, average="macro"),
    }
    for metric, value in expected.items():
        assert task("classification", 5, metric).score(p, t) == pytest.approx(value, abs=1e-7)


def test_class_accuracy_is_about_the_classes_that_occur(random):
    """As in scikit-learn, a class without members has no accuracy, even if it is predicted."""
    p = torch.rand(60, 4, generator=random)
    t = torch.randint(3, (60,), generator=random)
    assert bool((p.argmax(1) == 3).any())
    expected = sk.recall_score(t, p.argmax(1), average="macro", labels=[0, 1, 2])
    found = task("classification", 4, "class-accuracy").score(p, t)
    assert found == pytest.approx(expected, abs=1e-7)


def test_macro_f1_where_a_class_is_never_predicted_or_never_there(random):
    p = torch.rand(60, 4, generator=random)
    p[:, 3] = -1
    t = torch.randint(3, (60,), generator=random)
    expected = sk.f1_score(t, p.argmax(1), average="macro")
    assert task("classification", 4, "f1").score(p, t) == pytest.approx(expected, abs=1e-7)


def test_average_precision_equals_ogb_and_scikit_learn(random):
    evaluator = pytest.importorskip("ogb.graphproppred").Evaluator("ogbg-molpcba")
    evaluator.num_tasks = 6
    p = torch.rand(150, 6, generator=random)
    t = (torch.rand(150, 6, generator=random) > 0.7).float()
    t[:20, 2] = float("nan")
    t[:, 5] = 0.0  # never occurs: left out by all three
    expected = evaluator.eval({"y_true": t.numpy(), "y_pred": p.numpy()})["ap"]
    assert task("multilabel", 6, "ap").score(p, t) == pytest.approx(expected, abs=1e-6)
    by_hand = [
        sk.average_precision_score(t[k, c], p[k, c])
        for c in range(5)
        for k in [~torch.isnan(t[:, c])]
    ]
    assert expected == pytest.approx(np.mean(by_hand), abs=1e-9)


def test_binary_and_regression_metrics_equal_scikit_learn(random):
    p = torch.rand(100, 1, generator=random)
    t = (torch.rand(100, 1, generator=random) > 0.4).float()
    binary = {
        "auc": sk.roc_auc_score(t, p),
        "ap": sk.average_precision_score(t, p),
        "accuracy": sk.accuracy_score(t, p > 0.5),
        "f1": sk.f1_score(t, p > 0.5),
    }
    for metric, value in binary.items():
        assert task("binary", 1, metric).score(p, t) == pytest.approx(value, abs=1e-6)
    y = torch.randn(100, 3, generator=random)
    q = y + 0.3 * torch.randn(100, 3, generator=random)
    regression = {
        "mae": sk.mean_absolute_error(y, q),
        "rmse": sk.mean_squared_error(y, q) ** 0.5,
        "r2": sk.r2_score(y, q),
    }
    for metric, value in regression.items():
        assert task("regression", 3, metric).score(q, y) == pytest.approx(value, rel=1e-5)


def test_no_label_that_occurs_both_ways_has_no_score():
    p, t = torch.rand(5, 1), torch.ones(5, 1)
    assert np.isnan(task("binary", 1, "auc").score(p, t))


def test_r2_is_about_the_targets_with_two_known_values_or_more():
    y = torch.tensor([[1.0, 5.0, 2.0], [3.0, np.nan, 4.0], [np.nan, np.nan, 9.0]])
    p = torch.tensor([[1.5, 4.0, 2.5], [2.0, 7.0, 3.0], [0.0, 7.0, 8.0]])
    known = [[0, 1], [0, 1, 2]]
    each = [sk.r2_score(y[k, c], p[k, c]) for k, c in zip(known, (0, 2), strict=True)]
    assert task("regression", 3, "r2").score(p, y) == pytest.approx(np.mean(each))
    assert np.isnan(task("regression", 1, "r2").score(p[:, 1:2], y[:, 1:2]))


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e-13])
def test_r2_does_not_depend_on_the_unit(random, unit):
    y = torch.randn(50, 1, generator=random)
    q = y + torch.randn(50, 1, generator=random)
    expected = sk.r2_score(y, q)
    score = task("regression", 1, "r2").score(unit * q, unit * y)
    assert score == pytest.approx(expected, abs=1e-4)
    constant = torch.full((50, 1), 3.5 * unit)
    assert task("regression", 1, "r2").score(constant + unit, constant) == 0
    assert task("regression", 1, "r2").score(constant, constant) == 1
