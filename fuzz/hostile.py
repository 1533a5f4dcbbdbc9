"""Small inputs with large effects: structures, nesting, dictionaries, memos, special files."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import socket
import struct
from functools import lru_cache
from pathlib import Path

import hypothesis.strategies as st

from fuzz import structures
from fuzz.harness import Passed, Target, damaged
from fuzz.models import write_run
from grass_gnn.config import GRASSConfig
from grass_gnn.data.benchmarks.raw import load_data
from grass_gnn.data.tables.files import open_table
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import load_model
from grass_gnn.files import read_json
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble


def _random_graph(size: int, extra: int, seed: int) -> structures.Edges:
    source = random.Random(seed)
    edges = {(source.randrange(node), node) for node in range(1, size)}
    for _ in range(extra):
        pair = sorted(source.sample(range(size), 2))
        edges.add((pair[0], pair[1]))
    return sorted(edges)


_graphs = st.one_of(
    st.sampled_from(sorted(structures.HARD)).map(structures.HARD.__getitem__),
    st.builds(structures.lattice, st.integers(1, 12), st.integers(2, 12), st.integers(1, 8)),
    st.builds(structures.hypercube, st.integers(2, 8)),
    st.builds(structures.complete, st.integers(2, 30)),
    st.builds(structures.bipartite, st.integers(1, 14)),
    st.builds(structures.theta, st.integers(2, 60), st.integers(1, 16)),
    st.builds(structures.tube, st.integers(2, 25), st.integers(2, 10).map(lambda half: 2 * half)),
    st.builds(structures.cubic, st.integers(2, 150).map(lambda half: 2 * half), st.integers(0, 99)),
    st.builds(_random_graph, st.integers(2, 200), st.integers(0, 150), st.integers(0, 999)),
)
_atoms = st.sampled_from(["[U]", "C", "c", "[Si]", "*", "N", "[C@H]", "[H]"])
_counts = st.sampled_from([1, 9, 99, 999, 5000])
# Long or deep texts: chains, fragments, branches, ring closures, stereo, labels, CXSMILES.
# fmt: off
_units = st.sampled_from([
    "C", "C.", "C(", "C)", "[C@H](F)", "C[C@@H](O)", "F/C=C/", "=C", "#C", "$C", "~C", ":c", "c",
    "n", "[H]", "[H].", "*", "[U]", "[999C]", "[C+15]", "[CH9]", "[CH3:999]", "[#6]", "[C@TH1]",
    "C1CC1", "C1CCCCC1", "c1ccccc1", "C%99CC%99", "C%(12345)CC%(12345)", "%10", "(", ")", "[", "+",
    "C12C3C4C1C5C2C3C45.", "N->[Fe]", "[Pt@SP1](F)(Cl)", "C(C)(C)", "@",
])
_extensions = st.sampled_from([
    "", "", "", "", "", " |$_R1;_R2$|", " |(1,2,3;4,5,6)|", " |Sg:n:0::ht|", " |LN:0:1.999999|",
    " |m:0:1.2|", " |" + "Sg:n:0::ht," * 500 + "|", " |(" + "1,2,3;" * 999 + ")|", " |$|", " name",
])
# fmt: on
_repeated = st.builds(
    lambda begin, unit, count, end, extension: (
        begin + unit * min(count, 20_000 // len(unit)) + end + extension
    ).encode(),
    st.sampled_from(["", "C", "C1", "[U]", "F"]),
    _units,
    _counts,
    st.sampled_from(["", "C", "1", "F", ")"]),
    _extensions,
)
_smiles = damaged(
    st.one_of(
        st.builds(lambda graph, atom: structures.smiles_of(graph, atom).encode(), _graphs, _atoms),
        _repeated,
    ),
    0.2,
)


@lru_cache(maxsize=1)
def _pool() -> ReadingPool:
    reader = MoleculeReader("ogb-cip", canonical_order=True, identity=True, fingerprints=True)
    return ReadingPool(reader, 1)


def _read_structure(case: bytes, _: Path, past: Passed) -> None:
    """In a worker process, as everywhere: some of these structures crash RDKit."""
    past()
    found, after = _pool().read([case.decode("utf-8", "replace"), "CCO"])
    assert isinstance(found, Molecule) or 0 < len(found) < 300, "no short error message"
    assert isinstance(after, Molecule), "another molecule was harmed"


_depths = st.sampled_from([1, 10, 900, 5000, 100_000])
_json = st.one_of(
    st.builds(lambda n: "[" * n + "]" * n, _depths),
    st.builds(lambda n: '{"a":' * n + "1" + "}" * n, _depths),
    st.builds(lambda n: '{"config": ' + "9" * n + "}", _depths),
    st.sampled_from(['{"a": "\\ud800"}', '{"\\udfff": 1}', '"\\ud83c\\udf3f"', "NaN", "[1e999]"]),
)
_toml = st.one_of(
    st.builds(lambda n: "a = " + "[" * n + "]" * n, _depths),
    st.builds(lambda n: "a = " + "9" * n, _depths),
    st.builds(lambda n: "[" + "a." * min(n, 5000) + "a]", _depths),
    st.builds(lambda n: "a = " + "{b = " * n + "1" + "}" * n, _depths),
)


def _read_nested(case: tuple[bytes, bytes], folder: Path, past: Passed) -> None:
    texts = {"x.json": case[0], "x.toml": case[1]}
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    past()
    with contextlib.suppress(GrassError):
        read_json(folder / "x.json")
    GRASSConfig.from_toml(folder / "x.toml")


@lru_cache(maxsize=100)
def _parquet(words: tuple[str, ...], rows: int, compression: str, kind: str) -> bytes:
    """A column of repeated words, and another one of a kind that is expanded when it is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = pa.array([place % len(words) for place in range(rows)])
    columns = {"smiles": pa.DictionaryArray.from_arrays(places, pa.array(words))}
    if kind == "list":
        columns["other"] = pa.array([[0] * len(words[0])] * min(rows, 5), pa.list_(pa.int8()))
    elif kind == "structure":
        columns["other"] = pa.array([{"a": words[0]}] * min(rows, 5))
    elif kind == "fixed":
        columns["other"] = pa.array([words[0].encode()] * min(rows, 5), pa.binary(len(words[0])))
    else:
        columns["other"] = pa.array([words[0]] * min(rows, 5))
    columns["smiles"] = columns["smiles"][: len(columns["other"])] if kind else columns["smiles"]
    if not kind:
        del columns["other"]
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, compression=compression, use_dictionary=kind != "plain")
    return file.getvalue()


