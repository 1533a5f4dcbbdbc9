"""Datasets checked and encoded once, then kept and found again by their content."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.benchmarks import BenchmarkData, benchmark, load_benchmark, raw_folder
from grass_gnn.data.cache import CacheEntry, DamagedError, hash_files
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.fingerprint import content_hash
from grass_gnn.data.prepared import PreparedData, build_entry, in_split, open_entry
from grass_gnn.errors import GrassError
from grass_gnn.files import cache_folder
from grass_gnn.progress import Progress

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
    workers: int | None = None,
    progress: Progress | None = None,
) -> PreparedData:
    """Read, check and encode a dataset, or find it in the cache.

    Args:
        source: Name of a benchmark, or the graphs of ``"train"``, ``"val"`` and ``"test"`` (an
            empty split is left out).
        config: What the graphs must fit, and their encoding.
        cache_dir: Where prepared data is kept; in the user's cache if not given.
        folder: Where the raw files of the benchmark are (see :func:`load_benchmark`).
        generate: Numbers of graphs to generate instead (PATTERN, CLUSTER).
        seed: Seed of generated graphs.
        download: Whether the network may be asked for raw files, if no folder is given.
        workers: Threads that encode; as many as there are cores if not given.
        progress: Told what is done; if not given, a terminal shows a progress bar.
    """
    started = time.perf_counter()
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
            # Another process may have built it meanwhile.
            prepared = _find(entry, config, notice=True)
            if prepared is None:
                prepared = build_entry(entry, load(), config, started, workers, progress)
    if isinstance(source, str) and not prepared.official:
        logger.warning(prepared.unofficial_because)
    origin: dict[str, Any] = {}
    if generate is not None:
        origin = {"generated": list(generate), "seed": seed}
    elif folder is not None:
        origin = {"folder": str(folder)}
    return replace(prepared, origin=origin)


def open_prepared(folder: Path, config: GRASSConfig) -> PreparedData:
    """Open what :func:`prepare` left in a folder, such as that of a run on one's own data.

    Raises:
        GrassError: It is not there, or damaged.
    """
    entry = CacheEntry(folder.parent, folder.name)
    try:
        manifest = entry.manifest()
        if manifest is None:
            raise GrassError(f"The prepared data of this run is not in {folder} any more.")
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
        raise GrassError("The configuration names no dataset (dataset = ...).")
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
    """What tells the content of a benchmark apart, without reading it by PyG."""
    entry = benchmark(name)
    if generate is not None:
        return f"generated {list(generate)} {seed}"
    raw = raw_folder(entry, folder, download=download)
    return hash_files([raw / file for file in entry.raw.files])


def _key(identity: str, config: GRASSConfig) -> str:
    """A short hash of the content and of all settings that decide what is stored."""
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
            logger.warning("The prepared data in %s %s and is built anew.", entry.folder, problem)
        return None
