"""Grass-gnn beside chemprop, LightGBM and a random forest on tables of molecules.

    python benchmarks/molecules/compare.py run --tables FOLDER --env FOLDER   # resumable; hours
    python benchmarks/molecules/compare.py report --tables FOLDER      # writes results/molecules

The tables are CSV files with a column ``smiles``, targets, and columns of splits.
Every method trains with its defaults on the same predefined splits, on one thread. ``run`` skips
what WORK already has, so it can be interrupted, and continued with more seeds or other methods.
``--env`` is the environment with the packages of requirements.txt; grass-gnn runs in the present
one. Test rows are predicted once by each finished model and are used for nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from figure import draw
from scores import Case, markdown_tables, summarise

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "molecules"
TABLES = ("freesolv", "lipophilicity", "bbbp", "tox21")
SPLITS = ("random0", "random1", "random2", "scaffold")
OTHERS = ("chemprop", "chemprop-rdkit", "lightgbm", "forest")
GRASS = {
    "grass-gnn": (),
    "grass-gnn-scratch": ("--from-scratch",),
    "grass-gnn-network": ("--no-forest", "--no-baseline"),
}
BEGIN, END = "<!-- tables: written by compare.py report -->", "<!-- end of tables -->"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--tables", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--env", type=Path, help="environment of the other methods")
    parser.add_argument("--work", type=Path, default=Path("runs/molecules"), help="where runs go")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the report goes")
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="all in the folder by default")
    parser.add_argument("--splits", nargs="+", default=SPLITS, choices=SPLITS, metavar="SPLIT")
    parser.add_argument("--methods", nargs="+", default=(*GRASS, *OTHERS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3, help="training seeds per split")
    arguments = parser.parse_args()
    if arguments.what == "report":
        return report(arguments.tables, arguments.work, arguments.results)
    names = sorted((path.stem for path in arguments.tables.glob("*.csv")), key=place_of)
    for seed in range(arguments.seeds):  # a whole comparison with one seed first
        for table in arguments.only or names:
            path = arguments.tables / f"{table}.csv"
            given = pd.read_csv(path, nrows=0).columns
            for split in [split for split in arguments.splits if split in given]:
                for method in arguments.methods:
                    run(method, path, split, seed, arguments)
    return None


def place_of(table: str) -> tuple[int, str]:
    """The place of a table in the results; those of other comparisons are sorted by name."""
    return (TABLES.index(table) if table in TABLES else len(TABLES), table)


def run(method: str, table: Path, split: str, seed: int, arguments: argparse.Namespace) -> None:
    """Train and predict unless it is done; write predictions and CPU time into WORK."""
    name = f"{method}-{table.stem}-{split}-{seed}"
    out, scratch = arguments.work / f"{name}.csv", arguments.work / f"{name}.part"
    if out.exists():
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    if method in GRASS:
        whole = pd.read_csv(table, dtype=str)
        targets = targets_of(whole)
        # Under another name: "--split scaffold" would draw a scaffold split instead of reading it.
        own = whole[["smiles", *targets]].assign(given=whole[split])
        own.to_csv(scratch / "table.csv", index=False)
        command = [sys.executable, "-m", "grass_gnn", "train", str(scratch / "table.csv")]
        command += ["--split", "given"]
        command += ["--target", ",".join(targets), "--seed", str(seed)]
        command += ["--out", str(scratch / "run"), *GRASS[method]]
    else:
        if arguments.env is None:
            raise SystemExit(f"--env is needed for {method}")
        command = [str(arguments.env / "bin" / "python"), str(HERE / "competitors.py"), method]
        command += [str(table), split, str(seed), str(scratch / "out.csv")]
    facts: dict[str, object] = {"cpu_seconds": round(call(command, scratch / "log.txt"), 1)}
    if method in GRASS:
        results = json.loads((scratch / "run" / "results.json").read_text())
        facts["members"] = results["test"].get("members")
        found = in_common_form(scratch / "run" / "test_predictions.csv", own, targets)
        found.to_csv(scratch / "out.csv", index=False)
    (arguments.work / f"{name}.json").write_text(json.dumps(facts))
    os.replace(scratch / "out.csv", out)
    shutil.rmtree(scratch)
    print(f"{name}: {facts['cpu_seconds']} CPU seconds", flush=True)


def in_common_form(path: Path, table: pd.DataFrame, targets: list[str]) -> pd.DataFrame:
    """Test predictions of grass-gnn as the other methods write them: rows are counted from 0."""
    found = pd.read_csv(path)
    found["row"] -= 2  # lines of the file, the first of which has the names of the columns
    chosen = table.iloc[found["row"]]
    if list(chosen["smiles"]) != list(found["smiles"]) or set(chosen["given"]) != {"test"}:
        raise SystemExit(f"{path} has other rows than the test rows of the table")
    renamed = {f"{target}_prob": f"{target}_pred" for target in targets}
    return found.drop(columns=["smiles", *targets]).rename(columns=renamed)


def call(command: list[str], log: Path) -> float:
    """Run a command on one thread, and return its CPU seconds including its child processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed: see {log}")
    return used.ru_utime + used.ru_stime


def targets_of(table: pd.DataFrame) -> list[str]:
    """The columns to predict."""
    return [name for name in table.columns if name not in ("smiles", *SPLITS)]


@cache
def has_small_ring(smiles: str) -> bool:
    """Whether a molecule has a ring of three or four atoms."""
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(smiles)  # outlives its rings
    return any(len(ring) < 5 for ring in molecule.GetRingInfo().AtomRings())


def report(tables: Path, work: Path, folder: Path) -> None:
    """Score all finished runs; write results.json, the figure and the tables of README.md."""
    cases = []
    for path in sorted(work.glob("*.csv")):
        method, table, split, seed = path.stem.rsplit("-", 3)
        truth = pd.read_csv(tables / f"{table}.csv")
        targets = targets_of(truth)
        found = pd.read_csv(path).sort_values("row")
        y = truth.iloc[found["row"]][targets].to_numpy(dtype=float)  # [rows, targets]
        facts = json.loads(path.with_suffix(".json").read_text())
        members = facts.get("members") or {}
        columns = {
            kind: found[[f"{target}_{kind}" for target in targets]].to_numpy(dtype=float)
            for kind in ("pred", "std", "lower", "upper")
            if f"{targets[0]}_{kind}" in found
        }
        expected = np.flatnonzero(truth[split] == "test")
        if not set(found["row"]) <= set(expected):
            raise SystemExit(f"{path.stem} has predicted other rows than the test rows")
        if len(found) != len(expected):
            print(f"{path.stem}: {len(found)} of {len(expected)} test rows were predicted")
        rings = np.array([has_small_ring(one) for one in truth.iloc[found["row"]]["smiles"]])
        alone = {name: own.get("rmse", own.get("auc")) for name, own in members.items()}
        cost = facts["cpu_seconds"]
        cases.append(Case(method, table, split, int(seed), y, columns, cost, rings, alone))
    cases.sort(key=lambda case: (place_of(case.table), case.split, case.method, case.seed))
    results = summarise(cases)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results["cells"], folder / "comparison.svg")
    write_between(folder / "README.md", BEGIN, END, markdown_tables(results))


def write_between(readme: Path, begin: str, end: str, text: str) -> None:
    """Replace what is between two comments in the README of the results."""
    before, _, rest = readme.read_text().partition(begin)
    _, _, after = rest.partition(end)
    readme.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


if __name__ == "__main__":
    np.seterr(invalid="ignore")
    main()
