"""Clients that never finish, and a server that is told to stop: on loopback, bounded in time."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from serving import HEADERS, Served

from fuzz import structures


@pytest.fixture
def served(run):
    server = Served(run)
    yield server
    server.process.kill()
    server.process.communicate()


def test_stalled_and_slow_clients_block_no_others_and_sigterm_ends_the_server(served):
    with contextlib.ExitStack() as stack:
        for _ in range(8):  # the body never comes
            stack.enter_context(served.connect(HEADERS + "Content-Length: 100\r\n\r\nCC"))
        for _ in range(70):  # nor do the headers end
            stack.enter_context(served.connect("POST /predict HTTP/1.1\r\nX-Slow: "))
        slowest = 0.0
        for _ in range(5):
            began = time.monotonic()
            status, answer = served.ask()
            slowest = max(slowest, time.monotonic() - began)
            assert status == 200 and not answer["rows"][0]["error"]
        assert slowest < 2 * patience()
        said, seconds = served.stop()
    assert "Traceback" not in said and "rror" not in said
    assert seconds < 5 * patience()


def patience():
    """Factor for machines that do many other things at the same time."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_number_of_requests(served):
    """``load.py`` sends 2,000."""
    for _ in range(30):
        served.ask("CCO\nC(\nCCN")
    before = served.memory()
    for _ in range(90):
        assert served.ask("CCO\nC(\nCCN")[0] == 200
    assert served.memory() < before + 10


def test_slow_headers_are_timed_out(served):
    with served.connect("GET / HTTP/1.1\r\nX-Slow: ") as slow:
        assert slow.recv(100) == b""  # the server closes the connection


def test_requests_in_progress_are_refused_when_the_server_stops(served):
    text = HEADERS + "Content-Length: 100\r\n\r\nCC"
    with served.connect(text) as stalled:
        served.ask()  # so the other one has been accepted
        said, _ = served.stop()
        answer = stalled.recv(10_000).decode()
    assert answer.startswith("HTTP/1.1 503") and "shutting down" in answer
    assert "Traceback" not in said


@pytest.mark.parametrize("name", structures.HARD)
def test_hard_structures_are_refused_and_others_answered(client, name):
    text = structures.smiles_of(structures.HARD[name])
    rows = client.post("/predict", content=f"CCO\n{text}\nCCN").json()["rows"]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    drawn = client.post("/look", json={"smiles": text})
    assert drawn.status_code == 400 and "cannot be read" in drawn.json()["error"]


def test_sigterm_while_a_slow_molecule_is_read(run, tmp_path, monkeypatch):
    """The reading process computes for minutes; the server neither waits for it nor leaves it."""
    (tmp_path / "slow_server.py").write_text(
        "import grass_gnn.data.tables.reading as reading\n"
        "patch = ('import grass_gnn.data.tables.molecules as m; '\n"
        "         'm._check_structure = lambda *_: None; '\n"
        "         'import grass_gnn.data.tables.reading as r; r.CPU_SECONDS = 100; ')\n"
        "reading._START = reading._START.replace('from grass', patch + 'from grass', 1)\n"
        "from grass_gnn.cli import main\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    served = Served(run, "slow_server")
    try:
        slow = structures.smiles_of(structures.bipartite(16))
        body = f"Content-Length: {len(slow)}\r\n\r\n{slow}"
        with served.connect((HEADERS + body).replace("{port}", str(served.port))) as asked:
            time.sleep(2.0)
            said, seconds = served.stop()
            answer = asked.recv(10_000).decode()
        assert answer.startswith("HTTP/1.1 503")
        assert "Traceback" not in said and seconds < 5 * patience()
    finally:
        served.process.kill()
        served.process.communicate()
