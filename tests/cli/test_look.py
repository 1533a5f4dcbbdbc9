"""Help is fast and readable, and output is plain text outside a terminal."""

import importlib
import inspect
import json
import os
import pkgutil
import pty
import subprocess
import sys

import pytest
from rich.table import Table

import grass_gnn
from grass_gnn.cli import common, main
from grass_gnn.cli.common import console, show_results
from grass_gnn.cli.predict import predict
from grass_gnn.data.tables.parsing import MAX_ATOMS

ALL_HELP = """
import contextlib, io, json, sys
import typer.main
from grass_gnn.cli import app, main

def words(group, before):
    yield before
    for name, command in getattr(group, "commands", {}).items():
        yield from words(command, [*before, name])

pages = {}
for command in words(typer.main.get_command(app), []):
    with contextlib.redirect_stdout(io.StringIO()) as page:
        assert main([*command, "--help"]) == 0
    pages[" ".join(command)] = page.getvalue()
heavy = [name for name in ("torch", "numpy", "scipy", "rdkit", "lightning") if name in sys.modules]
print(json.dumps({"pages": pages, "heavy": heavy}))
"""


@pytest.fixture(scope="module")
def helped():
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_no_help_imports_what_takes_seconds(helped):
    assert {"train", "predict", "datasets stats"} < set(helped["pages"])
    assert helped["heavy"] == []


@pytest.mark.parametrize("arguments", [["info", "zinc"], ["predict", "zinc", "in.csv"]])
def test_info_and_predict_import_only_what_they_need(arguments, tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "in.csv").write_text("smiles\nCCO\nc1ccccc1\n")
    heavy = (
        "torch_geometric",
        "lightning",
        "torchmetrics",
        "matplotlib",
        "pandas",
        "torch._dynamo",
    )
    code = (
        f"import sys; from grass_gnn.cli import main; assert main({arguments!r}) == 0; "
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
    if arguments[0] == "predict":  # where it is written by default
        assert len((tmp_path / "in-predicted.csv").read_text().splitlines()) == 3


def test_every_command_has_examples_and_no_bare_types(helped):
    for name, page in helped["pages"].items():
        if name:
            assert "Examples" in page and f"$ grass-gnn {name}" in page, name
        for raw in ("<bool>", "<str>", "<path>", "<int", "<float", "<list"):
            assert raw not in page, name
        assert "\x1b[" not in page


def test_the_first_page_groups_the_commands(helped):
    first = helped["pages"][""]
    places = [first.index(title) for title in ("Your own data", "Trained models", "The paper")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("changes", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_that_wants_no_colours_gets_none(changes, coloured):
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    main_end, other_end = pty.openpty()
    code = (
        "from grass_gnn.cli import common, main; main(['info', '--help']); common.out.print('[b]x')"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        stdout=other_end,
        env={**env, "TERM": "xterm-256color", **changes},
        check=True,
    )
    os.close(other_end)
    shown = b""
    while b"\nx" not in shown.replace(b"\x1b[1m", b"") and (more := os.read(main_end, 65536)):
        shown += more
    os.close(main_end)
    assert b"PRESET" in shown
    assert (b"\x1b[" in shown) is coloured


def test_tables_in_a_pipe_are_columns_of_whole_lines(capsys):
    table = Table("name", "value", title="a title")
    table.add_row("first", "words " * 50)
    table.add_row("second", "few")
    common.print_table(table)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == ["name    value", f"first   {'words ' * 50}".rstrip(), "second  few"]


def test_tables_on_a_screen_have_a_frame(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(common, "out", console())
    common.print_table(Table("name"))
    assert "┏" in capsys.readouterr().out


def test_a_long_message_in_a_log_is_one_line(capsys):
    common.say("long " * 60)
    common.out.print("[bold]long[/] " * 60)
    said = capsys.readouterr()
    assert said.err.count("\n") == said.out.count("\n") == 1


def test_an_error_keeps_its_brackets_and_its_line(capsys):
    assert main(["info", "no[bold]such" + "x" * 200]) == 1
    error = capsys.readouterr().err
    assert "no[bold]such" in error and error.count("\n") == 1


def test_public_names_are_there_and_imported_when_asked_for():
    names = dir(grass_gnn)
    assert names == sorted([*grass_gnn.__all__, "GRASSClassifier", "GRASSRegressor"])
    for name in names:
        assert getattr(grass_gnn, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'grass'"):
        _ = grass_gnn.grass  # type: ignore[attr-defined]


def test_no_function_shadows_a_module():
    packages = [
        grass_gnn,
        *(
            importlib.import_module(f"grass_gnn.{name}")
            for name in ("api", "data", "encoding", "evaluation", "nn", "rewiring", "training")
        ),
    ]
    for package in packages:
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        public = set(getattr(package, "__all__", ()))
        assert not modules & public, package.__name__


def test_star_import_needs_no_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None; from grass_gnn import *; print(fit, tune)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_limit_of_atoms_is_the_readers():
    assert inspect.signature(predict).parameters["max_atoms"].default == MAX_ATOMS


def test_the_std_of_members_is_not_called_one_over_rewirings(capsys):
    row = {"metric": "mae", "mean": 1.0, "variance": 0.0, "averaged": {"4": 1.0}}
    row |= {"metrics": {"mae": (1.0, (0.9, 1.1))}, "spread_correlation": 0.25}
    show_results({"test": row})
    assert "std over rewirings on test" in capsys.readouterr().out
    show_results({"test": row | {"members": {"network": {"mae": 1.0}}}})
    assert "the uncalibrated std on test" in capsys.readouterr().out
