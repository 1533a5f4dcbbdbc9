"""Load on a served page, from loopback: slow clients, many requests, SIGTERM in flight.

python tests/serve/load.py                   # 2,000 requests
python tests/serve/load.py --requests 500
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from serving import HEADERS, MOLECULES, TINY, Served

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import is_running

CLIENTS = [f"127.0.0.{number}" for number in range(2, 22)]  # each may ask 240 times a minute
QUESTIONS = [
    ("/predict", "CCO", 200),
    ("/predict", "CCO\nC(\nc1ccccc1", 200),
    ("/predict", "[U]" * 900, 200),  # too many atoms: an error in its row
    ("/look", json.dumps({"smiles": "CCO"}), 200),
    ("/look", "{", 400),
]


def slow_clients(served):
    """Seconds that a ninth client waits while 8 stall in their body and 70 in their headers."""
    waited = []
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(served.connect(HEADERS + "Content-Length: 100\r\n\r\nCC"))
        slow = [
            stack.enter_context(served.connect("GET / HTTP/1.1\r\nX-Slow: ")) for _ in range(70)
        ]
        for _ in range(10):
            for connection in slow:
                with contextlib.suppress(OSError):  # it was timed out
                    connection.sendall(b"x")
            began = time.monotonic()
            status, _ = served.ask(client="127.0.0.9")
            waited.append(time.monotonic() - began)
            assert status == 200, status
            time.sleep(0.2)
    return max(waited)


def many_requests(served, requests):
    """Resident memory in MB after a tenth of the requests, and after all of them."""
    memory = []
    for number in range(1, requests + 1):
        path, body, expected = QUESTIONS[number % len(QUESTIONS)]
        status, _ = served.ask(body, path, CLIENTS[number % len(CLIENTS)])
        while status == 429:  # this machine is too fast for the limit
            time.sleep(1)
            status, _ = served.ask(body, path, CLIENTS[number % len(CLIENTS)])
        assert status == expected, (path, body[:50], status)
        if number in (requests // 10, requests):
            memory.append(served.memory())
        if number % 200 == 0:
            print(f"{number} requests, {served.memory():.0f} MB", flush=True)
    return memory


def stop_in_flight(served):
    """Seconds until the server has ended, what it said, and how many processes it left."""
    answers = []

    def ask():
        with contextlib.suppress(OSError):
            answers.append(served.ask("\n".join(["CCO"] * 500))[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    processes = served.processes()
    began = time.monotonic()
    said = served.stop()
    seconds = time.monotonic() - began
    for thread in threads:
        thread.join()
    until = time.monotonic() + 30
    while (left := sum(map(is_running, processes))) and time.monotonic() < until:
        time.sleep(0.1)
    assert set(answers) <= {200, 503}, answers
    return seconds, said, left


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = GRASS(GRASSConfig().override(MOLECULES | TINY))
        save_model(model, run, table={"smiles": "smiles", "targets": ["y"]}, seed=0)
        served = Served(run)
        try:
            waited = slow_clients(served)
            print(f"8 stalled and 70 slow clients: another one waits up to {waited:.2f} s")
            early, late = many_requests(served, options.requests)
            few = options.requests // 10
            print(f"memory: {early:.0f} MB after {few} requests, {late:.0f} MB after all")
            seconds, said, left = stop_in_flight(served)
            print(
                f"SIGTERM in flight: ended after {seconds:.2f} s, {left} processes left, {said!r}"
            )
        finally:
            served.process.kill()
            served.process.communicate()
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    good = waited < 2 * busy and late < early + 20 and seconds < 5 * busy and not left
    return 0 if good and "Traceback" not in said else 1


if __name__ == "__main__":
    sys.exit(main())
