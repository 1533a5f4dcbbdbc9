"""GRASS: head(pool(layers(embed(graph)))).

:class:`GRASS` is Figure 1 of the paper. Its parts follow: embeddings (equations 1 to 4), pooling
(equation 15) and heads. ``attention.py`` has the layers, equations (7) to (14).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.batch import ADDED_EDGE, GraphBatch, as_data, batch_from_data
from grass_gnn.encoding import make_encoding
from grass_gnn.nn.attention import LayerStack, init_linear, only_shapes, uniform_
from grass_gnn.nn.norm import DescriptorNorm, InputNorm, freeze_norms, limit_inputs

if TYPE_CHECKING:
    from torch_geometric.data import Data


EXTRA_EDGES = 2  # self-loops and added edges have categories, or indicator columns, of their own


class GRASS(nn.Module):
    """Graph Attention with Stochastic Structures (*Greener GRASS*).

    A model is built either from a configuration or from its dimensions. Graphs are encoded and
    rewired by the model itself, unless transforms have already done so. After a training loop of
    your own, call :func:`grass_gnn.nn.collect_statistics` before evaluating: until then, the batch
    norms of the layers use the moments of each test batch.

    Args:
        config: A configuration, such as ``GRASSConfig.preset("zinc")``; without it, the other
            arguments describe the model.
        in_channels: Number of continuous node features, or for categorical ones a list with the
            number of categories of each column; ``None`` for graphs without node features.
        hidden_channels: Width d of nodes and edges.
        num_layers: Number of layers.
        out_channels: Number of outputs.
        edge_channels: As ``in_channels``, for edges.
        level: What is predicted for: ``"graph"``, ``"node"`` or ``"edge"``.
        **settings: Further settings of ``GRASSConfig``, by dotted name, or by name alone for those
            of ``model``: ``norm="instance"``, ``**{"rewiring.degree": 3}``.

    Example:
        >>> model = GRASS(GRASSConfig.preset("zinc"))
        >>> sum(p.numel() for p in model.parameters())
        496545
        >>> GRASS(in_channels=[28], edge_channels=[4], hidden_channels=16, num_layers=2)
        GRASS(in_channels=[28], hidden_channels=16, num_layers=2, out_channels=1, \
edge_channels=[4], level='graph')
    """

    target_scale: Tensor
    target_shift: Tensor

    def __init__(
        self,
        config: GRASSConfig | None = None,
        *,
        in_channels: int | Sequence[int] | None = None,
        hidden_channels: int | None = None,
        num_layers: int | None = None,
        out_channels: int | None = None,
        edge_channels: int | Sequence[int] | None = None,
        level: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        given = {
            **_feature_settings("nodes", in_channels),
            **_feature_settings("edges", edge_channels),
            "model.dim": hidden_channels,
            "model.layers": num_layers,
            "task.outputs": out_channels,
            "task.level": level,
            **{name if "." in name else f"model.{name}": v for name, v in settings.items()},
        }
        given = {name: value for name, value in given.items() if value is not None}
        if config is not None and given:
            raise TypeError("GRASS takes a configuration or keyword arguments, not both")
        self.config = config = GRASSConfig().override(given) if config is None else config
        dim, level = config.model.dim, config.task.level
        self.encoding = make_encoding(config.encoding)
        self.node_features = FeatureEmbedding(config.input.nodes, dim, edges=False)
        self.edge_features = FeatureEmbedding(config.input.edges, dim, edges=True)
        self.node_encoding, self.edge_encoding = (
            EncodingEmbedding(columns, dim) if columns else None
            for columns in (self.encoding.node_columns, self.encoding.pair_columns)
        )
        self.layers = LayerStack(config.model)
        self.pooling = GraphPooling(config.model.pooling) if level == "graph" else None
        columns = config.input.descriptors
        self.descriptors = DescriptorNorm(columns) if columns else None
        width = (dim if level == "node" else 3 * dim) + config.input.descriptors
        self.head = TaskHead(width, config.task.outputs, config.model.head_hidden)
        self.register_buffer("target_scale", torch.tensor(config.task.target_scale))
        self.register_buffer("target_shift", torch.tensor(config.task.target_shift))
        limit_inputs(self, config.model.input_limit)

    def reset_parameters(self) -> None:
        """Reinitialise all weights, and reset statistics and constants to those of a new model."""
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]
        self.target_scale.copy_(torch.tensor(self.config.task.target_scale))
        self.target_shift.copy_(torch.tensor(self.config.task.target_shift))

    def __repr__(self) -> str:
        config = self.config
        nodes, edges = _channels(config.input.nodes), _channels(config.input.edges)
        return (
            f"{type(self).__name__}(in_channels={nodes}, hidden_channels={config.model.dim}, "
            f"num_layers={config.model.layers}, out_channels={config.task.outputs}, "
            f"edge_channels={edges}, level={config.task.level!r})"
        )

    def forward(self, graphs: GraphBatch | Data | Sequence[Data]) -> Tensor:
        """Predict [B, outputs] for graphs, [N, outputs] for nodes or [E, outputs] for input edges.

        Args:
            graphs: A ``Data``, a ``Batch`` or a list of graphs, which are encoded and rewired
                unless transforms have already done so; or a prepared :class:`GraphBatch`.

        Returns:
            For regression, values in the units of the targets; for classification, logits.
        """
        batch = self.prepare(graphs)
        return self.output(*self.represent(batch), batch)

    def prepare(
        self, graphs: GraphBatch | Data | Sequence[Data], seeds: Tensor | None = None
    ) -> GraphBatch:
        """Encode and rewire PyG graphs, with one seed per graph [B]; a GraphBatch is returned."""
        return prepare_batch(graphs, self.config, self.target_scale.device, seeds)

    def represent(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Representations x^L [N, d] and e^L [E, d] after the last layer."""
        return self.layers(*self.embed(batch), batch)

    def embed(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """The first representations x⁰ [N, d] and e⁰ [E, d], equations (3) and (4)."""
        nodes, edges = batch.node_encoding, batch.edge_encoding
        if self.training:
            nodes, edges = self.encoding.random_signs(
                nodes, edges, batch.edge_index, batch.node_graph, batch.num_graphs
            )
        with no_cpu_autocast():
            return (
                self.embed_nodes(batch.x, nodes),
                self.embed_edges(batch.edge_attr, edges, batch.edge_kind),
            )

    def embed_nodes(self, features: Tensor | None, encoding: Tensor) -> Tensor:
        """x⁰ [N, d] from features and encodings [N, …]."""
        x = self.node_features(features, encoding.size(0))
        return x if self.node_encoding is None else x + self.node_encoding(encoding)

    def embed_edges(self, features: Tensor | None, encoding: Tensor, kind: Tensor) -> Tensor:
        """e⁰ [E, d] from features, encodings [E, …] and kinds [E] of edges."""
        e = self.edge_features(features, encoding.size(0), kind)
        return e if self.edge_encoding is None else e + self.edge_encoding(encoding)

    def readout(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Input of the head from nodes [N, d] and edges [E, d].

        Pooled graphs [B, 3d] (more with descriptors), nodes [N, d], or input edges with both of
        their ends [E_in, 3d].
        """
        level = self.config.task.level
        if self.pooling is not None:
            pooled = self.pooling(x, e, batch)  # [B, 3d]
            if self.descriptors is not None:
                assert batch.descriptors is not None
                return torch.cat([pooled, self.descriptors(batch.descriptors)], dim=1)
            return pooled
        if level == "node":
            return x  # [N, d]
        head, tail = batch.edge_index[:, batch.input_edges]
        return torch.cat([x[head], x[tail], e[batch.input_edges]], dim=1)  # [E_in, 3d]

    def output(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Predictions, as :meth:`forward` returns them, from the representations of a batch."""
        with no_cpu_autocast():
            return self.head(self.readout(x, e, batch)) * self.target_scale + self.target_shift

    @torch.no_grad()
    def attention(self, graphs: GraphBatch | Data | Sequence[Data]) -> tuple[GraphBatch, Tensor]:
        """The batch and the attention weights of its edges in every layer [L, E, d]."""
        batch = self.prepare(graphs)
        return batch, self.layers.attention(*self.embed(batch), batch)


def no_cpu_autocast() -> AbstractContextManager[None]:
    """Compute embeddings and head in float32 on a CPU, where mixed precision is for the layers.

    PyTorch generates code for a product of bfloat16 matrices whenever their shapes are new, as the
    number of edges is in every batch, and keeps it: that costs more time than the products take,
    and hundreds of megabytes.
    """
    return torch.autocast("cpu", enabled=False)


def prepare_batch(
    graphs: GraphBatch | Data | Sequence[Data],
    config: GRASSConfig,
    device: torch.device,
    seeds: Tensor | None = None,
) -> GraphBatch:
    """Encode and rewire PyG graphs, with one seed per graph [B]; a GraphBatch is returned as it is.

    Walks and rewiring run on the CPU, whichever device the graphs are on.
    """
    if isinstance(graphs, GraphBatch):
        return graphs
    return batch_from_data(copy(as_data(graphs)).cpu(), config, seeds).to(device)


def _feature_settings(of: str, channels: int | Sequence[int] | None) -> dict[str, Any]:
    if channels is None:
        return {}
    if isinstance(channels, int):
        return {f"input.{of}.kind": "continuous", f"input.{of}.sizes": [channels]}
    return {f"input.{of}.kind": "index", f"input.{of}.sizes": list(channels)}


def _channels(features: FeatureConfig) -> int | list[int] | None:
    """The ``in_channels`` or ``edge_channels`` for these features."""
    if features.kind == "none":
        return None
    return features.num_columns if features.is_float else features.categories


class IndexEmbedding(nn.Module):
    """Categorical features: the sum of one embedding per column.

    Args:
        sizes: Number of categories of each column.
        dim: Width d of the result.
        extra: Further rows in each table, for self-loops and added edges.
    """

    def __init__(self, sizes: list[int], dim: int, extra: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        self.tables = nn.ModuleList(nn.Embedding(size + extra, dim) for size in sizes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the tables such that their sum has unit variance."""
        for table in self.tables:
            uniform_(table.weight, len(self.sizes))  # type: ignore[arg-type]

    def forward(self, index: Tensor, kind: Tensor | None = None) -> Tensor:
        """Sum the embeddings of ``index`` [M, columns] → [M, d].

        Where ``kind`` [M] is above zero (self-loops, added edges), the extra rows are used instead.
        """
        total = torch.zeros((), device=index.device)
        for column, (size, table) in enumerate(zip(self.sizes, self.tables, strict=True)):
            row = index[:, column].long()
            if kind is not None:
                row = torch.where(kind > 0, kind + (size - 1), row)
            total = total + table(row)
        return total


class LinearEmbedding(nn.Module):
    """Continuous features: batch norm, then a linear map. One-hot features: a linear map, no bias.

    Edges have further indicator columns, for self-loops and added edges.
    """

    def __init__(self, columns: int, dim: int, extra: int = 0, one_hot: bool = False) -> None:
        super().__init__()
        self.extra = extra
        self.norm = nn.Identity() if one_hot else InputNorm(columns + extra)
        self.linear = nn.Linear(columns + extra, dim, bias=not one_hot)
        self.one_hot = one_hot
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the weights; a one-hot row selects one column, so its fan-in is one."""
        if isinstance(self.norm, InputNorm):
            self.norm.reset_parameters()
        init_linear(self.linear)
        if self.one_hot:
            uniform_(self.linear.weight, 1)

    def forward(self, features: Tensor, kind: Tensor | None = None) -> Tensor:
        """Map features [M, columns] → [M, d]; ``kind`` [M] gives the indicators of edges."""
        features = features.to(self.linear.weight.dtype)
        if kind is not None:
            kinds = torch.arange(1, self.extra + 1, device=kind.device)
            indicators = (kind.unsqueeze(1) == kinds).to(features.dtype)  # [M, extra]
            features = torch.cat([features, indicators], dim=1)
        return self.linear(self.norm(features))


class FeatureEmbedding(nn.Module):
    """The embedding x_in or e_in described by a :class:`FeatureConfig`."""

    def __init__(self, features: FeatureConfig, dim: int, edges: bool) -> None:
        super().__init__()
        extra = EXTRA_EDGES if edges else 0
        self.has_features = features.num_columns > 0
        self.embedding: IndexEmbedding | LinearEmbedding
        if features.is_float:
            columns = features.num_columns
            self.embedding = LinearEmbedding(columns, dim, extra, features.is_one_hot)
        else:
            self.embedding = IndexEmbedding(features.categories, dim, extra)

    def reset_parameters(self) -> None:
        """Reinitialise the embedding."""
        self.embedding.reset_parameters()

    def forward(self, features: Tensor | None, num_rows: int, kind: Tensor | None = None) -> Tensor:
        """Embed features [M, columns] → [M, d]; graphs without features share one category."""
        if not self.has_features:
            weight = self.embedding.tables[0].weight  # type: ignore[union-attr, index]
            if kind is None:
                return weight.expand(num_rows, -1)
            return nn.functional.embedding(kind, weight)  # twice as fast as weight[kind]
        assert features is not None
        return self.embedding(features, kind)


class EncodingEmbedding(nn.Module):
    """W BN(encoding) + b: one linear map for the encoding and, on nodes, the degrees."""

    def __init__(self, columns: int, dim: int) -> None:
        super().__init__()
        self.norm = InputNorm(columns)
        self.linear = init_linear(nn.Linear(columns, dim))

    def reset_parameters(self) -> None:
        """Reinitialise the weights and discard the statistics of the norm."""
        self.norm.reset_parameters()
        init_linear(self.linear)

    def forward(self, encoding: Tensor) -> Tensor:
        """Map encodings [M, columns] → [M, d]."""
        return self.linear(self.norm(encoding.to(self.linear.weight.dtype)))


class GraphPooling(nn.Module):
    """Separate sums over nodes, existing edges (with self-loops) and added edges: equation (15).

    The sums are divided by constants, the average numbers of rows in the training set, so that the
    head sees values near one. Mean pooling divides by each graph's own counts instead.
    """

    scales: Tensor

    def __init__(self, mode: str = "sum") -> None:
        super().__init__()
        if mode not in ("sum", "mean"):
            raise ValueError(f"pooling must be sum or mean, not {mode!r}")
        self.mode = mode
        self.register_buffer("scales", torch.ones(3))

    def reset_parameters(self) -> None:
        """Reset the constants to one; :meth:`set_scales` sets them."""
        self.scales.fill_(1.0)

    def set_scales(self, mean_nodes: float, mean_input_edges: float, mean_added: float) -> None:
        """Set the constants from averages over the graphs of a training set."""
        scales = torch.tensor([mean_nodes, mean_input_edges + mean_nodes, mean_added])
        self.scales.copy_(torch.where(scales > 0, scales, 1.0))  # an empty block stays zero

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Pool nodes [N, d] and edges [E, d] → [B, 3d]."""
        num_graphs = batch.num_graphs
        edge_graph = batch.node_graph[batch.edge_index[1]]  # [E]
        block = edge_graph + num_graphs * (batch.edge_kind == ADDED_EDGE)  # [E] in 0 … 2B − 1
        nodes = x.new_zeros(num_graphs, x.size(1)).index_add(0, batch.node_graph, x)
        edges = e.new_zeros(2 * num_graphs, e.size(1)).index_add(0, block, e)
        pooled = torch.stack([nodes, *edges.view(2, num_graphs, -1)], dim=1)  # [B, 3, d]
        if self.mode == "mean":
            # Not bincount: torch.export does not know the size of its result.
            rows = torch.cat([batch.node_graph, block + num_graphs])  # [N + E] in 0 … 3B − 1
            counts = rows.new_zeros(3 * num_graphs).index_add(0, rows, torch.ones_like(rows))
            return (pooled / counts.view(3, -1).clamp(min=1).t().unsqueeze(2)).flatten(1)
        return (pooled / self.scales.view(1, 3, 1)).flatten(1)


class TaskHead(nn.Module):
    """A linear map, or a gated hidden layer with a skip connection.

    W_o [y ‖ (W_v y + b_v) ⊙ mish(W_g y + b_g)] + b_o
    """

    def __init__(self, width: int, outputs: int, hidden: int = 0) -> None:
        super().__init__()
        self.value = init_linear(nn.Linear(width, hidden)) if hidden else None
        self.gate = init_linear(nn.Linear(width, hidden)) if hidden else None
        self.out = init_linear(nn.Linear(width + hidden, outputs))

    def reset_parameters(self) -> None:
        """Reinitialise all weights."""
        for linear in (self.value, self.gate, self.out):
            if linear is not None:
                init_linear(linear)

    def forward(self, y: Tensor) -> Tensor:
        """Map representations [M, width] → [M, outputs]."""
        if self.value is not None and self.gate is not None:
            y = torch.cat([y, self.value(y) * F.mish(self.gate(y))], dim=1)
        return self.out(y)


# The parts that compute representations of nodes and edges; the others belong to the head.
BODY = ("node_features", "edge_features", "node_encoding", "edge_encoding", "layers")


class FrozenGRASS(GRASS):
    """A GRASS with a frozen body and a trainable head.

    The body stays in evaluation mode even during training: there is no edge removal, and norms use
    the loaded statistics without changing them, so the representation of a graph does not change.
    """

    def __init__(self, config: GRASSConfig) -> None:
        super().__init__(config)
        for part in self.body:
            part.requires_grad_(False)
            freeze_norms(part)
        self.train()

    @property
    def body(self) -> list[nn.Module]:
        """The frozen parts."""
        return [part for name in BODY if (part := getattr(self, name)) is not None]

    def train(self, mode: bool = True) -> FrozenGRASS:
        """Switch the head alone between training and evaluation."""
        super().train(mode)
        for part in self.body:
            part.train(False)
        return self


if TYPE_CHECKING:
    from grass_gnn.data.packed.prepare import PreparedData
    from grass_gnn.nn.baselines import Baseline


def make_model(config: GRASSConfig) -> GRASS | Baseline:
    """GRASS or a baseline, as configured."""
    if config.model.architecture == "grass":
        return GRASS(config)
    from grass_gnn.nn.baselines import Baseline

    return Baseline(config)


def count_parameters(config: GRASSConfig) -> int:
    """Number of trainable parameters of a model, which is not allocated."""
    with only_shapes():
        return sum(parameter.numel() for parameter in make_model(config).parameters())


def compile_model(model: nn.Module) -> None:
    """Compile a model with ``torch.compile``: the layers of GRASS, a baseline as a whole."""
    if isinstance(model, GRASS):
        model.layers.compile_layers()
    else:
        model.compile(dynamic=True)


def build_model(config: GRASSConfig, data: PreparedData, seed: int) -> GRASS | Baseline:
    """A new model for a dataset: seeded weights, and constants from its training set."""
    torch.manual_seed(seed)
    model = make_model(config)
    means = data.statistics
    if not isinstance(model, GRASS):
        model.mean_nodes.fill_(means.mean_nodes)
        return model
    if model.pooling is not None:
        added = config.rewiring.added_edges(means.mean_nodes, means.mean_pairs)
        model.pooling.set_scales(means.mean_nodes, means.mean_edges, added)
    if model.descriptors is not None:
        model.descriptors.fit(data.train.tensors["descriptors"])
    return model
