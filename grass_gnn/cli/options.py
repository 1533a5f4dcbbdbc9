"""Options that commands share.

Most of them are the fields of a dataclass: a command takes a parameter such as ``table: Table``
(a :class:`TableSpec`), and :func:`expand_options` turns it into one option per field. Names,
defaults and help come from the dataclass.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from grass_gnn.api.options import PredictOptions, SearchOptions
from grass_gnn.cli.common import parse_names
from grass_gnn.data.tables.spec import TableSpec, parse_shares
from grass_gnn.errors import GrassError
from grass_gnn.training.options import RunOptions

# Titles of the groups in which options are shown.
TABLE = "Table of molecules"
BENCHMARK = "Benchmark"
TRAINING = "Training"
PROCESSES = "Several processes or machines"
REWIRING = "Rewirings"
SEARCH = "Search"

NAMES = "NAME,NAME…"
RUN_HELP = "Run folder, or the name of a model that comes with the package."

# Fields whose appearance on the command line does not follow from their type.
_RENAMED = {"targets": "target"}
_NO_OPTION = ("progress", "forest", "baseline", "from_scratch")
_METAVAR = {
    "split": "KIND|NAME",
    "task": "KIND",
    "features": "ogb-cip|ogb|zinc",
    "bad_rows": "skip|fail",
    "val": "FILE",
    "test": "FILE",
    "devices": "N|auto",
    "logger": "NAME",
    "storage": "FILE|URL",
    "device": "DEVICE",
}
_MINIMUM = {"rewirings": 1, "max_atoms": 1, "nodes": 1, "trials": 1}
_PANEL = {
    "devices": PROCESSES,
    "nodes": PROCESSES,
    "rewirings": REWIRING,
    "deterministic": REWIRING,
}


@dataclass(frozen=True)
class Fields:
    """Marks a parameter that is replaced by the fields of its dataclass.

    Args:
        panel: Group in which the options are shown.
        only: The fields that become options; all by default.
        help: Help texts that differ from those of the dataclass.
    """

    panel: str | None = None
    only: tuple[str, ...] = ()
    help: tuple[tuple[str, str], ...] = ()


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter marked with :class:`Fields` by one option per field."""
    signature = inspect.signature(command, eval_str=True)
    expanded: dict[str, tuple[type, dict[str, str]]] = {}  # parameter → class, option → field
    parameters = []
    for parameter in signature.parameters.values():
        marks = [m for m in get_args(parameter.annotation)[1:] if isinstance(m, Fields)]
        if not marks:
            parameters.append(parameter)
            continue
        cls = get_args(parameter.annotation)[0]
        options = _options(cls, marks[0])
        parameters += options.values()
        expanded[parameter.name] = cls, {one.name: field for field, one in options.items()}

    @wraps(command)
    def run(**given: Any) -> None:
        for name, (cls, options) in expanded.items():
            types = get_type_hints(cls)
            values = {field: _parse(types[field], given.pop(o)) for o, field in options.items()}
            given[name] = cls(**values)
        command(**given)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _options(cls: type, mark: Fields) -> dict[str, inspect.Parameter]:
    """The option of each field."""
    texts, types = {**field_help(cls), **dict(mark.help)}, get_type_hints(cls)
    found = {}
    for field in fields(cls):
        name, kind = field.name, types[field.name]
        if name in _NO_OPTION or (mark.only and name not in mark.only):
            continue
        option = _RENAMED.get(name, name)
        shown, metavar, default = _shown(kind, field.default)
        flag = "--" + option.replace("_", "-")
        info = typer.Option(
            flag,
            help=_plain(texts[name]),
            metavar=_METAVAR.get(name, metavar),
            min=_MINIMUM.get(name, 0) if metavar == "N" else None,
            rich_help_panel=_PANEL.get(
                name, REWIRING if cls is PredictOptions and name == "seed" else mark.panel
            ),
        )
        found[name] = inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=Annotated[shown, info],
        )
    return found


def _shown(kind: Any, default: Any) -> tuple[Any, str, Any]:
    """Type, placeholder and default on the command line."""
    if get_origin(kind) is tuple and get_args(kind)[0] is float:
        return str, "X,X,X", ",".join(f"{value:g}" for value in default)
    if get_origin(kind) is tuple:
        return str | None, NAMES, ",".join(default) or None
    alternatives = get_args(kind) or (kind,)
    if bool in alternatives:
        return bool, "", default
    if int in alternatives and str not in alternatives:
        return kind, "N", default
    if float in alternatives:
        return kind, "N", default
    optional = type(None) in alternatives
    return (str | None if optional else str), "FILE" if Path in alternatives else "NAME", default


