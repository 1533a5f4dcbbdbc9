"""Untrusted packed data, whose numbers are memory offsets."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save

from fuzz.models import GRAPHS, write_packed
from grass_gnn.data.packed.prepare import open_prepared
from grass_gnn.data.packed.store import hash_files
from grass_gnn.errors import GrassError


def hostile_packed(folder: Path, change: dict[str, Any]) -> Path:
    """Packed data whose training set was changed, with correct checksums."""
    made = write_packed(folder).folder
    path = made / "train.safetensors"
    tensors = load_file(path)
    for name, (place, value) in change.items():
        tensors[name][place] = value
    path.write_bytes(save(tensors))
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["files"][path.name] = [path.stat().st_size, hash_files([path])]
    (made / "manifest.json").write_text(json.dumps(manifest))
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_index": (0, 255)}, "an edge points to a node that does not exist"),
        ({"x": (0, 200)}, "x contains a category that does not exist"),
        ({"graph_ptr": (1, -5)}, "graph_ptr does not increase from 0"),
        ({"graph_ptr": (3, 10**12)}, "is unexpected or has a wrong"),
        ({"edge_ptr": (0, 3)}, "edge_ptr does not increase from 0"),
        ({"transition": (0, float("nan"))}, "transition is not finite"),
        ({"transition": (0, -1.0)}, "a probability is negative"),
    ],
)
def test_packed_numbers_are_checked_before_compiled_code_believes_them(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert open_prepared(hostile_packed(tmp_path / "whole", {}), GRAPHS).train.num_edges == 12
    with pytest.raises(GrassError, match=message):
        open_prepared(hostile_packed(tmp_path, change), GRAPHS)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"/dev/zero": [0, ""]}},  # which has no end
        {"files": {"../manifest.json": [0, ""]}},
        {"files": ["train.safetensors"]},
        {"splits": {"train": "../../x"}},
        {"splits": {"train": "manifest.json"}},
        {"splits": []},
        {"fingerprint": None},
        {"seconds": "x"},
        {"version": {}},
    ],
)
def test_a_manifest_names_its_own_files_only(change: dict[str, Any], tmp_path: Path) -> None:
    made = write_packed(tmp_path).folder
    manifest = json.loads((made / "manifest.json").read_text()) | change
    (made / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(GrassError, match=r"The prepared data in .* (is damaged|has )"):
        open_prepared(made, GRAPHS)
