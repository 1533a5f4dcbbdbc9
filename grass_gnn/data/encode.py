"""The part of the encodings that is found once per graph and stored."""

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

from grass_gnn.config import EncodingConfig
from grass_gnn.encoding import (
    decompose,
    laplacian_eigenvectors,
    node_degrees,
    transition_probabilities,
)
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent

if TYPE_CHECKING:
    from grass_gnn.data.checking import CheckedGraph


def stored_columns(encoding: EncodingConfig) -> dict[str, int]:
    """Name and number of columns of what is stored for each graph; 0 columns: a vector."""
    columns = {}
    if encoding.degrees != "none":
        columns["degree"] = 2
    if encoding.kind == "rrwp":
        columns["transition"] = 0
    elif encoding.kind == "decomposed-rrwp":
        sides = 2 if encoding.directed == "alternating" else 1
        columns["vectors"] = sides * (encoding.num_eigenpairs + 1)
        columns["values"] = encoding.num_eigenpairs + 1
    elif encoding.kind == "laplacian":
        columns["laplacian"] = encoding.steps
    return columns


def encode_structure(
    edge_index: Tensor, num_nodes: int, encoding: EncodingConfig, weight: Tensor | None = None
) -> dict[str, Tensor]:
    """Degrees and transition probabilities; of one graph, or of many laid end to end."""
    found = {}
    if encoding.degrees != "none":
        found["degree"] = node_degrees(edge_index, num_nodes, weight)  # [n, 2]
    if encoding.kind == "rrwp":
        found["transition"] = transition_probabilities(edge_index, num_nodes, weight)  # [E]
    return found


def encode_spectrum(
    edge_index: Tensor,
    num_nodes: int,
    encoding: EncodingConfig,
    weight: Tensor | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> dict[str, Tensor]:
    """Eigenvectors of one graph, as D-RRWP and the Laplacian encoding need them."""
    if encoding.kind == "decomposed-rrwp":
        found = decompose(
            edge_index,
            num_nodes,
            encoding.num_eigenpairs,
            weight,
            encoding.directed,
            keep,
            progress,
        )
        vectors = found.vectors  # [n, m + 1]
        if found.right_vectors is not None:
            vectors = torch.cat([vectors, found.right_vectors], dim=1)  # [n, 2(m + 1)]
        return {"vectors": vectors, "values": found.values.unsqueeze(0)}
    if encoding.kind == "laplacian":
        return {"laplacian": laplacian_eigenvectors(edge_index, num_nodes, encoding.steps, weight)}
    return {}


def encode_spectra(
    graphs: Sequence[CheckedGraph],
    encoding: EncodingConfig,
    workers: int | None = None,
    first_number: int = 0,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Iterator[dict[str, Tensor]]:
    """:func:`encode_spectrum` of each graph in turn, on all cores.

    Threads do, as the solvers let go of Python's lock; but each must then use one core itself.
    Only a few results are held at a time.

    Args:
        graphs: The graphs.
        encoding: The encoding that needs eigenvectors.
        workers: Number of threads; as many as there are cores if not given.
        first_number: Number of the first graph, which names it in an error.
        keep: Folder where the eigenpairs of large graphs found so far outlive this process.
        progress: Told how many eigenpairs of a large graph are found.
    """
    workers = min(workers or os.cpu_count() or 1, len(graphs))

    def encode(number: int, graph: CheckedGraph) -> dict[str, Tensor]:
        place = None if keep is None else keep / str(number)
        try:
            return encode_spectrum(
                graph.edge_index, graph.num_nodes, encoding, graph.weight, place, progress
            )
        except GrassError:
            raise
        except ValueError as error:  # such as a directed graph where none may be
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
