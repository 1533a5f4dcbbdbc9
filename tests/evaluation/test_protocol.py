"""The evaluation protocol by hand: batches, rewirings, confidence intervals, embeddings."""

import numpy
import pytest
import torch

from grass_gnn import GRASS, GRASSConfig, GrassError
from grass_gnn.config import TaskConfig
from grass_gnn.data.packed.dataset import pack
from grass_gnn.evaluation import protocol
from grass_gnn.evaluation.protocol import (
    BY_GRAPH,
    TEST,
    bootstrap,
    collect,
    embed_split,
    evaluate,
    predict_split,
)
from grass_gnn.nn.norm import InputNorm
from grass_gnn.tasks import make_task
from grass_gnn.testing import random_input

SETTINGS = {
    "input.nodes.kind": "index",
    "input.nodes.sizes": [5],
    "encoding.steps": 3,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "task.outputs": 2,
    "training.batch_size": 6,
    "evaluation.statistics_passes": 2,
}


def trained(level="graph", **changes):
    """A model with collected statistics and 13 graphs of different sizes."""
    config = GRASSConfig().override(SETTINGS | {"task.level": level} | changes)
    graphs = [random_input(config, 4 + seed % 5, seed) for seed in range(13)]
    data = pack(graphs, config)
    torch.manual_seed(0)
    model = GRASS(config).train()
    for norm in model.modules():
        if isinstance(norm, InputNorm):
            norm(torch.randn(50, norm.mean.numel()))
    collect(model, data, config, workers=0)
    return model, data, config


@pytest.mark.parametrize("level", ["graph", "node", "edge"])
@pytest.mark.parametrize("stream", [TEST, BY_GRAPH])
def test_predictions_do_not_depend_on_the_batches(level, stream):
    model, data, config = trained(level)
    options = {"seed": 3, "rewiring": 1, "stream": stream, "workers": 0}
    whole, target, owner = predict_split(model, data, config, batch_size=13, **options)
    for size in (1, 4):
        found = predict_split(model, data, config, batch_size=size, **options)
        torch.testing.assert_close(found[0], whole, rtol=1e-4, atol=1e-5)
        assert torch.equal(found[1], target) and torch.equal(found[2], owner)
    assert len(whole) == len(target.view(len(whole), -1)) == len(owner)
    rows = {"graph": [1] * 13, "node": data.graph_ptr.diff().tolist()}.get(level)
    if rows is None:
        graph = torch.repeat_interleave(data.graph_ptr.diff())
        offsets = torch.repeat_interleave(data.graph_ptr[:-1], torch.bincount(owner, minlength=13))
        head = data.select(torch.arange(13)).edge_index[0]
        assert torch.equal(graph[head], owner) and bool((head >= offsets).all())
    else:
        assert torch.bincount(owner).tolist() == rows


def test_scores_are_those_of_the_rewirings_one_by_one(monkeypatch):
    monkeypatch.setattr(protocol, "BOOTSTRAP", 50)
    model, data, config = trained()
    found, mean, std = evaluate(model, data, config, seed=3, rewirings=5, workers=0)
    each, targets, owners = zip(
        *(predict_split(model, data, config, 3, number, workers=0) for number in range(5)),
        strict=True,
    )
    each = torch.stack(each).double()
    assert each.std(dim=0).min() > 0  # every rewiring is another
    task, target = make_task(config.task), targets[0]
    torch.testing.assert_close(mean, each.mean(dim=0))
    torch.testing.assert_close(std, each.std(dim=0, correction=0))
    scores = [task.score(one, target) for one in each]
    assert found.scores == scores and found.rewirings == 5
    assert found.mean == pytest.approx(numpy.mean(scores))
    assert found.variance == pytest.approx(numpy.var(scores, ddof=1))
    assert list(found.averaged) == [1, 2, 4, 5]
    for count, score in found.averaged.items():
        assert score == pytest.approx(task.score(each[:count].mean(dim=0), target))
    assert set(found.metrics) == {"mae", "rmse", "r2"}
    for metric, (value, interval) in found.metrics.items():
        assert value == pytest.approx(task.score(mean, target, metric))
        assert interval == bootstrap(task, mean, target, owners[0], metric)
    assert found.averaged_interval == found.metrics["mae"][1]
    # The interval of the mean score is as wide as that of one rewiring.
    own = numpy.array(bootstrap(task, each[0], target, owners[0])) - scores[0]
    assert numpy.array(found.interval) - found.mean == pytest.approx(own)
    assert found.spread_correlation == task.spread_correlation(mean, std, target)


