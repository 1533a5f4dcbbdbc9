"""Write ``docs/modules.md``: the folders of the package in order, and what each file is for.

Everything is read from the code: first lines of docstrings, imports, and the order of layers in
``pyproject.toml``, which import-linter enforces.

python -m tools.module_map
"""

import ast
import tomllib
from pathlib import Path

import grimp

from tools.walk import kept_section

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "grass_gnn"
PAGE = ROOT / "docs" / "modules.md"
TITLE = """\
# Module map

Written from the code by `make modules`. The lowest folders come first. A folder imports only from
those before it, which `make lint` checks. To read the code, start with the
[code tour](code-tour.md).

## Layers

One row for each layer, the highest first; the columns are the same layers, the lowest first. A ●
means that the row imports from the layer of that column, ■ marks the layer itself.
"""


def layers() -> list[str]:
    """Names of folders and single files, lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    order = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    there = [name.strip("()") for name in reversed(order)]
    return [name for name in there if _is_there(name) and not name.startswith("_")]


def _is_there(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name / "__init__.py").exists()


def first_line(file: Path) -> str:
    """The first line of a file's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "`").removesuffix(".")


def picture(names: list[str]) -> str:
    """One line per layer, from the top, with a mark in the column of each layer it imports."""
    graph = grimp.build_graph("grass_gnn", cache_dir=None)
    width = max(len(name) for name in names)
    lines = []
    for height, name in reversed(list(enumerate(names))):
        own = {f"grass_gnn.{name}", *graph.find_descendants(f"grass_gnn.{name}")}
        imported = {
            target.split(".")[1]
            for module in own
            for target in graph.find_modules_directly_imported_by(module)
            if target.count(".")
        }
        marks = ["●" if below in imported else "·" for below in names[:height]]
        lines.append(f"{name:>{width}}  {' '.join([*marks, '■'])}")
    return "\n".join(lines)


def section(name: str) -> str:
    """What a folder is for, and each of its files; one line for a file outside of a folder."""
    folder = PACKAGE / name
    if not folder.is_dir():
        return f"### {name}.py\n\n{first_line(PACKAGE / f'{name}.py')}.\n"
    about = first_line(folder / "__init__.py")
    return "\n".join([f"### {name}\n", f"{about}.\n", _table(folder), *map(_part, _parts(folder))])


def _parts(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/__init__.py"))


def _part(folder: Path) -> str:
    """A folder inside a folder."""
    about = first_line(folder / "__init__.py")
    name = folder.relative_to(PACKAGE).as_posix()
    return "\n".join([f"#### {name}\n", f"{about}.\n", _table(folder)])


def _table(folder: Path) -> str:
    files = sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))
    rows = [f"| `{file.name}` | {first_line(file)} |" for file in files]
    return "\n".join(["| file | what it is for |", "|---|---|", *rows, ""])


def page() -> str:
    """The whole page; the walks at its end are written by ``tools/walk.py``."""
    names = layers()
    shown = f"```text\n{picture(names)}\n```\n"
    files = [section(name) for name in names]
    return "\n".join([TITLE, shown, "## Files\n", *files, kept_section()])


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(layers())} layers")


if __name__ == "__main__":
    main()
