"""``python -m fuzz``: try many inputs of every target, and print a table of the outcomes."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("GRASS_OPS", "reference")  # nothing is compiled for inputs this small
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from fuzz.engines import at_random, guided
from fuzz.harness import Tally, guard_process
from fuzz.targets import TARGETS

# Share of the inputs per target, by their cost: a table of molecules takes milliseconds.
SHARES = {
    "SMILES tables (train)": 18,
    "SMILES tables (predict)": 3,
    "edge lists": 18,
    "config TOML": 20,
    "run folders": 8,
    "checkpoints": 12,
    "packed files": 6,
    "PyG graphs": 12,
    "files of PyG graphs": 12,
    "SMILES structures": 3,
    "nested JSON and TOML": 3,
    "Parquet dictionaries": 3,
    "pickles": 12,
    "special files": 3,
}


def main() -> int:
    """Run the chosen targets; 1 if there are findings or too few inputs pass the first check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--inputs", type=int, default=106_000, help="number of inputs for all targets together"
    )
    parser.add_argument(
        "--guided", type=float, default=0.3, help="share of the inputs chosen by atheris"
    )
    parser.add_argument(
        "--target", action="append", choices=list(TARGETS), help="only this target (repeatable)"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    has_atheris = importlib.util.find_spec("atheris") is not None
    if not has_atheris:
        console.print("atheris is not installed: all inputs are drawn by Hypothesis.")
    guard_process()
    log = Path(tempfile.gettempdir()) / "grass-gnn-fuzz.log"
    log.unlink(missing_ok=True)
    tallies: dict[str, tuple[Tally, Tally]] = {}
    chosen = options.target or list(TARGETS)
    for name in chosen:
        count = options.inputs * SHARES[name] // sum(SHARES[other] for other in chosen)
        followed = round(count * options.guided) if has_atheris else 0
        drawn = at_random(TARGETS[name], count - followed, options.seed)
        found = guided(name, followed, log) if followed else Tally()
        tallies[name] = drawn, found
        findings = len(drawn.findings | found.findings)
        console.print(f"{name}: {drawn.inputs + found.inputs:,} inputs, {findings} findings")
        sys.stdout.flush()
    good = _report(console, tallies)
    for name, parts in tallies.items():
        for place, example in (parts[1].findings | parts[0].findings).items():
            console.rule(f"{name}: {place}")
            console.print(example, markup=False, highlight=False)
    return 0 if good else 1


def _report(console: Console, tallies: dict[str, tuple[Tally, Tally]]) -> bool:
    table = Table(
        "target", "inputs", "by atheris", "past the first check", "findings", "CPU seconds"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    total, guided_inputs, good = Tally(), 0, True
    for name, (drawn, found) in tallies.items():
        both = Tally()
        both.add(drawn)
        both.add(found)
        total.inputs, total.past = total.inputs + both.inputs, total.past + both.past
        total.seconds += both.seconds
        total.findings |= {f"{name}: {place}": text for place, text in both.findings.items()}
        guided_inputs += found.inputs
        table.add_row(name, *_cells(both, found.inputs))
        good = good and not both.findings and both.past >= 0.3 * both.inputs
    table.add_section()
    table.add_row("all", *_cells(total, guided_inputs))
    console.print(table)
    return good


def _cells(tally: Tally, by_atheris: int) -> list[str]:
    share = tally.past / max(tally.inputs, 1)
    findings, seconds = str(len(tally.findings)), f"{tally.seconds:.0f}"
    return [f"{tally.inputs:,}", f"{by_atheris:,}", f"{share:.0%}", findings, seconds]


if __name__ == "__main__":
    sys.exit(main())
