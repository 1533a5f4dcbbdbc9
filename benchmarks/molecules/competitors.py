"""The methods that grass-gnn is compared with: chemprop, LightGBM and a random forest.

    python competitors.py METHOD TABLE SPLIT SEED OUT

Trains a method on the rows whose column SPLIT says "train", uses those that say "val" for early
stopping where the method knows it (and for training where it does not), and writes predictions of
the "test" rows to OUT: ``row`` and, for each target, ``T_pred`` and, if the method has one,
``T_std``. Settings are each package's own defaults. Runs in the environment of requirements.txt.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import Descriptors
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

SPLITS = ("random0", "random1", "random2", "scaffold")


def main() -> None:
    """Run one method on one split."""
    method, path, split, seed, out = sys.argv[1:]
    table = pd.read_csv(path)
    targets = [name for name in table.columns if name not in ("smiles", *SPLITS)]
    binary = bool(table[targets].isin([0, 1]).where(table[targets].notna(), True).all(axis=None))
    if method.startswith("chemprop"):
        result = chemprop(method, path, table, targets, split, int(seed), binary)
    else:
        result = fingerprints(method, table, targets, split, int(seed), binary)
    result.insert(0, "row", np.flatnonzero(table[split] == "test"))
    result.to_csv(out, index=False)


def fingerprints(
    method: str, table: pd.DataFrame, targets: list[str], split: str, seed: int, binary: bool
) -> pd.DataFrame:
    """A forest or boosted trees on Morgan counts and RDKit descriptors, one model per target."""
    inputs = np.stack([features(smiles) for smiles in table["smiles"]])  # [rows, 2048 + ~210]
    test = (table[split] == "test").to_numpy()
    result = {}
    for target in targets:
        known = table[target].notna().to_numpy()
        train = known & (table[split] == "train").to_numpy()
        val = known & (table[split] == "val").to_numpy()
        y = table[target].to_numpy()
        if method == "forest":
            train = train | val
            result |= forest(inputs[train], y[train], inputs[test], seed, binary, target)
        else:
            result[f"{target}_pred"] = boosting(
                (inputs[train], y[train]), (inputs[val], y[val]), inputs[test], seed, binary
            )
    return pd.DataFrame(result)


def features(smiles: str) -> np.ndarray:
    """Morgan counts (radius 2, 2,048 columns) and RDKit's descriptors, made finite."""
    molecule = Chem.MolFromSmiles(smiles)
    counts = GetMorganGenerator(radius=2, fpSize=2048).GetCountFingerprintAsNumPy(molecule)
    values = np.array(list(Descriptors.CalcMolDescriptors(molecule).values()), dtype=float)
    return np.concatenate([counts, np.nan_to_num(np.clip(values, -1e6, 1e6))]).astype(np.float32)


def forest(
    inputs: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int, binary: bool, target: str
) -> dict[str, np.ndarray]:
    """500 trees; the std is that of the trees' predictions."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    settings = {"n_estimators": 500, "random_state": seed, "n_jobs": 1}
    if binary:
        model = RandomForestClassifier(min_samples_leaf=2, **settings).fit(inputs, y.astype(int))
        return {f"{target}_pred": probability_of_one(model, test)}
    model = RandomForestRegressor(max_features=0.33, **settings).fit(inputs, y)
    trees = np.stack([tree.predict(test) for tree in model.estimators_])  # [trees, rows]
    return {f"{target}_pred": trees.mean(0), f"{target}_std": trees.std(0)}


def boosting(
    train: tuple[np.ndarray, np.ndarray],
    val: tuple[np.ndarray, np.ndarray],
    test: np.ndarray,
    seed: int,
    binary: bool,
) -> np.ndarray:
    """LightGBM with early stopping on the validation rows."""
    import lightgbm

    settings = {"n_estimators": 2000, "learning_rate": 0.05, "random_state": seed, "n_jobs": 1}
    kind = lightgbm.LGBMClassifier if binary else lightgbm.LGBMRegressor
    model = kind(subsample=0.8, subsample_freq=1, colsample_bytree=0.3, verbose=-1, **settings)
    stop = lightgbm.early_stopping(50, verbose=False)
    model.fit(*train, eval_set=[val], callbacks=[stop])
    return probability_of_one(model, test) if binary else model.predict(test)


def probability_of_one(model: object, test: np.ndarray) -> np.ndarray:
    """The column of class 1, which a training set of one class does not have."""
    classes = list(model.classes_)
    return model.predict_proba(test)[:, classes.index(1)] if 1 in classes else np.zeros(len(test))


def chemprop(
    method: str,
    path: str,
    table: pd.DataFrame,
    targets: list[str],
    split: str,
    seed: int,
    binary: bool,
) -> pd.DataFrame:
    """Chemprop's command line with its defaults; its best epoch by validation predicts."""
    program = str(Path(sys.executable).with_name("chemprop"))
    # Normalised descriptors, as its documentation recommends: with rdkit_2d, whose columns it
    # standardises, the RMSE on FreeSolv random0 is 1.19.
    with_rdkit = method == "chemprop-rdkit"
    extra = ["--molecule-featurizers", "v1_rdkit_2d_normalized"] if with_rdkit else []
    with tempfile.TemporaryDirectory() as scratch:
        run, test, out = Path(scratch, "run"), Path(scratch, "test.csv"), Path(scratch, "out.csv")
        table.loc[table[split] == "test", ["smiles"]].to_csv(test, index=False)
        common = ["--accelerator", "cpu", "--num-workers", "0", *extra]
        kind = "classification" if binary else "regression"
        train = [program, "train", "-i", path, "-s", "smiles", "--target-columns", *targets]
        train += ["--splits-column", split, "-t", kind, "--pytorch-seed", str(seed)]
        unscaled = ["--no-descriptor-scaling"] if with_rdkit else []
        call([*train, "-o", str(run), *common, *unscaled])
        predict = [program, "predict", "-i", str(test), "-s", "smiles", "-o", str(out)]
        call([*predict, "--model-paths", str(run / "model_0" / "best.pt"), *common])
        found = pd.read_csv(out)
    columns = [name for name in found.columns if name != "smiles"]
    return found[columns].set_axis([f"{target}_pred" for target in targets], axis=1)


def call(command: list[str]) -> None:
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
