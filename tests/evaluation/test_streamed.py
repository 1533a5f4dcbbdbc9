"""Evaluation of a single graph in blocks of edges: the numbers are those of one pass."""

import tempfile

import pytest
import torch
from torch_geometric.data import Data

from grass_gnn import GRASS, GRASSConfig, GrassError
from grass_gnn.data.batch import rewire
from grass_gnn.data.packed.dataset import PackedDataset, pack
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.evaluation import streamed
from grass_gnn.evaluation.protocol import collect, evaluate, is_streamed, predict_split
from grass_gnn.evaluation.streamed import predict_streamed
from grass_gnn.nn.norm import BatchNorm

SETTINGS = {
    "input.nodes.kind": "continuous",
    "input.nodes.sizes": [3],
    "input.edges.kind": "index",
    "input.edges.sizes": [4],
    "task.level": "node",
    "task.outputs": 2,
    "encoding.kind": "decomposed-rrwp",
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 3,
    "model.head_hidden": 4,
    "evaluation.streamed_above": 0,
    "evaluation.block_edges": 37,
    "evaluation.statistics_passes": 2,
    "evaluation.rewirings": 2,
}
SEEDS = torch.tensor([5])


def config(**changes) -> GRASSConfig:
    return GRASSConfig().override(SETTINGS | {k.replace("__", "."): v for k, v in changes.items()})


def one_graph(chosen: GRASSConfig) -> PackedDataset:
    generator = torch.Generator().manual_seed(0)
    nodes, edges = 40, 130
    graph = Data(
        x=torch.randn(nodes, 3, generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_attr=torch.randint(4, (edges, 1), generator=generator),
        y=torch.randn(nodes, 2, generator=generator),
        **{
            f"{split}_mask": torch.arange(nodes) % 3 == n
            for n, split in enumerate(("train", "val", "test"))
        },
    )
    return pack([graph], chosen)


def trained(chosen: GRASSConfig, data: PackedDataset) -> GRASS:
    """A model after some batches: its input norms have averages, its layers do not."""
    torch.manual_seed(0)
    model = GRASS(chosen).train()
    for batch in GraphLoader(data, chosen, 1, workers=0):
        model(batch)
    for name, parameter in model.named_parameters():  # so that nothing cancels by being zero
        if "bias" in name:
            torch.nn.init.normal_(parameter)
    return model.eval()


def assert_same_as_one_pass(model: GRASS, data: PackedDataset, chosen: GRASSConfig) -> None:
    graph = data.select(torch.zeros(1, dtype=torch.int64))
    with torch.no_grad():
        expected = model(rewire(graph, chosen.encoding, chosen.rewiring, SEEDS))
    assert float(expected.std()) > 0.1
    found = predict_streamed(model, graph, chosen, SEEDS)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("block_edges", [1, 37, 10**6])
@pytest.mark.parametrize("flip", [True, False])
def test_any_blocks_with_and_without_flips(block_edges: int, flip: bool) -> None:
    chosen = config(evaluation__block_edges=block_edges, model__flip=flip)
    data = one_graph(chosen)
    assert_same_as_one_pass(trained(chosen, data), data, chosen)


@pytest.mark.parametrize("norm", ["batch", "instance", "layer", "layer-graph", "none"])
def test_every_norm(norm: str) -> None:
    chosen = config(model__norm=norm, model__output_bias=norm != "batch")
    data = one_graph(chosen)
    assert_same_as_one_pass(trained(chosen, data), data, chosen)


def test_collected_statistics_are_used() -> None:
    chosen = config()
    data = one_graph(chosen)
    model = trained(chosen, data)
    graph = data.select(torch.zeros(1, dtype=torch.int64))
    own = predict_streamed(model, graph, chosen, SEEDS)
    collect(model, data, chosen, workers=0)
    assert_same_as_one_pass(model, data, chosen)
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.mean += 0.5
    assert_same_as_one_pass(model, data, chosen)
    shifted = predict_streamed(model, graph, chosen, SEEDS)
    assert float((shifted - own).abs().max()) > 0.01


@pytest.mark.parametrize(
    "changes",
    [
        {"encoding__kind": "none", "encoding__degrees": "none"},
        {"encoding__kind": "laplacian", "encoding__degrees": "out-out"},
        {"encoding__directed": "alternating"},
        {"rewiring__kind": "none"},
        {"model__layers": 1},
        {"input__edges__kind": "none", "input__edges__sizes": []},
    ],
)
def test_other_inputs(changes: dict) -> None:
    chosen = config(**changes)
    data = one_graph(chosen)
    assert_same_as_one_pass(trained(chosen, data), data, chosen)


def test_evaluation_takes_it_above_a_size(monkeypatch) -> None:
    chosen = config()
    data = one_graph(chosen).for_split("test")
    model = trained(chosen, data)
    limit = data.num_edges + data.num_nodes + 4 * data.num_nodes  # with loops and added edges
    at_once = config(evaluation__streamed_above=limit)
    assert is_streamed(model, data, config(evaluation__streamed_above=limit - 1))
    assert not is_streamed(model, data, at_once)

    expected, target, owner = predict_split(model, data, at_once, seed=3, rewiring=1, workers=0)
    calls = []
    run = streamed._run_layer
    monkeypatch.setattr(streamed, "_run_layer", lambda *a: calls.append(1) or run(*a))
    found, same_target, same_owner = predict_split(model, data, chosen, 3, 1, workers=0)
    assert len(calls) == 3 and len(found) == 13
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(target, same_target) and torch.equal(owner, same_owner)
    scores = [evaluate(model, data, c, workers=0)[0].mean for c in (chosen, at_once)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_what_goes_in_one_pass() -> None:
    chosen = config()
    data = one_graph(chosen)
    model = trained(chosen, data)
    assert is_streamed(model, data, chosen)
    assert not is_streamed(GRASS(chosen).eval(), data, chosen)  # input norms know nothing yet
    assert not is_streamed(model.train(), data, chosen)
    edges = config(task__level="edge")
    assert not is_streamed(model.eval(), data, edges)
    replaced = config(model__attention="gat")
    assert not is_streamed(trained(replaced, data), data, replaced)
    graph = data.select(torch.zeros(1, dtype=torch.int64))
    with pytest.raises(GrassError, match="rrwp"):
        predict_streamed(model, graph, config(encoding__kind="rrwp"))


def test_a_full_disk_gives_a_one_sentence_error(monkeypatch) -> None:
    chosen = config()
    data = one_graph(chosen)
    model = trained(chosen, data)

    def no_file(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    with pytest.raises(GrassError, match=r"states of 318 edges .*No space left"):
        predict_streamed(model, data.select(torch.zeros(1, dtype=torch.int64)), chosen)
