"""Small files that would exhaust memory, and special files: each gives a clear error."""

import hashlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from grass_gnn import GRASS, GRASSConfig, GrassError, load_model
from grass_gnn.data.benchmarks.raw import load_data
from grass_gnn.data.tables.files import open_table
from grass_gnn.errors import LONGEST_MESSAGE, RunError
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import read_bytes, read_json, read_text, read_toml
from grass_gnn.uncertainty.similarity import SimilarityReference

SMALL = {
    "model.dim": 8,
    "model.layers": 2,
    "encoding.steps": 4,
    "input.nodes.kind": "index",
    "input.nodes.sizes": [3],
}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    save_model(GRASS(GRASSConfig().override(SMALL)), folder, seed=0)
    return folder


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_of_a_run_are_opened(run, name, kind):
    path = run / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(GrassError):
        load_model(run)
    with pytest.raises(GrassError, match=r"not a regular file|cannot be read"):
        read_bytes(path, 100)


def test_similarity_and_settings_that_are_pipes(tmp_path):
    os.mkfifo(tmp_path / "similarity.safetensors")
    with pytest.raises(GrassError, match="regular file"):
        SimilarityReference.load(tmp_path, "0" * 64)
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(GrassError, match="regular file"):
        GRASSConfig.from_toml(tmp_path / "config.toml")


def test_links_to_regular_files_are_followed(tmp_path):
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to("real")
    assert read_json(tmp_path / "link") == {}


def test_weights_larger_than_their_card_implies_are_not_read(run):
    with (run / "weights.safetensors").open("ab") as file:
        file.truncate(1 << 40)  # sparse: takes no space
    with pytest.raises(GrassError, match="bytes, more than"):
        load_model(run)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        "[" * 200_000 + "]" * 200_000,
        '{"a": ' + "9" * 5000 + "}",
        '{"targets": ["\\ud800"]}',
        "{",
        "\x00",
    ],
)
def test_invalid_json_gives_an_error_of_one_short_line(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(GrassError) as caught:
        read_json(path)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 200_000, "a = " + "9" * 5000, "[" + "a." * 100_000 + "a]", "a = {b = " * 9999],
)
def test_invalid_toml_gives_an_error_of_one_short_line(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(GrassError) as caught:
        GRASSConfig.from_toml(path)
    assert len(str(caught.value)) < LONGEST_MESSAGE and "\n" not in str(caught.value)
    with pytest.raises(GrassError):
        read_toml(tmp_path / "none.toml")


def test_toml_that_takes_long_or_much_memory_is_refused_by_its_size(tmp_path):
    """Without a limit, each of these takes seconds for every megabyte, or gigabytes for 64."""
    many = "\n".join(f"a{number} = 1" for number in range(200_000))
    long = "\n".join("a" + ".a" * 900 + f".b{number} = 1" for number in range(400))
    for text in (many, long):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(RunError):
            read_toml(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("[model]\nsizes = [" + "0.5, " * 500 + "]\n")
    assert len(read_toml(tmp_path / "x.toml")["model"]["sizes"]) == 500


def test_messages_are_short_and_can_be_printed():
    assert len(str(GrassError("x" * 444_725))) <= LONGEST_MESSAGE
    str(GrassError("the target \ud800")).encode()
    assert "\\ud800" in str(GrassError("the target \ud800"))


def test_messages_are_one_line_and_send_no_commands_to_a_terminal():
    """Names of columns and files may contain anything."""
    text = str(GrassError("There is no column 'a\r\nError: b\x1b[2J\u2028c\x9b1m'."))
    assert text.isprintable() and "\\x1b" in text


def test_bytes_that_are_not_text(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(GrassError, match="damaged"):
        read_text(tmp_path / "x")


def test_a_card_that_asks_for_many_layers_gives_a_short_message(run):
    card = json.loads((run / "config.json").read_text())
    card["config"]["model"]["layers"] = 1024
    (run / "config.json").write_text(json.dumps(card))
    with pytest.raises(GrassError) as caught:
        load_model(run)
    assert len(str(caught.value)) <= LONGEST_MESSAGE


def test_an_empty_similarity_table(tmp_path):
    tensors = {"bits": torch.zeros(0, 128, dtype=torch.uint8), "threshold": torch.zeros(1)}
    save_file(tensors, tmp_path / "similarity.safetensors")
    checksum = hashlib.sha256((tmp_path / "similarity.safetensors").read_bytes()).hexdigest()
    with pytest.raises(GrassError, match="no fingerprints"):
        SimilarityReference.load(tmp_path, checksum)


MEMO = {
    "long": pickle.NONE + pickle.LONG_BINPUT + struct.pack("<I", 0x0FFFFFFF) + pickle.STOP,
    "text": pickle.NONE + pickle.PUT + b"268435455\n" + pickle.STOP,
    "frame": pickle.PROTO + b"\x05" + pickle.FRAME + struct.pack("<Q", 1 << 50) + b"N.",
    "bytes": pickle.BINBYTES8 + struct.pack("<Q", 1 << 50) + b"x.",
    "later": pickle.dumps([1, "a"], 2)[:-1]
    + pickle.LONG_BINPUT
    + struct.pack("<I", 1 << 31)
    + b".",
}


@pytest.mark.parametrize("name", MEMO)
@pytest.mark.parametrize("on_disk", [True, False])
def test_memo_indices_do_not_take_memory(tmp_path, name, on_disk):
    (tmp_path / "raw.pickle").write_bytes(MEMO[name])
    with (tmp_path / "raw.pickle").open("rb") as file, pytest.raises(pickle.UnpicklingError):
        load_data(file if on_disk else io.BytesIO(file.read()))


@pytest.mark.parametrize("protocol", range(6))
def test_valid_pickles_of_all_protocols_are_read(tmp_path, protocol):
    value = {"a": [1, 2.5, None, True, "text\n" * 300, b"x" * 300, 10**30], "b": (1,) * 5}
    value["c"] = [str(number) for number in range(1000)]  # more than 255 memo entries
    value["d"] = np.arange(5.0)
    (tmp_path / "raw.pickle").write_bytes(pickle.dumps(value, protocol))
    with (tmp_path / "raw.pickle").open("rb") as file:
        found = load_data(file)
    assert found.pop("d").tolist() == value.pop("d").tolist() and found == value


BOMB = """
import resource
import sys
from grass_gnn import GrassError
from grass_gnn.data.tables.files import open_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    rows = sum(bool(row.problem) for row in open_table(sys.argv[1]))
except GrassError as error:
    rows = str(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, rows)
"""


def test_a_parquet_dictionary_does_not_multiply_in_memory(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 4096), pa.array(["C" * (2 << 20)]))
    pq.write_table(pa.table({"smiles": column}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    told = subprocess.run(
        [sys.executable, "-c", BOMB, str(path)], capture_output=True, text=True, check=True
    ).stdout.split(None, 1)
    assert int(told[0]) < 300 and ("characters" in told[1] or int(told[1]) > 100)


def test_parquet_cells_are_as_they_were(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    columns = {"smiles": ["CCO", None, "CCO"], "y": [1.5, None, 2.0], "n": [1, 2, 3]}
    columns["b"] = [b"x", None, b"x"]
    pq.write_table(pa.table(columns), path)
    cells = [row.cells for row in open_table(path)]
    assert cells == [["CCO", "1.5", "1", "x"], ["", "", "2", ""], ["CCO", "2.0", "3", "x"]]
