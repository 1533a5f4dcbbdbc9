"""Initial representations from features and encodings, equations (1) to (4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from grass_gnn.config import FeatureConfig
from grass_gnn.nn.init import init_linear, uniform_
from grass_gnn.nn.norm import InputNorm

EXTRA_EDGES = 2  # self-loops and added edges have categories, or indicator columns, of their own


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
    """The embedding x_in or e_in that a :class:`FeatureConfig` asks for."""

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
