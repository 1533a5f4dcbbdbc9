"""A stack of layers in plain PyTorch, from the arguments of the fused one.

The fused backward pass cannot be differentiated itself. For gradients of gradients, such as when a
loss contains forces (derivatives of an energy), this stack computes the first gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.ops.native import StackSettings
from grass_gnn.ops.norms import common_moments, moments, normalise, normalise_by_graph
from grass_gnn.ops.reference import LayerWeights, grass_layer
from grass_gnn.ops.removal import removal_mask


def reference_stack(
    x: Tensor,
    e: Tensor,
    weights: Tensor,
    edge_index: Tensor,
    graph_ptr: Tensor,
    given: Tensor | None,
    settings: StackSettings,
) -> tuple[Tensor, Tensor]:
    """Nodes [N, d] and edges [E, d] after all layers of ``weights`` [L, P] and their norms.

    ``graph_ptr`` [B + 1] is the first node of each graph, ``given`` [L, 2, 2, d] the statistics to
    normalise by instead of the batch's own.
    """
    sizes = graph_ptr.diff().long()
    num_graphs = len(sizes)
    node_graph = torch.repeat_interleave(torch.arange(num_graphs, device=x.device), sizes)  # [N]
    edge_graph = node_graph[edge_index[1]]  # [E]

    def apply_norm(v: Tensor, row_graph: Tensor, stored: Tensor | None) -> Tensor:
        if settings.norm == "instance":
            return normalise_by_graph(v, row_graph, num_graphs)
        if settings.norm == "none":
            return v
        if stored is not None:
            return normalise(v, stored[0], stored[1])
        return normalise(v, *(common_moments(v) if settings.synchronise else moments(v)))

    for number, packed in enumerate(weights):
        layer = settings.first_layer + number
        edges = edge_index.flip(0) if settings.flip and layer % 2 else edge_index
        keep = None
        if settings.removal:
            rows, width = e.shape
            keep = removal_mask(settings.seed, layer, rows, width, settings.removal, dtype=e.dtype)
        unpacked = unpack_weights(packed, x.size(1))
        out = grass_layer(x, e, edges, unpacked, settings.residual_scale, keep)
        x = apply_norm(out.x, node_graph, None if given is None else given[number, 0])
        e = apply_norm(out.e, edge_graph, None if given is None else given[number, 1])
    return x, e


def unpack_weights(packed: Tensor, d: int) -> LayerWeights:
    """The parameters of one layer from a row [P] of :func:`grass_gnn.ops.pack_weights`."""
    shapes = [(4 * d, d), (3 * d, d), (d,), (d,), (d, d), (d, d)]
    if packed.numel() > 9 * d * d + 2 * d:
        shapes += [(d,), (d,)]
    parts = packed.split([torch.Size(shape).numel() for shape in shapes])
    return LayerWeights(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))
