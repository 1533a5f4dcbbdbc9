"""Untrusted names appear in pages and tables, and must stay text there."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.models import tiny_model
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.tables.files import guard
from grass_gnn.errors import GrassError
from grass_gnn.report.page import write_report
from grass_gnn.report.render import Detail, DrawnMolecule, Section, write_page
from grass_gnn.report.svg import ReportFigure, axes, drawing
from grass_gnn.report.table import Entry, ReportTable

SCRIPT = "<script>alert(1)</script>"
QUOTED = '"><img src=x onerror=alert(1)>'


def test_no_name_becomes_a_tag(tmp_path: Path) -> None:
    with drawing("f", f"words {QUOTED} {SCRIPT}") as draft:
        panel = axes(draft)
        panel.plot([0, 1], label=SCRIPT)
        panel.set_title(QUOTED)
        panel.legend()
    table = ReportTable(
        "t", SCRIPT, [SCRIPT, QUOTED], [[Entry(SCRIPT), Entry(QUOTED, "best")]], SCRIPT
    )
    figure = ReportFigure("f", SCRIPT, draft.svg, SCRIPT, table, QUOTED)
    section = Section(
        "s",
        SCRIPT,
        QUOTED,
        [SCRIPT, QUOTED],
        [table],
        [figure],
        [Detail(SCRIPT, QUOTED)],
        [(SCRIPT, QUOTED)],
        [DrawnMolecule(SCRIPT, QUOTED, [(QUOTED, SCRIPT)])],
    )
    page = write_page([section], tmp_path / "page.html", SCRIPT, QUOTED, files=tmp_path)
    page = page.read_text("utf-8")
    assert page.count("&lt;script&gt;") > 8  # they are all shown
    assert "<script>alert" not in page and "<img" not in page
    markdown = (tmp_path / "tables" / "t.md").read_text("utf-8")
    assert "<script>" not in markdown and "<img" not in markdown


@pytest.mark.parametrize(
    "cell",
    [
        "=1+1",
        "@SUM(A1)",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "\tx",
        "\r=1",
        "+\r=1",
        "-5%+1",
        "--1",
    ],
)
def test_no_cell_becomes_a_formula(cell: str, tmp_path: Path) -> None:
    assert guard(cell) == "'" + cell.replace("\r", "\n")
    table = ReportTable("t", "", ["name", cell], [[Entry("a"), Entry(cell)]])
    rows = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    assert len(rows) == 2
    assert all(one[:1] not in "=+@-\t\r" or not one for row in rows for one in row)


@pytest.mark.parametrize(
    "results", ["[]", "{}", '{"data": 1, "test": []}', '{"test": {"mean": "x"}}']
)
def test_untrusted_results_give_a_clear_error(results: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(results)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(GrassError, match=r"results in .* are damaged"):
        write_report([tmp_path], tmp_path / "page.html")


def test_names_from_untrusted_run_folders_are_not_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    monkeypatch.setenv("GRASS_OPS", "reference")
    (tmp_path / "in.csv").write_text("smiles,=cmd\nCCO,=1+1\n")
    model = tiny_model()
    model = replace(model, card={**model.card, "table": {"smiles": "smiles", "targets": ["=y"]}})
    predict_table([model], tmp_path / "in.csv", tmp_path / "out.csv", rewirings=1, workers=1)
    with (tmp_path / "out.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert header[:3] == ["smiles", "'=cmd", "'=y_pred"] and row[:2] == ["CCO", "'=1+1"]


@pytest.mark.parametrize(
    "cell",
    [
        "-3.25",
        "+1e5",
        "",
        "C=O",
        "-inf",
        "a@b",
        "-0.5 ± 0.1 (n = 3)",
        "-",
        "--",
        "+",
        "-1,5",
        "-5 %",
        "-5%",
    ],
)
def test_numbers_and_molecules_stay_as_they_are(cell: str) -> None:
    assert guard(cell) == cell
