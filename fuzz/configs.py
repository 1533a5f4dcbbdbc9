"""Configuration files, and settings by name."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import tomli_w

from fuzz.harness import Passed, Target, damaged, nearby, plain_values
from grass_gnn.cli.common import parse_settings
from grass_gnn.config import METRICS, GRASSConfig, preset_names, setting_names

_NAMES = list(setting_names())
_WORDS = [
    "none",
    "index",
    "one-hot",
    "continuous",
    "ogb-atom",
    "graph",
    "node",
    "regression",
    "binary",
]
_WORDS += [
    "rrwp",
    "decomposed-rrwp",
    "regular",
    "half",
    "always",
    "grass",
    "batch",
    "layer",
    "lion",
    "bce",
]
_WORDS += sorted({metric for metrics in METRICS.values() for metric in metrics})
_value = st.one_of(
    st.integers(0, 8),
    st.sampled_from(_WORDS),
    st.sampled_from([0.0, 0.5, 1.0, -1.0, 1e308, float("inf"), float("nan"), True, 10**12, -1]),
    st.lists(st.integers(-1, 5), max_size=3),
    plain_values(),
)
_settings = st.dictionaries(st.sampled_from(_NAMES), _value, max_size=4)
_strange = st.dictionaries(
    st.sampled_from(["preset", "model", "x", "modle", ""]), _value, max_size=1
)


def _toml(settings: dict[str, Any], strange: dict[str, Any], preset: str | None) -> bytes:
    values: dict[str, Any] = {} if preset is None else {"preset": preset}
    for name, value in settings.items():
        *parents, last = name.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return tomli_w.dumps(values | strange).encode("utf-8", "replace")


_presets = st.sampled_from([None, None, "zinc", "cluster", "nothing", ""])
_files = damaged(st.builds(_toml, _settings, st.one_of(st.just({}), _strange), _presets))
_options = st.lists(
    st.builds("{}={}".format, st.sampled_from([*_NAMES, "layers", "", "model"]), _value.map(str)),
    max_size=2,
)


# Values as they are written in TOML, to take the place of others.
_WRITTEN = [b"0", b"1", b"-1", b"7", b"65537", b"9223372036854775808", b"0.5", b"-0.0", b"1e308"]
_WRITTEN += [b"inf", b"-inf", b"nan", b"true", b"[]", b"[1, -1]", b"[[]]", b'[1, "x"]', b"{a = 1}"]
_WRITTEN += [b'""', b'"\\u0000"', b"1979-05-27", b"07:32:00", b'"' + b"x" * 300 + b'"', b"0x1F"]
_WRITTEN += [b'"%s"' % word.encode() for word in _WORDS]


def _vary(case: tuple[bytes, list[str]], draw: random.Random) -> Any:
    """Another value for a setting of the file, or any other change."""
    lines = case[0].split(b"\n")
    places = [place for place, line in enumerate(lines) if b" = " in line]
    if not places or draw.random() < 0.3:
        return nearby(case, draw)
    place = draw.choice(places)
    lines[place] = lines[place].partition(b" = ")[0] + b" = " + draw.choice(_WRITTEN)
    return b"\n".join(lines), case[1]


def _read(case: tuple[bytes, list[str]], folder: Path, past: Passed) -> None:
    data, options = case
    path = folder / "config.toml"
    path.write_bytes(data)
    try:
        tomllib.loads(data.decode())
        past()
    except ValueError:
        pass
    config = GRASSConfig.from_toml(path)
    again = GRASSConfig.from_dict(config.model_dump(mode="json"))
    assert again == config, "a configuration changed when it was written and read again"
    config.override(parse_settings(options))


assert "zinc" in preset_names()
TARGETS = [Target("config TOML", st.tuples(_files, _options), _read, _vary)]