def test_confidence_intervals_are_those_of_resampled_graphs(monkeypatch):
    monkeypatch.setattr(protocol, "BOOTSTRAP", 2000)
    task, source = make_task(TaskConfig()), torch.Generator().manual_seed(1)
    target = torch.randn(300, 1, generator=source).double()
    prediction = target + torch.randn(300, 1, generator=source)
    error = (prediction - target).abs()
    alone = torch.arange(300)
    low, high = bootstrap(task, prediction, target, alone)
    centre, width = float(error.mean()), float(error.std()) / 300**0.5
    assert low == pytest.approx(centre - 1.96 * width, abs=0.15 * width)
    assert high == pytest.approx(centre + 1.96 * width, abs=0.15 * width)
    # Rows of a graph are drawn together: writing each row four times adds no knowledge.
    rows = alone.repeat_interleave(4)
    again = bootstrap(task, prediction[rows], target[rows], rows)
    assert again == pytest.approx((low, high), rel=1e-9)


def test_graphs_of_several_rows_are_drawn_whole(monkeypatch):
    monkeypatch.setattr(protocol, "BOOTSTRAP", 40)
    task, source = make_task(TaskConfig()), torch.Generator().manual_seed(2)
    owner = torch.arange(9).repeat_interleave(torch.tensor([1, 4, 2, 0, 7, 3, 1, 5, 2]))
    owner = owner[torch.randperm(len(owner), generator=source)]  # in any order
    target, prediction = torch.randn(2, len(owner), 1, generator=source).double()
    generator, expected = torch.Generator().manual_seed(0), []
    for _ in range(40):
        drawn = torch.randint(9, (9,), generator=generator)
        rows = torch.cat([torch.nonzero(owner == graph).flatten() for graph in drawn])
        expected.append(float((prediction[rows] - target[rows]).square().mean().sqrt()))
    found = bootstrap(task, prediction, target, owner, "rmse")
    assert found == pytest.approx(numpy.quantile(expected, [0.025, 0.975]))


@pytest.mark.parametrize("by_graph", [False, True])
def test_embeddings_are_the_inputs_of_the_head_under_the_same_rewirings(by_graph):
    model, data, config = trained()
    options = {"seed": 3, "by_graph": by_graph}
    one = embed_split(model, data, config, rewirings=1, **options)
    assert one.shape == (13, 3 * 8)
    stream = BY_GRAPH if by_graph else TEST
    expected = [
        predict_split(model, data, config, 3, number, stream, workers=0)[0] for number in range(2)
    ]
    with torch.no_grad():
        torch.testing.assert_close(model.head(one), expected[0], rtol=1e-4, atol=1e-5)
        # The mean of two, so that the second is what is missing.
        both = embed_split(model, data, config, rewirings=2, batch_size=5, **options)
        torch.testing.assert_close(model.head(2 * both - one), expected[1], rtol=1e-3, atol=1e-4)
    nodes = embed_split(model, data, config, "node", rewirings=1, **options)
    assert nodes.shape == (int(data.graph_ptr[-1]), 8)
    with pytest.raises(GrassError):
        embed_split(model, data, config, "edge")


def test_without_pooling_the_embedding_of_a_graph_is_the_mean_over_its_nodes():
    model, data, config = trained("node")
    nodes = embed_split(model, data, config, "node", rewirings=2)
    graphs = embed_split(model, data, config, "graph", rewirings=2, batch_size=5)
    parts = nodes.split(data.graph_ptr.diff().tolist())
    expected = torch.stack([part.mean(dim=0) for part in parts])
    torch.testing.assert_close(graphs, expected, rtol=1e-4, atol=1e-5)
