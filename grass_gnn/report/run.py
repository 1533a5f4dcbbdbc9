"""Report of one run: data, model and cost, scores, curves, predictions and settings."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from grass_gnn.config import GRASSConfig
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.pictures import plain_molecule_svg
from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.evaluation.stack import name_members
from grass_gnn.experiments.measured import RunRecord
from grass_gnn.files import read_json
from grass_gnn.report.figures import predicted_against_true
from grass_gnn.report.render import Detail, DrawnMolecule, Section
from grass_gnn.report.run_figures import (
    agreement_figure,
    coverage_figure,
    loss_figure,
    reliability_figure,
    residual_figure,
)
from grass_gnn.report.svg import ReportFigure
from grass_gnn.report.table import EMPTY, Entry, ReportTable, duration, number, signed, with_spread
from grass_gnn.tasks import METRICS, ProbabilityTask, make_task
from grass_gnn.uncertainty.calibration import ALONE, Calibration, checksums

SPLITS = {"train": "training", "val": "validation", "test": "test"}
WORST = 10  # number of molecules to draw
MOST_TARGETS = 4  # number of targets with charts


class RunReport:
    """The files of a run folder, read when needed.

    Args:
        folder: The run folder.
        name: Prefix of the names of tables and figures.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.run = RunRecord(folder)
        self.task = make_task(self.run.config.task)
        self.metric = METRICS[self.task.metric].title

    @property
    def results(self) -> dict[str, Any]:
        """``results.json``."""
        return self.run.results

    @cached_property
    def card(self) -> dict[str, Any]:
        """``config.json``, which baselines do not have."""
        path = self.folder / "config.json"
        return read_json(path) if path.is_file() else {}

    @cached_property
    def targets(self) -> list[str]:
        """Names of the targets."""
        return list((self.card.get("table") or {}).get("targets") or [])

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, if they have any."""
        table = self.card.get("table") or {}
        return list(table.get("classes") or self.card.get("classes") or [])

    @cached_property
    def calibration(self) -> Calibration | None:
        """``calibration.json``, if it belongs to this network and its forest."""
        path = self.folder / f"{ALONE}.json"
        if not path.is_file():
            return None
        try:
            found = Calibration.model_validate(read_json(path))
        except ValidationError:
            return None
        same = found.models == checksums([self])
        return found if same and found.fits(self.run.config.task) else None

    def predictions(self, split: str) -> SavedPredictions | None:
        """Predictions for a split, if the run saved them."""
        path = self.folder / f"{split}_predictions.csv"
        if not path.is_file():
            return None
        found = SavedPredictions.read(path)
        outputs = found.mean.shape[1] == self.task.outputs == found.std.shape[1]
        return found if len(found) and outputs else None

    def target_name(self, place: int, found: SavedPredictions) -> str:
        """Name of a target, from the table that the model was trained on."""
        names = self.targets or found.targets
        name = names[place] if place < len(names) else f"target {place}"
        return re.sub(r"^target_(\d+)$", "target" if len(names) == 1 else r"target \1", name)


def run_sections(folder: Path, name: str, prefix: str = "") -> list[Section]:
    """All sections of a run's report.

    Args:
        folder: The run folder.
        name: Prefix of anchors and file names.
        prefix: Prefix of the titles, for pages about several runs.
    """
    report = RunReport(folder, name)
    sections = [
        Section(
            f"{name}-summary",
            f"{prefix}Summary",
            warnings=data_warnings(report.run),
            facts=summary_facts(report),
        ),
        Section(f"{name}-scores", f"{prefix}Scores", tables=[scores_table(report)]),
        Section(
            f"{name}-training",
            f"{prefix}Training",
            figures=[f for f in [loss_figure(report.name, report.run)] if f is not None],
        ),
        Section(
            f"{name}-predictions",
            f"{prefix}Predictions",
            _predictions_introduction(report),
            figures=prediction_figures(report),
        ),
        worst_section(report, prefix),
        settings_section(report, prefix),
    ]
    return [s for s in sections if s.facts or s.tables or s.figures or s.molecules]


# --- Summary -------------------------------------------------------------------------------------


def summary_facts(report: RunReport) -> list[tuple[str, str]]:
    """Data, model and cost, one line each."""
    config, results = report.run.config, report.results
    fingerprint = results["data"]["fingerprint"]
    sizes = fingerprint.get("splits") or {}
    counts = ", ".join(
        f"{size['graphs']:,} {SPLITS.get(split, split)}" for split, size in sizes.items()
    )
    unit = "molecules" if "table" in report.card else "graphs"
    training, model = results["training"], config.model
    hardware = results["hardware"]
    processes = training.get("processes", 1)
    facts = [
        ("Data", _data_name(results["data"]) + (f": {counts} {unit}" if counts else "")),
        ("Target", _names(report.targets)),
        ("Task", f"{report.task.summary}, one prediction per {_unit(config.task.level, unit)}"),
        ("Test score", _headline(report)),
        (
            "Model",
            f"{model.architecture.upper()}, {model.layers} layers of width {model.dim}"
            f"{_parameters(report)}",
        ),
        (
            "Rewiring",
            f"{config.rewiring.kind}, degree {config.rewiring.degree}; "
            f"{config.encoding.kind.upper()} encoding",
        ),
        (
            "Training",
            f"{training['epochs']} epochs in {duration(training['seconds'])}"
            f" ({training['epoch_seconds']['mean']:.2f} s per epoch)"
            + (f", epoch {best} kept" if (best := training.get("best_epoch")) else ""),
        ),
        ("Peak memory", f"{training['peak_memory_mb']:,.0f} MB"),
        (
            "Hardware",
            ", ".join([str(hardware.get("cpu", "")), *map(str, hardware.get("gpus") or [])])
            + (f", {processes} processes" if processes > 1 else ""),
        ),
        ("Seed", str(results["seed"])),
    ]
    return [(name, value) for name, value in facts if value]


def _unit(level: str, unit: str) -> str:
    return unit.removesuffix("s") if level == "graph" else level


def _names(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


def _data_name(data: Mapping[str, Any]) -> str:
    """Name of the table or benchmark, without folders, which only exist on one machine."""
    table = (data.get("origin") or {}).get("table")
    if table:
        return Path(str(table)).name
    name = data["fingerprint"]["name"]
    return "Your own graphs" if name in (None, "graphs") else str(name)


def _parameters(report: RunReport) -> str:
    """Number of parameters; norm statistics and scales in the weights file are not counted."""
    if "parameters" in report.run.card:
        return f", {report.run.card['parameters']:,} parameters"
    path = report.folder / "weights.safetensors"
    if not path.is_file():
        return ""
    from safetensors import SafetensorError, safe_open

    fixed = re.compile(
        r"(^|\.)(norm|node_norm|edge_norm)\.(mean|var|num_batches)$|^target_|^pooling\.scales$"
    )
    try:
        with safe_open(path, "np") as weights:
            names = [name for name in list(weights.keys()) if not fixed.search(name)]
            shapes = [weights.get_slice(name).get_shape() for name in names]
    except SafetensorError:
        return ""
    return f", {sum(int(np.prod(shape)) for shape in shapes):,} parameters"


def _headline(report: RunReport) -> str:
    test = report.results.get("test")
    if test is None:
        return ""
    count, value = _most_averaged(test)
    interval = test.get("averaged_interval")
    if "members" in test:
        value, interval = test["metrics"][test["metric"]]
    text = f"{report.metric} {number(value)}"
    if interval:
        text += f" (95 % interval {number(interval[0])} to {number(interval[1])})"
    if "members" in test:
        return f"{text}, {name_members(test['members'])} averaged"
    return text + (f", {count} rewirings averaged" if count > 1 else "")


def _most_averaged(scores: Mapping[str, Any]) -> tuple[int, float]:
    averaged = {int(count): float(value) for count, value in scores["averaged"].items()}
    return max(averaged), averaged[max(averaged)]


def data_warnings(run: RunRecord) -> list[str]:
    """A warning if a benchmark's data are not the official ones."""
    data = run.results["data"]["fingerprint"]
    if run.results.get("official", True) or data["name"] in (None, "graphs"):
        return []
    return [
        f"Not the official {data['name']} data ({'; '.join(data['differences'])}), so not a "
        "benchmark result."
    ]


