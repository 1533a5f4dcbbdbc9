"""Downloads: resumed after interruptions, verified, and unpacked safely.

An interrupted download is resumed if the file on the server has not changed. Files are verified
against their SHA-256 if it is known. Only the expected files are extracted from an archive, by
their bare names; paths in the archive are ignored.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import struct
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import write_text
from grass_gnn.progress import Progress, silent

LARGEST_FILE = 16 << 30  # bytes of a download, or of a file in an archive: COCO-SP has 5 GB
_TRIES = 5  # attempts in a row without a new byte
_TIMEOUT = 60  # seconds of silence
_CHUNK = 1 << 20
# Errors of damaged archives. RuntimeError: encrypted, or compressed in an unknown way; OSError:
# impossible offsets, or a full disk.
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


class BrokenDownloadError(Exception):
    """A download failed; the message is a clause without a full stop."""


@dataclass(frozen=True)
class Source:
    """A file on a server.

    Without a published SHA-256, the server is trusted to send the right numbers (but never code,
    see :mod:`grass_gnn.data.benchmarks.raw`).
    """

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """Bare name of the file."""
        return PurePosixPath(urlsplit(self.url).path).name


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from an encrypted connection to an unencrypted one."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, to: str
    ) -> Any:
        if req.full_url.startswith("https:") and not to.startswith("https:"):
            raise urllib.error.URLError("the server redirects to an unencrypted address")
        return super().redirect_request(req, fp, code, msg, headers, to)


def fetch(source: Source, folder: Path, progress: Progress = silent) -> Path:
    """Download a file into a folder, or resume an earlier download.

    Raises:
        BrokenDownloadError: The download fails, or its checksum is wrong.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / source.name, folder / f"{source.name}.part"
    if not target.is_file():
        tries = 0
        while tries < _TRIES:
            before = part.stat().st_size if part.is_file() else 0
            try:
                if _continue(source, part, progress):
                    break
                problem = "the connection was interrupted"
            except urllib.error.HTTPError as error:
                if (
                    error.code == 416 and before
                ):  # the part is longer than the file, so it belongs to another one
                    part.unlink()
                    continue
                raise BrokenDownloadError(
                    f"the server answered {error.code} {error.reason}"
                ) from error
            except (OSError, HTTPException) as error:
                problem = first_line(error)
            grown = part.is_file() and part.stat().st_size > before
            tries = 0 if grown else tries + 1
        else:
            raise BrokenDownloadError(problem)
        _check(source, part)
        part.replace(target)
        part.with_suffix(".version").unlink(missing_ok=True)
    _check(source, target)
    return target


def _continue(source: Source, part: Path, progress: Progress) -> bool:
    """Download the rest of a file; return whether it is complete afterwards."""
    version = part.with_suffix(".version")  # the server's ETag or date of the file
    known = version.read_text("utf-8") if version.is_file() and part.is_file() else ""
    start = part.stat().st_size if known else 0
    request = urllib.request.Request(source.url, headers={"User-Agent": "grass-gnn"})
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", known)
    opener = urllib.request.build_opener(_NoDowngrade())
    with opener.open(request, timeout=_TIMEOUT) as answer:
        if (
            answer.status != 206
        ):  # from the start: the file has changed, or ranges are not supported
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdigit() else None
        if (total or 0) > LARGEST_FILE:
            raise BrokenDownloadError(f"{total:,} bytes exceed the limit of {LARGEST_FILE:,}")
        write_text(version, _version(answer.headers))
        with part.open("ab" if start else "wb") as file:
            done = start
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if done > LARGEST_FILE:
                    raise BrokenDownloadError(f"it is larger than {LARGEST_FILE:,} bytes")
                progress(f"Downloading {source.name}", done, total or 0)
    return total is None or done == total


def _version(headers: Any) -> str:
    tag = headers.get("ETag") or ""
    strong = tag if not tag.startswith("W/") else ""  # weak: the bytes may differ
    return strong or headers.get("Last-Modified") or ""


def _check(source: Source, path: Path) -> None:
    """Remove a file and raise if its checksum is wrong."""
    if source.sha256 is not None and file_sha256(path) != source.sha256:
        path.unlink()
        raise BrokenDownloadError(
            f"the checksum of the file from {urlsplit(source.url).hostname} differs"
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def take_from_archive(
    archive: Path, names: Sequence[str], folder: Path, largest: int = LARGEST_FILE
) -> None:
    """Unpack the files with these bare names, and no others, into a folder.

    Args:
        archive: A zip file.
        names: Names of the files; folders within the archive are ignored.
        folder: Folder to write to.
        largest: Largest size in bytes of a file; unpacking stops there, whatever its header says.

    Raises:
        GrassError: A file is missing, ambiguous or too large, or the archive is damaged.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in names:
                found = [m for m in packed.infolist() if PurePosixPath(m.filename).name == name]
                found = [member for member in found if not member.is_dir()]
                if len(found) != 1:
                    how_often = "no" if not found else "more than one"
                    raise GrassError(f"The archive {archive} contains {how_often} {name}.")
                with packed.open(found[0]) as source, (folder / name).open("xb") as target:
                    shutil.copyfileobj(_Limited(source, largest, name), target, _CHUNK)
    except _DAMAGES as error:
        raise GrassError(
            f"The archive {archive} cannot be unpacked: {first_line(error)}."
        ) from None


class _Limited:
    """A file with a limit on its length."""

    def __init__(self, file: Any, largest: int, name: str) -> None:
        self.file, self.left, self.name = file, largest, name

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise GrassError(f"The file {self.name} in an archive is too large.")
        return data
