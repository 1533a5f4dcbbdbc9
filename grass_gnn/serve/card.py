"""Model card of the served page: training data, target, task, test score and size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.evaluation.stack import NETWORK, name_members, other_members
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import read_json
from grass_gnn.report.table import number
from grass_gnn.serve.values import SPLITS
from grass_gnn.serve.views import View
from grass_gnn.tasks import METRICS


def model_card(models: Sequence[TrainedModel], view: View) -> list[tuple[str, str]]:
    """Rows of the model card as (name, value)."""
    first = models[0]
    config, card = first.config, first.card
    try:
        facts = [
            ("Trained on", _training_data(card)),
            ("Target", f"{', '.join(view.names[:8])}{' …' if len(view.names) > 8 else ''}"),
            ("Task", f"{config.task.kind}, one prediction per {_unit(config.task.level, view)}"),
            ("Test score", _test_score(models)),
            ("Model", _size(models)),
            ("Seed", ", ".join(str(model.card.get("seed", "unknown")) for model in models)),
            ("Error bars", _error_bars(models, view) if config.task.level == "graph" else ""),
        ]
    except GrassError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise GrassError(f"The card or the results in {first.folder} are damaged.") from None
    return [(name, value) for name, value in facts if value]


def _unit(level: str, view: View) -> str:
    return "molecule" if (level, view.kind) == ("graph", "molecules") else level


def _training_data(card: dict[str, Any]) -> str:
    data = card.get("data") or {}
    table = (data.get("origin") or {}).get("table")
    found = data.get("fingerprint") or {}
    named = found.get("name") not in (None, "graphs")
    source = Path(table).name if table else (found["name"] if named else "your own graphs")
    sizes = [
        f"{size['graphs']:,} {SPLITS[split]}"
        for split, size in (found.get("splits") or {}).items()
        if split in SPLITS
    ]
    text = f"{source} ({', '.join(sizes)})" if sizes else str(source)
    if named and not found.get("official", True):
        text += ", not the official benchmark files"
    return text


def _test_score(models: Sequence[TrainedModel]) -> str:
    """Test score stored with each run, for predictions averaged over rewirings."""
    tests = []
    for model in models:
        path = None if model.folder is None else model.folder / "results.json"
        if path is None or not path.is_file():
            return "not stored with the weights"
        tests.append(read_json(path)["test"])
    metric = tests[0]["metric"]
    count = max(int(key) for key in tests[0]["averaged"])
    found = [
        # With a forest, "averaged" has the scores of the network alone.
        test["metrics"][metric]
        if "members" in test
        else (test["averaged"][str(count)], test["averaged_interval"])
        for test in tests
    ]
    values = [float(value) for value, _ in found]
    told = f"{METRICS[metric].title} {number(statistics.fmean(values))}"
    if len(values) > 1:
        return f"{told} ± {number(statistics.stdev(values), 2)}, mean and std of the single models"
    low, high = found[0][1]
    members = tests[0].get("members")
    how = name_members(members) if members else f"{count} rewirings"
    return f"{told} (95 % interval {number(low)} to {number(high)}), {how} averaged"


def _size(models: Sequence[TrainedModel]) -> str:
    config = models[0].config
    weights = sum(one.numel() for one in models[0].model.parameters())
    several = f"{len(models)} models, each of " if len(models) > 1 else ""
    others = " and a ".join(other_members(models[0]))
    averaged = f", averaged with a {others}" if others else ""
    return (
        f"{several}{config.model.layers} layers of width {config.model.dim}, {weights:,} "
        f"parameters, {config.rewiring.kind} rewiring of degree {config.rewiring.degree}{averaged}"
    )


def _error_bars(models: Sequence[TrainedModel], view: View) -> str:
    note = view.calibration_note
    if note.startswith("error bars "):
        return note.removeprefix("error bars ")
    several = " of each model, and over models" if len(models) > 1 else ""
    told = f"standard deviation over {view.rewirings} rewirings{several}"
    if others := other_members(models[0]):
        told += f", and between {name_members([NETWORK, *others])}"
    return f"{told}; {note or 'not calibrated, so not an error estimate'}"
