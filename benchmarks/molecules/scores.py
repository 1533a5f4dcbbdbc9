"""Scores of the comparison: errors, error bars, and which differences are more than chance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm, rankdata, spearmanr
from sklearn.metrics import average_precision_score

DRAWS = 2000  # of the bootstrap over test rows
OURS = "grass-gnn"
NORMAL_90 = float(norm.ppf(0.95))


@dataclass(frozen=True)
class Case:
    """Test predictions of one trained model."""

    method: str
    table: str
    split: str
    seed: int
    y: np.ndarray  # [rows, targets]; NaN where unknown
    columns: dict[str, np.ndarray]  # pred, and perhaps std, lower and upper
    cpu_seconds: float
    small_ring: np.ndarray  # [rows] whether the molecule has a ring of three or four atoms
    members: dict[str, float]  # RMSE or ROC-AUC of each model that was averaged

    @property
    def is_binary(self) -> bool:
        """Whether all targets are 0 or 1."""
        return bool(np.isin(self.y[~np.isnan(self.y)], (0, 1)).all())


def score(y: np.ndarray, prediction: np.ndarray, binary: bool) -> float:
    """RMSE, or 1 − ROC-AUC averaged over targets: smaller is better."""
    if not binary:
        return float(np.sqrt(np.nanmean((y - prediction) ** 2)))
    areas = []
    for column, values in zip(y.T, prediction.T, strict=True):
        known = ~np.isnan(column)
        if 0 < column[known].sum() < known.sum():  # both classes occur
            areas.append(roc_auc(column[known] == 1, values[known]))
    return 1.0 - float(np.mean(areas))


def roc_auc(positive: np.ndarray, values: np.ndarray) -> float:
    """Area under the ROC curve, from ranks; 20 times as fast as in scikit-learn."""
    count = int(positive.sum())
    above = rankdata(values)[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(values) - count)))


def second_score(y: np.ndarray, prediction: np.ndarray, binary: bool) -> float:
    """MAE, or average precision averaged over targets."""
    if not binary:
        return float(np.nanmean(np.abs(y - prediction)))
    found = []
    for column, values in zip(y.T, prediction.T, strict=True):
        known = ~np.isnan(column)
        if column[known].sum() > 0:
            found.append(average_precision_score(column[known], values[known]))
    return float(np.mean(found))


def error_bars(case: Case) -> dict[str, float]:
    """Coverage of 90 % intervals, NLL, and rank correlation of std and error."""
    if case.is_binary or "std" not in case.columns:
        return {}
    known = ~np.isnan(case.y)
    error = np.abs(case.y - case.columns["pred"])[known]
    std = np.maximum(case.columns["std"][known], 1e-6)
    if "lower" in case.columns:
        inside = (case.columns["lower"] <= case.y) & (case.y <= case.columns["upper"])
        covered = float(inside[known].mean())
    else:
        covered = float((error <= NORMAL_90 * std).mean())
    return {
        "coverage": covered,
        "nll": float(np.mean(0.5 * (error / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi))),
        "rank_correlation": _rank_correlation([case], [case]),
    }


def summarise(cases: Iterable[Case]) -> dict[str, Any]:
    """Scores of every method in every cell (table × split), and what they add up to."""
    cells: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        cells[f"{case.table} {case.split}"][case.method].append(case)
    found = {
        cell: {method: _row(own, methods.get(OURS)) for method, own in methods.items()}
        for cell, methods in cells.items()
    }
    everything = [case for methods in cells.values() for own in methods.values() for case in own]
    return {
        "cells": found,
        "standings": standings(found),
        "error_bars": pooled_error_bars(everything),
        "rankings": rankings(cells),
        "small_rings": small_rings(everything),
    }


def error_of(entry: dict[str, Any]) -> float:
    """RMSE, or 1 − ROC-AUC, of a method in a cell."""
    return 1 - entry["mean"] if entry["metric"] == "ROC-AUC" else entry["mean"]


def standings(cells: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Ours in each cell beside the best other method that was run there.

    ``behind`` is how much larger our error is (RMSE, or 1 − ROC-AUC) relative to that of the best
    other method; ``tied`` says that the interval of the difference includes zero.
    """
    found = {}
    for cell, row in cells.items():
        others = {m: entry for m, entry in row.items() if not m.startswith(OURS)}
        if OURS not in row or not others:
            continue
        best = min(others, key=lambda m: error_of(others[m]))
        low, high = others[best]["ours_minus_this"]
        found[cell] = {
            "best_other": best,
            "behind": round(error_of(row[OURS]) / error_of(others[best]) - 1, 4),
            "tied": low <= 0 <= high,
        }
    return found


