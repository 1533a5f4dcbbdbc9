"""Compiles the C++ of this folder at first use and keeps the library in a cache.

The cache is ``$GRASS_CACHE``, or ``grass-gnn`` in the user's cache folder; where that cannot be
written, a folder of the user's own among the temporary files. A library's name holds a hash of the
sources, the compiler, its flags and the processor, so an old one is never taken for a new one.

Environment:
    GRASS_OPS: ``reference`` never uses the library, ``native`` insists on it.
    GRASS_CACHE: Where compiled libraries go.
    GRASS_SANITIZE: ``1`` builds under AddressSanitizer and UBSan, for the tests.
    CXX: The compiler; else g++, clang++ and c++ are tried.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grass_gnn.files import move_whole

SOURCE_FOLDER = Path(__file__).parent / "csrc"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-pthread")
SANITIZE_FLAGS = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover",
)


class BuildError(RuntimeError):
    """The library cannot be compiled or loaded; the message says why."""


def available() -> bool:
    """Whether the library may be used here; compiles it when asked for the first time.

    Without a working compiler this is False, after one warning. ``GRASS_OPS=native`` turns the
    warning into an error, ``GRASS_OPS=reference`` gives False without trying.
    """
    choice = os.environ.get("GRASS_OPS", "")
    if choice not in ("", "reference", "native"):
        raise ValueError(f"GRASS_OPS is {choice!r}, but must be 'reference' or 'native'")
    if choice == "reference":
        return False
    reason = _failure()
    if reason and choice == "native":
        raise BuildError(f"GRASS_OPS=native, but {reason}")
    return reason is None


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled library, built if the cache does not hold it.

    Raises:
        BuildError: There is no working compiler.
    """
    command = _compiler()
    flags = _flags()
    key = _key(command, flags)
    folder = _cache_folder()
    path = folder / f"grass-{key}.so"
    if _is_intact(path):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            path.unlink(missing_ok=True)
    try:
        _compile(command, flags, path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the compiled library cannot be written or loaded: {error}") from error


@functools.cache
def _failure() -> str | None:
    try:
        library()
    except BuildError as error:
        warnings.warn(
            f"grass_gnn runs its layers in plain PyTorch, several times slower: {error}",
            stacklevel=4,
        )
        return str(error)
    return None


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX")
    for candidate in [chosen] if chosen else ["g++", "clang++", "c++"]:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return command
    raise BuildError(
        f"the compiler in CXX, {chosen!r}, was not found"
        if chosen
        else "no C++ compiler was found (install g++ or clang++, or set CXX)"
    )


def _flags() -> list[str]:
    if os.environ.get("GRASS_SANITIZE") == "1":
        return [*FLAGS[1:], *SANITIZE_FLAGS]
    return list(FLAGS)


def _key(command: list[str], flags: list[str]) -> str:
    digest = hashlib.sha256()
    for source in sorted([*SOURCE_FOLDER.glob("*.cpp"), *SOURCE_FOLDER.glob("*.h")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    version = subprocess.run([*command, "--version"], capture_output=True, check=False).stdout
    for part in (*command, *flags, version.decode(errors="replace"), sys.platform, _processor()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What the processor can do: a home folder may be shared by machines that differ."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(wanted))


def _cache_folder() -> Path:
    chosen = os.environ.get("GRASS_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    temporary = Path(tempfile.gettempdir()) / f"grass-gnn-{os.getuid()}"
    candidates = [Path(chosen) if chosen else Path(user_cache) / "grass-gnn", temporary]
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK) and _is_private(folder):
            return folder
    raise BuildError(f"neither {candidates[0]} nor {candidates[1]} is a private, writable folder")


def _is_private(folder: Path) -> bool:
    """Nobody else may put a library where this process would load it."""
    found = folder.stat() if not folder.is_symlink() else folder.lstat()
    mine = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_intact(path: Path) -> bool:
    """Whether the library is all there: loading a truncated one would kill the process."""
    try:
        expected = path.with_suffix(".sha256").read_text().strip()
        return hashlib.sha256(path.read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _compile(command: list[str], flags: list[str], path: Path) -> None:
    """Compile next to the final name, then rename: other processes see all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name

        def compile_one(source: Path) -> str:
            target = str(Path(scratch) / f"{source.stem}.o")
            _run([*command, *flags, "-c", str(source), "-o", target])
            return target

        sources = sorted(SOURCE_FOLDER.glob("*.cpp"))
        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(compile_one, sources))
        _run([*command, *flags, "-shared", *objects, "-o", str(built)])
        checksum = built.with_suffix(".sha256")
        checksum.write_text(hashlib.sha256(built.read_bytes()).hexdigest())
        move_whole(built, path)
        move_whole(checksum, path.with_suffix(".sha256"))


def _run(command: list[str]) -> None:
    # Under AddressSanitizer the process has its library preloaded, which would slow the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[0]
        raise BuildError(f"{command[0]} failed: {reason}")
