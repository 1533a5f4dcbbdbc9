"""ZINC in four stages, each of which starts from the weights of the one before.

    python results/zinc/make.py --data FOLDER                                    # all stages
    python results/zinc/make.py --data FOLDER --finished results/zinc/shallow results/zinc/deep

The first is the preset zinc-cpu, the second zinc-cpu-deep; the others train the second for more
epochs, the last one with random Kekulé forms. --finished names the runs of the first stages, which
are then not trained. Trains in --runs (an interrupted run is resumed), then writes scores, curves
and weights next to this file, and what predictions need to grass_gnn/models/zinc: weights, card,
calibration, and training molecules to compare others with.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grass_gnn import GRASSConfig
from grass_gnn.api.calibration import calibrate
from grass_gnn.data.benchmarks.registry import load_benchmark
from grass_gnn.data.packed.prepare import PreparedData, prepare_benchmark
from grass_gnn.data.tables.features import zinc_molecule
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.evaluation.protocol import predict_split
from grass_gnn.evaluation.trained import load_model
from grass_gnn.experiments.measured import RunRecord
from grass_gnn.files import read_json, write_json, write_text
from grass_gnn.report.figures import training_curves
from grass_gnn.training.options import RunOptions
from grass_gnn.training.start import train_from
from grass_gnn.uncertainty.domain import Domain
from grass_gnn.uncertainty.similarity import SimilarityReference

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1] / "grass_gnn" / "models" / "zinc"
COMPARED = ("domain.json", "similarity.safetensors", "neighbours.safetensors")
MODEL = ("weights.safetensors", "config.json", "calibration.json", "results.json", *COMPARED)
RECORD = (
    "results.json",
    "config.toml",
    "metrics.csv",
    "val_predictions.csv",
    "test_predictions.csv",
)
COUNTS = (1, 4, 16, 64)  # rewirings to average over
RESAMPLES = 10_000


@dataclass(frozen=True)
class Stage:
    """A run that starts from the weights of the stage before it."""

    name: str
    folder: Path  # where its files are kept
    preset: str
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)  # that differ from the preset


STAGES = (
    Stage("12 layers", HERE / "shallow", "zinc-cpu", seed=0),
    Stage("49 layers", HERE / "deep", "zinc-cpu-deep", seed=1),
    Stage(
        "49 layers, trained further",
        HERE / "further",
        "zinc-cpu-deep",
        seed=2,
        settings={
            "training.epochs": 250,
            "training.hold": 0.1,
            "training.precision": "bf16-mixed",
        },
    ),
    Stage(
        "49 layers, random Kekulé forms",
        HERE,
        "zinc-cpu-deep",
        seed=3,
        settings={
            "training.epochs": 320,
            "training.hold": 0.2,
            "training.precision": "bf16-mixed",
            "training.kekule_forms": True,
        },
    ),
)


def main() -> None:
    """Train or resume, evaluate, and copy the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with ZINC's raw files")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--finished",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="finished runs of the first stages, which are then not trained",
    )
    arguments = parser.parse_args()
    data = prepare_benchmark(GRASSConfig.preset("zinc-cpu"), arguments.data)
    runs = train_stages(data, arguments.runs, arguments.finished)
    describe_molecules(arguments.data, runs[-1])
    calibrate(runs[-1])
    for number, run in enumerate(runs):
        keep(run, number)
    write_json(HERE / "averaging.json", averaging(data))
    curves = [(stage.name, RunRecord(stage.folder)) for stage in STAGES]
    write_text(HERE / "curve.svg", training_curves("zinc", curves).file)
    SHIPPED.mkdir(parents=True, exist_ok=True)
    for name in MODEL:
        shutil.copy(HERE / name, SHIPPED / name)


def train_stages(data: PreparedData, runs: Path, finished: Sequence[Path]) -> list[Path]:
    """The run folders of all stages; those that are not finished are trained or resumed."""
    folders = list(finished)
    for number, stage in enumerate(STAGES[len(finished) :], start=len(finished)):
        folder = runs / f"zinc-{number + 1}"
        if not (folder / "results.json").exists():
            config = GRASSConfig.preset(stage.preset, **stage.settings)
            options = RunOptions(seed=stage.seed, resume=folder.exists())
            train_from(folders[-1] if folders else None, config, data, folder, options)
        folders.append(folder)
    return folders


def describe_molecules(data: str, run: Path) -> None:
    """Write what the training molecules are, so that predictions can be compared with them."""
    reader = MoleculeReader(features="zinc", fingerprints=True)
    splits = load_benchmark("zinc", data).splits
    molecules = {
        name: [reader.read(zinc_molecule(graph)) for graph in graphs]
        for name, graphs in splits.items()
    }
    bits = {name: np.stack([one.fingerprint for one in own]) for name, own in molecules.items()}
    targets = torch.cat([graph.y.view(1, 1) for graph in splits["train"]]).double().numpy()
    Domain.of([one.composition for one in molecules["train"]], targets).save(run)
    checksum = SimilarityReference.of(bits.pop("train"), others=bits).save(run)
    card = read_json(run / "config.json")
    write_json(run / "config.json", {**card, "similarity_sha256": checksum})


def keep(run: Path, number: int) -> None:
    """Copy the files of a stage, without the places that mean nothing on other machines."""
    folder = STAGES[number].folder
    if run.resolve() == folder.resolve():
        return
    folder.mkdir(exist_ok=True)
    names = [*(MODEL if folder == HERE else MODEL[:2]), *RECORD]
    names += ["start.json"] if number else []
    for name in names:
        shutil.copy(run / name, folder / name)
    for name in {"config.json", "results.json", "start.json"}.intersection(names):
        values = read_json(folder / name)
        values.get("data", {}).get("origin", {}).pop("folder", None)
        start = values if name == "start.json" else values.get("start", {})
        if start:
            before = STAGES[number - 1].folder
            start["run"] = before.relative_to(HERE.parents[1]).as_posix()
        write_json(folder / name, values)


def averaging(data: PreparedData) -> dict[str, object]:
    """Test error of predictions averaged over rewirings, and the gain over single ones.

    The 64 rewirings are divided into disjoint groups, so that each counts once. Intervals are
    bootstrap intervals over molecules, with the same resamples for both errors of a difference.
    """
    trained = load_model(HERE)
    samples, targets = [], None
    for number in range(max(COUNTS)):
        found, targets, _ = predict_split(trained.model, data.test, trained.config, 1, number)
        samples.append(found.double().flatten())
    predicted = torch.stack(samples)  # [64, M]
    errors = {count: _errors(predicted, targets.flatten(), count) for count in COUNTS}
    return {
        str(count): {
            "mae": float(error.mean()),
            "gain": float((errors[1] - error).mean()),
            "gain_interval": _interval(errors[1] - error),
            "gain_share": float(1 - error.mean() / errors[1].mean()),
        }
        for count, error in errors.items()
    }


def _errors(predicted: Tensor, target: Tensor, count: int) -> Tensor:
    """Absolute error per molecule [M] of predictions averaged over ``count`` rewirings."""
    groups = predicted.view(-1, count, predicted.shape[1]).mean(dim=1)  # [64 / count, M]
    return (groups - target).abs().mean(dim=0)


def _interval(differences: Tensor) -> list[float]:
    """95 % bootstrap interval of the mean over molecules."""
    generator = torch.Generator().manual_seed(0)
    size = (RESAMPLES, len(differences))
    means = differences[torch.randint(len(differences), size, generator=generator)].mean(dim=1)
    return means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()


if __name__ == "__main__":
    main()
