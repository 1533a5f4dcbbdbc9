"""Generates the page of all settings from the fields of ``grass_gnn.config`` and the presets."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grass_gnn.config import GRASSConfig, preset_names
from tools.website.markdown_text import table

INTRODUCTION = """\
# Settings

Every setting has a dotted name and a default, and is validated. Commands accept
`--set NAME=VALUE`, repeatedly, or a file:

```toml
preset = "zinc" # optional: the preset to start from

[model]
layers = 12

[training]
epochs = 50
```

In Python, a configuration is immutable; make a copy with changes:

```python
from grass_gnn import GRASSConfig

config = GRASSConfig.preset("zinc", **{"model.layers": 12})
config = config.override({"training.epochs": 50})
```

For your own data, `train` and `fit` use other defaults:

- A table of molecules starts from the pretrained network and keeps its layers and encoding; batch
  size, epochs and patience depend on the number of molecules.
- From scratch, and for your own graphs, depth, encoding and learning rate also depend on the size
  of the data, and `rewiring.degree` is 3.

The chosen settings are in `config.toml` in the run folder, and `grass-gnn info RUN` shows them.
"""
PRESETS = """\
## Presets

The ten configurations of the paper, and five more (`cluster-small`, `minesweeper`, `tolokers`,
`zinc-cpu`, `zinc-cpu-deep`); k is `encoding.steps`, r is `rewiring.degree`.
`grass-gnn info NAME` shows all settings and the number of parameters.
"""
TYPES = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text"}
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def sections(
    section: type[BaseModel] = GRASSConfig, name: str = ""
) -> Iterator[tuple[str, type[BaseModel], dict[str, FieldInfo]]]:
    """Each part of the configuration: its dotted name, its class, and the settings in it."""
    parts = {key: field for key, field in section.model_fields.items() if _is_section(field)}
    own = {key: field for key, field in section.model_fields.items() if key not in parts}
    if own:
        yield name, section, own
    for key, field in parts.items():
        yield from sections(field.annotation, f"{name}.{key}" if name else key)  # type: ignore[arg-type]


def settings_page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION, PRESETS, _presets()]
    for name, section, fields in sections():
        rows = [_row(f"{name}.{key}" if name else key, field) for key, field in fields.items()]
        parts += [f"## {name or 'Top level'}\n", f"{section.__doc__}\n"]
        parts.append(table(["setting", "meaning", "values", "default"], rows))
    return "\n".join(parts)


def _row(name: str, field: FieldInfo) -> list[str]:
    default = field.get_default(call_default_factory=True)
    shown = "none" if default is None else f"`{_toml(default)}`"
    return [f"`{name}`", field.description or "", _values(field.annotation, field.metadata), shown]


def _presets() -> str:
    rows = []
    for name in preset_names():
        one = GRASSConfig.preset(name)
        task = f"{one.task.level} {one.task.kind}, {one.task.metric}"
        encoding = f"{one.encoding.kind}, {one.encoding.steps}"
        sizes = (one.model.layers, one.model.dim, one.rewiring.degree, one.training.epochs)
        rows.append([f"`{name}`", task, encoding, *map(str, sizes)])
    return table(["preset", "task", "encoding, k", "layers", "width", "r", "epochs"], rows)


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _values(annotation: Any, metadata: list[Any] = ()) -> str:  # type: ignore[assignment]
    """The allowed values of a setting."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin is Annotated:
        return _values(inner[0], [limit for one in inner[1:] for limit in one.metadata])
    if origin in (Union, types.UnionType):
        return _values(next(one for one in inner if one is not type(None)), metadata)
    if origin in (list, tuple):
        return f"{'pair' if origin is tuple else 'list'}: {_values(inner[0])}"
    limits = [f"{SIGNS[key]} {value:,}" for key, value in _limits(metadata)]
    return " ".join([TYPES[annotation], ", ".join(limits)]).strip()


def _limits(metadata: list[Any]) -> Iterator[tuple[str, Any]]:
    for one in metadata:
        for key in SIGNS:
            if (value := getattr(one, key, None)) is not None:
                yield key, value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)
