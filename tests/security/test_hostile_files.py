"""Harmful files, found by fuzzing or by reviewing the code."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from fuzz.models import write_run
from grass_gnn.api.graphs import read_graph
from grass_gnn.data.tables import files as text_files
from grass_gnn.data.tables.files import open_table
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import find_data, load_model
from grass_gnn.training.record import read_checkpoint
from grass_gnn.uncertainty.similarity import SimilarityReference


def test_damaged_compression_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    data = bytearray(gzip.compress(b"smiles,y\n" + b"CCO,1\n" * 500))
    data[12:20] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(GrassError, match="cannot be read"):
        open_table(path)


def test_a_compressed_table_cannot_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"smiles,y\n" + b"C,1\n" * 500_000))  # 600 times smaller
    assert sum(1 for _ in open_table(path)) == 500_000
    monkeypatch.setattr(text_files, "_LARGEST_UNPACKED", 100_000)
    with pytest.raises(GrassError, match="is damaged: it unpacks to more than"):
        sum(1 for _ in open_table(path))
    monkeypatch.setattr(text_files, "_LONGEST_LINE", 1000)
    (tmp_path / "t.csv").write_text("smiles,y\nC,1\n" + "C" * 2000)
    with pytest.raises(GrassError, match="a line has more than 1,000 characters"):
        list(open_table(tmp_path / "t.csv"))


def test_parquet_errors_are_one_line(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"smiles": ["C"] * 50, "y": list(range(50))}), path)
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36  # the header of the first page
    path.write_bytes(data)
    with pytest.raises(GrassError) as caught:
        list(open_table(path))
    assert "\n" not in str(caught.value)


def test_edges_with_one_end_and_targets_that_are_not_numbers(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("id,y\n0,1\n1,2.5\n2,3.5\n3,no\n")
    edges.write_text("a\n0\n")
    with pytest.raises(GrassError, match="one column"):
        read_graph(nodes, edges)
    edges.write_text("a,b\n0,1\n")
    with pytest.raises(GrassError, match=r"Node 3: .*'no' is not a number"):
        read_graph(nodes, edges, "y")


def changed_card(folder: Path, **changes: Any) -> None:
    card = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = card
        for parent in parents:
            place = place[parent]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config__model__dim", 2**62),
        ("config__model__dim", 60_000),  # would take 14 GB a layer
        ("config__model__layers", 10**9),
        ("config__encoding__steps", 10**9),
        ("config__rewiring__degree", 10**12),
        ("config__evaluation__rewirings", 10**12),
        ("config__task__outputs", 10**15),
    ],
)
def test_a_card_cannot_ask_for_all_memory(name: str, value: int, tmp_path: Path) -> None:
    write_run(tmp_path)
    before = torch.random.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)  # no weights were drawn
    changed_card(tmp_path, **{name: value})
    with pytest.raises(GrassError, match=r"is not valid|do not match"):
        load_model(tmp_path)


def test_weights_of_another_type_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path)
    weights = load_file(tmp_path / "weights.safetensors")
    data = save({name: value.double() for name, value in weights.items()})
    (tmp_path / "weights.safetensors").write_bytes(data)
    changed_card(tmp_path, weights_sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(
        GrassError, match=r"do not match config\.json: .* is of type torch\.float64"
    ):
        load_model(tmp_path)


def test_an_invalid_similarity_file(tmp_path: Path) -> None:
    for tensors in ({}, {"bits": torch.zeros(2), "threshold": torch.zeros(1)}):
        data = save(tensors)
        (tmp_path / "similarity.safetensors").write_bytes(data)
        with pytest.raises(GrassError, match="is damaged"):
            SimilarityReference.load(tmp_path, hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("prepared", ["../../elsewhere", "/etc", "a/b", ["x"], 7])
def test_a_card_cannot_name_data_outside_of_its_folder(prepared: object, tmp_path: Path) -> None:
    write_run(tmp_path)
    changed_card(tmp_path, data={"origin": {"prepared": prepared}})
    with pytest.raises(GrassError, match="damaged"):
        find_data(load_model(tmp_path))


def test_a_checkpoint_that_is_a_broken_pickle(tmp_path: Path) -> None:
    data = b"\x80\x02]q\x00(h\x09e."  # a list with what was never remembered
    name = hashlib.sha256(data).hexdigest()[:16]
    (tmp_path / f"000000001-{name}.ckpt").write_bytes(data)
    with pytest.raises(GrassError, match=r"All checkpoints .* are damaged"):
        read_checkpoint(tmp_path)
