"""A network averaged with a forest and a Gaussian process.

A network and models on fingerprints make different errors, so that their mean is usually better
than each. The forest (:mod:`grass_gnn.evaluation.forest`) is first averaged with the process
(:mod:`grass_gnn.evaluation.gaussian_process`), if there is one, then both with the network,
by the same rule; "forest" below stands for the average of forest and process. Neither of them
extrapolates, so a number of the network counts only up to a distance from theirs: four times what
is usual on validation rows.

With the network's share w, its standard deviation s over rewirings, and the standard deviation t
of the trees, a combined prediction is w · network + (1 − w) · forest. The variance of probabilities
is that of the mixture, w s² + w (1 − w) (network − forest)²; trees vote on classes, so their term
is left out. That of numbers is s² / 2 + t² / 2 + (network − forest)² / 4, as if w were a half: the
share tells which of the two is better on average, but both the trees and how far the two are apart
tell where errors are large, even if one of them has no share in the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from grass_gnn.config import Section
from grass_gnn.data.tables.descriptors import MORGAN_COUNTS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.evaluation.forest import Forest, ForestPrediction, bounded
from grass_gnn.evaluation.gaussian_process import GaussianProcess
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.evaluation.trained import Prediction, TrainedModel
from grass_gnn.files import read_checked, read_json, write_checked, write_json
from grass_gnn.tasks import ProbabilityTask, Task, make_task

FILE, ARRAYS = "forest.json", "forest.safetensors"
NETWORK, FOREST, PROCESS = "network", "forest", "Gaussian process"  # members, in ``results.json``
LARGEST_FILE = 64 << 20  # bytes; trees of the default size take less than 10 MB
_PRIOR = 10.0  # strength, in rows, with which the shares are drawn towards a half
_SHARES = np.linspace(0, 1, 41)  # of the network, that are tried for probabilities
_PROCESS = "process."  # before the names of the arrays of the Gaussian process, if there is one


class ForestCard(Section):
    """``forest.json``: what the forest belongs to, and how it is averaged with the network."""

    model: str  # checksum of the network's weights
    sha256: str = ""  # checksum of the arrays, known once they are written
    descriptors: list[str] = Field(max_length=10_000)  # of RDKit, after the Morgan counts
    columns: int = Field(ge=0)  # descriptors in columns of the table, which come last
    shares: list[float] = Field(min_length=1, max_length=100_000)  # of the network, per output
    rows: int = Field(ge=0)  # validation rows that the shares were fitted to
    # Whether standard deviations of numbers are those of an even mixture. In earlier versions, the
    # mixture had the network's share.
    even_spread: bool = False
    # How far from the others the network counts, per output: a sum over the atoms of a molecule
    # that is much larger than all training molecules may be anything. None: as far as it is.
    reach: list[float] | None = Field(default=None, max_length=100_000)
    # Of the Gaussian process in its average with the forest, per output; None: there is no process.
    process_shares: list[float] | None = Field(default=None, max_length=100_000)


@dataclass(frozen=True)
class Stack:
    """A forest and a Gaussian process, with the shares of all members in combined predictions."""

    forest: Forest
    card: ForestCard
    task: Task
    # Predictions of the validation and test rows. A validation row is predicted by the trees that
    # were not fitted to it, and by a process that was fitted to the training rows.
    splits: dict[str, ForestPrediction] = field(default_factory=dict)
    process: GaussianProcess | None = None
    process_splits: dict[str, Prediction] = field(default_factory=dict)

    @property
    def descriptors(self) -> list[str]:
        """RDKit descriptors that the forest needs."""
        return self.card.descriptors

    def predict(self, columns: np.ndarray) -> ForestPrediction:
        """What forest and process predict from all columns: counts, descriptors, the table's."""
        expected = MORGAN_COUNTS + len(self.descriptors) + self.card.columns
        if columns.shape[1] != expected:
            raise GrassError(f"The forest expects {expected:,} columns, not {columns.shape[1]:,}.")
        forest = bounded(self.forest.predict(columns, self.task.outputs), self.task)
        if self.process is None:
            return forest
        return self._with(forest, self.process.predict(columns, self.task))

    def join(self, split: str) -> ForestPrediction:
        """What forest and process have predicted for the rows in ``splits``."""
        forest, process = self.splits[split], self.process_splits.get(split)
        return forest if process is None else self._with(forest, process)

    def _with(self, forest: ForestPrediction, process: Prediction) -> ForestPrediction:
        assert self.card.process_shares is not None
        return with_process(forest, process, self.card.process_shares, self.task)

    def combine(self, network: Prediction, forest: ForestPrediction) -> Prediction:
        """The average of two predictions [M, outputs], and the deviation of the mixture."""
        card = self.card
        return mix(network, forest, card.shares, self.task, card.even_spread, card.reach)

    def rescore(
        self, network: dict[str, Any], prediction: Prediction, target: Tensor, split: str
    ) -> dict[str, Any]:
        """The scores of a split, after averaging.

        ``"metrics"`` become those of combined predictions; those of each member are under
        ``"members"``. What depends on single rewirings stays that of the network.

        Args:
            network: The network's scores, as in ``results.json``.
            prediction: The network's predictions.
            target: The targets.
            split: ``"val"`` or ``"test"``.
        """
        task, forest = self.task, self.join(split)
        if len(forest.mean) != len(prediction.mean):
            raise GrassError(f"The forest was scored on different {split} rows: train again.")
        members = {NETWORK: prediction.mean, FOREST: self.splits[split].mean}
        if split in self.process_splits:
            process = self.process_splits[split]
            members[PROCESS] = _without_gaps(process, self.splits[split]).mean
        both = self.combine(prediction, forest)
        owner = torch.arange(len(both.mean))
        return network | {
            "metrics": {
                name: (
                    task.score(both.mean, target, name),
                    bootstrap(task, both.mean, target, owner, name),
                )
                for name in network["metrics"]
            },
            "spread_correlation": task.spread_correlation(both.mean, both.std, target),
            "members": {
                title: {name: task.score(mean, target, name) for name in network["metrics"]}
                for title, mean in members.items()
            },
        }

    def save(self, folder: Path) -> None:
        """Write both files into a run folder."""
        checksum = write_checked(folder / ARRAYS, self._bytes())
        write_json(folder / FILE, self.card.model_dump(mode="json") | {"sha256": checksum})

    def _bytes(self) -> bytes:
        """Trees, process and predictions of splits as a safetensors file."""
        arrays = self.forest.arrays()
        if self.process is not None:
            arrays |= {_PROCESS + name: own for name, own in self.process.arrays().items()}
        for prefix, splits in (("", self.splits), (_PROCESS, self.process_splits)):
            for split, found in splits.items():
                for part, values in found._asdict().items():
                    arrays[f"{prefix}{split}.{part}"] = values.double().numpy()
        return save_arrays({name: np.ascontiguousarray(value) for name, value in arrays.items()})


