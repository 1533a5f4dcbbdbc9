"""The tools that measure the code: which files a command walks through, and how large they are."""

import re
import sys

import pytest

from tools.counts import counts, long_signatures
from tools.module_map import PACKAGE
from tools.walk import WALKS, Walk, kept_section

FIRST = """
from small_house import second

def start(n):
    return [second.work() for _ in range(n)]

def helper():
    return 1
"""
SECOND = """
def at_import():
    return 0

VALUE = at_import()

def work():
    from small_house import first, third
    return first.helper() + third.VALUE
"""
THIRD = "from small_house.second import at_import\nVALUE = at_import()\n"


@pytest.fixture
def small_house(tmp_path, monkeypatch):
    folder = tmp_path / "small_house"
    folder.mkdir()
    for name, text in {"__init__": "", "first": FIRST, "second": SECOND, "third": THIRD}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("small_house")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_walk_lists_functions_entered_in_order_and_no_imports(small_house):
    with Walk(small_house) as found:
        from small_house import first

        first.start(3)
    assert list(found.functions) == ["first.py", "second.py"]
    assert dict(found.functions["second.py"]) == {"work": 3}
    assert found.functions["first.py"]["start"] == 1 and found.functions["first.py"]["helper"] == 3
    assert found.steps_back() == [("second.py", "first.py")]
    assert "2 files" in str(found)


def test_the_page_has_walks_through_files_that_exist():
    text = kept_section()
    for name in WALKS:
        assert f"### `{name}`" in text
    files = re.findall(r"^ *\d+  (\S+\.py) ", text, re.M)
    assert len(files) > 30
    missing = sorted({file for file in files if not (PACKAGE / file).is_file()})
    assert not missing, "The code has changed: run `make modules`."


def test_counts():
    sources = {
        "grass_gnn/cli/a.py": "def f(a, b, c, d, e, f, g, h, *, i): ...\n",
        "grass_gnn/b.py": "class A:\n    def g(self, a, b, c, d, e, f, g, h): ...\n\n",
    }
    found = counts(sources)
    assert found["files"] == 2 and found["lines"] == 4
    assert [name for _, name in long_signatures(sources)] == ["cli/a.py:f"]
    assert found["of these, outside the command line"] == 0
