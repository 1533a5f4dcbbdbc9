"""MkDocs hook: a page for each package, from the docstrings of its public names."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = "grass_gnn"
INTRODUCTION = """\
# grass_gnn

The names you can import from `grass_gnn`, and the package where each is documented.

"""


@cache
def public_names(package: str) -> dict[str, str]:
    """Public names of a package and where each is defined, read without importing anything.

    A package lists its names in ``__all__`` and imports them, or names their modules in a call of
    ``lazy_names``.
    """
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    listed: list[str] = []
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed += ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                origins.setdefault(one.asname or one.name, f"{node.module}.{one.name}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names":
            for homes in (node.args[1], *(word.value for word in node.keywords)):
                for module, names in ast.literal_eval(homes).items():
                    listed += names
                    home = module if module.startswith(f"{TOP}.") else f"{package}.{module}"
                    origins |= {name: f"{home}.{name}" for name in names}
    return {name: _defined(origins.get(name, f"{package}.{name}"), package) for name in listed}


def _defined(origin: str, package: str) -> str:
    """Follow a name through packages that re-export it."""
    module, _, name = origin.rpartition(".")
    is_package = (ROOT / module.replace(".", "/") / "__init__.py").exists()
    return public_names(module).get(name, origin) if is_package and module != package else origin


def packages() -> list[str]:
    """Packages that have public names."""
    found = sorted(file.parent.name for file in (ROOT / TOP).glob("*/__init__.py"))
    return [name for name in found if public_names(f"{TOP}.{name}")]


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages."""
    homes = {}
    for package in packages():
        names = public_names(f"{TOP}.{package}")
        homes |= dict.fromkeys(names.values(), package)
        summary = ast.get_docstring(
            ast.parse((ROOT / TOP / package / "__init__.py").read_text("utf-8"))
        )
        text = f"# {TOP}.{package}\n\n{summary}\n\n" + _described(names)
        files.append(File.generated(config, f"api/{package}.md", content=text))
    names = public_names(TOP)
    rows = [f"| [`{name}`][{path}] | `{homes.get(path, TOP)}` |\n" for name, path in names.items()]
    own = {name: path for name, path in names.items() if path not in homes}
    text = f"{INTRODUCTION}| name | package |\n|---|---|\n{''.join(rows)}\n{_described(own)}"
    files.append(File.generated(config, "api/index.md", content=text))
    return files


def _described(names: dict[str, str]) -> str:
    return "\n".join(f"::: {path}\n" for path in names.values())
