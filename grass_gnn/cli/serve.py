"""``grass-gnn serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grass_gnn.cli.common import examples, out, plain, say
from grass_gnn.cli.options import Device, Rewirings, RunOrFolds
from grass_gnn.errors import GrassError

EXAMPLES = examples(
    "grass-gnn serve zinc --open",
    "grass-gnn serve runs/solubility --port 0",
    "grass-gnn serve runs/folds --rewirings 4  # all runs of a cross-validation",
)


def serve(
    run: RunOrFolds,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0 for any free port.", min=0, max=65535, metavar="N")
    ] = 8321,
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
    rewirings: Rewirings = 16,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Raw files of the benchmark; those of the run by default.",
            metavar="FOLDER",
        ),
    ] = None,
    device: Device = None,
) -> None:
    """Explore a model in the browser: paste SMILES, see predictions, explanations and rewirings."""
    try:
        from grass_gnn.serve.app import make_app
        from grass_gnn.serve.card import model_card
        from grass_gnn.serve.limits import is_loopback
        from grass_gnn.serve.server import Address
        from grass_gnn.serve.server import serve as serve_page
        from grass_gnn.serve.views import open_view
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise GrassError(
            "The web interface needs Starlette: pip install 'grass-gnn[serve]'."
        ) from None
    from grass_gnn.progress import reporting
    from grass_gnn.uncertainty.ensembles import load_models

    models = load_models([run], device)
    address = Address.bind(host, port)
    with reporting() as progress:
        view = open_view(models, rewirings, data=data, progress=progress)
    view.warm_up()
    name = run.resolve().name if run.exists() else str(run)
    app = make_app(view, name, model_card(models, view), host)
    if not is_loopback(host):
        say(f"Warning: anyone who can reach {host} over the network can use this page.")
    out.print(f"The page is at [bold]{plain(address.url)}[/]. Press Ctrl-C to stop.")
    if open_browser:
        _open(address.url)
    serve_page(app, address)
    say("The page is closed.")


def _open(url: str) -> None:
    import threading
    import webbrowser

    # A text browser in the terminal would block the server.
    threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()
