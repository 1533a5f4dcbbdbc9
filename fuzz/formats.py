"""Excel workbooks, SDF, SMI and InChI, made by hand: their usual writers make no mistakes."""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from unittest import mock

import hypothesis.strategies as st

from fuzz.harness import Passed, Target, damaged
from grass_gnn.data.tables import formats
from grass_gnn.data.tables.files import open_table
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_RELATION = f'<Relationship Id="rId1" Type="{_OFFICE}/%s" Target="%s"/>'
_PARTS = {
    "[Content_Types].xml": (
        f'<Types xmlns="{_PACKAGE}/content-types"><Override PartName="/xl/workbook.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
        '<Override PartName="/xl/sharedStrings.xml" ContentType="application/'
        'vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>'
    ),
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    + _RELATION % ("officeDocument", "xl/workbook.xml")
    + "</Relationships>",
    "xl/workbook.xml": (
        f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="rId1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    + _RELATION % ("worksheet", "worksheets/sheet1.xml")
    + "</Relationships>",
    "xl/sharedStrings.xml": f'<sst xmlns="{_MAIN}"><si><t>smiles</t></si><si><t>CCO</t></si></sst>',
}
SHEET = "xl/worksheets/sheet1.xml"


def workbook(sheet: bytes, other: tuple[str, bytes] | None = None) -> bytes:
    """An Excel file with one sheet, given as XML; ``other`` replaces one of the other parts."""
    file = io.BytesIO()
    parts = {name: text.encode() for name, text in _PARTS.items()} | {SHEET: sheet}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (parts | dict([other] if other else [])).items():
            archive.writestr(name, data)
    return file.getvalue()


def sheet_of(rows: str, before: str = "") -> bytes:
    """The XML of a sheet."""
    return (
        f'<?xml version="1.0"?>{before}<worksheet xmlns="{_MAIN}"><sheetData>{rows}</sheetData>'
        "</worksheet>"
    ).encode()


_numbers = st.sampled_from(
    ["", "", "", ' r="1"', ' r="2"', ' r="1048576"', ' r="999999999999"', ' r="-1"', ' r="x"']
)
_places = st.sampled_from(
    ["", "", "", ' r="A1"', ' r="XFD1"', ' r="ZZZ1"', ' r="A999999999"', ' r="AAAA1"', ' r="1"']
)
_texts = st.sampled_from(
    ["smiles", "CCO", "1", "-1", "1e999", "NaN", "9" * 400, "0", "44000.5", "=1+1", "&lt;", ""]
)
_kinds = st.sampled_from(["", "", ' t="s"', ' t="b"', ' t="e"', ' t="d"', ' t="str"', ' t="x"'])
_cells = st.lists(
    st.one_of(
        st.builds("<c{}{}><v>{}</v></c>".format, _places, _kinds, _texts),
        st.builds('<c{} t="inlineStr"><is><t>{}</t></is></c>'.format, _places, _texts),
        st.just("<c/>"),
    ),
    max_size=3,
).map("".join)
_named = '<c t="inlineStr"><is><t>{}</t></is></c>'
_header = f"<row>{_named.format('smiles')}{_named.format('y')}</row>"
_rows = st.lists(st.builds("<row{}>{}</row>".format, _numbers, _cells), max_size=4).map("".join)
_before = st.sampled_from(
    [""] * 6
    + ['<!DOCTYPE a [<!ENTITY b "c">]>', "<!--" + "x" * 5000 + '--><!DOCTYPE a [<!ENTITY b "c">]>']
)
_sheets = damaged(
    st.builds(lambda rows, before: sheet_of(_header + rows, before), _rows, _before), 0.3
)
_excel = damaged(st.builds(workbook, _sheets), 0.2)

_BLOCK = """name
  made

{atoms:>3}{bonds:>3}  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0
    1.0000    0.0000    0.0000 {symbol:<3} 0  0  0  0  0  0  0  0  0  0  0  0
  1{second:>3}{order:>3}  0
{line}
M  END
> <y>
{value}

$$$$
"""
_odd = st.sampled_from([0, 1, 2, 3, 9, 99, 999, -1, "x"])
# fmt: off
_properties = st.sampled_from([
    "M  CHG  1   1   1", "M  CHG999   1   1", "M  ISO  1   1 999", "M  RGP  1   2   1", "", "x",
    "M  STY  1   1 SUP", "M  V30 BEGIN CTAB", "A    1", "M  ALS   1 99 F C",
])
# fmt: on
_sdf = st.lists(
    st.builds(
        lambda *values: _BLOCK.format(
            **dict(
                zip(
                    ("atoms", "bonds", "symbol", "second", "order", "line", "value"),
                    values,
                    strict=True,
                )
            )
        ),
        st.sampled_from([2, 2, 2, 2]) | _odd,
        st.sampled_from([1, 1, 1, 1]) | _odd,
        st.sampled_from(["C", "O", "U", "R#", "*", "Xx", "D", ""]),
        st.sampled_from([2, 2, 2]) | _odd,
        st.sampled_from([1, 2, 3, 4, 8, 9, 0]),
        _properties,
        st.sampled_from(["1", "x", "", "> <y>", "1" * 500]),
    ),
    min_size=1,
    max_size=3,
).map(lambda blocks: "".join(blocks).encode())

_smi = st.lists(
    st.sampled_from(
        [
            "CCO ethanol",
            "CCO",
            "C |$R$| name",
            "C |",
            "| |",
            "\t",
            "smiles name y",
            "C" * 500,
            "é x",
        ]
    ),
    min_size=1,
    max_size=5,
).map(lambda lines: "\n".join(lines).encode())

# fmt: off
_layers = st.sampled_from([
    "/C2H6O", "/C2H6O/c1-2-3", "/h3H,2H2,1H3", "/C999999999", "/c1-2-3-1", "/p+1", "/q-99", "/t1-",
    "/b1-2+", "/i1+1", "/f/h1H", "/c" + "1-" * 500, "/r", "/C0", "/m1/s1", "/CH4", "/" + "U" * 50,
])
# fmt: on
_inchi = st.builds(
    lambda start, layers: (start + "".join(layers)).encode(),
    st.sampled_from(["InChI=1S", "InChI=1S", "InChI=1S", "InChI=1", "InChI=9"]),
    st.lists(_layers, max_size=5),
)

_cases = st.one_of(
    st.tuples(st.just("t.xlsx"), _excel),
    st.tuples(st.just("t.xlsx"), _excel),
    st.tuples(st.just("t.sdf"), damaged(_sdf)),
    st.tuples(st.just("t.smi"), damaged(_smi)),
    st.tuples(st.just("InChI"), damaged(_inchi, 0.2)),
)


class _Kept(ReadingPool[Any]):
    """A pool for all inputs, because starting a process takes longer than reading one of them."""

    def __exit__(self, *problem: object) -> None:
        """Stay open."""

    def __enter__(self) -> Self:
        return self


@lru_cache(maxsize=2)
def _pool(reader: Any) -> _Kept:
    return _Kept(reader, 1)


@lru_cache(maxsize=1)
def _molecules() -> ReadingPool[Molecule]:
    return ReadingPool(MoleculeReader("ogb-cip", canonical_order=True, fingerprints=True), 1)


def _read(case: tuple[str, bytes], folder: Path, past: Passed) -> None:
    name, data = case
    if name == "InChI":
        past()
        found, after = _molecules().read([data.decode("utf-8", "replace"), "CCO"])
        assert isinstance(found, Molecule) or 0 < len(found) < 300, "no short error message"
        assert isinstance(after, Molecule), "another molecule was harmed"
        return
    (folder / name).write_bytes(data)
    with mock.patch.object(formats, "ReadingPool", _pool):
        table = open_table(folder / name)
        past()
        for row in table:
            assert len(row.cells) == len(table.columns), "a row of another width"


TARGETS = [Target("Excel, SDF, SMI and InChI", _cases, _read)]
