"""Targets, and how an input is tried: the outcome must be a value or a ``GrassError``."""

from __future__ import annotations

import logging
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis.strategies as st

from grass_gnn.errors import GrassError

SECONDS = 60  # of an input that is called a hang; a machine may be busy
SLOW = 10  # seconds of CPU time; an input that takes more is a finding
MEMORY = 3 << 30  # bytes that all inputs may take beyond what was taken before

Passed = Callable[[], None]  # called when an input has passed the first check of its parser


@dataclass(frozen=True)
class Target:
    """A reader of untrusted input."""

    name: str
    cases: st.SearchStrategy[Any]
    run: Callable[[Any, Path, Passed], None]  # a case, a folder to write to, and Passed


@dataclass
class Tally:
    """Outcomes of the inputs of a target."""

    inputs: int = 0
    past: int = 0
    seconds: float = 0.0  # of this process, not of the clock
    slowest: float = 0.0  # seconds of CPU time of one input
    findings: dict[str, str] = field(default_factory=dict)  # place of the error → first example

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        self.inputs += other.inputs
        self.past += other.past
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.findings = other.findings | self.findings


class HangError(BaseException):
    """An input takes too long; not an ``Exception``, so that nothing swallows it."""


def attempt(target: Target, case: Any, folder: Path, tally: Tally) -> None:
    """Try one input and record the outcome."""
    passed = False

    def past() -> None:
        nonlocal passed
        passed = True

    started = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        target.run(case, folder, past)
    except GrassError as error:
        if "\n" in str(error).strip():
            tally.findings.setdefault("an error of several lines", f"{error}\n{case!r}")
    except (Exception, HangError) as error:
        tally.findings.setdefault(_place(error), f"{traceback.format_exc()}\n{case!r}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    tally.inputs += 1
    tally.past += passed
    seconds = time.process_time() - started
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, seconds)
    if seconds > SLOW:
        tally.findings.setdefault("an input that takes too long", f"{seconds:.0f} s\n{case!r}")


def _place(error: BaseException) -> str:
    """Where an error came from: the last line of this project in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "grass_gnn" in frame.filename] or frames
    return f"{type(error).__name__} in {Path(own[-1].filename).name}, line {own[-1].lineno}"


def guard_process() -> None:
    """Turn hangs and huge allocations of this process into errors, and silence warnings."""
    logging.getLogger("grass_gnn").setLevel(logging.ERROR)

    def interrupt(_: int, __: FrameType | None) -> None:
        raise HangError(f"not finished after {SECONDS} seconds")

    signal.signal(signal.SIGALRM, interrupt)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for inputs, in memory if the system allows it."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


_BITS = [b"", b"\n", b"\r", b"\0", b"\xff", b'"', b"'", b",", b";", b"\t", b"=", b"[", b"{", b"}"]
_BITS += [
    b"-",
    b"9",
    b"1e999",
    b"NaN",
    b"\xf0\x9f\x8c\xbf",
    b"\xef\xbb\xbf",
    b" ",
    b"\\",
    b"A" * 70,
]
_EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 14), st.integers(0, 3), st.sampled_from(_BITS)), max_size=3
)


def damaged(data: st.SearchStrategy[bytes], share: float = 0.35) -> st.SearchStrategy[bytes]:
    """Files, some of them with a few bytes removed or inserted."""
    some = round(20 * share)
    chosen = st.sampled_from([False] * (20 - some) + [True] * some)
    return st.builds(_edit, data, chosen.flatmap(lambda edit: _EDITS if edit else st.just([])))


def _edit(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, removed, put in edits:
        start = place % (len(data) + 1)
        data = data[:start] + put + data[start + removed :]
    return data


def plain_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """JSON and TOML values, mostly of a wrong type."""
    numbers = [0, 1, -1, 2, 10**9, 10**30, 0.5, -0.0, 1e308, 1e-308, True, False]
    texts = ["", "x", "../..", "\ud800", "x" * 5000]
    leaves: st.SearchStrategy[Any] = st.sampled_from([*numbers, *texts])
    if depth == 0:
        return leaves
    inner = plain_values(depth - 1)
    names = st.sampled_from(["a", "kind", "sizes", "0", ""])
    return st.one_of(
        leaves, leaves, st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=2)
    )
