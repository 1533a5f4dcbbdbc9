"""Shared by the commands: consoles, tables of results, and parsing of option values."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from grass_gnn.errors import GrassError

_ENDLESS = 10_000  # columns, so that lines in a pipe or a log are not wrapped


def console(stderr: bool = False) -> Console:
    """A console that wraps lines and uses colours only on a terminal."""
    colours: Any = None if _no_colours() else "auto"
    made = Console(stderr=stderr, highlight=False, color_system=colours)
    if not _is_screen(made):
        made.width = _ENDLESS
    return made


def plain_table(table: Table, target: Console) -> Table:
    """Remove the frame of a table unless it is shown on a terminal."""
    if not _is_screen(target):
        table.box, table.padding = None, (0, 2, 0, 0)
    return table


def _no_colours() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def _is_screen(target: Console) -> bool:
    return target.is_terminal and not target.is_dumb_terminal


class _Argument(TyperArgument):
    """An argument without a type column in the help."""

    def display_type_rich(self, ctx: Any) -> str | None:
        """No type."""
        return None


def _without_types(parameters: list[Any] | None) -> list[Any] | None:
    """The parameters of a command, with arguments that show no type."""
    found = []
    for one in parameters or []:
        if type(one) is TyperArgument:
            argument = _Argument.__new__(_Argument)
            vars(argument).update(vars(one), metavar=one.metavar or str(one.name).upper())
            one = argument
        found.append(one)
    return found if parameters is not None else None


class _Plain:
    """Help without the types of flags, and without escape codes if NO_COLOR is set."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if isinstance(one, TyperOption) and one.is_flag:
                one.metavar = ""
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; rich would still print bold text if NO_COLOR is set."""
        if not _no_colours():
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        with contextlib.redirect_stdout(io.StringIO()) as page:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        print(page.getvalue(), end="")


class Command(_Plain, TyperCommand):
    """A command."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, params=_without_types(params), **options)


class Group(_Plain, TyperGroup):
    """A group of commands."""


if TYPE_CHECKING:
    from grass_gnn.config import GRASSConfig
    from grass_gnn.training.run import Run

out = console()
err = console(stderr=True)

EPILOG = "Add [bold]--debug[/] to any command to see the traceback of an error."


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    shown = "\n".join(f"[dim]$[/] {line}" for line in lines)
    return f"[bold]Examples[/]\n{shown}"


def plain(text: str) -> str:
    """Escape brackets, which rich would read as markup."""
    return text.replace("[", "\\[")


def say(sentence: str) -> None:
    """Print a message on standard error."""
    err.print(sentence, markup=False)


def print_table(table: Table) -> None:
    """Print a table: with a frame on a terminal, as bare columns in a pipe."""
    out.print(plain_table(table, out))


def print_json(value: Any) -> None:
    """Print JSON, in which undefined scores are null: it has no NaN."""
    print(json.dumps(_without_nan(value), indent=2, allow_nan=False))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_config(name: str, settings: list[str], epochs: int | None = None) -> GRASSConfig:
    """The configuration of a preset or file, changed by ``--set`` and ``--epochs``."""
    from grass_gnn.config import GRASSConfig, preset_names, suggest

    if name.endswith(".toml") or Path(name).is_file():
        config = GRASSConfig.from_toml(name)
    elif name in preset_names():
        config = GRASSConfig.preset(name)
    else:
        raise GrassError(f"{name!r} is neither a preset nor a file{suggest(name, preset_names())}")
    return config.override(parse_settings(settings, epochs))


def config_file(path: Path | None) -> GRASSConfig | None:
    """The configuration of ``--config``, if it was given."""
    from grass_gnn.config import GRASSConfig

    return None if path is None else GRASSConfig.from_toml(path)


def parse_settings(settings: list[str], epochs: int | None = None) -> dict[str, Any]:
    """The settings changed by ``--set`` and ``--epochs``, by dotted name."""
    changes = dict(_setting(text) for text in settings)
    return changes if epochs is None else {**changes, "training.epochs": epochs}


