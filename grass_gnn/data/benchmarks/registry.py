"""The table of benchmark datasets, each read by PyG's own class.

It has the ten datasets of the paper, and Minesweeper and Tolokers from roman-empire's benchmark. To
add a dataset, add an entry to ``BENCHMARKS`` and a preset of the same name; one of molecules can
name its targets in ``targets.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import (
    ZINC,
    GNNBenchmarkDataset,
    HeterophilousGraphDataset,
    LRGBDataset,
)

from grass_gnn.config import suggest
from grass_gnn.data.benchmarks.downloads import Source
from grass_gnn.data.benchmarks.raw import RawFiles
from grass_gnn.data.benchmarks.sbm import generate_cluster, generate_pattern
from grass_gnn.data.tables.spec import SPLITS
from grass_gnn.errors import GrassError

Splits = Mapping[str, Sequence[Data]]

_MOST_GENERATED = 10**6  # graphs of a split


@dataclass(frozen=True)
class Official:
    """The published statistics of a dataset, with edges counted in both directions as PyG does.

    A mean agrees if it is within the tolerance, half a unit of the last published digit. The means
    of single graphs are exact.
    """

    graphs: tuple[int, int, int]  # train, val, test; for a single graph, its nodes in each split
    mean_nodes: float
    mean_edges: float
    node_tolerance: float = 0.05
    edge_tolerance: float = 0.05
    path: tuple[float, float] | None = None  # average shortest path: mean, s.d.
    diameter: tuple[float, float] | None = None


@dataclass(frozen=True)
class Benchmark:
    """A dataset: how PyG reads it, its published statistics, and how it is converted."""

    name: str
    official: Official
    raw: RawFiles
    undirected: bool = True
    positions: bool = False  # append pos to the node features
    generate: Callable[[Sequence[int], int], Splits] | None = None
    license: str = ""
    notes: str = ""

    @property
    def single_graph(self) -> bool:
        """Whether this is one graph whose nodes are split by masks."""
        return not self.raw.has_splits


@dataclass(frozen=True)
class BenchmarkData:
    """The three splits of a benchmark and their origin.

    For a dataset of one graph, all splits are that graph, with ``train_mask``, ``val_mask`` and
    ``test_mask`` on it.
    """

    name: str
    splits: Splits = field(repr=False)
    source: str  # a folder, or "generated (seed 0)"
    generated: bool = False


# Checksums of the official files that we have seen; we found none published for the others.
_SHA256 = {
    "minesweeper.npz": "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3",
    "tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
}


def _gnn_benchmark(name: str, official: Official, **settings: Any) -> Benchmark:
    own_name = name.upper()
    files = (f"{own_name}_v2.pt",)
    source = Source(GNNBenchmarkDataset.urls[own_name])
    raw = RawFiles(name, GNNBenchmarkDataset, {"name": own_name}, own_name, files, (source,))
    return Benchmark(name, official, raw, **settings)


def _lrgb(name: str, official: Official, **settings: Any) -> Benchmark:
    suffix = "pickle" if name.endswith("-sp") else "pt"
    files = tuple(f"{split}.{suffix}" for split in SPLITS)
    source = Source(LRGBDataset.urls[name])
    raw = RawFiles(name, LRGBDataset, {"name": name}, name, files, (source,))
    return Benchmark(name, official, raw, **settings)


def _heterophilous(name: str, official: Official) -> Benchmark:
    layout = name.replace("-", "_")
    files = (f"{layout}.npz",)
    source = Source(f"{HeterophilousGraphDataset.url}/{files[0]}", _SHA256.get(files[0]))
    raw = RawFiles(
        name, HeterophilousGraphDataset, {"name": name}, layout, files, (source,), has_splits=False
    )
    return Benchmark(
        name, official, raw, license="MIT", notes="one graph with ten splits of its nodes"
    )


_PEPTIDES = Official(
    (10_873, 2_331, 2_331), 150.94, 307.30, 0.005, 0.005, (20.89, 9.79), (56.99, 28.72)
)

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "zinc",
            Official((10_000, 1_000, 1_000), 23.2, 49.8),
            RawFiles(
                "zinc",
                ZINC,
                arguments={"subset": True},
                layout="",
                files=tuple(f"{split}.{end}" for end in ("pickle", "index") for split in SPLITS),
                sources=(
                    Source(ZINC.url),
                    *(Source(ZINC.split_url.format(split)) for split in SPLITS),
                ),
            ),
            license="MIT (benchmark); the ZINC database has its own terms",
            notes="the subset of 12,000 molecules",
        ),
        _gnn_benchmark(
            "mnist",
            Official((55_000, 5_000, 10_000), 70.6, 564.5),
            undirected=False,
            positions=True,
            license="MIT (benchmark), CC BY-SA 3.0 (MNIST)",
            notes="superpixels, each with arcs to its 8 nearest neighbours",
        ),
        _gnn_benchmark(
            "cifar10",
            Official((45_000, 5_000, 10_000), 117.6, 941.1),
            undirected=False,
            positions=True,
            license="MIT (benchmark)",
            notes="superpixels, each with arcs to its 8 nearest neighbours",
        ),
        _gnn_benchmark(
            "pattern",
            # Published as 3,039.3 undirected edges: the last digit counts twice here.
            Official((10_000, 2_000, 2_000), 118.9, 6078.6, edge_tolerance=0.1),
            generate=generate_pattern,
            license="MIT",
            notes="stochastic block model; can be generated",
        ),
        _gnn_benchmark(
            "cluster",
            Official((10_000, 1_000, 1_000), 117.2, 4301.8, edge_tolerance=0.1),
            generate=generate_cluster,
            license="MIT",
            notes="stochastic block model; can be generated",
        ),
        _lrgb(
            "peptides-func", _PEPTIDES, license="CC BY-NC 4.0", notes="features of OGB's molecules"
        ),
        _lrgb(
            "peptides-struct",
            _PEPTIDES,
            license="CC BY-NC 4.0",
            notes="features of OGB's molecules",
        ),
        _lrgb(
            "pascalvoc-sp",
            Official(
                (8_498, 1_428, 1_429), 479.40, 2710.48, 0.005, 0.005, (10.74, 0.51), (27.62, 2.13)
            ),
            license="custom (Pascal VOC 2011)",
            notes="superpixels, connected if they share a border",
        ),
        _lrgb(
            "coco-sp",
            Official(
                (113_286, 5_000, 5_000), 476.88, 2693.67, 0.005, 0.005, (10.66, 0.55), (27.39, 2.14)
            ),
            license="CC BY 4.0 (MS COCO annotations)",
            notes="superpixels, connected if they share a border",
        ),
        _heterophilous("roman-empire", Official((11_331, 5_665, 5_666), 22_662, 65_854)),
        _heterophilous("minesweeper", Official((5_000, 2_500, 2_500), 10_000, 78_804)),
        _heterophilous("tolokers", Official((5_879, 2_939, 2_940), 11_758, 1_038_000)),
    )
}
"""All benchmarks by name: the ten of the paper, and two more."""


def benchmark(name: str) -> Benchmark:
    """Look up a benchmark by name."""
    if name not in BENCHMARKS:
        raise GrassError(f"There is no dataset {name!r}{suggest(name, list(BENCHMARKS))}")
    return BENCHMARKS[name]


def load_benchmark(
    name: str,
    folder: Path | str | None = None,
    *,
    download: bool = False,
    generate: Sequence[int] | None = None,
    seed: int = 0,
) -> BenchmarkData:
    """Read, download or generate the splits of a benchmark.

    Args:
        name: Name of the benchmark.
        folder: The folder of its raw files, or a parent of it. Nothing is written there.
        download: Whether to download files that are not in the cache, if no folder is given.
        generate: Numbers of training, validation and test graphs to generate (PATTERN, CLUSTER).
        seed: Random seed of generated graphs.
    """
    entry = benchmark(name)
    if generate is not None:
        if entry.generate is None:
            known = " and ".join(b.name for b in BENCHMARKS.values() if b.generate)
            raise GrassError(f"The dataset {name!r} cannot be generated; {known} can.")
        if folder is not None:
            raise GrassError(
                f"Give either a folder with the files of {name!r} or sizes to generate, not both."
            )
        if len(generate) != len(SPLITS) or min(generate) < 1 or max(generate) > _MOST_GENERATED:
            raise GrassError(
                f"The sizes to generate must be three numbers (training, validation, test) "
                f"between 1 and {_MOST_GENERATED:,}, not {tuple(generate)}."
            )
        return BenchmarkData(
            name, entry.generate(generate, seed), f"generated (seed {seed})", generated=True
        )
    raw = raw_folder(entry, folder, download=download)
    splits: Splits = {
        split: [_convert(entry, data) for data in graphs]
        for split, graphs in entry.raw.read(raw).items()
    }
    if entry.single_graph:
        splits = dict.fromkeys(SPLITS, splits["train"])
    return BenchmarkData(name, splits, str(raw.parent))


def raw_folder(entry: Benchmark, folder: Path | str | None, *, download: bool = False) -> Path:
    """The folder with the raw files of a benchmark: the given one, or the downloaded one."""
    if folder is not None:
        return entry.raw.find(Path(folder))
    hint = f", or generate {entry.name}" if entry.generate else ""
    return entry.raw.download(hint=hint) if download else entry.raw.local(hint)


def found_locally(name: str) -> bool:
    """Whether the raw files of a benchmark have been downloaded before."""
    return benchmark(name).raw.downloaded


def _convert(entry: Benchmark, data: Data) -> Data:
    if entry.positions:
        data.x = torch.cat([data.x, data.pos], dim=1)  # [n, features + 2]
        del data.pos
    return data
