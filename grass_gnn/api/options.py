"""Options of predictions and of hyperparameter searches.

The command line makes its options from these fields, so this module imports neither torch nor
pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grass_gnn.progress import Progress


@dataclass(frozen=True)
class PredictOptions:
    """How a table is predicted, embedded or explained.

    Args:
        smiles: Column of SMILES or InChI; that of the training table by default.
        rewirings: Number of random rewirings to average over.
        seed: Random seed of the rewirings.
        deterministic: Derive the rewirings of each molecule from the molecule alone (with its
            atoms in canonical order), so that they depend neither on the seed nor on other rows.
        max_atoms: Maximum number of atoms; larger molecules get an error message.
        calibrated: Apply the calibration stored in the run folder, if there is one.
        coverage: Share of true values that intervals should contain, such as 0.9.
        workers: Processes that parse SMILES, at least one; one per core by default.
        device: Device to run on, such as ``"cuda:1"``; by default where the model was loaded, which
            is the GPU if there is one.
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