def _setting(text: str) -> tuple[str, Any]:
    """Parse ``name=value``; values are TOML, or plain strings."""
    name, equals, value = text.partition("=")
    if not equals:
        raise GrassError(f"--set takes name=value, such as model.layers=12, not {text!r}.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()


def parse_names(text: str | None) -> list[str]:
    """Names from ``NAME,NAME``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def parse_sizes(text: str | None) -> tuple[int, int, int] | None:
    """The number of training, validation and test graphs, from ``N,N,N``."""
    if text is None:
        return None
    try:
        train, val, test = (int(part) for part in text.split(","))
        if min(train, val, test) < 1:
            raise ValueError
    except ValueError:
        raise GrassError(
            f"--generate takes three numbers such as 1000,200,200, not {text!r}."
        ) from None
    return train, val, test


_SHOWN = (4, 16)  # numbers of averaged rewirings to show, besides the largest


def show_run(run: Run, as_json: bool, following: str = "", note: str = "") -> None:
    """Print the results of a finished run, where it is, and what to do next.

    Args:
        run: The run.
        as_json: Print only the results, as JSON.
        following: The command to run next, in which ``RUN`` stands for the run folder.
        note: Printed instead if there is no such command.
    """
    if as_json:
        print_json(run.results)
        return
    show_results(run.results)
    command = following.replace("RUN", str(run.folder))
    hint = f"Next: grass-gnn {command}" if command else note
    out.print(f"Everything is in [bold]{run.folder}[/]. {hint}")


def show_results(results: dict[str, Any]) -> None:
    """Print the scores of each split, and the time and memory of training."""
    names = [split for split in ("train", "val", "test") if split in results]
    splits: dict[str, Any] = {split: results[split] for split in names}
    if any(row.get("metrics") for row in splits.values()):
        _show_own_data(splits, results.get("baseline", {}).get("test", {}))
    else:
        _show_benchmark(splits)
    if bars := results.get("error_bars"):
        show_error_bars(bars)
    if baseline := results.get("baseline"):
        from grass_gnn.api.forest import describe_baseline

        if told := describe_baseline(baseline, results["test"]["metric"]):
            out.print(told)
    if training := results.get("training"):
        count, epoch = training["epochs"], training["epoch_seconds"]
        out.print(
            f"{count} epoch{'s' * (count > 1)}, {epoch['mean']:.2f} ± {epoch['std']:.2f} s each; "
            f"peak memory {training['peak_memory_mb']:.0f} MB."
        )
    if not results.get("official", True):
        out.print(
            "[yellow]Not the official benchmark data: do not compare with published results.[/]"
        )


def show_error_bars(bars: dict[str, Any]) -> None:
    """Print how many test rows lie within their intervals."""
    share = f"{100 * bars['coverage']:.0f} %"
    for name, one in bars["targets"].items():
        if one["inside"] is None:
            continue
        rank = one["rank_correlation"]
        told = "" if rank is None else f"; rank correlation of std and error {rank:.2f}"
        out.print(
            f"{share} intervals of {name} contain {100 * one['inside']:.0f} % of {one['rows']:,} "
            f"test rows (mean width {one['width']:.3g}){told}."
        )


def _show_benchmark(splits: dict[str, Any]) -> None:
    table = Table("split", "metric", "mean over rewirings", "95 % interval", "averaged predictions")
    for split, row in splits.items():
        averaged = _averaged(row)
        count = max(averaged)
        table.add_row(
            split,
            row["metric"],
            f"{row['mean']:.4f} (std {row['variance'] ** 0.5:.2g}, {row['rewirings']} rewirings)",
            f"{row['interval'][0]:.4f} to {row['interval'][1]:.4f}",
            f"{averaged[count]:.4f} (over {count})",
        )
    print_table(table)


def _show_own_data(splits: dict[str, Any], baseline: dict[str, float]) -> None:
    """Print the gain from averaging over rewirings, then every metric with its interval."""
    most = {split: max(_averaged(row)) for split, row in splits.items()}
    counts = sorted({*most.values(), *(n for n in _SHOWN if n < max(most.values()))} - {1})
    table = Table("split", "metric", "one rewiring", *(f"{n} averaged" for n in counts))
    for split, row in splits.items():
        averaged = _averaged(row)
        cells = [_number(averaged[n]) if n in averaged else "" for n in counts]
        one = f"{_number(row['mean'])} (std {row['variance'] ** 0.5:.2g})"
        table.add_row(split, row["metric"], one, *cells)
    print_table(table)
    for split, row in splits.items():
        if most[split] > 1:
            out.print(_gain(split, row, most[split]))
    members = dict.fromkeys(name for row in splits.values() for name in row.get("members", ()))
    columns = list(members) or (["forest"] if baseline else [])
    title = "all averaged" if members else "averaged predictions"
    table = Table("split", "metric", title, "95 % interval", *columns)
    for split, row in splits.items():
        alone = row.get("members", {"forest": baseline if split == "test" else {}})
        for name, (value, (low, high)) in row["metrics"].items():
            cells = [_number(alone.get(column, {}).get(name)) for column in columns]
            interval = f"{_number(low)} to {_number(high)}"
            table.add_row(split, name, _number(value), interval, *cells)
    print_table(table)
    for split, row in splits.items():
        if (found := row.get("spread_correlation")) is not None:
            # The members differ too: their spread is part of the std. Intervals have another one.
            std = "uncalibrated std" if "members" in row else "std over rewirings"
            out.print(
                f"Rank correlation of the absolute error and the {std} on {split}: {found:.2f}."
            )


def _gain(split: str, row: dict[str, Any], count: int) -> str:
    from grass_gnn.tasks import LOWER_IS_BETTER

    one, all_of_them = row["mean"], _averaged(row)[count]
    if math.isnan(one) or math.isnan(all_of_them):
        return f"{row['metric']} is undefined on {split}: all of its rows have the same target."
    if math.isclose(one, all_of_them, rel_tol=1e-9):  # such as errors of the same sign
        return f"Averaging {count} rewirings makes no difference on {split} ({row['metric']})."
    gain = (one - all_of_them) if row["metric"] in LOWER_IS_BETTER else (all_of_them - one)
    share = f" ({abs(gain / one):.1%})" if one else ""
    return (
        f"Averaging {count} rewirings is {_number(abs(gain))}{share} "
        f"{'better' if gain >= 0 else 'worse'} than one on {split} ({row['metric']})."
    )


def _averaged(row: dict[str, Any]) -> dict[int, float]:
    """Scores by number of rewirings, which are strings in JSON."""
    return {int(count): value for count, value in row["averaged"].items()}


def show_folds(found: dict[str, Any]) -> None:
    """Print the scores of a cross-validation: per fold, their mean, and over all rows."""
    table = Table("fold", "rows", *found["metrics"])
    scores = list(found["metrics"].values())
    for number, rows in enumerate(found["rows"]):
        table.add_row(
            str(number + 1), f"{rows:,}", *(_number(one["folds"][number]) for one in scores)
        )
    table.add_section()
    table.add_row(
        "mean ± std", "", *(f"{_number(one['mean'])} ± {_number(one['std'])}" for one in scores)
    )
    table.add_row(
        "all rows", f"{sum(found['rows']):,}", *(_number(one["pooled"]) for one in scores)
    )
    table.add_row(
        "95 % interval", "", *(" to ".join(map(_number, one["interval"])) for one in scores)
    )
    if baseline := found.get("baseline"):
        table.add_section()
        values = (_number(baseline.get(name)) for name in found["metrics"])
        table.add_row("forest alone, mean", "", *values)
    print_table(table)
    if found["spread_correlation"] is not None:
        out.print(f"Rank correlation of std and absolute error: {found['spread_correlation']:.2f}.")


def _number(value: float | None) -> str:
    from grass_gnn.tasks import format_score

    return "–" if value is None else format_score(value)
