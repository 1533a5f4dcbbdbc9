"""Run the notebooks of ``docs/notebooks`` from top to bottom and save them with their outputs.

python tools/notebooks.py [NAME …]
"""

import io
import os
import sys
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image
from traitlets.config import Config

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path, folder: Path, quick: bool = False) -> NotebookNode:
    """A notebook after a run in a folder of its own, without traces of where and when it ran.

    ``quick`` asks for small sizes, which notebooks that train read from GRASS_NOTEBOOK_QUICK.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        resources={"metadata": {"path": str(folder)}},
        timeout=1800,
        record_timing=False,
        config=Config(KernelManager={"transport_encryption": "auto"}),
    )
    environment = os.environ | {
        "IPYTHONDIR": str(folder / ".ipython"),
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm would like ipywidgets
    }
    environment |= {"GRASS_NOTEBOOK_QUICK": "1"} if quick else {}
    client.execute(env=environment)
    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02d}", {}
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return notebook


def _smaller(picture: str) -> str:
    """A chart as PNG with a palette, which takes a third of the space."""
    chart = Image.open(io.BytesIO(b64decode(picture))).convert("RGB")
    file = io.BytesIO()
    chart.quantize(method=Image.Quantize.MAXCOVERAGE).save(file, "PNG", optimize=True)
    return b64encode(file.getvalue()).decode()


def main() -> None:
    chosen = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in chosen:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
