"""Run the notebooks of ``docs/notebooks`` from top to bottom and save them with their outputs.

python tools/notebooks.py [NAME …]
"""

import io
import os
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from traitlets.config import Config

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
QUICK = {
    "EPOCHS = 80": "EPOCHS = 2",
    "COUNT = 64": "COUNT = 4",
    '"training.epochs": EPOCHS': '"training.epochs": EPOCHS, "evaluation.statistics_passes": 1',
    "rewirings=16": "rewirings=2",
    "rewirings=4": "rewirings=1",
    '"test.csv", "test_predicted.csv")': '"test.csv", "test_predicted.csv", rewirings=2)',
    "coverage=level": "coverage=level, rewirings=2",
    "(len(permutations), 100, 3)": "(len(permutations), 5, 3)",
    "range(100)": "range(5)",
    '{"training.epochs": EPOCHS': '{"model.layers": 2, "training.epochs": EPOCHS',
    'target="logP", settings': 'target="logP", forest=False, settings',
    "calibrated=False)": "calibrated=False, rewirings=2)",
    "[0.3, 0.5, 0.7, 0.8, 0.9, 0.95]": "[0.5, 0.9]",
    'table["graph"] = [read': 'table = table.iloc[::4].copy()\ntable["graph"] = [read',
}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def shorten(notebook: NotebookNode) -> NotebookNode:
    """Use few epochs, rewirings and molecules, for tests."""
    for cell in notebook.cells:
        for line, short in QUICK.items():
            cell.source = cell.source.replace(line, short)
    return notebook


def execute(notebooks: Sequence[NotebookNode], folder: Path) -> None:
    """Run notebooks one after the other, and keep no traces of where and when they ran.

    They share a kernel, because its imports take longer than most cells, but no variables.

    Args:
        notebooks: The notebooks; their outputs are replaced.
        folder: Working folder of the run.
    """
    whole = new_notebook(metadata=METADATA)
    for notebook in notebooks:
        whole.cells += [*notebook.cells, new_code_cell("%reset -f")]
    client = NotebookClient(
        whole,
        resources={"metadata": {"path": str(folder)}},
        timeout=1800,
        record_timing=False,
        config=Config(KernelManager={"transport_encryption": "auto"}),
    )
    environment = os.environ | {
        "IPYTHONDIR": str(folder / ".ipython"),
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm without ipywidgets
    }
    client.execute(env=environment)
    for notebook in notebooks:
        notebook.metadata = METADATA
        for number, cell in enumerate(notebook.cells, 1):
            cell.id, cell.metadata = f"cell-{number:02d}", {}
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = _smaller(output.data["image/png"])


def _smaller(picture: str) -> str:
    """A chart as PNG with a palette, which is a third of the size."""
    chart = Image.open(io.BytesIO(b64decode(picture))).convert("RGB")
    file = io.BytesIO()
    chart.quantize(method=Image.Quantize.MAXCOVERAGE).save(file, "PNG", optimize=True)
    return b64encode(file.getvalue()).decode()


def main() -> None:
    chosen = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in chosen:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            notebook = nbformat.read(path, as_version=4)
            execute([notebook], Path(folder))
            nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
