"""GRASS layers with their norms as one fused operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grass_gnn.nn.norm import BatchNorm, layer_statistics
from grass_gnn.ops import EdgeOrder, grass_stack, pack_weights

if TYPE_CHECKING:
    from grass_gnn.nn.attention import GRASSConv


def fused_layers(
    layers: Sequence[GRASSConv],
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    flip: bool = False,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Run layers of equal settings on nodes [N, d] and edges [E, d].

    The first of them is number ``first`` of the model. Statistics of batch norms are used,
    or added up, as the norms themselves would.
    """
    norms = [norm for layer in layers for norm in (layer.node_norm, layer.edge_norm)]
    given = [moments for norm in norms if (moments := layer_statistics(norm)) is not None]
    removal = layers[0].edge_removal if layers[0].training else 0.0
    out = grass_stack(
        x,
        e,
        edge_index,
        order,
        pack_weights([layer.weights for layer in layers]),
        residual_scale=layers[0].residual_scale,
        flip=flip,
        norm=layers[0].norm,  # type: ignore[arg-type]
        removal=removal,
        seed=int(torch.randint(2**62, ())) if removal else 0,
        statistics=torch.stack(given).unflatten(0, (len(layers), 2)) if given else None,
        first_layer=first,
        synchronise=any(getattr(norm, "synchronised", False) for norm in norms)
        and layers[0].training,
    )
    for norm, (mean, var) in zip(norms, out.statistics.flatten(0, 1), strict=True):
        if isinstance(norm, BatchNorm) and norm.collecting:
            norm.add(mean, var)
    return out.x, out.e
