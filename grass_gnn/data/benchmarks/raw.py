"""Raw files of the benchmarks; pickles among them are read without running code.

A pickle may call any function of any module. Here, only the few functions that rebuild tensors and
arrays are allowed, and each is replaced by one that checks its arguments, so that reading a file
never runs code from it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import pickle
import pickletools
import shutil
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import lrgb, zinc
from torch_geometric.io import fs

from grass_gnn.data.benchmarks.downloads import (
    BrokenDownloadError,
    Source,
    fetch,
    file_sha256,
    take_from_archive,
)
from grass_gnn.data.packed.store import CacheEntry
from grass_gnn.data.tables.spec import SPLITS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import cache_folder, move_whole, write_json
from grass_gnn.progress import Progress, reporting

_PLAIN_KINDS = "biuf"  # of arrays: booleans, integers and floats


class _PlainType:
    """Replaces a NumPy dtype; only the byte order of its pickled state is used."""

    def __init__(self, name: str, *_: object) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in _PLAIN_KINDS:
            raise pickle.UnpicklingError(f"an array of {name} is not plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _PlainArray(np.ndarray):
    """An array whose pickled state may contain plain numbers only."""

    def __setstate__(self, state: Any) -> None:
        version, shape, kind, fortran, data = state
        if not isinstance(kind, _PlainType) or not isinstance(data, bytes | str):
            raise pickle.UnpicklingError("an array is not plain numbers")
        if isinstance(data, str):  # a pickle of Python 2
            data = data.encode("latin1")
        plain: Any = (version, tuple(shape), kind.dtype, bool(fortran), data)
        super().__setstate__(plain)


def _empty_array(*_: object) -> np.ndarray:
    return np.empty(0, np.uint8).view(_PlainArray)


def _number(kind: _PlainType, data: bytes) -> Any:
    return np.frombuffer(data, kind.dtype, 1)[0]


def _from_buffer(data: bytes, kind: _PlainType, shape: Any, order: str) -> np.ndarray:
    layout: Any = "F" if order == "F" else "C"
    return np.frombuffer(bytearray(data), kind.dtype).reshape(tuple(shape), order=layout)


def _stored_tensor(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _stored_tensor,
    ("numpy", "ndarray"): _PlainArray,
    ("numpy", "dtype"): _PlainType,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",  # how old pickles write empty bytes
}
for _core in ("numpy.core", "numpy._core"):  # before and since NumPy 2
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _empty_array
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _number
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it refers to {module}.{name}, which is not data and was not called"
            ) from None


def load_data(file: BinaryIO) -> Any:
    """Read a pickle of plain data.

    Raises:
        pickle.UnpicklingError: It refers to something else, which was not called.
    """
    _check_lengths(file)
    return _DataUnpickler(file).load()


def _check_lengths(file: BinaryIO) -> None:
    """Reject a pickle with lengths or memo indices that exceed its size.

    Python's unpickler allocates memory for a text or a frame before it reads it, and for its memo
    up to the largest index, so nine bytes could take gigabytes. A pickler counts from 0, so a
    valid index is always smaller than the file.
    """
    start = file.tell()
    with _buffer(file) as data:
        size, place = len(data), start
        while place < size:
            code, index = data[place], 0
            place += 1
            length = _ARGUMENTS[code]
            if length >= 0:
                if code == _LONG_PUT:
                    index = int.from_bytes(data[place : place + 4], "little")
                elif code == _FRAME:
                    index = int.from_bytes(data[place : place + 8], "little")
                place += length
            elif length == pickletools.UP_TO_NEWLINE:
                end = data.find(b"\n", place)
                if code == _TEXT_PUT:
                    text = bytes(data[place : min(end, place + 20)])
                    index = int(text) if text.isdigit() else size
                elif code in _TWO_LINES:
                    end = data.find(b"\n", end + 1)
                if end < 0:
                    break  # the unpickler says that the file is incomplete
                place = end + 1
            else:
                own = _LENGTHS[length]
                place += own + int.from_bytes(data[place : place + own], "little")
            if index >= size or place > size:
                raise pickle.UnpicklingError("a length or an index is larger than the file")
            if code == _STOP:
                break
    file.seek(start)


@contextlib.contextmanager
def _buffer(file: BinaryIO) -> Iterator[Any]:
    """The bytes of a file, without reading it into memory if it is one on disk."""
    try:
        handle = file.fileno()
        if os.fstat(handle).st_size == 0:
            yield b""
            return
        with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped
    except (OSError, io.UnsupportedOperation):
        place = file.tell()
        file.seek(0)
        yield file.read()
        file.seek(place)


# Bytes of each opcode's argument, or how its length is written (pickletools' own numbers).
_ARGUMENTS = [0] * 256
for _opcode in pickletools.opcodes:
    if _opcode.arg is not None:
        _ARGUMENTS[ord(_opcode.code)] = _opcode.arg.n
_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_TWO_LINES = b"ci"  # GLOBAL and INST: a module and a name
_LONG_PUT, _TEXT_PUT, _FRAME, _STOP = ord("r"), ord("p"), 0x95, ord(".")


def load_tensors_only(path: str | Path, map_location: Any = None) -> Any:
    """Read a file of ``torch.save`` with ``weights_only=True``, without PyG's fallback.

    Raises:
        pickle.UnpicklingError: The file refers to something else, which was not called.
    """
    try:
        with torch.serialization.safe_globals(_not_yet_safe()):
            return torch.load(path, map_location, weights_only=True)
    except pickle.UnpicklingError:  # torch's own message suggests running it anyway
        raise pickle.UnpicklingError("it contains more than data, or is damaged") from None


def _not_yet_safe() -> list[Any]:
    """Classes of a saved graph that PyG has not registered with torch as safe.

    Leaving ``safe_globals`` removes everything it was given, which must not include PyG's.
    """
    known = set(torch.serialization.get_safe_globals())
    graph = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    return [part for part in graph if part not in known]


@contextlib.contextmanager
def reading_data_only() -> Iterator[None]:
    """Let PyG's datasets read data from their raw files, without running code.

    Their modules call ``pickle.load``, and ``fs.torch_load`` falls back to unpickling anything.
    """
    data_only = SimpleNamespace(load=load_data)
    with (
        mock.patch.object(zinc, "pickle", data_only),
        mock.patch.object(lrgb, "pickle", data_only),
        mock.patch.object(fs, "torch_load", load_tensors_only),
    ):
        yield


_ADVICE = "give the folder of its raw files (--data)"
_SEARCH_DEPTH = 3  # folders below the one given: a set's own, its name in PyG's layout, raw


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset, where they come from, and PyG's class that reads them."""

    name: str
    dataset_class: type[InMemoryDataset]
    arguments: Mapping[str, Any]  # of the class, except root and split
    layout: str  # folder below PyG's root which holds raw/; "" for the root itself
    files: tuple[str, ...]
    sources: tuple[Source, ...]  # files, and archives with the others
    has_splits: bool = True  # whether the class takes a split

    def find(self, folder: Path) -> Path:
        """The folder with all raw files, at or below the one that the user named."""
        if not folder.is_dir():
            raise GrassError(f"The folder {folder} for {self.name} does not exist.")
        direct = [folder, folder / "raw", folder / self.layout / "raw"]
        for place in direct:
            if self._missing(place) is None:
                return place
        found = [place for place in _subfolders(folder) if self._fits(place)]
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(str(place.parent) for place in found)
            raise GrassError(
                f"{folder} contains {self.name} more than once; choose one of {places}."
            )
        # Name the file missing from the folder that has most of them.
        best = max(direct, key=lambda place: sum((place / file).is_file() for file in self.files))
        raise GrassError(
            f"{folder} does not contain {self.name}: {self._missing(best)} is missing."
        )

    def _missing(self, place: Path) -> Path | None:
        return next((place / file for file in self.files if not (place / file).is_file()), None)

    def _fits(self, place: Path) -> bool:
        """Whether a folder found by searching belongs to this dataset; several share file names."""
        named = place.parent.name.lower() in (self.layout.lower(), self.name)
        return place.name == "raw" and named and self._missing(place) is None

    @property
    def download_folder(self) -> Path:
        """Where downloaded raw files are kept."""
        return cache_folder() / "datasets" / self.name / "raw"

    @property
    def downloaded(self) -> bool:
        """Whether all raw files have been downloaded."""
        return self._missing(self.download_folder) is None

    def local(self, hint: str = "") -> Path:
        """The folder with the downloaded raw files.

        Raises:
            GrassError: They are missing; nothing is downloaded unless requested.
        """
        if not self.downloaded:
            raise GrassError(
                f"{self.name} is not in {self.download_folder.parent}; "
                f"run `grass-gnn datasets download {self.name}`, or {_ADVICE}{hint}."
            )
        return self.download_folder

    def download(self, progress: Progress | None = None, hint: str = "") -> Path:
        """The folder with the raw files, downloaded if necessary."""
        target = self.download_folder
        root = target.parent.parent
        parts = root / f".{self.name}.parts"  # complete or partial downloads
        with CacheEntry(root, self.name).locked():
            if self.downloaded:
                return target
            try:
                with (
                    reporting(progress) as report,
                    tempfile.TemporaryDirectory(dir=root, prefix=".download-") as made,
                ):
                    folder = Path(made) / "raw"
                    folder.mkdir()
                    self._collect(parts, folder, report)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.rmtree(target, ignore_errors=True)  # an incomplete one
                    move_whole(folder, target)
            except (OSError, BrokenDownloadError) as error:
                raise GrassError(
                    f"{self.name} cannot be downloaded ({first_line(error)}); {_ADVICE}{hint}."
                ) from error
            shutil.rmtree(parts, ignore_errors=True)
        return target

    def _collect(self, parts: Path, folder: Path, progress: Progress) -> None:
        """Download all sources, extract the raw files, and record their checksums."""
        single = {source.name for source in self.sources}
        packed = [file for file in self.files if file not in single]
        sums = {}
        for source in self.sources:
            path = fetch(source, parts, progress)
            sums[source.url] = file_sha256(path)
            if path.suffix == ".zip":
                take_from_archive(path, packed, folder)
            else:
                shutil.copyfile(path, folder / path.name)
        write_json(folder / "sources.json", sums)

    def read(self, raw: Path) -> dict[str, list[Data]]:
        """Read all graphs with PyG's class, by split; without splits, all are ``"train"``."""
        splits = {split: {"split": split} for split in SPLITS} if self.has_splits else {"train": {}}
        with tempfile.TemporaryDirectory(prefix="grass-gnn-") as root:
            links = Path(root) / self.layout / "raw"
            links.mkdir(parents=True)
            for file in self.files:
                _link(raw / file, links / file)
            try:
                with _quiet_unless_terminal(), reading_data_only():
                    return {
                        split: list(self.dataset_class(root, **self.arguments, **argument))
                        for split, argument in splits.items()
                    }
            except Exception as error:  # whatever a damaged file raises
                raise GrassError(self._explain(raw, error)) from error

    def _explain(self, raw: Path, error: Exception) -> str:
        """The cause of an error; a damaged file is found by reading each file separately."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return (
                f"The disk of {tempfile.gettempdir()} is full, where PyG works on {self.name}; "
                "make room or name another folder in TMPDIR."
            )
        for file in self.files:
            try:
                _read_alone(raw / file)
            except Exception as problem:
                return f"{raw / file} is damaged or incomplete ({first_line(problem)})."
        return f"{raw} does not contain {self.name} as PyG expects it ({first_line(error)})."


def _subfolders(folder: Path, depth: int = _SEARCH_DEPTH) -> Iterator[Path]:
    with contextlib.suppress(PermissionError):
        for place in sorted(folder.iterdir()):
            if place.is_dir():
                yield place
                if depth > 1:
                    yield from _subfolders(place, depth - 1)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _read_alone(path: Path) -> None:
    if path.suffix == ".pickle":
        with path.open("rb") as file:
            load_data(file)
    elif path.suffix == ".pt":
        load_tensors_only(path)
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            for name in arrays.files:
                arrays[name]
    else:
        [int(number) for number in path.read_text().strip().split(",")]


@contextlib.contextmanager
def _quiet_unless_terminal() -> Iterator[None]:
    """Hide PyG's own progress output unless this is a terminal."""
    with contextlib.ExitStack() as stack:
        if not sys.stderr.isatty():
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield
