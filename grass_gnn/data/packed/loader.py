"""Loaders: select, rewire, encode and sort batches ahead of their use.

A batch depends on (seed, stream, epoch, number of the batch) alone, so neither the number of
workers nor a restart in the middle of an epoch changes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch, InputGraphs, rewire
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.encoding import require_local
from grass_gnn.errors import GrassError
from grass_gnn.rewiring import graph_seeds, random_bits, step_seeds

TRAINING_STREAM = 0  # other random streams are for evaluation
_SHUFFLE = 1  # distinguishes shuffling from other uses of the same seed


class GraphLoader:
    """Iterates over an epoch of batches of a dataset.

    Threads make the next batches while the caller computes; nearly all of their work releases
    Python's lock.

    Args:
        dataset: The graphs.
        config: Encoding and rewiring.
        batch_size: Graphs per batch, at most the size of the dataset.
        shuffle: Whether to shuffle the graphs in each epoch.
        seed: Random seed of the order and the rewiring.
        workers: Number of threads that make batches; 0 makes them in the caller's thread.
        stream: Which of several independent random streams to use, such as one for training and
            one for validation.
        by_graph: Whether the rewiring of a graph depends only on its hash and the epoch.
    """

    drop_last: ClassVar[bool] = False
    """Whether to drop an incomplete last batch."""

    def __init__(
        self,
        dataset: PackedDataset,
        config: GRASSConfig,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 1,
        stream: int = TRAINING_STREAM,
        by_graph: bool = False,
    ) -> None:
        self.dataset, self.config = dataset, config
        self.batch_size = max(1, min(batch_size, len(dataset)))
        self.shuffle = shuffle
        self.seed, self.workers, self.stream = seed, workers, stream
        self.by_graph = by_graph
        self.epoch = 0
        self._next_batch = 0
        self._rank, self._world_size = 0, 1

    def __len__(self) -> int:
        """Number of batches left in this epoch."""
        own = len(range(self._rank, self._graphs_used, self._world_size))
        return -(-own // self.batch_size) - self._next_batch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch or evaluation pass; a change goes back to the first batch."""
        if epoch != self.epoch:
            self.epoch, self._next_batch = epoch, 0

    def resume_from(self, batch_number: int) -> None:
        """Start the next iteration at this batch of the epoch."""
        self._next_batch = batch_number

    def shard(self, rank: int, world_size: int) -> GraphLoader:
        """Restrict this loader to the graphs of one process; together they see each graph once.

        If incomplete batches are dropped, all processes have the same number of batches.
        """
        self._rank, self._world_size = rank, world_size
        return self

    def __iter__(self) -> Generator[GraphBatch, None, None]:
        batches = self._epoch_batches()[self._next_batch :]
        made = self._made_ahead(batches) if self.workers else map(self._make, batches)
        for batch in made:
            self._next_batch += 1
            yield batch
        self._next_batch = 0

    def _epoch_batches(self) -> list[Tensor]:
        """Indices of the graphs in each batch of this epoch and process."""
        order = torch.arange(len(self.dataset))
        if self.shuffle:
            order = torch.randperm(len(order), generator=self._epoch_generator(_SHUFFLE))
        own = order[: self._graphs_used][self._rank :: self._world_size]
        return list(own.split(self.batch_size)) if len(own) else []

    def _epoch_generator(self, use: int) -> torch.Generator:
        """A generator that depends on seed, stream, epoch and what it is used for."""
        root = torch.tensor([self.seed + (self.stream << 40)])
        return torch.Generator().manual_seed(int(random_bits(root, self.epoch, use)))

    @property
    def _graphs_used(self) -> int:
        """Number of graphs in an epoch, over all processes."""
        share = self.batch_size * self._world_size if self.drop_last else 1
        return len(self.dataset) // share * share

    def draw(self, ids: Tensor) -> tuple[InputGraphs, Tensor]:
        """Graphs, and the seed for the rewiring of each in this epoch [B]."""
        graphs = self.dataset.select(ids)
        return graphs, self._seeds(graphs, ids)

    def _make(self, ids: Tensor) -> GraphBatch:
        graphs, seeds = self.draw(ids)
        encoding = self.config.encoding
        graphs = self.dataset.with_known_pairs(graphs, encoding)
        return rewire(graphs, encoding, self.config.rewiring, seeds)

    def _step_seeds(self, ids: Tensor) -> Tensor:
        """Random numbers of this epoch and stream, one for each graph [B]."""
        return random_bits(step_seeds(self.seed, self.epoch, ids), self.stream)

    def _seeds(self, graphs: InputGraphs, ids: Tensor) -> Tensor:
        """The seed for the rewiring of each graph [B]."""
        when = self.config.rewiring.when
        if when == "graph":  # also if by_graph: the model was trained with these edges
            return graph_seeds(graphs.edge_index, graphs.graph_ptr)
        if self.by_graph:
            return graph_seeds(graphs.edge_index, graphs.graph_ptr, seed=self.epoch)
        return step_seeds(self.seed, 0, ids) if when == "once" else self._step_seeds(ids)

    def _made_ahead(self, batches: list[Tensor]) -> Iterator[GraphBatch]:
        waiting: deque[Future[GraphBatch]] = deque()
        pool = ThreadPoolExecutor(self.workers, "grass-loader", initializer=_use_one_core)
        try:
            for ids in batches:
                waiting.append(pool.submit(self._make, ids))
                if len(waiting) > self.workers:  # one batch per worker, and one that is ready
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Also if the caller stops early, so that no thread outlives the iteration.
            pool.shutdown(wait=True, cancel_futures=True)


