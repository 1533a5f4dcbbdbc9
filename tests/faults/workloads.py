"""What the faults hit: writing files, training, preparing data, fitting and predicting tables.

Each can be started again after anything, and must then leave what an undisturbed one leaves.
"""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from grass_gnn import GRASS, GRASSConfig, load_model
from grass_gnn.api.embedding import _write_npz
from grass_gnn.api.fitting import fit_table
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.data.packed.store import CacheEntry
from grass_gnn.evaluation.predictions import write_predictions
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import write_json, write_text, write_whole
from grass_gnn.testing import random_input
from grass_gnn.training.optim import save_batch
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import checkpoints, read_checkpoint, write_checkpoint
from grass_gnn.training.run import train
from grass_gnn.uncertainty.similarity import SimilarityReference

CONFIG = GRASSConfig().override(
    {
        "input.nodes.kind": "index",
        "input.nodes.sizes": [5],
        "encoding.steps": 4,
        "rewiring.degree": 2,
        "model.dim": 8,
        "model.layers": 2,
        "model.head_hidden": 4,
        "training.epochs": 2,
        "training.batch_size": 8,
        "training.patience": 2,
        "training.checkpoint_minutes": 1e-9,  # after every step
        "evaluation.statistics_passes": 1,
        "evaluation.rewirings": 2,
    }
)
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "CCCC", "C1CCCCC1", "CCCl", "OCCO", "CC#N", "CS"]
SMALL = {
    "training.epochs": 1,
    "model.dim": 8,
    "model.layers": 2,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 1,
}


def graphs(count: int, first: int = 0) -> list:
    return [random_input(CONFIG, 4 + seed % 7, first + seed) for seed in range(count)]


SPLITS = {"train": graphs(17), "val": graphs(4, 100), "test": graphs(4, 200)}


def without_times(path: Path) -> list[list[str]]:
    """The rows of a metrics.csv, without machine-dependent values."""
    with path.open(newline="") as file:
        return [row[:5] for row in csv.reader(file)]


class Train:
    """Train or resume, as a user would with --resume."""

    name = "train"

    def set_up(self, template: Path) -> None:
        prepare(SPLITS, CONFIG, template / "data")

    def run(self, folder: Path) -> None:
        data = prepare(SPLITS, CONFIG, folder / "data")
        out = folder / "run"
        train(CONFIG, data, out, RunOptions(seed=3, workers=0, resume=out.exists()))

    def check(self, folder: Path) -> None:
        """No file is damaged, and at most one step has to be repeated."""
        if checkpoints(folder / "run" / "checkpoints"):
            assert read_checkpoint(folder / "run" / "checkpoints") is not None
        if (folder / "run" / "config.json").exists():
            load_model(folder / "run")

    def result(self, folder: Path) -> object:
        run = folder / "run"
        assert not (run / "run.lock").exists()
        names = ("weights.safetensors", "val_predictions.csv", "test_predictions.csv")
        return [(run / name).read_bytes() for name in names], without_times(run / "metrics.csv")


class Fit:
    """Train on a table of molecules, which are read in worker processes, or resume."""

    name = "fit"

    def set_up(self, template: Path) -> None:
        template.mkdir()
        rows = [f"{smiles},{len(smiles)}" for smiles in SMILES * 2]
        (template / "table.csv").write_text("\n".join(["smiles,size", *rows]))

    def run(self, folder: Path) -> None:
        out = folder / "run"
        fit_table(
            folder / "table.csv",
            ["size"],
            out,
            RunOptions(seed=3, workers=0, resume=out.exists()),
            settings=SMALL,
        )

    def check(self, folder: Path) -> None:
        """The same as after a fault in training."""
        Train().check(folder)

    def result(self, folder: Path) -> object:
        kept = [(folder / "run" / name).read_bytes() for name in ("splits.csv", "config.toml")]
        return Train().result(folder), kept


