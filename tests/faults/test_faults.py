"""A sample of the faults of ``run.py``, and proof that the harness notices what is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
pytest.importorskip("rdkit")
if not Path("/proc/self/statm").exists():
    pytest.skip("the harness needs /proc", allow_module_level=True)

from harness import Record, Trial

SEED = 11


def test_a_sample_of_faults_loses_nothing():
    """In a process of its own, which forks before it starts any thread."""
    command = [sys.executable, Path(__file__).with_name("run.py"), "--sample", "--seed", str(SEED)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    print(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr


class InPlace:
    """What the package does not do: a file written where it stands, and never looked at again."""

    name = "in place"

    def set_up(self, template):
        template.mkdir()
        (template / "values.txt").write_text("old")

    def run(self, folder):
        (folder / "values.txt").write_text("new" * 10)

    def check(self, folder):
        assert (folder / "values.txt").read_text() in ("old", "new" * 10)

    def result(self, folder):
        return (folder / "values.txt").read_text()


def test_the_harness_notices_a_file_that_is_half_there():
    record = Record()
    trial = Trial(InPlace(), record, SEED)
    try:
        trial.exact_faults(lambda number: True)
        trial.random_faults("disk full", 2)
    finally:
        trial.close()
    assert record.survived["ended amid an operation", "in place"] == 0
    assert record.survived["disk full", "in place"] == 0
    assert record.survived["ended after an operation", "in place"] == 1
    assert record.by_file["values.txt", "write"] == 3
