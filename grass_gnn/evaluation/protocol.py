"""The evaluation protocol of the paper.

Batch norms collect statistics over passes through the training set; then a split is scored under
many rewirings, one after the other. Embeddings are averaged over rewirings likewise.
"""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from grass_gnn.config import GRASSConfig, TaskConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.data.packed.dataset import PackedDataset, spans
from grass_gnn.data.packed.loader import GraphLoader, training_loader
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.streamed import predict_streamed
from grass_gnn.nn.attention import GRASSConv
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import BatchNorm, InputNorm, Mode, collect_statistics, graph_mean
from grass_gnn.ops import EdgeOrder
from grass_gnn.progress import Progress, report_progress, silent
from grass_gnn.tasks import LOWER_IS_BETTER, METRICS, Task, make_task

STATISTICS, VALIDATION, TEST = 1, 2, 3  # streams of random numbers; training is 0
BY_GRAPH = None  # instead of a stream: rewirings that depend only on the graph and their number
BOOTSTRAP = 200  # resamples of a confidence interval
# Minimum number of training graphs and batches from which validation during training collects
# statistics; smaller training sets are used whole. The cost is at most a forward pass of one epoch.
QUICK_GRAPHS, QUICK_BATCHES = 2000, 16


@dataclass(frozen=True)
class Evaluation:
    """Scores of one split."""

    metric: str
    rewirings: int
    mean: float  # mean score over rewirings, as the paper reports it
    variance: float  # variance of the score over rewirings
    interval: tuple[float, float]  # 95 % interval of the mean, over resampled graphs (or nodes)
    averaged: dict[int, float]  # score of predictions averaged over this many rewirings
    averaged_interval: tuple[float, float]
    # Every metric of the averaged predictions with its interval, for data other than benchmarks.
    metrics: dict[str, tuple[float, tuple[float, float]]]
    scores: list[float]  # score of each rewiring
    # Regression: Spearman's ρ between the std over rewirings and the absolute error.
    spread_correlation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@torch.no_grad()
