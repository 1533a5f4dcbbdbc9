"""Compiles the C++ sources in ``csrc/`` at first use and caches the library.

The cache is ``$GRASS_CACHE``, or ``grass-gnn`` in the user's cache folder; if that is not writable,
a private folder among the temporary files. The name of a library contains a hash of the sources,
the compiler, its flags and the processor, so an outdated library is never loaded.

Environment:
    GRASS_OPS: ``reference`` never uses the library, ``native`` requires it.
    GRASS_CACHE: Folder of compiled libraries.
    GRASS_SANITIZE: ``1`` builds with AddressSanitizer and UBSan, for the tests.
    CXX: The compiler; by default g++, clang++ and c++ are tried.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
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

from grass_gnn.files import cache_folder, move_whole, open_lock, wait_for_lock

logger = logging.getLogger(__name__)

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
    """Whether the library can be used; the first call compiles it.

    Without a working compiler this is False, after one warning. ``GRASS_OPS=native`` turns the
    warning into an error; with ``GRASS_OPS=reference`` this is False without trying.
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
def library(mixed: bool = False) -> ctypes.CDLL:
    """The compiled library, from the cache or newly built.

    Args:
        mixed: The one whose products take bfloat16 operands, instead of float32.

    Raises:
        BuildError: There is no working compiler.
    """
    command = _compiler()
    flags = [*_flags(), "-DGRASS_MIXED"] if mixed else _flags()
    key = _key(command, flags)
    folder = _cache_folder()
    path = folder / f"grass-{key}.so"
    if _is_intact(path):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            path.unlink(missing_ok=True)
    logger.info("Compiling the C++ kernel for this machine (once, about half a minute) …")
    try:
        _compile(command, flags, path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the compiled library cannot be written or loaded: {error}") from error


def has_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16 numbers."""
    return "avx512_bf16" in _processor().split()


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


@functools.cache
def _processor() -> str:
    """Model and instruction sets: a home folder may be shared by different machines."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(wanted))


def _cache_folder() -> Path:
    temporary = Path(tempfile.gettempdir()) / f"grass-gnn-{os.getuid()}"
    candidates = [cache_folder(), temporary]
    for folder in candidates:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK) and _is_private(folder):
            return folder
    raise BuildError(f"neither {candidates[0]} nor {candidates[1]} is a private, writable folder")


def _is_private(folder: Path) -> bool:
    """Whether no other user can put a library into the folder."""
    found = folder.stat() if not folder.is_symlink() else folder.lstat()
    mine = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_intact(path: Path) -> bool:
    """Whether the library matches its checksum: loading a truncated one crashes the process."""
    try:
        expected = path.with_suffix(".sha256").read_text().strip()
        return hashlib.sha256(path.read_bytes()).hexdigest() == expected
    except OSError:
        return False


def _compile(command: list[str], flags: list[str], path: Path) -> None:
    """Compile into a temporary folder, then rename, so that others never see a partial file.

    Of several processes that start together, one compiles, and the others wait for its library.
    """
    lock = path.with_suffix(".lock")
    handle = open_lock(lock)
    try:
        wait_for_lock(handle)
        if not _is_intact(path):
            _compile_alone(command, flags, path)
        lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _compile_alone(command: list[str], flags: list[str], path: Path) -> None:
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
    # AddressSanitizer is preloaded into this process; it would slow the compiler down.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[0]
        raise BuildError(f"{command[0]} failed: {reason}")
