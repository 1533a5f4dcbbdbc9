"""The ten presets of the paper: parameter counts, and every one a model."""

import pytest

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.config import preset_names
from grass_gnn.errors import GrassError

PARAMETERS = {
    "zinc": 496545,
    "mnist": 103690,
    "cifar10": 103738,
    "pattern": 495298,
    "cluster": 495558,
    "peptides-func": 500074,
    "peptides-struct": 498315,
    "pascalvoc-sp": 501493,
    "coco-sp": 499377,
    "roman-empire": 2075730,
}


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameter_counts_are_those_of_the_paper(name, expected):
    model = GRASS(GRASSConfig.preset(name))
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_holds_only_differences(name):
    config = GRASSConfig.preset(name)
    defaults = GRASSConfig()
    for section in ("task", "encoding", "rewiring", "model", "training", "evaluation"):
        chosen = getattr(config, section)
        for setting in chosen.model_fields_set:
            assert getattr(chosen, setting) != getattr(getattr(defaults, section), setting), (
                f"{name}: {section}.{setting} repeats the default"
            )


@pytest.mark.parametrize("name", ["gat", "gatedgcn", "transformer"])
def test_replacement_attentions_have_about_500k_parameters(name):
    model = GRASS(GRASSConfig.preset("zinc", **{"model.attention": name}))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(500_000, rel=0.03)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(GrassError, match="did you mean 'zinc'"):
        GRASSConfig.preset("zink")
    with pytest.raises(GrassError, match=r"did you mean 'model\.layers'"):
        GRASSConfig().override({"layers": 3})
    with pytest.raises(GrassError, match=r"model\.layers = 0"):
        GRASSConfig().override({"model.layers": 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rewiring.variant": "half", "rewiring.degree": 3}, "even"),
        ({"rewiring.degree": -1}, "rewiring.degree"),
        ({"encoding.steps": 0}, "encoding.steps"),
        ({"task.metric": "auc"}, "metric of regression"),
        ({"task.loss": "bce"}, "loss of regression"),
        ({"model.output_bias": True}, "batch norm removes"),
        ({"model.edge_removal": 1.0}, "edge_removal"),
        ({"input.nodes.kind": "continuous"}, "sizes"),
        ({"training.learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_settings_are_checked_against_each_other(settings, message):
    with pytest.raises(GrassError, match=message):
        GRASSConfig().override(settings)