class Preprocess:
    """Check, encode and pack a dataset, or find it."""

    name = "preprocess"

    def set_up(self, template: Path) -> None:
        template.mkdir()

    def run(self, folder: Path) -> None:
        prepare(SPLITS, CONFIG, folder)

    def check(self, folder: Path) -> None:
        for entry in folder.glob("graphs-*"):
            assert CacheEntry(folder, entry.name).manifest() is not None

    def result(self, folder: Path) -> object:
        assert not list(folder.glob(".*.building"))
        return {p.name: p.read_bytes() for p in folder.glob("graphs-*/*.safetensors")}


class Predict:
    """Predict a table's rows into a file that was there before."""

    name = "predict"

    def set_up(self, template: Path) -> None:
        template.mkdir()
        rows = [f"{smiles},{len(smiles)}" for smiles in SMILES * 3]
        (template / "table.csv").write_text("\n".join(["smiles,size", *rows]))
        fit_table(template / "table.csv", ["size"], template / "run", settings=SMALL, forest=False)
        (template / "out.csv").write_text("old")

    def run(self, folder: Path) -> None:
        model = load_model(folder / "run")
        predict_table([model], folder / "table.csv", folder / "out.csv", rewirings=2, workers=1)

    def check(self, folder: Path) -> None:
        text = (folder / "out.csv").read_text()
        assert text == "old" or text.count("\n") == 1 + 3 * len(SMILES), text

    def result(self, folder: Path) -> object:
        return (folder / "out.csv").read_bytes()


@dataclass
class Write:
    """Every kind of file by its own writer, over an older one of its kind."""

    name = "write"
    known: dict[str, set[bytes]] | None = None

    def set_up(self, template: Path) -> None:
        self._write(template, 0)
        new = template.with_name("new")
        shutil.copytree(template, new)
        self._write(new, 1)
        self.known = {}
        for folder in (template, new):
            for path in folder.rglob("*.*"):
                if path.is_file():
                    name = str(path.relative_to(folder))
                    self.known.setdefault(name, set()).add(path.read_bytes())

    def run(self, folder: Path) -> None:
        self._write(folder, 1)

    @staticmethod
    def _write(folder: Path, version: int) -> None:
        torch.manual_seed(version)
        values = torch.arange(12.0).view(4, 3) + version
        write_text(folder / "text.csv", f"version {version}\n" * 3000)
        write_json(folder / "values.json", {"version": version})
        write_predictions(folder / "predictions.csv", values, values, values)
        bits = (np.arange(8 * 1024).reshape(8, 1024) % (3 + version) == 0).astype(np.uint8)
        SimilarityReference.of(bits).save(folder)
        with write_whole(folder / "embeddings.npz") as temporary:
            _write_npz(temporary, {"embedding": values.numpy()})
        batch = next(iter(GraphLoader(pack(SPLITS["val"], CONFIG), CONFIG, 2, workers=0)))
        save_batch(batch, folder / "batch.safetensors", {"version": version})
        for number in range(4):
            content = {"grass_gnn": {"number": number}}
            write_checkpoint(folder / "checkpoints", 4 * version + number, content)
        if version:  # a model is written once
            save_model(GRASS(CONFIG), folder / "model")

    def check(self, folder: Path) -> None:
        assert self.known is not None
        for path in folder.rglob("[!.]*.*"):
            name = str(path.relative_to(folder))
            if path.suffix == ".ckpt":
                continue
            assert path.read_bytes() in self.known[name], f"{name} is neither old nor new"
        kept = checkpoints(folder / "checkpoints")
        assert len(kept) >= 2 and read_checkpoint(folder / "checkpoints") is not None
        if {"config.json", "weights.safetensors"} <= {p.name for p in folder.glob("model/*")}:
            load_model(folder / "model")

    def result(self, folder: Path) -> object:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.*")}


PATHS = {workload.name: workload for workload in (Write(), Train(), Preprocess(), Predict(), Fit())}
