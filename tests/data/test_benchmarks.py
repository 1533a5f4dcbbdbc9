import os
import shutil
import socket
from pathlib import Path

import pytest
import torch
from official_files import SIZES, WRITERS, write_coco_sp, write_roman_empire

from grass_gnn.config import GRASSConfig, preset_names
from grass_gnn.data.benchmarks.registry import BENCHMARKS, found_locally, load_benchmark
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.encoding import make_encoding
from grass_gnn.errors import GrassError

REAL = {  # folder, training graphs, columns of x
    "zinc": ("zinc", 10_000, 1),
    "mnist": ("mnist_superpixels", 4_000, 3),
    "peptides-func": ("peptides_func_5pct", 544, 9),
    "minesweeper": ("heterophilous", 1, 7),
    "tolokers": ("heterophilous", 1, 10),
    "pascalvoc-sp": ("pascalvoc_sp_lookalike", 60, 14),
}


def files_below(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_and_left_alone(name: str, shared_data: Path, tmp_path: Path) -> None:
    source, size, columns = REAL[name]
    folder = tmp_path / "data"
    shutil.copytree(shared_data / source, folder)
    before = files_below(folder)
    data = load_benchmark(name, folder)
    assert len(data.splits["train"]) == size
    assert data.splits["train"][0].x.shape[1] == columns
    assert files_below(folder) == before
    assert not list(tmp_path.glob("cache/datasets/*"))


def test_every_preset_of_the_paper_has_its_dataset() -> None:
    named = {GRASSConfig.preset(name).dataset for name in preset_names()}
    assert set(BENCHMARKS) <= named


@pytest.mark.parametrize("name", WRITERS)
def test_official_layouts_become_batches(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / "data")
    config = GRASSConfig.preset(name)
    prepared = prepare(name, config, folder=tmp_path / "data")
    assert not prepared.official
    batch = next(iter(GraphLoader(prepared.train, config, 5, workers=0)))
    assert batch.x is not None and batch.y is not None
    rows = len(batch.x) if config.task.level == "node" else batch.num_graphs
    assert batch.y.shape[0] == rows
    assert batch.node_encoding.shape[1] == make_encoding(config.encoding).node_columns
    assert batch.edge_encoding.shape[1] == make_encoding(config.encoding).pair_columns
    if name == "roman-empire":
        masks = [prepared.splits[s].select(torch.tensor([0])).mask for s in prepared.splits]
        assert [int(mask.sum()) for mask in masks if mask is not None] == [4, 4, 4]
        assert prepared.bytes < 2 * 12 * (1025 + 300 + 12) * 4  # stored once, not three times
    else:
        assert [len(prepared.splits[split]) for split in SIZES] == list(SIZES.values())
    if name == "coco-sp":
        assert (batch.y == 80).all()


def test_another_split_of_the_nodes(tmp_path: Path) -> None:
    write_roman_empire(tmp_path)
    first = prepare("roman-empire", GRASSConfig.preset("roman-empire"), folder=tmp_path)
    config = GRASSConfig.preset("roman-empire", split=1)
    second = prepare("roman-empire", config, folder=tmp_path)
    ids = torch.tensor([0])
    masks = [prepared.train.select(ids).mask for prepared in (first, second)]
    assert masks[0] is not None and masks[1] is not None
    assert not (masks[0] & masks[1]).any()
    with pytest.raises(GrassError, match="10 splits, 0 to 9; there is no split 12"):
        prepare("roman-empire", GRASSConfig.preset("roman-empire", split=12), folder=tmp_path)


@pytest.mark.parametrize("given", ["", "coco-sp", "coco-sp/raw"])
def test_a_folder_is_found_at_several_levels(given: str, tmp_path: Path) -> None:
    write_coco_sp(tmp_path / "sets" / "some_name")
    assert load_benchmark("coco-sp", tmp_path / "sets" / "some_name" / given).name == "coco-sp"
    assert load_benchmark("coco-sp", tmp_path / "sets").name == "coco-sp"


def test_a_read_only_folder_works(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_coco_sp(folder)
    for place in (folder, folder / "coco-sp", folder / "coco-sp" / "raw"):
        place.chmod(0o555)
    try:
        assert len(load_benchmark("coco-sp", folder).splits["val"]) == SIZES["val"]
    finally:
        for place in (folder, folder / "coco-sp", folder / "coco-sp" / "raw"):
            place.chmod(0o755)


def test_errors_name_the_problem_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(GrassError, match=r"The folder .*nowhere for zinc does not exist\."):
        load_benchmark("zinc", tmp_path / "nowhere")
    with pytest.raises(GrassError, match=r"does not contain zinc: .*train\.pickle is missing\."):
        load_benchmark("zinc", tmp_path)
    write_coco_sp(tmp_path)
    os.remove(tmp_path / "coco-sp" / "raw" / "val.pickle")
    with pytest.raises(GrassError, match=r"coco-sp/raw/val\.pickle is missing"):
        load_benchmark("coco-sp", tmp_path)
    write_coco_sp(tmp_path / "a")
    write_coco_sp(tmp_path / "b")
    with pytest.raises(GrassError, match="contains coco-sp more than once"):
        load_benchmark("coco-sp", tmp_path)
    with pytest.raises(GrassError, match="There is no dataset 'zink'; did you mean 'zinc'"):
        load_benchmark("zink")


@pytest.mark.parametrize("name", WRITERS)
def test_a_truncated_file_is_named(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    victim = sorted(tmp_path.rglob("raw/*"))[0]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(GrassError) as caught:
        load_benchmark(name, tmp_path)
    assert f"{victim} is damaged or incomplete" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_downloaded_unasked(
    monkeypatch: pytest.MonkeyPatch, private_cache: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(GrassError, match=r"zinc is not in .*datasets download zinc`, or .*--data"):
        load_benchmark("zinc")
    with pytest.raises(GrassError, match=r"cluster is not in .*, or generate cluster\."):
        prepare("cluster", GRASSConfig.preset("cluster"))
    assert not list(private_cache.rglob("*.npz"))


def test_no_network(monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(
        GrassError, match=r"cluster cannot be downloaded \(no route to host\); .*--data.*generate"
    ):
        load_benchmark("cluster", download=True)
    assert not found_locally("cluster")


def test_generated_sets() -> None:
    data = load_benchmark("cluster", generate=(4, 2, 1), seed=3)
    assert [len(graphs) for graphs in data.splits.values()] == [4, 2, 1]
    for wrong, message in (((4, 2), "three numbers"), ((4, 0, 1), "between 1 and")):
        with pytest.raises(GrassError, match=message):
            load_benchmark("cluster", generate=wrong)
    with pytest.raises(GrassError, match="'zinc' cannot be generated; pattern and cluster can"):
        load_benchmark("zinc", generate=(1, 1, 1))
