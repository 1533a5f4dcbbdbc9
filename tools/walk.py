"""List the files of the package that a command walks through, in the order it enters them.

    python tools/walk.py grass-gnn predict zinc molecules.csv -o out.csv
    python tools/walk.py --python "from grass_gnn import load_model; load_model('zinc')"
    python tools/walk.py --write    # the walks of docs/modules.md

A file counts once one of its functions has been entered; importing it does not count.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "modules.md"
TITLE = "## Walks"
INTRODUCTION = """\
Which files a command walks through, in the order in which it first enters a function of each, with
the number of calls. Written by `python tools/walk.py --write`; give the script any other command to
see its walk. A *step back* is a pair of files where the one entered later calls the earlier one.
"""
MOLECULES = "smiles\nCCO\nCC(=O)Oc1ccccc1C(=O)O\n"
SNIPPET = """\
from torch_geometric.data import Data
import torch
from grass_gnn import load_model
ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
graph = Data(
    x=torch.zeros(6, 1, dtype=torch.long),
    edge_index=torch.cat([ring, ring.flip(0)], dim=1),
    edge_attr=torch.ones(12, 1, dtype=torch.long),
)
load_model('zinc').predict([graph], rewirings=2)
"""
# Fewer repetitions of the same steps, so that the profiler does not take minutes.
SMALL = "--set evaluation.rewirings=2 --set evaluation.statistics_passes=1 --set model.layers=4"
WALKS = {
    "grass-gnn train example --epochs 1": "grass-gnn train example --epochs 1 --out run " + SMALL,
    "grass-gnn predict RUN TABLE": "grass-gnn predict run new.csv -o out.csv --rewirings 2",
    'load_model("zinc").predict(graphs)': SNIPPET,
}


class Walk:
    """Profiler hook that records the functions entered, by file, in all threads."""

    def __init__(self, package: Path) -> None:
        self.package = str(package) + "/"
        self.functions: dict[str, Counter[str]] = {}  # by file, in the order of first entry
        self.calls: Counter[tuple[str, str]] = Counter()  # from one file to another
        self._importing = threading.local()

    def __enter__(self) -> "Walk":
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":  # an import: what runs inside it is not counted
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = max(depth + (1 if event == "call" else -1), 0)
            return
        if event == "return" or getattr(self._importing, "depth", 0):
            return
        file = self._file(frame)
        if file is None or file == "_lazy.py":
            return
        self.functions.setdefault(file, Counter())[code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:
            caller = caller.f_back
        origin = self._file(caller) if caller is not None else None
        if origin not in (None, file, "_lazy.py"):
            self.calls[origin, file] += 1

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        return name[len(self.package) :] if name.startswith(self.package) else None

    def steps_back(self) -> list[tuple[str, str]]:
        """Pairs of files where the one entered later calls the one entered earlier."""
        order = {file: number for number, file in enumerate(self.functions)}
        return [pair for pair in self.calls if order[pair[0]] > order[pair[1]]]

    def __str__(self) -> str:
        width = max((len(file) for file in self.functions), default=0)
        lines = []
        for number, (file, entered) in enumerate(self.functions.items(), 1):
            names = dict.fromkeys(name.partition(".<locals>")[0] for name in entered)
            shown = ", ".join(list(names)[:3]) + (", …" if len(names) > 3 else "")
            lines.append(f"{number:>3}  {file:<{width}}  {entered.total():>7}  {shown}")
        back = self.steps_back()
        lines.append(
            f"{len(self.functions)} files, {len(self.calls)} pairs of files that call each other, "
            f"{len(back)} of them steps back"
        )
        return "\n".join(lines)


def walk(command: str) -> Walk:
    """Run a command line that starts with ``grass-gnn``, or Python code, and follow it."""
    import grass_gnn

    words = shlex.split(command) if command.startswith("grass-gnn ") else []
    record = Walk(Path(grass_gnn.__file__).parent)
    if words:
        from grass_gnn.cli import main

        with record:
            status = main(words[1:])
        if status:
            raise SystemExit(status)
    else:
        code = compile(command, "<walk>", "exec")
        code = code.replace(co_name="walk")  # so that the code itself does not count as an import
        with record:
            exec(code, {"__name__": "__main__"})
    return record


def section() -> str:
    """The walks for the page; each runs in its own process, in one temporary folder."""
    parts = [TITLE + "\n", INTRODUCTION]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "new.csv").write_text(MOLECULES, "utf-8")
        for name, command in WALKS.items():
            words = [command] if command is SNIPPET else shlex.split(command)
            flag = ["--python"] if command is SNIPPET else []
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), *flag, *words],
                cwd=folder,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            shown = done.stdout.partition("WALK\n")[2]
            parts.append(f"### `{name}`\n\n```text\n{shown}```\n")
    return "\n".join(parts)


def kept_section() -> str:
    """The walks currently on the page."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    _, found, rest = text.partition(TITLE)
    return found + rest


def main() -> None:
    """Print a walk, or update the page."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--python", metavar="CODE", help="Python code to run")
    parser.add_argument("--write", action="store_true", help="update docs/modules.md")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="grass-gnn and its arguments")
    given = parser.parse_args()
    if given.write:
        text = PAGE.read_text("utf-8").partition(TITLE)[0]
        PAGE.write_text(text.rstrip() + "\n\n" + section(), "utf-8")
    elif given.python or given.command:
        found = walk(given.python or shlex.join(given.command))
        print(f"WALK\n{found}")
    else:
        parser.error("name a command, or give --python CODE or --write")


if __name__ == "__main__":
    main()
