"""The view for molecules: predictions and pictures of pasted SMILES or uploaded tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, Field
from torch import Tensor

from grass_gnn.api.explanation import explained_output, output_names
from grass_gnn.api.prediction import Answer, answer_rows
from grass_gnn.data.checking import CheckedGraph
from grass_gnn.data.packed.dataset import pack_checked
from grass_gnn.data.tables.files import Row, decode_text, guard, open_table, shorten
from grass_gnn.data.tables.molecules import Molecule
from grass_gnn.data.tables.reading import LostMolecule, ReadingPool
from grass_gnn.data.tables.rows import parse_descriptors
from grass_gnn.data.tables.schema import TableSchema, find_molecules, naming_column
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.attribution import attribute_packed
from grass_gnn.evaluation.explain import explain_packed
from grass_gnn.evaluation.pictures import (
    contribution_range,
    contributions_svg,
    molecule_svg,
    plain_molecule_svg,
)
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.report.svg import picture
from grass_gnn.serve.limits import Limits, Refused
from grass_gnn.serve.values import attention_caption, show
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble

# Rows predicted together, and about how many characters; other clients have their turn in between.
_CHUNK, _CHUNK_LENGTH = 16, 2000
SCALE = 0.5  # attention of a bond in the deepest colour, the same for all molecules on the page
# Masked copies of a molecule are as large as the molecule: atoms of all copies that are predicted
# for a picture, and rewirings that contributions are averaged over if there are few atoms.
_MASKED_ATOMS, _MASKED_REWIRINGS = 20_000, 4
_LINE = re.compile(r"(\S+(?:\s+\|[^|]*\|)?)(.*)", re.DOTALL)  # a SMILES, and a name
_COMPRESSED = (b"\x1f\x8b", b"PAR1", b"PK\x03\x04")  # gzip, Parquet, Excel


@dataclass(frozen=True)
class Sheet:
    """Rows of a table, and the meaning of its columns."""

    columns: list[str]
    rows: list[Row]
    smiles: int
    descriptors: list[int]
    name: int | None  # a column that names the molecules, if there is one
    lost: list[str] = field(default_factory=list)  # why molecules that stalled RDKit were not read

    @classmethod
    def read(cls, body: bytes, is_table: bool, schema: TableSchema, most: int) -> Sheet:
        """Read the rows of a table, or lines with one SMILES each.

        Args:
            body: The content of a file, or pasted text.
            is_table: Whether the first line is a header; a line that names a SMILES column always
                is.
            schema: Columns that the model needs.
            most: Maximum number of rows.

        Raises:
            GrassError: Columns are missing, or there are too many rows.
        """
        if body.startswith(_COMPRESSED):
            raise GrassError("The page accepts tables as plain text: CSV or TSV.")
        text = decode_text(body).replace("\0", "\ufffd")
        lines = [line for line in re.split(r"\r\n?|\n", text) if line.strip()]
        if not lines:
            raise GrassError("There are no molecules to predict.")
        header = re.split(r"[,;\t]", lines[0])
        if is_table or _smiles_column([name.strip(' "') for name in header], schema) is not None:
            columns, rows = _table_rows(text, most)
        else:
            columns, rows = _line_rows(lines[: most + 1], schema)
        if not rows:
            raise GrassError("There are no molecules to predict.")
        if len(rows) > most:
            raise Refused(
                413,
                f"The page accepts up to {most:,} rows at a time: use grass-gnn predict for more.",
            )
        smiles = _smiles_column(columns, schema)
        if smiles is None:
            known = ", ".join(shorten(name) for name in columns[:10])
            raise GrassError(f"The table has no column {schema.smiles!r}; its columns are {known}.")
        missing = [name for name in schema.descriptors if name not in columns]
        if missing:
            raise GrassError(
                "This model needs a table with these columns besides the SMILES: "
                f"{', '.join(missing[:20])}."
            )
        descriptors = [columns.index(name) for name in schema.descriptors]
        name = naming_column(columns, schema, [smiles, *descriptors])
        return cls(columns, rows, smiles, descriptors, name)

    def chunk_end(self, start: int) -> int:
        """End of the rows to predict together from ``start`` on: fewer if the SMILES are long."""
        stop, length = start, 0
        while stop < min(start + _CHUNK, len(self.rows)) and length < _CHUNK_LENGTH:
            length += len(self.rows[stop].cells[self.smiles])
            stop += 1
        return stop


def _smiles_column(columns: list[str], schema: TableSchema) -> int | None:
    if schema.smiles in columns:
        return columns.index(schema.smiles)
    return find_molecules(columns)


def _line_rows(lines: list[str], schema: TableSchema) -> tuple[list[str], list[Row]]:
    """Lines of a SMILES, optionally with a CXSMILES extension, and a name."""
    found = [_LINE.match(line.strip()) for line in lines]
    cells = [[one[1], one[2].strip()] for one in found if one is not None]
    rows = [Row(number, both, "") for number, both in enumerate(cells, 1)]
    if any(row.cells[1] for row in rows):
        return [schema.smiles, "name"], rows
    return [schema.smiles], [Row(row.line, row.cells[:1], "") for row in rows]


def _table_rows(text: str, most: int) -> tuple[list[str], list[Row]]:
    """Read a table by the same rules as the command line."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            table = open_table(path)
            return table.columns, list(islice(table, most + 1))
        except GrassError as error:  # do not show the temporary path
            raise GrassError(str(error).replace(f"The file {path}", "The table")) from None


