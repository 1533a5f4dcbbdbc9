"""Cache of packed datasets: safetensors files written piece by piece, with a manifest.

``safetensors.torch.save_file`` needs all tensors at once, but the eigenvectors of a large dataset
are written as they are computed. The format is simple: the length of a JSON header, the header
(type, shape and offset of each tensor), and the bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.checking import MASKS
from grass_gnn.data.packed.dataset import shapes_of
from grass_gnn.encoding import make_encoding
from grass_gnn.errors import GrassError
from grass_gnn.files import (
    describe,
    move_whole,
    open_lock,
    read_json,
    read_owner,
    stamp,
    try_lock,
    wait_for_lock,
)
from grass_gnn.tasks import make_task

_TYPE_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float32: "F32",
}


class TensorWriter:
    """Writes tensors of known type and shape to a safetensors file, some rows at a time.

    Args:
        path: The file, which is overwritten.
        shapes: Type and shape of each tensor.
    """

    def __init__(
        self, path: Path, shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
    ) -> None:
        header: dict[str, object] = {}
        self._rows = dict.fromkeys(shapes, 0)
        self._starts, self._row_bytes = {}, {}
        end = 0
        # Widest types first, so that every tensor starts at a multiple of its type's size.
        for name in sorted(shapes, key=lambda name: -shapes[name][0].itemsize):
            dtype, shape = shapes[name]
            self._starts[name] = end
            self._row_bytes[name] = dtype.itemsize * math.prod(shape[1:])
            end += dtype.itemsize * math.prod(shape)
            header[name] = {
                "dtype": _TYPE_NAMES[dtype],
                "shape": list(shape),
                "data_offsets": [self._starts[name], end],
            }
        self._dtypes = {name: dtype for name, (dtype, _) in shapes.items()}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._file = path.open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._data_start = self._file.tell()

    def append(self, name: str, rows: Tensor) -> None:
        """Write the next rows of a tensor."""
        rows = rows.detach().to(self._dtypes[name]).contiguous()
        place = self._starts[name] + self._rows[name] * self._row_bytes[name]
        self._file.seek(self._data_start + place)
        self._file.write(rows.numpy().tobytes())
        self._rows[name] += rows.size(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, memory-mapped."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise GrassError(f"The file {path} is damaged: {error}.") from None
    except ValueError as error:  # also raised by safetensors on Ctrl-C
        raise GrassError(f"The file {path} cannot be read: {error}.") from None


FORMAT_VERSION = 1  # entries of other versions are rebuilt
_MANIFEST = "manifest.json"
_CHUNK = 1 << 24  # bytes hashed at a time

logger = logging.getLogger(__name__)


class DamagedError(Exception):
    """An entry of the cache cannot be used; the message completes a sentence about it."""


class CacheEntry:
    """One entry of the cache, which may not exist yet.

    Args:
        root: Folder of the cache.
        name: Name of the entry.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.folder = root / name
        self._alone = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from building this entry; a killed process releases the lock.

        On file systems without locks, two processes may build the same entry; either can be kept.
        """
        with _one_sentence(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = os.fdopen(open_lock(self.root / f".{self.name}.lock"), "rb+", buffering=0)
        with lock:
            with _one_sentence(self.root):
                self._alone = self._wait(lock.fileno())
                stamp(lock.fileno())
            yield

    def _wait(self, lock: int) -> bool:
        """Wait until no other process builds the entry; False if locks are not supported."""
        taken = try_lock(lock)
        if taken is False:
            owner = describe(read_owner(lock))
            logger.warning("Waiting for %s, which is preparing the same data.", owner)
            wait_for_lock(lock)
        return taken is not None

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, after checking all files; None if there is no such entry.

        Raises:
            DamagedError: The entry is damaged or has another version.
        """
        if not self.folder.exists():
            return None
        try:
            manifest = read_json(self.folder / _MANIFEST)
            version = manifest["version"]
            files = [(name, size, sum_) for name, (size, sum_) in manifest["files"].items()]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DamagedError("has no readable manifest") from None
        if version != FORMAT_VERSION:
            raise DamagedError(f"has format {version!r} and not {FORMAT_VERSION}")
        for name, size, digest in files:
            path = self.folder / name
            try:
                own = path.parent == self.folder and path.is_file()  # no devices or pipes
                whole = own and path.stat().st_size == size and hash_files([path]) == digest
            except (OSError, ValueError):
                whole = False
            if not whole:
                raise DamagedError(f"is damaged ({name!r})")
        return manifest

    @contextlib.contextmanager
    def building(self) -> Iterator[Path]:
        """A folder to write files to, for :meth:`publish`. The entry must be locked."""
        with _one_sentence(self.folder):
            if self._alone:  # remove leftovers of killed processes
                for left in self.root.glob(f".{self.name}.*.building"):
                    shutil.rmtree(left, ignore_errors=True)
            temporary = self.root / f".{self.name}.{os.getpid()}.building"
            temporary.mkdir()
            try:
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def publish(self, temporary: Path, values: Mapping[str, Any]) -> dict[str, Any]:
        """Move finished files into place, with a manifest of these values and all checksums."""
        files = {}
        for path in sorted(temporary.iterdir()):
            files[path.name] = [path.stat().st_size, hash_files([path])]
        manifest = {**values, "version": FORMAT_VERSION, "files": files}
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)  # a damaged one
        move_whole(temporary, self.folder)
        return manifest


