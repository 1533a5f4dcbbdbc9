"""Predictions of a split as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from grass_gnn.config import GRASSConfig, TaskConfig
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.loader import GraphLoader, training_loader
from grass_gnn.evaluation.streamed import is_streamed, predict_streamed
from grass_gnn.files import write_text
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import collect_statistics
from grass_gnn.progress import Progress, silent
from grass_gnn.tasks import Task, make_task


def write_predictions(path: Path, target: Tensor, mean: Tensor, std: Tensor) -> None:
    """Write a row a graph: its number, targets, means over rewirings and their deviations.

    Args:
        path: The CSV file.
        target: Classes [B], or values or labels [B, outputs].
        mean: Values, or probabilities of classes or labels [B, outputs].
        std: Standard deviations over rewirings [B, outputs].
    """
    columns = [("target", target.view(len(mean), -1)), ("mean", mean), ("std", std)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["graph", *(f"{n}_{i}" for n, v in columns for i in range(v.size(1)))])
    rows = zip(*(values.tolist() for _, values in columns), strict=True)
    for number, parts in enumerate(rows):
        writer.writerow([number, *(f"{value:.6g}" for part in parts for value in part)])
    write_text(path, text.getvalue())


STATISTICS, VALIDATION, TEST = 1, 2, 3  # streams of randomness; training is 0
BOOTSTRAP = 200  # resamples of a confidence interval


@dataclass(frozen=True)
class Evaluation:
    """Scores of one split."""

    metric: str
    rewirings: int
    mean: float  # over rewirings, as the paper reports it
    variance: float  # due to rewiring
    interval: tuple[float, float]  # 95 % of the mean, over resampled graphs (or nodes)
    averaged: dict[int, float]  # of predictions averaged over so many rewirings
    averaged_interval: tuple[float, float]
    # Of one's own data, every metric of the averaged predictions, with its interval.
    metrics: dict[str, tuple[float, tuple[float, float]]]
    scores: list[float]  # of each rewiring
    # Of a regression, Spearman's ρ of the spread over rewirings and the absolute error.
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
) -> None:
    """Average the layer norms' statistics over passes through the training set.

    No edge removal, a fresh rewiring each time, the last incomplete batch dropped.
    """
    passes = config.evaluation.statistics_passes if passes is None else passes
    with collect_statistics(model):
        for number in range(passes):
            size = min(config.training.batch_size, len(dataset))
            loader = training_loader(dataset, config, size, seed, workers, STATISTICS)
            loader.set_epoch(number)
            for batch in loader:
                model(batch.to(_device(model)))
            progress("norm statistics", number + 1, passes)


@torch.no_grad()
def predict_split(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    seed: int = 0,
    rewiring: int = 0,
    stream: int = TEST,
    workers: int = 1,
    batch_size: int | None = None,
    by_graph: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Predictions of a dataset under one rewiring, in its order.

    With ``by_graph`` a rewiring follows from its number and from the graph alone.

    Returns:
        Values or probabilities [M, outputs], their targets where there are any, and the graph
        (or, in a dataset of one graph, the node) that each belongs to [M].
    """
    model.eval()
    size = min(batch_size or config.training.batch_size, len(dataset))
    loader = GraphLoader(
        dataset,
        config,
        size,
        seed=seed,
        workers=workers,
        stream=stream,
        by_graph=by_graph,
    )
    loader.set_epoch(rewiring)
    if is_streamed(model, dataset, config):
        return _predict_streamed(model, loader, config)
    task = make_task(config.task)
    predictions, targets, owners = [], [], []
    first_graph = 0
    for batch in loader:
        output = task.activate(model(batch.to(_device(model))).float()).cpu()
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
    """The metric of a split under one rewiring, during training."""
    prediction, target, _ = predict_split(model, dataset, config, seed, epoch, VALIDATION, workers)
    assert target is not None
    return make_task(config.task).score(prediction, target)


def evaluate(
    model: nn.Module,
    dataset: PackedDataset,
    config: GRASSConfig,
    seed: int = 0,
    rewirings: int | None = None,
    stream: int = TEST,
    workers: int = 1,
    progress: Progress = silent,
) -> tuple[Evaluation, Tensor, Tensor]:
    """Score a split under many rewirings.

    Returns:
        The scores, and mean and standard deviation of the predictions [M, outputs].
    """
    rewirings = rewirings or config.evaluation.rewirings
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
        squares = squares + (prediction - first).square()  # shifted, so as not to cancel
        scores.append(task.score(prediction, target))
        if (number + 1).bit_count() == 1 or number + 1 == rewirings:
            averaged[number + 1] = task.score(total / (number + 1), target)
        progress("rewirings", number + 1, rewirings)
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
        interval=_shift(bootstrap(task, first, target, owner), float(values.mean()), scores[0]),
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
    """A 95 % interval of the metric, over resampled graphs; the same data, the same interval."""
    generator = torch.Generator().manual_seed(0)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner)
    starts = counts.cumsum(0) - counts
    values = []
    for _ in range(BOOTSTRAP):
        chosen = torch.randint(len(counts), (len(counts),), generator=generator)
        lengths = counts[chosen]
        offset = torch.arange(int(lengths.sum())) - torch.repeat_interleave(
            lengths.cumsum(0) - lengths, lengths
        )
        rows = order[torch.repeat_interleave(starts[chosen], lengths) + offset]
        values.append(task.score(prediction[rows], target[rows], metric))
    low, high = torch.tensor(values, dtype=torch.float64).nanquantile(
        torch.tensor([0.025, 0.975], dtype=torch.float64)
    )
    return float(low), float(high)


def _shift(interval: tuple[float, float], to: float, centre: float) -> tuple[float, float]:
    """The interval of one rewiring, moved to the mean of all."""
    return interval[0] + to - centre, interval[1] + to - centre


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
