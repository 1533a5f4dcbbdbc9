"""MkDocs hook: each notebook in ``docs/`` becomes a page, with the outputs stored in it."""

from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page, and its pictures, for each notebook; the notebook itself can be downloaded."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = PurePosixPath(notebook.src_uri)
        text, resources = MarkdownExporter().from_filename(notebook.abs_src_path)
        text = text.replace("<th></th>", "<td></td>")  # corners of pandas' tables are no headers
        for name, picture in resources["outputs"].items():
            text = text.replace(f"]({name})", f"]({path.stem}/{name})")
            uri = str(path.parent / path.stem / name)
            files.append(File.generated(config, uri, content=picture))
        # In HTML, because Markdown links to notebooks lead to their pages (repository.py).
        text += f'\n\n<a href="{path.name}" download>Download this notebook</a>\n'
        files.append(File.generated(config, str(path.with_suffix(".md")), content=text))
    return files
