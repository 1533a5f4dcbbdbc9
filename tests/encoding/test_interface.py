"""The Encoding interface: what every encoding promises, on any device."""

import re
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from graph_cases import SPECIAL
from torch_geometric.data import Batch
from torch_geometric.transforms import Compose

import grass_gnn
import grass_gnn.encoding
import grass_gnn.rewiring.transform
from grass_gnn.config import GRASSConfig
from grass_gnn.data import checking
from grass_gnn.data.batch import InputGraphs, batch_from_data, rewire
from grass_gnn.data.checking import FIELDS, field_of
from grass_gnn.data.packed.dataset import LargeGraph, PackedDataset, pack
from grass_gnn.encoding import (
    ENCODINGS,
    AddDecomposedRRWP,
    AddDegree,
    AddLaplacianPE,
    AddRRWP,
    Encoding,
    Structure,
    decompose,
    laplacian_eigenvectors,
    make_encoding,
    node_degrees,
)
from grass_gnn.encoding.transforms import AddEncoding
from grass_gnn.errors import GrassError
from grass_gnn.rewiring import AddRandomRegularEdges, graph_seeds
from grass_gnn.testing import random_input

VARIANTS = [
    {"encoding.kind": kind, "encoding.degrees": degrees, "encoding.directed": directed}
    for kind in ENCODINGS
    for degrees in ("out-in", "none")
    for directed in ("symmetrize", "alternating")
    if directed == "symmetrize" or kind == "decomposed-rrwp"
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_columns_rows_and_nodes_agree(changes: dict) -> None:
    encoding = make_encoding(GRASSConfig().override(changes | {"encoding.steps": 3}).encoding)
    edges = torch.cat([SPECIAL["two components"].edge_index, torch.tensor([[5, 6], [6, 5]])], dim=1)
    ptr = torch.tensor([0, 5, 7])
    stored = encoding.compute_batch(edges, ptr)
    assert stored.keys() == encoding.stored_columns.keys() <= FIELDS.keys()
    count = {"node": 7, "edge": edges.size(1), "graph": 2}
    for name, columns in encoding.stored_columns.items():
        rows = count[field_of(name).row]
        assert stored[name].shape == ((rows, columns) if columns else (rows,)), name
        assert stored[name].dtype == torch.float32
    assert encoding.problem_with(stored) is None
    structure = Structure(edges, ptr, stored)
    loops = encoding.pairs(torch.arange(7).expand(2, -1), structure)
    nodes = encoding.nodes(loops, stored.get("degree"))
    assert encoding.pairs(edges, structure).shape == (edges.size(1), encoding.pair_columns)
    assert nodes.shape == (7, encoding.node_columns)
    assert torch.equal(encoding.loops(nodes[:, : encoding.own_columns]), loops)


def small_config(changes: dict) -> GRASSConfig:
    return GRASSConfig().override(changes | {"encoding.steps": 3, "rewiring.degree": 2})


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("rewiring", ["regular", "non-regular", "complete", "none"])
def test_tensors_are_made_on_the_device_of_the_graph(changes: dict, rewiring: str) -> None:
    """Tensors created without a device are on "meta" here, and fail."""
    config = small_config(changes | {"rewiring.kind": rewiring})
    data = random_input(config, 8)
    encoding = make_encoding(config.encoding)
    with torch.device("meta"):
        batch = batch_from_data(data, config)
        nodes, edges = encoding.random_signs(
            batch.node_encoding, batch.edge_encoding, batch.edge_index, batch.node_graph, 1
        )
    for tensor in (*batch, *batch.order, nodes, edges):
        assert not isinstance(tensor, torch.Tensor) or tensor.device.type == "cpu"


@pytest.mark.parametrize("kind", ["regular", "non-regular", "complete"])
def test_transforms_stay_on_the_device_of_the_graph(kind: str) -> None:
    config = small_config({})
    encode = Compose(
        [
            AddDegree(),
            AddRRWP(3, attr_name="walks"),
            AddDecomposedRRWP(3, directed="alternating"),
            AddLaplacianPE(3),
        ]
    )
    graphs = [random_input(config, 8, seed) for seed in range(2)]
    with torch.device("meta"):
        encoded = [encode(data) for data in graphs]
        one = AddRandomRegularEdges(2, kind=kind)(encoded[0].clone())
    batch = Batch.from_data_list(encoded)
    with torch.device("meta"):
        batch = AddRandomRegularEdges(2, kind=kind, when="graph")(batch)
    for data in (one, batch, *batch.to_data_list()):
        for key, value in data.to_dict().items():
            assert not isinstance(value, torch.Tensor) or value.device.type == "cpu", key


def test_eigenvectors_are_on_the_device_of_the_edges() -> None:
    edges = SPECIAL["two components"].symmetric().edge_index
    with torch.device("meta"):
        found = decompose(edges, 5, 2)
        both = decompose(edges, 5, 2, directed="alternating")
        vectors = laplacian_eigenvectors(edges, 5, 2)
    for tensor in (found.vectors, found.values, both.vectors, both.right_vectors, vectors):
        assert tensor.device == edges.device


def test_unknown_tensors_are_refused_everywhere() -> None:
    with pytest.raises(GrassError, match="colour"):
        field_of("colour")
    ptr, edges = torch.tensor([0, 3]), torch.tensor([[0, 1], [1, 2]])
    tensors = {"edge_index": edges.t(), "colour": torch.zeros(3)}
    with pytest.raises(GrassError, match="colour"):
        PackedDataset(ptr, torch.tensor([0, 2]), tensors, {}, "node")
    graph = InputGraphs(ptr, edges, stored={"colour": torch.zeros(3)})
    with pytest.raises(GrassError, match="colour"):
        LargeGraph.of(graph).induced(torch.tensor([0, 1]))


def test_parts_of_a_large_graph_have_all_of_its_tensors() -> None:
    config = GRASSConfig().override({"encoding.kind": "decomposed-rrwp", "encoding.steps": 3})
    encoding = make_encoding(config.encoding)
    edges, ptr = SPECIAL["two components"].symmetric().edge_index, torch.tensor([0, 5])
    stored = encoding.compute_batch(edges, ptr)
    whole = InputGraphs(
        ptr,
        edges,
        x=torch.arange(5),
        edge_attr=torch.arange(edges.size(1)),
        y=torch.arange(5),
        mask=torch.ones(5, dtype=torch.bool),
        descriptors=torch.ones(1, 2),
        stored=stored,
    )
    nodes = torch.tensor([1, 2, 4])
    part = LargeGraph.of(whole).induced(nodes)
    assert part.stored.keys() == stored.keys()
    assert torch.equal(part.stored["degree"], stored["degree"][nodes])
    assert torch.equal(part.stored["values"], stored["values"])
    assert torch.equal(part.x, nodes) and torch.equal(part.descriptors, whole.descriptors)
    assert torch.equal(edges[:, part.edge_attr], nodes[part.edge_index])
    batch = rewire(part, config.encoding, config.rewiring)
    expected = encoding.pairs(nodes[batch.edge_index], whole.structure)
    torch.testing.assert_close(batch.edge_encoding, expected)


def test_no_other_module_compares_names_of_encodings() -> None:
    folder = Path(grass_gnn.__file__).parent
    allowed = {"config/sections.py", "api/fitting.py"}  # the names, and a default
    names = "|".join(re.escape(f'"{name}"') for name in ENCODINGS if name != "none")
    for path in folder.rglob("*.py"):
        place = path.relative_to(folder).as_posix()
        if place in allowed or place.startswith("encoding/"):
            continue
        text = path.read_text("utf-8")
        assert not re.search(names, text), place
        assert "encoding.kind ==" not in text and "encoding.kind in" not in text, place


class Hubs(Encoding):
    """A toy encoding: the out-degrees of both ends, up to a limit."""

    stored_rows: ClassVar[dict[str, str]] = {"hub": "node"}
    attr_name = "hubs"
    own_columns, pair_columns = 1, 2

    def __init__(self, limit: float = 2.0, degrees: str = "none") -> None:
        super().__init__(degrees)
        self.limit = limit

    @classmethod
    def from_config(cls, config):
        return cls(config.steps, config.degrees)

    def _own_stored_columns(self):
        return {"hub": 1}

    def _compute(self, edge_index, num_nodes, weight):
        return {"hub": node_degrees(edge_index, num_nodes, weight)[:, :1].clamp(max=self.limit)}

    def pairs(self, pairs, graphs):
        hub = graphs.stored["hub"]
        return torch.cat([hub[pairs[0]], hub[pairs[1]]], dim=1)

    @classmethod
    def of_written(cls, data, name):
        stored = cls.read(data, name)
        return None if stored is None else (cls(), stored)


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> GRASSConfig:
    """A configuration with the toy encoding, registered as described in CONTRIBUTING.md."""
    table = {**ENCODINGS, "hubs": Hubs}
    for module in (grass_gnn.encoding, grass_gnn.rewiring.transform):
        monkeypatch.setattr(module, "ENCODINGS", table)
    monkeypatch.setattr(checking, "FIELDS", {**FIELDS, "hub": checking.Field("hub", "node")})
    config = GRASSConfig().override({"rewiring.when": "graph", "model.dim": 8, "model.layers": 2})
    encoding = config.encoding.model_copy(update={"kind": "hubs", "steps": 2})
    return config.model_copy(update={"encoding": encoding})


def test_a_new_encoding_works_everywhere(hubs: GRASSConfig) -> None:
    graphs = [random_input(hubs, n, n) for n in (4, 7)]
    packed = pack(graphs, hubs)
    assert packed.tensors["hub"].shape == (11, 1)
    inputs = packed.select(torch.arange(2))
    seeds = graph_seeds(inputs.edge_index, inputs.graph_ptr)
    by_dataset = rewire(inputs, hubs.encoding, hubs.rewiring, seeds)
    assert by_dataset.node_encoding.shape == (11, 3)
    transforms = Compose(
        [AddEncoding(Hubs(), None, "hubs"), AddRandomRegularEdges(6, when="graph")]
    )
    for given in (graphs, [transforms(data.clone()) for data in graphs]):
        batch = batch_from_data(given, hubs)
        assert torch.equal(batch.edge_index, by_dataset.edge_index)
        assert torch.equal(batch.node_encoding, by_dataset.node_encoding)
        assert torch.equal(batch.edge_encoding, by_dataset.edge_encoding)
    assert grass_gnn.GRASS(hubs)(graphs).shape == (2, 1)