# --- Scores --------------------------------------------------------------------------------------


def scores_table(report: RunReport) -> ReportTable:
    """Every metric of validation and test set, with its 95 % interval."""
    splits = [(s, SPLITS[s]) for s in ("val", "test") if s in report.results]
    columns = [""]
    rows: dict[str, dict[str, tuple[str, str]]] = {}

    def put(row: str, split: str, value: float, interval: Any = None) -> None:
        text = "" if interval is None else f"{number(interval[0])} to {number(interval[1])}"
        rows.setdefault(row, {})[split] = (number(value), text)

    for split, title in splits:
        columns += [title.capitalize(), "95 % interval"]
        scores = report.results[split]
        count, value = _most_averaged(scores)
        averaged, metrics = f"{count} rewirings averaged", scores.get("metrics") or {}
        if members := scores.get("members"):
            averaged = f"{name_members(members)} averaged"
            for metric, (score, interval) in metrics.items():
                put(f"{METRICS[metric].title}, {averaged}", split, score, interval)
            for member, found in members.items():
                for metric, score in found.items():
                    put(f"{METRICS[metric].title}, {member} alone", split, score)
        else:
            put(f"{report.metric}, {averaged}", split, value, scores.get("averaged_interval"))
        whose = ", network" if members else ""
        put(f"{report.metric}, one rewiring{whose}", split, scores["mean"], scores["interval"])
        put(f"std over rewirings{whose}", split, scores["variance"] ** 0.5)
        for metric, (score, interval) in metrics.items():
            if metric != report.task.metric and not members:
                put(f"{METRICS[metric].title}, {averaged}", split, score, interval)
        if scores.get("spread_correlation") is not None:
            put(
                "Rank correlation of |error| and std over rewirings",
                split,
                scores["spread_correlation"],
            )
    baseline = report.results.get("baseline") or {}
    alone = "members" in (report.results.get("test") or {})  # has the baseline already
    for metric, score in (baseline.get("test") or {}).items():
        if metric in METRICS and "test" in report.results and not alone:
            put(f"{METRICS[metric].title}, {baseline.get('model')} (baseline)", "test", score)
    body = []
    for row, found in rows.items():
        cells = [cell for s, _ in splits for cell in found.get(s, (EMPTY, ""))]
        body.append([Entry(row), *(Entry(signed(cell)) for cell in cells)])
    note = (
        "Intervals are bootstrapped over graphs; they do not include the variation between seeds."
    )
    if baseline:
        note += (
            f" The {baseline.get('model')} was trained on {baseline.get('rows'):,} training and "
            f"validation rows with {baseline.get('inputs')}."
        )
    title = f"Scores of {report.folder.resolve().name}"
    return ReportTable(f"{report.name}-scores", title, columns, body, note, {0})


