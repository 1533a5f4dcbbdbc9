"""Node predictions for a graph whose edges do not fit into memory.

Each layer processes the edges in blocks. The states of nodes are in memory; those of edges are in a
temporary file, which is always read and written sequentially. The softmax of a node needs a maximum
and two sums over its edges, which are accumulated block by block in any order of the edges, so
flipped layers need no re-sorting.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP, InputGraphs, added_edges
from grass_gnn.encoding import Encoding, make_encoding, require_local
from grass_gnn.errors import GrassError
from grass_gnn.nn.attention import GRASSConv
from grass_gnn.nn.model import GRASS
from grass_gnn.ops.norms import Moments
from grass_gnn.ops.reference import EPSILON


@torch.no_grad()
def predict_streamed(
    model: GRASS, graph: InputGraphs, config: GRASSConfig, seeds: Tensor | None = None
) -> Tensor:
    """Predictions for the nodes of a single graph [N, outputs], in bounded memory.

    They equal those of the model on the whole graph, up to rounding.

    Args:
        model: A model for a node-level task with GRASS attention, in evaluation mode.
        graph: The graph, with the stored tensors of its encoding.
        config: Encoding, rewiring and number of edges per block.
        seeds: Random seed of the rewiring [1]; random by default.
    """
    require_local(config.encoding, "Evaluation in blocks of edges (evaluation.streamed_above)")
    device = model.target_scale.device
    encoding = make_encoding(config.encoding)
    added = added_edges(graph.graph_ptr, config.rewiring, seeds)
    edges = _Edges(graph, added, encoding, config.evaluation.block_edges)
    loops = encoding.pairs(graph.loops, graph.structure)  # [N, columns]
    nodes = encoding.nodes(loops, graph.stored.get("degree")).to(device)
    x = model.embed_nodes(None if graph.x is None else graph.x.to(device), nodes)  # [N, d]
    try:
        with tempfile.TemporaryFile(prefix="grass-gnn-") as file:
            states = _States(file, edges, x.size(1), device)
            for block in edges:
                states.write(block, edges.embed(model, block, device))
            x = _run_layers(model, x, edges, states)
    except OSError as error:
        raise GrassError(
            f"The states of {edges.count:,} edges cannot be stored in {tempfile.gettempdir()}: "
            f"{error.strerror or error}."
        ) from error
    return (model.head(x) * model.target_scale + model.target_shift).float().cpu()


class _Block(NamedTuple):
    """Rows ``first`` to ``last − 1`` of the edges."""

    first: int
    last: int
    pairs: Tensor  # [2, b] head and tail
    kind: Tensor  # [b]


@dataclass(frozen=True)
class _Edges:
    """Input edges, then self-loops, then added edges, in blocks."""

    graph: InputGraphs
    added: Tensor  # [2, E_R]
    encoding: Encoding
    block_edges: int

    @property
    def kinds(self) -> list[tuple[int, Tensor]]:
        """Head and tail of the edges of each kind."""
        return [
            (INPUT_EDGE, self.graph.edge_index),
            (SELF_LOOP, self.graph.loops),
            (ADDED_EDGE, self.added),
        ]

    @property
    def count(self) -> int:
        """Number of edges of all kinds."""
        return sum(pairs.size(1) for _, pairs in self.kinds)

    def __iter__(self) -> Iterator[_Block]:
        kinds, count, size = self.kinds, self.count, self.block_edges
        for first in range(0, count, size):
            last, start = min(first + size, count), 0
            parts, rows = [], []
            for kind, pairs in kinds:
                part = pairs[:, max(first - start, 0) : max(last - start, 0)]
                parts.append(part)
                rows.append(torch.full_like(part[0], kind))
                start += pairs.size(1)
            yield _Block(first, last, torch.cat(parts, dim=1), torch.cat(rows))

    def embed(self, model: GRASS, block: _Block, device: torch.device) -> Tensor:
        """e⁰ of a block [b, d]."""
        encoding = self.encoding.pairs(block.pairs, self.graph.structure)
        features = self.graph.edge_attr
        if features is not None:
            rows = features[block.first : block.last]
            others = rows.new_zeros(len(block.kind) - len(rows), *rows.shape[1:])
            features = torch.cat([rows, others]).to(device)
        return model.embed_edges(features, encoding.to(device), block.kind.to(device))


@dataclass
class _States:
    """Representations of all edges in a file, read and written by blocks."""

    file: BinaryIO
    edges: _Edges
    width: int
    device: torch.device

    def write(self, block: _Block, e: Tensor) -> None:
        """Write the states of a block [b, d]."""
        self.file.seek(block.first * self.width * 4)
        self.file.write(e.float().cpu().contiguous().numpy().data.cast("B"))

    def read(self, block: _Block) -> Tensor:
        """Read the states of a block [b, d]."""
        e = np.empty((block.last - block.first, self.width), dtype=np.float32)
        self.file.seek(block.first * self.width * 4)
        self.file.readinto(e.data.cast("B"))  # type: ignore[attr-defined]
        return torch.from_numpy(e).to(self.device)


def _run_layers(model: GRASS, x: Tensor, edges: _Edges, states: _States) -> Tensor:
    """x after the last layer [N, d]."""
    layers = model.layers.layers
    graph = x.new_zeros(x.size(0), dtype=torch.int64)  # all nodes are in one graph
    load: Callable[[Tensor], Tensor] = nn.Identity()
    for number, layer in enumerate(layers):
        assert isinstance(layer, GRASSConv)
        flipped = model.layers.flip and number % 2 == 1
        # The edges of the last layer are not used.
        last = number == len(layers) - 1
        found = _run_layer(layer, x, edges, states, load, flipped, None if last else Moments())
        x = layer.node_norm(found.x, graph, 1)
        if found.moments is not None:
            load = layer.edge_norm.for_blocks(found.moments)
    return x


class _LayerOutput(NamedTuple):
    x: Tensor  # [N, d] before the norm
    moments: Moments | None  # of the edges before their norm


def _run_layer(
    layer: GRASSConv,
    x: Tensor,
    edges: _Edges,
    states: _States,
    load: Callable[[Tensor], Tensor],
    flipped: bool,
    moments: Moments | None,
) -> _LayerOutput:
    """One layer without its norm, as in ``ops/reference.py``, in two passes over the edges.

    ``load`` applies the norm of the previous layer: edges are stored before their norm, which needs
    the moments of all of them. Edges are updated only if ``moments`` is given.
    """
    w, d = layer.weights, x.size(1)
    tail_tail, of_head, edge_tail = (
        F.linear(x, rows) for rows in w.node_in.split([d, 2 * d, d])
    )  # [N, d], [N, 2d]: tail←head ‖ edge←head, [N, d]
    top = torch.full_like(x, -torch.inf)  # [N, d]
    for block in edges:
        _, tail = _ends(block, flipped, x.device)
        z = F.linear(load(states.read(block)), w.edge_in[2 * d :])  # [b, d]
        top.scatter_reduce_(0, tail.unsqueeze(1).expand_as(z), z, "amax")

    total, message = torch.zeros_like(x), torch.zeros_like(x)  # [N, d]
    for block in edges:
        head, tail = _ends(block, flipped, x.device)
        e = load(states.read(block))  # [b, d]
        edge_edge, tail_edge, z = F.linear(e, w.edge_in).chunk(3, dim=1)  # [b, d]
        index = tail.unsqueeze(1).expand_as(z)
        tail_head, edge_head = of_head.index_select(0, head).chunk(2, dim=1)  # [b, d]
        score = torch.exp(z - top.index_select(0, tail)) + EPSILON**0.5
        total.scatter_add_(0, index, score)
        message.scatter_add_(0, index, score * (tail_head + tail_edge))
        if moments is not None:
            e_tilde = edge_edge + edge_head + edge_tail.index_select(0, tail)
            e_hat = F.linear(F.mish(e_tilde + w.edge_bias), w.edge_out, w.edge_out_bias)
            e = e + layer.residual_scale * e_hat
            moments.add(e)
            states.write(block, e)
    # The softmax is divided by its sum once, after the sum over edges.
    x_tilde = tail_tail + message / (total + EPSILON)
    x_hat = F.linear(F.mish(x_tilde + w.node_bias), w.node_out, w.node_out_bias)
    return _LayerOutput(x + layer.residual_scale * x_hat, moments)


def _ends(block: _Block, flipped: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Head and tail of each edge [b] in a layer."""
    head, tail = block.pairs.to(device)
    return (tail, head) if flipped else (head, tail)
