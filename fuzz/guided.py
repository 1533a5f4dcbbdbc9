"""``python -m fuzz.guided NAME COUNTS INPUTS CORPUS``: one target under atheris."""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["grass_gnn"]):
    from fuzz.engines import run_guided
    from fuzz.harness import guard_process
    from fuzz.targets import TARGETS

if __name__ == "__main__":
    name, counts, inputs, corpus = sys.argv[1:]
    guard_process()
    run_guided(TARGETS[name], Path(counts), int(inputs), corpus)
