"""Averages of network, forest and process: shares, standard deviations, reach, scores."""

import math

import numpy
import pytest
import torch

from grass_gnn import GrassError
from grass_gnn.config import TaskConfig
from grass_gnn.evaluation.forest import ForestPrediction
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.evaluation.stack import ForestCard, Stack, fit_reach, fit_shares, mix
from grass_gnn.evaluation.trained import Prediction
from grass_gnn.tasks import TASKS, make_task


def regression(outputs=1):
    return make_task(TaskConfig(kind="regression", outputs=outputs, loss="l1", metric="mae"))


def test_shares_follow_the_better_member_and_stay_between_0_and_1():
    source = torch.Generator().manual_seed(0)
    truth = torch.randn(400, 3, generator=source)
    good, bad = (truth + s * torch.randn(400, 3, generator=source) for s in (0.1, 1.0))
    network = torch.stack([good[:, 0], bad[:, 1], good[:, 2]], dim=1)
    forest = torch.stack([bad[:, 0], good[:, 1], good[:, 2].clone()], dim=1)
    first, second, same = fit_shares(network, forest, truth, regression(3))
    # The best share of independent errors is 1 / (1 + 0.01) and 0.01 / (1 + 0.01).
    assert first == pytest.approx(0.99, abs=0.04) and second == pytest.approx(0.01, abs=0.04)
    assert same == 0.5
    # Equal members get a half, whatever their size; beyond the better one is not reached.
    worse = truth + 5.0
    assert fit_shares(truth + 1.0, worse, truth, regression(3)) == [1.0] * 3
    few = fit_shares(good[:4, :1], bad[:4, :1], truth[:4, :1], regression())
    assert 0.5 < few[0] < first  # four rows say little


def probabilities(kind, outputs):
    return make_task(TaskConfig(**TASKS[kind].default_settings(outputs, missing=True)))


def test_shares_of_probabilities_minimise_the_log_loss():
    task = probabilities("multilabel", 2)
    truth = torch.tensor([0.0, 1.0] * 100)[:, None].repeat(1, 2)
    sure = torch.where(truth > 0, 0.9, 0.1)
    truth[::3, 1] = math.nan  # missing labels count for nothing
    unsure = torch.full_like(sure, 0.5)
    assert min(fit_shares(sure, unsure, truth, task)) > 0.9
    assert max(fit_shares(1 - sure, sure, truth, task)) < 0.1
    mixed = torch.stack([sure[:, 0], 1 - sure[:, 1]], dim=1)  # each label has its own share
    first, second = fit_shares(mixed, 1 - mixed, truth, task)
    assert first > 0.9 and second < 0.1
    # Few rows say little, and none say nothing.
    assert 0.5 < fit_shares(sure[:2], unsure[:2], truth[:2], task)[0] < 0.75
    truth[:, 1] = math.nan
    assert fit_shares(sure, unsure, truth, task)[1] == 0.5
    gap = unsure.clone()
    gap[:, 1] = math.nan  # no forest
    assert fit_shares(sure, gap, truth, task)[1] == 1


def test_classes_have_one_share_in_common():
    task = probabilities("classification", 3)
    truth = torch.tensor([0, 1, 2] * 60)
    sure = torch.full((180, 3), 0.1) + 0.7 * torch.nn.functional.one_hot(truth, 3)
    other = sure.roll(1, dims=1)  # certain of another class
    for network, forest, low, high in ((sure, other, 0.9, 1), (other, sure, 0, 0.1)):
        first, *rest = fit_shares(network, forest, truth, task)
        assert low <= first <= high and rest == [first] * 2
    gap = other.clone()
    gap[:90] = math.nan  # rows that only one of the two has predicted
    assert fit_shares(sure, gap, truth, task)[0] == fit_shares(sure, other, truth, task)[0]
    few = fit_shares(sure[:3], other[:3], truth[:3], task)
    assert 0.5 < few[0] < 1


