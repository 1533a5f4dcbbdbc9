"""Explanations of the molecules of a table: a picture and a JSON file for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from grass_gnn.api.options import PredictOptions
from grass_gnn.api.prediction import RowSummary, open_molecules, with_descriptors
from grass_gnn.config import check_names, with_fields
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.schema import TableSchema, naming_column
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.attribution import Attribution
from grass_gnn.evaluation.explain import Explanation
from grass_gnn.evaluation.pictures import (
    common_scale,
    draw_contributions,
    draw_molecule,
    signed,
)
from grass_gnn.evaluation.stack import forest_checksum
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import write_json
from grass_gnn.progress import report_progress, reporting
from grass_gnn.tasks import Task, make_task
from grass_gnn.uncertainty.ensembles import molecule_schema

SHOWN = ("atoms", "attention")


def explain_table(
    model: TrainedModel,
    source: str | Path,
    folder: str | Path,
    options: PredictOptions | None = None,
    *,
    show: str = "atoms",
    limit: int = 20,
    **fields: Any,
) -> RowSummary:
    """Write ``LINE.svg`` and ``LINE.json`` for each of the first rows of a table.

    The JSON file has the contribution of each atom and the attention of each edge. Atoms are
    numbered as in the SMILES, from 0. All pictures have the same colour scale. An unreadable row
    gets only a JSON file with an error message.

    Args:
        model: The trained model.
        source: The table of molecules.
        folder: The folder to write to.
        options: Rewirings, column of SMILES, ….
        show: What the pictures show: ``"atoms"``, their contributions to the first target (or to
            the most likely class), or ``"attention"``, that of bonds.
        limit: Number of rows to explain.
        **fields: Further fields of :class:`PredictOptions`.
    """
    if show not in SHOWN:
        raise GrassError(f"Pictures show {' or '.join(SHOWN)}, not {show!r}.")
    check_names(fields, PredictOptions)
    options = with_fields(options or PredictOptions(), fields)
    model = model if options.device is None else model.to(options.device)
    schema, task = molecule_schema(model), make_task(model.config.task)
    folder = Path(folder)
    table, column, numbers = open_molecules(source, schema, options.smiles)
    naming = naming_column(table.columns, schema, [column, *numbers])
    rows = list(islice(table, limit))
    found: list[_Explained] = []
    # Contributions and attention are the network's, and so is the prediction beside them.
    alone = " (network alone)" if forest_checksum(model) else ""
    reader = MoleculeReader(schema.features, drawings=True, descriptors=schema.rdkit)
    with reporting(options.progress), ReadingPool(reader, workers=1) as pool:
        molecules = pool.read([row.cells[column] for row in rows])
        for done, (row, molecule) in enumerate(zip(rows, molecules, strict=True), 1):
            text = row.cells[column]
            one = with_descriptors(row, molecule, numbers, schema.descriptors)
            if isinstance(one, str):
                write_json(folder / f"{row.line}.json", {"smiles": text[:1000], "error": one})
                continue
            read, values = one
            graph = read.with_descriptors(values)
            mean, std = model.predict([graph], options.rewirings, options.seed)
            found.append(
                _Explained(
                    line=row.line,
                    smiles=text,
                    name=("" if naming is None else row.cells[naming]) or text,
                    prediction=prediction_text(schema, task, mean[0], std[0]) + alone,
                    mol=read.drawable,
                    explanation=model.explain(graph, options.rewirings, options.seed),
                    attribution=model.attribute(graph, options.rewirings),
                    output=explained_output(task, mean[0]),
                )
            )
            report_progress("Explaining", done, len(rows))
    for explained in found:
        write_json(folder / f"{explained.line}.json", explained.to_dict())
    if show == "attention":
        _draw_attention(found, folder)
    else:
        _draw_contributions(found, folder, output_names(schema, task))
    return RowSummary(len(rows), len(rows) - len(found))


@dataclass(frozen=True)
class _Explained:
    """A row of the table with its explanations."""

    line: int
    smiles: str
    name: str
    prediction: str
    mol: Any  # of RDKit
    explanation: Explanation
    attribution: Attribution
    output: int  # whose contributions are drawn

    def to_dict(self) -> dict[str, Any]:
        """The content of the JSON file."""
        return {
            "smiles": self.smiles,
            "prediction": self.prediction,
            **self.attribution.to_dict(),
            **self.explanation.to_dict(),
        }


def _draw_attention(found: Sequence[_Explained], folder: Path) -> None:
    scale = common_scale(one.explanation for one in found)
    for one in found:
        path = folder / f"{one.line}.svg"
        texts = {"name": one.name, "prediction": one.prediction}
        draw_molecule(one.explanation, one.mol, path, **texts, scale=scale)


def _draw_contributions(found: Sequence[_Explained], folder: Path, outputs: Sequence[str]) -> None:
    values = [one.attribution.of_output(one.output) for one in found]
    scale = max([abs(value) for own in values for value in own], default=0.0)
    for one, own in zip(found, values, strict=True):
        path = folder / f"{one.line}.svg"
        texts = {"name": one.name, "prediction": one.prediction, "target": outputs[one.output]}
        draw_contributions(own, one.mol, path, **texts, scale=scale)


def explained_output(task: Task, prediction: Tensor) -> int:
    """The output whose contributions are drawn: the first target, or the likeliest class.

    Args:
        task: The task of the model.
        prediction: The prediction of a molecule [outputs].
    """
    return 0 if task.classes is None else int(prediction.argmax())


def output_names(schema: TableSchema, task: Task) -> list[str]:
    """What contributions to each output are called: its target or class, and logits as such."""
    names = task.output_names(schema.targets, schema.classes)
    return [f"{name} (logit)" if task.predicts_probabilities else name for name in names]


def prediction_text(schema: TableSchema, task: Task, mean: Tensor, std: Tensor) -> str:
    """A prediction [outputs] in a line: values with their std, or the most likely class."""
    names = task.output_names(schema.targets, schema.classes)
    if task.classes is None:
        parts = [
            f"{name} {signed(value, '.3g')} (± {spread:.2g} over rewirings)"
            for name, value, spread in zip(names, mean.tolist(), std.tolist(), strict=True)
        ]
        return ", ".join(parts[:3]) + (", …" if len(parts) > 3 else "")
    best = int(mean.argmax())
    return f"{schema.targets[0]}: {names[best]} (probability {float(mean[best]):.2f})"
