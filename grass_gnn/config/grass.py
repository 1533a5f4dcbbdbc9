"""The whole configuration: its sections, checked against each other, from presets and files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from grass_gnn.config.inputs import InputConfig
from grass_gnn.config.model import ModelConfig
from grass_gnn.config.names import explain, flatten, names_below, suggest
from grass_gnn.config.section import Section
from grass_gnn.config.structure import EncodingConfig, RewiringConfig
from grass_gnn.config.task import TaskConfig
from grass_gnn.config.training import EvaluationConfig, TrainingConfig
from grass_gnn.errors import GrassError


class GRASSConfig(Section):
    """Everything that defines a run but its seed: data, model, training and evaluation."""

    dataset: str | None = Field(
        None, description="name of a benchmark, or none for data of one's own"
    )
    split: Annotated[int, Field(ge=0)] = Field(0, description="which of a node dataset's splits")
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
                raise ValueError("descriptors are for tasks of whole graphs")
            if self.model.architecture != "grass":
                raise ValueError("descriptors are for GRASS, not for baselines")
        return self

    @model_validator(mode="after")
    def _sampling_fits(self) -> GRASSConfig:
        if self.training.sampling != "none":
            if self.task.level != "node":
                raise ValueError("training.sampling is for tasks whose nodes have targets")
            if self.encoding.kind == "rrwp":
                raise ValueError(
                    "training.sampling takes no RRWP, whose walks between two nodes go over the "
                    "whole graph: choose encoding.kind decomposed-rrwp, laplacian or none"
                )
        return self

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> GRASSConfig:
        """The configuration of a preset, with settings changed by dotted name.

        Example:
            >>> GRASSConfig.preset("zinc", **{"model.layers": 12}).model.layers
            12
        """
        names = preset_names()
        if name not in names:
            raise GrassError(f"There is no preset {name!r}{suggest(name, names)}")
        return cls.from_dict(tomllib.loads(_preset_text(name)), f"preset {name!r}").override(
            overrides
        )

    @classmethod
    def from_toml(cls, path: str | Path) -> GRASSConfig:
        """Read a configuration file; a first line ``preset = "…"`` names what it starts from."""
        try:
            values = tomllib.loads(Path(path).read_text("utf-8"))
        except FileNotFoundError:
            raise GrassError(f"There is no configuration file {path}.") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise GrassError(f"The configuration file {path} cannot be read: {error}.") from None
        preset = values.pop("preset", None)
        if preset is None:
            return cls.from_dict(values, str(path))
        if not isinstance(preset, str):
            raise GrassError(f"In {path}, preset is the name of a preset, not {preset!r}.")
        return cls.preset(preset).override(dict(flatten(values)))

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "the configuration") -> GRASSConfig:
        """Check plain values; ``source`` names them in an error."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise GrassError(f"In {source}, {explain(error, list(setting_names()))}") from None

    def override(self, settings: dict[str, Any]) -> GRASSConfig:
        """A copy with some settings changed, by dotted name (``{"model.layers": 12}``)."""
        values = self.model_dump(exclude_unset=True)
        valid = list(setting_names())
        for name, value in settings.items():
            if name not in valid:
                raise GrassError(f"There is no setting {name!r}{suggest(name, valid)}")
            *parents, last = name.split(".")
            section = values
            for parent in parents:
                section = section.setdefault(parent, {})
            section[last] = value
        return GRASSConfig.from_dict(values, "the settings" if settings else "the configuration")


def _preset_text(name: str) -> str:
    return (resources.files("grass_gnn") / "presets" / f"{name}.toml").read_text("utf-8")


def preset_note(name: str) -> str:
    """What the first lines of a preset say about it; nothing of those that are the paper's."""
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
