"""Do contributions of atoms say what a model has learned? A check against a known answer.

    grass-gnn train example --no-forest --out runs/example
    python benchmarks/attributions.py runs/example

The target of the example table is Crippen's logP, which RDKit computes as a sum over atoms, so the
true contribution of each atom is known (hydrogens count with the atom that they are bonded to). For
each test molecule, the script prints the correlation of these with the contributions that
``model.attribute`` finds, and with the attention that each atom receives.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from grass_gnn import load_model
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader

FEWEST = 4  # atoms; in smaller molecules a correlation says little


def crippen(smiles: str) -> np.ndarray:
    """The true contribution of each heavy atom, with its hydrogens [n]."""
    plain = Chem.MolFromSmiles(smiles)
    mol, count = Chem.AddHs(plain), plain.GetNumAtoms()
    total = np.zeros(count)
    for atom, (value, _) in zip(
        mol.GetAtoms(), rdMolDescriptors._CalcCrippenContribs(mol), strict=True
    ):
        heavy = atom.GetIdx() if atom.GetIdx() < count else atom.GetNeighbors()[0].GetIdx()
        total[heavy] += value
    return total


def main() -> None:
    """Compare all test molecules of a run, and print means with 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run folder of a model of the example table")
    parser.add_argument("--rewirings", type=int, default=4)
    arguments = parser.parse_args()
    trained, reader = load_model(arguments.run), MoleculeReader()
    with (arguments.run / "test_predictions.csv").open(encoding="utf-8") as file:
        rows = [row["smiles"] for row in csv.DictReader(file)]
    found: dict[str, list[float]] = {"contributions": [], "attention": []}
    truth, all_values = [], []
    for smiles in rows:
        true, molecule = crippen(smiles), reader(smiles)
        assert isinstance(molecule, Molecule)
        if len(true) < FEWEST or np.ptp(true) < 1e-6:
            continue
        values = np.array(trained.attribute(molecule.data, arguments.rewirings).of_output(0))
        explained = trained.explain(molecule.data, arguments.rewirings)
        received = torch.zeros(len(true)).index_add(0, explained.edge_index[0], explained.attention)
        found["contributions"].append(float(np.corrcoef(values, true)[0, 1]))
        found["attention"].append(float(np.corrcoef(received.numpy(), true)[0, 1]))
        truth.append(true)
        all_values.append(values)
    generator = np.random.default_rng(0)
    print(f"{len(truth)} molecules, {sum(map(len, truth))} atoms")
    for name, own in found.items():
        means = [np.mean(generator.choice(own, len(own))) for _ in range(2000)]
        low, high = np.quantile(means, (0.025, 0.975))
        print(f"{name:14} mean correlation {np.mean(own):6.3f} (95 % {low:.3f} to {high:.3f})")
    pooled = np.corrcoef(np.concatenate(all_values), np.concatenate(truth))[0, 1]
    print(f"contributions, all atoms together: {pooled:.3f}")


if __name__ == "__main__":
    main()
