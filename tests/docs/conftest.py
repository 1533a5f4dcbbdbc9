"""The folder in which pages are run: small tables, and a finished run on one of them."""

import csv
import importlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from grass_gnn.data.tables.spec import BUNDLED

pytest.importorskip("rdkit")

TINY = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "training.epochs": 1,
    "training.batch_size": 32,
    "training.patience": 0,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}


def _molecules(count: int) -> list[dict[str, object]]:
    with BUNDLED["example"].path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[20 : 20 + count]
    numbers = [float(row["logP"]) for row in rows]
    return [
        {
            "name": row["name"],
            "smiles": row["smiles"],
            "logS": -number,
            "logP": number,
            "pKa": 5 + number / 2,
            "toxic": int(number > 1),
            "temperature": 20 + line % 3,
            "pH": 7 - line % 2,
            "y": number,
        }
        for line, (row, number) in enumerate(zip(rows, numbers, strict=True))
    ]


def _write(path: Path, rows: list[dict[str, object]], columns: str = "") -> None:
    names = columns.split() or list(rows[0])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages assume."""
    from grass_gnn.api.fitting import fit_table

    folder, rows = tmp_path_factory.mktemp("pages"), _molecules(100)
    _write(folder / "molecules.csv", rows[:70], "name smiles logS logP pKa toxic temperature pH")
    _write(folder / "own.csv", rows[:40], "smiles pKa")
    _write(folder / "held_out.csv", rows[70:], "smiles logS")
    _write(folder / "new.csv", rows[70:76], "smiles")
    _write(folder / "example.csv", rows[:70], "name smiles logP")
    _write(folder / "solubility.csv", rows[:70], "name smiles logS")
    for name, part in {"train": rows[:24], "val": rows[24:32], "test": rows[32:40]}.items():
        _write(folder / f"{name}.csv", part, "smiles y")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        fit_table(folder / "molecules.csv", ["logS"], folder / "runs/solubility", settings=TINY)
    return folder


@pytest.fixture
def working_folder(prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in; models are small unless a page says otherwise."""
    folder = tmp_path / "work"
    shutil.copytree(prepared_folder, folder)
    fitting = importlib.import_module("grass_gnn.api.fitting")
    suited = fitting.default_settings
    monkeypatch.setattr(fitting, "default_settings", lambda *sizes: {**suited(*sizes), **TINY})
    monkeypatch.setattr("grass_gnn.api.links._VIEWS", 2)
    monkeypatch.setattr("grass_gnn.api.finetuning.default_start", lambda *_: None)
    for name, table in BUNDLED.items():
        monkeypatch.setitem(BUNDLED, name, replace(table, path=folder / f"{name}.csv"))
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    return folder
