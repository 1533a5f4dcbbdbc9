"""Starts a workload in a forked process, lets a fault happen, starts it again, and compares."""

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
class Record:
    """Faults that struck, and those after which nothing was lost."""

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and path
    survived: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_file: Counter[tuple[str, str]] = field(default_factory=Counter)  # by file and operation
    by_file_survived: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Trial:
    """One workload, its undisturbed result, and faults against it.

    Args:
        workload: What to run.
        record: Where faults are counted.
        seed: Of all that is random.
    """

    def __init__(self, workload: Any, record: Record, seed: int) -> None:
        self.workload, self.record = workload, record
        self.random = random.Random(f"{seed} {workload.name}")
        self.base = Path(tempfile.mkdtemp(prefix=f"faults-{workload.name}-")).resolve()
        self.template = self.base / "template"
        if workload.name == "write":  # it remembers what it wrote, and starts no thread
            workload.set_up(self.template)
        else:
            ended = run_child(lambda: workload.set_up(self.template))
            assert ended.code == FINISHED, ended.told
        folder = self.fresh("undisturbed")
        self.undisturbed = self.run(folder, Injection(folder))
        assert self.undisturbed.code == FINISHED, self.undisturbed.told
        self.expected = workload.result(folder)
        self.operations = self.undisturbed.operations

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
        return run_child(lambda: self.workload.run(folder), injection, limit, kill)

    def strike(self, kind: str, folder: Path) -> Outcome:
        """Run with a fault of a random kind at a random moment."""
        draw = self.random
        if kind in SIGNALS:
            moment = draw.uniform(0, 1.1 * self.undisturbed.seconds)
            return self.run(folder, kill=(SIGNALS[kind], moment))
        if kind == "out of memory":
            return self.run(folder, limit=(resource.RLIMIT_AS, int(2 ** draw.uniform(12, 23))))
        if kind == "file size limit":
            size = int(2 ** draw.uniform(0, 15.3))  # up to the size of a checkpoint
            return self.run(folder, limit=(resource.RLIMIT_FSIZE, size))
        at = draw.randrange(len(self.operations))
        return self.run(folder, Injection(folder, at, "full"))

    def random_faults(self, kind: str, count: int) -> None:
        """So many faults that struck, one to three of them before the work is gone on with."""
        struck, tries = 0, 0
        while struck < count and tries < 20 * count + 20:
            folder = self.fresh("disturbed")
            problems, chain = [], 0
            for _ in range(self.random.randint(1, 3)):
                tries += 1
                if struck + chain == count:
                    break
                outcome = self.strike(kind, folder)
                if outcome.code == FINISHED:  # it was faster
                    continue
                chain += 1
                problems += self.judge(kind, outcome, folder)
            problems += self.recover(folder) if chain else []
            struck += chain
            self.count(kind, chain, problems)

    def exact_faults(self, share: Callable[[int], bool]) -> None:
        """End the process before, during and after operations: those whose number is chosen.

        Of the same operation on files of a kind, such as checkpoints, the first few are tried.
        """
        number, seen = 0, Counter[tuple[str, str]]()
        for at, (operation, file) in enumerate(self.operations):
            seen[operation, file] += 1
            if seen[operation, file] > REPEATS:
                continue
            for side in SIDES:
                if side == "during" and operation != "write":
                    continue
                number += 1
                if not share(number):
                    continue
                folder = self.fresh("disturbed")
                outcome = self.run(folder, Injection(folder, at, side))
                kind = f"ended {side} an operation"
                problems = self.judge(kind, outcome, folder) + self.recover(folder)
                problems = [f"{operation} of {file}: {problem}" for problem in problems]
                self.count(kind, 1, problems)
                self.record.by_file[file, operation] += 1
                self.record.by_file_survived[file, operation] += not problems

    def judge(self, kind: str, outcome: Outcome, folder: Path) -> list[str]:
        """What is wrong right after a fault: a traceback, or a file that is damaged."""
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

    def recover(self, folder: Path) -> list[str]:
        """Go on without faults; what is wrong then."""
        outcome = self.run(folder)
        if outcome.code != FINISHED:
            return [f"could not go on ({outcome.code}): {outcome.told.strip()[-300:]}"]
        try:
            if self.workload.result(folder) != self.expected:
                return ["the result differs"]
            left = [path.name for path in folder.rglob(".*.tmp")]
            return [f"left behind: {', '.join(left)}"] if left else []
        except Exception as error:
            return [f"afterwards: {type(error).__name__} {error}"]

    def count(self, kind: str, faults: int, problems: list[str]) -> None:
        key = kind, self.workload.name
        self.record.faults[key] += faults
        self.record.survived[key] += 0 if problems else faults
        self.record.problems += [f"{kind}, {self.workload.name}: {one}" for one in problems]

    def close(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)


def run_child(
    work: Callable[[], None],
    injection: Injection | None = None,
    limit: tuple[int, int] | None = None,
    kill: tuple[int, float] | None = None,
) -> Outcome:
    """Do something in a forked process, which has imported everything already.

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


def left_behind(session: int, patience: float = 5.0) -> int:
    """Processes of a session that are still running after some seconds; they are ended then."""
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
    """Forbid more memory than the process has, and fill its free parts but for a few bytes."""
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
