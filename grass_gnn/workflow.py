"""Deprecated: the former name of ``grass_gnn.api`` and ``grass_gnn.uncertainty``."""

from __future__ import annotations

import warnings
from typing import Any

from grass_gnn import api, uncertainty

_RENAMED = {"Start": "Pretrained", "tune_table": "tune"}


def __getattr__(name: str) -> Any:
    name = _RENAMED.get(name, name)
    for package in (api, uncertainty):
        if name in package.__all__:
            warnings.warn(
                f"grass_gnn.workflow is deprecated: import {name} from {package.__name__}.",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(package, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
