"""Report of one run: data, model and cost, scores, curves, predictions and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grass_gnn.config import GRASSConfig
from grass_gnn.config.names import flatten
from grass_gnn.evaluation.stack import name_members
from grass_gnn.experiments.measured import RunRecord
from grass_gnn.report.render import Detail, Section
from grass_gnn.report.run_figures import loss_figure
from grass_gnn.report.run_files import SPLITS, RunReport
from grass_gnn.report.run_predictions import (
    prediction_figures,
    predictions_introduction,
    worst_section,
)
from grass_gnn.report.table import EMPTY, Entry, ReportTable, duration, number, signed
from grass_gnn.tasks import METRICS


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
            predictions_introduction(report),
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
                put(f"{report.task.title(metric)}, {averaged}", split, score, interval)
            for member, found in members.items():
                for metric, score in found.items():
                    put(f"{report.task.title(metric)}, {member} alone", split, score)
        else:
            put(f"{report.metric}, {averaged}", split, value, scores.get("averaged_interval"))
        whose = ", network" if members else ""
        put(f"{report.metric}, one rewiring{whose}", split, scores["mean"], scores["interval"])
        put(f"std over rewirings{whose}", split, scores["variance"] ** 0.5)
        for metric, (score, interval) in metrics.items():
            if metric != report.task.metric and not members:
                put(f"{report.task.title(metric)}, {averaged}", split, score, interval)
        if scores.get("spread_correlation") is not None:
            put(
                "Rank correlation of |error| and "
                f"{'uncalibrated std' if members else 'std over rewirings'}",
                split,
                scores["spread_correlation"],
            )
    baseline = report.results.get("baseline") or {}
    alone = "members" in (report.results.get("test") or {})  # has the baseline already
    for metric, score in (baseline.get("test") or {}).items():
        if metric in METRICS and "test" in report.results and not alone:
            put(f"{report.task.title(metric)}, {baseline.get('model')} (baseline)", "test", score)
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
    values = flatten(config.model_dump(mode="json"))
    return {name: _setting_text(value) for name, value in values}


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
