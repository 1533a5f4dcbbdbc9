"""What somebody pasted or dropped, as rows: a table, or lines with a SMILES each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, Field

from grass_gnn.api.prediction import Answer, answer_rows
from grass_gnn.data.packed.build import pack_checked
from grass_gnn.data.tables.files import Row, guard, open_table, shorten
from grass_gnn.data.tables.molecules import MoleculeReader, in_canonical_order, parse
from grass_gnn.data.tables.schema import SMILES_NAMES, TableSchema, parse_descriptors
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.explain import explain_packed, molecule_svg
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.serve.limits import Limits, Refused
from grass_gnn.serve.values import attention_facts, picture, show
from grass_gnn.uncertainty.calibration import find_calibration
from grass_gnn.uncertainty.ensembles import Ensemble

_COMPRESSED = (b"\x1f\x8b", b"PAR1", b"PK\x03\x04")  # gzip, Parquet, Excel


@dataclass(frozen=True)
class Sheet:
    """Rows, and which of their columns mean what."""

    columns: list[str]
    rows: list[Row]
    smiles: int
    descriptors: list[int]
    name: int | None  # a column to tell rows apart by

    @classmethod
    def read(cls, body: bytes, is_table: bool, schema: TableSchema, most: int) -> Sheet:
        """Read a sheet for a model.

        Args:
            body: The bytes of a file, or a text that was pasted.
            is_table: It has a header; if not said, a first line that names SMILES is one.
            schema: What the model needs.
            most: Rows that are taken.

        Raises:
            GrassError: It has no SMILES, lacks what the model needs, or has too many rows.
        """
        if body.startswith(_COMPRESSED):
            raise GrassError("The page takes tables as plain text: CSV or TSV.")
        text = body.decode("utf-8-sig", errors="replace").replace("\0", "\ufffd")
        lines = [line for line in re.split(r"\r\n?|\n", text) if line.strip()]
        if not lines:
            raise GrassError("There are no molecules to predict for.")
        header = re.split(r"[,;\t]", lines[0])
        if is_table or _smiles_column([name.strip(' "') for name in header], schema) is not None:
            columns, rows = _table_rows(text, most)
        else:
            columns, rows = _line_rows(lines[: most + 1], schema)
        if not rows:
            raise GrassError("There are no molecules to predict for.")
        if len(rows) > most:
            raise Refused(
                413,
                f"The page takes up to {most:,} rows at a time: use grass-gnn predict for more.",
            )
        smiles = _smiles_column(columns, schema)
        if smiles is None:
            known = ", ".join(shorten(name) for name in columns[:10])
            raise GrassError(f"The table has no column {schema.smiles!r}; there are {known}.")
        missing = [name for name in schema.descriptors if name not in columns]
        if missing:
            raise GrassError(
                "This model needs more than SMILES: give a table with "
                f"{', '.join(missing)} as well."
            )
        descriptors = [columns.index(name) for name in schema.descriptors]
        used = {smiles, *descriptors, *(columns.index(t) for t in schema.targets if t in columns)}
        name = next((place for place in range(len(columns)) if place not in used), None)
        return cls(columns, rows, smiles, descriptors, name)


def _smiles_column(columns: list[str], schema: TableSchema) -> int | None:
    if schema.smiles in columns:
        return columns.index(schema.smiles)
    return next((i for i, name in enumerate(columns) if name.lower() in SMILES_NAMES), None)


def _line_rows(lines: list[str], schema: TableSchema) -> tuple[list[str], list[Row]]:
    """A SMILES each, and what stands behind it as its name."""
    parts = [(*line.split(None, 1), "")[:2] for line in lines]
    rows = [Row(number, [s, name.strip()], "") for number, (s, name) in enumerate(parts, 1)]
    if any(row.cells[1] for row in rows):
        return [schema.smiles, "name"], rows
    return [schema.smiles], [Row(row.line, row.cells[:1], "") for row in rows]


def _table_rows(text: str, most: int) -> tuple[list[str], list[Row]]:
    """Read by the same rules as a file on the command line."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            table = open_table(path)
            return table.columns, list(islice(table, most + 1))
        except GrassError as error:  # the file was only ours
            raise GrassError(str(error).replace(f"The file {path}", "The table")) from None


_SHOWN_TEXT = 300  # characters of a cell that are shown


class MoleculeQuestion(BaseModel):
    """Which molecule to draw, under all rewirings or one of them."""

    smiles: str = Field(max_length=20_000)
    descriptors: list[str] = Field(default=[], max_length=1000)
    rewiring: int | None = Field(default=None, ge=0)


class MoleculeView:
    """Answers about molecules as ``grass-gnn predict --deterministic`` gives them.

    The rewirings of a molecule follow from it alone, so that its picture under the third rewiring
    belongs to its third prediction, whatever else was asked.

    Args:
        models: One trained model, or several whose predictions are averaged.
        rewirings: How many to average over.
        limits: How large molecules and tables may be.
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
        similar = self.ensemble.similarity is not None
        self.reader = MoleculeReader(
            self.schema.features, True, fingerprints=similar, max_atoms=limits.atoms
        )

    def warm_up(self) -> None:
        """Look once: what is compiled or imported at first use is there before anybody waits."""
        self.look(MoleculeQuestion(smiles="CCO", descriptors=["0"] * len(self.schema.descriptors)))

    def read(self, body: bytes, is_table: bool) -> Sheet:
        """The rows of a table, or of lines with a SMILES each."""
        return Sheet.read(body, is_table, self.schema, self.limits.rows)

    def answer(self, sheet: Sheet, start: int, stop: int) -> list[Answer]:
        """Predictions for some rows of a sheet."""
        rows = sheet.rows[start:stop]
        found = [self.reader.try_read("" if r.problem else r.cells[sheet.smiles]) for r in rows]
        return answer_rows(
            rows, found, sheet.descriptors, self.ensemble, self.rewirings, deterministic=True
        )

    def show(self, sheet: Sheet, answers: Sequence[Answer]) -> dict[str, Any]:
        """All rows for the page, and as a table to keep."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([guard(name) for name in sheet.columns + self.ensemble.columns])
        shown = []
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
                one["values"] = show(self.task, self.names, answer.mean, answer.std)
            shown.append(one)
        return {"rows": shown, "outputs": len(self.names), "csv": text.getvalue()}

    def look(self, asked: MoleculeQuestion) -> dict[str, Any]:
        """A molecule drawn with its attention; over all rewirings, also what each predicts."""
        molecule = self.reader.try_read(asked.smiles)
        if isinstance(molecule, str):
            raise GrassError(f"This is no molecule: {molecule}.")
        try:
            numbers = parse_descriptors(self.schema.descriptors, asked.descriptors)
        except ValueError as error:
            raise GrassError(f"The descriptors cannot be read: {error}.") from None
        graph = molecule.checked(numbers)
        model = self.ensemble.models[0]
        one = asked.rewiring
        explanation = explain_packed(
            model.model,
            model.config,
            pack_checked([graph], model.config),
            range(self.rewirings) if one is None else [one],
            by_graph=True,
        )
        mol = in_canonical_order(parse(asked.smiles))
        answer = {
            "picture": picture(molecule_svg(explanation, mol, with_added=one is not None)),
            **attention_facts(explanation),
        }
        if one is None:
            samples = self.ensemble.samples(graph, self.rewirings)  # [rewirings, outputs]
            answer["samples"] = [show(self.task, self.names, sample) for sample in samples]
            answer["headlines"] = [self.task.headline(self.names, sample) for sample in samples]
        return answer
