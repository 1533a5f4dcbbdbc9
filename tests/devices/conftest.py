"""A machine with the pretend device, and a model of molecules that was trained on it."""

import csv

import pytest
from pretend import DEVICE, pretend_device
from small import SET

from grass_gnn.cli import main

SMILES = ("CCO", "CCN", "CCC", "c1ccccc1", "CC(=O)O", "CCCl", "C1CCCC1", "CC#N", "COC", "CCS")


@pytest.fixture(autouse=True, scope="module")
def device(tmp_path_factory):
    """The pretend device, which commands use by default."""
    with pytest.MonkeyPatch.context() as patch, pretend_device() as found:
        patch.setenv("GRASS_OPS", "reference")
        patch.setattr("grass_gnn.evaluation.protocol.BOOTSTRAP", 20)
        patch.setenv("GRASS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield found


@pytest.fixture(scope="package")
def molecules(tmp_path_factory):
    """A table of 30 molecules with a number and a class."""
    path = tmp_path_factory.mktemp("tables") / "molecules.csv"
    rows = [("C" * extra + text, len(text) + extra) for text in SMILES for extra in range(3)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "size", "kind"])
        writer.writerows([smiles, size, "ab"[size % 2]] for smiles, size in rows)
    return path


@pytest.fixture(scope="package")
def run(molecules, tmp_path_factory):
    """The folder of a regression that was trained on the device."""
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("runs") / "size"
    with pytest.MonkeyPatch.context() as patch, pretend_device():
        patch.setattr("grass_gnn.evaluation.protocol.BOOTSTRAP", 20)
        patch.setenv("GRASS_OPS", "reference")
        command = ["train", str(molecules), "--target", "size", "--shares", "0.5,0.4,0.1"]
        assert main([*command, "--device", DEVICE, *SET, "--out", str(folder)]) == 0
    return folder
