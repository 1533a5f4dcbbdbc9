"""``benchmarks/gpu.py`` runs from start to end; what it times here means nothing."""

import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def run_benchmark(monkeypatch, capsys):
    """The output of a dry run with some arguments."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run", *arguments])
        gpu.main()
        return capsys.readouterr().out

    yield run
    for name in ("gpu", "loader_rates", "shapes"):
        sys.modules.pop(name, None)


def test_dry_run_prints_the_tables_beside_the_published_figures(run_benchmark):
    """On the pretend device, with mixed precision; tests/nn/test_compiled.py compiles layers."""
    text = run_benchmark("zinc", "coco-sp", "--no-compile")
    assert text.startswith("**Dry run: these numbers mean nothing.**")
    assert "device: pretend" in text and "precision 16-mixed" in text
    zinc = next(line for line in text.splitlines() if line.startswith("| ZINC"))
    assert re.fullmatch(
        r"\| ZINC \| \d+\.\d\d ± \d+\.\d\d \| 1\.87 ± 0\.07 \| \d+ \| 25s \| 3 \| 2529 \| 4 \|",
        zinc,
    )
    assert "| COCO-SP |" in text and "539.50 ± 0.32" in text
    rates = next(line for line in text.splitlines() if line.startswith("| zinc, batches of 2"))
    assert "| 5,348 |" in rates


def test_unknown_datasets_are_refused(run_benchmark, capsys):
    with pytest.raises(SystemExit):
        run_benchmark("imagenet")
    assert "no dataset imagenet" in capsys.readouterr().err
