"""The figures of the docs are what their scripts draw."""

import importlib
import sys

import pytest
from page_blocks import ROOT

FIGURES = ROOT / "docs" / "figures"


@pytest.mark.parametrize("name", ["architecture", "layer", "rewiring", "walks"])
def test_figure_is_what_its_script_draws(name, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.syspath_prepend(FIGURES)
    try:
        drawn = importlib.import_module(name).draw()
    finally:
        for module in (name, "drawing"):
            sys.modules.pop(module, None)
    assert (FIGURES / f"{name}.svg").read_text("utf-8") == drawn
