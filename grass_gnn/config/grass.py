"""A whole configuration: sections, presets and TOML files, and errors about wrong settings."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from grass_gnn.config.sections import (
    EncodingConfig,
    EvaluationConfig,
    InputConfig,
    ModelConfig,
    RewiringConfig,
    Section,
    TaskConfig,
    TrainingConfig,
)
from grass_gnn.errors import ConfigError, RunError
from grass_gnn.files import read_toml


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
    """The end of a message about an unknown name: the nearest one, or all if there are few."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not nearest:  # without its section, such as "layers" for "model.layers"
        nearest = [n for n in names if n.split(".")[-1] == name.split(".")[-1]][:1]
    if nearest:
        return f"; did you mean {nearest[0]!r}?"
    return f"; valid names are {', '.join(names)}." if len(names) <= 20 else "."


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


class GRASSConfig(Section):
    """Everything that defines a run except its seed: data, model, training and evaluation."""

    dataset: str | None = Field(None, description="Name of a benchmark; none for your own data.")
    split: Annotated[int, Field(ge=0)] = Field(
        0, description="Number of the split, for node datasets with several."
    )
    input: InputConfig = InputConfig()
    task: TaskConfig = TaskConfig()
    encoding: EncodingConfig = EncodingConfig()
    rewiring: RewiringConfig = RewiringConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _descriptors_need_graphs(self) -> GRASSConfig:
        if self.input.descriptors:
            if self.task.level != "graph":
                raise ValueError("descriptors need a graph task")
            if self.model.architecture != "grass":
                raise ValueError("baselines take no descriptors")
        return self

    @model_validator(mode="after")
    def _sampling_fits(self) -> GRASSConfig:
        if self.training.sampling != "none" and self.task.level != "node":
            raise ValueError("training.sampling needs a node task")
        return self

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> GRASSConfig:
        """The configuration of a preset, with some settings overridden by dotted name.

        Example:
            >>> GRASSConfig.preset("zinc", **{"model.layers": 12}).model.layers
            12
        """
        names = preset_names()
        if name not in names:
            raise ConfigError(f"There is no preset {name!r}{suggest(name, names)}")
        return cls.from_dict(tomllib.loads(_preset_text(name)), f"preset {name!r}").override(
            overrides
        )

    @classmethod
    def from_toml(cls, path: str | Path) -> GRASSConfig:
        """Read a TOML file, which overrides a preset if it starts with ``preset = "…"``."""
        if not Path(path).exists():
            raise ConfigError(f"There is no configuration file {path}.")
        try:
            values = read_toml(path)
        except RunError as error:
            raise ConfigError(f"The configuration cannot be read: {error}") from None
        preset = values.pop("preset", None)
        if preset is None:
            return cls.from_dict(values, str(path))
        if not isinstance(preset, str):
            raise ConfigError(f"In {path}, preset must be the name of a preset, not {preset!r}.")
        return cls.preset(preset).override(dict(flatten(values)))

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "the configuration") -> GRASSConfig:
        """A configuration from nested plain values; ``source`` names them in error messages."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"In {source}, {explain(error, list(setting_names()))}") from None

    def override(self, settings: dict[str, Any]) -> GRASSConfig:
        """A copy with some settings overridden by dotted name (``{"model.layers": 12}``)."""
        values = self.model_dump(exclude_unset=True)
        valid = list(setting_names())
        for name, value in settings.items():
            if name not in valid:
                raise ConfigError(f"There is no setting {name!r}{suggest(name, valid)}")
            *parents, last = name.split(".")
            section = values
            for parent in parents:
                section = section.setdefault(parent, {})
            section[last] = value
        return GRASSConfig.from_dict(values, "the settings" if settings else "the configuration")


def _preset_text(name: str) -> str:
    return (resources.files("grass_gnn") / "presets" / f"{name}.toml").read_text("utf-8")


def preset_note(name: str) -> str:
    """The comment at the top of a preset; empty for the presets of the paper."""
    comments = takewhile(lambda line: line.startswith("#"), _preset_text(name).splitlines())
    return " ".join(line.removeprefix("#").strip() for line in comments)


def preset_names() -> list[str]:
    """Names of all presets that ship with the package."""
    folder = resources.files("grass_gnn") / "presets"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def setting_names() -> Iterator[str]:
    """Dotted names of all settings."""
    return names_below(GRASSConfig)