def collect(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    seed: int = 0,
    passes: int | None = None,
    workers: int = 1,
    progress: Progress = silent,
    quick: bool = False,
) -> None:
    """Average the statistics of the batch norms over passes through the training set.

    Without edge removal, with a new rewiring in each pass; the last incomplete batch is dropped.

    Args:
        model: The model.
        dataset: The training set.
        config: The configuration of the run.
        seed: Random seed.
        passes: Number of passes; as configured by default. With 0, nothing is collected.
        workers: Threads that prepare batches.
        progress: Progress hook.
        quick: For validation during training: one pass, which ends after :data:`QUICK_BATCHES`
            batches and :data:`QUICK_GRAPHS` graphs. The batches are the first ones of the full
            collection, so the scores of different epochs are comparable.
    """
    passes = config.evaluation.statistics_passes if passes is None else passes
    if not needs_statistics(model):
        return
    size = min(config.training.batch_size, len(dataset))
    enough = max(QUICK_BATCHES, -(-QUICK_GRAPHS // size)) if quick else None
    passes = min(passes, 1) if quick else passes
    with collect_statistics(model):
        for number in range(passes):
            loader = training_loader(dataset, config, size, seed, workers, STATISTICS)
            loader.set_epoch(number)
            with closing(iter(loader)) as batches:
                for batch in islice(batches, enough):
                    model(move_batch(batch, device_of(model)))
            progress("Norm statistics", number + 1, passes)


def needs_statistics(model: nn.Module) -> bool:
    """Whether the model has norms whose statistics are collected before it is evaluated."""
    return any(isinstance(norm, BatchNorm) and not norm.frozen for norm in model.modules())


def move_batch(batch: GraphBatch, device: torch.device) -> GraphBatch:
    """Copy a batch to the device of the model; to a GPU from pinned memory, asynchronously."""
    if device.type == "cpu":
        return batch
    order = EdgeOrder(*(part.pin_memory() for part in batch.order))
    pinned = {
        name: value.pin_memory()
        for name, value in batch._asdict().items()
        if isinstance(value, Tensor)
    }
    return batch._replace(order=order, **pinned).to(device)


def check_rewirings(count: int) -> None:
    """Raise unless there is at least one rewiring to average over."""
    if count < 1:
        raise GrassError(f"The number of rewirings must be at least 1, not {count}.")


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's parameters."""
    return next(model.parameters()).device


@torch.no_grad()
def predict_split(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    seed: int = 0,
    rewiring: int = 0,
    stream: int | None = TEST,
    workers: int = 1,
    batch_size: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Predict a dataset under one rewiring, in its order.

    Args:
        model: The model.
        dataset: The graphs.
        config: The configuration of the run.
        seed: Random seed of the rewirings.
        rewiring: Number of the rewiring.
        stream: Stream of random numbers, such as :data:`TEST`, or :data:`BY_GRAPH`.
        workers: Threads that prepare batches.
        batch_size: Graphs per batch; that of training by default.

    Returns:
        Values or probabilities [M, outputs]; their targets, if there are any; and the graph (or, in
        a dataset of one graph, the node) that each prediction belongs to [M].
    """
    model.eval()
    size = min(batch_size or config.training.batch_size, len(dataset))
    loader = GraphLoader(
        dataset,
        config,
        size,
        seed=seed,
        workers=workers,
        stream=stream or TEST,
        by_graph=stream is BY_GRAPH,
    )
    loader.set_epoch(rewiring)
    if is_streamed(model, dataset, config):
        return _predict_streamed(model, loader, config)
    task = make_task(config.task)
    predictions, targets, owners = [], [], []
    first_graph, device = 0, device_of(model)
    for batch in loader:
        output = task.activate(model(move_batch(batch, device)).float()).cpu()
        owner = _owners(config.task, batch) + first_graph
        first_graph += batch.num_graphs
        if batch.mask is not None:
            output, owner = output[batch.mask], owner[batch.mask]
        predictions.append(output)
        owners.append(owner)
        if batch.y is not None:
            targets.append(batch.y if batch.mask is None else batch.y[batch.mask])
    owner = torch.cat(owners)
    if len(dataset) == 1:
        owner = torch.arange(len(owner))
    return torch.cat(predictions), torch.cat(targets) if targets else None, owner


def is_streamed(model: nn.Module, dataset: PackedDataset, config: GRASSConfig) -> TypeGuard[GRASS]:
    """Whether a dataset is a single graph with so many edges that it is evaluated in blocks."""
    if len(dataset) != 1 or config.task.level != "node" or not isinstance(model, GRASS):
        return False
    nodes = dataset.num_nodes
    added = config.rewiring.added_edges(nodes, nodes * (nodes - 1))
    if dataset.num_edges + nodes + added <= config.evaluation.streamed_above:
        return False
    # Without stored statistics, an input norm would use the moments of a block for all edges.
    norms = [module for module in model.modules() if isinstance(module, InputNorm)]
    ours = all(isinstance(layer, GRASSConv) for layer in model.layers.layers)
    return ours and all(norm.mode is Mode.STORED for norm in norms) and not model.training


def _predict_streamed(
    model: GRASS, loader: GraphLoader, config: GRASSConfig
) -> tuple[Tensor, Tensor | None, Tensor]:
    """:func:`predict_split` of a single graph that is too large for one pass."""
    graph, seeds = loader.draw(torch.zeros(1, dtype=torch.int64))
    output = make_task(config.task).activate(predict_streamed(model, graph, config, seeds))
    rows = slice(None) if graph.mask is None else graph.mask
    output = output[rows]
    target = None if graph.y is None else graph.y[rows]
    return output, target, torch.arange(len(output))


def _owners(task: TaskConfig, batch: Any) -> Tensor:
    """The graph, within the batch, that each prediction belongs to."""
    if task.level == "graph":
        return torch.arange(batch.num_graphs)
    if task.level == "node":
        return batch.node_graph.cpu()
    return batch.node_graph[batch.edge_index[0, batch.input_edges]].cpu()


def validate(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    epoch: int,
    seed: int,
    workers: int,
) -> float:
    """Score a split under one rewiring, the number of which is that of the epoch."""
    prediction, target, _ = predict_split(model, dataset, config, seed, epoch, VALIDATION, workers)
    assert target is not None
    return make_task(config.task).score(prediction, target)


def evaluate(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    seed: int = 0,
    rewirings: int | None = None,
    stream: int | None = TEST,
    workers: int = 1,
) -> tuple[Evaluation, Tensor, Tensor]:
    """Score a split under many rewirings.

    Args:
        model: The model, with collected statistics.
        dataset: The split.
        config: The configuration of the run.
        seed: Random seed of the rewirings.
        rewirings: Number of rewirings; as configured by default.
        stream: Stream of random numbers, such as :data:`TEST`, or :data:`BY_GRAPH`.
        workers: Threads that prepare batches.

    Returns:
        The scores, and the mean and standard deviation of the predictions [M, outputs].
    """
    rewirings = rewirings or config.evaluation.rewirings
    check_rewirings(rewirings)
    task = make_task(config.task)
    scores: list[float] = []
    averaged: dict[int, float] = {}
    first = total = squares = torch.zeros(())
    for number in range(rewirings):
        prediction, found, owner = predict_split(
            model, dataset, config, seed, number, stream, workers
        )
        assert found is not None
        target = found
        prediction = prediction.double()
        first = prediction if number == 0 else first
        total = total + prediction
        squares = squares + (prediction - first).square()  # shifted against cancellation
        scores.append(task.score(prediction, target))
        if (number + 1).bit_count() == 1 or number + 1 == rewirings:
            averaged[number + 1] = task.score(total / (number + 1), target)
        report_progress("Evaluating over rewirings", number + 1, rewirings)
    mean = total / rewirings
    spread = (squares / rewirings - (mean - first).square()).clamp(min=0).sqrt()
    values = torch.tensor(scores, dtype=torch.float64)
    averaged_interval = bootstrap(task, mean, target, owner)
    metrics: dict[str, tuple[float, tuple[float, float]]] = {}
    if config.dataset is None:
        metrics[task.metric] = (averaged[rewirings], averaged_interval)
        for metric in task.metrics:
            if metric != task.metric:
                interval = bootstrap(task, mean, target, owner, metric)
                metrics[metric] = (task.score(mean, target, metric), interval)
    result = Evaluation(
        metric=task.metric,
        rewirings=rewirings,
        mean=float(values.mean()),
        variance=float(values.var(correction=1)) if rewirings > 1 else 0.0,
        interval=_shift(
            bootstrap(task, first, target, owner), float(values.mean()), scores[0], task.metric
        ),
        averaged=averaged,
        averaged_interval=averaged_interval,
        metrics=metrics,
        scores=scores,
        spread_correlation=task.spread_correlation(mean, spread, target),
    )
    return result, mean, spread


def bootstrap(
    task: Task,
    prediction: Tensor,
    target: Tensor,
    owner: Tensor,
    metric: str | None = None,
) -> tuple[float, float]:
    """A 95 % bootstrap interval of the metric over resampled graphs, with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])  # first prediction of each graph
    one_each = bool((counts == 1).all())
    values = []
    for _ in range(BOOTSTRAP):
        chosen = torch.randint(len(counts), (len(counts),), generator=generator)
        rows = order[chosen if one_each else spans(ptr, chosen)[1]]
        values.append(task.score(prediction[rows], target[rows], metric))
    low, high = torch.tensor(values, dtype=torch.float64).nanquantile(
        torch.tensor([0.025, 0.975], dtype=torch.float64)
    )
    return float(low), float(high)


def _shift(
    interval: tuple[float, float], to: float, centre: float, metric: str
) -> tuple[float, float]:
    """The interval of one rewiring, shifted to the mean of all, within the range of the metric."""
    lowest, highest = METRICS[metric].lowest, METRICS[metric].highest
    low, high = (min(max(end + to - centre, lowest), highest) for end in interval)
    return low, high


__all__ = ["LOWER_IS_BETTER", "score"]


def score(task: TaskConfig, prediction: Tensor, target: Tensor, metric: str | None = None) -> float:
    """Deprecated: use ``make_task(task).score`` (see :meth:`grass_gnn.tasks.Task.score`)."""
    warnings.warn(
        "score is deprecated: use grass_gnn.tasks.make_task(config.task).score.",
        DeprecationWarning,
        stacklevel=2,
    )
    return make_task(task).score(prediction, target, metric)


@torch.no_grad()
def embed_split(
    model: GRASS,
    dataset: PackedDataset,
    config: GRASSConfig,
    level: str = "graph",
    rewirings: int = 16,
    seed: int = 0,
    by_graph: bool = False,
    batch_size: int = 200,
) -> Tensor:
    """Embeddings of a dataset, averaged over rewirings.

    Args:
        model: The model.
        dataset: The graphs.
        config: The model's configuration.
        level: ``"graph"`` for the input of the head, or the mean over nodes if the task has no
            pooling; ``"node"`` for x after the last layer.
        rewirings: Number of rewirings to average over.
        seed: Random seed of the rewirings.
        by_graph: Derive each rewiring from a hash of its graph.
        batch_size: Graphs per batch.

    Returns:
        [B, 3d + descriptors] or [B, d] for graphs, [N, d] for the nodes of all graphs.
    """
    if level not in ("graph", "node"):
        raise GrassError(f"The level of embeddings must be graph or node, not {level!r}.")
    check_rewirings(rewirings)
    model.eval()
    total = torch.zeros(())
    for number in range(rewirings):
        loader = GraphLoader(dataset, config, batch_size, seed=seed, stream=TEST, by_graph=by_graph)
        loader.set_epoch(number)
        total = total + torch.cat([_represent(model, batch, level) for batch in loader])
    return total / rewirings


def _represent(model: GRASS, batch: GraphBatch, level: str) -> Tensor:
    batch = move_batch(batch, device_of(model))
    x, e = model.represent(batch)
    if level == "node":
        return x.cpu()  # [N, d]
    if model.pooling is not None:
        return model.readout(x, e, batch).cpu()  # [B, 3d + descriptors]
    return graph_mean(x, batch.node_graph, batch.num_graphs).cpu()  # [B, d]
