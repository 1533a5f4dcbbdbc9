"""Count files, lines and long parameter lists of the package, now and at earlier commits.

python tools/counts.py [REVISION …]
"""

import argparse
import ast
import io
import statistics
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "grass_gnn"
MOST_PARAMETERS = 8


def working_tree() -> dict[str, str]:
    """Source of each Python file of the package, by path."""
    files = (ROOT / PACKAGE).rglob("*.py")
    return {file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in files}


def at_commit(revision: str) -> dict[str, str]:
    """The same at a commit."""
    command = ["git", "-C", str(ROOT), "archive", revision, PACKAGE]
    packed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [member for member in archive if member.name.endswith(".py")]
        return {one.name: archive.extractfile(one).read().decode() for one in files}  # type: ignore[union-attr]


def long_signatures(sources: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Functions with more than ``MOST_PARAMETERS`` parameters, not counting ``self``."""
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                count = len([name for name in names if name not in ("self", "cls")])
                if count > MOST_PARAMETERS:
                    yield count, f"{path.removeprefix(PACKAGE + '/')}:{node.name}"


def counts(sources: dict[str, str]) -> dict[str, int]:
    """The counts for one state of the package."""
    lines = sorted(source.count("\n") for source in sources.values())
    found = [name for _, name in long_signatures(sources)]
    return {
        "files": len(lines),
        "lines": sum(lines),
        "median lines per file": round(statistics.median(lines)),
        "lines of the longest file": lines[-1],
        "files above 500 lines": sum(count > 500 for count in lines),
        f"functions with more than {MOST_PARAMETERS} parameters": len(found),
        "of these, outside the command line": len([x for x in found if not x.startswith("cli/")]),
    }


def main() -> None:
    """Print a table with a column for each commit and one for the working tree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help="a commit to compare with")
    revisions = parser.parse_args().revisions
    states = {name: at_commit(name) for name in revisions} | {"now": working_tree()}
    columns = {name: counts(sources) for name, sources in states.items()}
    print(f"{'':<44}" + "".join(f"{name[:12]:>14}" for name in columns))
    for figure in next(iter(columns.values())):
        values = "".join(f"{column[figure]:>14,}" for column in columns.values())
        print(f"{figure:<44}{values}")
    for count, name in sorted(long_signatures(states["now"]), reverse=True):
        if not name.startswith("cli/"):
            print(f"{count:>4} parameters: {name}")


if __name__ == "__main__":
    main()
