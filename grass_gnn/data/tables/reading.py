"""Parse SMILES in worker processes, so that one that crashes or stalls RDKit affects only its row.

RDKit is C++ and may crash, or compute for minutes, on unusual molecules. Each molecule is therefore
read by a worker process with a limit on CPU time and memory. A worker that ends is replaced, and
the molecule it was reading gets an error message instead of a graph.

A worker is a fresh interpreter that imports only RDKit and NumPy. It ends when its standard input
is closed, which the operating system does when the parent ends for whatever reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Generic, Protocol, Self, TypeVar

from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.errors import GrassError

CPU_SECONDS = 1.5  # for one molecule; ordinary ones take milliseconds
_WALL_SECONDS = 300  # for a chunk, where the limit on CPU time does not exist (Windows)
_EXTRA_MEMORY = 512 << 20  # bytes that a molecule may take in a worker (Linux)
_CHUNK = 32  # molecules that are sent to a worker together
_FEW = 64  # fewer molecules than this are read by one worker
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from grass_gnn.data.tables.reading import work; work()"
)


T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Reads texts that may crash it; it is sent to the workers."""

    @property
    def longest(self) -> int:
        """Longer texts are not sent to a worker, because they are rejected for their length."""

    def try_read(self, text: str, /) -> T_co | str:
        """What the text says, or an error message."""


class LostMolecule(str):
    """Why a molecule could not be read: it ended the process that was reading it."""


class ReadingPool(Generic[T_co]):
    """Worker processes that read molecules.

    Workers are started with the first molecules, and replaced when they end.

    Args:
        reader: How molecules are read.
        workers: Number of processes, by default the number of CPU cores; at least one is started,
            because molecules are never read in this process.
        after_loss: If given, the molecules after one that ended its worker are not read and get
            this error message, as far as they were sent together.
    """

    def __init__(
        self, reader: Reader[T_co], workers: int | None = None, after_loss: str = ""
    ) -> None:
        self.reader, self._after_loss = reader, after_loss
        self.workers = (os.cpu_count() or 1) if workers is None else max(workers, 1)
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._closed = False
        # One thread for each worker: it sends a chunk and waits for the answer.
        self._threads = ThreadPoolExecutor(self.workers, "reading")

    def read(self, smiles: Sequence[str]) -> Iterator[T_co | str]:
        """Molecules, or the reasons why they cannot be read, in order.

        Reading starts at once and continues while the caller is busy with other things.
        """
        size = _CHUNK if len(smiles) >= _FEW else _FEW
        chunks = [smiles[start : start + size] for start in range(0, len(smiles), size)]
        waiting = [self._threads.submit(self._read_chunk, chunk) for chunk in chunks]
        return (molecule for future in waiting for molecule in future.result())

    def close(self) -> None:
        """End the workers, even in the middle of a molecule."""
        self._closed = True
        for worker in list(self._all):
            worker.process.kill()
            if worker in self._idle:  # others are cleaned up by the thread that waits for them
                worker.kill()
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _read_chunk(self, smiles: Sequence[str]) -> list[T_co | str]:
        # Texts that are too long are not sent.
        found: list[T_co | str] = [
            self.reader.try_read(text) if len(text) > self.reader.longest else "" for text in smiles
        ]
        left = [place for place, text in enumerate(smiles) if len(text) <= self.reader.longest]
        lost = 0  # workers in a row that ended before they had looked at a molecule
        while left:
            if self._closed:
                raise GrassError("Reading molecules was interrupted.")
            worker = self._idle.pop() if self._idle else self._start()
            read, answers = worker.ask(self.reader, [smiles[place] for place in left])
            if answers is not None:
                self._idle.append(worker)
                for place, answer in zip(left, answers, strict=True):
                    found[place] = answer
                return found
            self._all.remove(worker)
            reason = worker.kill()
            lost = 0 if read else lost + 1
            if lost == 3:
                raise GrassError(
                    f"The process that reads molecules could not be started ({reason})."
                )
            if read:  # the last molecule that was started is the cause
                found[left.pop(read - 1)] = LostMolecule(reason)
                if self._after_loss:
                    for place in left[read - 1 :]:
                        found[place] = self._after_loss
                    left = left[: read - 1]
        return found

    def _start(self) -> _Worker:
        worker = _Worker()
        self._all.append(worker)
        return worker


