"""Tables and numbers: the same content in every format, everything escaped."""

import csv
import io

import pytest

from grass_gnn.experiments.measured import Measured
from grass_gnn.report.comparison import best_two
from grass_gnn.report.table import BEST, SECOND, Entry, ReportTable, duration, measured_text, number

TABLE = ReportTable(
    "example",
    "100 % of A & B",
    ["", "MAE ↓"],
    [[Entry("a_b | <c>"), Entry("0.1 ± 0.2", BEST)], [Entry("D → E"), Entry("1", SECOND)]],
    "A note.",
)


def test_markdown():
    lines = TABLE.to_markdown().splitlines()
    assert lines[0] == "**100 % of A & B**"
    assert lines[4] == r"| a_b \| &lt;c> | **0.1 ± 0.2** |"
    assert lines[5] == "| D → E | *1* |" and lines[-1] == "A note."


def test_csv_has_no_marks():
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert rows == [["", "MAE ↓"], ["a_b | <c>", "0.1 ± 0.2"], ["D → E", "1"]]


def test_latex_is_escaped():
    text = TABLE.to_latex()
    assert r"100 \% of A \& B" in text and r"a\_b" in text
    assert r"\textbf{0.1 $\pm$ 0.2}" in text and r"\textit{1}" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.047012, "0.0470"), (83.754, "83.75"), (1234.5, "1,234"), (0, "0"), (float("nan"), "nan")],
)
def test_numbers(value, text):
    assert number(value) == text


def test_measured_numbers():
    assert measured_text(None) == "–"
    assert measured_text(Measured(0.4312, None, 1)) == "0.4312 (n = 1)"
    assert measured_text(Measured(0.4312, 0.01, 3)) == "0.4312 ± 0.0100 (n = 3)"
    assert measured_text(Measured(0.0, None, 1), "variance") == "Deterministic"
    assert measured_text(Measured(1.374e-7, 1e-8, 2), "variance") == "1.37e-7 ± 1.0e-8 (n = 2)"
    assert measured_text(Measured(92.4, None, 1), "preparation_seconds") == "1m 32s"
    assert duration(59.4) == "59s"


def test_best_and_second_best():
    assert best_two([3, 1, None, 2, 1], "lower") == ["", BEST, "", SECOND, BEST]
    assert best_two([3, 1, 2], "higher") == [BEST, "", SECOND]
