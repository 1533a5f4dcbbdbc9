import hashlib
import os
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest
from local_server import serving

from grass_gnn.data.benchmarks import downloads
from grass_gnn.data.benchmarks.downloads import BrokenDownloadError, Source, fetch
from grass_gnn.data.benchmarks.registry import BENCHMARKS, load_benchmark
from grass_gnn.errors import GrassError

DATA = bytes(range(256)) * 400
SUM = hashlib.sha256(DATA).hexdigest()


def test_an_interrupted_download_is_resumed(tmp_path: Path) -> None:
    with serving(DATA) as (server, address):
        server.drops = [30_000, 20_000, 0]
        path = fetch(Source(f"{address}/file.bin?dl=1", SUM), tmp_path)
        assert path == tmp_path / "file.bin" and path.read_bytes() == DATA
        # The third connection broke off at once; the fourth asked for the same rest again.
        assert server.asked == [None, "bytes=30000-", "bytes=50000-", "bytes=50000-"]
    assert [file.name for file in tmp_path.iterdir()] == ["file.bin"]


def test_a_later_call_resumes_a_partial_download(tmp_path: Path) -> None:
    with serving(DATA) as (server, address):
        server.drops = [40_000] + [0] * 10
        with pytest.raises(BrokenDownloadError, match="the connection was interrupted"):
            fetch(Source(f"{address}/file.bin", SUM), tmp_path)
        server.drops, server.asked = [], []
        assert fetch(Source(f"{address}/file.bin", SUM), tmp_path).read_bytes() == DATA
        assert server.asked == ["bytes=40000-"]
        fetch(Source(f"{address}/file.bin", SUM), tmp_path)
        assert len(server.asked) == 1  # it is there


@pytest.mark.parametrize("ranges", [True, False])
def test_parts_of_two_files_are_not_joined(ranges: bool, tmp_path: Path) -> None:
    with serving(DATA) as (server, address):
        server.ranges = ranges
        server.drops = [40_000] + [0] * 10
        with pytest.raises(BrokenDownloadError):
            fetch(Source(f"{address}/file.bin"), tmp_path)
        server.drops, server.tag, server.data = [], '"two"', b"another" * 9000
        assert fetch(Source(f"{address}/file.bin"), tmp_path).read_bytes() == b"another" * 9000


def test_a_part_that_is_longer_than_the_file_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(DATA + b"more")
    (tmp_path / "file.bin.version").write_text('"one"')
    with serving(DATA) as (_, address):
        assert fetch(Source(f"{address}/file.bin", SUM), tmp_path).read_bytes() == DATA


def test_wrong_bytes_are_noticed_and_thrown_away(tmp_path: Path) -> None:
    with serving(DATA[:-1] + b"?") as (server, address):
        with pytest.raises(BrokenDownloadError, match=r"127\.0\.0\.1 differs"):
            fetch(Source(f"{address}/file.bin", SUM), tmp_path)
        assert not list(tmp_path.glob("file.bin")) and not list(tmp_path.glob("*.part"))
        server.data = DATA
        assert fetch(Source(f"{address}/file.bin", SUM), tmp_path).read_bytes() == DATA


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "LARGEST_FILE", 1000)
    with serving(DATA) as (server, address):
        with pytest.raises(BrokenDownloadError, match="102,400 bytes exceed the limit of 1,000"):
            fetch(Source(f"{address}/file.bin"), tmp_path)
        server.claim = 999
        with pytest.raises(BrokenDownloadError):  # it sends no more than it claims
            fetch(Source(f"{address}/file.bin", SUM), tmp_path)


def test_no_redirect_leaves_the_encrypted_connection() -> None:
    handler = downloads._NoDowngrade()
    request = downloads.urllib.request.Request("https://example.org/file")
    with pytest.raises(urllib.error.URLError, match="unencrypted"):
        handler.redirect_request(request, None, 302, "Found", {}, "http://example.org/file")
    followed = handler.redirect_request(request, None, 302, "Found", {}, "https://example.com/x")
    assert followed is not None and followed.full_url == "https://example.com/x"


def test_every_source_is_encrypted_and_every_known_sum_is_the_official_files() -> None:
    sources = [source for entry in BENCHMARKS.values() for source in entry.raw.sources]
    assert all(source.url.startswith("https://") for source in sources)
    assert {source.name for source in sources if source.sha256} == {
        "minesweeper.npz",
        "tolokers.npz",
    }


def test_a_benchmark_is_downloaded_once_and_read(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path))
    data = (shared_data / "heterophilous" / "minesweeper" / "raw" / "minesweeper.npz").read_bytes()
    entry = BENCHMARKS["minesweeper"]
    with serving(data) as (server, address):
        server.drops = [50_000]
        local = replace(entry.raw.sources[0], url=f"{address}/minesweeper.npz")
        monkeypatch.setitem(
            BENCHMARKS, "minesweeper", replace(entry, raw=replace(entry.raw, sources=(local,)))
        )
        for _ in range(2):
            splits = load_benchmark("minesweeper", download=True).splits
            assert splits["train"][0].num_nodes == 10_000
        assert load_benchmark("minesweeper").name == "minesweeper"  # now without the network
        assert server.asked == [None, "bytes=50000-"]
    assert not list((tmp_path / "datasets").glob(".minesweeper.parts"))
    os.truncate(tmp_path / "datasets" / "minesweeper" / "raw" / "minesweeper.npz", 1000)
    with pytest.raises(GrassError, match="damaged or incomplete"):
        load_benchmark("minesweeper")
