"""Run folders, checkpoints and packed data, changed by someone who knows their format.

Checksums detect accidents, not tampering, so they are recomputed after most changes.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import torch

from fuzz.harness import Passed, Target, damaged, plain_values
from fuzz.models import GRAPHS, random_graph, write_packed, write_run
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.data.packed.prepare import open_prepared
from grass_gnn.data.packed.store import hash_files
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.evaluation.trained import load_model
from grass_gnn.training.record import read_checkpoint
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble

_OTHER_NUMBERS = [0, 1, 2, 3, 5, 8, -1, 2**31, 2**62, 0.5, 1e308]
_change = st.one_of(
    st.sampled_from(_OTHER_NUMBERS), st.sampled_from(_OTHER_NUMBERS), plain_values(), st.none()
)
# Which leaf of a JSON tree (by number), and its new value; "drop" removes its name.
_edits = st.lists(
    st.tuples(st.integers(0, 500), st.one_of(_change, _change, st.just("drop"))), max_size=3
)


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    """All leaves of a JSON tree: the container, and the key or index in it."""
    found = []
    for name in list(tree) if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, name))
        if isinstance(tree[name], dict | list):
            found += _leaves(tree[name])
    return found


def _edited(tree: Any, edits: list[tuple[int, Any]]) -> Any:
    tree = copy.deepcopy(tree)
    for number, value in edits:
        places = _leaves(tree)
        if not places:
            return tree
        holder, name = places[number % len(places)]
        if value == "drop" and isinstance(holder, dict):
            del holder[name]
        else:
            holder[name] = copy.deepcopy(value)
    return tree


def _edited_tensors(data: bytes, edits: list[tuple[int, Any]], cut: int) -> bytes:
    """A safetensors file with a changed header and possibly truncated data."""
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(_edited(json.loads(data[8 : 8 + length]), edits)).encode()
    body = data[8 + length :]
    return len(header).to_bytes(8, "little") + header + body[: len(body) - cut]


@lru_cache(maxsize=1)
def _run() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


_headers = st.tuples(
    st.one_of(st.just([]), st.just([]), _edits), st.sampled_from([0, 0, 0, 0, 1, 100])
)
_run_cases = st.tuples(
    _edits,
    _headers,
    _headers,
    _headers,
    st.integers(0, 9),  # 0: checksums are left wrong
    # Of the calibration and the domain.
    st.tuples(st.one_of(st.just([]), _edits), st.one_of(*[st.just([])] * 3, _edits)),
    st.one_of(*[st.none()] * 6, damaged(st.just(b'{"format": 1, "config": {}}'), 1.0)),
)


def _load_run(case: Any, folder: Path, past: Passed) -> None:
    edits, weights, similarity, near, sums, (calibrated, domain), other_card = case
    original = _run()
    files = dict(original)
    headers = {"weights": weights, "similarity": similarity, "neighbours": near}
    for name, header in headers.items():
        files[f"{name}.safetensors"] = _edited_tensors(files[f"{name}.safetensors"], *header)
    card = _edited(json.loads(original["config.json"]), edits)
    if sums:
        for name in ("weights", "similarity"):
            card[f"{name}_sha256"] = hashlib.sha256(files[f"{name}.safetensors"]).hexdigest()
    calibration = _edited(json.loads(original["calibration.json"]), calibrated)
    if sums and isinstance(calibration.get("models"), list):
        calibration["models"][:1] = [card.get("weights_sha256")]
    file = calibration.get("neighbours")
    if sums and isinstance(file, dict):
        file["model"] = card.get("weights_sha256")
        file["sha256"] = hashlib.sha256(files["neighbours.safetensors"]).hexdigest()
    files["calibration.json"] = json.dumps(calibration).encode()
    files["domain.json"] = json.dumps(_edited(json.loads(original["domain.json"]), domain)).encode()
    files["config.json"] = json.dumps(card).encode() if other_card is None else other_card
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        if isinstance(json.loads(files["config.json"]), dict):
            past()
    except ValueError:
        pass
    trained = load_model(folder)
    ensemble = Ensemble([trained], find_calibration([trained])[0])
    reader = MoleculeReader(ensemble.schema.features, fingerprints=True)
    molecule = reader("CCO")
    graph = molecule.checked([1.0] * len(ensemble.schema.descriptors))
    similarity = None
    if ensemble.similarity is not None:
        similarity = ensemble.similarity.nearest(molecule.fingerprint[None])
    found = ensemble.predict([graph], 1, 0, False, similarity)
    _, found = ensemble.compare([molecule.composition], found)
    ensemble.interval(found)


@lru_cache(maxsize=1)
def _packed() -> tuple[dict[str, bytes], str]:
    with tempfile.TemporaryDirectory() as folder:
        made = write_packed(Path(folder)).folder
        return {path.name: path.read_bytes() for path in made.iterdir()}, made.name


# Changed tensor values: offsets from the end of the file, and new bytes.
_values = st.lists(
    st.tuples(st.integers(0, 1 << 12), st.sampled_from([0, 1, 2, 5, 127, 255])), max_size=3
)
_packed_cases = st.tuples(
    st.one_of(st.just([]), st.just([]), _edits), _headers, _values, st.integers(0, 9)
)


def _open_packed(case: Any, folder: Path, past: Passed) -> None:
    edits, header, values, sums = case
    original, name = _packed()
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    data = bytearray(_edited_tensors(original["train.safetensors"], *header))
    start = 8 + int.from_bytes(data[:8], "little")
    for where, byte in values:
        if len(data) > start:
            data[start + where % (len(data) - start)] = byte % 256
    for file, content in (original | {"train.safetensors": bytes(data)}).items():
        (place / file).write_bytes(content)
    manifest = json.loads(original["manifest.json"])
    if sums:
        train = place / "train.safetensors"
        manifest["files"][train.name] = [train.stat().st_size, hash_files([train])]
    manifest = _edited(manifest, edits)
    (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    if isinstance(manifest, dict) and manifest.get("version") == 1:
        past()
    prepared = open_prepared(place, GRAPHS)
    for _ in GraphLoader(prepared.train, GRAPHS, 2, workers=0):
        pass


@lru_cache(maxsize=1)
def _checkpoint() -> bytes:
    state = {
        "grass_gnn": {"epoch": 1},
        "state_dict": random_graph(0).to_dict(),
        "loops": {"a": [1]},
    }
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _read_checkpoint(case: tuple[bytes, int], folder: Path, past: Passed) -> None:
    data, sums = case
    for left in folder.glob("*.ckpt"):
        left.unlink()
    name = hashlib.sha256(data).hexdigest()[:16] if sums else "0" * 16
    (folder / f"000000001-{name}.ckpt").write_bytes(data)
    if sums:
        past()  # the checksum
    read_checkpoint(folder)


TARGETS = [
    Target("run folders", _run_cases, _load_run),
    Target(
        "checkpoints",
        st.tuples(damaged(st.builds(_checkpoint), 0.9), st.integers(0, 4)),
        _read_checkpoint,
    ),
    Target("packed files", _packed_cases, _open_packed),
]
