"""Predict the penalised logP of a few molecules with the trained model from the package.

Run: python examples/predict_with_the_shipped_model.py
"""

from grass_gnn import load_model
from grass_gnn.data.tables.molecules import MoleculeReader

MOLECULES = {  # and their true values
    "Clc1ccc(CNc2ncccc2Cl)cn1": 2.00,
    "O=C(NCCNS(=O)(=O)c1cccc(Cl)c1F)c1cccnc1": 0.69,
}


def main():
    read = MoleculeReader("zinc", canonical_order=True)  # the same for every SMILES of a molecule
    graphs = [read(smiles).data for smiles in MOLECULES]
    mean, std = load_model("zinc").predict(graphs, rewirings=16, deterministic=True)
    for (smiles, true), value, spread in zip(MOLECULES.items(), mean, std, strict=True):
        print(f"{smiles}: {value.item():.2f} ± {spread.item():.2f}, true {true}")
    return mean, std


if __name__ == "__main__":
    main()
