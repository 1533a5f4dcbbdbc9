"""The demonstration of ``make run``, at a size that takes seconds."""

import json

import pytest

from grass_gnn import GRASSConfig
from grass_gnn.cli import main
from grass_gnn.experiments import demo


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SIZES", (6, 3, 3))
    small = GRASSConfig.preset(
        "cluster-small",
        **{
            "model.layers": 2,
            "model.dim": 8,
            "encoding.steps": 4,
            "training.epochs": 2,
            "training.batch_size": 3,
        },
    )
    monkeypatch.setattr(demo.GRASSConfig, "preset", classmethod(lambda cls, name: small))


def test_three_networks_of_about_the_same_size(tiny, capsys):
    assert main(["demo", "--json"]) == 0
    grass, *baselines = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in (grass, *baselines)] == ["GRASS", "GCN", "GatedGCN"]
    for baseline in baselines:
        assert baseline["parameters"] == pytest.approx(grass["parameters"], rel=0.5)


def test_last_lines_say_where_the_run_is_and_what_to_try(tiny, capsys):
    assert main(["demo"]) == 0
    last = capsys.readouterr().out.splitlines()[-6:]
    assert "GRASS learned" in " ".join(last)
    assert "runs/demo/grass" in " ".join(last)
    assert last[-1].strip() == "grass-gnn info zinc"
    assert main(["evaluate", "runs/demo/grass", "--rewirings", "2"]) == 0
