"""More layers for a trained model, without a change of its output.

A deep GRASS learns slowly at first: after twelve epochs of ZINC, 49 layers are behind 13, although
their epochs take four times as long. A shallow model can be trained first and then deepened::

    grass-gnn train zinc --set model.layers=12 --out runs/shallow
    grass-gnn train zinc --start-from runs/shallow --out runs/deep
"""

from __future__ import annotations

import torch
from torch import nn

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.nn.attention import GRASSConv, only_shapes
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import AveragingNorm


def deepen(model: GRASS, layers: int) -> GRASS:
    """A model with more layers and the same output.

    New layers are spread evenly. They start with the weights of a layer nearby, apart from the
    output maps, which are zero: these are the first to learn.

    Args:
        model: A model with GRASS's attention.
        layers: Its new number of layers.

    Example:
        >>> shallow = GRASS(GRASSConfig.preset("zinc", **{"model.layers": 12}))
        >>> sum(p.numel() for p in deepen(shallow, 49).parameters())
        496545
    """
    return start_from(model, model.config.override({"model.layers": layers})).train(model.training)


@torch.no_grad()
def start_from(model: GRASS, config: GRASSConfig) -> GRASS:
    """A model of the configuration with the weights of one that has at most as many layers.

    Raises:
        GrassError: The configurations differ in something else that determines the weights.
    """
    old, new = model.config.model.layers, config.model.layers
    if new < old:
        raise GrassError(f"A model of {new} layers cannot start from one of {old}: it has more.")
    if {model.config.model.attention, config.model.attention} != {"grass"}:
        raise GrassError("Only models with GRASS's attention can be given more layers.")
    with only_shapes():
        expected = GRASS(config.override({"model.layers": old}))
    if different := _shapes(model).items() ^ _shapes(expected).items():
        name = min(name for name, _ in different)
        raise GrassError(f"The model to start from does not fit the configuration: {name}.")
    deep = GRASS(config)
    others = {k: v for k, v in model.state_dict().items() if not k.startswith("layers.")}
    deep.load_state_dict(others, strict=False)
    places = arrangement(old, new)
    for layer, (source, is_new) in zip(deep.layers.layers, places, strict=True):
        layer.load_state_dict(model.layers.layers[source].state_dict())
        if is_new:
            make_identity(layer)  # type: ignore[arg-type]
    return deep


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


@torch.no_grad()
def make_identity(layer: GRASSConv) -> None:
    """Make a layer return its input, if that is normalised.

    It returns norm(v + α W …): W becomes zero, and the statistics those of normalised rows.
    """
    for part in (layer.node_out, layer.edge_out):
        for parameter in part.parameters():
            parameter.zero_()
    for norm in (layer.node_norm, layer.edge_norm):
        if isinstance(norm, AveragingNorm):
            norm.mean.zero_()
            norm.var.fill_(1.0)


def arrangement(old: int, new: int) -> list[tuple[int, bool]]:
    """For each of the ``new`` layers, the old layer that it starts from, and whether it is new.

    New layers follow an old one in pairs, because every layer swaps the heads and tails of the
    edges for the next one: after a pair they are as before. An odd one comes last.

    >>> arrangement(3, 8)
    [(0, False), (1, False), (0, True), (1, True), (2, False), (1, True), (2, True), (1, True)]
    """
    pairs = (new - old) // 2
    result: list[tuple[int, bool]] = []
    for layer in range(old):
        result.append((layer, False))
        other = layer - 1 if layer else min(1, old - 1)  # a neighbour, with heads and tails swapped
        for _ in range((layer + 1) * pairs // old - layer * pairs // old):
            result += [(other, True), (layer, True)]
    if len(result) < new:
        result.append((max(old - 2, 0), True))
    return result
