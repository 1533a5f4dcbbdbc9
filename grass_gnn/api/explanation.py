"""Explanations of the molecules of a table: a picture and a file of numbers for each."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from grass_gnn.api.prediction import with_descriptors
from grass_gnn.data.tables.files import open_table
from grass_gnn.data.tables.molecules import MoleculeReader, ReadingPool, parse
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.explain import draw_molecule
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_json
from grass_gnn.progress import Progress, silent


def explain_table(
    model: TrainedModel,
    source: str | Path,
    folder: str | Path,
    *,
    smiles: str | None = None,
    limit: int = 20,
    rewirings: int = 16,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[int, int]:
    """Write ``LINE.svg`` and ``LINE.json`` for each of a table's first rows.

    Atoms are numbered as in the SMILES, from 0. A row that is no molecule has only a JSON, which
    says why.

    Returns:
        The number of rows, and of those that could not be read.
    """
    schema = TableSchema.from_card(model.card)
    if schema is None:
        raise GrassError(f"The model in {model.folder} was not trained on molecules.")
    folder = Path(folder)
    table = open_table(source)
    column = table.place(smiles or schema.smiles, "--smiles")
    numbers = [table.place(name, "a descriptor of the model") for name in schema.descriptors]
    rows = list(islice(table, limit))
    failed = 0
    with ReadingPool(MoleculeReader(schema.features), workers=0) as pool:
        found = pool.read([row.cells[column] for row in rows])
        for done, (row, molecule) in enumerate(zip(rows, found, strict=True), 1):
            one = with_descriptors(row, molecule, numbers, schema.descriptors)
            text = row.cells[column]
            if isinstance(one, str):
                failed += 1
                write_json(folder / f"{row.line}.json", {"smiles": text[:1000], "error": one})
                continue
            read, values = one
            explanation = model.explain(read.with_descriptors(values), rewirings, seed)
            write_json(folder / f"{row.line}.json", {"smiles": text, **explanation.to_dict()})
            draw_molecule(explanation, parse(text), folder / f"{row.line}.svg")
            progress("Explaining", done, len(rows))
    return len(rows), failed
