"""Prepared data as it is kept: the files of its splits, what is known of them, and their making."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.benchmarks import BenchmarkData
from grass_gnn.data.cache import CacheEntry, DamagedError
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.fingerprint import Fingerprint, fingerprint
from grass_gnn.data.foreign import check_packed
from grass_gnn.data.packed import PackedDataset, from_tensors
from grass_gnn.data.packing import packed_rows, packed_shapes, pointers
from grass_gnn.data.statistics import PoolingStatistics
from grass_gnn.data.storage import TensorWriter, read_tensors
from grass_gnn.errors import GrassError
from grass_gnn.files import read_json
from grass_gnn.progress import Progress, reporting


@dataclass(frozen=True)
class PreparedData:
    """The packed splits of a dataset, with what training and reports need to know about them."""

    splits: dict[str, PackedDataset]
    statistics: PoolingStatistics  # of the training set
    fingerprint: Fingerprint
    folder: Path
    seconds: float  # that reading, encoding and writing took when it was prepared
    bytes: int  # on disk
    from_cache: bool
    # Of each large graph: nodes, eigenpairs, their residual, and the largest value left out.
    eigenpairs: list[dict[str, float]] = field(default_factory=list)
    # Where a benchmark came from: {"folder": …}, {"generated": …, "seed": …}, or a download.
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def official(self) -> bool:
        """Whether this is a benchmark that agrees with its published statistics."""
        return self.fingerprint.official

    @property
    def unofficial_because(self) -> str:
        """In a sentence, why a result on this data is not one on the official benchmark."""
        name, differences = self.fingerprint.name, self.fingerprint.differences
        if self.official or not differences:
            return "" if self.official else "These graphs are no benchmark."
        return f"This is not the official {name}: {'; '.join(differences)}."

    @property
    def train(self) -> PackedDataset:
        """The training set."""
        return self.splits["train"]

    @property
    def val(self) -> PackedDataset:
        """The validation set."""
        return self.splits["val"]

    @property
    def test(self) -> PackedDataset:
        """The test set."""
        return self.splits["test"]


class _Manifest(BaseModel):
    """What an entry of the cache says about itself."""

    splits: dict[str, str]  # the file of each split
    fingerprint: Fingerprint
    seconds: float
    files: dict[str, tuple[int, str]]  # size and checksum
    eigenpairs: list[dict[str, float]] = []  # how exact they are, of large graphs


def open_entry(
    entry: CacheEntry,
    config: GRASSConfig,
    values: Mapping[str, Any],
    from_cache: bool,
    foreign: bool = False,
) -> PreparedData:
    """Open an entry; what may be ``foreign`` is not believed to be what :func:`prepare` wrote."""
    try:
        manifest = _Manifest.model_validate(values)
    except ValidationError:
        raise DamagedError("has a manifest that is wrong") from None
    files = set(manifest.splits.values())
    if not files <= manifest.files.keys() or "train" not in manifest.splits:
        raise DamagedError("has a manifest that names other files")
    opened = {}
    for file in files:
        tensors = read_tensors(entry.folder / file)
        if foreign:
            check_packed(tensors, config, entry.folder / file)
        opened[file] = from_tensors(tensors, config)
    splits = {split: opened[file].for_split(split) for split, file in manifest.splits.items()}
    return PreparedData(
        splits,
        PoolingStatistics.of(splits["train"]),
        manifest.fingerprint,
        entry.folder,
        manifest.seconds,
        sum(size for size, _ in manifest.files.values()),
        from_cache,
        manifest.eigenpairs,
    )


def build_entry(
    entry: CacheEntry,
    data: BenchmarkData,
    config: GRASSConfig,
    started: float,
    workers: int | None,
    progress: Progress | None,
) -> PreparedData:
    """Check and encode the graphs of a dataset into an entry, which appears when it is whole."""
    splits = data.splits
    found = fingerprint(splits, data.name, generated=data.generated, split=config.split)
    files: dict[str, str] = {}
    found_before = entry.root / f".{entry.name}.eigenpairs"  # by a process that was killed
    with reporting(progress) as report, entry.building() as folder:
        for split, graphs in splits.items():
            same = next((other for other in files if splits[other] is graphs), None)
            files[split] = files[same] if same else f"{split}.safetensors"
            if same is None:  # a graph that is split by masks is stored once
                with in_split(split):
                    keep = found_before / split
                    _write(folder / files[split], graphs, config, workers, report, keep)
        manifest = entry.publish(
            folder,
            {
                "splits": files,
                "fingerprint": found.to_dict(),
                "seconds": round(time.perf_counter() - started, 3),
                "eigenpairs": [read_json(path) for path in sorted(found_before.rglob("*.json"))],
            },
        )
    shutil.rmtree(found_before, ignore_errors=True)
    return open_entry(entry, config, manifest, from_cache=False)


@contextlib.contextmanager
def in_split(split: str) -> Iterator[None]:
    """Say in an error which split it is about."""
    try:
        yield
    except GrassError as error:
        message = str(error)
        raise GrassError(f"In {split}, {message[0].lower() + message[1:]}") from None


def _write(
    path: Path,
    graphs: Sequence[Data],
    config: GRASSConfig,
    workers: int | None,
    progress: Progress,
    keep: Path,
) -> None:
    with TensorWriter(path, packed_shapes(graphs, config)) as writer:
        done = 0
        for name, pointer in pointers(*check_sizes(graphs)).items():
            writer.append(name, pointer)
        for finished, rows in packed_rows(
            graphs, config, workers=workers, keep=keep, progress=progress
        ):
            for name, tensor in rows.items():
                writer.append(name, tensor)
            done += finished
            progress(f"Encoding {path.stem}", done, len(graphs))
