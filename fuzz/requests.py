"""Requests to the served page: raw bytes over a connection to a server in this process."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import uvicorn

from fuzz.harness import Passed, Target, damaged
from fuzz.models import write_run
from grass_gnn.evaluation.trained import load_model
from grass_gnn.serve.app import make_app
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.molecules import MoleculeView
from grass_gnn.serve.server import Address, Connection

_SECONDS = 30  # to wait for an answer


@lru_cache(maxsize=1)
def _port() -> int:
    """Start a server in a thread; it ends with the process."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder))
        view = MoleculeView([load_model(folder)], 1, Limits(questions=10**9, waiting=10**9))
    config = uvicorn.Config(
        make_app(view, "a run", [], "127.0.0.1"), http=Connection, log_level="critical"
    )
    address = Address.bind("127.0.0.1", 0)
    arguments = {"sockets": [address.listener]}
    threading.Thread(target=uvicorn.Server(config).run, kwargs=arguments, daemon=True).start()
    return int(address.listener.getsockname()[1])


_lines = st.lists(
    st.sampled_from(
        ["CCO", "c1ccccc1", "C(", "", "smiles", "smiles,y", "=1+1", "C" * 400, "\0", "é"]
    ),
    max_size=4,
)
_asked = st.fixed_dictionaries(
    {},
    optional={
        "smiles": st.sampled_from(["CCO", "C(", "", 1, None, "C" * 400, "\ud800"]),
        "rewiring": st.sampled_from([0, 1, -1, 10**30, "0", None, 0.5]),
        "descriptors": st.sampled_from([[], ["1"], 1, [["1"]], ["x"] * 1000]),
        "other": st.just({}),
    },
)
_bodies = st.one_of(
    _lines.map(lambda lines: "\n".join(lines).encode()),
    _asked.map(lambda asked: json.dumps(asked).encode()),
    st.sampled_from([b"", b"{", b"[" * 5000, b'{"smiles": ' + b"9" * 5000 + b"}", b"\xff" * 50]),
)
_lengths = st.sampled_from(
    ["right", "right", "right", "right", "short", "long", "text", "chunked", ""]
)


def _request(
    method: str, path: str, origin: str, body: bytes, length: str, extra: list[bytes]
) -> bytes:
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    head, sent = {
        "right": (b"Content-Length: %d" % len(body), body),
        "short": (b"Content-Length: %d" % (len(body) // 2), body),
        "long": (b"Content-Length: %d" % (len(body) + 9), body),
        "text": (b"Content-Length: -x", body),
        "chunked": (b"Transfer-Encoding: chunked", chunks),
        "": (b"X-None: 1", body),
    }[length]
    first = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {origin}".encode()
    return b"\r\n".join([first, head, *extra, b"Connection: close", b"", sent])


_PATHS = ["/predict", "/predict", "/predict?as=table", "/look", "/look", "/", "/page.js", "//"]
_PATHS += ["/../x", "/%00", "/" + "a" * 9000, "*", "http://other/look"]
_requests = damaged(
    st.builds(
        _request,
        st.sampled_from(["POST", "POST", "POST", "GET", "HEAD", "PUT", "OPTIONS", "X" * 300]),
        st.sampled_from(_PATHS),
        st.sampled_from(["http://127.0.0.1"] * 6 + ["null", "", "http://other"]),
        _bodies,
        _lengths,
        st.lists(
            st.sampled_from([b"X: " + b"y" * 70_000, b"Expect: 100-continue", b"Host: b", b": c"])
            | st.sampled_from([b"Upgrade: websocket", b"Content-Encoding: gzip", b"X:\xff\xfe"]),
            max_size=1,
        ),
    ),
    0.2,
)


def _ask(case: bytes, _: Path, past: Passed) -> None:
    """Send a request; the answer may be a refusal, but no failure of the server."""
    with socket.create_connection(("127.0.0.1", _port()), timeout=_SECONDS) as connection:
        answer = _exchange(connection, case)
    if answer:
        past()
        assert answer.startswith(b"HTTP/1.1 "), "not HTTP"
        assert not answer.startswith(b"HTTP/1.1 5"), f"the server failed: {answer[-300:]!r}"
        assert b"Traceback" not in answer, "a traceback in the answer"


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    found = b""
    try:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            found += part
    except (ConnectionError, BrokenPipeError):  # the server closed it, as it may
        pass
    return found


_cases: st.SearchStrategy[Any] = _requests
TARGETS = [Target("HTTP requests", _cases, _ask)]
