"""Prepared datasets: read, checked, fingerprinted and encoded once, then loaded from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.benchmarks.registry import (
    BENCHMARKS,
    Benchmark,
    BenchmarkData,
    Splits,
    benchmark,
    load_benchmark,
    raw_folder,
)
from grass_gnn.data.checking import HASHED, check_sizes
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
class SplitSize:
    """Size of a split; if the nodes of one graph are split, ``targets`` is their number."""

    graphs: int
    mean_nodes: float
    mean_edges: float  # both directions count
    targets: int | None = None


@dataclass(frozen=True)
class Fingerprint:
    """Describes the data that a result was computed on."""

    name: str | None  # of the benchmark; None for other graphs
    hash: str  # of all tensors of all graphs, in order
    splits: dict[str, SplitSize]
    official: bool  # a benchmark that agrees with its published statistics
    differences: list[str] = field(default_factory=list)  # from the official statistics

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """The inverse of :meth:`to_dict`."""
        splits = {name: SplitSize(**size) for name, size in values["splits"].items()}
        return cls(**{**values, "splits": splits})


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


def content_hash(splits: Splits) -> str:
    """Hash of the tensors of all graphs, in order; it does not depend on where they are stored."""
    digest = hashlib.blake2b(digest_size=16)
    seen: dict[int, str] = {}
    for split, graphs in splits.items():
        digest.update(f"{split}:{len(graphs)}".encode())
        if id(graphs) in seen:  # one graph, split by masks
            digest.update(seen[id(graphs)].encode())
            continue
        seen[id(graphs)] = split
        for data in graphs:
            digest.update(b"graph" + str(data.num_nodes).encode())
            for name in HASHED:
                _update(digest, name, data.get(name))
    return digest.hexdigest()


def _update(digest: hashlib.blake2b, name: str, value: Any) -> None:
    if value is None:
        return
    value = torch.as_tensor(value).detach().cpu().contiguous()
    digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
    digest.update(value.view(-1).view(torch.uint8).numpy().tobytes())  # NumPy has no bfloat16


def fingerprint(
    splits: Splits,
    name: str | None = None,
    *,
    generated: bool = False,
    split: int = 0,
) -> Fingerprint:
    """Hash and measure a dataset, and compare it with the official statistics of its benchmark.

    Args:
        splits: The graphs of each split.
        name: Name of the benchmark to compare with.
        generated: Whether the graphs were generated here.
        split: Which of several node splits to use.
    """
    sizes = {part: _size(graphs, part, split) for part, graphs in splits.items()}
    entry = BENCHMARKS.get(name or "")
    differences = []
    if entry is not None:
        differences = ["it was generated here"] if generated else _differences(entry, sizes)
    official = entry is not None and not differences
    return Fingerprint(name, content_hash(splits), sizes, official, differences)


def _size(graphs: Sequence[Data], part: str, split: int) -> SplitSize:
    if not len(graphs):
        return SplitSize(0, 0.0, 0.0)
    nodes, edges = check_sizes(graphs)
    mask: Tensor | None = graphs[0].get(f"{part}_mask")
    targets = None
    if mask is not None and (mask.dim() == 1 or split < mask.size(1)):
        targets = int((mask if mask.dim() == 1 else mask[:, split]).sum())
    return SplitSize(
        len(graphs), float(nodes.double().mean()), float(edges.double().mean()), targets
    )


def _differences(entry: Benchmark, sizes: Mapping[str, SplitSize]) -> list[str]:
    found, official = [], entry.official
    unit = "nodes" if entry.single_graph else "graphs"
    for expected, (part, size) in zip(official.graphs, sizes.items(), strict=True):
        count = size.targets if entry.single_graph else size.graphs
        if count != expected:
            found.append(f"{part} has {count} {unit}, not {expected}")
    total = sum(size.graphs for size in sizes.values()) or 1
    for what, published, tolerance in (
        ("nodes", official.mean_nodes, official.node_tolerance),
        ("edges", official.mean_edges, official.edge_tolerance),
    ):
        values = [getattr(size, f"mean_{what}") * size.graphs for size in sizes.values()]
        mean = sum(values) / total
        if abs(mean - published) > tolerance * (1 + 1e-9):
            found.append(f"{mean:.2f} {what} per graph on average, not {published:g}")
    return found
