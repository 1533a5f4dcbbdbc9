"""Names of settings, and sentences about those that do not exist or do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError


def names_below(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of the settings of a section, and of the sections in it."""
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
    """The end of a sentence about an unknown name: the nearest one, or all where they are few."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not nearest:  # a bare name, such as "layers" for "model.layers"
        nearest = [n for n in names if n.split(".")[-1] == name.split(".")[-1]][:1]
    if nearest:
        return f"; did you mean {nearest[0]!r}?"
    return f"; the names are {', '.join(names)}." if len(names) <= 20 else "."


def explain(error: ValidationError, names: list[str]) -> str:
    """The first problem of a pydantic error as one sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name!r}{suggest(name, names)}"
    if first["type"] == "value_error":  # our own checks of settings against each other
        return f"{name or 'top level'}: {message}."
    return f"{name} = {first['input']!r} is not possible: {message}."
