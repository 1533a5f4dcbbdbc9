"""Untrusted and malformed tables."""

import csv
import gzip
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grass_gnn import GrassError
from grass_gnn.data.tables.files import is_table, open_table, parse_number

CELLS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\x1c\x1d\x1e\x85\u2028\u2029"),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8))
def test_what_csv_wrote_is_read_again(tmp_path_factory, rows):
    rows = [row for row in rows if "\n" not in "".join(row)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["a", "b", "c"])
    writer.writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    assert [row.cells for row in open_table(path)] == [list(row) for row in rows]


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(st.text("\"ab,1\\' ", max_size=10), max_size=12))
def test_no_line_is_ever_lost(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("\n".join(["a,b,c", *lines, "end,of,file"]), encoding="utf-8")
    rows = list(open_table(path))
    covered = [row.line for row in rows]
    assert covered == sorted(set(covered)) and len(covered) <= len(lines) + 1
    for row, following in zip(rows, [*covered[1:], len(lines) + 3], strict=True):
        breaks = "".join(row.cells).count("\n")
        assert following - row.line == 1 + breaks or row.problem
    assert all(len(row.cells) == 3 for row in rows)


def test_quoted_cells_may_hold_line_breaks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"first\nsecond"\n2,x\n')
    assert [(row.line, row.cells) for row in open_table(path)] == [
        (2, ["1", "first\nsecond"]),
        (4, ["2", "x"]),
    ]


def test_headers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf a ;b;b\r\n1;2;3\r\n")
    table = open_table(path)
    assert table.columns == ["a", "b", "b"] and table.place("b", "--target") == 1
    assert [row.cells for row in table] == [["1", "2", "3"]]
    for content in (b"", b"\n", b",,\n1,2,3\n"):
        path.write_bytes(content)
        with pytest.raises(GrassError, match="no header"):
            open_table(path)
    with pytest.raises(GrassError, match="no file"):
        open_table(tmp_path / "none.csv")
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(GrassError, match=r"bad\.csv\.gz"):
        open_table(tmp_path / "bad.csv.gz")


def test_a_file_that_breaks_off_is_named(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(10**5)))
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GrassError, match=r"t\.csv\.gz is damaged"):
        list(open_table(tmp_path / "t.csv.gz"))


@pytest.mark.parametrize("text", ["1,5", "1_000", "a", "inf", "-Infinity", "1e999", "--1"])
def test_cells_that_are_not_numbers(text):
    with pytest.raises(ValueError, match="number"):
        parse_number(text)


def test_numbers_and_names():
    assert parse_number(" -1.5e3 ") == -1500 and parse_number("\u22121.5") == -1.5
    assert all(
        parse_number(text) != parse_number(text) for text in ("", "NaN", "n/a", "?", "#N/A", "n.d.")
    )
    assert is_table("x/Y.CSV.GZ") and is_table("a.parquet") and not is_table("zinc")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_letters_survive_usual_encodings(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes("smiles\tLöslichkeit\r\nCCO\t1 µM\r\n".encode(encoding))
    table = open_table(path)
    assert table.columns == ["smiles", "Löslichkeit"]
    assert [row.cells for row in table] == [["CCO", "1 µM"]]


def test_a_name_in_the_header_may_have_two_lines(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('smiles,"y\n(kcal/mol)"\nCCO,1\nCC,2\n')
    table = open_table(path)
    assert table.columns == ["smiles", "y (kcal/mol)"]
    assert [(row.line, row.cells) for row in table] == [(3, ["CCO", "1"]), (4, ["CC", "2"])]
    path.write_text('smiles,"y\nCCO,1\nCC,2\nC,"3"\n')  # never closed: not a name of four lines
    with pytest.raises(GrassError):
        open_table(path)


@pytest.mark.parametrize(
    "text",
    [
        "smiles;logS, mol/L;source, year\nCCO;-1.5;A, 2001\nCC;2;B\n",
        "smiles;logS, mol/L;source, year\nCCO;-1,5;A\nCC;2,5;B\n",
        "smiles;logS, mol/L;source, year\n",
    ],
)
def test_commas_in_names_and_numbers_are_no_delimiters(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert open_table(path).columns == ["smiles", "logS, mol/L", "source, year"]


def test_only_cells_with_content_are_too_many(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2,\n3,4, ,\n5,6,7\n")
    assert [bool(row.problem) for row in open_table(path)] == [False, False, True]


def test_files_that_are_not_text_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"PK\x03\x04\x14\x00\x00smiles,y\n")
    with pytest.raises(GrassError, match="not text"):
        open_table(path)
