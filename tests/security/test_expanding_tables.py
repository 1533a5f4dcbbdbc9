"""Small Excel and Parquet files with large contents: refused, or read within little memory."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from fuzz.formats import SHEET, sheet_of, workbook
from grass_gnn.data.tables.files import open_table
from grass_gnn.errors import GrassError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("openpyxl")

HEADER = "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in ("smiles", "y"))
HEADER = f"<row>{HEADER}</row>"
ENTITIES = '<!DOCTYPE a [<!ENTITY b "c">]>'
# Reads tables in a process that may take 300 MB more than it takes to start.
LIMITED = """
import resource, sys
import pyarrow.parquet
from grass_gnn import GrassError
from grass_gnn.data.tables.files import open_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        print(sum(1 for row in open_table(path)))
    except GrassError as error:
        print(error)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert taken < 300, (path, taken)
"""


@pytest.mark.parametrize(
    "rows",
    [
        '<row r="999999999999"><c><v>1</v></c></row>',  # as many empty rows before it
        "".join(f'<row><c r="XFD{n}"><v>1</v></c></row>' for n in range(2, 5000)),  # empty cells
    ],
    ids=["far row", "far columns"],
)
def test_a_sheet_is_not_as_large_as_it_claims(rows, tmp_path):
    (tmp_path / "t.xlsx").write_bytes(workbook(sheet_of(HEADER + rows)))
    with pytest.raises(GrassError):
        list(open_table(tmp_path / "t.xlsx"))


@pytest.mark.parametrize("other", ["cell", "texts"])
def test_a_workbook_that_unpacks_to_much_is_refused_by_its_ratio(other, tmp_path):
    cell = f'<row><c t="inlineStr"><is><t>{"C" * 30_000_000}</t></is></c></row>'
    texts = "<sst>" + "<si><t>a</t></si>" * 1_500_000 + "</sst>"
    (tmp_path / "t.xlsx").write_bytes(
        workbook(sheet_of(HEADER + cell))
        if other == "cell"
        else workbook(sheet_of(HEADER), ("xl/sharedStrings.xml", texts.encode()))
    )
    with pytest.raises(GrassError):
        open_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    "sheet",
    [
        sheet_of(HEADER, "<!--" + "x" * 100_000 + "-->" + ENTITIES),
        sheet_of(HEADER, ENTITIES).decode().encode("utf-16"),
    ],
    ids=["after a comment", "in UTF-16"],
)
def test_entities_cannot_be_hidden(sheet, tmp_path):
    (tmp_path / "t.xlsx").write_bytes(workbook(sheet))
    with pytest.raises(GrassError):
        open_table(tmp_path / "t.xlsx")


def test_an_ordinary_sheet_is_still_read(tmp_path):
    cells = '<c r="A{0}" t="inlineStr"><is><t>CCO</t></is></c><c r="B{0}"><v>1</v></c>'
    rows = "".join(f'<row r="{n}">{cells.format(n)}</row>' for n in (2, 5))
    (tmp_path / "t.xlsx").write_bytes(workbook(sheet_of(HEADER + rows)))
    with zipfile.ZipFile(tmp_path / "t.xlsx") as archive:
        assert SHEET in archive.namelist()
    found = list(open_table(tmp_path / "t.xlsx"))
    assert [row.cells for row in found] == [["CCO", "1"], ["", ""], ["", ""], ["CCO", "1"]]
    assert [row.line for row in found] == [2, 3, 4, 5]


def test_parquet_columns_do_not_multiply_in_memory(tmp_path):
    zeros = pa.array(np.zeros(40_000_000, np.int8))
    columns = {
        "a list": pa.ListArray.from_arrays([0, len(zeros)], zeros),
        "fixed length": pa.array([b"C" * 1_000_000] * 150, pa.binary(1_000_000)),
        "a long text": pa.array(["C" * 100_000_000]),
    }
    paths = [tmp_path / f"{name}.parquet" for name in columns]
    for path, (name, column) in zip(paths, columns.items(), strict=True):
        table = pa.table({"smiles": ["C"] * len(column), "other": column})
        pq.write_table(table, path, compression="zstd", use_dictionary=name != "a long text")
        assert path.stat().st_size < 100_000
    command = [sys.executable, "-c", LIMITED, *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    *rows, said = ended.stdout.splitlines()
    assert list(map(int, rows)) == [1, 150] and "unpacks" in said


def test_columns_that_are_neither_text_nor_numbers_are_named(tmp_path, caplog):
    columns = {"smiles": ["C", None], "bits": [[1, 0], [1]], "y": [1.5, None], "when": [None, None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert table.columns == ["smiles", "y", "when"]
    assert [row.cells for row in table] == [["C", "1.5", ""], ["", "", ""]]
    assert "bits" in caplog.text


def test_ambiguous_names_of_columns_are_refused(tmp_path):
    columns = {"smiles": ["C"], "a": [{"b": "x"}], "a.b": ["y"]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(GrassError):
        list(open_table(tmp_path / "t.parquet"))


def test_places_outside_of_a_dictionary_and_broken_texts_are_damage(tmp_path):
    """Any byte of a file may be wrong; Arrow does not check all of them by itself."""
    path = tmp_path / "t.parquet"
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0]), pa.array(["CCO", "é"]))
    pq.write_table(pa.table({"smiles": words}), path, compression="none", write_statistics=False)
    whole = path.read_bytes()
    outcomes = set()
    for place in range(4, min(len(whole), 120)):
        for value in (0x05, 0xFF):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                outcomes.add(tuple(row.cells[0] for row in open_table(path)))
            except GrassError as error:
                outcomes.add(type(error))
    assert GrassError in outcomes and ("CCO", "é", "é", "CCO") in outcomes
