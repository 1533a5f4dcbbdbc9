"""Sources of the reference pages: help of all commands, docstrings, shapes, descriptions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest
from page_blocks import ROOT
from shell_lines import parse, split_environment

from tools.website.api import TOP, packages, public_names
from tools.website.commands import all_commands, examples, parameters
from tools.website.docstrings import as_markdown
from tools.website.reference import pages
from tools.website.settings import sections

PACKAGE = ROOT / "grass_gnn"
WITH_SHAPES = [
    PACKAGE / "ops" / "reference.py",
    *(
        file
        for folder in ("nn", "encoding", "rewiring")
        for file in (PACKAGE / folder).glob("*.py")
    ),
]
CLASSES = {
    node.name: node
    for file in WITH_SHAPES
    for node in ast.parse(file.read_text("utf-8")).body
    if isinstance(node, ast.ClassDef)
}
COMMANDS = dict(all_commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    silent = [one.name for one in parameters(command) if not one.help]
    assert not silent, f"options without help: {silent}"
    lines = examples(command)
    assert any(line.startswith(f"grass-gnn {name}") for line in lines), "no example of its own"
    for line in lines:
        _, words = split_environment(line.partition(" #")[0].split())
        assert words[0] == "grass-gnn"
        parse(words[1:])


def test_only_commands_that_take_bundled_tables_mention_them() -> None:
    for name, command in COMMANDS.items():
        texts = " ".join(one.help or "" for one in parameters(command))
        assert "bundled" not in texts or "solubility" in texts, name


def test_every_setting_is_described() -> None:
    silent = [
        f"{name}.{key}"
        for name, _, fields in sections()
        for key, field in fields.items()
        if not field.description
    ]
    assert not silent


def test_pages_made_from_the_code_are_those_of_the_code() -> None:
    for path, text in pages().items():
        assert path.read_text("utf-8") == text, f"{path.name} is of an older code: run make docs"


def test_every_public_name_has_a_docstring() -> None:
    package = griffe.load(TOP, search_paths=[ROOT])
    paths = {path for name in packages() for path in public_names(f"{TOP}.{name}").values()}
    paths |= set(public_names(TOP).values())
    assert len(paths) > 100
    silent = []
    for path in sorted(paths):
        found = _object(package, path)
        if found.docstring is None or not found.docstring.value.strip():
            silent.append(path)
    assert not silent


def _object(package: griffe.Module, path: str) -> griffe.Object:
    """An object by its full name; a module takes precedence over a function of the same name."""
    found = package
    for part in path.split(".")[1:]:
        found = found.modules.get(part) or found[part]
    return found.members[path.rpartition(".")[2]] if found.is_module else found


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Public functions and methods, with docstrings of their class and of what they override."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, ""
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = ancestors(node)
            for method in methods(node):
                inherited = [
                    ast.get_docstring(one) or ""
                    for base in bases
                    for one in methods(base)
                    if one.name == method.name
                ]
                yield method, "".join([ast.get_docstring(node) or "", *inherited])


def ancestors(node: ast.ClassDef) -> list[ast.ClassDef]:
    bases = [CLASSES[name] for name in map(ast.unparse, node.bases) if name in CLASSES]
    return [*bases, *(one for base in bases for one in ancestors(base))]


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


@pytest.mark.parametrize("file", WITH_SHAPES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_functions_of_tensors_document_their_shapes(file: Path) -> None:
    source = file.read_text("utf-8")
    silent = []
    for function, of_class in functions(ast.parse(source)):
        signature = (
            f"{ast.unparse(function.args)} -> {ast.unparse(function.returns or ast.Tuple())}"
        )
        signature = re.sub(r"\w+\[str, Tensor\]", "", signature)  # named tensors have many shapes
        if function.name.startswith("_") or not re.search(r"\bTensor\b", signature):
            continue
        lines = source.splitlines()[function.lineno - 1 : function.body[0].lineno]
        comments = "".join(line.partition("#")[2] for line in lines)
        described = (ast.get_docstring(function) or "") + of_class + comments
        if not re.search(r"\[[^\]\s][^\]]*\]", described):
            silent.append(function.name)
    assert not silent


def test_docstrings_are_read_as_markdown() -> None:
    text = "See :func:`~a.b`.\n\n.. math::\n    x = 1 \\\\\n    y\n\nEnd"
    assert as_markdown(text) == "See `a.b`.\n\n$$\nx = 1 \\\\\ny\n$$\n\nEnd"
