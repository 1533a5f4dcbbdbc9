"""Explanations of the molecules of a table: a picture and a JSON file for each."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from grass_gnn.api.options import PredictOptions, check_names, with_fields
from grass_gnn.api.prediction import RowSummary, with_descriptors
from grass_gnn.data.tables.files import open_table
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.explain import draw_molecule
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_json
from grass_gnn.progress import report_progress, reporting


def explain_table(
    model: TrainedModel,
    source: str | Path,
    folder: str | Path,
    options: PredictOptions | None = None,
    *,
    limit: int = 20,
    **fields: Any,
) -> RowSummary:
    """Write ``LINE.svg`` and ``LINE.json`` for each of the first rows of a table.

    Atoms are numbered as in the SMILES, from 0. An unreadable row gets only a JSON file with an
    error message.

    Args:
        model: The trained model.
        source: The table of molecules.
        folder: The folder to write to.
        options: Rewirings, column of SMILES, ….
        limit: Number of rows to explain.
        **fields: Further fields of :class:`PredictOptions`.
    """
    check_names(fields, PredictOptions)
    options = with_fields(options or PredictOptions(), fields)
    schema = TableSchema.from_card(model.card)
    if schema is None:
        raise GrassError(f"The model in {model.folder} was not trained on molecules.")
    folder = Path(folder)
    table = open_table(source)
    column = table.place(options.smiles or schema.smiles, "--smiles")
    numbers = [table.place(name, "a descriptor of the model") for name in schema.descriptors]
    rows = list(islice(table, limit))
    failed = 0
    reader = MoleculeReader(schema.features, drawings=True)
    with reporting(options.progress), ReadingPool(reader, workers=1) as pool:
        found = pool.read([row.cells[column] for row in rows])
        for done, (row, molecule) in enumerate(zip(rows, found, strict=True), 1):
            one = with_descriptors(row, molecule, numbers, schema.descriptors)
            text = row.cells[column]
            if isinstance(one, str):
                failed += 1
                write_json(folder / f"{row.line}.json", {"smiles": text[:1000], "error": one})
                continue
            read, values = one
            graph = read.with_descriptors(values)
            explanation = model.explain(graph, options.rewirings, options.seed)
            write_json(folder / f"{row.line}.json", {"smiles": text, **explanation.to_dict()})
            draw_molecule(explanation, read.drawable, folder / f"{row.line}.svg")
            report_progress("Explaining", done, len(rows))
    return RowSummary(len(rows), failed)
