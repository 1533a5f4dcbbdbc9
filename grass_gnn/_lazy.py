"""Lazy imports: names of a package are imported at first use, because torch takes seconds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, ...]], extras: Mapping[str, tuple[str, ...]] = {}
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package (PEP 562).

    Args:
        package: Name of the package.
        homes: The names each of its modules provides; modules are relative to the package
            unless they start with ``grass_gnn.``.
        extras: Names that need an optional dependency; ``import *`` leaves them out.
    """
    public = {name: module for module, names in homes.items() for name in names}
    home = public | {name: module for module, names in extras.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home[name]
        if not module.startswith("grass_gnn."):
            module = f"{package}.{module}"
        return getattr(importlib.import_module(module), name)

    def __dir__() -> list[str]:
        return sorted(home)

    return __getattr__, __dir__, sorted(public)
