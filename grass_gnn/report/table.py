"""Tables in several formats, and number formatting."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field

from grass_gnn.data.tables.files import guard
from grass_gnn.experiments.measured import Measured
from grass_gnn.experiments.published import Published

EMPTY = "–"


def number(value: float, digits: int = 4) -> str:
    """A number with this many significant digits; large numbers are whole.

    Example:
        >>> number(0.047012), number(83.75), number(1234.5), number(1.37e-7, 3)
        ('0.0470', '83.75', '1,234', '1.37e-7')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3:
        mantissa, _, exponent = f"{value:.{max(digits - 2, 1)}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = digits if size < 0 else max(digits - 1 - size, 0)
    return f"{value:,.{decimals}f}"


def signed(text: str) -> str:
    """A number with a minus sign instead of a hyphen."""
    return text.replace("-", "−")


def with_spread(value: float, spread: float) -> tuple[str, str]:
    """A value and its standard deviation, rounded to two significant digits of the latter.

    Example:
        >>> with_spread(-2.30519, 0.1234), with_spread(0.5, 0.0)
        (('−2.31', '0.12'), ('0.5000', ''))
    """
    if spread <= 0 or not math.isfinite(spread):
        return signed(number(value)), ""
    decimals = 1 - math.floor(math.log10(spread))
    if not 0 <= decimals <= 5:
        return signed(number(value)), number(spread, 2)
    return signed(f"{value:.{decimals}f}"), f"{spread:.{decimals}f}"


def duration(seconds: float) -> str:
    """A duration in the format of the paper."""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 1 else f"{seconds:.2g}s"
    return f"{int(seconds // 60)}m {int(seconds % 60)}s"


def measured_text(measured: Measured | None, measure: str = "score") -> str:
    """Mean ± standard deviation, and the number of seeds."""
    if measured is None:
        return EMPTY
    if measure == "variance" and measured.mean == 0:
        return "Deterministic"
    if measure == "preparation_seconds":
        return duration(measured.mean)
    if measure == "epoch_seconds":
        return f"{measured.mean:.2f} ± {measured.spread or 0:.2f}"
    if measure == "peak_memory":
        return f"{measured.mean:,.0f}"
    text = number(measured.mean)
    if measured.spread is not None:
        decimals = len(text.partition(".")[2])
        small = "e" in text
        text += f" ± {number(measured.spread, 3) if small else f'{measured.spread:.{decimals}f}'}"
    return f"{text} (n = {measured.runs})"


def published_text(published: Published) -> str:
    """A number as the paper prints it."""
    return EMPTY if published.text == "-" else published.text


# Marks of the best and the second best number of a column.
BEST, SECOND = "best", "second"


@dataclass(frozen=True)
class Entry:
    """One cell."""

    text: str
    mark: str = ""  # BEST, SECOND or nothing


@dataclass(frozen=True)
class ReportTable:
    """A table; the first column names the rows."""

    name: str  # of its files, without ending
    title: str
    columns: list[str]
    rows: list[list[Entry]]
    note: str = ""
    emphasised: set[int] = field(default_factory=set)  # highlighted rows
    prose: bool = False  # columns of text, which may wrap

    def to_markdown(self) -> str:
        """The table as Markdown."""
        columns = [_escape(column) for column in self.columns]
        rows = [columns, ["---", *["---:"] * (len(self.columns) - 1)]]
        rows += [[_markdown(entry) for entry in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        note = f"\n{_escape(self.note)}\n" if self.note else ""
        return f"**{_escape(self.title)}**\n\n" + "\n".join(lines) + "\n" + note

    def to_csv(self) -> str:
        """The table as CSV, without marks."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([guard(column) for column in self.columns])
        writer.writerows([guard(entry.text) for entry in row] for row in self.rows)
        return text.getvalue()

    def to_latex(self) -> str:
        """The table as LaTeX."""
        head = " & ".join(_latex(column) for column in self.columns)
        body = "\n".join(" & ".join(_marked(entry) for entry in row) + r" \\" for row in self.rows)
        return (
            "\\begin{table}\n\\caption{"
            + _latex(self.title + ". " + self.note)
            + "}\n\\centering\n"
            "\\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}\n\\hline\n"
            f"{head} \\\\\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n\\end{{table}}\n"
        )


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _markdown(entry: Entry) -> str:
    text = _escape(entry.text)
    return f"**{text}**" if entry.mark == BEST else f"*{text}*" if entry.mark == SECOND else text


def _marked(entry: Entry) -> str:
    command = {BEST: r"\textbf", SECOND: r"\textit"}.get(entry.mark)
    return f"{command}{{{_latex(entry.text)}}}" if command else _latex(entry.text)


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "×": r"$\times$",
    "−": "$-$",
    "λ": r"$\lambda$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "·": r"$\cdot$",
    "²": r"$^2$",
    "√": r"$\surd$",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
