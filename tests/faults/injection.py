"""Inject faults into chosen file operations: the process ends, or the disk is full.

The package has no hooks for this. In a child process that is going to die, ``open``, ``os.fsync``
and ``os.replace`` are replaced by versions that count what happens below one folder.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDED = 99  # exit code of a process that was ended here
SIDES = ("before", "during", "after")


@dataclass
class Injection:
    """Counts writes, fsyncs and renames below a folder, and injects a fault into one of them.

    Args:
        folder: Where operations count.
        at: Number of the operation to strike at, from 0.
        side: End the process ``"before"``, ``"during"`` (half of the bytes are written) or
            ``"after"`` it; ``"full"``: from then on, nothing can be written.
    """

    folder: Path
    at: int | None = None
    side: str = ""
    done: list[tuple[str, str]] = field(default_factory=list)  # operation and kind of file

    def install(self) -> None:
        """Replace the functions, for the rest of the process."""
        fsync, replace, opened = os.fsync, os.replace, io.open
        injection = self

        class CountedFile(io.FileIO):
            def write(self, data: Any) -> int:
                whole = super().write
                half = lambda: whole(memoryview(data)[: len(data) // 2])  # noqa: E731
                return injection.operate("write", self.name, lambda: whole(data), half)

        def counting_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wxa") or not self._ours(file):
                return opened(file, mode, *args, **options)
            raw = CountedFile(os.fspath(file), mode.replace("b", "").replace("t", ""))
            binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            if "b" in mode:
                return binary
            names = ("buffering", "encoding", "errors", "newline")
            options |= dict(zip(names, args, strict=False))
            options.pop("buffering", None)
            return io.TextIOWrapper(binary, **options)

        def counting_fsync(handle: int) -> None:
            path = os.readlink(f"/proc/self/fd/{handle}")
            self.operate("fsync", path, lambda: fsync(handle))

        def counting_replace(source: Any, target: Any) -> None:
            self.operate("rename", target, lambda: replace(source, target))

        builtins.open = io.open = counting_open
        os.fsync, os.replace = counting_fsync, counting_replace

    def operate(
        self,
        operation: str,
        path: Any,
        perform: Callable[[], Any],
        half: Callable[[], Any] | None = None,
    ) -> Any:
        """Perform an operation, unless the fault is due."""
        if not self._ours(path):
            return perform()
        number = len(self.done)
        self.done.append((operation, kind_of(path)))
        if self.side == "full":
            if number >= (self.at or 0) and operation != "rename":
                if half is not None:
                    half()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif number == self.at:
            if self.side == "during" and half is not None:
                half()
            elif self.side == "after":
                perform()
            os._exit(ENDED)
        return perform()

    def _ours(self, path: Any) -> bool:
        return os.path.realpath(os.fspath(path)).startswith(os.fspath(self.folder))


def kind_of(path: Any) -> str:
    """The kind of a file, from its name."""
    path = Path(os.fspath(path))
    name = path.name
    if unfinished := re.fullmatch(r"\.(.+?)\.[^.]+-\d+-\w+\.tmp", name):
        name = unfinished[1]
    if name.endswith(".ckpt"):
        return "checkpoint"
    if path.parent.name.endswith(".building") and name.endswith(".safetensors"):
        return "packed data"
    if path.is_dir() or name.endswith(".building") or not path.suffix:
        return "folder"
    return name
