"""Mini-batches of one large graph: their content, and that they depend only on seed and epoch."""

import networkx as nx
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP, GraphBatch
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.loader import SampledLoader, training_loader
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.encoding import make_encoding
from grass_gnn.errors import GrassError

NODES, EDGES = 60, 400
SETTINGS = {
    "input.nodes.kind": "continuous",
    "input.nodes.sizes": [1],
    "input.edges.kind": "continuous",
    "input.edges.sizes": [1],
    "task.level": "node",
    "encoding.kind": "decomposed-rrwp",
    "encoding.steps": 4,
    "encoding.directed": "symmetrize",
    "rewiring.degree": 2,
    "training.sampling": "partition",
    "training.parts": 7,
}


def config(**changes) -> GRASSConfig:
    return GRASSConfig().override(SETTINGS | {k.replace("__", "."): v for k, v in changes.items()})


def numbered_graph(train: float = 0.5) -> Data:
    """A directed multigraph whose nodes and edges carry their own numbers as features."""
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.arange(float(NODES)).unsqueeze(1),
        edge_index=torch.randint(NODES, (2, EDGES), generator=generator),
        edge_attr=torch.arange(float(EDGES)).unsqueeze(1),
        y=torch.arange(float(NODES)).unsqueeze(1),
        train_mask=torch.rand(NODES, generator=generator) < train,
        val_mask=torch.zeros(NODES, dtype=torch.bool),
        test_mask=torch.zeros(NODES, dtype=torch.bool),
    )


def loader(chosen: GRASSConfig, graph: Data | None = None, **settings) -> SampledLoader:
    packed = pack([graph or numbered_graph()], chosen).for_split("train")
    return SampledLoader(packed, chosen, **{"seed": 1, "workers": 0, **settings})


def nodes_of(batch: GraphBatch) -> Tensor:
    assert batch.x is not None
    return batch.x[:, 0].long()


def same(first: list[GraphBatch], second: list[GraphBatch]) -> bool:
    names = ("x", "edge_index", "edge_encoding", "mask")
    return len(first) == len(second) and all(
        torch.equal(getattr(a, name), getattr(b, name))
        for a, b in zip(first, second, strict=True)
        for name in names
    )


def test_a_partition_has_each_node_once_in_every_epoch() -> None:
    one = loader(config())
    parts = []
    for epoch in range(3):
        one.set_epoch(epoch)
        batches = list(one)
        parts.append([frozenset(nodes_of(batch).tolist()) for batch in batches])
        assert torch.cat([nodes_of(batch) for batch in batches]).sort().values.tolist() == list(
            range(NODES)
        )
        sizes = [len(part) for part in parts[-1]]
        assert len(sizes) == 7 and max(sizes) - min(sizes) <= 2
        trained = [int(batch.mask.sum()) for batch in batches]
        assert sum(trained) == int(numbered_graph().train_mask.sum())
        assert max(trained) - min(trained) <= 1
    assert set(parts[0]).isdisjoint(parts[1]) and set(parts[1]).isdisjoint(parts[2])


@pytest.mark.parametrize("sampling", ["partition", "neighbour"])
def test_parts_have_exactly_the_edges_among_their_nodes(sampling: str) -> None:
    graph = numbered_graph()
    for batch in loader(config(training__sampling=sampling, training__fan_outs=[2])):
        nodes = nodes_of(batch)
        _, expected = subgraph(nodes, graph.edge_index, graph.edge_attr)
        rows = batch.edge_kind == INPUT_EDGE
        numbers = batch.edge_attr[rows, 0].long()
        assert numbers.sort().values.tolist() == expected[:, 0].long().tolist()
        # The same two ends, by the numbers of the whole graph.
        assert torch.equal(nodes[batch.edge_index[:, rows]], graph.edge_index[:, numbers])
        assert torch.equal(batch.y, graph.y[nodes])
        # Rewired inside: every node has a loop, and 2r added edges at most.
        loops = batch.edge_index[:, batch.edge_kind == SELF_LOOP]
        assert loops[0].sort().values.tolist() == list(range(len(nodes)))
        added = batch.edge_index[1, batch.edge_kind == ADDED_EDGE].bincount()
        assert 0 < int(added.max()) <= 4


