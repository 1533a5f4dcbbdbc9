"""The command ``grass-gnn``: one small file per command, no logic.

A command imports what it works with when it runs: torch alone takes seconds, which neither help
nor completion should.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from grass_gnn.cli import (
    calibrate,
    datasets,
    demo,
    doctor,
    embed,
    evaluate,
    explain,
    export,
    finetune,
    info,
    predict,
    report,
    reproduce,
    serve,
    train,
    tune,
)
from grass_gnn.cli.common import EPILOG, err, plain
from grass_gnn.cli.look import Command, Group, help_as_asked_for
from grass_gnn.errors import GrassError, is_out_of_memory

app = typer.Typer(
    cls=Group,
    name="grass-gnn",
    help="GRASS, a graph neural network: train it, evaluate it, take it apart.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OWN_DATA = "Your own data"
PAPER = "The paper"
MODELS = "Models and this machine"


def _add(panel: str, command: Callable[..., None], examples: str) -> None:
    app.command(cls=Command, rich_help_panel=panel, epilog=examples)(command)


_add(OWN_DATA, train.train, train.EXAMPLES)
_add(OWN_DATA, predict.predict, predict.EXAMPLES)
_add(OWN_DATA, calibrate.calibrate, calibrate.EXAMPLES)
_add(OWN_DATA, tune.tune, tune.EXAMPLES)
_add(OWN_DATA, finetune.finetune, finetune.EXAMPLES)
_add(OWN_DATA, explain.explain, explain.EXAMPLES)
_add(OWN_DATA, embed.embed, embed.EXAMPLES)
_add(OWN_DATA, export.export, export.EXAMPLES)
_add(PAPER, demo.demo, demo.EXAMPLES)
_add(PAPER, reproduce.reproduce, reproduce.EXAMPLES)
_add(PAPER, report.report, report.EXAMPLES)
app.add_typer(datasets.app, name="datasets", rich_help_panel=PAPER)
_add(MODELS, serve.serve, serve.EXAMPLES)
_add(MODELS, evaluate.evaluate, evaluate.EXAMPLES)
_add(MODELS, info.info, info.EXAMPLES)
_add(MODELS, doctor.doctor, doctor.EXAMPLES)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; errors of the user's are one sentence, and exit code 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    help_as_asked_for()
    try:
        code = app(arguments, prog_name="grass-gnn", standalone_mode=False)
        status = code if isinstance(code, int) else 0
    except GrassError as error:
        if debug:
            raise
        _complain(str(error))
        status = 1
    except (typer.Abort, KeyboardInterrupt):
        err.print("Stopped.")
        status = 130
    except typer.Exit as stop:
        status = stop.exit_code
    except Exception as error:
        if not debug and is_out_of_memory(error):
            _complain("There is not enough memory: try smaller batches.")
            return 1
        if debug or not hasattr(error, "format_message"):
            raise
        _complain(error.format_message())
        status = 2
    return status


def _complain(sentence: str) -> None:
    # One line however long: it is searched for, and quoted in bug reports.
    err.print(f"[bold red]Error:[/] {plain(sentence)}", soft_wrap=True)


def run() -> None:
    """Entry point of the installed command."""
    # Torch, not imported yet, then puts large tensors in large pages: a tenth of a step's time on a
    # graph of a million nodes.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    sys.exit(main())
