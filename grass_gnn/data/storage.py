"""Safetensors files that are written piece by piece and read as memory maps.

``safetensors.torch.save_file`` wants all tensors at once; the eigenvectors of a large dataset are
better written as they are found. The format is simple: the length of a JSON header, the header
(type, shape and place of each tensor), and the bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from grass_gnn.errors import GrassError

_TYPE_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float32: "F32",
}


class TensorWriter:
    """Writes tensors of known type and shape into a safetensors file, in rows as they come.

    Args:
        path: The file, which is made anew.
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
        rows = rows.to(self._dtypes[name]).contiguous()
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
    """The tensors of a file, which are read from disk only where they are used."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise GrassError(f"The file {path} is damaged: {error}.") from None
    except ValueError as error:  # also of Ctrl-C, which safetensors' own code may meet
        raise GrassError(f"The file {path} cannot be read: {error}.") from None
