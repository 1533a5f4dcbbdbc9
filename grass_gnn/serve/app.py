"""The page as an application: a few routes, a guard before them, and one model behind them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from grass_gnn.errors import GrassError, is_out_of_memory
from grass_gnn.serve.limits import Guard, Refused, Turns, read_body, refusal
from grass_gnn.serve.molecules import MoleculeView
from grass_gnn.serve.views import View

_CHUNK = 16  # rows that are predicted at a time: between them others have their turn


def make_app(view: View, title: str, card: Sequence[tuple[str, str]], host: str) -> ASGIApp:
    """The page of a view.

    Args:
        view: What answers.
        title: Name of the model.
        card: What stands in the model's card.
        host: Where the page is served; requests that name another host are refused.
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
        GrassError: _sentence,
        HTTPException: _no_such_thing,
        Exception: _failure,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host, view.limits)


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

    async def look(self, request: Request) -> Response:
        """Draw one molecule or graph."""
        async with self.turns.admitted():
            body = await read_body(request, self.view.limits.body)
            try:
                asked = self.view.question.model_validate_json(body)
            except ValidationError as error:
                where = ".".join(map(str, error.errors()[0]["loc"])) or "all of it"
                raise GrassError(f"The question is not understood ({where}).") from None
            if asked.rewiring is not None and asked.rewiring >= self.view.rewirings:
                raise GrassError(f"There are {self.view.rewirings} rewirings to look at.")
            return JSONResponse(await self.turns.work(self.view.look, asked))

    async def predict(self, request: Request) -> Response:
        """Predict for all rows of what was sent; a reader who has left is not waited for."""
        assert isinstance(self.view, MoleculeView)
        async with self.turns.admitted():
            body = await read_body(request, self.view.limits.body)
            is_table = request.query_params.get("as") == "table"
            sheet = await self.turns.work(self.view.read, body, is_table)
            answers: list[Any] = []
            for start in range(0, len(sheet.rows), _CHUNK):
                if await request.is_disconnected():
                    raise Refused(499, "The question was withdrawn.")
                answers += await self.turns.work(self.view.answer, sheet, start, start + _CHUNK)
            return JSONResponse(self.view.show(sheet, answers))


async def _sentence(request: Request, error: Exception) -> Response:
    return refusal(error.status if isinstance(error, Refused) else 400, str(error))


async def _no_such_thing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, "There is no such page here.")


async def _failure(request: Request, error: Exception) -> Response:
    if is_out_of_memory(error):
        return refusal(500, "There is not enough memory for this question.")
    return refusal(500, "Something went wrong; the terminal says what.")
