"""The pretrained network as a fingerprint, beside Morgan counts, with the same simple models.

    python benchmarks/molecules/fingerprint.py --tables FOLDER       # writes results/molecules

The network is not trained on the tables: ``grass-gnn embed pretrained`` computes a row of numbers
for each molecule, as in docs/own-data.md. A linear model and a support vector machine from
scikit-learn are fitted to the training rows; their only setting, the strength of regularisation, is
chosen on the validation rows.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
from compare import RESULTS, SPLITS, TABLES, targets_of, write_between
from rdkit import Chem
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from scores import markdown_table, score
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from grass_gnn import embed_table, load_model

REWIRINGS = 4
STRENGTHS = np.logspace(-3, 3, 7)  # of the linear models; larger is freer
COSTS = (0.3, 1.0, 3.0, 10.0, 30.0)  # C of the support vector machines
BEGIN, END = "<!-- fingerprints: written by fingerprint.py -->", "<!-- end of fingerprints -->"


def main() -> None:
    """Read the command line, fit everything, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="folder with the four tables")
    parser.add_argument("--only", nargs="+", default=TABLES, choices=TABLES, metavar="TABLE")
    arguments = parser.parse_args()
    found = {}
    for table in arguments.only:
        for cell, row in measure(arguments.tables / f"{table}.csv").items():
            found[cell] = row
            print(cell, row, flush=True)
    (RESULTS / "fingerprints.json").write_text(json.dumps(found, indent=1) + "\n")
    write_between(RESULTS / "README.md", BEGIN, END, markdown(found))


def measure(path: Path) -> dict[str, dict[str, float]]:
    """Scores on the test rows of each split: RMSE, or ROC-AUC averaged over targets."""
    table = pd.read_csv(path)
    targets = targets_of(table)
    y = table[targets].to_numpy(dtype=float)  # [rows, targets]; NaN where unknown
    binary = bool(np.isin(y[~np.isnan(y)], (0, 1)).all())
    inputs = {"Morgan": morgan(table["smiles"]), "GRASS": embedding(path, len(table))}
    heads = ("linear", "SVM") if len(targets) == 1 else ("linear",)
    found = {}
    for split in SPLITS:
        parts = [(table[split] == part).to_numpy() for part in ("train", "val", "test")]
        row = {}
        for head in heads:
            for name, columns in inputs.items():
                predicted = np.column_stack(
                    [predict(head, columns, y[:, t], parts, binary) for t in range(len(targets))]
                )
                error = score(y[parts[2]], predicted, binary)
                row[f"{name}, {head}"] = round(1 - error if binary else error, 4)
        found[f"{path.stem} {split}"] = row
    return found


def embedding(path: Path, rows: int) -> np.ndarray:
    """The embedding of each molecule by the pretrained network [rows, 192]."""
    out = path.with_suffix(".npz").name
    embed_table(load_model("pretrained"), path, out, rewirings=REWIRINGS)
    with np.load(out) as file:
        assert len(file["row"]) == rows, "all molecules of the tables can be read"
        columns: np.ndarray = file["embedding"]
    Path(out).unlink()
    return columns


def morgan(smiles: pd.Series) -> np.ndarray:
    """Morgan counts of radius 2 [rows, 2048]."""
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    molecules = [Chem.MolFromSmiles(one) for one in smiles]
    return np.stack([generator.GetCountFingerprintAsNumPy(one) for one in molecules]).astype(float)


def predict(
    head: str, columns: np.ndarray, y: np.ndarray, parts: list[np.ndarray], binary: bool
) -> np.ndarray:
    """Predictions of the test rows by the model that is best on the validation rows."""
    known = ~np.isnan(y)
    train, val, test = parts[0] & known, parts[1] & known, parts[2]
    best, chosen = math.inf, np.zeros(test.sum())
    for strength in STRENGTHS if head == "linear" else COSTS:
        model = make_pipeline(StandardScaler(), make_head(head, float(strength), binary))
        model.fit(columns[train], y[train])
        answer = model.decision_function if binary else model.predict
        error = score(y[val, None], answer(columns[val])[:, None], binary)
        if error < best:
            best, chosen = error, answer(columns[test])
    return chosen


def make_head(head: str, strength: float, binary: bool) -> BaseEstimator:
    """A model of scikit-learn."""
    if head == "linear":
        # Sums of squares grow with the number of columns: the grid suits a few hundred of them.
        if binary:
            return LogisticRegression(C=strength / 100, max_iter=300)
        return Ridge(alpha=100 / strength)
    return SVC(C=strength) if binary else SVR(C=strength)


def markdown(found: dict[str, dict[str, float]]) -> str:
    """The scores as a table; – where a head was not fitted."""
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = [
        [cell, *(f"{row[name]:.3f}" if name in row else "–" for name in names)]
        for cell, row in found.items()
    ]
    return markdown_table(["table, split", *names], rows)


if __name__ == "__main__":
    main()
