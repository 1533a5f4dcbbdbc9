"""Folders that are in use, read-only, full or gone: one sentence, and nothing is lost."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest
import workloads

from grass_gnn import files
from grass_gnn.errors import GrassError
from grass_gnn.files import LOCK, locked, write_text, write_whole
from grass_gnn.training.options import RunOptions


@pytest.fixture
def holder(tmp_path):
    """Another process that has the lock of a folder."""
    folder = tmp_path / "run"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(folder):
            os.write(writing, b"held")
            time.sleep(600)
    assert os.read(reading, 4) == b"held"
    yield folder, child
    with contextlib.suppress(ProcessLookupError):
        end(child)


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_folder_in_use_names_its_owner_and_is_free_when_that_is_killed(holder):
    folder, child = holder
    owner = json.loads((folder / LOCK).read_text())
    assert (owner["pid"], owner["host"]) == (child, socket.gethostname())
    with pytest.raises(GrassError, match=f"is in use by process {child} on ") as caught:
        locked(folder).__enter__()
    assert owner["started"] in str(caught.value) and "--out" in str(caught.value)
    end(child)
    assert (folder / LOCK).exists()  # stale
    with locked(folder):
        assert json.loads((folder / LOCK).read_text())["pid"] == os.getpid()
    assert not (folder / LOCK).exists()


def test_the_lock_of_another_machine_is_reported_with_what_to_do(tmp_path):
    owner = {"pid": os.getpid(), "host": "elsewhere", "started": "2026-01-02 03:04:05"}
    (tmp_path / LOCK).write_text(json.dumps(owner))
    with pytest.raises(GrassError, match=f"process .* on elsewhere .* remove {tmp_path / LOCK}"):
        locked(tmp_path).__enter__()
    (tmp_path / LOCK).write_text("{ha")  # written by halves: nobody has it
    with locked(tmp_path):
        pass


def test_the_same_thread_gets_its_lock_again_and_a_forked_process_does_not_keep_it(tmp_path):
    with locked(tmp_path / "run") as lock, locked(tmp_path / "run") as same:
        assert same is lock
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        with locked(tmp_path / "run"):  # although the child lives on
            pass
    finally:
        end(child)
    assert not (tmp_path / "run").exists()  # nothing was written


def test_two_trainings_into_one_folder(tmp_path):
    """The second is refused at once, and the first is not affected."""
    data = workloads.prepare(workloads.SPLITS, workloads.CONFIG, tmp_path / "data")
    first, second = tmp_path / "first", tmp_path / "second"
    workloads.train(workloads.CONFIG, data, first, RunOptions(seed=3, workers=0))
    told = []

    def meanwhile(*_):
        told.append(sentence_of(lambda: locked(second).__enter__()))

    options = RunOptions(seed=3, workers=0, progress=meanwhile)
    workloads.train(workloads.CONFIG, data, second, options)
    assert f"is in use by process {os.getpid()}" in told[0]
    weights = "weights.safetensors"
    assert (first / weights).read_bytes() == (second / weights).read_bytes()


def sentence_of(*attempts, as_nobody=False):
    """The error that another process gets."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if as_nobody and os.getuid() == 0:  # permissions do not bind root
            os.setuid(65534)
        for attempt in attempts:
            try:
                attempt()
            except GrassError as error:
                os.write(writing, f"{error}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def test_a_folder_that_disappears_is_not_created_again(tmp_path):
    data = workloads.prepare(workloads.SPLITS, workloads.CONFIG, tmp_path / "data")
    run, away = tmp_path / "run", tmp_path / "away"

    def unmount(what, done, total):
        if what.startswith("Training") and done == 3:
            run.rename(away)

    options = RunOptions(seed=3, workers=0, progress=unmount)
    with pytest.raises(GrassError, match=f"{run} disappeared .* --resume"):
        workloads.train(workloads.CONFIG, data, run, options)
    assert not run.exists()
    away.rename(run)
    workloads.train(workloads.CONFIG, data, run, RunOptions(seed=3, workers=0, resume=True))
    assert (run / "results.json").exists()


def test_a_read_only_folder():
    base = Path(tempfile.mkdtemp())
    (base / "kept").write_text("old")
    base.chmod(0o555)
    told = sentence_of(
        lambda: write_text(base / "kept", "new"),
        lambda: locked(base / "run").__enter__(),
        as_nobody=True,
    )
    assert told.splitlines() == [
        f"The file {base / 'kept'} cannot be written: Permission denied.",
        f"The folder {base / 'run'} cannot be written: Permission denied.",
    ]
    base.chmod(0o755)
    assert (base / "kept").read_text() == "old"
    shutil.rmtree(base)


def test_what_killed_processes_left_is_removed_and_what_others_write_is_not(tmp_path):
    child = os.fork()
    if child == 0:
        write_whole(tmp_path / "out.csv").__enter__().write_text("half")
        os._exit(9)
    os.waitpid(child, 0)
    (dead,) = tmp_path.glob(".*.tmp")
    with write_whole(tmp_path / "other.csv") as living:
        files._tidied.clear()
        write_text(tmp_path / "out.csv", "whole")
        assert living.exists() and not dead.exists()
    assert (tmp_path / "out.csv").read_text() == "whole"


def test_links_stay_links_and_devices_are_left_alone(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    with pytest.raises(GrassError, match="/dev/null cannot be written: it is not a file"):
        write_text("/dev/null", "x")


def test_without_locks_the_owner_in_the_file_decides(tmp_path, monkeypatch):
    """As on some network file systems."""

    def unsupported(*_, **__):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("filelock.lock_descriptor", unsupported)
    path = tmp_path / "run.lock"
    owner = {"host": socket.gethostname(), "started": "2026-01-01"}
    path.write_text(json.dumps(owner | {"pid": os.getppid()}))
    with pytest.raises(GrassError, match=f"in use by process {os.getppid()}"), locked(tmp_path):
        pass
    path.write_text(json.dumps(owner | {"pid": 2**22 + 1}))  # it has ended
    with locked(tmp_path):
        pass
