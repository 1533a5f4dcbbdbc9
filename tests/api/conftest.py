"""Small molecules, small models, and a run on them."""

import pytest
from small_tables import TINY, some_smiles, write_csv

from grass_gnn.api.fitting import fit_table
from grass_gnn.data.tables.parsing import parse

pytest.importorskip("rdkit")


@pytest.fixture(autouse=True)
def reference_layers(tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def networks_alone(request, monkeypatch):
    """No forests, which take longer than these networks, except where tests are about them."""
    if "test_forest" not in request.node.nodeid:
        monkeypatch.setattr("grass_gnn.api.fitting.fit_forest", lambda *_: None)


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
        patch.setattr("grass_gnn.api.fitting.fit_forest", lambda *_: None)
        folder = tmp_path_factory.mktemp("runs") / "size"
        fit_table(molecules, ["size"], folder, settings=TINY)
    return folder