# --- Predictions ---------------------------------------------------------------------------------


def _predictions_introduction(report: RunReport) -> str:
    if not _is_regression(report) or report.predictions("test") is None:
        return ""
    if report.calibration is not None:
        return (
            "Error bars are one standard deviation of the error, calibrated on the "
            f"{report.calibration.source}.{_coverage(report)}"
        )
    return (
        "Error bars are one standard deviation over rewirings. They are not calibrated: "
        "run grass-gnn calibrate to scale them to the size of the errors."
    )


def _coverage(report: RunReport) -> str:
    """How many test rows lie within their intervals, if the run has measured it."""
    facts = report.run.results.get("error_bars") or {}
    share = f"{100 * facts.get('coverage', 0):.0f} %"
    inside = [
        f"{100 * one['inside']:.0f} % of {one['rows']:,} test rows ({name})"
        for name, one in list(facts.get("targets", {}).items())[:MOST_TARGETS]
        if one["inside"] is not None
    ]
    return f" {share} intervals contain the true value of {', '.join(inside)}." if inside else ""


def _is_regression(report: RunReport) -> bool:
    return not report.task.predicts_probabilities


def _scale(report: RunReport, found: SavedPredictions, place: int) -> float | None:
    """The factor that calibrates the std of a target, unless the stored one is calibrated."""
    calibration = report.calibration
    if found.ends.size or calibration is None or not calibration.targets:
        return None
    return calibration.targets[place].scale


