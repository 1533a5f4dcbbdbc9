"""What the page accepts: from whom, how much, how often, and how much at a time."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grass_gnn.errors import GrassError

Answer = TypeVar("Answer")

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """How much is accepted."""

    body: int = 2_000_000  # bytes of a question
    rows: int = 500  # of a table
    atoms: int = 300  # of a molecule
    nodes: int = 400  # of a graph that is drawn
    questions: int = 240  # a minute
    waiting: int = 8  # questions that are being answered, or wait for it


class Refused(GrassError):
    """A question that is not answered; the status says why to programs."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def refusal(status: int, sentence: str) -> JSONResponse:
    """A sentence instead of an answer."""
    headers = {"Retry-After": "5"} if status in (429, 503) else None
    return JSONResponse({"error": sentence}, status, headers)


class Guard:
    """Stands before a page: answers to its own address only, its own scripts, and not too often.

    A name that a stranger's DNS points at this machine is not its address, so that no other page
    can make a browser ask here (DNS rebinding).

    Args:
        app: What answers.
        host: Where the page is served, as ``--host`` says.
        limits: How often questions may come.
    """

    def __init__(self, app: ASGIApp, host: str, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self._own = {"localhost", host.lower()}
        self._everywhere = not is_loopback(host)
        self._times: deque[float] = deque(maxlen=limits.questions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refused = self._refuse(Request(scope))
        await (refused or self.app)(scope, receive, send_guarded)

    def _refuse(self, request: Request) -> JSONResponse | None:
        host = request.headers.get("host", "")
        if not self._is_own(host):
            return refusal(403, "This page answers to its own address only.")
        if request.method != "POST":
            return None
        if request.headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return refusal(403, "Questions are taken from this page only.")
        now = time.monotonic()
        if len(self._times) == self.limits.questions and now - self._times[0] < 60:
            return refusal(
                429, f"More than {self.limits.questions} questions came in a minute: wait a little."
            )
        self._times.append(now)
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._own:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._everywhere or address.is_loopback  # a bare number cannot be rebound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request, unless it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise Refused(413, f"The page takes up to {most / 1e6:.3g} MB at a time.")
    return bytes(body)


class Turns:
    """Work in a thread, one piece at a time: the model has all cores, and memory stays bounded.

    Args:
        waiting: Questions that may be inside; more are refused.
    """

    def __init__(self, waiting: int) -> None:
        self._waiting, self._inside = waiting, 0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Let a question in, unless too many are."""
        if self._inside >= self._waiting:
            raise Refused(503, "The model is busy with other questions: try again in a moment.")
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def work(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a function when it is its turn; the event loop goes on meanwhile."""
        async with self._lock:
            return await run_in_threadpool(function, *arguments)