def _parse(kind: Any, value: Any) -> Any:
    """Parse the value of a field from the command line."""
    if get_origin(kind) is not tuple:
        return value
    if get_args(kind)[0] is float:
        return tuple(parse_shares(value))
    return tuple(parse_names(value))


def field_help(cls: type) -> dict[str, str]:
    """The description of each field, from the ``Args`` section of the docstring."""
    section = (inspect.getdoc(cls) or "").split("Args:\n", 1)[-1]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _plain(text: str) -> str:
    """Help without the markup of docstrings."""
    return text.replace("``", "").replace('"', "")


def refuse(context: typer.Context, options: list[str], sentence: str) -> None:
    """Raise if one of the options was given, since it would be ignored."""
    for name in options:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            flag = "--" + name.replace("_", "-")
            raise GrassError(f"{flag} {sentence}")


def option_fields(cls: type, but: tuple[str, ...]) -> tuple[str, ...]:
    """All fields of a dataclass except some."""
    return tuple(field.name for field in fields(cls) if field.name not in but)


def option_names(cls: type) -> list[str]:
    """The options that the fields of a dataclass become."""
    return [_RENAMED.get(f.name, f.name) for f in fields(cls) if f.name not in _NO_OPTION]


def settings_option(text: str, panel: str | None = None) -> Any:
    """The option ``--set NAME=VALUE``, with what it does in a command."""
    text = f"{text[:-1]}; can be repeated."
    return typer.Option("--set", help=text, metavar="NAME=VALUE", rich_help_panel=panel)


Run = Annotated[Path, typer.Argument(help=RUN_HELP, metavar="RUN")]
RunOrFolds = Annotated[
    Path,
    typer.Argument(
        help="Run folder, folder of a cross-validation, or the name of a model that comes with the "
        "package.",
        metavar="RUN",
    ),
]
Molecules = Annotated[
    Path,
    typer.Argument(
        help="Table of molecules (CSV, TSV, Excel, SDF, SMI, Parquet).", metavar="TABLE"
    ),
]

# Dataclasses whose fields are options.
Table = Annotated[TableSpec, Fields(TABLE)]
Options = Annotated[RunOptions, Fields(TRAINING)]
OneProcessOptions = Annotated[
    RunOptions, Fields(TRAINING, only=option_fields(RunOptions, but=("devices", "nodes")))
]
Search = Annotated[SearchOptions, Fields(SEARCH, only=("trials", "minutes", "storage", "study"))]
Prediction = Annotated[
    PredictOptions, Fields(only=("smiles", "rewirings", "deterministic", "seed", "device"))
]

Forest = Annotated[
    bool,
    typer.Option(
        "--forest/--no-forest",
        help="Average the network with a forest and a Gaussian process on fingerprints and "
        "descriptors, or predict with the network alone.",
        rich_help_panel=TABLE,
    ),
]
# On the command line, the baseline is on by default.
Baseline = Annotated[
    bool,
    typer.Option(
        "--baseline/--no-baseline",
        help="With --no-forest: still score a forest on the test rows, as a baseline.",
        rich_help_panel=TABLE,
    ),
]

# Benchmarks.
RawFiles = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the raw files, if they were not downloaded.",
        metavar="FOLDER",
        rich_help_panel=BENCHMARK,
    ),
]
Generate = Annotated[
    str | None,
    typer.Option(
        help="PATTERN, CLUSTER: number of graphs to generate for training, validation and test.",
        metavar="N,N,N",
        rich_help_panel=BENCHMARK,
    ),
]

# Training.
Epochs = Annotated[
    int | None,
    typer.Option(help="Number of epochs.", min=1, metavar="N", rich_help_panel=TRAINING),
]
Settings = Annotated[list[str] | None, settings_option("Change a setting.", TRAINING)]
Config = Annotated[
    Path | None,
    typer.Option(
        help="Configuration (TOML) to start from; chosen by the size of the data by default.",
        metavar="FILE",
        rich_help_panel=TRAINING,
    ),
]

# Prediction.
Rewirings = Annotated[
    int,
    typer.Option(
        help="Number of random rewirings to average over.",
        min=1,
        metavar="N",
        rich_help_panel=REWIRING,
    ),
]
RewiringSeed = Annotated[
    int,
    typer.Option(
        help="Random seed of the rewirings.", min=0, metavar="N", rich_help_panel=REWIRING
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help=field_help(PredictOptions)["deterministic"],
        rich_help_panel=REWIRING,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help=_plain(field_help(RunOptions)["device"]), metavar="DEVICE"),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(help="Another run to average with; can be repeated.", metavar="RUN"),
]

# Output.
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ResultsAsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
