"""The whole configuration of a run: its sections together, from presets and TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from grass_gnn.config.names import explain, flatten, names_below, preset_names, preset_text, suggest
from grass_gnn.config.sections import (
    EncodingConfig,
    EvaluationConfig,
    FeatureConfig,
    InputConfig,
    ModelConfig,
    RewiringConfig,
    Section,
    TaskConfig,
    TrainingConfig,
)
from grass_gnn.errors import ConfigError, RunError
from grass_gnn.files import read_toml


class GRASSConfig(Section):
    """Everything that defines a run except its seed: data, model, training and evaluation."""

    dataset: str | None = Field(None, description="Name of a benchmark; none for your own data.")
    split: Annotated[int, Field(ge=0)] = Field(
        0, description="Which split to use, for node datasets with several."
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
                raise ValueError("baselines do not support descriptors")
        return self

    @model_validator(mode="after")
    def _sampling_fits(self) -> GRASSConfig:
        if self.training.sampling != "none" and self.task.level != "node":
            raise ValueError("training.sampling needs a node task")
        return self

    @model_validator(mode="after")
    def _kekule_forms_need_bonds(self) -> GRASSConfig:
        bonds = FeatureConfig(kind="index", sizes=[4])
        if self.training.kekule_forms and self.input.edges != bonds:
            raise ValueError(
                "training.kekule_forms needs molecules with the vocabulary zinc "
                "(input.edges.kind = index, input.edges.sizes = [4])"
            )
        if self.training.kekule_forms and self.training.sampling != "none":
            raise ValueError("training.kekule_forms does not work with training.sampling")
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
        return cls.from_dict(tomllib.loads(preset_text(name)), f"preset {name!r}").override(
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


def setting_names() -> Iterator[str]:
    """Dotted names of all settings."""
    return names_below(GRASSConfig)