def _use_one_core() -> None:
    """Limit the torch operations of a worker to one core; the model uses the others."""
    torch.get_num_threads()  # torch configures a new thread on first use, undoing the limit
    threadpool_limits(1, user_api="openmp")  # of this thread only


class TrainingLoader(GraphLoader):
    """Drops an incomplete last batch, so that all steps of an epoch have the same size.

    With ``training.kekule_forms``, molecules are in a random Kekulé form in each epoch.
    """

    drop_last = True

    def draw(self, ids: Tensor) -> tuple[InputGraphs, Tensor]:
        """Graphs, and the seed for the rewiring of each in this epoch [B]."""
        graphs, seeds = super().draw(ids)
        if self.config.training.kekule_forms:
            graphs = self.dataset.kekule_forms.draw(graphs, ids, self._step_seeds(ids))
        return graphs, seeds

    def __iter__(self) -> Generator[GraphBatch, None, None]:
        if self.config.training.kekule_forms:
            _ = self.dataset.kekule_forms  # found here, before the workers need them
        return super().__iter__()


_DEAL = 2  # distinguishes the partition from other uses of the same seed


def num_parts(dataset: PackedDataset, config: GRASSConfig) -> int:
    """Number of batches per epoch: as configured, but at most one per training node.

    Raises:
        GrassError: The dataset is not a single graph, has no training nodes, or its encoding needs
            the whole graph.
    """
    require_local(config.encoding, "training.sampling")
    if len(dataset) != 1:
        raise GrassError(
            f"training.sampling is for a single large graph, but there are {len(dataset)} graphs."
        )
    counting = _counting(dataset.large_graph.graph)
    if not counting.numel():
        raise GrassError("The graph has no training nodes.")
    return min(config.training.parts, counting.numel())


def _counting(graph: InputGraphs) -> Tensor:
    """The nodes that count in the loss, in ascending order."""
    return torch.arange(graph.num_nodes) if graph.mask is None else graph.mask.nonzero().squeeze(1)


class SampledLoader(TrainingLoader):
    """Iterates over an epoch of parts of the single graph of a dataset.

    With ``"partition"``, every node is in one part of an epoch, and training nodes are spread
    evenly. With ``"neighbour"``, every training node is in one part, together with sampled
    neighbours, and only these training nodes count in the loss of that part.

    Args:
        dataset: The graph.
        config: Sampling, encoding and rewiring.
        seed: Random seed of the parts and the rewiring.
        workers: Number of threads that make batches; 0 makes them in the caller's thread.
        stream: Which of several independent random streams to use.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        config: GRASSConfig,
        seed: int = 0,
        workers: int = 1,
        stream: int = TRAINING_STREAM,
    ) -> None:
        super().__init__(dataset, config, 1, True, seed, workers, stream)
        self.parts = num_parts(dataset, config)
        self.large = dataset.large_graph

    def __len__(self) -> int:
        """Number of batches left in this epoch."""
        return self.parts - self._next_batch

    def shard(self, rank: int, world_size: int) -> GraphLoader:
        """Raise unless there is a single process."""
        if world_size > 1:
            raise GrassError("training.sampling works in one process: leave --devices at 1.")
        return super().shard(rank, world_size)

    def _epoch_batches(self) -> list[Tensor]:
        """The nodes of each part in ascending order; with ``"neighbour"``, its training nodes."""
        generator = self._epoch_generator(_DEAL)
        counting, num_nodes = _counting(self.large.graph), self.large.graph.num_nodes
        part = torch.full((num_nodes,), -1)
        part[counting] = _deal(len(counting), self.parts, generator)
        if self.config.training.sampling == "partition":
            others = (part < 0).nonzero().squeeze(1)
            part[others] = _deal(len(others), self.parts, generator)
        order = torch.argsort(part, stable=True)[int((part < 0).sum()) :]
        return list(order.split(torch.bincount(part[part >= 0], minlength=self.parts).tolist()))

    def _make(self, ids: Tensor) -> GraphBatch:
        # The first node identifies a part within its epoch.
        first = ids[:1]
        if self.config.training.sampling == "partition":
            graphs = self.large.induced(ids)
        else:
            generator = torch.Generator().manual_seed(int(self._step_seeds(first)))
            nodes = self.large.around(ids, self.config.training.fan_outs, generator)
            graphs = self.large.induced(nodes, counting=ids)
        seeds = self._seeds(graphs, first)
        return rewire(graphs, self.config.encoding, self.config.rewiring, seeds)


def _deal(count: int, parts: int, generator: torch.Generator) -> Tensor:
    """A random part for each of ``count`` nodes [n]; the sizes of parts differ by at most one."""
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
    """Shuffled batches of graphs, without an incomplete last one, or parts of a single graph."""
    if config.training.sampling != "none":
        return SampledLoader(dataset, config, seed, workers, stream)
    return TrainingLoader(dataset, config, batch_size, True, seed, workers, stream)
