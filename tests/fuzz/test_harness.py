"""The fuzzer finds known errors; otherwise, finding nothing would prove little."""

import signal
import time
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest

from fuzz import harness
from fuzz.engines import at_random
from fuzz.harness import HangError, Passed, Target
from grass_gnn.errors import GrassError


def fails_on_seven(case: int, _: Path, past: Passed) -> None:
    if case < 0:
        raise GrassError("A number is negative.")
    past()
    if case == 7:
        raise KeyError(case)


def test_unexpected_errors_are_findings_and_the_first_check_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    tally = at_random(Target("numbers", st.integers(-9, 9), fails_on_seven), 400)
    assert tally.inputs == 19  # all there are
    assert tally.past == 10
    (place,) = tally.findings
    assert place.startswith("KeyError in test_harness.py")
    assert "KeyError: 7" in tally.findings[place]


def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise HangError("no end")

    def sleeps(_: Any, __: Path, ___: Passed) -> None:
        try:
            time.sleep(60)
        except Exception:  # what careless code does
            return

    monkeypatch.setattr(harness, "SECONDS", 0.05)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        tally = at_random(Target("sleep", st.just(0), sleeps), 3)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [place.split()[0] for place in tally.findings] == ["HangError"]


def test_variants_of_a_drawn_input_are_tried_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    seen = set()

    def keep(case: tuple[bytes, int, str, bool], _: Path, past: Passed) -> None:
        past()
        seen.add(case)

    cases = st.just((b"abc", 5, "x", True))
    tally = at_random(Target("one case", cases, keep), 40, variants=39)
    assert tally.inputs == tally.past == 40
    assert (b"abc", 5, "x", True) in seen and len(seen) > 20
    assert {(text, flag) for _, _, text, flag in seen} == {("x", True)}  # options stay
    assert all(number >= 0 for _, number, _, _ in seen)
