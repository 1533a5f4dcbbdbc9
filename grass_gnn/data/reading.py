"""Raw files of the benchmarks: found in the user's folder or downloaded, and read by PyG.

PyG writes below the folder it reads from, and removes raw files before it downloads. It therefore
only ever sees a temporary folder, with links to the raw files: the user's own is left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset

from grass_gnn.data.sbm import SPLITS
from grass_gnn.errors import GrassError
from grass_gnn.files import cache_folder

_SEARCH_DEPTH = 3  # folders below the one given: a set's own, its name in PyG's layout, raw


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a dataset, and PyG's class that downloads and reads them."""

    name: str
    dataset_class: type[InMemoryDataset]
    arguments: Mapping[str, Any]  # of the class, but for root and split
    layout: str  # folder below PyG's root which holds raw/; "" for the root itself
    files: tuple[str, ...]
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

    def download(self, *, allowed: bool = True, hint: str = "") -> Path:
        """The folder with the downloaded raw files; at first use, let PyG download them."""
        target = self.download_folder
        if self.downloaded:
            return target
        advice = f"name a folder that holds its raw files (--data){hint}."
        if not allowed:
            raise GrassError(f"{self.name} is not in {target.parent}; {advice}")
        only_download = type(
            self.dataset_class.__name__, (self.dataset_class,), {"process": _stop_before_processing}
        )
        try:
            cache_folder().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".download-") as root:
                with _quiet_unless_terminal(), contextlib.suppress(_DownloadedError):
                    only_download(root, **self.arguments)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(target, ignore_errors=True)  # an incomplete one
                os.replace(Path(root) / self.layout / "raw", target)
        except (OSError, HTTPException, zipfile.BadZipFile) as error:
            raise GrassError(
                f"{self.name} cannot be downloaded ({_reason(error)}); {advice}"
            ) from error
        return target

    def read(self, raw: Path) -> dict[str, list[Data]]:
        """All graphs by PyG's own class: of each split, or as ``"train"`` if it has no splits."""
        splits = {split: {"split": split} for split in SPLITS} if self.has_splits else {"train": {}}
        with tempfile.TemporaryDirectory(prefix="grass-gnn-") as root:
            links = Path(root) / self.layout / "raw"
            links.mkdir(parents=True)
            for file in self.files:
                _link(raw / file, links / file)
            try:
                with _quiet_unless_terminal():
                    return {
                        split: list(self.dataset_class(root, **self.arguments, **argument))
                        for split, argument in splits.items()
                    }
            except Exception as error:  # whatever a damaged pickle may lead to
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
                return f"{raw / file} is damaged or incomplete ({_reason(problem)})."
        return f"{raw} does not hold {self.name} as PyG expects it ({_reason(error)})."


class _DownloadedError(Exception):
    """PyG has downloaded a dataset and is about to process it."""


def _stop_before_processing(_: InMemoryDataset) -> NoReturn:
    raise _DownloadedError


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
            pickle.load(file)
    elif path.suffix == ".pt":
        torch.load(path, weights_only=True)
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            for name in arrays.files:
                arrays[name]
    else:
        [int(number) for number in path.read_text().strip().split(",")]


def _reason(error: BaseException) -> str:
    """The first line of an error, as part of a sentence."""
    text = str(getattr(error, "reason", None) or error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


@contextlib.contextmanager
def _quiet_unless_terminal() -> Iterator[None]:
    """PyG shows its own progress; only a terminal gets to see it."""
    with contextlib.ExitStack() as stack:
        if not sys.stderr.isatty():
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield
