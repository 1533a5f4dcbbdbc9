"""Budgets: limits on a reproduction and settings for it, and their description for reports."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig, suggest
from grass_gnn.data.packed.dataset import PoolingStatistics
from grass_gnn.data.packed.prepare import PreparedData, SplitSize
from grass_gnn.errors import GrassError
from grass_gnn.nn.model import count_parameters
from grass_gnn.nn.norm import NORMS, BatchNorm
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train
from grass_gnn.training.signals import Interrupted


@dataclass(frozen=True)
class Budget:
    """Limits on a run, and other settings for it. By default, those of the paper are used."""

    name: str = "paper"
    epochs: int | None = None
    layers: int | None = None  # at most
    graphs: int | None = None  # of each split, at most
    minutes: float | None = None  # of training, from which the number of epochs follows
    passes: int | None = None  # that collect norm statistics, at most
    rewirings: int | None = None  # of the final evaluation, at most
    batch_size: int | None = None  # at most: more steps for the same epochs
    settings: dict[str, Any] | None = None  # by dotted name, for all rows

    def apply(self, config: GRASSConfig, own: Collection[str] = ()) -> GRASSConfig:
        """The configuration within the budget (epochs derived from minutes are set later).

        Args:
            config: The configuration of a row.
            own: Names of the settings that the row is about, which stay as they are.
        """
        settings = (self.settings or {}).items()
        config = config.override({name: value for name, value in settings if name not in own})
        changes: dict[str, Any] = {}
        evaluation, model = config.evaluation, config.model
        if self.layers is not None:
            changes["model.layers"] = min(self.layers, model.layers)
        if self.epochs is not None:
            changes["training.epochs"] = self.epochs
        if self.batch_size is not None:
            changes["training.batch_size"] = min(self.batch_size, config.training.batch_size)
        passes, rewirings = evaluation.statistics_passes, evaluation.rewirings
        passes = passes if self.passes is None else min(passes, self.passes)
        rewirings = rewirings if self.rewirings is None else min(rewirings, self.rewirings)
        # Deterministic evaluations are done once; other norms have no statistics to collect.
        collects = model.architecture == "grass" and issubclass(NORMS[model.norm], BatchNorm)
        changes["evaluation.statistics_passes"] = passes if collects else 0
        changes["evaluation.rewirings"] = 1 if is_deterministic(config) else rewirings
        return config.override(changes)

    def limit(self, data: PreparedData) -> PreparedData:
        """The data within the budget."""
        return data if self.graphs is None else first_graphs(data, self.graphs)

    def to_dict(self) -> dict[str, Any]:
        """The budget as JSON; that of runs without settings is as in earlier versions."""
        values = asdict(self)
        return values if self.settings else {k: v for k, v in values.items() if k != "settings"}

    @property
    def is_paper(self) -> bool:
        """Whether nothing is limited or set."""
        return all(value is None for value in astuple(self)[1:])

    @property
    def slug(self) -> str:
        """A name for folders."""
        if self == BUDGETS.get(self.name):
            return self.name
        parts = {k: v for k, v in self.to_dict().items() if v is not None and k != "name"}
        settings = parts.pop("settings", {})
        words = [f"{value:g}{name}" for name, value in parts.items()]
        words += [f"{name.split('.')[-1]}-{value}" for name, value in settings.items()]
        return re.sub(r"[^\w.+-]+", "_", "-".join(words)) or "paper"

    def describe(self) -> str:
        """The limits in words, shown with every result."""
        if self.is_paper:
            return "the paper's full budget"
        words = []
        if self.layers is not None:
            words.append(f"at most {self.layers} layers")
        if self.epochs is not None:
            words.append(_count(self.epochs, "epoch"))
        if self.batch_size is not None:
            words.append(f"batches of at most {self.batch_size}")
        if self.minutes is not None:
            words.append(f"as many epochs as fit into about {self.minutes:g} min")
        if self.graphs is not None:
            words.append(f"at most {self.graphs:,} graphs per split")
        if self.passes is not None:
            words.append(f"norm statistics over at most {_count(self.passes, 'pass', 'passes')}")
        if self.rewirings is not None:
            words.append(f"evaluated under at most {_count(self.rewirings, 'rewiring')}")
        limits = ["a reduced budget: " + ", ".join(words)] if words else []
        settings = ", ".join(f"{name} = {value}" for name, value in (self.settings or {}).items())
        return " and ".join(limits + ([f"other settings: {settings}"] if settings else []))


BUDGETS = {
    "smoke": Budget("smoke", epochs=1, layers=2, graphs=200, passes=1, rewirings=2),
    "hour": Budget("hour", layers=16, graphs=10_000, minutes=60, passes=10, rewirings=10),
    "paper": Budget("paper"),
}


def make_budget(
    name: str, settings: dict[str, Any] | None = None, **limits: float | None
) -> Budget:
    """A named budget, with some of its limits changed, and settings for all rows."""
    if name not in BUDGETS:
        raise GrassError(f"There is no budget {name!r}{suggest(name, list(BUDGETS))}")
    given: dict[str, Any] = {key: value for key, value in limits.items() if value is not None}
    if "epochs" in given and "minutes" in given:
        raise GrassError("Use either --epochs or --minutes, not both.")
    if "epochs" in given:
        given["minutes"] = None
    elif "minutes" in given:
        given["epochs"] = None
    if "training.epochs" in (settings or {}):  # takes the place of the number that a budget has
        if "epochs" in given:
            raise GrassError("Use either --set training.epochs or --epochs (--minutes), not both.")
        given |= {"epochs": None, "minutes": None}
    return replace(BUDGETS[name], settings=settings or None, **given)


def is_deterministic(config: GRASSConfig) -> bool:
    """Whether every evaluation of a model uses the same edges."""
    rewiring = config.rewiring
    unaware = config.model.architecture != "grass"
    fixed = rewiring.kind in ("none", "complete") or rewiring.when != "always"
    return unaware or fixed or rewiring.degree == 0


def first_graphs(data: PreparedData, count: int) -> PreparedData:
    """The first graphs of each split, with a fingerprint that says so."""
    if all(len(split) <= count for split in data.splits.values()):
        return data
    splits = {name: split.first(count) for name, split in data.splits.items()}
    note = f"at most {count} graphs of each split"
    digest = hashlib.blake2b(f"{data.fingerprint.hash} {note}".encode(), digest_size=16)
    fingerprint = replace(
        data.fingerprint,
        hash=digest.hexdigest(),
        splits={
            name: SplitSize(len(split), split.num_nodes / len(split), split.num_edges / len(split))
            for name, split in splits.items()
        },
        official=False,
        differences=[*data.fingerprint.differences, note],
    )
    statistics = PoolingStatistics.of(splits["train"])
    return replace(data, splits=splits, statistics=statistics, fingerprint=fingerprint)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def same_size(config: GRASSConfig, architecture: str, **changes: Any) -> GRASSConfig:
    """A baseline whose width is chosen to match the number of parameters of ``config``.

    Args:
        config: The configuration whose size to match.
        architecture: Name of the baseline.
        changes: Further settings, by dotted name.
    """
    goal = count_parameters(config)
    baseline = config.override({"model.architecture": architecture, **changes})

    def excess(dim: int) -> int:
        return count_parameters(baseline.override({"model.dim": dim})) - goal

    dim = 4  # in steps of four, the number of attention heads
    while excess(dim + 4) <= 0:
        dim += 4
    return baseline.override({"model.dim": min((dim, dim + 4), key=lambda d: abs(excess(d)))})


def epochs_within(
    config: GRASSConfig, data: PreparedData, folder: Path, seconds: float, seed: int = 0
) -> int:
    """Number of epochs that take about this many seconds, estimated from one epoch.

    Raises:
        Interrupted: The process was asked to stop; a later call times the epoch again.
    """
    trial = folder.with_name(f"trial-{folder.name}")  # not seed-0-trial, which looks like a run
    shutil.rmtree(trial, ignore_errors=True)
    once = config.override(
        {
            "training.epochs": 1,
            "evaluation.statistics_passes": 0,
            "evaluation.rewirings": 1,
        }
    )
    try:
        each = train(once, data, trial, RunOptions(seed=seed)).results["training"]["seconds"]
    except Interrupted:
        told = "Stopped while an epoch was timed; run the same command to resume."
        raise Interrupted(told) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return max(1, round(seconds / each))
