"""Tables of molecules, as training and prediction read them, and tables of nodes and edges."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st

from fuzz.harness import Passed, Target, damaged
from fuzz.models import tiny_model
from grass_gnn.api.fitting import choose_config
from grass_gnn.api.graph_task import GraphSpec, infer_graph_task, infer_input, split_graphs
from grass_gnn.api.graphs import read_graph
from grass_gnn.api.prediction import predict_table
from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.files import open_table
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.spec import TableSpec

SMILES = ["C", "CCO", "c1ccccc1", "CC(=O)O", "[Na+].[Cl-]", "C#N", "[13CH4]", "F/C=C/F", "[U]", "N"]
ODD_SMILES = [
    "",
    "C(",
    "c1cccc",
    "C[N",
    "[Xx]",
    "C" * 90,
    "=cmd|' /C calc'!A0",
    "<b>x</b>",
    "*",
    "C>>C",
]
NUMBERS = ["0", "1", "2", "0.5", "-3.25", "1e3", "1", "0"]
ODD_CELLS = [
    "",
    "NA",
    "nan",
    "inf",
    "1e999",
    "1,000",
    "yes",
    "no",
    "a",
    "\u0661",
    "0x1",
    "1_0",
    "-",
]
_COLUMNS = ["smiles", "y", "z", "split", "id", "SMILES", "", "y", " y ", "é", "=1+1"]
_numbers = st.sampled_from(NUMBERS * 4 + ODD_CELLS)
_cell = st.sampled_from(NUMBERS + ODD_CELLS + ["train", "val", "test"])


@dataclass(frozen=True)
class TableCase:
    """A file, and the options it is read with."""

    name: str
    data: bytes
    options: dict[str, Any]


@st.composite
def _rows(draw: Any, first: list[str], most: int = 12) -> list[list[str]]:
    size = draw(st.integers(0, most))
    column = draw(st.lists(st.sampled_from(first), min_size=size, max_size=size))
    other = draw(st.lists(_numbers, min_size=2 * size, max_size=2 * size))
    rows = [[column[n], other[2 * n], other[2 * n + 1]] for n in range(size)]
    if draw(st.integers(0, 5)) == 0 and rows:  # one row is too short or too long
        rows[draw(st.integers(0, size - 1))] = draw(st.lists(_cell, max_size=6))
    return rows


def _text(rows: list[list[str]], delimiter: str, quoting: int, end: str) -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return file.getvalue().encode()


def _texts(rows: st.SearchStrategy[list[list[str]]]) -> st.SearchStrategy[bytes]:
    delimiters = st.sampled_from([",", ",", ",", ";", "\t"])
    quoting = st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    return st.builds(_text, rows, delimiters, quoting, st.sampled_from(["\n", "\n", "\r\n"]))


def _parquet(rows: list[list[str]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    names = [name if rows[0].index(name) == n else f"{name}{n}" for n, name in enumerate(rows[0])]
    columns = {name: [row[n] for row in rows[1:]] for n, name in enumerate(names)}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


_header = st.one_of(
    st.just(["smiles", "y", "z"]),
    st.just(["smiles", "y", "split"]),
    st.lists(st.sampled_from(_COLUMNS), min_size=3, max_size=3),
)
_content = st.builds(lambda head, rows: [head, *rows], _header, _rows(SMILES * 3 + ODD_SMILES))
_square = _content.filter(lambda rows: all(len(row) == 3 for row in rows))
_files = st.one_of(
    st.tuples(st.just("t.csv"), damaged(_texts(_content))),
    st.tuples(st.just("t.csv"), damaged(_texts(_content), 1.0)),
    st.tuples(st.just("t.tsv"), damaged(_texts(_content))),
    st.tuples(st.just("t.csv.gz"), damaged(_texts(_content).map(gzip.compress), 0.2)),
    st.tuples(st.just("t.parquet"), damaged(_square.map(_parquet), 0.2)),
)
_options = st.fixed_dictionaries(
    {
        "targets": st.sampled_from([["y"], ["y"], ["y"], ["y", "z"], ["z"], ["nothing"], []]),
        "split": st.sampled_from(["random", "random", "scaffold", "split", "other"]),
        "features": st.sampled_from(["ogb", "ogb", "zinc", "none"]),
        "descriptors": st.sampled_from([(), (), ("z",)]),
        "task": st.sampled_from([None, None, None, "regression", "binary", "classification", "x"]),
        "bad_rows": st.sampled_from(["skip", "skip", "skip", "fail"]),
    }
)


def _read(case: TableCase, folder: Path, past: Passed) -> None:
    path = folder / case.name
    path.write_bytes(case.data)
    _probe(path, past)
    with _reading_here():
        read_tables(path, TableSpec(**case.options)).write_row_lists(folder)


def _predict(case: TableCase, folder: Path, past: Passed) -> None:
    path, answer = folder / case.name, folder / "answer.csv"
    path.write_bytes(case.data)
    rows = _probe(path, past)
    with _reading_here():
        summary = predict_table([tiny_model()], path, answer, rewirings=1)
    assert summary.rows == rows == summary.predicted + summary.failed, "a row was lost"
    with answer.open(newline="", encoding="utf-8") as file:
        written = list(csv.reader(file))
    assert len(written) == rows + 1, "a row was not written"
    for cell in (cell for row in written for cell in row):
        assert cell[:1] not in ("=", "@"), "a spreadsheet would evaluate a cell"


def _reading_here() -> Any:
    """Read the few ordinary molecules of tables in this process: starting another takes longer."""
    return mock.patch.object(
        ReadingPool, "read", lambda pool, smiles: map(pool.reader.try_read, smiles)
    )


def _probe(path: Path, past: Passed) -> int:
    rows = sum(1 for _ in open_table(path))
    if rows:
        past()
    return rows


def _read_edges(case: tuple[bytes, bytes, str | None, bool], folder: Path, past: Passed) -> None:
    nodes, edges, target, directed = case
    (folder / "nodes.csv").write_bytes(nodes)
    (folder / "edges.csv").write_bytes(edges)
    if _probe(folder / "nodes.csv", lambda: None) and _probe(folder / "edges.csv", lambda: None):
        past()
    data = read_graph(folder / "nodes.csv", folder / "edges.csv", target, directed=directed)
    if target is not None:
        splits = split_graphs(data, GraphSpec(), 0)
        task = infer_graph_task(splits["train"])
        small = GRASSConfig().override({"encoding.steps": 2})
        pack(splits["train"], choose_config(splits["train"], infer_input([data]), task, small))


_names = [str(n) for n in range(12)]
_nodes = st.builds(
    lambda size, values: [["id", "y", "a"], *([_names[n], values[n], "0.5"] for n in range(size))],
    st.integers(0, 12),
    st.lists(_numbers, min_size=12, max_size=12),
)
_edges = st.builds(
    lambda head, pairs: [head, *([*pair, "1"][: len(head)] for pair in pairs)],
    st.sampled_from([["a", "b"], ["a", "b", "w"], ["a"]]),
    st.lists(st.tuples(*[st.sampled_from([*_names[:6], "12", ""])] * 2), max_size=14),
)

_cases = st.builds(lambda file, options: TableCase(*file, options), _files, _options)
TARGETS = [
    Target("SMILES tables (train)", _cases, _read),
    Target("SMILES tables (predict)", _cases, _predict),
    Target(
        "edge lists",
        st.tuples(
            damaged(_texts(_nodes), 0.2),
            damaged(_texts(_edges), 0.2),
            st.sampled_from(["y", "y", None, "a", "id"]),
            st.booleans(),
        ),
        _read_edges,
    ),
]
