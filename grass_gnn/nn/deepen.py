"""More layers for a trained model, without a change of its output.

A deep GRASS learns slowly at first: after twelve epochs of ZINC, 49 layers are behind 12, at four
times the cost of a step. So train a shallow model first, deepen it, and train it on::

    grass-gnn train zinc --set model.layers=12 --out runs/shallow
    grass-gnn train zinc --start-from runs/shallow --out runs/deep
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.nn.model import GRASS

# A layer normalises its input plus an update. Without the update it returns its input, which is
# already normalised.
_IDENTITY = {"node_out.": 0.0, "edge_out.": 0.0, "node_norm.mean": 0.0, "edge_norm.mean": 0.0}
_IDENTITY |= {"node_norm.var": 1.0, "edge_norm.var": 1.0}
_LAYER = re.compile(r"layers\.layers\.(\d+)\.(.+)")


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
    old = model.config.model.layers
    if layers < old:
        raise GrassError(f"A model of {old} layers cannot start one of {layers}: it has too many.")
    if model.config.model.attention != "grass":
        raise GrassError("Only models with GRASS's attention can be given more layers.")
    with torch.random.fork_rng():  # the weights of the new model are all overwritten
        deep = GRASS(model.config.override({"model.layers": layers}))
    deep.load_state_dict(_deepened(model.state_dict(), old, layers))
    return deep.train(model.training)


def arrangement(old: int, new: int) -> list[tuple[int, bool]]:
    """For each of the ``new`` layers, the old layer that it starts from, and whether it is new.

    New layers follow an old one in pairs, because every layer swaps the heads and tails of the
    edges for the next one: after a pair they are as before. An odd one comes last.

    >>> arrangement(3, 8)
    [(0, False), (1, True), (0, True), (1, False), (0, True), (1, True), (2, False), (1, True)]
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


def _deepened(state: dict[str, Tensor], old: int, new: int) -> dict[str, Tensor]:
    layers: list[dict[str, Tensor]] = [{} for _ in range(old)]
    result = {}
    for name, value in state.items():
        if match := _LAYER.fullmatch(name):
            layers[int(match[1])][match[2]] = value
        else:
            result[name] = value
    for number, (source, is_new) in enumerate(arrangement(old, new)):
        for name, value in layers[source].items():
            if is_new:
                for start, constant in _IDENTITY.items():
                    if name.startswith(start):
                        value = torch.full_like(value, constant)
            result[f"layers.layers.{number}.{name}"] = value
    return result


def started(config: GRASSConfig, model: GRASS) -> GRASS:
    """A model of the configuration that starts from a trained one with at most as many layers.

    Raises:
        GrassError: The configurations differ in something else that determines the weights.
    """
    deep = deepen(model, config.model.layers)
    wanted = GRASS(config)
    for name, value in wanted.state_dict().items():
        found = deep.state_dict().get(name)
        if found is None or found.shape != value.shape:
            raise GrassError(f"The model to start from does not fit the configuration: {name}.")
    wanted.load_state_dict(deep.state_dict())
    return wanted