_words = st.lists(
    st.builds(
        lambda n, text: text * n, st.sampled_from([1, 100, 2_000_000]), st.sampled_from("CN")
    ),
    min_size=1,
    max_size=2,
).map(tuple)
_dictionaries = damaged(
    st.builds(
        _parquet,
        _words,
        st.sampled_from([1, 50, 100]),
        st.sampled_from(["zstd", "snappy"]),
        st.sampled_from(["", "", "", "plain", "list", "structure", "fixed"]),
    )
)


def _read_dictionary(case: bytes, folder: Path, past: Passed) -> None:
    (folder / "t.parquet").write_bytes(case)
    table = open_table(folder / "t.parquet")
    past()
    for _ in table:
        pass


_put = st.one_of(
    st.builds(lambda n: pickle.LONG_BINPUT + struct.pack("<I", n), st.integers(0, 2**32 - 1)),
    st.builds(lambda n: pickle.PUT + b"%d\n" % n, st.integers(0, 2**40)),
    st.builds(lambda n: pickle.BINPUT + bytes([n]), st.integers(0, 255)),
    st.just(pickle.MEMOIZE),
)
_value = st.sampled_from([{"a": [1, 2.5, None]}, ["x" * 300, b"y" * 300], (10**30, "z"), [[]] * 9])
_pickles = damaged(
    st.builds(
        lambda value, protocol, puts: pickle.dumps(value, protocol)[:-1] + b"".join(puts) + b".",
        _value,
        st.integers(0, 5),
        st.lists(_put, max_size=3),
    )
)


def _read_pickle(case: bytes, folder: Path, past: Passed) -> None:
    (folder / "raw.pickle").write_bytes(case)
    past()
    with (folder / "raw.pickle").open("rb") as file:
        try:
            load_data(file)
        except MemoryError:
            raise
        except Exception as error:  # RawFiles reports whatever a damaged pickle raises
            raise GrassError(f"It cannot be read ({type(error).__name__}).") from None


_names = st.sampled_from(
    [f"{name}.safetensors" for name in ("weights", "similarity", "neighbours")]
    + [f"{name}.json" for name in ("config", "calibration", "domain")]
)
_kinds = st.sampled_from(
    ["pipe", "device", "random", "socket", "folder", "nothing", "nowhere", "loop", "sparse"]
)


def _open_special(case: tuple[str, str], folder: Path, past: Passed) -> None:
    name, kind = case
    run = folder / "run"
    if not (run / "config.json").is_file():
        write_run(run)
    path, kept = run / name, folder / "kept"
    path.rename(kept)
    try:
        past()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "random":
            path.symlink_to("/dev/urandom")
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(path))
        elif kind == "nowhere":
            path.symlink_to(folder / "not there")
        elif kind == "folder":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 36)
        model = load_model(run)
        ensemble = Ensemble([model], find_calibration([model])[0])
        read = {
            "similarity": ensemble.similarity,
            "domain": ensemble.domain,
            "neighbours": ensemble.reference,
        }
        assert read.get(name.partition(".")[0]) is None, "a file that is not one was read"
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        kept.rename(path)


TARGETS = [
    Target("SMILES structures", _smiles, _read_structure),
    Target(
        "nested JSON and TOML",
        st.tuples(_json.map(str.encode), damaged(_toml.map(str.encode), 0.1)),
        _read_nested,
    ),
    Target("Parquet expansion", _dictionaries, _read_dictionary),
    Target("pickles", _pickles, _read_pickle),
    Target("special files", st.tuples(_names, _kinds), _open_special),
]
