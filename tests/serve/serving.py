"""Small models, the page of some of them, and a server in a process of its own."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from grass_gnn.serve.app import make_app
from grass_gnn.serve.card import model_card
from grass_gnn.serve.views import open_view
from grass_gnn.uncertainty.ensembles import load_models

MOLECULES = {"input.nodes.kind": "ogb-atom", "input.edges.kind": "ogb-bond"}
TINY = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
}


def page_of(folders, limits, rewirings, title="<script>alert(1)</script>"):
    models = load_models(folders)
    view = open_view(models, rewirings, limits)
    return make_app(view, title, model_card(models, view), "127.0.0.1")


HEADERS = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"


class Served:
    """A server in a process of its own."""

    def __init__(self, run, start="grass_gnn.cli"):
        command = f"import sys; from {start} import main; sys.exit(main(sys.argv[1:]))"
        options = ["serve", str(run), "--port", "0", "--rewirings", "2"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GRASS_OPS": "reference", "PYTHONUNBUFFERED": "1"},
        )
        line = self.process.stdout.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])

    def connect(self, text=""):
        """A connection on which some bytes have been sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(text.format(port=self.port).encode())
        return connection

    def ask(self, body="CCO", path="/predict", client="127.0.0.1"):
        """Status and content of an answer to a client, which may be any address of loopback."""
        client = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=120, source_address=(client, 0)
        )
        client.request("POST", path, body, {"Origin": f"http://127.0.0.1:{self.port}"})
        with contextlib.closing(client):
            answer = client.getresponse()
            return answer.status, json.loads(answer.read())

    def processes(self):
        """The server and the processes that it started."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(n) for path in children for n in path.read_text().split())]

    def memory(self):
        """Resident memory of the server and its workers, in MB."""
        pages = [int(Path(f"/proc/{n}/statm").read_text().split()[1]) for n in self.processes()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self):
        """Send SIGTERM, wait for the end, and return what was written to standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return said
