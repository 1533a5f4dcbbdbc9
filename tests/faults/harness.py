"""Run a workload in a forked process, inject a fault, run it again, and compare."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from injection import ENDED, SIDES, Injection

from grass_gnn.errors import GrassError

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
RANDOM_KINDS = (*SIGNALS, "out of memory", "file size limit", "disk full")
EXACT_KINDS = tuple(f"ended {side} an operation" for side in SIDES)
REPEATS = 3
FINISHED, SENTENCE, INTERRUPTED, OTHER = 0, 3, 4, 6  # exit codes of a child


@dataclass(frozen=True)
class Outcome:
    """How a process ended."""

    code: int  # negative: by that signal
    told: str  # the sentence, or a traceback
    operations: list[tuple[str, str]]
    seconds: float
    left: int = 0  # processes that it started and that outlived it by some seconds


@dataclass
class Found:
    """What became of one or several faults that were followed by one recovery."""

    faults: int = 0
    problems: list[str] = field(default_factory=list)
    processes: int = 0  # left behind
    files: int = 0  # temporary ones, left behind after the recovery
    file: str = ""  # what an exact fault was aimed at
    operation: str = ""


@dataclass(frozen=True)
class Strike:
    """Faults to inject one after the other before the work is resumed.

    Args:
        kind: Kind of fault.
        number: Among the strikes of its kind; chooses the moment.
        faults: How many, for random kinds.
        at: The operation at which an exact fault happens, by number.
    """

    kind: str
    number: int
    faults: int = 1
    at: int = 0


class Trial:
    """One workload, its undisturbed result, and faults against it.

    Args:
        workload: What to run.
        seed: Random seed.
    """

    def __init__(self, workload: Any, seed: int) -> None:
        self.workload, self.seed = workload, seed
        self.base = Path(tempfile.mkdtemp(prefix=f"faults-{workload.name}-")).resolve()
        self.template, self.temporary = self.base / "template", self.base / "tmp"
        self.temporary.mkdir()
        if workload.name == "write":  # it remembers what it wrote, and starts no thread
            workload.set_up(self.template)
        else:
            ended = run_child(lambda: workload.set_up(self.template))
            assert ended.code == FINISHED, ended.told
        folder = self.fresh("undisturbed")
        undisturbed = self.run(folder, Injection(folder))
        assert undisturbed.code == FINISHED, undisturbed.told
        self.expected = workload.result(folder)
        self._empty_temporary()
        self.operations, self.seconds = undisturbed.operations, undisturbed.seconds

    def plan(self, faults: int) -> list[Strike]:
        """Half of the faults at random moments, the others at operations on files.

        Of the same operation on files of a kind, such as checkpoints, the first few are tried. If
        there are not enough of them, more faults strike at random moments.
        """
        draw = random.Random(f"{self.seed} {self.workload.name}")
        exact, seen = [], Counter[tuple[str, str]]()
        for at, (operation, file) in enumerate(self.operations):
            seen[operation, file] += 1
            if seen[operation, file] <= REPEATS:
                sides = SIDES if operation == "write" else ("before", "after")
                exact += [(at, side) for side in sides]
        aimed = min(len(exact), faults - len(RANDOM_KINDS) * max(1, faults // 12))
        strikes = [
            Strike(f"ended {side} an operation", at, at=at)
            for at, side in sorted(draw.sample(exact, max(aimed, 0)))
        ]
        each, more = divmod(faults - len(strikes), len(RANDOM_KINDS))
        for place, kind in enumerate(RANDOM_KINDS):
            left, number = each + (place < more), 0
            while left:
                size = draw.randint(1, min(3, left))
                strikes.append(Strike(kind, number, size))
                left, number = left - size, number + 1
        draw.shuffle(strikes)  # so that the first ones are a sample of all
        return strikes

    def fresh(self, name: str) -> Path:
        """A folder as it is before the workload."""
        folder = self.base / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        return folder

    def run(
        self,
        folder: Path,
        injection: Injection | None = None,
        limit: tuple[int, int] | None = None,
        kill: tuple[int, float] | None = None,
    ) -> Outcome:
        """Run the workload in a child, with a fault or without."""

        def work() -> None:
            tempfile.tempdir = os.environ["TMPDIR"] = str(self.temporary)
            self.workload.run(folder)

        return run_child(work, injection, limit, kill)

    def inject(self, strike: Strike) -> Found:
        """Inject faults, resume the work, and find out what was lost or left behind."""
        found = Found()
        folder = self.fresh("disturbed")
        if strike.kind in EXACT_KINDS:
            found.operation, found.file = self.operations[strike.at]
            side = strike.kind.split()[1]
            outcome = self.run(folder, Injection(folder, strike.at, side))
            self._count(strike.kind, outcome, folder, found)
        else:
            draw = random.Random(f"{self.seed} {self.workload.name} {strike.kind} {strike.number}")
            for _ in range(20 * strike.faults):
                outcome = self._random_fault(strike.kind, folder, draw)
                if outcome.code == FINISHED:  # it was faster
                    if found.faults:
                        break
                    self.seconds, folder = outcome.seconds, self.fresh("disturbed")
                    continue
                self._count(strike.kind, outcome, folder, found)
                if found.faults == strike.faults:
                    break
        if found.faults:
            self._recover(folder, found)
        where = f"{found.operation} of {found.file}: " if found.file else ""
        found.problems = [
            f"{strike.kind}, {self.workload.name}: {where}{p}" for p in found.problems
        ]
        return found

    def _random_fault(self, kind: str, folder: Path, draw: random.Random) -> Outcome:
        if kind in SIGNALS:
            return self.run(folder, kill=(SIGNALS[kind], draw.uniform(0, 1.1 * self.seconds)))
        if kind == "out of memory":
            return self.run(folder, limit=(resource.RLIMIT_AS, int(2 ** draw.uniform(12, 23))))
        if kind == "file size limit":
            size = int(2 ** draw.uniform(0, 15.3))  # up to the size of a checkpoint
            return self.run(folder, limit=(resource.RLIMIT_FSIZE, size))
        return self.run(folder, Injection(folder, draw.randrange(len(self.operations)), "full"))

    def _count(self, kind: str, outcome: Outcome, folder: Path, found: Found) -> None:
        found.faults += 1
        found.processes += outcome.left
        found.problems += self.judge(kind, outcome, folder)

    def judge(self, kind: str, outcome: Outcome, folder: Path) -> list[str]:
        """Problems right after a fault: a traceback, or a damaged file."""
        allowed = {
            "SIGKILL": [-signal.SIGKILL],
            "SIGTERM": [-signal.SIGTERM, SENTENCE],
            "SIGINT": [INTERRUPTED, SENTENCE],
            "file size limit": [SENTENCE],
            "disk full": [SENTENCE],
        }.get(kind, [ENDED])
        problems = []
        if kind != "out of memory" and outcome.code not in allowed:
            problems.append(f"ended with {outcome.code}: {outcome.told.strip()[-300:]}")
        if outcome.code == SENTENCE and (not outcome.told or "\n" in outcome.told):
            problems.append(f"not one sentence: {outcome.told!r}")
        if outcome.left:
            problems.append(f"{outcome.left} processes were left behind")
        try:
            self.workload.check(folder)
        except Exception as error:
            problems.append(f"right after: {type(error).__name__} {error}")
        return problems

    def _recover(self, folder: Path, found: Found) -> None:
        """Resume without faults; what is wrong then."""
        outcome = self.run(folder)
        found.processes += outcome.left
        left = [path.name for place in (folder, self.temporary) for path in _temporary_files(place)]
        found.files = len(left)
        if left:
            found.problems.append(f"left behind: {', '.join(left)}")
        self._empty_temporary()
        if outcome.code != FINISHED:
            told = outcome.told.strip()[-300:]
            found.problems.append(f"could not be resumed ({outcome.code}): {told}")
            return
        try:
            if self.workload.result(folder) != self.expected:
                found.problems.append("the result differs")
        except Exception as error:
            found.problems.append(f"afterwards: {type(error).__name__} {error}")

    def _empty_temporary(self) -> None:
        for path in self.temporary.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def close(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)


def _temporary_files(folder: Path) -> list[Path]:
    """Temporary files and folders of the package; all files in a folder called tmp."""
    if folder.name == "tmp":
        return list(folder.iterdir())
    return [*folder.rglob(".*.tmp"), *folder.rglob(".*.building")]


def run_child(
    work: Callable[[], None],
    injection: Injection | None = None,
    limit: tuple[int, int] | None = None,
    kill: tuple[int, float] | None = None,
) -> Outcome:
    """Run a function in a forked process, in which everything is already imported.

    Args:
        work: What to do.
        injection: Operations on files to count or to strike at.
        limit: A resource and what is left of it when the work begins.
        kill: A signal, and the seconds after which to send it.
    """
    reading, writing = os.pipe()
    began = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # not within Python's own fork hooks
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, injection, limit, writing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.close(writing)
    if kill is not None:
        time.sleep(kill[1])
        os.kill(child, kill[0])
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    told, _, operations = text.partition("\0")
    done = [tuple(line.split("\t")) for line in operations.splitlines()]
    code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    return Outcome(code, told, done, seconds, left_behind(child))  # type: ignore[arg-type]


def left_behind(session: int, patience: float = 60.0) -> int:
    """Processes of a session that are still running after some seconds; they are ended then.

    A worker that is importing RDKit ends when it has done so, which may take seconds on a busy
    machine.
    """
    until = time.monotonic() + patience
    while (found := _members(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in found:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    return len(found)


def _members(session: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state parent group session: a name may contain spaces
            state, _, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append(int(folder.name))
    return found


def _child(
    work: Callable[[], None],
    injection: Injection | None,
    limit: tuple[int, int] | None,
    answer: int,
) -> None:
    code, told = OTHER, ""
    try:
        os.setsid()  # all that it starts can be found by its session
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.alarm(300)  # a child that hangs is a failure, not a hanging test
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if injection is not None:
            injection.install()
        if limit is not None and limit[0] == resource.RLIMIT_AS:
            hoard = _leave_memory(limit[1])  # noqa: F841
        elif limit is not None:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
        work()
        code = FINISHED
    except GrassError as error:
        code, told = SENTENCE, str(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:
        told = traceback.format_exc()
    finally:
        done = "\n".join("\t".join(one) for one in injection.done) if injection else ""
        try:
            os.write(answer, f"{told}\0{done}".encode()[:60_000])
        finally:
            os._exit(code)


def _leave_memory(left: int) -> list[bytearray]:
    """Limit memory to what the process has, and fill all but a few free bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
    hoard, spare = [], []
    size = 1 << 22
    while size >= 256:
        try:
            block = bytearray(size)
        except MemoryError:
            size //= 2
        else:
            few = sum(map(len, spare)) + size <= left
            (spare if few else hoard).append(block)
    return hoard
