"""The page on an address: bound to this machine unless told otherwise, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from grass_gnn.errors import GrassError, first_line


@dataclass(frozen=True)
class Address:
    """A socket that listens, so that the port is ours before anybody is told of it."""

    listener: socket.socket
    host: str

    @classmethod
    def bind(cls, host: str, port: int) -> Address:
        """Listen on a port; 0 takes any free one.

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
                raise GrassError(f"Port {port} may not be used: choose one above 1023.") from None
            raise GrassError(f"{host} cannot be listened on: {first_line(error)}.") from None

    @property
    def url(self) -> str:
        """Where a browser of this machine finds the page."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        port = self.listener.getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(app: ASGIApp, address: Address) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=64,
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[address.listener])
    except KeyboardInterrupt:  # uvicorn has closed all connections, and passes the signal on
        return