@pytest.mark.parametrize("kind", ["decomposed-rrwp", "laplacian"])
def test_encodings_of_a_part_are_those_of_the_whole_graph(kind: str) -> None:
    chosen = config(encoding__kind=kind)
    graph = numbered_graph()
    graph.edge_index = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
    graph.edge_attr = graph.edge_attr.repeat(2, 1)
    one = loader(chosen, graph)
    whole = one.large.graph
    for batch in one:
        nodes = nodes_of(batch)
        expected = make_encoding(chosen.encoding).pairs(nodes[batch.edge_index], whole.structure)
        torch.testing.assert_close(batch.edge_encoding, expected)
        torch.testing.assert_close(batch.node_encoding[:, -2:], whole.stored["degree"][nodes])


def test_only_seeds_count_among_neighbours() -> None:
    graph = numbered_graph()
    one = loader(config(training__sampling="neighbour", training__fan_outs=[3, 2]))
    seeds = []
    for batch in one:
        nodes, mask = nodes_of(batch), batch.mask
        assert 0 < int(mask.sum()) < len(nodes)
        seeds += nodes[mask].tolist()
    assert sorted(seeds) == graph.train_mask.nonzero().flatten().tolist()


def test_neighbours_are_within_the_fan_outs() -> None:
    one = loader(config(training__sampling="neighbour"))
    large, generator = one.large, torch.Generator().manual_seed(0)
    seeds = torch.tensor([5, 17])
    inward = nx.MultiDiGraph(numbered_graph().edge_index.flip(0).t().tolist())
    everything = set(nx.single_source_shortest_path_length(inward, 5, cutoff=2))
    everything |= set(nx.single_source_shortest_path_length(inward, 17, cutoff=2))
    assert set(large.around(seeds, [EDGES, EDGES], generator).tolist()) == everything
    for _ in range(20):
        near = set(large.around(seeds, [2], generator).tolist())
        ring = {node for seed in (5, 17) for node in inward.successors(seed)} | {5, 17}
        assert {5, 17} <= near <= ring and len(near) <= 2 + 2 * 2
    # Each in-edge of a node is as likely as any other.
    edges = torch.stack([torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)])
    star = pack(
        [
            Data(
                x=torch.zeros(6, 1), edge_index=edges, edge_attr=torch.zeros(5, 1), y=torch.zeros(6)
            )
        ],
        config(encoding__kind="none"),
    ).large_graph
    count = torch.zeros(6)
    for _ in range(500):
        count[star.around(torch.tensor([0]), [2], generator)] += 1
    assert count[0] == 500 and count[1:].sum() == 1000  # two different ones each time
    assert float((count[1:] / 500 - 0.4).abs().max()) < 0.1  # 4.5 standard deviations


@pytest.mark.parametrize("sampling", ["partition", "neighbour"])
def test_batches_follow_from_seed_and_epoch_alone(sampling: str) -> None:
    chosen = config(training__sampling=sampling)
    one = loader(chosen)
    one.set_epoch(2)
    expected = list(one)
    again = loader(chosen, workers=2)
    again.set_epoch(2)
    again.resume_from(3)
    assert len(again) == 4
    assert same(list(again), expected[3:])
    assert len(again) == 7
    for other in (loader(chosen, seed=2), loader(chosen, stream=1), loader(chosen)):
        other.set_epoch(1 if other.seed == 1 and other.stream == 0 else 2)
        assert not same(list(other), expected)


def test_no_part_is_without_a_training_node() -> None:
    graph = numbered_graph()
    graph.train_mask[:] = False
    graph.train_mask[[3, 4, 50]] = True
    batches = list(loader(config(), graph))
    assert [int(batch.mask.sum()) for batch in batches] == [1, 1, 1]
    graph.train_mask[:] = False
    with pytest.raises(GrassError, match="The graph has no training nodes"):
        loader(config(), graph)


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(GrassError, match="rrwp"):
        loader(config(encoding__kind="rrwp"))
    with pytest.raises(GrassError, match="rrwp"):
        prepare({"train": [numbered_graph()]}, config(encoding__kind="rrwp"))
    with pytest.raises(GrassError, match="sampling"):
        config(task__level="graph")
    chosen = config()
    several = pack([numbered_graph(), numbered_graph()], chosen)
    with pytest.raises(GrassError, match="a single large graph, but there are 2"):
        training_loader(several, chosen, 1)
