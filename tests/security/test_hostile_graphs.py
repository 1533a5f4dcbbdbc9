"""Graphs for ``fit`` that used to end in a traceback, found by fuzzing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from grass_gnn.api.graph_task import GraphSpec, infer_graph_task, infer_input, split_graphs
from grass_gnn.api.graphs import read_graphs
from grass_gnn.config import GRASSConfig
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.packed.dataset import pack
from grass_gnn.errors import GrassError


def small(**values: Any) -> Data:
    base = {"x": torch.rand(2, 1), "edge_index": torch.zeros(2, 1).long(), "y": torch.rand(1)}
    return Data(**{**base, **values})


@pytest.mark.parametrize(
    "values",
    [
        {"x": torch.tensor(1.0), "num_nodes": None},
        {"num_nodes": "two"},
        {"num_nodes": 10**15},
        {"edge_index": torch.zeros(3, 1).long()},
    ],
)
def test_graphs_without_a_number_of_nodes_or_ends(values: dict[str, Any]) -> None:
    with pytest.raises(GrassError, match=r"Graph 0 has no (nodes|edge_index)"):
        check_sizes([small(**values)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"y": ["a"]}, "target y of a graph must be a tensor of numbers"),
        ({"y": torch.ones(1, dtype=torch.complex64)}, "must be a tensor of numbers"),
        ({"y": torch.tensor([2**40])}, "outputs"),
        ({"train_mask": [True]}, "train_mask of graph 0 must be boolean"),
        ({"train_mask": torch.tensor([7])}, "train_mask of graph 0 must be boolean"),
    ],
)
def test_invalid_targets_give_clear_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(GrassError, match=message):
        infer_graph_task([small(**values)])


def test_invalid_tasks_levels_and_widths_give_clear_errors() -> None:
    for level, kind in (("atom", None), (None, "guess")):
        with pytest.raises(GrassError, match="must be one of"):
            infer_graph_task([small()], level, kind)
    with pytest.raises(GrassError, match="Some targets y have 1 values"):
        infer_graph_task([small(), small(y=torch.rand(3))])
    for x in (torch.tensor([[2**40]]), torch.ones(2, 1, dtype=torch.complex64), [1, 2]):
        with pytest.raises(GrassError, match="node feature"):
            infer_input([small(x=x)])
    empty = small(x=torch.rand(2, 1), y=torch.rand(0), edge_index=torch.zeros(2, 0).long())
    with pytest.raises(GrassError):
        infer_graph_task(split_graphs(empty, GraphSpec("edge"), 0)["train"], "edge")


def test_infinite_classes_and_a_single_number_for_many_edges() -> None:
    graphs = [small(y=torch.tensor(float("inf"))), small()]
    with pytest.raises(GrassError):
        infer_graph_task(graphs, kind="classification")
    with pytest.raises(GrassError):
        split_graphs(small(y=torch.tensor(1.0)), GraphSpec("edge"), 0)


def test_sparse_targets_and_masks_of_a_graph_with_masks() -> None:
    masks = {f"{split}_mask": torch.tensor([True]) for split in ("train", "val", "test")}
    with pytest.raises(GrassError, match="target y of a graph must be a tensor of numbers"):
        split_graphs(small(**masks, y=torch.ones(1).to_sparse()), GraphSpec("edge"), 0)
    sparse = {name: mask.to_sparse() for name, mask in masks.items()}
    data = small(**sparse)
    assert split_graphs(data, GraphSpec("edge"), 0)["train"][0].train_mask.is_sparse


def test_graphs_with_different_masks_are_refused() -> None:
    config = GRASSConfig().override({"input.nodes.kind": "continuous", "input.nodes.sizes": [1]})
    with pytest.raises(GrassError, match="Graph 1 has different masks from graph 0"):
        pack([small(train_mask=torch.tensor([True])), small()], config)


def test_a_saved_graph_that_lacks_its_inside(tmp_path: Path) -> None:
    graph = small()
    del graph.__dict__["_store"]
    torch.save([graph], tmp_path / "graphs.pt")
    with pytest.raises(GrassError, match="list of PyG graphs"):
        read_graphs(tmp_path / "graphs.pt")
