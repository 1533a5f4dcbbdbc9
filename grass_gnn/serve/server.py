"""The HTTP server of the page: address, time-outs of connections, shutdown."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from grass_gnn.errors import GrassError, first_line
from grass_gnn.serve.limits import Page

REQUEST_SECONDS = 5.0  # for the headers of a request to arrive
ANSWER_SECONDS = 30.0  # for a client to read what does not fit into the buffers of its answer
WAITING_CONNECTIONS = 32  # clients that have not sent a whole request yet


@dataclass(frozen=True)
class Address:
    """A listening socket, bound before its address is printed."""

    listener: socket.socket
    host: str

    @classmethod
    def bind(cls, host: str, port: int) -> Address:
        """Listen on a port; 0 chooses a free one.

        Raises:
            GrassError: The port is in use, or the host is not this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return cls(socket.create_server((host, port), family=family), host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise GrassError(
                    f"Port {port} is in use: choose another with --port, or 0 for any free one."
                ) from None
            if error.errno == errno.EACCES:
                raise GrassError(
                    f"No permission to use port {port}: choose one above 1023."
                ) from None
            raise GrassError(f"Cannot listen on {host}: {first_line(error)}.") from None

    @property
    def url(self) -> str:
        """The page's address for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        port = self.listener.getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Connection(H11Protocol):
    """uvicorn's connection, closed when a client is too slow to send a request or read an answer.

    uvicorn only has a time-out for idle connections after their first response. The number of
    connections without a complete request is limited as well: beyond the limit, the oldest
    connection of the client with the most of them is closed, so that slow clients cannot keep
    others out.
    """

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _since = 0.0  # when waiting for the client began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; close another connection if too many are waiting."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        waiting = [
            one for one in self.connections if isinstance(one, Connection) and one._is_waiting
        ]
        if len(waiting) > WAITING_CONNECTIONS:
            hosts = Counter(one._host for one in waiting)
            most = max(hosts.values())
            oldest = min((o for o in waiting if hosts[o._host] == most), key=lambda o: o._since)
            oldest._close()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the time-out ends once the headers of a request are complete."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request of the same client."""
        super().on_response_complete()
        self._since = self.loop.time()
        self._watch()

    def pause_writing(self) -> None:
        """The client does not read its answer: wait for a while."""
        super().pause_writing()
        self._unread = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time-outs."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()

    @property
    def _is_waiting(self) -> bool:
        """Whether the client has not sent a whole request since its last answer."""
        if self.transport.is_closing():
            return False
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    @property
    def _host(self) -> str:
        return self.client[0] if self.client else ""

    def _watch(self) -> None:
        """Start the time-out for headers, or cancel it; bodies have a separate one."""
        waits = self.conn.their_state is h11.IDLE
        if waits and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._close)
        elif not waits and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Lets the page refuse the requests in progress before connections are closed."""

    def __init__(self, config: uvicorn.Config, page: Page) -> None:
        super().__init__(config)
        self._page = page

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: called by uvicorn after Ctrl-C or SIGTERM."""
        self._page.close()
        await super().shutdown(sockets)


def serve(page: Page, address: Address) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        page,
        http=Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=2 * WAITING_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )
    try:
        _Server(config, page).run(sockets=[address.listener])
    except KeyboardInterrupt:  # uvicorn has closed all connections and raises the signal again
        return
