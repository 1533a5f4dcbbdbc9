import json
import re
import subprocess
import sys
from pathlib import Path

from tools.audit import locked_packages, verdict

ROOT = Path(__file__).parents[2]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def test_the_lock_pins_what_was_tested_with_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    locked, tested = pins(lock), pins((ROOT / "constraints.txt").read_text("utf-8"))
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lock)) == len(locked)
    code = "\n".join(line for line in lock.splitlines() if not line.startswith("#"))
    assert not re.search(r"https?:|file:|/|--(extra-)?index|--find", code.replace("--hash=", ""))
    assert not any(name.startswith("nvidia") for name in locked)
    assert locked["torch"].partition("+")[::2] == (tested["torch"], "cpu")
    differing = {
        name: (version, tested[name])
        for name, version in locked.items()
        if name in tested and version.partition("+")[0] != tested[name]
    }
    assert not differing
    for name in ("torch-geometric", "lightning", "safetensors", "jinja2", "rdkit", "pyarrow"):
        assert name in locked


def test_an_audit_that_did_not_run_is_not_a_success() -> None:
    assert locked_packages("torch==2.13.0+cpu \\\n    --hash=sha256:0\nA-b_c==1.0 \\\n") == [
        "torch==2.13.0",
        "A-b_c==1.0",
    ]
    skipped = {"name": "a", "skip_reason": "Dependency not found on PyPI"}
    good = {"name": "b", "version": "1", "vulns": []}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
    assert verdict("", "ConnectionError: refused\n")[1] == 2
    assert "nothing was audited" in verdict(json.dumps({"dependencies": [skipped]}), "")[0]
    sentence, code = verdict(json.dumps({"dependencies": [skipped, good]}), "")
    assert code == 0 and "1 packages, 1 unknown" in sentence
    assert verdict(json.dumps({"dependencies": [good, bad]}), "") == ("c 2: PYSEC-1", 1)


WATCH = """
import importlib, pkgutil, sys
asked = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        asked.append((event, str(arguments)))
sys.addaudithook(watch)
import grass_gnn
for module in pkgutil.walk_packages(grass_gnn.__path__, "grass_gnn."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import torch
from grass_gnn.cli import app
from typer.testing import CliRunner
for words in (["info", "zinc"], ["datasets"], ["train", "zinc"], ["datasets", "prepare", "mnist"]):
    CliRunner().invoke(app, words)
assert not asked, asked
assert "ogb" not in sys.modules
print("quiet")
"""


def test_nothing_uses_the_network_unless_requested(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCH],
        env={"PATH": "/usr/bin:/bin", "GRASS_CACHE": str(tmp_path), "GRASS_OPS": "reference"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.strip().endswith("quiet"), done.stderr[-2000:]