class SavedModel(Protocol):
    """What identifies a trained model and its forest: the card, and where both are saved."""

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``config.json``."""

    @property
    def folder(self) -> Path | None:
        """The run folder."""


def _read_card(model: SavedModel) -> ForestCard | None:
    """``forest.json`` of a run; None for networks alone."""
    if model.folder is None or not (model.folder / FILE).is_file():
        return None
    path = model.folder / FILE
    try:
        card = ForestCard.model_validate(read_json(path))
    except ValidationError:
        raise GrassError(f"The file {path} is damaged: it describes no forest.") from None
    if card.model != model.card.get("weights_sha256"):
        raise GrassError(
            f"The forest in {path} belongs to another network: remove the file to predict with "
            "the network alone."
        )
    return card


def forest_checksum(model: SavedModel) -> str | None:
    """The checksum of the forest of a run, if it has one."""
    card = _read_card(model)
    return None if card is None else card.sha256


def other_members(model: SavedModel) -> list[str]:
    """What the network of a run is averaged with."""
    card = _read_card(model)
    if card is None:
        return []
    return [FOREST] if card.process_shares is None else [FOREST, PROCESS]


def load_stack(model: TrainedModel) -> Stack | None:
    """The forest of a run; None for networks alone.

    Raises:
        GrassError: A file is missing or damaged, or belongs to another network.
    """
    card = _read_card(model)
    if card is None or model.folder is None:
        return None
    path, task = model.folder / ARRAYS, make_task(model.config.task)
    try:
        arrays = load_arrays(read_checked(path, LARGEST_FILE, card.sha256))
        forest = Forest.from_arrays(arrays, task.outputs)
        splits = {
            split: _read_split(arrays, split)
            for split in ("val", "test")
            if f"{split}.mean" in arrays
        }
        process, process_splits = None, {}
        if card.process_shares is not None:
            own = {
                name.removeprefix(_PROCESS): value
                for name, value in arrays.items()
                if name.startswith(_PROCESS)
            }
            process = GaussianProcess.from_arrays(own, task.outputs)
            process_splits = {
                split: Prediction(*_read_split(own, split)[:2])
                for split in splits
                if f"{split}.mean" in own
            }
    except GrassError:
        raise
    except (OSError, SafetensorError, LookupError, ValueError, TypeError) as error:
        raise GrassError(f"The file {path} is damaged: {first_line(error)}.") from None
    both = [*splits.values(), *process_splits.values()]
    rows = {split: len(found.mean) for split, found in splits.items()}
    shares = [card.shares] if card.process_shares is None else [card.shares, card.process_shares]
    reach = [0.0] * task.outputs if card.reach is None else card.reach
    if (
        any(len(own) != task.outputs for own in shares)
        or not all(0 <= share <= 1 for own in shares for share in own)
        or len(reach) != task.outputs
        or not all(0 <= one < math.inf for one in reach)
        or not {part.shape[1:] for found in both for part in found} <= {(task.outputs,)}
        or any(len(found.mean) != rows[split] for split, found in process_splits.items())
    ):
        raise GrassError(f"The file {path} is damaged: its parts do not fit together.")
    return Stack(forest, card, task, splits, process, process_splits)


def _read_split(arrays: dict[str, np.ndarray], split: str) -> ForestPrediction:
    mean, std = (torch.from_numpy(arrays[f"{split}.{part}"]) for part in ("mean", "std"))
    error = arrays.get(f"{split}.error")
    return ForestPrediction(
        mean, std, torch.full_like(mean, math.nan) if error is None else torch.from_numpy(error)
    )


def with_process(
    forest: ForestPrediction, process: Prediction, shares: list[float], task: Task
) -> ForestPrediction:
    """The average of forest and process, with the shares of the process; of one if there is one."""
    both = mix(_without_gaps(process, forest), forest, shares, task)
    return ForestPrediction(both.mean, both.std, forest.error)


def _without_gaps(process: Prediction, forest: ForestPrediction) -> Prediction:
    """Predictions of a process; those of the forest for targets with too few rows for a process."""
    missing = process.mean.isnan()
    return Prediction(
        torch.where(missing, forest.mean, process.mean),
        torch.where(missing, forest.std, process.std),
    )


def name_members(members: Iterable[str]) -> str:
    """Such as "network, forest and Gaussian process", for what they are averaged from."""
    *others, last = members
    return f"{', '.join(others)} and {last}"


def mix(
    network: Prediction,
    forest: ForestPrediction,
    shares: list[float],
    task: Task,
    even_spread: bool = True,
    reach: list[float] | None = None,
) -> Prediction:
    """Combine predictions [M, outputs]; where the forest has none, the network's remain."""
    share = torch.tensor(shares, dtype=torch.float64)
    own, other = network.mean.double(), forest.mean.double()
    numbers = not task.predicts_probabilities
    part = torch.full_like(share, 0.5) if even_spread and numbers else share
    variance = part * network.std.double().square() + part * (1 - part) * (own - other).square()
    if numbers:
        variance = variance + (1 - part) * forest.std.double().square()
    known = ~other.isnan()
    gap = own - other
    if reach is not None:
        limit = torch.tensor(reach, dtype=torch.float64)
        gap = gap.clamp(-limit, limit)
    mean = torch.where(known, other + share * gap, own)
    std = torch.where(known, variance.sqrt(), network.std.double())
    return Prediction(mean.to(network.mean.dtype), std.to(network.std.dtype))


