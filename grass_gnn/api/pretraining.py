"""Pretraining: a GRASS for molecules that learns to predict descriptors of a long list of them.

The result is an ordinary run folder: ``finetune`` trains it further on a table, and ``embed``
uses it as it is.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.store import hash_files
from grass_gnn.data.pretraining.lists import (
    FRAGMENT_SHARE,
    PretrainingReader,
    draw,
    excluded_molecules,
)
from grass_gnn.data.pretraining.shards import pack_shards, scale_targets, write_shards
from grass_gnn.data.pretraining.targets import target_names
from grass_gnn.data.tables.features import DEFAULT_FEATURES, input_config
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.files import read_json, write_json
from grass_gnn.progress import reporting
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import Run, run_folder, train

logger = logging.getLogger(__name__)

PLAN = "pretraining.json"  # in a run folder: which molecules it was pretrained on
_DATA = "data"
_HELD_OUT = 1000  # molecules for validation, and as many for testing

SETTINGS: dict[str, Any] = {
    "encoding.steps": 16,
    "rewiring.degree": 3,
    "model.dim": 64,
    "model.layers": 6,
    "model.residual_scale": 0.3,
    "model.input_limit": 8.0,
    "task.loss": "mse",
    "task.metric": "rmse",
    "task.missing": True,
    "training.batch_size": 128,
    "training.epochs": 4,
    "training.learning_rate": 7e-4,
    "training.weight_decay": 0.3,
    "training.checkpoint_minutes": 3.0,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 4,
}
"""Settings of a pretrained model, by dotted name, where they differ from the defaults."""


@dataclass(frozen=True)
class PretrainingSpec:
    """Which molecules to pretrain on.

    Args:
        molecules: Number of molecules to draw from the lists; equally many from each, unless one
            is too short.
        exclude: Tables whose molecules are left out, such as those the model will be tested on.
            Stereochemistry is ignored in the comparison.
        smiles: Column of SMILES of tables; found by its name by default.
        fragments: Share of molecules that are replaced by a random fragment.
        max_atoms: Leave out larger molecules.
    """

    molecules: int = 250_000
    exclude: tuple[str, ...] = ()
    smiles: str | None = None
    fragments: float = FRAGMENT_SHARE
    max_atoms: int = 100


def pretrain(
    lists: Sequence[str | Path],
    out: str | Path,
    spec: PretrainingSpec | None = None,
    options: RunOptions | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Pretrain a GRASS for molecules on lists of SMILES and write a run folder.

    The targets are RDKit descriptors, centred, scaled and clipped. Molecules are described in other
    processes and written to the run folder in pieces, so that memory is bounded and an interrupted
    run can be resumed.

    Args:
        lists: Tables with a column of SMILES, or text files with one SMILES per line.
        out: The run folder.
        spec: Which molecules of the lists to use.
        options: How to run the training.
        settings: Changes to :data:`SETTINGS`, by dotted name.

    Example:
        >>> pretrain(["moses.csv.gz", "zinc.smi"], "runs/pretrained")  # doctest: +SKIP
    """
    spec, options, out = spec or PretrainingSpec(), options or RunOptions(), Path(out)
    names = target_names()
    features = input_config(DEFAULT_FEATURES)
    given = {
        "input.nodes.kind": features.nodes.kind,
        "input.edges.kind": features.edges.kind,
        "task.outputs": len(names),
    }
    config = GRASSConfig().override(given | SETTINGS | dict(settings or {}))
    with run_folder(out, options.resume), reporting(options.progress):
        excluded = excluded_molecules(spec.exclude, spec.smiles)
        plan = _plan(lists, spec, options.seed, excluded)
        _keep_plan(out / PLAN, plan, options.resume)
        logger.info("Drawing %s molecules from %d lists.", f"{spec.molecules:,}", len(lists))
        smiles = draw(lists, spec.molecules, options.seed, spec.smiles)
        reader = PretrainingReader(
            DEFAULT_FEATURES,
            identity=True,
            max_atoms=spec.max_atoms,
            excluded=excluded,
            seed=options.seed,
            fragment_share=spec.fragments,
        )
        folder = out / _DATA
        shards = write_shards(smiles, reader, config, folder)
        scaling = scale_targets(shards, names, folder)
        config = config.override({"task.outputs": len(scaling.names)})
        data = pack_shards(shards, scaling, config, folder, _HELD_OUT)
        logger.info(
            "Training on %s molecules to predict %d descriptors.",
            f"{len(data.train):,}",
            len(scaling.names),
        )
        schema = TableSchema(smiles="smiles", targets=scaling.names, features=DEFAULT_FEATURES)
        card = {
            "table": schema.model_dump(),
            "pretraining": {**plan, "targets": asdict(scaling)},
        }
        return train(config, data, out, options, card=card)


def _plan(
    lists: Sequence[str | Path], spec: PretrainingSpec, seed: int, excluded: frozenset[str]
) -> dict[str, Any]:
    """What determines the molecules of a run."""
    for path in lists:
        if not Path(path).is_file():
            raise GrassError(f"There is no file {path}.")
    digest = hashlib.blake2b("\n".join(sorted(excluded)).encode(), digest_size=16)
    return {
        "lists": {Path(path).name: hash_files([Path(path)]) for path in lists},
        "molecules": spec.molecules,
        "fragments": spec.fragments,
        "max_atoms": spec.max_atoms,
        "excluded": {
            "tables": [Path(path).name for path in spec.exclude],
            "molecules": len(excluded),
            "hash": digest.hexdigest(),
        },
        "seed": seed,
    }


def _keep_plan(path: Path, plan: dict[str, Any], resume: bool) -> None:
    """Record the plan of a run; a resumed run must have the same."""
    if resume and path.is_file():
        if read_json(path) != plan:
            raise GrassError(
                f"The run in {path.parent} uses different molecules: resume it with the same "
                "lists, --exclude, --molecules and --seed, or choose another --out."
            )
        return
    write_json(path, plan)
