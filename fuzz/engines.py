"""Two ways to choose inputs: at random (Hypothesis), or guided by code coverage (atheris)."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.harness import Tally, Target, attempt, scratch_folder

_BUFFER = 2048  # bytes that a guided input is drawn from


def at_random(target: Target, inputs: int, start: int = 0, variants: int = 0) -> Tally:
    """Try a number of inputs drawn by Hypothesis, each followed by some variants of it."""
    tally = Tally()
    drawn = math.ceil(inputs / (1 + variants))
    with scratch_folder() as folder:
        _test(target, tally, Path(folder), drawn, start, variants)()
    return tally


def _test(
    target: Target,
    tally: Tally,
    folder: Path,
    drawn: int = 1,
    start: int = 0,
    variants: int = 0,
) -> Any:
    source = random.Random(start)

    @seed(start)
    @settings(
        max_examples=drawn,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.cases)
    def test(case: Any) -> None:
        attempt(target, case, folder, tally)
        for _ in range(variants):
            attempt(target, target.vary(case, source), folder, tally)

    return test


def guided(name: str, inputs: int, log: Path) -> Tally:
    """Try a number of inputs in a separate process, where atheris looks for new code paths."""
    with tempfile.TemporaryDirectory() as place:
        corpus, counts = Path(place) / "corpus", Path(place) / "counts.json"
        corpus.mkdir()
        source = random.Random(0)
        for number in range(20):
            (corpus / str(number)).write_bytes(source.randbytes(_BUFFER))
        command = [sys.executable, "-m", "fuzz.guided", name, str(counts), str(inputs)]
        with log.open("ab") as file:
            subprocess.run(
                [*command, str(corpus)], stdout=file, stderr=file, check=False, env=os.environ
            )
        if not counts.is_file():
            return Tally(findings={"the process died": f"see {log}"})
        return Tally(**json.loads(counts.read_text("utf-8")))


def run_guided(target: Target, counts: Path, inputs: int, corpus: str) -> None:
    """Entry point of that process; atheris ends it after the requested number of runs."""
    import atheris

    tally = Tally()
    folder = scratch_folder()
    one_input = _test(target, tally, Path(folder.name)).hypothesis.fuzz_one_input

    def test(data: bytes) -> None:
        one_input(data)
        if tally.inputs % 50 == 0 or tally.inputs >= inputs:
            counts.write_text(json.dumps(asdict(tally)), encoding="utf-8")
        if tally.inputs >= inputs:
            with contextlib.suppress(OSError):
                folder.cleanup()
            os._exit(0)  # libFuzzer itself would call this a crash

    options = [f"-max_len={2 * _BUFFER}", "-len_control=0", "-timeout=60", "-rss_limit_mb=0"]
    atheris.Setup([sys.argv[0], corpus, *options, "-verbosity=0"], test)
    atheris.Fuzz()
