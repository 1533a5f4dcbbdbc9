"""Statistics of datasets: the paper's two tables, and the constants of the sum pooling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from torch_geometric.data import Data

from grass_gnn.data.checking import check_sizes
from grass_gnn.progress import Progress, reporting

_LARGEST_GRAPH = 5_000  # nodes; larger graphs have too many pairs


@dataclass(frozen=True)
class DatasetStatistics:
    """A row of the paper's dataset tables; means with standard deviations over graphs."""

    graphs: int
    mean_nodes: float
    mean_edges: float  # both directions count
    shortest_path: tuple[float, float] | None  # average over pairs of nodes: mean, s.d.
    diameter: tuple[float, float] | None  # diameter: mean, s.d.
    measured: int  # number of connected graphs, which these two are averaged over


def dataset_statistics(
    splits: Mapping[str, Sequence[Data]],
    *,
    sample: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> DatasetStatistics:
    """Count and measure all graphs of a dataset.

    Args:
        splits: The graphs of each split; the same list counts once.
        sample: Compute shortest paths only for this many random graphs.
        seed: Random seed of the sample.
        progress: Progress callback; by default, a progress bar on a terminal.
    """
    lists = {id(graphs): graphs for graphs in splits.values()}.values()
    graphs = list(chain.from_iterable(lists))
    nodes, edges = check_sizes(graphs)
    chosen: Iterable[int] = range(len(graphs))
    if sample is not None and sample < len(graphs):
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(graphs), generator=generator)[:sample].tolist()
    small = [number for number in chosen if nodes[number] <= _LARGEST_GRAPH]
    measured = []
    with reporting(progress) as report:
        for done, number in enumerate(small, 1):
            measured.append(_paths(graphs[number]))
            report("Shortest paths", done, len(small))
    joined = [found for found in measured if found is not None]
    paths, diameters = zip(*joined, strict=True) if joined else ((), ())
    return DatasetStatistics(
        graphs=len(graphs),
        mean_nodes=float(nodes.double().mean()),
        mean_edges=float(edges.double().mean()),
        shortest_path=_mean_and_deviation(paths),
        diameter=_mean_and_deviation(diameters),
        measured=len(joined),
    )


def _paths(data: Data) -> tuple[float, float] | None:
    """Average and largest distance of two nodes; None if the graph is disconnected.

    The published tables also exclude such graphs.
    """
    n = int(data.num_nodes or 0)
    head, tail = data.edge_index.numpy()
    adjacency = coo_array((np.ones(head.size), (head, tail)), shape=(n, n)).tocsr()
    distance = shortest_path(adjacency, unweighted=True)
    if n == 1 or not np.isfinite(distance).all():
        return None
    return float(distance.sum() / (n * (n - 1))), float(distance.max())


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float] | None:
    return (float(np.mean(values)), float(np.std(values))) if len(values) else None