def hash_files(paths: list[Path]) -> str:
    """A hash of the contents of files, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _one_sentence(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise GrassError(f"Prepared data cannot be written to {place}: {reason}.") from error


_ROWS = 1 << 22  # edges checked at a time


def check_packed(tensors: Mapping[str, Tensor], config: GRASSConfig, place: object) -> None:
    """Raise unless tensors from an untrusted file are packed graphs that fit a configuration.

    Args:
        tensors: The tensors of the file.
        config: The configuration.
        place: The file, for the error message.
    """
    problem = _problem(tensors, config)
    if problem:
        raise GrassError(f"The file {place} is damaged: {problem}.")


def _problem(tensors: Mapping[str, Tensor], config: GRASSConfig) -> str | None:
    sizes = []
    for name, least in (("graph_ptr", 1), ("edge_ptr", 0)):  # every graph has a node
        pointer = tensors.get(name)
        if pointer is None or pointer.dtype != torch.int64 or pointer.dim() != 1:
            return f"{name} is not a list of positions"
        size = pointer.diff()
        if len(size) == 0 or int(pointer[0]) or int(pointer.min()) < 0 or int(size.min()) < least:
            return f"{name} does not increase from 0"
        sizes.append(size)
    nodes, edges = sizes
    if len(nodes) != len(edges):
        return "graph_ptr and edge_ptr have different lengths"
    masks = [name for name in MASKS if name in tensors]
    expected = shapes_of(nodes, edges, config, masks)
    found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    if found != expected:
        wrong = sorted(n for n in expected.keys() | found if found.get(n) != expected.get(n))
        return (
            f"{', '.join(repr(name) for name in wrong)} is unexpected or has a wrong shape or type"
        )
    return _wrong_values(tensors, config, nodes, edges)


def _wrong_values(
    tensors: Mapping[str, Tensor], config: GRASSConfig, nodes: Tensor, edges: Tensor
) -> str | None:
    largest = torch.repeat_interleave(nodes, edges)  # [E] nodes of each edge's graph
    index = tensors["edge_index"]  # [E, 2]
    for first in range(0, len(index), _ROWS):
        part, limit = index[first : first + _ROWS], largest[first : first + _ROWS, None]
        if bool(((part < 0) | (part >= limit)).any()):
            return "an edge points to a node that does not exist"
    for name, features in (("x", config.input.nodes), ("edge_attr", config.input.edges)):
        values = tensors.get(name)
        if values is not None and len(values) and not values.is_floating_point():
            high, low = values.max(dim=0).values, values.min(dim=0).values
            if bool((low < 0).any()) or bool((high >= torch.tensor(features.categories)).any()):
                return f"{name} contains a category that does not exist"
    for name, tensor in tensors.items():
        missing = name == "y" and config.task.missing
        if tensor.is_floating_point() and not missing and not bool(tensor.isfinite().all()):
            return f"{name} is not finite"
    encoding, task = make_encoding(config.encoding), make_task(config.task)
    return encoding.problem_with(tensors) or task.stored_problem(tensors["y"])
