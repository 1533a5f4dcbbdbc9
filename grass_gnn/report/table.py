"""A table for people, and the same as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

from grass_gnn.data.spreadsheets import guard

# How the best and the second best number of a column are marked.
BEST, SECOND = "best", "second"


@dataclass(frozen=True)
class Entry:
    """What stands in a cell."""

    text: str
    mark: str = ""  # BEST, SECOND or nothing


@dataclass(frozen=True)
class ReportTable:
    """A table; the first column names the rows."""

    name: str  # of its files
    title: str
    columns: list[str]
    rows: list[list[Entry]]
    note: str = ""
    emphasised: set[int] = field(default_factory=set)  # rows that the reader looks for
    prose: bool = False  # columns of words, which break into lines

    def to_markdown(self) -> str:
        """For README files."""
        columns = [_escape(column) for column in self.columns]
        rows = [columns, ["---", *["---:"] * (len(self.columns) - 1)]]
        rows += [[_markdown(entry) for entry in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        note = f"\n{_escape(self.note)}\n" if self.note else ""
        return f"**{_escape(self.title)}**\n\n" + "\n".join(lines) + "\n" + note

    def to_csv(self) -> str:
        """For programs: the text of each cell, without marks."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([guard(column) for column in self.columns])
        writer.writerows([guard(entry.text) for entry in row] for row in self.rows)
        return text.getvalue()

    def to_latex(self) -> str:
        """For papers."""
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
