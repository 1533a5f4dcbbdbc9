"""Questions about molecules: what a model predicts for them, and where it looks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from grass_gnn.data import pack_checked
from grass_gnn.data.molecules import MoleculeReader, in_canonical_order, parse
from grass_gnn.data.spreadsheets import guard
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel
from grass_gnn.evaluation.explanation import explain_packed
from grass_gnn.evaluation.pictures import molecule_svg
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.sheet import Sheet
from grass_gnn.serve.values import attention_facts, headline, output_names, picture, show
from grass_gnn.workflow import find_calibration
from grass_gnn.workflow.ensemble import Ensemble
from grass_gnn.workflow.predict import Answer, answer_rows
from grass_gnn.workflow.rows import parse_descriptors

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
        self.names = output_names(self.task, self.schema.targets, self.schema.classes)
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
                one["headline"] = headline(self.task, self.names, answer.mean)
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
            answer["headlines"] = [headline(self.task, self.names, sample) for sample in samples]
        return answer
