"""Faults against the write, train, preprocess and predict paths, and a table of what survived.

python tests/faults/run.py                 # all: a few hundred, several minutes on one core
python tests/faults/run.py --sample        # one of each kind on each path, as CI does
python tests/faults/run.py --path train --each 50 --seed 7
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("GRASS_OPS", "reference")  # nothing is compiled, no thread is started
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from harness import EXACT_KINDS, RANDOM_KINDS, Record, Trial
from rich import box
from rich.console import Console
from rich.table import Table
from workloads import PATHS

from grass_gnn.evaluation import protocol


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", action="store_true", help="one of each kind on each path")
    parser.add_argument("--path", action="append", choices=PATHS, help="only this path")
    parser.add_argument("--each", type=int, default=10, help="faults of each kind on each path")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    torch.set_num_threads(1)
    protocol.BOOTSTRAP = 2  # confidence intervals are not what is tried here
    console, record, began = Console(width=110), Record(), time.monotonic()
    console.print(f"seed {options.seed}")
    for name in options.path or PATHS:
        trial = Trial(PATHS[name], record, options.seed)
        try:
            for kind in RANDOM_KINDS:
                trial.random_faults(kind, 1 if options.sample else options.each)
            every = max(len(trial.operations) // 2, 1) if options.sample else 1
            trial.exact_faults(lambda number, every=every: number % every == 0)
        finally:
            trial.close()
    _print(console, record, options.path or list(PATHS))
    seconds = time.monotonic() - began
    total, survived = record.faults.total(), record.survived.total()
    console.print(f"{total} faults, {survived} survived, in {seconds:.0f} s")
    for problem in record.problems:
        console.print(problem, markup=False, highlight=False)
    return 0 if survived == total > 0 else 1


def _print(console: Console, record: Record, paths: list[str]) -> None:
    table = Table("fault", *paths, "all", box=box.MARKDOWN)
    for kind in (*RANDOM_KINDS, *EXACT_KINDS):
        keys = [(kind, path) for path in paths]
        table.add_row(kind, *(_share(record, [key]) for key in keys), _share(record, keys))
    every = [key for key in record.faults if key[1] in paths]
    columns = [_share(record, [key for key in every if key[1] == path]) for path in paths]
    table.add_row("all", *columns, _share(record, every))
    console.print("survived / faults:", table)
    operations = ("write", "fsync", "rename")
    files = Table("file", *operations, box=box.MARKDOWN)
    for file in sorted({file for file, _ in record.by_file}):
        cells = [
            f"{record.by_file_survived[file, one]} / {record.by_file[file, one]}"
            if record.by_file[file, one]
            else "–"
            for one in operations
        ]
        files.add_row(file, *cells)
    console.print("of those, ended before, during or after an operation:", files)


def _share(record: Record, keys: list[tuple[str, str]]) -> str:
    faults = sum(record.faults[key] for key in keys)
    return f"{sum(record.survived[key] for key in keys)} / {faults}" if faults else "–"


if __name__ == "__main__":
    sys.exit(main())
