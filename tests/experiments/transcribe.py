"""Read the tables of paper.tex by machine: ``python transcribe.py PAPER.tex > transcription.json``.

Independent of ``paper_results.toml``: for each table, the words and numbers of every column from
top to bottom, rows of names first. Cells that span columns are repeated.
"""

import json
import re
import sys

COMMANDS = r"\\(?:textbf|textcolor\{\w+\}|mbox|textit|citet?\{[^}]*\}|textsuperscript\{[^}]*\})"


def braces(text, start):
    """The end of the group that opens at ``start``."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(text[start : start + 40])


def plain(cell):
    """A cell without its LaTeX, and the number of columns that it spans."""
    cell, span = re.sub(r"\\(?:hline|cline\{[^}]*\})", " ", cell).strip(), 1
    found = re.match(r"\\multicolumn\{(\d+)\}\{[^}]*\}", cell)
    if found:
        span, cell = int(found[1]), cell[found.end() :]
    cell = re.sub(r"\\multirow\{\d+\}\{[^}]*\}", "", cell)
    cell = re.sub(r"\\hspace\{[^}]*\}|~", " ", cell)
    cell = re.sub(COMMANDS, "", cell).replace(r"\rightarrow", "→").replace(r"\#", "#")
    cell = re.sub(r"\\(?:down|up)arrow", "", cell)
    return " ".join(re.sub(r"[{}$]", "", cell).split()), span


def tables(source):
    found = {}
    for block in re.findall(r"\\begin\{table\}.*?\\end\{table\}", source, re.DOTALL):
        label = re.search(r"\\label\{([^}]*)\}", block)[1]
        begin = re.search(r"\\begin\{tabular\}", block).end()
        body = block[braces(block, begin) + 1 : block.index(r"\end{tabular}")]
        columns = []
        for row in re.split(r"\\\\", body):
            place = 0
            for text, span in map(plain, row.split("&")):
                for _ in range(span):
                    while len(columns) <= place:
                        columns.append([])
                    if text:
                        columns[place].append(text)
                    place += 1
        found[label] = columns
    return found


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        json.dump(tables(file.read()), sys.stdout, indent=1, ensure_ascii=False)
        print()
