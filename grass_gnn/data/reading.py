"""Raw files of the benchmarks: found in the user's folder or downloaded, and read by PyG.

PyG writes below the folder it reads from. It therefore only ever sees a temporary folder, with
links to the raw files: the user's own is left as it is. Downloads are ours (``data.downloads``):
PyG's check neither the server nor what it sends.
"""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data, InMemoryDataset

from grass_gnn.data.cache import CacheEntry
from grass_gnn.data.downloads import (
    BrokenDownloadError,
    Source,
    fetch,
    file_sha256,
    take_from_archive,
)
from grass_gnn.data.pickles import load_data, load_tensors_only, reading_data_only
from grass_gnn.data.sbm import SPLITS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import cache_folder, move_whole, write_json
from grass_gnn.progress import Progress, reporting

_ADVICE = "name a folder that holds its raw files (--data)"
_SEARCH_DEPTH = 3  # folders below the one given: a set's own, its name in PyG's layout, raw


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset, where they come from, and PyG's class that reads them."""

    name: str
    dataset_class: type[InMemoryDataset]
    arguments: Mapping[str, Any]  # of the class, but for root and split
    layout: str  # folder below PyG's root which holds raw/; "" for the root itself
    files: tuple[str, ...]
    sources: tuple[Source, ...]  # files, and archives with the others
    has_splits: bool = True  # whether the class takes a split

    def find(self, folder: Path) -> Path:
        """The folder with all raw files, at or below the one that the user named."""
        if not folder.is_dir():
            raise GrassError(f"There is no folder {folder} to read {self.name} from.")
        direct = [folder, folder / "raw", folder / self.layout / "raw"]
        for place in direct:
            if self._missing(place) is None:
                return place
        found = [place for place in _subfolders(folder) if self._fits(place)]
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(str(place.parent) for place in found)
            raise GrassError(f"{folder} holds {self.name} more than once; name one of {places}.")
        # Name the missing file of the place that has most of them.
        best = max(direct, key=lambda place: sum((place / file).is_file() for file in self.files))
        raise GrassError(f"{folder} does not hold {self.name}: {self._missing(best)} is missing.")

    def _missing(self, place: Path) -> Path | None:
        return next((place / file for file in self.files if not (place / file).is_file()), None)

    def _fits(self, place: Path) -> bool:
        """Whether a folder found by searching is this dataset's; several share their file names."""
        named = place.parent.name.lower() in (self.layout.lower(), self.name)
        return place.name == "raw" and named and self._missing(place) is None

    @property
    def download_folder(self) -> Path:
        """Where downloaded raw files are kept."""
        return cache_folder() / "datasets" / self.name / "raw"

    @property
    def downloaded(self) -> bool:
        """Whether all raw files have been downloaded."""
        return self._missing(self.download_folder) is None

    def local(self, hint: str = "") -> Path:
        """The folder with the downloaded raw files.

        Raises:
            GrassError: They are not there: nothing goes to the network unless it is asked to.
        """
        if not self.downloaded:
            raise GrassError(
                f"{self.name} is not in {self.download_folder.parent}; "
                f"run `grass-gnn datasets download {self.name}`, or {_ADVICE}{hint}."
            )
        return self.download_folder

    def download(self, progress: Progress | None = None, hint: str = "") -> Path:
        """The folder with the raw files, which are downloaded unless they are there."""
        target = self.download_folder
        root = target.parent.parent
        parts = root / f".{self.name}.parts"  # what arrived, whole or not
        with CacheEntry(root, self.name).locked():
            if self.downloaded:
                return target
            try:
                with (
                    reporting(progress) as report,
                    tempfile.TemporaryDirectory(dir=root, prefix=".download-") as made,
                ):
                    folder = Path(made) / "raw"
                    folder.mkdir()
                    self._collect(parts, folder, report)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.rmtree(target, ignore_errors=True)  # an incomplete one
                    move_whole(folder, target)
            except (OSError, BrokenDownloadError) as error:
                raise GrassError(
                    f"{self.name} cannot be downloaded ({first_line(error)}); {_ADVICE}{hint}."
                ) from error
            shutil.rmtree(parts, ignore_errors=True)
        return target

    def _collect(self, parts: Path, folder: Path, progress: Progress) -> None:
        """Download all sources and take the raw files from them, with a note of their sums."""
        single = {source.name for source in self.sources}
        packed = [file for file in self.files if file not in single]
        sums = {}
        for source in self.sources:
            path = fetch(source, parts, progress)
            sums[source.url] = file_sha256(path)
            if path.suffix == ".zip":
                take_from_archive(path, packed, folder)
            else:
                shutil.copyfile(path, folder / path.name)
        write_json(folder / "sources.json", sums)

    def read(self, raw: Path) -> dict[str, list[Data]]:
        """All graphs by PyG's own class: of each split, or as ``"train"`` if it has no splits."""
        splits = {split: {"split": split} for split in SPLITS} if self.has_splits else {"train": {}}
        with tempfile.TemporaryDirectory(prefix="grass-gnn-") as root:
            links = Path(root) / self.layout / "raw"
            links.mkdir(parents=True)
            for file in self.files:
                _link(raw / file, links / file)
            try:
                with _quiet_unless_terminal(), reading_data_only():
                    return {
                        split: list(self.dataset_class(root, **self.arguments, **argument))
                        for split, argument in splits.items()
                    }
            except Exception as error:  # whatever a damaged file may lead to
                raise GrassError(self._explain(raw, error)) from error

    def _explain(self, raw: Path, error: Exception) -> str:
        """What is at fault; a damaged file is found by reading each of them alone."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return (
                f"The disk of {tempfile.gettempdir()} is full, where PyG works on {self.name}; "
                "make room or name another folder in TMPDIR."
            )
        for file in self.files:
            try:
                _read_alone(raw / file)
            except Exception as problem:
                return f"{raw / file} is damaged or incomplete ({first_line(problem)})."
        return f"{raw} does not hold {self.name} as PyG expects it ({first_line(error)})."


def _subfolders(folder: Path, depth: int = _SEARCH_DEPTH) -> Iterator[Path]:
    with contextlib.suppress(PermissionError):
        for place in sorted(folder.iterdir()):
            if place.is_dir():
                yield place
                if depth > 1:
                    yield from _subfolders(place, depth - 1)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _read_alone(path: Path) -> None:
    if path.suffix == ".pickle":
        with path.open("rb") as file:
            load_data(file)
    elif path.suffix == ".pt":
        load_tensors_only(path)
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            for name in arrays.files:
                arrays[name]
    else:
        [int(number) for number in path.read_text().strip().split(",")]


@contextlib.contextmanager
def _quiet_unless_terminal() -> Iterator[None]:
    """PyG shows its own progress; only a terminal gets to see it."""
    with contextlib.ExitStack() as stack:
        if not sys.stderr.isatty():
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield
