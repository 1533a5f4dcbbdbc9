import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from grass_gnn.api.graphs import read_graphs
from grass_gnn.data.benchmarks.raw import load_data
from grass_gnn.data.benchmarks.registry import load_benchmark
from grass_gnn.errors import GrassError


class Hostile:
    """Makes a folder when it is unpickled as Python's own module does it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def read_again(value: object, protocol: int) -> object:
    return load_data(io.BytesIO(pickle.dumps(value, protocol)))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_data_is_read_as_pickle_reads_it(protocol: int) -> None:
    arrays = [
        np.arange(6).reshape(2, 3).astype(kind)
        for kind in ("u1", "<i4", ">i4", "i8", "f2", "f4", "f8", "?")
    ] + [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 3), np.float32)]
    expected = pickle.loads(pickle.dumps(arrays, protocol))  # which may change the order of bytes
    for array, found in zip(expected, read_again(arrays, protocol), strict=True):  # type: ignore[call-overload]
        assert found.dtype == array.dtype and np.array_equal(found, array)
        assert torch.equal(torch.tensor(found.astype("f8")), torch.tensor(array.astype("f8")))
    plain = {"a": [1, 2.5, None, True], "b": (b"x", "ü"), "n": np.float32(2.5)}
    assert read_again(plain, protocol) == plain
    tensors = [torch.arange(6).view(2, 3).t(), torch.rand(3).half(), torch.zeros(0, 2)]
    for tensor, found in zip(tensors, read_again(tensors, protocol), strict=True):  # type: ignore[call-overload]
        assert found.dtype == tensor.dtype and torch.equal(found, tensor)


def test_nothing_is_called(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inner = io.BytesIO()
    torch.save(Hostile(mark), inner)
    hidden = Reduced(torch.storage._load_from_bytes, (inner.getvalue(),))  # type: ignore[attr-defined]
    objects = np.empty(1, object)
    objects[0] = Hostile(mark)
    for value in ([Hostile(mark)], hidden, objects, eval, Reduced(getattr, ("", "join"))):
        with pytest.raises(pickle.UnpicklingError):
            read_again(value, 4)
    # A type whose state lies about what an array holds would let bytes pass for objects.
    lying = pickle.dumps(np.zeros(2), 2).replace(b"f8", b"O8")
    with pytest.raises(pickle.UnpicklingError, match="not plain numbers"):
        load_data(io.BytesIO(lying))
    assert not mark.exists()
    pickle.loads(pickle.dumps(Hostile(mark)))
    assert mark.exists()  # the attack works where it is let in


class Reduced:
    """Anything that is built by a call."""

    def __init__(self, function: object, arguments: tuple[object, ...]) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.function, self.arguments


def test_a_hostile_benchmark_folder_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for name, ending in (("coco-sp", "pickle"), ("peptides-func", "pt")):
        raw = tmp_path / name / "raw"
        raw.mkdir(parents=True)
        for split in ("train", "val", "test"):
            path = raw / f"{split}.{ending}"
            if ending == "pt":
                torch.save([Hostile(mark)], path)
            else:
                path.write_bytes(pickle.dumps([Hostile(mark)]))
        with pytest.raises(GrassError, match=r"train\..* is damaged or incomplete \(") as caught:
            load_benchmark(name, tmp_path / name)
        assert "\n" not in str(caught.value)
    torch.save([Hostile(mark)], tmp_path / "graphs.pt")
    with pytest.raises(GrassError, match="no graphs that can be read safely"):
        read_graphs(tmp_path / "graphs.pt")
    assert not mark.exists()


def test_reading_saved_graphs_leaves_pygs_own_reader_alone(tmp_path: Path) -> None:
    graph = Data(x=torch.rand(2, 1), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    torch.save([graph], tmp_path / "graphs.pt")
    before = set(torch.serialization.get_safe_globals())
    assert torch.equal(read_graphs(tmp_path / "graphs.pt")[0].x, graph.x)
    assert set(torch.serialization.get_safe_globals()) == before