def with_forest(
    stack: Stack | None, network: Prediction, forest: ForestPrediction | None
) -> Prediction:
    """The combined prediction, or that of the network if it has no forest."""
    return network if stack is None or forest is None else stack.combine(network, forest)


def fit_shares(network: Tensor, forest: Tensor, target: Tensor, task: Task) -> list[float]:
    """The share of the network, between 0 and 1, for each output.

    For numbers it minimises the squared error, for probabilities the log loss; classes have one
    share in common. All are drawn towards a half, because there may be only a few dozen rows.

    Args:
        network: Predictions of the network for validation rows [M, outputs].
        forest: Predictions of the forest, fitted to other rows [M, outputs].
        target: Targets in the shape of the task, NaN where one is missing.
        task: The task.
    """
    network, forest = network.double(), forest.double()
    if isinstance(task, ProbabilityTask) and task.classes:
        known = ~(network + forest).isnan().any(dim=1)
        found = _probability_share(task, network[known], forest[known], target[known])
        return [found] * task.outputs
    shares = []
    for place in range(task.outputs):
        own, other = network[:, place, None], forest[:, place, None]  # [M, 1]
        true = target.view(len(network), -1)[:, place, None].double()
        known = ~(true + own + other).isnan().flatten()
        if not bool(known.any()):
            shares.append(1.0 if bool(other.isnan().all()) else 0.5)
            continue
        own, other, true = own[known], other[known], true[known]
        if isinstance(task, ProbabilityTask):
            shares.append(_probability_share(task, own, other, true))
            continue
        gap = own - other
        size = _PRIOR / len(gap) * gap.square().sum()
        best = ((gap * (true - other)).sum() + size / 2) / (gap.square().sum() + size)
        shares.append(float(best.nan_to_num(0.5).clamp(0, 1)))  # NaN where both are the same
    return shares


def fit_reach(network: Tensor, forest: Tensor, task: Task) -> list[float] | None:
    """How far from the forest the network counts: four times as far as it is usually, on M rows."""
    if task.predicts_probabilities:
        return None
    usual = (network.double() - forest.double()).square().nanmean(dim=0).sqrt()  # [outputs]
    return (4 * usual).nan_to_num(0.0).tolist()


def _probability_share(
    task: ProbabilityTask, network: Tensor, forest: Tensor, target: Tensor
) -> float:
    losses = [
        len(target) * task.log_loss(share * network + (1 - share) * forest, target)
        + _PRIOR * (share - 0.5) ** 2
        for share in _SHARES.tolist()
    ]
    return float(_SHARES[int(np.argmin(losses))])
