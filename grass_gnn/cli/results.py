"""Results of a run, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show_results(results: dict[str, Any], console: Console) -> None:
    """Print validation and test scores, and what training took."""
    table = Table("split", "metric", "mean over rewirings", "95 % interval", "averaged predictions")
    for split in ("val", "test"):
        if split not in results:
            continue
        row = results[split]
        averaged = {int(count): value for count, value in row["averaged"].items()}
        count = max(averaged)
        table.add_row(
            split,
            row["metric"],
            f"{row['mean']:.4f} (s.d. {row['variance'] ** 0.5:.2g}, {row['rewirings']} rewirings)",
            f"{row['interval'][0]:.4f} to {row['interval'][1]:.4f}",
            f"{averaged[count]:.4f} (over {count})",
        )
    console.print(table)
    _show_metrics(results, console)
    if training := results.get("training"):
        epoch = training["epoch_seconds"]
        console.print(
            f"{training['epochs']} epochs, {epoch['mean']:.2f} ± {epoch['std']:.2f} s each; "
            f"peak memory {training['peak_memory_mb']:.0f} MB."
        )
    if not results.get("official", True):
        console.print(
            "[yellow]Not the official benchmark data: do not compare with published figures.[/]"
        )


def _show_metrics(results: dict[str, Any], console: Console) -> None:
    """Every metric of one's own data, of averaged predictions."""
    metrics = {
        split: results[split].get("metrics") for split in ("val", "test") if split in results
    }
    if not any(metrics.values()):
        return
    table = Table("split", "metric", "averaged predictions", "95 % interval")
    for split, values in metrics.items():
        for name, (value, (low, high)) in (values or {}).items():
            table.add_row(split, name, f"{value:.4f}", f"{low:.4f} to {high:.4f}")
    console.print(table)
