"""The command ``grass-gnn``: one small file per command, no logic."""

from __future__ import annotations

import sys

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
    train,
    tune,
)
from grass_gnn.cli.common import EPILOG, err
from grass_gnn.errors import GrassError, is_out_of_memory

app = typer.Typer(
    name="grass-gnn",
    help="GRASS, a graph neural network: train it, evaluate it, take it apart.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=tune.EXAMPLES)(tune.tune)
app.command(epilog=finetune.EXAMPLES)(finetune.finetune)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command(epilog=embed.EXAMPLES)(embed.embed)
app.command(epilog=explain.EXAMPLES)(explain.explain)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=info.EXAMPLES)(info.info)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)
app.command(epilog=report.EXAMPLES)(report.report)
app.add_typer(datasets.app, name="datasets")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; errors of the user's are one sentence, and exit code 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [word for word in arguments if word != "--debug"]
    try:
        code = app(arguments, standalone_mode=False)
        status = code if isinstance(code, int) else 0
    except GrassError as error:
        if debug:
            raise
        err.print(f"[bold red]Error:[/] {_plain(str(error))}", highlight=False, soft_wrap=True)
        status = 1
    except (typer.Abort, KeyboardInterrupt):
        err.print("Stopped.")
        status = 130
    except typer.Exit as stop:
        status = stop.exit_code
    except Exception as error:
        if not debug and is_out_of_memory(error):
            err.print("[bold red]Error:[/] There is not enough memory: try smaller batches.")
            return 1
        if debug or not hasattr(error, "format_message"):
            raise
        usage = error.format_message()
        err.print(f"[bold red]Error:[/] {_plain(usage)}", highlight=False, soft_wrap=True)
        status = 2
    return status


def _plain(text: str) -> str:
    """Text with its brackets kept from being read as markup."""
    return text.replace("[", "\\[")


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(main())
