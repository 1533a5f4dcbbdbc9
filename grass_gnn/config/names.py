"""Names of settings and presets, and clear messages about wrong ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from importlib import resources
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def preset_text(name: str) -> str:
    """The TOML file of a preset."""
    return (resources.files("grass_gnn") / "presets" / f"{name}.toml").read_text("utf-8")


def preset_note(name: str) -> str:
    """The comment at the top of a preset; empty for the presets of the paper."""
    comments = takewhile(lambda line: line.startswith("#"), preset_text(name).splitlines())
    return " ".join(line.removeprefix("#").strip() for line in comments)


def preset_names() -> list[str]:
    """Names of all presets that ship with the package."""
    folder = resources.files("grass_gnn") / "presets"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def names_below(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of the settings of a section and of its subsections."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from names_below(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted name."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def suggest(name: str, names: list[str]) -> str:
    """The end of a message about an unknown name: the closest one, or all if there are few."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not nearest:  # without its section, such as "layers" for "model.layers"
        nearest = [n for n in names if n.split(".")[-1] == name.split(".")[-1]][:1]
    if nearest:
        return f"; did you mean {nearest[0]!r}?"
    return f"; valid names are {', '.join(names)}." if len(names) <= 20 else "."


def check_names(given: Mapping[str, Any], *classes: type[DataclassInstance]) -> None:
    """Raise a TypeError if a keyword argument is not a field of any of the options classes."""
    known = [field.name for cls in classes for field in fields(cls)]
    for name in given:
        if name not in known:
            raise TypeError(f"There is no option {name!r}{suggest(name, known)}")


def with_fields(options: Options, given: Mapping[str, Any]) -> Options:
    """A copy of an options object with the fields among ``given`` changed."""
    own = {field.name for field in fields(options)}
    return replace(options, **{k: v for k, v in given.items() if k in own})


def explain(error: ValidationError, names: list[str]) -> str:
    """The first problem of a pydantic error in one sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name!r}{suggest(name, names)}"
    if first["type"] == "value_error":  # our own checks of settings against each other
        return f"{name or 'top level'}: {message}."
    return f"{name} = {first['input']!r} is not valid: {message}."
