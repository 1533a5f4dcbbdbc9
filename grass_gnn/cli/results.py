"""Results of a run, for people."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from grass_gnn.cli.common import out, print_table
from grass_gnn.tasks import LOWER_IS_BETTER

_SHOWN = (4, 16)  # rewirings whose averages are shown, beside the most that there are


def show_results(results: dict[str, Any]) -> None:
    """Print the scores of each split, and what training took."""
    names = [split for split in ("train", "val", "test") if split in results]
    splits: dict[str, Any] = {split: results[split] for split in names}
    if any(row.get("metrics") for row in splits.values()):
        _show_own_data(splits)
    else:
        _show_benchmark(splits)
    if training := results.get("training"):
        epoch = training["epoch_seconds"]
        out.print(
            f"{training['epochs']} epochs, {epoch['mean']:.2f} ± {epoch['std']:.2f} s each; "
            f"peak memory {training['peak_memory_mb']:.0f} MB."
        )
    if not results.get("official", True):
        out.print(
            "[yellow]Not the official benchmark data: do not compare with published figures.[/]"
        )


def _show_benchmark(splits: dict[str, Any]) -> None:
    table = Table("split", "metric", "mean over rewirings", "95 % interval", "averaged predictions")
    for split, row in splits.items():
        averaged = _averaged(row)
        count = max(averaged)
        table.add_row(
            split,
            row["metric"],
            f"{row['mean']:.4f} (s.d. {row['variance'] ** 0.5:.2g}, {row['rewirings']} rewirings)",
            f"{row['interval'][0]:.4f} to {row['interval'][1]:.4f}",
            f"{averaged[count]:.4f} (over {count})",
        )
    print_table(table)


def _show_own_data(splits: dict[str, Any]) -> None:
    """What averaging over rewirings gains, then every metric with its interval."""
    most = {split: max(_averaged(row)) for split, row in splits.items()}
    counts = sorted({*most.values(), *(n for n in _SHOWN if n < max(most.values()))} - {1})
    table = Table("split", "metric", "one rewiring", *(f"{n} averaged" for n in counts))
    for split, row in splits.items():
        averaged = _averaged(row)
        cells = [f"{averaged[n]:.4f}" if n in averaged else "" for n in counts]
        one = f"{row['mean']:.4f} (s.d. {row['variance'] ** 0.5:.2g})"
        table.add_row(split, row["metric"], one, *cells)
    print_table(table)
    for split, row in splits.items():
        if most[split] > 1:
            out.print(_gain(split, row, most[split]))
    table = Table("split", "metric", "averaged predictions", "95 % interval")
    for split, row in splits.items():
        for name, (value, (low, high)) in row["metrics"].items():
            table.add_row(split, name, f"{value:.4f}", f"{low:.4f} to {high:.4f}")
    print_table(table)
    for split, row in splits.items():
        if (found := row.get("spread_correlation")) is not None:
            out.print(f"Rank correlation of spread and absolute error on {split}: {found:.2f}.")


def _gain(split: str, row: dict[str, Any], count: int) -> str:
    one, all_of_them = row["mean"], _averaged(row)[count]
    gain = (one - all_of_them) if row["metric"] in LOWER_IS_BETTER else (all_of_them - one)
    share = f" ({abs(gain / one):.1%})" if one else ""
    return (
        f"Averaging {count} rewirings is {abs(gain):.4f}{share} "
        f"{'better' if gain >= 0 else 'worse'} than one on {split} ({row['metric']})."
    )


def _averaged(row: dict[str, Any]) -> dict[int, float]:
    """Scores by the number of rewirings, which JSON keeps as text."""
    return {int(count): value for count, value in row["averaged"].items()}


def show_folds(found: dict[str, Any]) -> None:
    """Print the scores of a cross-validation: each fold's, their mean, and those of all rows."""
    table = Table("fold", "rows", *found["metrics"])
    scores = list(found["metrics"].values())
    for number, rows in enumerate(found["rows"]):
        table.add_row(
            str(number + 1), f"{rows:,}", *(_number(one["folds"][number]) for one in scores)
        )
    table.add_section()
    table.add_row(
        "mean ± s.d.", "", *(f"{_number(one['mean'])} ± {_number(one['std'])}" for one in scores)
    )
    table.add_row(
        "all rows", f"{sum(found['rows']):,}", *(_number(one["pooled"]) for one in scores)
    )
    table.add_row(
        "95 % interval", "", *("{:.4f} to {:.4f}".format(*one["interval"]) for one in scores)
    )
    print_table(table)
    if found["spread_correlation"] is not None:
        out.print(
            f"Rank correlation of spread and absolute error: {found['spread_correlation']:.2f}."
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
