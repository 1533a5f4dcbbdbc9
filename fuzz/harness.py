"""Targets, and how an input is tried: the outcome must be a value or a ``GrassError``."""

from __future__ import annotations

import dataclasses
import logging
import random
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
    """A reader of untrusted input.

    Args:
        name: What is read.
        cases: Inputs for Hypothesis to draw from.
        run: Reads an input; it gets the case, a folder to write to, and ``Passed``.
        vary: Changes a drawn input a little; this takes microseconds, drawing milliseconds.
    """

    name: str
    cases: st.SearchStrategy[Any]
    run: Callable[[Any, Path, Passed], None]
    vary: Callable[[Any, random.Random], Any] = field(
        default_factory=lambda: lambda case, draw: nearby(case, draw)
    )


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


Edit = tuple[int, int, bytes]  # a place, how many bytes to remove there, and others to insert
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
    return st.builds(edited, data, edits(share))


def edits(share: float) -> st.SearchStrategy[list[Edit]]:
    """A few changes of a file, or none."""
    some = round(20 * share)
    chosen = st.sampled_from([False] * (20 - some) + [True] * some)
    return chosen.flatmap(lambda edit: _EDITS if edit else st.just([]))


def random_edit(draw: random.Random) -> Edit:
    """One change of a file."""
    return draw.randrange(1 << 14), draw.randrange(4), draw.choice(_BITS)


def edited(data: bytes, changes: list[Edit]) -> bytes:
    """A file after some changes."""
    for place, removed, put in changes:
        start = place % (len(data) + 1)
        data = data[:start] + put + data[start + removed :]
    return data


def nearby(case: Any, draw: random.Random) -> Any:
    """The same case with one of its parts changed: some bytes of a file, or a whole number.

    Texts, options and everything of another class stay as they are.
    """
    if isinstance(case, bytes):
        return edited(case, [random_edit(draw) for _ in range(draw.choice([1, 1, 1, 2]))])
    if isinstance(case, int) and not isinstance(case, bool):
        return draw.choice([abs(case - 1), case + 1, draw.randrange(10), draw.randrange(500)])
    if isinstance(case, tuple | list):
        places = [place for place, part in enumerate(case) if _can_vary(part)]
        if not places:
            return case
        place = draw.choice(places)
        parts = list(case)
        parts[place] = nearby(parts[place], draw)
        return type(case)(parts)
    if dataclasses.is_dataclass(case) and not isinstance(case, type):
        names = [f.name for f in dataclasses.fields(case) if _can_vary(getattr(case, f.name))]
        if not names:
            return case
        name = draw.choice(names)
        return dataclasses.replace(case, **{name: nearby(getattr(case, name), draw)})
    return case


def _can_vary(case: Any) -> bool:
    if isinstance(case, bytes | int) and not isinstance(case, bool):
        return True
    return isinstance(case, tuple | list) and any(map(_can_vary, case))


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
