"""The demonstration of ``make run``, at a size that takes seconds."""

import csv
import importlib
from dataclasses import replace

import pytest

pytest.importorskip("rdkit")

from rdkit import Chem

from grass_gnn.cli import demo, main
from grass_gnn.data.tables.spec import BUNDLED, WELL_KNOWN, TableSpec, find_table

SETTINGS = {
    "model.layers": 2,
    "model.dim": 8,
    "encoding.steps": 4,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def structures(rows):
    return [Chem.CanonSmiles(row["smiles"]) for row in rows]


def test_well_known_molecules_are_not_in_the_table_that_is_trained_on():
    rows, known = read(BUNDLED["solubility"].path), read(WELL_KNOWN)
    found = structures(rows)
    assert len(found) == len(set(found)) == 1267
    assert not set(found) & set(structures(known))
    assert {"aspirin", "caffeine"} < {row["name"] for row in known}
    assert all(-12 < float(row["logS"]) < 2 for row in rows)


def test_tables_are_found_by_name_and_files_stay_files(tmp_path):
    path, spec = find_table("solubility", TableSpec())
    assert path.is_file() and spec.targets == ("logS",)
    assert find_table("solubility", TableSpec(("y",)))[1].targets == ("y",)
    own = tmp_path / "own.csv"
    assert find_table(own, TableSpec(("y",))) == (own, TableSpec(("y",)))


def test_what_newcomers_see_names_scores_molecules_and_the_report(tmp_path, monkeypatch, capsys):
    fitting = importlib.import_module("grass_gnn.api.fitting")
    chosen = fitting.default_settings
    monkeypatch.setattr(fitting, "default_settings", lambda *sizes: chosen(*sizes) | SETTINGS)
    table = tmp_path / "few.csv"
    lines = BUNDLED["solubility"].path.read_text("utf-8").splitlines()
    table.write_text("\n".join([lines[0], *lines[1::8]]), "utf-8")
    few = replace(BUNDLED["solubility"], path=table)
    monkeypatch.setitem(BUNDLED, "solubility", few)
    monkeypatch.setenv("GRASS_OPS", "reference")
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "old.txt").write_text("of something else")
    assert main(["demo", "--epochs", "1", "--out", str(folder)]) == 1
    assert "choose another --out" in capsys.readouterr().err
    assert (folder / "old.txt").exists()
    (folder / "domain.json").write_text("from the last time")

    assert main(["demo", "--epochs", "1", "--out", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "aspirin" in shown and "90 % interval" in shown and "test MAE" in shown
    assert f"grass-gnn serve {folder}" in shown
    assert "aspirin" in (folder / demo.PREDICTIONS).read_text()
    with (folder / demo.PREDICTIONS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["logS_lower"]) < float(row["logS_upper"]) for row in rows)
    assert (folder / "calibration.json").is_file()
    assert "<html" in (folder / "report.html").read_text("utf-8")
    assert not (folder / "old.txt").exists()
    assert "forest of extra trees" in shown and "Morgan" in shown