def pooled_error_bars(cases: Iterable[Case]) -> dict[str, dict[str, Any]]:
    """Error bars of each method with a std: coverage over all rows, the rest averaged over cells.

    Each cell counts once, however many training seeds it has.
    """
    groups: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        if error_bars(case):
            kind = "scaffold" if case.split == "scaffold" else "random"
            groups[f"{case.method}, {kind} splits"][f"{case.table} {case.split}"].append(case)
    found = {}
    for name, cells in sorted(groups.items()):
        bars = [
            {key: np.mean([error_bars(case)[key] for case in own]) for key in error_bars(own[0])}
            for own in cells.values()
        ]
        rows = [len(own[0].y) for own in cells.values()]
        found[name] = {
            "cells": len(cells),
            "rows": sum(rows),
            "coverage": round(float(np.average([b["coverage"] for b in bars], weights=rows)), 4),
            "nll": round(float(np.mean([b["nll"] for b in bars])), 4),
            "rank_correlation": round(float(np.mean([b["rank_correlation"] for b in bars])), 4),
        }
    return found


def rankings(cells: dict[str, dict[str, list[Case]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Rank correlations of one method's errors with its own std and with that of the others.

    A method with larger errors has larger correlations, so that two methods can only be compared on
    the same errors. Means over training seeds; the names are cell, errors of, std of.
    """
    found = {}
    for cell, methods in cells.items():
        rows = max(len(own[0].y) for own in methods.values())
        known = {
            method: own
            for method, own in methods.items()
            if error_bars(own[0]) and len(own[0].y) == rows
        }
        if len(known) > 1:
            found[cell] = {
                errors: {std: _rank_correlation(one, other) for std, other in known.items()}
                for errors, one in known.items()
            }
    return found


def _rank_correlation(errors: list[Case], spreads: list[Case]) -> float:
    """Mean correlation of errors with the std of the model with the same training seed."""
    values = []
    for place, case in enumerate(errors):
        std = spreads[place % len(spreads)].columns["std"]
        error, known = np.abs(case.y - case.columns["pred"]), ~np.isnan(case.y)
        values.append(spearmanr(std[known], error[known]).statistic)
    return round(float(np.mean(values)), 4)


def small_rings(cases: Iterable[Case]) -> dict[str, dict[str, Any]]:
    """RMSE of each method over molecules with a ring of three or four atoms, for each table."""
    errors: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        if not case.is_binary and case.small_ring.any():
            squares = np.square(case.y - case.columns["pred"])[case.small_ring]  # [rows, targets]
            errors[case.table][case.method].append(np.append(squares, []))
    return {
        table: {
            method: {
                "rmse": round(float(np.sqrt(np.nanmean(np.concatenate(own)))), 4),
                "predictions": sum(len(part) for part in own),
            }
            for method, own in sorted(methods.items())
        }
        for table, methods in errors.items()
    }


def _row(cases: list[Case], ours: list[Case] | None) -> dict[str, Any]:
    binary = cases[0].is_binary
    scores = np.array([score(c.y, c.columns["pred"], binary) for c in cases])
    shown = 1 - scores if binary else scores
    row: dict[str, Any] = {
        "metric": "ROC-AUC" if binary else "RMSE",
        "mean": round(float(shown.mean()), 4),
        "std_over_seeds": round(float(shown.std(ddof=1)), 4) if len(cases) > 1 else None,
        "seeds": len(cases),
        "AP" if binary else "MAE": round(
            float(np.mean([second_score(c.y, c.columns["pred"], binary) for c in cases])), 4
        ),
        "cpu_seconds": round(float(np.mean([c.cpu_seconds for c in cases])), 1),
    }
    if all(case.members for case in cases):
        names = cases[0].members
        row["members"] = {
            name: round(float(np.mean([case.members[name] for case in cases])), 4) for name in names
        }
    bars = [found for case in cases if (found := error_bars(case))]
    if bars:
        row |= {key: round(float(np.mean([b[key] for b in bars])), 4) for key in bars[0]}
    if ours is not None and cases[0].method != OURS and len(ours[0].y) == len(cases[0].y):
        low, high = _difference(ours, cases, binary)
        row["ours_minus_this"] = [round(low, 4), round(high, 4)]  # negative: ours is better
    return row


def _difference(ours: list[Case], theirs: list[Case], binary: bool) -> tuple[float, float]:
    """95 % bootstrap interval of the difference in error, over test rows and training seeds."""
    generator = np.random.default_rng(0)
    y, found = ours[0].y, []
    for _ in range(DRAWS if not binary else DRAWS // 4):
        rows = generator.integers(len(y), size=len(y))
        a = ours[generator.integers(len(ours))].columns["pred"][rows]
        b = theirs[generator.integers(len(theirs))].columns["pred"][rows]
        found.append(score(y[rows], a, binary) - score(y[rows], b, binary))
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(columns)
    lines = [head, *rows]
    texts = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([texts[0], "|---" * len(head) + "|", *texts[1:]])


def markdown_tables(results: dict[str, Any]) -> str:
    """All results as Markdown tables."""
    tables = (
        _score_table,
        _standings_table,
        _member_table,
        _error_bar_table,
        _ranking_table,
        _ring_table,
    )
    return "\n\n".join(table(results) for table in tables)


def _score_table(results: dict[str, Any]) -> str:
    """Scores; the best mean of a row is bold."""
    cells = results["cells"]
    methods = sorted(
        {m for row in cells.values() for m in row}, key=lambda m: (m[:5] != "grass", m)
    )
    rows = []
    for cell, row in cells.items():
        best = min(error_of(entry) for entry in row.values())
        rows.append([cell, *(_score_text(row.get(method), best) for method in methods)])
    return markdown_table(["table, split", *methods], rows)


def _score_text(entry: dict[str, Any] | None, best: float) -> str:
    """Mean, spread, seeds and CPU time of a method in a cell."""
    if entry is None:
        return "–"
    spread = "" if entry["std_over_seeds"] is None else f" ± {entry['std_over_seeds']:.3f}"
    text = f"{_number(entry['mean'])}{spread}"
    text = f"**{text}**" if error_of(entry) == best else text
    count = f"{entry['seeds']} seed{'s' * (entry['seeds'] > 1)}"
    return f"{text} ({count}, {entry['cpu_seconds']:.0f} s)"


def _number(value: float) -> str:
    """Three decimals; three digits of small errors, and four of large ones."""
    if 0.1 <= value < 10:
        return f"{value:.3f}"
    return f"{value:.3g}" if value < 0.1 else f"{value:.4g}"


def _standings_table(results: dict[str, Any]) -> str:
    """Ours beside the best of the others."""
    rows = [
        [
            cell,
            entry["best_other"],
            f"{entry['behind']:+.1%}",
            "within chance" if entry["tied"] else "more than chance",
        ]
        for cell, entry in results["standings"].items()
    ]
    relative = "error of grass-gnn relative to it"
    return markdown_table(["table, split", "best other method", relative, "difference"], rows)


def _member_table(results: dict[str, Any]) -> str:
    """The models that grass-gnn averages, each alone; the best of a row is bold."""
    rows, names = [], []
    for cell, methods in results["cells"].items():
        entry = methods.get(OURS, {})
        if "members" not in entry:
            continue
        names = list(entry["members"])
        values = [entry["mean"], *entry["members"].values()]
        best = max(values) if entry["metric"] == "ROC-AUC" else min(values)
        rows.append([cell, *(f"**{_number(v)}**" if v == best else _number(v) for v in values)])
    return markdown_table(["table, split", "grass-gnn", *(f"{name} alone" for name in names)], rows)


def _error_bar_table(results: dict[str, Any]) -> str:
    """Error bars in each cell, then pooled."""
    entries = [
        (cell, method, entry)
        for cell, row in results["cells"].items()
        for method, entry in row.items()
        if "coverage" in entry
    ]
    for name, entry in results["error_bars"].items():
        method, splits = name.split(", ")
        entries.append((f"**all {splits}**, {entry['rows']:,} rows", method, entry))
    rows = [
        [
            cell,
            method,
            f"{entry['coverage']:.1%}",
            f"{entry['nll']:.2f}",
            f"{entry['rank_correlation']:.2f}",
        ]
        for cell, method, entry in entries
    ]
    columns = ["table, split", "method", "90 % intervals cover", "NLL", "rank correlation"]
    return markdown_table(columns, rows)


def _ranking_table(results: dict[str, Any]) -> str:
    """Rank correlations on the same errors, in each cell and averaged over cells."""
    rankings = results["rankings"]
    pairs = sorted({(e, s) for own in rankings.values() for e, stds in own.items() for s in stds})
    groups = {cell: [cell] for cell in rankings}
    for kind in ("random", "scaffold"):
        groups[f"**all {kind} splits**"] = [cell for cell in rankings if f" {kind}" in cell]
    rows = []
    for name, cells in groups.items():
        means = [np.mean([rankings[cell][e][s] for cell in cells]) for e, s in pairs]
        rows.append([name, *(f"{mean:.2f}" for mean in means)])
    return markdown_table(
        ["rank correlation of", *(f"errors of {e}, std of {s}" for e, s in pairs)], rows
    )


def _ring_table(results: dict[str, Any]) -> str:
    """Errors of molecules with small rings."""
    rows = [
        [table, method, _number(entry["rmse"]), str(entry["predictions"])]
        for table, methods in results["small_rings"].items()
        for method, entry in methods.items()
    ]
    columns = ["rings of three or four atoms", "method", "RMSE", "test predictions"]
    return markdown_table(columns, rows)
