"""The cache of the compiled library; a script that copies the library acts as the compiler."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from grass_gnn.ops import build

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")

LOAD = "import build; print(build.library()._name)"  # the module alone: to import torch takes long


@pytest.fixture
def compiler(tmp_path):
    """A fake compiler, which writes a line to a log for every library that it links."""
    script = tmp_path / "fake-c++"
    script.write_text(
        f"""#!/bin/sh
case "$*" in
  --version) echo fake 1.0; exit ;;
  *-shared*) echo linked >> {tmp_path}/log; sleep 0.3; source={build.library()._name} ;;
  *) source=/dev/null ;;
esac
for last; do :; done
cp "$source" "$last"
"""
    )
    script.chmod(0o700)
    return script


@pytest.fixture
def start(tmp_path, compiler):
    """Start Python in an environment of its own."""

    def start(code=LOAD, **environment):
        folder = Path(build.__file__).parent
        variables = {
            **os.environ,
            "PYTHONPATH": f"{folder}:{folder.parents[1]}",
            "GRASS_CACHE": str(tmp_path / "cache"),
            "CXX": str(compiler),
            "HOME": str(tmp_path),
            **environment,
        }
        variables = {name: value for name, value in variables.items() if value is not None}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def output(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip(), err


def links(tmp_path):
    return len((tmp_path / "log").read_text().splitlines())


def test_compiled_once_and_found_again(tmp_path, start):
    first, second = output(start())[0], output(start())[0]
    assert first == second
    assert Path(first).parent == tmp_path / "cache"
    assert links(tmp_path) == 1
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".so", ".sha256"}


def test_of_several_processes_one_compiles(tmp_path, start):
    processes = [start() for _ in range(3)]
    assert len({output(process)[0] for process in processes}) == 1
    assert links(tmp_path) == 1


def test_truncated_library_is_built_again(tmp_path, start):
    path = Path(output(start())[0])
    path.write_bytes(path.read_bytes()[:5000])
    output(start())
    assert links(tmp_path) == 2


def test_other_flags_give_another_library(start):
    assert (
        output(start())[0]
        != output(start("import build\nbuild.FLAGS += ('-O0',)\nprint(build.library()._name)"))[0]
    )


def test_without_a_compiler_one_warning(start):
    code = "import build; print(build.available(), build.available())"
    out, err = output(start(code, CXX=None, PATH="/nowhere"))
    assert out == "False False"
    assert err.count("UserWarning") == 1
    assert "no C++ compiler was found" in err


def test_native_asked_for_without_a_compiler(start):
    process = start(
        "import build; build.available()",
        CXX="/no/such/compiler",
        GRASS_OPS="native",
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "GRASS_OPS=native, but the compiler in CXX, '/no/such/compiler', was not found" in err


def test_compiler_that_fails_is_quoted(start, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no header <thread>' >&2\nexit 1\n")
    broken.chmod(0o700)
    code = "import build; print(build.available())"
    out, err = output(start(code, CXX=str(broken)))
    assert out == "False"
    assert "no header <thread>" in err


def test_cache_path_that_is_not_a_folder_falls_back_to_a_temporary_one(start, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    out, _ = output(start(GRASS_CACHE=str(blocked), TMPDIR=str(temporary)))
    folder = Path(out).parent
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_read_only_cache_falls_back_to_a_temporary_one(start, tmp_path):
    cache, temporary = tmp_path / "read-only", tmp_path / "temporary"
    cache.mkdir(mode=0o500)
    temporary.mkdir()
    assert Path(output(start(GRASS_CACHE=str(cache), TMPDIR=str(temporary)))[0]).is_relative_to(
        temporary
    )


def test_folder_that_others_may_write_is_not_trusted(start, tmp_path):
    cache, temporary = tmp_path / "open", tmp_path / "temporary"
    cache.mkdir()
    cache.chmod(0o777)
    temporary.mkdir()
    assert Path(output(start(GRASS_CACHE=str(cache), TMPDIR=str(temporary)))[0]).is_relative_to(
        temporary
    )


def test_import_does_not_compile(start, tmp_path):
    output(start("import grass_gnn.ops"))
    assert not (tmp_path / "log").exists()
