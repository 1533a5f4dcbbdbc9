"""The cache of prepared data: reused, checked for damage, and never incomplete."""

import errno
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from random_graphs import CONFIG, random_graph

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.data.packed.prepare import PreparedData, prepare
from grass_gnn.errors import GrassError

SPLITS = {
    "train": [random_graph(seed) for seed in range(20)],
    "val": [random_graph(seed) for seed in range(20, 25)],
    "test": [random_graph(seed) for seed in range(25, 30)],
}
fork = multiprocessing.get_context("fork")


def assert_good(prepared: PreparedData) -> None:
    for split, graphs in SPLITS.items():
        found = prepared.splits[split].select(torch.arange(len(graphs)))
        assert torch.equal(found.x, torch.cat([g.x for g in graphs]))  # type: ignore[arg-type]
    assert prepared.statistics.mean_nodes == sum(g.num_nodes for g in SPLITS["train"]) / 20


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if not path.name.endswith(".lock")]


def test_found_again(tmp_path: Path) -> None:
    first = prepare(SPLITS, CONFIG, tmp_path)
    again = prepare(SPLITS, CONFIG, tmp_path)
    assert (first.from_cache, again.from_cache) == (False, True)
    assert_good(first)
    assert_good(again)
    assert again.seconds == first.seconds > 0
    files = list(first.folder.glob("*.safetensors"))
    assert len(files) == 3 and first.bytes == sum(file.stat().st_size for file in files)
    assert again.fingerprint == first.fingerprint and not first.official
    one, two = (next(iter(GraphLoader(p.train, CONFIG, 20, workers=0))) for p in (first, again))
    assert torch.equal(one.edge_encoding, two.edge_encoding)


def test_an_empty_split_is_left_out(tmp_path: Path) -> None:
    prepared = prepare({**SPLITS, "val": []}, CONFIG, tmp_path)
    assert list(prepared.splits) == ["train", "test"]
    with pytest.raises(GrassError, match="no training graphs"):
        prepare({"train": []}, CONFIG, tmp_path)


def test_other_content_or_settings_are_other_entries(tmp_path: Path) -> None:
    base = prepare(SPLITS, CONFIG, tmp_path).folder
    assert prepare({**SPLITS, "test": SPLITS["val"]}, CONFIG, tmp_path).folder != base
    for settings, new in (
        ({"encoding.steps": 5}, True),
        ({"encoding.degrees": "none"}, True),
        ({"model.layers": 3, "training.epochs": 2, "rewiring.degree": 5}, False),
    ):
        assert (prepare(SPLITS, CONFIG.override(settings), tmp_path).folder != base) == new