def prediction_figures(report: RunReport) -> list[ReportFigure]:
    """Predicted against true values, residuals and calibration for each target."""
    if not _is_regression(report) or report.predictions("test") is None:
        compared = predicted_against_true(report.name, report.run, report.classes)
        return [f for f in (compared, _reliability(report)) if f is not None]
    figures: list[ReportFigure | None] = []
    for place in range(min(report.task.outputs, MOST_TARGETS)):
        for split in ("test", "val"):
            found = report.predictions(split)
            if found is None:
                continue
            known = ~np.isnan(found.target[:, place])
            if not known.any():
                continue
            true, mean = found.target[known, place], found.mean[known, place]
            std, calibrated = found.std[known, place], found.ends.size > 0
            scale = _scale(report, found, place)
            name = f"{report.name}-{split}-{place}"
            target = report.target_name(place, found)
            figures.append(
                agreement_figure(name, target, SPLITS[split], true, mean, std * (scale or 1.0))
            )
            if split == "test":
                figures.append(residual_figure(name, target, SPLITS[split], true, mean))
                figures.append(coverage_figure(name, target, true - mean, std, scale, calibrated))
    return [figure for figure in figures if figure is not None]


def _reliability(report: RunReport) -> ReportFigure | None:
    found, task = report.predictions("test"), report.task
    if found is None or not isinstance(task, ProbabilityTask):
        return None
    calibration = report.calibration
    fitted = calibration.probabilities if calibration is not None else None
    temperature = None if fitted is None else fitted.temperature
    return reliability_figure(report.name, task, found.mean, found.target, temperature)


def worst_section(report: RunReport, prefix: str) -> Section:
    """The molecules, or graphs, of the test set with the largest errors."""
    title = f"{prefix}Largest errors"
    empty = Section(f"{report.name}-worst", title)
    found = report.predictions("test")
    if found is None:
        return empty
    error = _errors(report, found)
    order = [i for i in np.argsort(-error, kind="stable")[:WORST].tolist() if error[i] >= 0]
    smiles = [found.smiles[place] if found.smiles else "" for place in order]
    pictures = _pictures(smiles) if found.smiles else smiles
    molecules = [
        DrawnMolecule(_row_name(found, place), text, _values(report, found, place), picture)
        for place, text, picture in zip(order, smiles, pictures, strict=True)
    ]
    what = "molecules" if found.smiles else "graphs"
    how = "" if _is_regression(report) and report.task.outputs == 1 else f" {_ordering(report)}"
    told = f"The {len(order)} test {what} with the largest errors{how}, out of {len(found):,}."
    return Section(empty.name, title, told, molecules=molecules)


def _ordering(report: RunReport) -> str:
    if _is_regression(report):
        return "(mean error over targets, each relative to its standard deviation)"
    if report.task.classes is not None:
        return "(lowest probability of the true class)"
    return "(largest difference between label and probability)"


def _errors(report: RunReport, found: SavedPredictions) -> np.ndarray:
    """Error of each prediction [M]; −1 where there is no target."""
    if report.task.classes is not None:
        classes = found.target[:, 0]
        known = ~np.isnan(classes)
        places = np.where(known, classes, 0).astype(int).clip(0, found.mean.shape[1] - 1)
        error = 1 - found.mean[np.arange(len(found)), places]
        return np.where(known, error, -1.0)
    error = np.abs(found.target - found.mean)  # [M, outputs]
    known = ~np.isnan(error)
    if _is_regression(report) and error.shape[1] > 1:
        width = np.nanstd(found.target, axis=0)
        error = error / np.where(width > 0, width, 1.0)
    total = np.where(known, error, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / known.sum(axis=1).clip(min=1), -1.0)


def _row_name(found: SavedPredictions, place: int) -> str:
    return f"{'Row' if found.smiles else 'Graph'} {found.rows[place]}"


def _values(report: RunReport, found: SavedPredictions, place: int) -> list[tuple[str, str]]:
    """True and predicted values of one row."""
    facts: list[tuple[str, str]] = []
    if report.task.classes is not None:
        true = int(found.target[place, 0])
        facts = [
            ("True", _class_name(report, true)),
            ("Predicted", _class_name(report, int(found.mean[place].argmax()))),
            ("Probability of the true class", f"{found.mean[place, true]:.3f}"),
        ]
    else:
        for one in range(min(found.mean.shape[1], MOST_TARGETS)):
            if np.isnan(found.target[place, one]):
                continue
            true, mean = found.target[place, one], found.mean[place, one]
            std = found.std[place, one] * (_scale(report, found, one) or 1.0)
            value, spread = with_spread(mean, std)
            facts.append((f"True {report.target_name(one, found)}", signed(f"{true:.4g}")))
            facts.append(("Predicted", f"{value} ± {spread}" if spread else value))
            facts.append(("Error", signed(f"{mean - true:+.3g}")))
    return facts


