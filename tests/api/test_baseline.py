import json
import math

import pytest
from small_tables import TINY, some_smiles, write_csv

from grass_gnn.api import baseline
from grass_gnn.api.baseline import describe_baseline, forest_baseline
from grass_gnn.api.fitting import fit_table
from grass_gnn.cli import main
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.spec import TableSpec


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(baseline, "_TREES", 15)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Targets that count atoms, with gaps; every row has at least one."""
    header = ["smiles", "carbons", "aromatic", "kind", "oxygen", "fluorine", "bulk"]
    rows = []
    for number, text in enumerate(some_smiles(80)):
        carbons = text.upper().count("C") - text.count("Cl")
        kind = "ring" if "c1" in text else "cage" if "C1" in text else "chain"
        label = int("O" in text) if number % 5 else ""
        rows.append([text, carbons, int("c" in text), kind, label, int("F" in text), 10 * carbons])
    return write_csv(tmp_path_factory.mktemp("baseline") / "own.csv", header, rows)


@pytest.mark.parametrize(
    ("targets", "metric", "bound"),
    [
        (["carbons"], "mae", 1.5),
        (["carbons", "bulk"], "mae", 10.0),
        (["aromatic"], "auc", 0.9),
        (["kind"], "accuracy", 0.7),
        (["oxygen", "fluorine"], "ap", 0.7),
    ],
)
def test_a_forest_learns_every_kind_of_task(table, targets, metric, bound):
    data = read_tables(table, TableSpec(tuple(targets)), workers=0)
    found = forest_baseline(data, workers=0)
    assert metric in found.test
    assert found.test[metric] <= bound if metric == "mae" else found.test[metric] >= bound
    assert found.rows == found.drawn_from == len(data.splits["train"]) + len(data.splits["val"])
    assert f"{found.test[metric]:.4f}" in describe_baseline(found.to_dict(), metric)


def test_it_is_reproducible_and_stays_small(table, monkeypatch):
    data = read_tables(table, TableSpec(("carbons",)), workers=0)
    first, again = (forest_baseline(data, 3, workers=0) for _ in range(2))
    assert first.test == again.test
    monkeypatch.setattr(baseline, "_MOST_NUMBERS", 20)
    monkeypatch.setattr(baseline, "_FEW", 10)
    limited = forest_baseline(data, workers=0)
    assert limited.rows == 20
    assert "20 of 72" in describe_baseline(limited.to_dict(), "mae")
    monkeypatch.setattr(baseline, "MOST_TEST", 2)
    assert forest_baseline(data, workers=0) is None


def test_molecules_without_some_descriptors_are_scored(tmp_path):
    # Partial charges of metals are undefined; the forest fills gaps.
    rows = [[text, len(text)] for text in [*some_smiles(30), "[Fe]", "[Na+].[Cl-]", "[U]"]]
    path = write_csv(tmp_path / "own.csv", ["smiles", "y"], rows)
    found = forest_baseline(read_tables(path, TableSpec(("y",)), workers=0), workers=0)
    assert math.isfinite(found.test["mae"])


def test_training_shows_and_keeps_the_baseline(table, tmp_path, capsys):
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    main(["train", str(table), "--target", "carbons", "--out", str(tmp_path / "run"), *settings])
    shown = capsys.readouterr().out
    assert "random forest" in shown
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert set(results["baseline"]["test"]) == set(results["test"]["metrics"])


def test_python_trains_no_forest_unless_asked(table, tmp_path):
    run = fit_table(table, "carbons", tmp_path / "run", settings=TINY)
    assert "baseline" not in run.results
