"""The command ``grass-gnn``: one file per command; the logic is in ``grass_gnn.api``.

Commands import what they need when they run: importing torch takes seconds, which would slow down
``--help`` and completion.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

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
    pretrain,
    report,
    reproduce,
    serve,
    train,
    tune,
)
from grass_gnn.cli.common import EPILOG, Command, Group, err, out, plain, say
from grass_gnn.errors import GrassError, is_out_of_memory

app = typer.Typer(
    cls=Group,
    name="grass-gnn",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

START = "Get started"
OWN_DATA = "Your own data"
MODELS = "Trained models"
PAPER = "The paper"


@app.callback()
def grass_gnn(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """GRASS, a graph neural network: train, evaluate, predict and explain."""
    if version:
        from grass_gnn import __version__

        out.print(f"grass-gnn {__version__}")
    elif context.invoked_subcommand is None:
        context.get_help()


def _add(panel: str, command: Callable[..., None], examples: str) -> None:
    app.command(cls=Command, rich_help_panel=panel, epilog=examples)(command)


_add(START, demo.demo, demo.EXAMPLES)
_add(START, doctor.doctor, doctor.EXAMPLES)
_add(OWN_DATA, train.train, train.EXAMPLES)
_add(OWN_DATA, predict.predict, predict.EXAMPLES)
_add(OWN_DATA, calibrate.calibrate, calibrate.EXAMPLES)
_add(OWN_DATA, tune.tune, tune.EXAMPLES)
_add(OWN_DATA, finetune.finetune, finetune.EXAMPLES)
_add(OWN_DATA, pretrain.pretrain, pretrain.EXAMPLES)
_add(MODELS, info.info, info.EXAMPLES)
_add(MODELS, report.report, report.EXAMPLES)
_add(MODELS, evaluate.evaluate, evaluate.EXAMPLES)
_add(MODELS, explain.explain, explain.EXAMPLES)
_add(MODELS, embed.embed, embed.EXAMPLES)
_add(MODELS, export.export, export.EXAMPLES)
_add(MODELS, serve.serve, serve.EXAMPLES)
_add(PAPER, reproduce.reproduce, reproduce.EXAMPLES)
app.add_typer(datasets.app, name="datasets", rich_help_panel=PAPER)


class _MessageHandler(logging.Handler):
    """Prints the messages of the library on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        say(self.format(record))


@contextmanager
def _messages() -> Iterator[None]:
    """Show the messages that the library logs."""
    logger, handler = logging.getLogger("grass_gnn"), _MessageHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; a :class:`GrassError` is shown as one sentence, with exit code 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    try:
        with _messages():
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
            _complain("Out of memory: try smaller batches (--set training.batch_size=N).")
            return 1
        if debug or not hasattr(error, "format_message"):
            raise
        _complain(error.format_message())
        status = 2
    return status


def _complain(sentence: str) -> None:
    # One line, however long, so that it can be searched for and quoted.
    err.print(f"[bold red]Error:[/] {plain(sentence)}", soft_wrap=True)


def run() -> None:
    """Entry point of the installed command."""
    # Must be set before torch is imported: large tensors then use huge pages, which saves a tenth
    # of the time of a step on a graph with a million nodes.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Likewise: torch's threads then spin for a shorter time before they sleep. With libgomp's
    # default, two threads are slower than one as soon as other processes need the processors.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # SIGTERM unwinds the stack, so that temporary files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
