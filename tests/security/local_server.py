"""A small local HTTP server that misbehaves on request."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Behaviour:
    """What the server sends, and what it was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.drops: list[int] = []  # bytes after which the next connections break off
        self.tag = '"one"'
        self.ranges = True
        self.asked: list[str | None] = []  # the Range of each request
        self.claim: int | None = None  # the length it claims, if not the true one

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.asked.append(asked)
        start = 0
        if asked and self.ranges and handler.headers.get("If-Range") == self.tag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.data):
                handler.send_error(416)
                return
        rest = self.data[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(self.claim or len(rest)))
        if self.ranges:
            handler.send_header("ETag", self.tag)
        handler.end_headers()
        handler.wfile.write(rest[: self.drops.pop(0)] if self.drops else rest)
        handler.close_connection = True


@contextmanager
def serving(data: bytes) -> Iterator[tuple[Behaviour, str]]:
    """The behaviour of a running server, and its address."""
    behaviour = Behaviour(data)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            behaviour.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield behaviour, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
