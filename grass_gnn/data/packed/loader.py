"""Batches for the model: selected, rewired, encoded and sorted, ahead of their use.

What a batch holds follows from (seed, stream, epoch, number of the batch) alone, so neither the
number of workers nor a restart in the middle of an epoch changes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch, InputGraphs, rewire
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.encoding import require_local
from grass_gnn.errors import GrassError
from grass_gnn.rewiring import graph_seeds, random_bits, step_seeds

TRAINING_STREAM = 0  # other streams of randomness are for evaluation
_SHUFFLE = 1  # tells its draw apart from others of the same seed


class GraphLoader:
    """Iterates over an epoch of batches of a dataset.

    While the caller computes, threads make the next batches: nearly all of the work is outside of
    Python's lock.

    Args:
        dataset: The graphs.
        config: Encoding and rewiring.
        batch_size: Graphs a batch; at most as many as there are.
        shuffle: Whether each epoch has an order of its own.
        drop_last: Whether to leave out a last batch that is not full.
        seed: What order and rewiring follow from.
        workers: Threads that make batches; 0: made when asked for, in the caller's thread.
        stream: Which of several independent streams of randomness to use, such as one for
            training, one for validation.
        by_graph: Let the rewiring of a graph follow from its hash and the epoch alone.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        config: GRASSConfig,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        workers: int = 1,
        stream: int = TRAINING_STREAM,
        by_graph: bool = False,
    ) -> None:
        self.dataset, self.config = dataset, config
        self.batch_size = max(1, min(batch_size, len(dataset)))
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed, self.workers, self.stream = seed, workers, stream
        self.by_graph = by_graph
        self.epoch = 0
        self._next_batch = 0
        self._rank, self._world_size = 0, 1

    def __len__(self) -> int:
        """Batches of the epoch that are still to come."""
        own = len(range(self._rank, self._graphs_used, self._world_size))
        return -(-own // self.batch_size) - self._next_batch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, or evaluation pass; changing it goes back to the first batch."""
        if epoch != self.epoch:
            self.epoch, self._next_batch = epoch, 0

    def resume_from(self, batch_number: int) -> None:
        """Start the next iteration at this batch of the epoch."""
        self._next_batch = batch_number

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the batch that comes next in it."""
        return {"epoch": self.epoch, "batch": self._next_batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.epoch, self._next_batch = state["epoch"], state["batch"]

    def shard(self, rank: int, world_size: int) -> GraphLoader:
        """Take one process's share: over all, an epoch sees each graph once.

        With ``drop_last`` all shares have the same number of batches.
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
        """Numbers of the graphs of each batch of this epoch, of this process."""
        order = torch.arange(len(self.dataset))
        if self.shuffle:
            root = torch.tensor([self.seed + (self.stream << 40)])
            seed = int(random_bits(root, self.epoch, _SHUFFLE))
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(seed))
        own = order[: self._graphs_used][self._rank :: self._world_size]
        return list(own.split(self.batch_size)) if len(own) else []

    @property
    def _graphs_used(self) -> int:
        """Graphs that an epoch goes over, in all processes together."""
        share = self.batch_size * self._world_size if self.drop_last else 1
        return len(self.dataset) // share * share

    def draw(self, ids: Tensor) -> tuple[InputGraphs, Tensor]:
        """Graphs of this epoch, and the seed of the rewiring of each [B]."""
        graphs = self.dataset.select(ids)
        drawn = random_bits(step_seeds(self.seed, self.epoch, ids), self.stream)  # [B]
        return graphs, self._seeds(graphs, drawn, ids)

    def _make(self, ids: Tensor) -> GraphBatch:
        graphs, seeds = self.draw(ids)
        encoding = self.config.encoding
        graphs = self.dataset.with_known_pairs(graphs, encoding)
        return rewire(graphs, encoding, self.config.rewiring, seeds)

    def _seeds(self, graphs: InputGraphs, drawn: Tensor, ids: Tensor) -> Tensor:
        """The seed of each graph's rewiring [B]."""
        when = self.config.rewiring.when
        if self.by_graph:
            return graph_seeds(graphs.edge_index, graphs.graph_ptr, seed=self.epoch)
        if when == "graph":
            return graph_seeds(graphs.edge_index, graphs.graph_ptr)
        return step_seeds(self.seed, 0, ids) if when == "once" else drawn

    def _made_ahead(self, batches: list[Tensor]) -> Iterator[GraphBatch]:
        waiting: deque[Future[GraphBatch]] = deque()
        pool = ThreadPoolExecutor(self.workers, "grass-loader", initializer=_use_one_core)
        try:
            for ids in batches:
                waiting.append(pool.submit(self._make, ids))
                if len(waiting) > self.workers:  # one more is ready while each worker makes one
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Also reached when the caller stops early: no thread outlives the iteration.
            pool.shutdown(wait=True, cancel_futures=True)


def _use_one_core() -> None:
    """Keep a worker's torch operations from sharing themselves out: the model has the cores."""
    torch.get_num_threads()  # torch sets up a new thread when first asked, and would undo the limit
    threadpool_limits(1, user_api="openmp")  # of this thread alone


_DEAL = 2  # tells its draw apart from others of the same seed


def num_parts(dataset: PackedDataset, config: GRASSConfig) -> int:
    """Batches of an epoch: as many as are configured, but each has a node that counts.

    Raises:
        GrassError: The dataset is not a single graph, or none of its nodes count.
    """
    require_local(config.encoding, "training.sampling")
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
