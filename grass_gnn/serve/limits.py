"""Limits of the page: origin, size, rate and number of simultaneous requests."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
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
    """Limits on the size and number of requests."""

    body: int = 2_000_000  # bytes of a request
    rows: int = 500  # of a table
    atoms: int = 300  # of a molecule
    nodes: int = 400  # of a graph to draw
    questions: int = 240  # requests per minute and client
    waiting: int = 8  # requests in progress or in the queue; half of them from one client
    body_seconds: float = 20.0  # for the body of a request to arrive


class Refused(GrassError):
    """A request that is refused, with an HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def refusal(status: int, sentence: str) -> JSONResponse:
    """A response with an error message."""
    headers = {"Retry-After": "5"} if status in (429, 503) else None
    return JSONResponse({"error": sentence}, status, headers)


class Page:
    """The application with the checks that come before it.

    Only requests to the page's own address are answered, so that no other web page can make a
    browser send requests here by pointing its own name at this machine (DNS rebinding), and only
    requests by the page's own scripts. Starlette's ``TrustedHostMiddleware`` is not used because it
    knows neither IPv6 addresses nor "any literal address", which ``--host 0.0.0.0`` needs.

    Args:
        app: The application.
        host: Where the page is served (``--host``).
        limits: How often requests may come.
        close: Called when the server is about to stop.
    """

    def __init__(
        self, app: ASGIApp, host: str, limits: Limits, close: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.limits, self.close = app, limits, close
        self._own = {"localhost", host.lower()}
        self._everywhere = not is_loopback(host)
        self._times: dict[str, deque[float]] = {}  # of the last requests of each client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request (ASGI)."""
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
            return refusal(403, "This page answers only requests to its own address.")
        if request.method != "POST":
            return None
        if request.headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return refusal(403, "Requests are accepted from this page only.")
        return self._refuse_frequent(client_of(request))

    def _refuse_frequent(self, client: str) -> JSONResponse | None:
        most, now = self.limits.questions, time.monotonic()
        for other in [name for name, times in self._times.items() if now - times[-1] > 60]:
            del self._times[other]
        times = self._times.setdefault(client, deque(maxlen=most))
        if len(times) == most and now - times[0] < 60:
            return refusal(429, f"More than {most} requests within a minute: try again later.")
        times.append(now)
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
        return self._everywhere or address.is_loopback  # an address cannot be rebound


def client_of(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request, if it is small enough and arrives in time."""
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise Refused(413, f"The page accepts up to {limits.body / 1e6:.3g} MB.")
    except TimeoutError:
        raise Refused(408, "The request did not arrive in time.") from None
    except ClientDisconnect:
        raise Refused(499, "The client closed the connection.") from None
    return bytes(body)


class Turns:
    """Runs functions in a thread, one at a time: each can use all cores, and memory is bounded.

    Clients take turns, so that one with many or long requests does not keep the others waiting.

    Args:
        waiting: Maximum number of requests in progress or in the queue; others are refused. One
            client may have half of them.
    """

    def __init__(self, waiting: int) -> None:
        self._waiting, self._inside = waiting, Counter[str]()
        self._busy, self._closing = False, asyncio.Event()
        # Those who wait, by client; the first client is next, and is the last one after its turn.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def admitted(self, client: str = "") -> AsyncIterator[None]:
        """Admit a request of a client, unless too many are waiting."""
        if self._inside.total() >= self._waiting or self._inside[client] >= self._waiting / 2:
            raise Refused(503, "The model is busy with other requests: try again in a moment.")
        self._inside[client] += 1
        try:
            yield
        finally:
            self._inside[client] -= 1
            self._inside += Counter()  # forget clients without requests

    async def work(
        self, client: str, function: Callable[..., Answer], *arguments: object
    ) -> Answer:
        """Call a function when it is the turn of a client, without blocking the event loop."""
        await self._wait(client)
        try:
            # A cancelled request does not wait for its thread: this is how the server stops.
            return await to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
        finally:
            self._next()

    async def _wait(self, client: str) -> None:
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self._next()
            raise

    def _next(self) -> None:
        while self._queues:
            client = next(iter(self._queues))
            queue = self._queues.pop(client)
            turn = queue.popleft()
            if queue:
                self._queues[client] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        """Refuse the requests in progress: the server is about to stop."""
        self._closing.set()

    async def unless_closing(self, answer: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for an answer; if the server stops first, refuse the request."""
        task = asyncio.ensure_future(answer)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({task, closing}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Refused(503, "The server is shutting down.")
        finally:
            task.cancel()
            closing.cancel()
