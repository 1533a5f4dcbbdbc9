"""Training on parts of one large graph, from the data to a model that predicts for all of it."""

import csv
from functools import partial

import pytest
import torch
from test_run import stop_after
from torch_geometric.data import Data

from grass_gnn import GRASSConfig, fit, load_model
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.encoding import drrwp as decomposition
from grass_gnn.encoding import eigen as krylov
from grass_gnn.errors import GrassError
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train
from grass_gnn.training.signals import Interrupted

SPLITS = ("train", "val", "test")
SETTINGS = {
    "input.nodes.kind": "continuous",
    "input.nodes.sizes": [2],
    "task.level": "node",
    "task.kind": "classification",
    "task.outputs": 2,
    "task.loss": "cross-entropy",
    "task.metric": "accuracy",
    "encoding.kind": "decomposed-rrwp",
    "encoding.steps": 3,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 0,
    "training.epochs": 2,
    "training.parts": 4,
    "evaluation.streamed_above": 0,
    "evaluation.block_edges": 500,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}


def config(**changes) -> GRASSConfig:
    return GRASSConfig().override(SETTINGS | {k.replace("__", "."): v for k, v in changes.items()})


def two_communities(nodes: int = 200) -> Data:
    """A node's class is its parity; most edges join equals, and features say little."""
    generator = torch.Generator().manual_seed(0)
    head, tail = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    equal = torch.rand(4 * nodes, generator=generator) < 0.9
    tail = torch.where(equal, tail - tail % 2 + head % 2, tail)
    y = torch.arange(nodes) % 2
    return Data(
        x=torch.randn(nodes, 2, generator=generator) + y.unsqueeze(1),
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        y=y,
        **{f"{s}_mask": torch.arange(nodes) // 2 % 3 == n for n, s in enumerate(SPLITS)},
    )


def prepared(chosen: GRASSConfig, folder):
    graph = [two_communities()]  # one list: it is stored once
    return prepare(dict.fromkeys(SPLITS, graph), chosen, folder)


@pytest.mark.parametrize("sampling", ["partition", "neighbour"])
def test_a_stopped_run_resumes_to_the_same_weights(tmp_path, sampling) -> None:
    chosen = config(training__sampling=sampling, training__fan_outs=[2])
    data = prepared(chosen, tmp_path / "cache")
    train(chosen, data, tmp_path / "undisturbed", RunOptions(seed=3))
    middle_of_second_epoch = RunOptions(seed=3, progress=stop_after(6))
    with pytest.raises(Interrupted):
        train(chosen, data, tmp_path / "stopped", middle_of_second_epoch)
    train(chosen, data, tmp_path / "stopped", RunOptions(seed=3, resume=True))
    with (tmp_path / "stopped" / "metrics.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["4", "8"]
    files = [tmp_path / name / "weights.safetensors" for name in ("undisturbed", "stopped")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_learnt_on_parts_holds_for_the_whole_graph(tmp_path) -> None:
    settings = {
        name: SETTINGS[name] for name in SETTINGS if name.split(".")[0] not in ("input", "task")
    }
    settings |= {"training.sampling": "partition", "training.epochs": 15}
    model = fit(two_communities(), tmp_path / "run", settings=settings)
    found = load_model(tmp_path / "run").predict([two_communities()], rewirings=2)
    test = two_communities().test_mask
    right = (found.mean[:, -1] > 0.5).long() == two_communities().y
    assert float(right[test].float().mean()) > 0.7  # by features alone: 0.76 at best
    assert model.config.training.sampling == "partition"


def test_several_graphs_are_refused(tmp_path) -> None:
    chosen = config(training__sampling="partition")
    graphs = [two_communities(), two_communities()]
    for graph in graphs:
        for split in SPLITS:
            del graph[f"{split}_mask"]
    data = prepare(dict.fromkeys(SPLITS, graphs), chosen, tmp_path / "cache")
    with pytest.raises(GrassError, match="a single large graph, but there are 2 graphs"):
        train(chosen, data, tmp_path / "run")


def test_a_killed_preparation_is_resumed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(decomposition, "LARGE_NODES", 900)
    search = partial(krylov.leading_eigenpairs, save_seconds=0.0)
    monkeypatch.setattr(decomposition, "leading_eigenpairs", search)
    chosen, graph = config(), [two_communities(3000)]
    source = dict.fromkeys(SPLITS, graph)
    restarts = 0

    def count(what: str, done: int, total: int) -> None:
        nonlocal restarts
        restarts += what == "Eigenpairs"

    def kill_at_the_third(what: str, done: int, total: int) -> None:
        count(what, done, total)
        if restarts == 3:
            raise KeyboardInterrupt

    undisturbed = prepare(source, chosen, tmp_path / "one", progress=count)
    needed, restarts = restarts, 0
    with pytest.raises(KeyboardInterrupt):
        prepare(source, chosen, tmp_path / "two", progress=kill_at_the_third)
    restarts = 0
    again = prepare(source, chosen, tmp_path / "two", progress=count)
    assert needed > 3 and restarts == needed - 2  # two had been kept
    assert not list((tmp_path / "two").glob(".*.eigenpairs"))
    for name in ("vectors", "values"):
        assert torch.equal(again.train.tensors[name], undisturbed.train.tensors[name])
    (account,) = again.eigenpairs
    assert 0 < account["residual"] <= 1.1 * krylov.TOLERANCE and account["nodes"] == 3000
    assert prepare(source, chosen, tmp_path / "two").eigenpairs == [account]