def read_scaffolds(smiles: Sequence[str], workers: int | None = None) -> list[str]:
    """Bemis–Murcko scaffolds as SMILES.

    A molecule without rings is a scaffold of its own, in the form of its canonical SMILES; so is
    one whose scaffold cannot be computed, as it is written.
    """
    with ReadingPool(MoleculeReader(scaffolds=True, identity=True), workers) as pool:
        found = pool.read(smiles)
        return [
            text if isinstance(molecule, str) else molecule.scaffold or molecule.canonical
            for text, molecule in zip(smiles, found, strict=True)
        ]


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            # Isolated (-I): nothing is imported from the current folder before sys.path is set.
            [sys.executable, "-I", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with contextlib.suppress(OSError):  # a worker that has ended is noticed at the next request
            self._pipe.write(json.dumps(sys.path).encode() + b"\n")

    @property
    def _pipe(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def ask(self, reader: Reader[Any], smiles: list[str]) -> tuple[int, list[Any] | None]:
        """Number of molecules started, and the answers of the reader; None if the worker ended.

        The worker writes one byte before each molecule, and the answers at the end.
        """
        assert self.process.stdout is not None
        limit = threading.Timer(_WALL_SECONDS, self.process.kill)
        limit.daemon = True
        limit.start()
        begun = 0
        try:
            _send(self._pipe, (reader, smiles))
            begun = len(self.process.stdout.read(len(smiles)))
            return begun, _receive(self.process.stdout)
        except (OSError, ValueError, EOFError):  # ValueError: the pipe was closed meanwhile
            return begun, None
        finally:
            limit.cancel()

    def kill(self) -> str:
        """End the process; return why it had already ended, as a clause."""
        ended = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            ended = self.process.wait(0.2)  # a process that crashes closes its pipes first
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                assert pipe is not None
                pipe.close()
        if ended == -getattr(signal, "SIGPROF", 0) or ended is None:
            return f"RDKit did not parse the SMILES within {CPU_SECONDS:g} seconds"
        if ended is not None and ended < 0:
            return f"RDKit crashed on the SMILES ({signal.Signals(-ended).name})"
        return f"the process that reads molecules ended with exit code {ended}"


def _send(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    length = pipe.read(8)
    data = pipe.read(int.from_bytes(length, "little"))
    if len(length) < 8 or not data:
        raise EOFError
    return pickle.loads(data)  # written by our own process


def work() -> None:
    """Main function of a worker: answer chunks of SMILES until the parent closes the pipe."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the output of libraries out of the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, args=[os.getppid()], daemon=True).start()
    known: Reader[Any] | None = None
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            reader, chunk = _receive(questions)
            if reader != known:
                reader.try_read("CCO")  # initialising RDKit does not count as time of a molecule
                if known is None:
                    _limit_memory()
                known = reader
            found = []
            for smiles in chunk:
                os.write(answers.fileno(), b".")
                _limit_time(CPU_SECONDS)
                found.append(reader.try_read(smiles))
                _limit_time(0)
            _send(answers, found)


def _end_with_parent(parent: int) -> None:
    """End when the parent has ended, even if another process still holds the pipe open."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _limit_time(seconds: float) -> None:
    """Let the operating system end this process after so much CPU time; 0 for no limit."""
    if hasattr(signal, "setitimer"):  # SIGPROF ends a process that does not handle it
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    """Let allocations fail beyond what this process takes now and a reserve."""
    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + _EXTRA_MEMORY,) * 2)
