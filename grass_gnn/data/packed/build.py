"""From single graphs to packed ones: checked, encoded, and laid end to end piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import FeatureConfig, GRASSConfig
from grass_gnn.data.benchmarks.sbm import SPLITS
from grass_gnn.data.checking import CheckedGraph, check, check_sizes
from grass_gnn.data.encode import encode_spectra, encode_structure, stored_columns
from grass_gnn.data.packed.dataset import ROW_OF, PackedDataset, from_tensors
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent
from grass_gnn.tasks import make_task

Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]

_SHARD = 2048  # graphs that are packed at a time


def pack(
    graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True, workers: int | None = None
) -> PackedDataset:
    """Check, encode and pack graphs in memory.

    Args:
        graphs: PyG graphs.
        config: What they must fit, and their encoding.
        targets: Whether they must have targets; without, ``y`` is left out.
        workers: Threads that look for eigenvectors; as many as there are cores if not given.
    """
    shapes = packed_shapes(graphs, config, targets=targets)
    parts: dict[str, list[Tensor]] = {}
    for _, rows in packed_rows(graphs, config, targets=targets, workers=workers):
        for name, tensor in rows.items():
            parts.setdefault(name, []).append(tensor)
    tensors = {name: torch.cat(part) for name, part in parts.items()}
    tensors |= pointers(*check_sizes(graphs))
    return from_tensors({name: tensors[name].to(shapes[name][0]) for name in shapes}, config)


def pack_checked(
    graphs: Sequence[CheckedGraph], config: GRASSConfig, *, workers: int | None = None
) -> PackedDataset:
    """Encode and pack graphs that need no checks, such as molecules that were read here."""
    rows = _shard_rows(list(graphs), config)
    if config.encoding.kind in ("decomposed-rrwp", "laplacian"):
        spectra = list(encode_spectra(graphs, config.encoding, workers))
        rows |= {name: torch.cat([found[name] for found in spectra]) for name in spectra[0]}
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs])
    return from_tensors(rows | pointers(nodes, edges), config)


def packed_shapes(graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True) -> Shapes:
    """Type and shape of each tensor of the packed graphs."""
    nodes, edges = check_sizes(graphs)
    masks = [f"{split}_mask" for split in SPLITS if f"{split}_mask" in graphs[0]]
    return shapes_of(nodes, edges, config, masks, targets=targets)


def shapes_of(
    nodes: Tensor, edges: Tensor, config: GRASSConfig, masks: Sequence[str], *, targets: bool = True
) -> Shapes:
    """Type and shape of each tensor of packed graphs with these numbers of nodes and edges [B]."""
    count = {"graph": len(nodes), "node": int(nodes.sum()), "edge": int(edges.sum())}
    shapes: Shapes = {
        "graph_ptr": (torch.int64, (count["graph"] + 1,)),
        "edge_ptr": (torch.int64, (count["graph"] + 1,)),
        "edge_index": (_smallest_type(int(nodes.max()) - 1), (count["edge"], 2)),
    }
    for name, features in (("x", config.input.nodes), ("edge_attr", config.input.edges)):
        if features.num_columns:
            shapes[name] = (_stored_type(features), (count[ROW_OF[name]], features.num_columns))
    if config.input.descriptors:
        shapes["descriptors"] = (torch.float32, (count["graph"], config.input.descriptors))
    task = make_task(config.task)
    if targets:
        stored = task.target_type if task.classes is None else _smallest_type(task.classes - 1)
        shapes["y"] = (stored, task.target_shape(count[task.level]))
    shapes |= dict.fromkeys(masks, (torch.bool, (count[task.level],)))
    for name, columns in stored_columns(config.encoding).items():
        rows = count[ROW_OF[name]]
        shapes[name] = (torch.float32, (rows, columns) if columns else (rows,))
    return shapes


def packed_rows(
    graphs: Sequence[Data],
    config: GRASSConfig,
    *,
    targets: bool = True,
    workers: int | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The rows of the packed tensors (but for the pointers), and how many graphs they finish.

    ``keep`` and ``progress`` are for the eigenpairs of large graphs, see :func:`encode_spectra`.
    """
    spectral = config.encoding.kind in ("decomposed-rrwp", "laplacian")
    for first in range(0, len(graphs), _SHARD):
        shard = [
            check(number, graphs[number], config, targets)
            for number in range(first, min(first + _SHARD, len(graphs)))
        ]
        for number, graph in enumerate(shard, first):
            if graph.masks.keys() != shard[0].masks.keys():
                raise GrassError(f"Graph {number} has other masks than graph {first}.")
        yield 0 if spectral else len(shard), _shard_rows(shard, config)
        if spectral:
            for rows in encode_spectra(shard, config.encoding, workers, first, keep, progress):
                yield 1, rows


def pointers(num_nodes: Tensor, num_edges: Tensor) -> dict[str, Tensor]:
    """Where the nodes and edges of each graph start, from their numbers [B]."""
    start = torch.zeros(1, dtype=torch.int64)
    return {
        "graph_ptr": torch.cat([start, num_nodes.cumsum(0)]),
        "edge_ptr": torch.cat([start, num_edges.cumsum(0)]),
    }


def _shard_rows(shard: list[CheckedGraph], config: GRASSConfig) -> dict[str, Tensor]:
    edge_index = torch.cat([graph.edge_index.long() for graph in shard], dim=1)  # [2, E]
    rows = {"edge_index": edge_index.t()}
    for name in ("x", "edge_attr", "y", "descriptors"):
        if getattr(shard[0], name) is not None:
            rows[name] = torch.cat([getattr(graph, name) for graph in shard])
    for split in shard[0].masks:
        rows[f"{split}_mask"] = torch.cat([graph.masks[split] for graph in shard])
    # Degrees and transition probabilities of many graphs are those of their disjoint union.
    nodes = torch.tensor([graph.num_nodes for graph in shard])
    edges = torch.tensor([graph.edge_index.size(1) for graph in shard])
    union = edge_index + torch.repeat_interleave(nodes.cumsum(0) - nodes, edges)
    weight = None
    if any(graph.weight is not None for graph in shard):
        weight = torch.cat(
            [
                torch.ones(graph.edge_index.size(1)) if graph.weight is None else graph.weight
                for graph in shard
            ]
        )
    rows |= encode_structure(union, int(nodes.sum()), config.encoding, weight)
    return rows


def _smallest_type(largest: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if largest <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


def _stored_type(features: FeatureConfig) -> torch.dtype:
    if features.is_float:
        return torch.float32
    return _smallest_type(max(features.categories) - 1)
