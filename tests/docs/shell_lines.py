"""Lines of shell blocks: our commands are run at small sizes, others are only checked."""

import re
import tomllib

import typer.main
from page_blocks import ROOT

from grass_gnn.cli import app, main

OURS = ("grass-gnn", ".venv/bin/grass-gnn")
PYTHONS = ("python", "python3", ".venv/bin/python")
PIPS = ("pip", ".venv/bin/pip")
# These wait for a browser, or take long at any size; each has tests of its own.
PARSED_ONLY = ("serve", "demo", "export")
SMALL_MODEL = [
    *("--set", "model.layers=2", "--set", "model.dim=8", "--set", "encoding.steps=4"),
]
SHORT = [
    *("--epochs", "1", "--set", "training.batch_size=32"),
    *("--set", "evaluation.statistics_passes=1", "--set", "evaluation.rewirings=2"),
]
FEW_REWIRINGS = ["--rewirings", "2"]
# What is added to a command so that it takes a second. Options that are given twice count as last.
SMALL = {
    "train": [*SHORT, *SMALL_MODEL],
    "tune": [*SHORT, *SMALL_MODEL, "--trials", "1"],
    "finetune": SHORT,
    **dict.fromkeys(("predict", "embed", "explain", "calibrate", "evaluate"), FEW_REWIRINGS),
}
FEWER = {"--generate": "6,3,3", "--folds": "2"}  # in the place of what a page says


def parse(words: list[str]) -> None:
    """Read a command line as ``grass-gnn`` does, and do nothing else; errors are raised."""
    command, context = typer.main.get_command(app), None
    name, rest = "grass-gnn", [word for word in words if word != "--debug"]
    while hasattr(command, "commands"):
        context = command.make_context(name, rest, parent=context)
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


def run(words: list[str]) -> None:
    """Run a command line as written, but at a small size; it must succeed."""
    parse(words)
    if words[:1] and words[0] in PARSED_ONLY:
        return
    fewer = [item for option, few in FEWER.items() if option in words for item in (option, few)]
    status = main([*words, *SMALL.get(words[0], []), *fewer]) if words else 0
    assert status == 0, f"{' '.join(words)}: exit code {status}"


def check_other(words: list[str]) -> None:
    """Other commands must name a target, file or extra that exists."""
    program, *rest = words
    if program == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        for target in rest:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.M), f"make {target}"
    elif program in PIPS:
        for extra in re.findall(r"(?:grass-gnn|\.)\[([\w,]+)\]", " ".join(rest)):
            known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
            unknown = set(extra.split(",")) - set(known["project"]["optional-dependencies"])
            assert not unknown, f"no such extra: {unknown}"
    elif program in PYTHONS:
        _check_script(rest)
    else:
        raise AssertionError(f"{program} cannot be run here: mark the block as illustrative")


def _check_script(words: list[str]) -> None:
    """The script must exist, and its source must contain the given options."""
    file = ROOT / words[0]
    assert file.is_file(), f"no such script: {words[0]}"
    source = file.read_text("utf-8")
    for option in [word.partition("=")[0] for word in words[1:] if word.startswith("--")]:
        assert f'"{option}"' in source, f"{words[0]} has no {option}"


def split_environment(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Variables that are set before a command, and the command."""
    values = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, values[name] = words[0].partition("=")
        words = words[1:]
    return values, words
