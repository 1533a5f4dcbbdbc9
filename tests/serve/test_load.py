"""Clients that never finish, and a server that is told to stop: on loopback, bounded in time."""

import contextlib
import os
import select
import socket
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from serving import HEADERS, Served, page_of

from fuzz import structures
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import LostMolecule, ReadingPool
from grass_gnn.serve import server
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.views import open_view
from grass_gnn.uncertainty.ensembles import load_models


@pytest.fixture(scope="module")
def served(run):
    """A running server; to start one takes seconds."""
    server = Served(run)
    yield server
    server.process.kill()
    server.process.communicate()


def test_stalled_clients_block_no_others_and_are_refused_when_sigterm_ends_the_server(run):
    served = Served(run)
    with contextlib.ExitStack() as stack:
        stack.callback(served.process.communicate)
        stack.callback(served.process.kill)
        text = HEADERS + "Content-Length: 100\r\n\r\nCC"
        for _ in range(7):  # the body never comes
            stack.enter_context(served.connect(text))
        for _ in range(70):  # nor do the headers end
            stack.enter_context(served.connect("POST /predict HTTP/1.1\r\nX-Slow: "))
        stalled = stack.enter_context(served.connect(text))
        status, answer = served.ask()
        assert status == 200 and not answer["rows"][0]["error"]
        # The server is still waiting for this client, so the answer has not waited for it.
        assert not select.select([stalled], [], [], 0)[0]
        for _ in range(4):
            assert served.ask()[0] == 200
        last = stack.enter_context(served.connect(text))
        served.ask()  # so the other one has been accepted
        said = served.stop()
        refused = last.recv(10_000).decode()
    assert refused.startswith("HTTP/1.1 503") and "shutting down" in refused
    assert "Traceback" not in said and "rror" not in said


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


def test_clients_that_do_not_read_their_answers_are_disconnected(run, monkeypatch):
    """Their answers fill the buffers; without a time-out they could take all connections."""
    monkeypatch.setattr(server, "ANSWER_SECONDS", 1.0)
    page = page_of([run], Limits(), 1)
    config = uvicorn.Config(page, http=server.Connection, log_level="critical")
    address = server.Address.bind("127.0.0.1", 0)
    running = uvicorn.Server(config)
    arguments = {"sockets": [address.listener]}
    thread = threading.Thread(target=running.run, kwargs=arguments, daemon=True)
    thread.start()
    port = address.listener.getsockname()[1]
    body = "\n".join(["C" * 21_000] * 90)
    head = HEADERS.format(port=port) + f"Content-Length: {len(body)}\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall((head + body).encode())
        until = time.monotonic() + 300  # a test that fails should end, too
        while not running.server_state.connections and time.monotonic() < until:
            time.sleep(0.05)
        assert running.server_state.connections
        while running.server_state.connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not running.server_state.connections
    running.should_exit = True
    thread.join()


def test_molecules_that_stall_rdkit_let_others_have_their_turn(run, monkeypatch):
    """Rows after such a molecule are read in a later turn; after three of them, no more."""
    monkeypatch.setattr(ReadingPool, "_start", lambda pool: pytest.fail("no process is needed"))
    view = open_view(load_models([run]), 1, Limits())
    reader = MoleculeReader(view.schema.features, fingerprints=True)

    def read(texts):
        found, lost = [], False
        for text in texts:
            found.append("not sent" if lost else reader.try_read(text))
            if text == "CC" and not lost:
                found[-1], lost = LostMolecule("too slow"), True
        return iter(found)

    monkeypatch.setattr(view._pool, "read", read)
    sheet = view.read(b"C\nCC\nCCC\nCC\nCC\nCCCC\nCC\nC", False)
    answers, turns = [], []
    while len(answers) < len(sheet.rows):
        turns.append(len(answers))
        answers += view.answer(sheet, len(answers), sheet.chunk_end(len(answers)))
    view.close()
    assert turns == [0, 2, 4, 5]
    errors = [answer.cells[-1] for answer in answers]
    assert [bool(error) for error in errors] == [False, True, False, True, True, True, True, True]
    assert errors[1] == "too slow" and errors[5:] == [errors[5]] * 3 and "not read" in errors[5]


def test_long_molecules_are_predicted_in_small_groups(run):
    view = open_view(load_models([run]), 1, Limits())
    sheet = view.read("\n".join(["C" * 1500] * 3 + ["CC"] * 40).encode(), False)
    view.close()
    ends = [0]
    while ends[-1] < len(sheet.rows):
        ends.append(sheet.chunk_end(ends[-1]))
    assert ends == [0, 2, 18, 34, 43]


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
        "         'read = m.MoleculeReader.try_read; m.MoleculeReader.try_read = '\n"
        "         'lambda self, s: read(self, s) if s == \"CCO\" else all(iter(lambda: 1, 0)); '\n"
        "         'import grass_gnn.data.tables.reading as r; r.CPU_SECONDS = 100; ')\n"
        "reading._START = reading._START.replace('from grass', patch + 'from grass', 1)\n"
        "from grass_gnn.cli import main\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    served = Served(run, "slow_server")
    try:
        with served.connect(HEADERS + "Content-Length: 3\r\n\r\nCCN") as asked:
            time.sleep(2.0)
            said = served.stop()
            answer = asked.recv(10_000).decode()
        assert answer.startswith("HTTP/1.1 503")
        assert "Traceback" not in said
    finally:
        served.process.kill()
        served.process.communicate()
