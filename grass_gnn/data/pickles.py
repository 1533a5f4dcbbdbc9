"""Pickles read as data: tensors, arrays, numbers and containers, and never a call to anything else.

The raw files of some benchmarks are pickles, which may name any function of any module and have it
called. Here a file may name only the few that rebuild tensors and arrays; each of them is replaced
by one that checks what it is given. Whoever made the file, reading it runs no code of theirs.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import lrgb, zinc
from torch_geometric.io import fs

_PLAIN_KINDS = "biuf"  # of arrays: truth values, whole numbers and numbers


class _PlainType:
    """Stands for a NumPy type; of the state that is pickled with it only the byte order counts."""

    def __init__(self, name: str, *_: object) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in _PLAIN_KINDS:
            raise pickle.UnpicklingError(f"an array of {name} is not plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _PlainArray(np.ndarray):
    """An array whose pickled state may hold plain numbers only."""

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
    ("__builtin__", "bytes"): lambda: b"",  # how old pickles write no bytes at all
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
                f"it asks for {module}.{name}, which is no data and is not run"
            ) from None


def load_data(file: BinaryIO) -> Any:
    """Read a pickle that holds data.

    Raises:
        pickle.UnpicklingError: It names something else; nothing of it was called.
    """
    return _DataUnpickler(file).load()


def load_tensors_only(path: str | Path, map_location: Any = None) -> Any:
    """What ``torch.save`` wrote, by torch's own reader of data, without PyG's way around it.

    Raises:
        pickle.UnpicklingError: The file names something else; nothing of it was called.
    """
    try:
        with torch.serialization.safe_globals(_not_yet_safe()):
            return torch.load(path, map_location, weights_only=True)
    except pickle.UnpicklingError:  # torch's own message tells how to run it all the same
        raise pickle.UnpicklingError("it holds more than data, or is damaged") from None


def _not_yet_safe() -> list[Any]:
    """What a saved graph consists of, but for what PyG itself has told torch to be data.

    Leaving ``safe_globals`` takes away all that it was given, and must not take away PyG's.
    """
    known = set(torch.serialization.get_safe_globals())
    graph = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    return [part for part in graph if part not in known]


@contextlib.contextmanager
def reading_data_only() -> Iterator[None]:
    """While PyG's datasets read their raw files, let them read data and run nothing.

    Their modules call ``pickle.load``, and ``fs.torch_load`` falls back to unpickling anything.
    """
    data_only = SimpleNamespace(load=load_data)
    with (
        mock.patch.object(zinc, "pickle", data_only),
        mock.patch.object(lrgb, "pickle", data_only),
        mock.patch.object(fs, "torch_load", load_tensors_only),
    ):
        yield
