"""Faults against the write, train, preprocess, fit and predict paths, and what survived them.

python tests/faults/run.py                           # plans 580 faults
python tests/faults/run.py --sample                  # one of each kind on each path
python tests/faults/run.py --path train --faults 50 --seed 7
python tests/faults/run.py --record faults.jsonl --minutes 7   # repeat until all are done
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("GRASS_OPS", "reference")  # nothing is compiled, no thread is started
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightning.fabric  # noqa: F401  else each child would import it, and the next two
import scipy.stats  # noqa: F401
import torch
import torchmetrics.functional  # noqa: F401
from harness import EXACT_KINDS, RANDOM_KINDS, Found, Trial
from rich import box
from rich.console import Console
from rich.table import Table
from workloads import PATHS

from grass_gnn.evaluation import protocol

SAMPLE = 8  # faults on each path, one of each random kind and a few at operations on files
# Most faults hit what runs for hours.
SHARES = {"write": 2, "train": 4, "preprocess": 2, "predict": 2, "fit": 3}
PARTS = 4
Results = dict[str, Found]  # by "seed path kind number"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--faults",
        type=int,
        default=580,
        help="to plan on all paths together; some work ends before its fault",
    )
    parser.add_argument("--sample", action="store_true", help=f"{SAMPLE} faults on each path")
    parser.add_argument("--path", action="append", choices=PATHS, help="only this path")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument(
        "--record", type=Path, help="file to append results to; those in it are not repeated"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    protocol.BOOTSTRAP = 2  # confidence intervals are not what is tried here
    console, until = Console(width=110), time.monotonic() + 60 * options.minutes
    chosen = options.path or list(PATHS)
    share = options.faults / sum(SHARES[name] for name in chosen)
    results = _read(options.record)
    cpu = time.process_time() + sum(os.times()[2:4])
    complete = True
    parts = 1 if options.sample else PARTS
    for part in range(1, parts + 1):  # all paths in turn: a run that is stopped has some of each
        for name in chosen:
            faults = SAMPLE if options.sample else math.ceil(share * SHARES[name])
            complete &= _try_path(name, faults, part / parts, options, results, until)
    _print(console, results, chosen)
    total = sum(found.faults for found in results.values())
    survived = sum(found.faults for found in results.values() if not found.problems)
    processes = sum(found.processes for found in results.values())
    files = sum(found.files for found in results.values())
    seconds = time.process_time() + sum(os.times()[2:4]) - cpu
    console.print(
        f"{total} faults, {survived} survived; {processes} processes and {files} temporary files "
        f"left behind; {seconds:.0f} s of CPU time"
    )
    for found in results.values():
        for problem in found.problems:
            console.print(problem, markup=False, highlight=False)
    if not complete:
        console.print("Not all faults were tried within the time: repeat the command.")
    return 0 if survived == total > 0 else 1


def _try_path(
    name: str,
    faults: int,
    part: float,
    options: argparse.Namespace,
    results: Results,
    until: float,
) -> bool:
    """Inject the first part of a path's faults unless they are in ``results``; False: no time."""
    if time.monotonic() > until:
        return False
    trial = Trial(PATHS[name], options.seed)
    try:
        strikes = trial.plan(faults)
        for done, strike in enumerate(strikes[: math.ceil(part * len(strikes))], 1):
            key = f"{options.seed} {name} {strike.kind} {strike.number}"
            if key in results:
                continue
            if time.monotonic() > until:
                return False
            found = results[key] = trial.inject(strike)
            if options.record is not None:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, **asdict(found)}) + "\n")
            print(f"{name} {done}/{len(strikes)}: {strike.kind}", *found.problems, flush=True)
    finally:
        trial.close()
    return True


def _read(record: Path | None) -> Results:
    if record is None or not record.exists():
        return {}
    lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    return {line.pop("key"): Found(**line) for line in lines}


def _print(console: Console, results: Results, paths: list[str]) -> None:
    def share(wanted: Callable[[str, str, Found], bool]) -> str:
        found = []
        for key, one in results.items():
            _, path, kind = key.rsplit(" ", 1)[0].split(" ", 2)
            if wanted(kind, path, one):
                found.append(one)
        survived = sum(one.faults for one in found if not one.problems)
        return f"{survived} / {sum(one.faults for one in found)}" if found else "–"

    table = Table("fault", *paths, "all", box=box.MARKDOWN)
    for kind in (*RANDOM_KINDS, *EXACT_KINDS):
        cells = [share(lambda k, p, _, path=path: (k, p) == (kind, path)) for path in paths]  # noqa: B023
        table.add_row(kind, *cells, share(lambda k, p, _: k == kind))  # noqa: B023
    cells = [share(lambda _, p, __, path=path: p == path) for path in paths]
    table.add_row("all", *cells, share(lambda *_: True))
    console.print("survived / faults:", table)
    operations = ("write", "fsync", "rename")
    files = Table("file", *operations, box=box.MARKDOWN)
    for file in sorted({found.file for found in results.values() if found.file}):
        cells = [
            share(lambda _, __, one, op=op: (one.file, one.operation) == (file, op))  # noqa: B023
            for op in operations
        ]
        files.add_row(file, *cells)
    console.print("of those, ended before, during or after an operation:", files)


if __name__ == "__main__":
    sys.exit(main())
