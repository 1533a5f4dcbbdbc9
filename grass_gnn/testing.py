"""Public test helpers: random graphs, and a check that a model is permutation equivariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.ops import edge_order
from grass_gnn.tasks import make_task

Level = Literal["graph", "node", "edge"]


def random_graph(num_nodes: int, num_edges: int, seed: int = 0, undirected: bool = False) -> Data:
    """A graph with uniformly drawn edges: with self-loops, parallel edges and isolated nodes."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(num_nodes, (2, num_edges), generator=generator)
    if undirected:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    return Data(edge_index=edge_index, num_nodes=num_nodes)


def random_features(
    features: FeatureConfig, rows: int, generator: torch.Generator
) -> Tensor | None:
    """Random features of the configured kind for a number of nodes or edges."""
    if not features.num_columns:
        return None
    if features.is_one_hot:
        chosen = torch.randint(features.num_columns, (rows,), generator=generator)
        return nn.functional.one_hot(chosen, features.num_columns).float()
    if features.is_float:
        return torch.randn(rows, features.num_columns, generator=generator)
    columns = [torch.randint(size, (rows,), generator=generator) for size in features.categories]
    return torch.stack(columns, dim=1)


def random_input(
    config: GRASSConfig,
    num_nodes: int = 8,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Data:
    """A connected undirected graph with the features and targets of a configuration.

    The same seed gives the same graph on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    chords = torch.randint(num_nodes, (2, num_nodes // 2), generator=generator)
    edges = torch.cat([path, chords[:, chords[0] != chords[1]]], dim=1)
    edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    num_edges = edges.size(1)
    # Both directions of an edge have the same features.
    pair = (edges.min(dim=0).values * num_nodes + edges.max(dim=0).values).unique(
        return_inverse=True
    )[1]
    task = make_task(config.task)
    attributes = random_features(config.input.edges, num_edges, generator)
    data = Data(
        x=random_features(config.input.nodes, num_nodes, generator),
        edge_index=edges,
        edge_attr=None if attributes is None else attributes[pair],
        y=task.random_targets(task.num_rows(1, num_nodes, num_edges), generator),
        num_nodes=num_nodes,
    )
    if config.input.descriptors:
        data.descriptors = torch.randn(1, config.input.descriptors, generator=generator)
    return data.to(device)


def permute_nodes(batch: GraphBatch, permutation: Tensor, level: Level = "graph") -> GraphBatch:
    """The same batch with renumbered nodes: node i becomes ``permutation[i]``.

    Added edges are permuted as well, and so are the targets if ``level`` is ``"node"``. Nodes must
    stay within their graph.
    """
    permutation = permutation.to(batch.edge_index.device)
    back = torch.argsort(permutation)
    edge_index = permutation[batch.edge_index]
    rows = torch.argsort(edge_index[1], stable=True)  # the model expects edges sorted by tail
    position = torch.argsort(rows)
    edge_index = edge_index[:, rows]
    graph_ptr = batch.order.graph_ptr
    if level == "node":
        batch = batch._replace(
            y=None if batch.y is None else batch.y[back],
            mask=None if batch.mask is None else batch.mask[back],
        )
    return batch._replace(
        x=None if batch.x is None else batch.x[back],
        node_encoding=batch.node_encoding[back],
        edge_index=edge_index,
        edge_attr=None if batch.edge_attr is None else batch.edge_attr[rows],
        edge_kind=batch.edge_kind[rows],
        edge_encoding=batch.edge_encoding[rows],
        order=edge_order(edge_index, batch.node_graph.size(0), graph_ptr),
        input_edges=position[batch.input_edges],
    )


def random_permutation(node_graph: Tensor, seed: int = 0) -> Tensor:
    """A random renumbering of nodes that keeps each in its graph; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    key = torch.rand(len(node_graph), generator=generator, dtype=torch.float64)
    return torch.argsort(torch.argsort(node_graph + key.to(node_graph.device)))


def assert_permutation_equivariant(
    model: nn.Module | Callable[..., Any],
    graphs: GraphBatch | tuple[Tensor, Tensor, Tensor],
    level: Level = "graph",
    seed: int = 0,
    tolerance: float = 1e-4,
) -> None:
    """Assert that renumbering the nodes only renumbers the output, on the device of the input.

    Args:
        model: A model that takes a :class:`GraphBatch`, in evaluation mode, or a layer that takes
            nodes, ``edge_index`` and edges.
        graphs: The input of the model (``model.prepare(data)``), or of the layer as three tensors.
        level: What the model predicts for: ``"graph"``, ``"node"`` or ``"edge"``.
        seed: Random seed of the permutation.
        tolerance: Largest difference, relative to the largest output.

    Raises:
        AssertionError: The outputs differ.
    """
    if not isinstance(graphs, GraphBatch):
        x, edge_index, e = graphs
        permutation = random_permutation(torch.zeros(len(x), device=x.device), seed)
        expected_x, expected_e = model(x, edge_index, e)[:2]
        back = torch.argsort(permutation)
        found_x, found_e = model(x[back], permutation[edge_index], e)[:2]
        _assert_close(found_x[permutation], expected_x, tolerance)
        _assert_close(found_e, expected_e, tolerance)
        return
    permutation = random_permutation(graphs.node_graph, seed)
    expected = model(graphs)
    found = model(permute_nodes(graphs, permutation, level))
    _assert_close(found[permutation] if level == "node" else found, expected, tolerance)


def _assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    scale = float(expected.detach().abs().max()) or 1.0
    difference = float((found - expected).detach().abs().max()) / scale
    assert difference <= tolerance, f"outputs differ by {difference:.2g} after a permutation"
