"""Keyword arguments of the public functions, sorted into the objects that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.progress import Progress
from grass_gnn.training.options import RunOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class PredictOptions:
    """How a table is predicted, embedded or explained.

    Args:
        smiles: Column of SMILES; that of the training table by default.
        rewirings: Number of random rewirings to average over.
        seed: Random seed of the rewirings.
        deterministic: Derive the rewirings of each molecule from the molecule alone (with its
            atoms in canonical order), so that they depend neither on the seed nor on other rows.
        max_atoms: Reject larger molecules.
        calibrated: Apply the calibration stored in the run folder, if there is one.
        coverage: Share of true values that intervals are to contain, such as 0.9.
        workers: Processes that parse SMILES, at least one; one per core by default.
        device: Device to run on, such as ``"cuda:1"``; that of the model by default.
        progress: Progress hook; by default a progress bar on a terminal.
    """

    smiles: str | None = None
    rewirings: int = 16
    seed: int = 0
    deterministic: bool = False
    max_atoms: int = 1000
    calibrated: bool = True
    coverage: float = 0.9
    workers: int | None = None
    device: str | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class SearchOptions:
    """How long a hyperparameter search runs, and where it is stored.

    Args:
        trials: Total number of trials, including those of earlier calls.
        minutes: Start no new trial after this many minutes.
        storage: File or SQL URL (shared by several machines) of the study; ``tune.db`` in the
            output folder by default.
        study: Name of the study in the storage.
        file: Where to write the best settings; ``best.toml`` in the output folder by default.
    """

    trials: int = 30
    minutes: float | None = None
    storage: str | Path | None = None
    study: str = "grass-gnn"
    file: str | Path | None = None


def with_fields(options: T, given: Mapping[str, Any]) -> T:
    """A copy of an options object with the fields among ``given`` changed."""
    own = {field.name for field in fields(options)}
    return replace(options, **{k: v for k, v in given.items() if k in own})


def field_names(*classes: type) -> list[str]:
    """The fields of several options classes."""
    return [field.name for cls in classes for field in fields(cls)]


def check_names(given: Mapping[str, Any], *classes: type) -> None:
    """Raise a TypeError if a keyword is not a field of any of the classes."""
    known = field_names(*classes)
    for name in given:
        if name not in known:
            from grass_gnn.config import suggest

            raise TypeError(f"There is no option {name!r}{suggest(name, known)}")


def table_options(
    targets: TableSpec | str | Any, options: RunOptions | None, given: Mapping[str, Any]
) -> tuple[TableSpec, RunOptions]:
    """Sort keyword arguments into the columns of a table and the options of a run."""
    check_names(given, TableSpec, RunOptions)
    spec = with_fields(TableSpec.of(targets), given)
    return spec, with_fields(options or RunOptions(), given)
