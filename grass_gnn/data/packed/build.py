"""From single graphs to packed ones: checked, encoded, and laid end to end piece by piece."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.checking import CheckedGraph, check, check_sizes
from grass_gnn.data.fields import MASKS, row_of, stored_type
from grass_gnn.data.packed.dataset import PackedDataset, from_tensors
from grass_gnn.encoding import Encoding, make_encoding
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent
from grass_gnn.tasks import make_task

if TYPE_CHECKING:
    from torch_geometric.data import Data


Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]

_SHARD = 2048  # graphs that are packed at a time


def pack(
    graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True, workers: int | None = None
) -> PackedDataset:
    """Check, encode and pack graphs in memory.

    Encodings that transforms have written to the graphs are not used.

    Args:
        graphs: PyG graphs.
        config: The input, task and encoding.
        targets: Whether graphs must have targets; otherwise ``y`` is left out.
        workers: Number of threads that compute eigenvectors; by default the number of cores.
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
    """Encode and pack graphs that need no checks, such as featurized molecules."""
    encoding = make_encoding(config.encoding)
    rows = _shard_rows(list(graphs), encoding)
    if encoding.spectral:
        spectra = list(encode_spectra(graphs, encoding, workers))
        rows |= {name: torch.cat([found[name] for found in spectra]) for name in spectra[0]}
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs])
    return from_tensors(rows | pointers(nodes, edges), config)


def packed_shapes(graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True) -> Shapes:
    """Type and shape of each tensor of the packed graphs."""
    nodes, edges = check_sizes(graphs)
    masks = [name for name in MASKS if name in graphs[0]]
    return shapes_of(nodes, edges, config, masks, targets=targets)


def shapes_of(
    nodes: Tensor, edges: Tensor, config: GRASSConfig, masks: Sequence[str], *, targets: bool = True
) -> Shapes:
    """Type and shape of each tensor of packed graphs with these numbers of nodes and edges [B]."""
    task, inputs = make_task(config.task), config.input
    # Number of columns of each tensor; 0 for a vector.
    columns = {"edge_index": 2}
    for name, features in (("x", inputs.nodes), ("edge_attr", inputs.edges)):
        if features.num_columns:
            columns[name] = features.num_columns
    if inputs.descriptors:
        columns["descriptors"] = inputs.descriptors
    if targets:
        columns["y"] = 0 if len(task.target_shape(1)) == 1 else task.target_columns
    columns |= dict.fromkeys(masks, 0) | make_encoding(config.encoding).stored_columns

    count = {"graph": len(nodes), "node": int(nodes.sum()), "edge": int(edges.sum())}
    pointer = (torch.int64, (count["graph"] + 1,))
    shapes: Shapes = {"graph_ptr": pointer, "edge_ptr": pointer}
    for name, width in columns.items():
        rows = count[row_of(name, task.level)]
        dtype = stored_type(name, config, int(nodes.max()))
        shapes[name] = (dtype, (rows, width) if width else (rows,))
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
    """The rows of the packed tensors (without pointers), and how many graphs they complete.

    ``keep`` and ``progress`` are for the eigenpairs of large graphs, see :func:`encode_spectra`.
    """
    encoding = make_encoding(config.encoding)
    for first in range(0, len(graphs), _SHARD):
        shard = [
            check(number, graphs[number], config, targets)
            for number in range(first, min(first + _SHARD, len(graphs)))
        ]
        for number, graph in enumerate(shard, first):
            if graph.masks.keys() != shard[0].masks.keys():
                raise GrassError(f"Graph {number} has other masks than graph {first}.")
        yield 0 if encoding.spectral else len(shard), _shard_rows(shard, encoding)
        if encoding.spectral:
            for rows in encode_spectra(shard, encoding, workers, first, keep, progress):
                yield 1, rows


def encode_spectra(
    graphs: Sequence[CheckedGraph],
    encoding: Encoding,
    workers: int | None = None,
    first_number: int = 0,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Iterator[dict[str, Tensor]]:
    """:meth:`Encoding.compute_spectrum` of each graph in turn, on all cores.

    Threads are enough, because the solvers release Python's lock; each is limited to one core.
    Only a few results are held at a time.

    Args:
        graphs: The graphs.
        encoding: An encoding that needs eigenvectors.
        workers: Number of threads; by default the number of cores.
        first_number: Number of the first graph, for error messages.
        keep: Folder in which the search of eigenpairs of large graphs is saved, to be resumed.
        progress: Called with the number of eigenpairs of a large graph found so far.
    """
    workers = min(workers or os.cpu_count() or 1, len(graphs))

    def encode(number: int, graph: CheckedGraph) -> dict[str, Tensor]:
        place = None if keep is None else keep / str(number)
        try:
            return encoding.compute_spectrum(
                graph.edge_index, graph.num_nodes, graph.weight, place, progress
            )
        except GrassError:
            raise
        except ValueError as error:  # such as a directed graph with encoding.directed = "error"
            raise GrassError(f"Graph {number} cannot be encoded: {error}") from error

    waiting: deque[Future[dict[str, Tensor]]] = deque()
    with threadpool_limits(1 if workers > 1 else None), ThreadPoolExecutor(workers) as pool:
        try:
            for number, graph in enumerate(graphs, first_number):
                waiting.append(pool.submit(encode, number, graph))
                if len(waiting) > 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def pointers(num_nodes: Tensor, num_edges: Tensor) -> dict[str, Tensor]:
    """Where the nodes and edges of each graph start, from their counts [B]."""
    start = torch.zeros(1, dtype=torch.int64)
    return {
        "graph_ptr": torch.cat([start, num_nodes.cumsum(0)]),
        "edge_ptr": torch.cat([start, num_edges.cumsum(0)]),
    }


def _shard_rows(shard: list[CheckedGraph], encoding: Encoding) -> dict[str, Tensor]:
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
    rows |= encoding.compute(union, int(nodes.sum()), weight)
    return rows
