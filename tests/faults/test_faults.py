"""A sample of the faults of ``run.py``, and proof that the harness notices what is lost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("resource")
pytest.importorskip("rdkit")
if not Path("/proc/self/statm").exists():
    pytest.skip("the harness needs /proc", allow_module_level=True)

from harness import EXACT_KINDS, RANDOM_KINDS, Trial, _members, left_behind

from grass_gnn import files

SEED = 11


def test_a_sample_of_faults_loses_nothing():
    """In a separate process, which forks before it starts any thread."""
    command = [sys.executable, Path(__file__).with_name("run.py"), "--sample", "--seed", str(SEED)]
    command += [word for name in ("write", "train", "preprocess") for word in ("--path", name)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    print(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr


class InPlace:
    """What the package does not do: write a file in place, without checks."""

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
    trial = Trial(InPlace(), SEED)
    try:
        strikes = [one for one in trial.plan(20) if one.kind in (*EXACT_KINDS, "disk full")]
        found = {strike.kind: trial.inject(strike) for strike in strikes}
    finally:
        trial.close()
    assert found["ended during an operation"].problems
    assert found["disk full"].problems
    assert not found["ended after an operation"].problems
    assert {found[kind].file for kind in EXACT_KINDS} == {"values.txt"}
    assert {found[kind].operation for kind in EXACT_KINDS} == {"write"}


def test_a_plan_has_every_kind_and_as_many_faults_as_asked_for():
    trial = Trial(InPlace(), SEED)
    trial.close()
    trial.operations = [("write", f"{number}.txt") for number in range(30)]
    for faults in (8, 12, 120):
        plan = trial.plan(faults)
        assert sum(strike.faults for strike in plan) == faults
        assert {strike.kind for strike in plan} >= set(RANDOM_KINDS)
        assert len({(strike.kind, strike.number) for strike in plan}) == len(plan)
    assert {strike.kind for strike in plan} == {*RANDOM_KINDS, *EXACT_KINDS}
    assert trial.plan(120) == plan


class Careless(InPlace):
    """What the package does not do either: temporary files that are left behind."""

    name = "careless"

    def run(self, folder):
        tempfile.mkstemp()
        (folder / ".values.txt.tmp").write_text("half")
        super().run(folder)


def test_the_harness_counts_temporary_files_that_are_left_behind():
    trial = Trial(Careless(), SEED)
    try:
        found = trial.inject(next(s for s in trial.plan(20) if s.kind == EXACT_KINDS[-1]))
    finally:
        trial.close()
    assert found.files == 3  # one beside the file, two in the folder for temporary files
    assert any("left behind" in problem for problem in found.problems)


def test_the_harness_notices_a_process_that_is_left_behind():
    def work():
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    session = os.fork()
    if session == 0:
        os.setsid()
        work()
        os._exit(0)
    os.waitpid(session, 0)
    assert left_behind(session, patience=0.2) == 1
    assert left_behind(session, patience=0.2) == 0


@pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM"])
def test_a_killed_prediction_leaves_no_process_and_no_temporary_file(tmp_path, kind):
    """While its molecules are being read by workers."""
    table = tmp_path / "table.csv"
    table.write_text("smiles\n" + "CCO\n" * 30_000)
    command = ["predict", "zinc", str(table), "-o", str(tmp_path / "out.csv"), "--rewirings", "1"]
    for attempt in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "grass_gnn", *command],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"GRASS_OPS": "reference"},
        )
        until = time.monotonic() + 120
        while len(_members(process.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(_members(process.pid)) > 1  # there are workers
        time.sleep(attempt)
        process.send_signal(getattr(signal, kind))
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0 and b"Traceback" not in said
        assert left_behind(process.pid) == 0
    files._tidied.clear()
    files.write_text(tmp_path / "next.txt", "what is written next cleans up")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next.txt", "table.csv"]
