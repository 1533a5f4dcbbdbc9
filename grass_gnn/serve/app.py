"""The page as a web application: its routes, and how a model answers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from anyio import to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from grass_gnn.errors import GrassError, is_out_of_memory
from grass_gnn.serve.limits import Page, Refused, Turns, client_of, read_body, refusal
from grass_gnn.serve.molecules import MoleculeView
from grass_gnn.serve.views import View


def make_app(view: View, title: str, card: Sequence[tuple[str, str]], host: str) -> Page:
    """The page of a model.

    Args:
        view: Predicts and draws.
        title: Name of the model.
        card: Names and values of the model card.
        host: Where the page is served; requests to other hosts are refused.
    """
    site = _Site(view, title, card)
    routes = [
        Route("/", site.page),
        Route("/page.css", site.style),
        Route("/page.js", site.script),
        Route(f"/{view.kind}.js", site.script),
        Route("/look", site.look, methods=["POST"]),
    ]
    if isinstance(view, MoleculeView):
        routes.append(Route("/predict", site.predict, methods=["POST"]))
    handlers: dict[Any, Any] = {
        GrassError: _refused,
        HTTPException: _not_found,
        Exception: _failure,
    }
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=site.lifespan)
    return Page(app, host, view.limits, site.turns.close)


class _Site:
    def __init__(self, view: View, title: str, card: Sequence[tuple[str, str]]) -> None:
        self.view, self.turns = view, Turns(view.limits.waiting)
        templates = Environment(
            loader=PackageLoader("grass_gnn", "serve"), autoescape=True, undefined=StrictUndefined
        )
        self._page = templates.get_template("page.html").render(
            view=view, title=title, card=card, limits=view.limits
        )
        package = files("grass_gnn")
        sheets = (package / "report" / "palette.css", package / "serve" / "page.css")
        self._style = "".join(sheet.read_text("utf-8") for sheet in sheets)
        names = ("page.js", f"{view.kind}.js")
        self._scripts = {f"/{n}": (package / "serve" / n).read_text("utf-8") for n in names}

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    async def style(self, request: Request) -> Response:
        return Response(self._style, media_type="text/css")

    async def script(self, request: Request) -> Response:
        return Response(self._scripts[request.url.path], media_type="text/javascript")

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close the view when the server stops."""
        yield
        self.view.close()

    async def look(self, request: Request) -> Response:
        """Draw one molecule or graph."""
        return await self.turns.unless_closing(self._look(request))

    async def predict(self, request: Request) -> Response:
        """Predict all rows of a table."""
        return await self.turns.unless_closing(self._predict(request))

    async def _look(self, request: Request) -> Response:
        # The body is read first: a slow client must not take up a place in the queue.
        body = await read_body(request, self.view.limits)
        try:
            asked = self.view.question.model_validate_json(body)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))[:100] or "body"
            raise GrassError(f"The request is not valid ({where}).") from None
        if asked.rewiring is not None and asked.rewiring >= self.view.rewirings:
            raise GrassError(f"There are only {self.view.rewirings} rewirings.")
        client = client_of(request)
        async with self.turns.admitted(client):
            return JSONResponse(await self.turns.work(client, self.view.look, asked))

    async def _predict(self, request: Request) -> Response:
        assert isinstance(self.view, MoleculeView)
        body = await read_body(request, self.view.limits)
        client = client_of(request)
        async with self.turns.admitted(client):
            is_table = request.query_params.get("as") == "table"
            sheet = await to_thread.run_sync(self.view.read, body, is_table)
            answers: list[Any] = []
            while (start := len(answers)) < len(sheet.rows):
                if await request.is_disconnected():
                    raise Refused(499, "The client closed the connection.")
                stop = sheet.chunk_end(start)
                answers += await self.turns.work(client, self.view.answer, sheet, start, stop)
            shown = await to_thread.run_sync(self.view.show, sheet, answers)
            return JSONResponse(shown)


async def _refused(request: Request, error: Exception) -> Response:
    return refusal(error.status if isinstance(error, Refused) else 400, str(error))


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, "There is no such page.")


async def _failure(request: Request, error: Exception) -> Response:
    if is_out_of_memory(error):
        return refusal(500, "Not enough memory for this request.")
    return refusal(500, "Something went wrong; see the terminal for details.")
