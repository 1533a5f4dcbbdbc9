"""The notebooks run, give the saved kinds of output, and contain nothing machine-specific."""

import re
from itertools import pairwise

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("rdkit")

from tools.notebooks import FOLDER, METADATA, execute, shorten  # noqa: E402

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MACHINE = re.compile(r"(?<![\w.:/])/(home|root|tmp|usr|opt|var|work|Users)/|[A-Z]:\\\\")
LARGEST = 400_000  # bytes

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook):
    """What kinds of output each cell has: text, warnings, tables, pictures."""
    return [
        [sorted(output.get("data", [output.get("name")])) for output in cell.outputs]
        for cell in code_cells(notebook)
    ]


def test_the_three_notebooks_are_there():
    names = {path.stem for path in NOTEBOOKS}
    assert names >= {"rewiring-and-encodings", "molecules", "attention"}


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory):
    """The notebooks after a short run, by path; it raises where a cell does."""
    found = {path: shorten(nbformat.read(path, as_version=4)) for path in NOTEBOOKS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        execute(list(found.values()), tmp_path_factory.mktemp("notebooks"))
    return found


@each_notebook
def test_runs_and_shows_what_it_showed(path, after_a_run):
    assert shown(after_a_run[path]) == shown(nbformat.read(path, as_version=4))


@each_notebook
def test_is_saved_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not MACHINE.search(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < LARGEST


@each_notebook
def test_every_cell_is_introduced(path):
    notebook = nbformat.read(path, as_version=4)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert ("code", "code") not in pairwise(kinds)
    assert kinds[0] == kinds[-1] == "markdown"
