"""Small molecules, small models, and a run on them."""

import csv
import random

import pytest

from grass_gnn.data.molecules import parse
from grass_gnn.workflow import fit_table

pytest.importorskip("rdkit")

TINY = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "training.epochs": 3,
    "training.batch_size": 16,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}
PARTS = ["C", "CC", "O", "N", "c1ccccc1", "C(=O)", "C(F)", "S", "C1CCCC1", "C(Cl)", "C#C"]


def some_smiles(count, seed=0):
    """Different valid molecules, chains of a few parts."""
    source, found = random.Random(seed), {}
    while len(found) < count:
        text = "C" + "".join(source.choices(PARTS, k=source.randint(1, 6))) + "C"
        found[text] = None
    return list(found)


def write_csv(path, header, rows, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def reference_layers(tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def molecules(tmp_path_factory):
    """A table of 80 molecules with numbers, a yes-or-no and a class as targets."""
    rows = []
    for number, smiles in enumerate(some_smiles(80)):
        atoms = parse(smiles).GetNumAtoms()
        rows.append([f"m{number}", smiles, atoms / 3, int(atoms > 12), "abc"[atoms % 3]])
    path = tmp_path_factory.mktemp("tables") / "molecules.csv"
    return write_csv(path, ["id", "smiles", "size", "large", "kind"], rows)


@pytest.fixture(scope="session")
def run(molecules, tmp_path_factory):
    """The folder of a small regression."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        folder = tmp_path_factory.mktemp("runs") / "size"
        fit_table(molecules, ["size"], folder, settings=TINY)
    return folder
