"""From PyG's ``Data`` or ``Batch`` to a batch for the model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from grass_gnn.config import EncodingConfig, FeatureConfig, GRASSConfig
from grass_gnn.data.batch import (
    GraphBatch,
    InputGraphs,
    assemble,
    node_encoding,
    rewire,
    sort_edges,
)
from grass_gnn.data.encode import encode_spectrum, encode_structure
from grass_gnn.encoding import node_degrees
from grass_gnn.errors import GrassError
from grass_gnn.rewiring import graph_seeds
from grass_gnn.validation import check_graph

LARGEST_FEATURE = 1e15  # of continuous ones: sums of their squares stay finite


def batch_from_data(data: Data, config: GRASSConfig, seeds: Tensor | None = None) -> GraphBatch:
    """Encode and rewire PyG graphs, as far as transforms have not done so before.

    Graphs that ``AddRandomRegularEdges`` went over (they have ``added_edge_mask``) keep their
    added edges, and need the encoding of their edges; others are rewired here.

    Args:
        data: One graph, or a ``Batch`` of graphs.
        config: The model's configuration.
        seeds: One seed a graph for the rewiring [B].
    """
    num_nodes = _num_nodes(data)
    check_graph(data.edge_index, num_nodes)
    graphs = InputGraphs(
        graph_ptr=_graph_ptr(data, num_nodes),
        edge_index=data.edge_index,
        x=feature_columns("node", data.x, config.input.nodes, num_nodes),
        edge_attr=feature_columns(
            "edge", data.edge_attr, config.input.edges, data.edge_index.size(1)
        ),
        y=data.y,
        degree=data.get("degree"),
        descriptors=_descriptors(data, config.input.descriptors),
    )
    if "added_edge_mask" in data:
        return _keep_added_edges(data, graphs, config.encoding)
    if seeds is None and config.rewiring.when != "always":
        seeds = graph_seeds(graphs.edge_index, graphs.graph_ptr)
    structure = _structure(data, graphs, config.encoding)
    graphs = InputGraphs(**{**vars(graphs), **structure})
    return rewire(graphs, config.encoding, config.rewiring, seeds)


def _num_nodes(data: Data) -> int:
    if data.edge_index is None:
        raise GrassError("The graph has no edge_index (an empty one has shape [2, 0]).")
    if not data.num_nodes:
        raise GrassError("The graph has no nodes.")
    return int(data.num_nodes)


def _graph_ptr(data: Data, num_nodes: int) -> Tensor:
    if isinstance(data, Batch):
        return data.ptr
    return torch.tensor([0, num_nodes])


def _descriptors(data: Data, columns: int) -> Tensor | None:
    if not columns:
        return None
    if "descriptors" not in data:
        raise GrassError(f"The graph needs {columns} descriptors (data.descriptors).")
    return data["descriptors"].float().reshape(-1, columns)  # [B, columns]


def feature_columns(
    what: str, features: Tensor | None, expected: FeatureConfig, num_rows: int
) -> Tensor | None:
    """Check features against what the model embeds, and give them two dimensions.

    Raises:
        GrassError: They are missing, of another shape, not finite, or beyond their vocabulary.
    """
    if expected.kind == "none":
        return None
    if features is None:
        raise GrassError(f"The graph has no {what} features, but the model takes {expected.kind}.")
    if features.dim() == 1:
        features = features.unsqueeze(1)
    columns = features.flatten(1).size(1)
    index = expected.kind not in ("continuous", "one-hot")
    width = len(expected.categories) if index else expected.sizes[0]
    if features.dim() != 2 or columns != width or features.size(0) != num_rows:
        raise GrassError(
            f"The {what} features have shape {list(features.shape)}, "
            f"but the model takes [{num_rows}, {width}]."
        )
    if not index:
        if not torch.isfinite(features.float()).all():
            row = int((~torch.isfinite(features.float())).any(dim=1).nonzero()[0])
            raise GrassError(f"The {what} features of row {row} are not finite.")
        if features.numel() and float(features.abs().max()) > LARGEST_FEATURE:
            row = int((features.abs() > LARGEST_FEATURE).any(dim=1).nonzero()[0])
            raise GrassError(
                f"The {what} features of row {row} are beyond {LARGEST_FEATURE:g}: scale them."
            )
        return features
    if features.is_floating_point():
        raise GrassError(f"The {what} features are category numbers: integers, not floats.")
    sizes = torch.tensor(expected.categories)
    outside = (features < 0) | (features >= sizes)
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise GrassError(
            f"The {what} feature {int(features[row, column])} in row {row}, column {column} is "
            f"beyond its {int(sizes[column])} categories."
        )
    return features


def _structure(data: Data, graphs: InputGraphs, encoding: EncodingConfig) -> dict[str, Any]:
    """What the encoding needs, from the transforms' keys where they are there."""
    index, weight = graphs.edge_index, data.get("edge_weight")
    found: dict[str, Any] = encode_structure(index, graphs.num_nodes, encoding, weight)
    if graphs.degree is not None:
        found["degree"] = graphs.degree
    transition, vectors = data.get("rrwp_transition"), data.get("rrwp_vectors")
    if encoding.kind == "rrwp" and transition is not None:
        if torch.equal(data["rrwp_edge_index"], index):
            found["transition"] = transition
    elif encoding.kind == "decomposed-rrwp" and vectors is not None:
        right = data.get("rrwp_right_vectors")
        found["vectors"] = vectors if right is None else torch.cat([vectors, right], dim=1)
        found["values"] = data["rrwp_values"]
    elif encoding.kind == "laplacian" and "laplacian_pe" in data:
        found["laplacian"] = data["laplacian_pe"]
    elif encoding.kind in ("decomposed-rrwp", "laplacian"):
        parts = [
            encode_spectrum(edges, n, encoding, own_weight)
            for edges, n, own_weight in _each(graphs, weight)
        ]
        found |= {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return found


def _each(graphs: InputGraphs, weight: Tensor | None) -> list[tuple[Tensor, int, Tensor | None]]:
    """Edges, in local numbers, number of nodes and edge weights of each graph."""
    edge_graph = graphs.node_graph[graphs.edge_index[0]]
    found = []
    for number, (first, last) in enumerate(pairwise(graphs.graph_ptr.tolist())):
        own = edge_graph == number
        own_weight = None if weight is None else weight[own]
        found.append((graphs.edge_index[:, own] - first, last - first, own_weight))
    return found


def _keep_added_edges(data: Data, graphs: InputGraphs, encoding: EncodingConfig) -> GraphBatch:
    """A batch from graphs that transforms have encoded and rewired."""
    added = data["added_edge_mask"]
    prefix = "laplacian_pe" if encoding.kind == "laplacian" else "rrwp"
    loops, pairs = _encodings(data, encoding, prefix)
    given = graphs.edge_attr
    inputs = InputGraphs(
        **{
            **vars(graphs),
            "edge_index": graphs.edge_index[:, ~added],
            "edge_attr": None if given is None else given[~added],
            "degree": graphs.degree
            if graphs.degree is not None
            else node_degrees(graphs.edge_index[:, ~added], graphs.num_nodes),
        }
    )
    edges = sort_edges(inputs.edge_index, graphs.edge_index[:, added], graphs.num_nodes)
    pairs = torch.cat([pairs[~added], loops, pairs[added]])[edges.source]
    nodes = node_encoding(loops, encoding, inputs.degree)
    return assemble(inputs, edges, nodes, pairs)


def _encodings(data: Data, encoding: EncodingConfig, key: str) -> tuple[Tensor, Tensor]:
    """Encodings of self-loops [N, columns] and of all other edges [E, columns]."""
    num_nodes, num_edges = int(data.num_nodes or 0), data.edge_index.size(1)
    if encoding.kind == "none":
        return torch.empty(num_nodes, 0), torch.empty(num_edges, 0)
    for needed in (key, f"edge_{key}"):
        if needed not in data:
            raise GrassError(
                f"The rewired graph has no {needed!r}: put the encoding's transform "
                "(such as AddRRWP) before AddRandomRegularEdges."
            )
    nodes, pairs = data[key], data[f"edge_{key}"]
    loops = torch.cat([nodes, nodes], dim=1) if encoding.kind in ("rrwp", "laplacian") else nodes
    if pairs.size(1) != encoding.edge_columns:
        raise GrassError(
            f"The edges have {pairs.size(1)} columns of encoding, "
            f"but the model takes {encoding.edge_columns}."
        )
    return loops, pairs
