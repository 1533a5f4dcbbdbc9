"""Mini-batches of one large graph: random parts of its nodes, or nodes with drawn neighbours.

A batch is the subgraph that some nodes induce, with rows of the whole graph's encodings; rewiring
then happens inside of the batch. As in :mod:`grass_gnn.data.loader`, a batch follows from (seed,
stream, epoch, number of the batch) alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch, InputGraphs, rewire
from grass_gnn.data.loader import TRAINING_STREAM, GraphLoader
from grass_gnn.data.packed import PackedDataset
from grass_gnn.errors import GrassError
from grass_gnn.rewiring import random_bits, step_seeds

_DEAL = 2  # tells its draw apart from others of the same seed


def num_parts(dataset: PackedDataset, config: GRASSConfig) -> int:
    """Batches of an epoch: as many as are configured, but each has a node that counts.

    Raises:
        GrassError: The dataset is not a single graph, or none of its nodes count.
    """
    if len(dataset) != 1:
        raise GrassError(
            f"training.sampling is for a single large graph, but there are {len(dataset)} graphs."
        )
    counting = _counting(dataset.large_graph.graph)
    if not counting.numel():
        raise GrassError("No node of the graph is a training node.")
    return min(config.training.parts, counting.numel())


def _counting(graph: InputGraphs) -> Tensor:
    """The nodes that count in the loss, in rising order."""
    return torch.arange(graph.num_nodes) if graph.mask is None else graph.mask.nonzero().squeeze(1)


class SampledLoader(GraphLoader):
    """Iterates over an epoch of parts of a dataset's only graph.

    By ``"partition"`` every node is in one part of an epoch, and training nodes are spread evenly.
    By ``"neighbour"`` every training node is in one part, which has its neighbourhood beside it;
    only these training nodes count in the loss of that part.

    Args:
        dataset: The graph.
        config: Sampling, encoding and rewiring.
        seed: What parts and rewiring follow from.
        workers: Threads that make batches; 0: made when asked for, in the caller's thread.
        stream: Which of several independent streams of randomness to use.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        config: GRASSConfig,
        seed: int = 0,
        workers: int = 1,
        stream: int = TRAINING_STREAM,
    ) -> None:
        super().__init__(dataset, config, 1, True, True, seed, workers, stream)
        self.parts = num_parts(dataset, config)
        self.large = dataset.large_graph

    def __len__(self) -> int:
        """Batches of the epoch that are still to come."""
        return self.parts - self._next_batch

    def shard(self, rank: int, world_size: int) -> GraphLoader:
        """Refuse to be shared out, unless it is to a single process."""
        if world_size > 1:
            raise GrassError("training.sampling works in one process: leave --devices at 1.")
        return super().shard(rank, world_size)

    def _epoch_batches(self) -> list[Tensor]:
        """The nodes of each part, in rising order; by neighbours, its training nodes."""
        number = torch.tensor([self.seed + (self.stream << 40)])
        generator = torch.Generator().manual_seed(int(random_bits(number, self.epoch, _DEAL)))
        counting, num_nodes = _counting(self.large.graph), self.large.graph.num_nodes
        part = torch.full((num_nodes,), -1)
        part[counting] = _deal(len(counting), self.parts, generator)
        if self.config.training.sampling == "partition":
            others = (part < 0).nonzero().squeeze(1)
            part[others] = _deal(len(others), self.parts, generator)
        order = torch.argsort(part, stable=True)[int((part < 0).sum()) :]
        return list(order.split(torch.bincount(part[part >= 0], minlength=self.parts).tolist()))

    def _make(self, ids: Tensor) -> GraphBatch:
        # The first node tells a part from all others of its epoch.
        first = ids[:1]
        drawn = random_bits(step_seeds(self.seed, self.epoch, first), self.stream)  # [1]
        if self.config.training.sampling == "partition":
            graphs = self.large.induced(ids)
        else:
            generator = torch.Generator().manual_seed(int(drawn))
            nodes = self.large.around(ids, self.config.training.fan_outs, generator)
            graphs = self.large.induced(nodes, counting=ids)
        seeds = self._seeds(graphs, drawn, first)
        return rewire(graphs, self.config.encoding, self.config.rewiring, seeds)


def _deal(count: int, parts: int, generator: torch.Generator) -> Tensor:
    """A part for each of so many nodes, at random, such that sizes differ by one at most [n]."""
    part = torch.empty(count, dtype=torch.int64)
    part[torch.randperm(count, generator=generator)] = torch.arange(count) % parts
    return part


def training_loader(
    dataset: PackedDataset,
    config: GRASSConfig,
    batch_size: int,
    seed: int = 0,
    workers: int = 1,
    stream: int = TRAINING_STREAM,
) -> GraphLoader:
    """Shuffled batches of graphs, the last incomplete one dropped, or of one graph's parts."""
    if config.training.sampling != "none":
        return SampledLoader(dataset, config, seed, workers, stream)
    return GraphLoader(dataset, config, batch_size, True, True, seed, workers, stream)
