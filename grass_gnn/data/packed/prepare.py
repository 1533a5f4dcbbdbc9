"""Prepare datasets: read, check and encode them once, then load them from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.benchmarks.fingerprint import Fingerprint, content_hash, fingerprint
from grass_gnn.data.benchmarks.registry import BenchmarkData, benchmark, load_benchmark, raw_folder
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.packed.dataset import (
    PackedDataset,
    PoolingStatistics,
    from_tensors,
    packed_rows,
    packed_shapes,
    pointers,
)
from grass_gnn.data.packed.store import (
    CacheEntry,
    DamagedError,
    TensorWriter,
    check_packed,
    hash_files,
    read_tensors,
)
from grass_gnn.encoding import require_local
from grass_gnn.errors import GrassError
from grass_gnn.files import cache_folder, read_json
from grass_gnn.progress import Progress, reporting


@dataclass(frozen=True)
class PreparedData:
    """The packed splits of a dataset, and facts about them for training and reports."""

    splits: dict[str, PackedDataset]
    statistics: PoolingStatistics  # of the training set
    fingerprint: Fingerprint
    folder: Path
    seconds: float  # spent reading, encoding and writing when it was prepared
    bytes: int  # on disk
    from_cache: bool
    # For each large graph: nodes, eigenpairs, their residual, and the largest value left out.
    eigenpairs: list[dict[str, float]] = field(default_factory=list)
    # Where a benchmark came from: {"folder": …}, {"generated": …, "seed": …}, or a download.
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def official(self) -> bool:
        """Whether this is a benchmark that agrees with its published statistics."""
        return self.fingerprint.official

    @property
    def unofficial_because(self) -> str:
        """Why results on this data are not results on the official benchmark, as a sentence."""
        name, differences = self.fingerprint.name, self.fingerprint.differences
        if self.official or not differences:
            return "" if self.official else "These graphs are not a benchmark."
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
    """The manifest of an entry of the cache."""

    splits: dict[str, str]  # the file of each split
    fingerprint: Fingerprint
    seconds: float
    files: dict[str, tuple[int, str]]  # size and checksum
    eigenpairs: list[dict[str, float]] = []  # accuracy, for large graphs


def open_entry(
    entry: CacheEntry,
    config: GRASSConfig,
    values: Mapping[str, Any],
    from_cache: bool,
    foreign: bool = False,
) -> PreparedData:
    """Open an entry; tensors that may be ``foreign`` (untrusted) are checked first."""
    try:
        manifest = _Manifest.model_validate(values)
    except ValidationError:
        raise DamagedError("has an invalid manifest") from None
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
    progress: Progress | None,
) -> PreparedData:
    """Check and encode the graphs of a dataset into a cache entry, which appears when complete."""
    splits = data.splits
    found = fingerprint(splits, data.name, generated=data.generated, split=config.split)
    files: dict[str, str] = {}
    found_before = entry.root / f".{entry.name}.eigenpairs"  # saved by a killed process
    with reporting(progress) as report, entry.building() as folder:
        for split, graphs in splits.items():
            same = next((other for other in files if splits[other] is graphs), None)
            files[split] = files[same] if same else f"{split}.safetensors"
            if same is None:  # a graph split by masks is stored once
                with in_split(split):
                    keep = found_before / split
                    _write(folder / files[split], graphs, config, report, keep)
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
    """Name the split in error messages."""
    try:
        yield
    except GrassError as error:
        message = str(error)
        raise GrassError(f"In {split}, {message[0].lower() + message[1:]}") from None


def _write(
    path: Path,
    graphs: Sequence[Data],
    config: GRASSConfig,
    progress: Progress,
    keep: Path,
) -> None:
    with TensorWriter(path, packed_shapes(graphs, config)) as writer:
        done = 0
        for name, pointer in pointers(*check_sizes(graphs)).items():
            writer.append(name, pointer)
        for finished, rows in packed_rows(graphs, config, keep=keep, progress=progress):
            for name, tensor in rows.items():
                writer.append(name, tensor)
            done += finished
            progress(f"Encoding {path.stem}", done, len(graphs))


Splits = Mapping[str, Sequence[Data]]

logger = logging.getLogger(__name__)


def prepare(
    source: str | Splits,
    config: GRASSConfig,
    cache_dir: Path | str | None = None,
    *,
    folder: Path | str | None = None,
    generate: Sequence[int] | None = None,
    seed: int = 0,
    download: bool = False,
    progress: Progress | None = None,
) -> PreparedData:
    """Read, check and encode a dataset, or open it from the cache.

    Args:
        source: Name of a benchmark, or the graphs of ``"train"``, ``"val"`` and ``"test"`` (an
            empty split is left out).
        config: The input, task and encoding.
        cache_dir: Folder of prepared data; by default in the user's cache.
        folder: Folder of the raw files of the benchmark (see :func:`load_benchmark`).
        generate: Numbers of graphs to generate instead (PATTERN, CLUSTER).
        seed: Random seed of generated graphs.
        download: Whether raw files may be downloaded if no folder is given.
        progress: Called with the progress; by default, a terminal shows a progress bar.
    """
    started = time.perf_counter()
    if config.training.sampling != "none":
        require_local(config.encoding, "training.sampling")
    if isinstance(source, str):
        name, identity = source, _identity(source, folder, generate, seed, download)
    else:
        source = {split: graphs for split, graphs in source.items() if len(graphs)}
        if "train" not in source:
            raise GrassError("There are no training graphs: a dataset needs at least one.")
        for split, graphs in source.items():
            with in_split(split):
                check_sizes(graphs)
        name, identity = "graphs", content_hash(source)

    def load() -> BenchmarkData:
        if isinstance(source, str):
            return load_benchmark(source, folder, download=download, generate=generate, seed=seed)
        return BenchmarkData(name, source, name)

    root = Path(cache_dir) if cache_dir is not None else cache_folder() / "prepared"
    entry = CacheEntry(root, f"{name}-{_key(identity, config)}")
    prepared = _find(entry, config)
    if prepared is None:
        with entry.locked():
            # Another process may have built it in the meantime.
            prepared = _find(entry, config, notice=True)
            if prepared is None:
                prepared = build_entry(entry, load(), config, started, progress)
    if isinstance(source, str) and not prepared.official:
        logger.warning(prepared.unofficial_because)
    origin: dict[str, Any] = {}
    if generate is not None:
        origin = {"generated": list(generate), "seed": seed}
    elif folder is not None:
        origin = {"folder": str(folder)}
    return replace(prepared, origin=origin)


def open_prepared(folder: Path, config: GRASSConfig) -> PreparedData:
    """Open the prepared data in a folder, such as that of a run on a user's own data.

    Raises:
        GrassError: It is missing or damaged.
    """
    entry = CacheEntry(folder.parent, folder.name)
    try:
        manifest = entry.manifest()
        if manifest is None:
            raise GrassError(f"The prepared data of this run is no longer in {folder}.")
        return open_entry(entry, config, manifest, from_cache=True, foreign=True)
    except DamagedError as problem:
        raise GrassError(f"The prepared data in {folder} {problem}.") from None


def prepare_benchmark(
    config: GRASSConfig,
    folder: Path | str | None = None,
    generate: Sequence[int] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PreparedData:
    """:func:`prepare` the dataset that a configuration names."""
    if config.dataset is None:
        raise GrassError("The configuration does not name a dataset (dataset = ...).")
    return prepare(
        config.dataset, config, folder=folder, generate=generate, seed=seed, progress=progress
    )


def _identity(
    name: str,
    folder: Path | str | None,
    generate: Sequence[int] | None,
    seed: int,
    download: bool,
) -> str:
    """A text that identifies the content of a benchmark, without reading it with PyG."""
    entry = benchmark(name)
    if generate is not None:
        return f"generated {list(generate)} {seed}"
    raw = raw_folder(entry, folder, download=download)
    return hash_files([raw / file for file in entry.raw.files])


def _key(identity: str, config: GRASSConfig) -> str:
    """A short hash of the content and of all settings that affect what is stored."""
    task = config.task
    settings = {
        "input": config.input.model_dump(),
        "task": [task.level, task.kind, task.outputs],
        "encoding": config.encoding.model_dump(),
        "split": config.split,
    }
    text = json.dumps([identity, settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _find(entry: CacheEntry, config: GRASSConfig, notice: bool = False) -> PreparedData | None:
    try:
        manifest = entry.manifest()
        return None if manifest is None else open_entry(entry, config, manifest, from_cache=True)
    except DamagedError as problem:
        if notice:
            logger.warning("The prepared data in %s %s and is rebuilt.", entry.folder, problem)
        return None
