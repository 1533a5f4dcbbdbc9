"""Fingerprints of datasets: content hash, sizes, and whether they match the official ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.data.benchmarks.registry import BENCHMARKS, Benchmark
from grass_gnn.data.checking import HASHED, check_sizes


@dataclass(frozen=True)
class SplitSize:
    """Size of a split; if the nodes of one graph are split, ``targets`` is their number."""

    graphs: int
    mean_nodes: float
    mean_edges: float  # both directions count
    targets: int | None = None


@dataclass(frozen=True)
class Fingerprint:
    """Describes the data that a result was computed on."""

    name: str | None  # of the benchmark; None for other graphs
    hash: str  # of all tensors of all graphs, in order
    splits: dict[str, SplitSize]
    official: bool  # a benchmark that agrees with its published statistics
    differences: list[str] = field(default_factory=list)  # from the official statistics

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """The inverse of :meth:`to_dict`."""
        splits = {name: SplitSize(**size) for name, size in values["splits"].items()}
        return cls(**{**values, "splits": splits})


def content_hash(splits: Mapping[str, Sequence[Data]]) -> str:
    """Hash of the tensors of all graphs, in order; it does not depend on where they are stored."""
    digest = hashlib.blake2b(digest_size=16)
    seen: dict[int, str] = {}
    for split, graphs in splits.items():
        digest.update(f"{split}:{len(graphs)}".encode())
        if id(graphs) in seen:  # one graph, split by masks
            digest.update(seen[id(graphs)].encode())
            continue
        seen[id(graphs)] = split
        for data in graphs:
            digest.update(b"graph" + str(data.num_nodes).encode())
            for name in HASHED:
                _update(digest, name, data.get(name))
    return digest.hexdigest()


def _update(digest: hashlib.blake2b, name: str, value: Any) -> None:
    if value is None:
        return
    value = torch.as_tensor(value).detach().cpu().contiguous()
    digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
    digest.update(value.view(-1).numpy().tobytes())


def fingerprint(
    splits: Mapping[str, Sequence[Data]],
    name: str | None = None,
    *,
    generated: bool = False,
    split: int = 0,
) -> Fingerprint:
    """Hash and measure a dataset, and compare it with the official statistics of its benchmark.

    Args:
        splits: The graphs of each split.
        name: Name of the benchmark to compare with.
        generated: Whether the graphs were generated here.
        split: Which of several node splits to use.
    """
    sizes = {part: _size(graphs, part, split) for part, graphs in splits.items()}
    entry = BENCHMARKS.get(name or "")
    differences = []
    if entry is not None:
        differences = ["it was generated here"] if generated else _differences(entry, sizes)
    official = entry is not None and not differences
    return Fingerprint(name, content_hash(splits), sizes, official, differences)


def _size(graphs: Sequence[Data], part: str, split: int) -> SplitSize:
    if not len(graphs):
        return SplitSize(0, 0.0, 0.0)
    nodes, edges = check_sizes(graphs)
    mask: Tensor | None = graphs[0].get(f"{part}_mask")
    targets = None
    if mask is not None and (mask.dim() == 1 or split < mask.size(1)):
        targets = int((mask if mask.dim() == 1 else mask[:, split]).sum())
    return SplitSize(
        len(graphs), float(nodes.double().mean()), float(edges.double().mean()), targets
    )


def _differences(entry: Benchmark, sizes: Mapping[str, SplitSize]) -> list[str]:
    found, official = [], entry.official
    unit = "nodes" if entry.single_graph else "graphs"
    for expected, (part, size) in zip(official.graphs, sizes.items(), strict=True):
        count = size.targets if entry.single_graph else size.graphs
        if count != expected:
            found.append(f"{part} has {count} {unit}, not {expected}")
    total = sum(size.graphs for size in sizes.values()) or 1
    for what, published, tolerance in (
        ("nodes", official.mean_nodes, official.node_tolerance),
        ("edges", official.mean_edges, official.edge_tolerance),
    ):
        values = [getattr(size, f"mean_{what}") * size.graphs for size in sizes.values()]
        mean = sum(values) / total
        if abs(mean - published) > tolerance * (1 + 1e-9):
            found.append(f"{mean:.2f} {what} per graph on average, not {published:g}")
    return found