def _class_name(report: RunReport, place: int) -> str:
    return report.classes[place] if place < len(report.classes) else f"class {place}"


def _pictures(smiles: Sequence[str]) -> list[str]:
    """Molecules as data URLs; empty for those that cannot be drawn."""
    try:
        reader = MoleculeReader(drawings=True)
    except GrassError:  # RDKit is an optional dependency
        return [""] * len(smiles)
    with ReadingPool(reader, workers=1) as pool:
        molecules = list(pool.read(smiles))
    pictures = []
    for molecule in molecules:
        svg = "" if isinstance(molecule, str) else plain_molecule_svg(molecule.drawable, 300, 220)
        address = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        pictures.append(address if svg else "")
    return pictures


# --- Settings ------------------------------------------------------------------------------------


def settings_section(report: RunReport, prefix: str) -> Section:
    """Settings with their defaults, data, and hardware."""
    values, defaults = _flat(report.run.config), _flat(GRASSConfig())
    changed = [n for n, v in values.items() if defaults.get(n) != v]
    columns = ["Setting", "Value", "Default"]

    def rows(names: list[str]) -> list[list[Entry]]:
        return [[Entry(n), Entry(values[n]), Entry(defaults.get(n, EMPTY))] for n in names]

    differing = ReportTable(
        f"{report.name}-settings", "Settings that differ from the defaults", columns, rows(changed)
    )
    every = ReportTable(f"{report.name}-all-settings", "All settings", columns, rows(list(values)))
    details = [
        Detail("All settings", table=every),
        Detail("Data", table=data_table(report.name, report.run)),
        Detail("Hardware and versions", table=hardware_table(report.name, report.run)),
    ]
    return Section(
        f"{report.name}-settings",
        f"{prefix}Settings",
        "To train the same model again, use the run folder's config.toml and seed "
        f"{report.results['seed']}.",
        tables=[differing] if changed else [every],
        details=details if changed else details[1:],
    )


def _flat(config: GRASSConfig) -> dict[str, str]:
    """Settings by dotted name, as text."""
    found: dict[str, str] = {}

    def walk(values: Mapping[str, Any], prefix: str) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = _setting_text(value)

    walk(config.model_dump(mode="json"), "")
    return found


def _setting_text(value: Any) -> str:
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        shown = ", ".join(_setting_text(one) for one in value[:8])
        return shown + (f", … ({len(value)})" if len(value) > 8 else "") if value else EMPTY
    return str(value)


def data_table(name: str, run: RunRecord) -> ReportTable:
    """Sizes of the splits and source of the data, without folders."""
    data = run.results["data"]
    fingerprint = data["fingerprint"]
    facts = [("Source", _data_name(data)), ("Content hash", fingerprint["hash"])]
    for split, size in (fingerprint.get("splits") or {}).items():
        text = f"{size['graphs']:,} graphs"
        if "mean_nodes" in size:
            text += (
                f", {size['mean_nodes']:.1f} nodes and {size['mean_edges']:.1f} edges on average"
            )
        facts.append((SPLITS.get(split, split).capitalize(), text))
    facts.append(("Preparation", duration(data["preparation_seconds"])))
    facts.append(("Size on disk", f"{data['prepared_bytes'] / 1e6:,.1f} MB"))
    return _facts_table(f"{name}-data", "Data", facts)


def hardware_table(name: str, run: RunRecord) -> ReportTable:
    """Processor, devices and versions."""
    facts = [(key, _setting_text(value)) for key, value in run.results["hardware"].items()]
    return _facts_table(f"{name}-hardware", "Hardware and versions", facts)


def _facts_table(name: str, title: str, facts: list[tuple[str, str]]) -> ReportTable:
    rows = [[Entry(key), Entry(value)] for key, value in facts]
    return ReportTable(name, title, ["", ""], rows, prose=True)
