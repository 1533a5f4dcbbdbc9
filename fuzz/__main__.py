"""``python -m fuzz``: try many inputs of every target, and print a table of the outcomes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
from dataclasses import asdict
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
    "SMILES tables (train)": 14,
    "SMILES tables (predict)": 2,
    "edge lists": 18,
    "config TOML": 20,
    "run folders": 5,
    "checkpoints": 14,
    "packed files": 6,
    "PyG graphs": 12,
    "files of PyG graphs": 12,
    "SMILES structures": 2,
    "nested JSON and TOML": 3,
    "Parquet expansion": 3,
    "pickles": 14,
    "special files": 0.06,  # there are 54 of them
    "Excel, SDF, SMI and InChI": 3,
    "HTTP requests": 4,
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
    parser.add_argument(
        "--variants",
        type=int,
        default=4,
        help="how many small changes of each input are tried that Hypothesis draws",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rounds", type=int, default=1, help="number of parts, each of all targets"
    )
    parser.add_argument(
        "--record",
        type=Path,
        help="file to append the counts to; the table shows all that is in it",
    )
    options = parser.parse_args()
    console = Console()
    has_atheris = importlib.util.find_spec("atheris") is not None
    if not has_atheris:
        console.print("atheris is not installed: all inputs are drawn by Hypothesis.")
    guard_process()
    log = Path(tempfile.gettempdir()) / "grass-gnn-fuzz.log"
    log.unlink(missing_ok=True)
    chosen = options.target or list(TARGETS)
    tallies = {name: (Tally(), Tally()) for name in chosen}
    for number in range(options.rounds):
        for name in chosen:
            share = SHARES[name] / sum(SHARES[other] for other in chosen)
            count = math.ceil(options.inputs * share / options.rounds)
            followed = round(count * options.guided) if has_atheris else 0
            seed = options.seed + number
            drawn = at_random(TARGETS[name], count - followed, seed, options.variants)
            found = guided(name, followed, log) if followed else Tally()
            for total, part in zip(tallies[name], (drawn, found), strict=True):
                total.add(part)
            if options.record is not None:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, asdict(drawn), asdict(found)]) + "\n")
            findings = len(drawn.findings | found.findings)
            console.print(f"{name}: {drawn.inputs + found.inputs:,} inputs, {findings} findings")
            sys.stdout.flush()
    if options.record is not None:
        tallies = _recorded(options.record)
    good = _report(console, tallies)
    for name, parts in tallies.items():
        for place, example in (parts[1].findings | parts[0].findings).items():
            console.rule(f"{name}: {place}")
            console.print(example, markup=False, highlight=False)
    return 0 if good else 1


def _recorded(path: Path) -> dict[str, tuple[Tally, Tally]]:
    """The counts of several calls."""
    tallies: dict[str, tuple[Tally, Tally]] = {name: (Tally(), Tally()) for name in TARGETS}
    for line in path.read_text("utf-8").splitlines():
        name, *parts = json.loads(line)
        for total, part in zip(tallies[name], parts, strict=True):
            total.add(Tally(**part))
    return {name: parts for name, parts in tallies.items() if parts[0].inputs or parts[1].inputs}


def _report(console: Console, tallies: dict[str, tuple[Tally, Tally]]) -> bool:
    table = Table(
        "target",
        "inputs",
        "by atheris",
        "past the first check",
        "findings",
        "CPU seconds",
        "slowest",
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
        total.slowest = max(total.slowest, both.slowest)
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
    times = f"{tally.seconds:.0f}", f"{tally.slowest:.2f}"
    findings = str(len(tally.findings))
    return [f"{tally.inputs:,}", f"{by_atheris:,}", f"{share:.0%}", findings, *times]


if __name__ == "__main__":
    sys.exit(main())
