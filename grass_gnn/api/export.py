"""Export a trained model with ``torch.export``, to run it on plain tensors without this package.

The file contains the layers as PyTorch operations (the reference, not the compiled kernel), for any
number of nodes, edges and graphs. Encoding and rewiring are not included: their results are inputs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, export, save
from torch.fx.experimental import _config as tracing
from torch_geometric.data import Batch, Data

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.batch import GraphBatch, batch_from_data
from grass_gnn.encoding import make_encoding
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_json, write_whole
from grass_gnn.nn.model import GRASS
from grass_gnn.ops import EdgeOrder
from grass_gnn.tasks import make_task

FORMAT = 1
_EXAMPLE = {"nodes": 5, "edges": 11, "graphs": 3, "input_edges": 4}  # all different and not small


def export_model(trained: TrainedModel, path: str | Path) -> Path:
    """Write a model as ``.pt2``, and next to it a JSON file that describes its inputs.

    The file runs on the device that the model is on; its inputs must be there, too.

    Args:
        trained: The model.
        path: The ``.pt2`` file to write.

    Returns:
        The path of the JSON file.
    """
    path = Path(path)
    model = PlainGRASS(trained.model).eval()
    inputs = describe_inputs(trained.config)
    example = {one["name"]: _example(one).to(trained.device) for one in inputs}
    sizes = {name: Dim(name, min=1) for name in _EXAMPLE}
    shapes = {
        one["name"]: {
            place: sizes["graphs"] + 1 if size == "graphs + 1" else sizes[size]
            for place, size in enumerate(one["shape"])
            if isinstance(size, str)
        }
        for one in inputs
    }
    with torch.no_grad(), _any_sizes():
        program = export(model, (), example, dynamic_shapes=shapes, strict=False)
    whole = io.BytesIO()
    save(program, whole)
    with write_whole(path) as temporary:
        temporary.write_bytes(whole.getvalue())
    beside = path.with_suffix(".json")
    write_json(beside, _card(trained, inputs))
    return beside


def _any_sizes() -> AbstractContextManager[Any]:
    """Allow a single graph, node or edge, which tracing would otherwise exclude."""
    if hasattr(tracing, "backed_size_oblivious"):
        return tracing.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return nullcontext()  # an older PyTorch: two or more of each


def plain_tensors(
    trained: TrainedModel, graphs: Sequence[Data], seeds: Tensor | None = None
) -> dict[str, Tensor]:
    """Inputs of an exported model by name: the graphs, encoded and rewired.

    Args:
        trained: The model that was exported.
        graphs: PyG graphs with the features that the model was trained on.
        seeds: One seed per graph for the rewiring [B]; random by default.
    """
    batch = batch_from_data(Batch.from_data_list(list(graphs)), trained.config, seeds)
    return batch_tensors(batch, trained.config)


def batch_tensors(batch: GraphBatch, config: GRASSConfig) -> dict[str, Tensor]:
    """The tensors of a batch that is ready for the model, by name."""
    given = {**batch._asdict(), "graph_ptr": batch.order.graph_ptr}
    return {
        one["name"]: given[one["name"]].to(getattr(torch, one["dtype"]))
        for one in describe_inputs(config)
    }


class PlainGRASS(nn.Module):
    """GRASS on plain tensors, with the results of ``predict`` for one rewiring."""

    def __init__(self, model: GRASS) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        edge_index: Tensor,
        edge_kind: Tensor,
        node_graph: Tensor,
        graph_ptr: Tensor,
        x: Tensor | None = None,
        edge_attr: Tensor | None = None,
        node_encoding: Tensor | None = None,
        edge_encoding: Tensor | None = None,
        descriptors: Tensor | None = None,
        input_edges: Tensor | None = None,
    ) -> Tensor:
        """Values, or probabilities of classes and labels; see :func:`describe_inputs`."""
        batch = GraphBatch(
            x=x,
            edge_index=edge_index,
            edge_attr=edge_attr,
            edge_kind=edge_kind,
            # An encoding without columns still has rows: [N, 0] and [E, 0].
            node_encoding=node_graph[:, None][:, :0] if node_encoding is None else node_encoding,
            edge_encoding=edge_kind[:, None][:, :0] if edge_encoding is None else edge_encoding,
            node_graph=node_graph,
            order=EdgeOrder(*[graph_ptr] * 5),  # only its length matters without the fused kernel
            input_edges=graph_ptr if input_edges is None else input_edges,  # otherwise unused
            descriptors=descriptors,
        )
        return make_task(self.model.config.task).activate(self.model(batch))


def describe_inputs(config: GRASSConfig) -> list[dict[str, Any]]:
    """Name, type, shape and meaning of each input; names in shapes are dynamic sizes."""
    nodes, edges = config.input.nodes, config.input.edges
    level = config.task.level
    encoding = make_encoding(config.encoding)
    found = [
        _features("x", "nodes", nodes, "node features"),
        _input("edge_index", [2, "edges"], "int64", "head and tail of each edge"),
        _features("edge_attr", "edges", edges, "edge features; 0 where edge_kind is not 0"),
        _input("edge_kind", ["edges"], "int64", "0: input edge, 1: self-loop, 2: added edge"),
        _input("node_encoding", ["nodes", encoding.node_columns], "float32", "P_ii, and degrees"),
        _input("edge_encoding", ["edges", encoding.pair_columns], "float32", "P_ij and P_ji"),
        _input("node_graph", ["nodes"], "int64", "index of the graph of each node, from 0"),
        _input(
            "graph_ptr",
            ["graphs + 1"],
            "int64",
            "first node of each graph, then the number of nodes",
        ),
        _input(
            "descriptors",
            ["graphs", config.input.descriptors],
            "float32",
            "descriptors of each graph",
        ),
    ]
    if level == "edge":
        found.append(_input("input_edges", ["input_edges"], "int64", "edges to predict"))
    return [one for one in found if 0 not in one["shape"]]


def _features(name: str, rows: str, features: FeatureConfig, meaning: str) -> dict[str, Any]:
    if features.is_float or not features.num_columns:
        return _input(name, [rows, features.num_columns], "float32", meaning)
    limits = {"categories": features.categories}  # each column counts from 0
    return _input(name, [rows, features.num_columns], "int64", meaning) | limits


def _input(name: str, shape: list[Any], dtype: str, meaning: str) -> dict[str, Any]:
    return {"name": name, "shape": shape, "dtype": dtype, "meaning": meaning}


def _example(one: dict[str, Any]) -> Tensor:
    """Zeros; only their shape matters."""
    sizes = _EXAMPLE | {"graphs + 1": _EXAMPLE["graphs"] + 1}
    shape = [sizes[size] if isinstance(size, str) else size for size in one["shape"]]
    return torch.zeros(shape, dtype=getattr(torch, one["dtype"]))


def _card(trained: TrainedModel, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    config, task = trained.config, make_task(trained.config.task)
    rows = {"graph": "graphs", "node": "nodes", "edge": "input_edges"}[task.level]
    table = trained.card.get("table", {})
    meaning = "probabilities" if task.predicts_probabilities else "values"
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "device": trained.device.type,
        "weights_sha256": trained.card.get("weights_sha256"),
        "inputs": inputs,
        "output": {"shape": [rows, task.outputs], "dtype": "float32", "meaning": meaning},
        "task": task.name,
        "targets": table.get("targets", []),
        "classes": table.get("classes") or trained.card.get("classes", []),
        "encoding": config.encoding.model_dump(),
        "rewiring": config.rewiring.model_dump(),
    }
