"""The same checks run before a commit, on a push and in CI."""

import re
import tomllib
from pathlib import Path

import yaml

import grass_gnn

ROOT = Path(__file__).parents[2]


def test_hooks_call_what_ci_runs():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}  # nothing is fetched
    makefile = (ROOT / "Makefile").read_text("utf-8")
    needed = re.search(r"^test: \$\(READY\) ([a-z ]+?) +##", makefile, re.M)[1].split()
    before_commit = [hook["entry"] for hook in hooks if "pre-push" not in hook["stages"]]
    before_push = [hook["entry"] for hook in hooks if "pre-push" in hook["stages"]]
    assert before_commit == [f"make {target}" for target in needed]
    assert before_push == ["make test"]
    ci = "".join(file.read_text("utf-8") for file in (ROOT / ".ci").iterdir())
    assert re.search(r"^make test$", ci, re.M)
    assert "lint-imports" in makefile


def test_there_is_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert grass_gnn.__version__ == project["version"]