def _truncate(folder: Path) -> None:
    path = folder / "train.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def _flip_a_bit(folder: Path) -> None:
    path = folder / "val.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def _other_version(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 0}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (_truncate, "is damaged ('train.safetensors')"),
    "flipped bit": (_flip_a_bit, "is damaged ('val.safetensors')"),
    "file gone": (lambda f: (f / "test.safetensors").unlink(), "is damaged ('test.safetensors')"),
    "manifest gone": (lambda f: (f / "manifest.json").unlink(), "has no readable manifest"),
    "manifest cut": (lambda f: os.truncate(f / "manifest.json", 20), "has no readable manifest"),
    "stale": (_other_version, "has format 0 and not 1"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_noticed_and_mended(what: str, tmp_path: Path, caplog) -> None:
    damage, notice = DAMAGE[what]
    folder = prepare(SPLITS, CONFIG, tmp_path).folder
    damage(folder)
    mended = prepare(SPLITS, CONFIG, tmp_path)
    assert not mended.from_cache
    assert_good(mended)
    assert notice in caplog.text and caplog.text.count("is rebuilt") == 1
    assert prepare(SPLITS, CONFIG, tmp_path).from_cache


@pytest.mark.parametrize("place", ["append", "publish"])
def test_a_full_disk(place: str, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = "TensorWriter.append" if place == "append" else "os.fsync"
    with monkeypatch.context() as patch:
        patch.setattr(f"grass_gnn.data.packed.store.{target}", full)
        with pytest.raises(GrassError, match=r"cannot be written to .*: the disk is full\."):
            prepare(SPLITS, CONFIG, tmp_path)
    assert not entries(tmp_path)
    assert_good(prepare(SPLITS, CONFIG, tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GrassError, match=r"Prepared data cannot be written to .*file/cache: "):
        prepare(SPLITS, CONFIG, tmp_path / "file" / "cache")


def test_a_bad_graph_leaves_nothing(tmp_path: Path) -> None:
    bad = random_graph(0, 5, 6)
    bad.x[2] = 9
    with pytest.raises(GrassError, match="In val, graph 0 is not a PyG Data but a str"):
        prepare({**SPLITS, "val": ["CCO"]}, CONFIG, tmp_path)  # type: ignore[list-item]
    with pytest.raises(GrassError, match="In val, graph 1: the node feature 9 in row 2"):
        prepare({**SPLITS, "val": [SPLITS["val"][0], bad]}, CONFIG, tmp_path)
    assert not entries(tmp_path)


def _prepare_and_die(cache: Path, at: int) -> None:
    """Be killed at a certain point: after ``at`` progress reports, then before the move."""
    reports = 0

    def die_in_time(*_: object) -> None:
        nonlocal reports
        reports += 1
        if reports == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    os.replace = die
    prepare(SPLITS, CONFIG, cache, progress=die_in_time)


@pytest.mark.parametrize("at", [1, 2, 3, 99])
def test_a_killed_process_leaves_nothing_that_is_used(at: int, tmp_path: Path) -> None:
    process = fork.Process(target=_prepare_and_die, args=(tmp_path, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert all(path.name.endswith(".building") for path in entries(tmp_path))
    prepared = prepare(SPLITS, CONFIG, tmp_path)
    assert not prepared.from_cache
    assert_good(prepared)
    assert entries(tmp_path) == [prepared.folder]


def _prepare_with_others(cache: Path, log: Path, barrier) -> None:
    def report(*_: object) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")

    barrier.wait()
    assert_good(prepare(SPLITS, CONFIG, cache, progress=report))


def test_several_processes_at_once_build_once(tmp_path: Path) -> None:
    log, barrier = tmp_path / "log", fork.Barrier(3)
    processes = [
        fork.Process(target=_prepare_with_others, args=(tmp_path / "cache", log, barrier))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(set(log.read_text().split())) == 1


def test_progress_is_reported(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    prepare(SPLITS, CONFIG, tmp_path, progress=lambda *report: reports.append(report))
    assert ("Encoding train", 20, 20) in reports


def test_it_is_quiet_when_not_on_a_terminal(tmp_path: Path, capfd) -> None:
    prepare(SPLITS, CONFIG, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_real_sets_with_their_presets(shared_data: Path, tmp_path: Path, caplog) -> None:
    """PascalVOC's scale with 128 eigenpairs, and a second time without reading it by PyG."""
    config = GRASSConfig.preset("pascalvoc-sp")
    folder = shared_data / "pascalvoc_sp_lookalike"
    prepared = prepare("pascalvoc-sp", config, tmp_path, folder=folder)
    assert "This is not the official pascalvoc-sp: train has 60 graphs" in caplog.text
    assert prepared.bytes < 1.1 * 100 * 481.55 * (129 + 14 + 6 * 3 + 4) * 4
    batch = next(iter(GraphLoader(prepared.val, config, 4, workers=1)))
    assert torch.isfinite(batch.edge_encoding).all()
    assert prepare("pascalvoc-sp", config, tmp_path, folder=folder).from_cache


def test_generated_sets_are_kept_too(tmp_path: Path) -> None:
    config = GRASSConfig.preset("cluster", **{"encoding.steps": 4})
    first = prepare("cluster", config, tmp_path, generate=(3, 2, 2), seed=1)
    because = "This is not the official cluster: it was generated here"
    assert first.unofficial_because.startswith(because)
    assert prepare("cluster", config, tmp_path, generate=(3, 2, 2), seed=1).from_cache
    assert not prepare("cluster", config, tmp_path, generate=(3, 2, 2), seed=2).from_cache