_MOST_LOST = 3  # molecules of a table that may crash or stall RDKit
_NOT_READ = "not read, because RDKit crashed or stalled on molecules above: remove those"
_SHOWN_TEXT = 300  # characters of a cell that the page shows


class MoleculeQuestion(BaseModel):
    """Which molecule to draw, under all rewirings or one of them."""

    smiles: str = Field(max_length=20_000)
    descriptors: list[str] = Field(default=[], max_length=1000)
    rewiring: int | None = Field(default=None, ge=0)
    plain: bool = False  # the structure alone, which needs no model


class MoleculeView:
    """Predicts and draws molecules, with the results of ``grass-gnn predict --deterministic``.

    The rewirings of a molecule depend only on the molecule, so each picture of a rewiring matches
    the prediction for that rewiring.

    Args:
        models: One trained model, or several whose predictions are averaged.
        rewirings: Number of rewirings to average over.
        limits: Largest molecules and tables.
    """

    kind = "molecules"
    question = MoleculeQuestion

    def __init__(self, models: Sequence[TrainedModel], rewirings: int, limits: Limits) -> None:
        calibration, self.calibration_note = find_calibration(models)
        if calibration is not None:
            self.calibration_note = calibration.factors
        self.ensemble = Ensemble(models, calibration)
        self.rewirings, self.limits = rewirings, limits
        self.task, self.schema = self.ensemble.task, self.ensemble.schema
        self.names = self.task.output_names(self.schema.targets, self.schema.classes)
        # Molecules are parsed and drawn in a worker process, so that a crash of RDKit ends only it.
        reader = self.ensemble.reader(limits.atoms, canonical_order=True)
        self._pool = ReadingPool(reader, workers=1, after_loss=_NOT_READ)
        self._drawing_pool = ReadingPool(replace(reader, drawings=True), workers=1)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()
        self._drawing_pool.close()

    def warm_up(self) -> None:
        """Predict and draw one molecule: the first request need not wait for processes to start."""
        reading = self._pool.read(["CCO"])
        self.look(MoleculeQuestion(smiles="CCO", descriptors=["0"] * len(self.schema.descriptors)))
        list(reading)

    def read(self, body: bytes, is_table: bool) -> Sheet:
        """The rows of a table, or lines with one SMILES each."""
        return Sheet.read(body, is_table, self.schema, self.limits.rows)

    def answer(self, sheet: Sheet, start: int, stop: int) -> list[Answer]:
        """Predictions for the rows from ``start`` to ``stop``, or for the first of them.

        A molecule that stalls RDKit keeps other clients waiting, so the rows end with it; after a
        few of them, the rest of the table is not read.
        """
        rows = sheet.rows[start:stop]
        found: list[Molecule | str] = [_NOT_READ] * len(rows)
        if len(sheet.lost) < _MOST_LOST:
            texts = ["" if r.problem else r.cells[sheet.smiles] for r in rows]
            found = list(self._pool.read(texts))
            ends = [place for place, one in enumerate(found, 1) if isinstance(one, LostMolecule)]
            if ends:
                rows, found = rows[: ends[0]], found[: ends[0]]
                sheet.lost.append(str(found[-1]))
        return answer_rows(
            rows, found, sheet.descriptors, self.ensemble, self.rewirings, deterministic=True
        )

    def show(self, sheet: Sheet, answers: Sequence[Answer]) -> dict[str, Any]:
        """All rows for the page, and as a CSV file to download."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([guard(name) for name in sheet.columns + self.ensemble.columns])
        shown, calibrated = [], self.ensemble.calibration is not None
        for row, answer in zip(sheet.rows, answers, strict=True):
            writer.writerow([guard(cell) for cell in row.cells + answer.cells])
            smiles = row.cells[sheet.smiles].strip()
            one = {
                "line": row.line,
                "smiles": smiles if answer.mean is not None else smiles[:_SHOWN_TEXT],
                "name": row.cells[sheet.name][:_SHOWN_TEXT] if sheet.name is not None else "",
                "descriptors": [row.cells[place] for place in sheet.descriptors],
                "similarity": answer.cells[-3],
                "warning": answer.warning,
                "error": answer.cells[-1],
                "headline": "",
                "values": [],
            }
            if answer.mean is not None:
                one["headline"] = self.task.headline(self.names, answer.mean)
                one["values"] = show(self.task, self.names, answer.mean, answer.std, answer.ends)
            shown.append(one)
        return {
            "rows": shown,
            "outputs": len(self.names),
            "calibrated": calibrated,
            "coverage": f"{100 * self.ensemble.coverage:g} %",
            "csv": text.getvalue(),
        }

    def look(self, asked: MoleculeQuestion) -> dict[str, Any]:
        """A picture of a molecule, and the predictions of all rewirings.

        Atoms are coloured by their contributions; with one rewiring, bonds by their attention.
        """
        (molecule,) = self._drawing_pool.read([asked.smiles])
        if not isinstance(molecule, Molecule):
            raise GrassError(f"The molecule cannot be read: {molecule}.")
        if asked.plain:
            return {"picture": picture(plain_molecule_svg(molecule.drawable))}
        try:
            numbers = parse_descriptors(self.schema.descriptors, asked.descriptors)
        except ValueError as error:
            raise GrassError(f"The descriptors cannot be read: {error}.") from None
        graph = molecule.checked(numbers)
        if asked.rewiring is not None:
            return self._attention(molecule, graph, [asked.rewiring], with_added=True)
        columns = self.ensemble.forest_columns([molecule], [numbers])
        samples = self.ensemble.samples(graph, self.rewirings, columns)  # [rewirings, outputs]
        return {
            **self._contributions(molecule, graph, samples.mean(dim=0)),
            "samples": [show(self.task, self.names, sample) for sample in samples],
            "headlines": [self.task.headline(self.names, sample) for sample in samples],
        }

    def _contributions(
        self, molecule: Molecule, graph: CheckedGraph, mean: Tensor
    ) -> dict[str, str]:
        """Atoms by their contributions to the network; bonds by attention if there are too many."""
        rewirings = _MASKED_ATOMS // (graph.num_nodes * (graph.num_nodes + 1))
        if not rewirings:
            return self._attention(molecule, graph, range(self.rewirings))
        model = self.ensemble.models[0]
        packed = pack_checked([graph], model.config)
        numbers = range(min(rewirings, _MASKED_REWIRINGS, self.rewirings))
        output = explained_output(self.task, mean)
        name = output_names(self.schema, self.task)[output]
        values = attribute_packed(model.model, model.config, packed, numbers).of_output(output)
        return {
            "picture": picture(contributions_svg(values, molecule.drawable)),
            "caption": f"Contributions of atoms to {name}: {contribution_range(values)}.",
            "words": f"atoms by their contributions to {name}",
        }

    def _attention(
        self,
        molecule: Molecule,
        graph: CheckedGraph,
        rewirings: Sequence[int],
        with_added: bool = False,
    ) -> dict[str, str]:
        """Bonds by their attention, if asked for with the edges that the rewirings add."""
        model = self.ensemble.models[0]
        packed = pack_checked([graph], model.config)
        found = explain_packed(model.model, model.config, packed, rewirings, by_graph=True)
        svg = molecule_svg(found, molecule.drawable, with_added, SCALE)
        return {
            "picture": picture(svg),
            "caption": attention_caption(found, "bond"),
            "words": "attention per bond",
        }
