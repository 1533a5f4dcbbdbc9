import zipfile
from pathlib import Path

import pytest

from grass_gnn.data.benchmarks.downloads import take_from_archive
from grass_gnn.errors import GrassError


def archive(path: Path, members: dict[str, bytes], symlink: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            if name == symlink:
                member.external_attr = 0o120777 << 16
            packed.writestr(member, data)
    return path


@pytest.mark.parametrize("place", ["../../train.pt", "/etc/train.pt", "deep/er/train.pt"])
def test_only_expected_files_are_taken_and_only_to_the_folder(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "below" / "raw"
    folder.mkdir(parents=True)
    packed = archive(tmp_path / "x.zip", {place: b"data", "../evil": b"!", "/tmp/evil2": b"!"})
    take_from_archive(packed, ["train.pt"], folder)
    assert (folder / "train.pt").read_bytes() == b"data"
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"x.zip", "train.pt"}


def test_a_symbolic_link_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    packed = archive(tmp_path / "x.zip", {"train.pt": b"/etc/passwd"}, symlink="train.pt")
    take_from_archive(packed, ["train.pt"], tmp_path / "raw")
    assert not (tmp_path / "raw" / "train.pt").is_symlink()
    assert (tmp_path / "raw" / "train.pt").read_bytes() == b"/etc/passwd"


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    packed = archive(tmp_path / "x.zip", {"train.pt": b"\0" * (8 << 20)})
    assert packed.stat().st_size < 20_000
    with pytest.raises(GrassError, match=r"train\.pt in an archive is too large"):
        take_from_archive(packed, ["train.pt"], tmp_path, largest=1 << 20)
    assert (tmp_path / "train.pt").stat().st_size <= 1 << 20


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"other": b""}, "contains no train"),
        ({"a/train.pt": b"", "b/train.pt": b""}, "more than one"),
    ],
)
def test_missing_and_duplicate_files_are_reported(
    members: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GrassError, match=message):
        take_from_archive(archive(tmp_path / "x.zip", members), ["train.pt"], tmp_path)


def test_damage_anywhere_gives_a_one_sentence_error_or_is_harmless(tmp_path: Path) -> None:
    whole = archive(tmp_path / "x.zip", {"train.pt": b"some data " * 50}).read_bytes()
    broken = 0
    for place in range(len(whole)):
        (tmp_path / "x.zip").write_bytes(
            whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        )
        (tmp_path / "train.pt").unlink(missing_ok=True)
        try:
            take_from_archive(tmp_path / "x.zip", ["train.pt"], tmp_path)
            assert (tmp_path / "train.pt").read_bytes() == b"some data " * 50
        except GrassError:
            broken += 1
    assert broken > len(whole) // 3