@pytest.mark.parametrize("even", [True, False])
def test_the_deviation_of_probabilities_is_that_of_the_mixture_without_the_votes(even):
    network = Prediction(torch.tensor([[0.2]]), torch.tensor([[0.1]]))
    forest = ForestPrediction(*(torch.tensor([[value]]) for value in (0.6, 0.4, math.nan)))
    found = mix(network, forest, [0.25], probabilities("binary", 1), even)
    assert float(found.mean) == pytest.approx(0.25 * 0.2 + 0.75 * 0.6)
    assert float(found.std) == pytest.approx(math.sqrt(0.25 * 0.1**2 + 0.25 * 0.75 * 0.4**2))


@pytest.mark.parametrize("even", [True, False])
def test_the_deviation_is_that_of_the_mixture(even):
    task, source = regression(), numpy.random.default_rng(0)
    nothing = torch.tensor([[math.nan]])
    network = Prediction(torch.tensor([[1.0]]), torch.tensor([[0.5]]))
    forest = ForestPrediction(torch.tensor([[3.0]]), torch.tensor([[1.5]]), nothing)
    found = mix(network, forest, [0.25], task, even)
    drawn = source.random(400_000) < (0.5 if even else 0.25)
    sample = numpy.where(
        drawn, source.normal(1, 0.5, len(drawn)), source.normal(3, 1.5, len(drawn))
    )
    assert float(found.mean) == pytest.approx(0.25 * 1 + 0.75 * 3)
    assert float(found.std) == pytest.approx(sample.std(), rel=0.01)
    assert mix(network, ForestPrediction(nothing, nothing, nothing), [0.25], task) == network


def test_targets_without_a_process_are_those_of_the_forest():
    task, gap, rows = (
        regression(2),
        torch.tensor([[1.0, math.nan], [2.0, math.nan]]),
        torch.arange(2),
    )
    network = Prediction(torch.zeros(2, 2), torch.ones(2, 2))
    forest = ForestPrediction(torch.full((2, 2), 4.0), torch.ones(2, 2), torch.ones(2, 2))
    card = ForestCard(
        model="", descriptors=[], columns=0, shares=[0.0, 0.0], rows=2, process_shares=[1.0, 1.0]
    )
    stack = Stack(None, card, task, {"val": forest}, None, {"val": Prediction(gap, gap)})
    assert stack.join("val").mean.tolist() == [[1.0, 4.0], [2.0, 4.0]]
    own = {"metrics": {"mae": None}, "scores": [2.5]}
    scores = stack.rescore(own, network, torch.ones(2, 2), "val")
    assert scores["scores"] == [2.5]  # of single rewirings, as before
    both = stack.combine(network, stack.join("val"))
    assert scores["metrics"]["mae"][1] == bootstrap(task, both.mean, torch.ones(2, 2), rows)
    assert scores["spread_correlation"] == task.spread_correlation(*both, torch.ones(2, 2))
    with pytest.raises(GrassError):
        stack.rescore(own, network._replace(mean=torch.zeros(3, 2)), torch.ones(3, 2), "val")
    assert scores["members"]["Gaussian process"]["mae"] == pytest.approx((0 + 1 + 3 + 3) / 4)
    assert scores["members"]["forest"]["mae"] == pytest.approx(3)
    assert scores["metrics"]["mae"][0] == pytest.approx(7 / 4)


def test_a_network_that_is_far_from_the_others_counts_only_up_to_its_reach():
    network = Prediction(torch.tensor([[1.0], [5.0], [300.0], [-300.0]]), torch.zeros(4, 1))
    forest = ForestPrediction(*(torch.zeros(4, 1) for _ in range(3)))
    found = mix(network, forest, [0.5], regression(), reach=[8.0])
    assert found.mean.flatten().tolist() == [0.5, 2.5, 4.0, -4.0]
    assert found.std.flatten().tolist() == [0.5, 2.5, 150.0, 150.0]  # still says how far it is
    assert fit_reach(network.mean[:2], forest.mean[:2], regression()) == [4 * 13**0.5]
    held = torch.tensor([[1.0, 2.0], [math.nan, 3.0]])
    assert fit_reach(held, torch.zeros(2, 2), regression(2)) == pytest.approx([4, 4 * 6.5**0.5])
    assert fit_reach(held, torch.zeros(2, 2), probabilities("multilabel", 2)) is None
