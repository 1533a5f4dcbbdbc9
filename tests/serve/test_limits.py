"""Who may ask the page, how much and how often; and that nothing but the page is served."""

import asyncio
import threading

import pytest

from grass_gnn.serve.limits import Limits, Refused, Turns, is_loopback
from grass_gnn.serve.molecules import MoleculeView


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.0.2.1", "", "["])
def test_another_host_is_refused(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "its own address" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost:8321", "127.0.0.1", "[::1]:8321", "LOCALHOST"])
def test_names_of_this_machine_are_its_own(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200
    origin = {"host": host, "origin": f"http://{host}"}
    assert client.post("/predict", content="CCO", headers=origin).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1"])
def test_questions_of_other_pages_are_refused(client, origin):
    answer = client.post("/predict", content="CCO", headers={"origin": origin})
    assert answer.status_code == 403
    assert "from this page only" in answer.json()["error"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_large_requests_are_refused(run, open_page):
    client = open_page(run, limits=Limits(body=1000, rows=5))
    large = client.post("/predict", content="C" * 1001)
    assert large.status_code == 413 and "0.001 MB" in large.json()["error"]
    for text in ("CCO\n" * 6, "smiles\n" + "CCO\n" * 6):
        many = client.post("/predict", content=text)
        assert many.status_code == 413
        assert "up to 5 rows" in many.json()["error"]
    assert client.post("/predict", content="CCO\n" * 5).status_code == 200


def test_frequent_requests_are_refused(run, open_page):
    client = open_page(run, limits=Limits(questions=2))
    for _ in range(2):
        assert client.post("/predict", content="CCO").status_code == 200
    answer = client.post("/predict", content="CCO")
    assert answer.status_code == 429
    assert "More than 2 requests" in answer.json()["error"]
    assert int(answer.headers["retry-after"]) > 0
    assert client.get("/").status_code == 200


def test_one_piece_of_work_at_a_time_and_few_that_wait():
    inside, most = [], []
    lock = threading.Lock()

    def work():
        with lock:
            inside.append(1)
            most.append(len(inside))
        threading.Event().wait(0.01)
        with lock:
            inside.pop()

    async def ask(turns, client):
        async with turns.admitted(client):
            await turns.work(client, work)

    async def main():
        turns = Turns(waiting=3)
        asked = (ask(turns, client) for client in "abcde")
        found = await asyncio.gather(*asked, return_exceptions=True)
        await ask(turns, "a")  # there is room again
        return found

    found = asyncio.run(main())
    refused = [one for one in found if one is not None]
    assert len(refused) == 2
    assert all(isinstance(one, Refused) and one.status == 503 for one in refused)
    assert max(most) == 1 and len(most) == 4


def test_one_client_has_half_of_the_places_and_every_second_turn():
    order = []

    async def ask(turns, client, pieces):
        async with turns.admitted(client):
            for _ in range(pieces):
                await turns.work(client, order.append, client)

    async def main():
        turns = Turns(waiting=4)
        greedy = [asyncio.ensure_future(ask(turns, "greedy", 10)) for _ in range(3)]
        await asyncio.sleep(0)
        cancelled = asyncio.ensure_future(ask(turns, "gone", 1))
        await asyncio.sleep(0)
        cancelled.cancel()  # while it waits
        await ask(turns, "other", 2)
        return await asyncio.gather(*greedy, return_exceptions=True)

    found = asyncio.run(main())
    assert [isinstance(one, Refused) for one in found] == [False, False, True]
    assert order.count("greedy") == 20
    first, second = (place for place, client in enumerate(order) if client == "other")
    assert first <= 4 and second <= first + 3  # not after all twenty


@pytest.mark.parametrize(
    "path",
    ["/config.json", "/../config.json", "/page.js/../../pyproject.toml", "/%2e%2e/a", "/graphs.js"],
)
def test_nothing_else_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code == 404 and "no such page" in answer.json()["error"]


def test_questions_that_make_no_sense_have_an_answer(run, open_page):
    client = open_page(run)
    assert client.get("/predict").status_code == 405
    for body in (b"", b"{", b"[]", b'{"smiles": 1}', b'{"smiles": "C", "rewiring": -1}'):
        answer = client.post("/look", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("The request is not valid")
    far = client.post("/look", json={"smiles": "C", "rewiring": 3})
    assert "3 rewirings" in far.json()["error"]


def test_a_failure_of_ours_shows_no_traceback(run, open_page, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(MoleculeView, "look", fail)
    client = open_page(run, raise_server_exceptions=False)
    answer = client.post("/look", json={"smiles": "C"})
    assert answer.status_code == 500
    assert "Something went wrong" in answer.json()["error"] and "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_loopback_is_known():
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.0.2.1", "example.org", ""]))
