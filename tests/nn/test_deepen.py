"""More layers for a trained model: the same output, and layers that learn."""

import pytest
import torch
from test_model import batch_of, config

from grass_gnn import GRASS, GrassError
from grass_gnn.nn.deepen import arrangement, deepen, start_from
from grass_gnn.nn.norm import collect_statistics


def trained(**changes):
    """A model with statistics, and weights that differ from those of a new one."""
    torch.manual_seed(0)
    model = GRASS(config(**changes))
    with torch.no_grad(), collect_statistics(model):
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model(prepared(model))
    return model


def prepared(model):
    graphs = batch_of(model.config)
    return model.prepare(graphs, torch.arange(graphs.num_graphs))


@pytest.mark.parametrize("ops", ["reference", ""])
@pytest.mark.parametrize("layers", [3, 4, 7, 10])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("norm", ["batch", "layer", "layer-graph", "instance", "none"])
def test_the_output_is_the_same(norm, flip, layers, ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    bias = {"model__output_bias": norm != "batch"}
    model = trained(model__norm=norm, model__flip=flip, model__edge_removal=0.0, **bias)
    deep = deepen(model, layers)
    assert len(deep.layers.layers) == deep.config.model.layers == layers
    batch = prepared(model)
    with torch.no_grad():
        for mode in (True, False):  # the moments of the batch, and the collected statistics
            expected = model.train(mode)(batch)
            assert expected.std() > 0.01
            # ε makes the smallest channels of a graph a little smaller in every layer.
            rtol = 1e-3 if norm == "instance" else 1e-4
            torch.testing.assert_close(deep.train(mode)(batch), expected, rtol=rtol, atol=1e-5)


def test_new_layers_learn():
    deep = deepen(trained(), 9)
    deep.train()(prepared(deep)).square().sum().backward()
    for layer in deep.layers.layers:
        assert layer.node_out.weight.grad.abs().max() > 0
        assert layer.edge_out.weight.grad.abs().max() > 0


def test_new_layers_are_spread_and_keep_the_direction_of_the_edges():
    for old, new in [(1, 1), (1, 6), (3, 8), (12, 49), (17, 49)]:
        found = arrangement(old, new)
        assert len(found) == new
        kept = [place for place, (_, is_new) in enumerate(found) if not is_new]
        assert [found[place][0] for place in kept] == list(range(old))
        assert all(place % 2 == number % 2 for number, place in enumerate(kept))
        gaps = [b - a for a, b in zip(kept, [*kept[1:], new - (new - old) % 2], strict=True)]
        assert max(gaps) - min(gaps) <= 2
        if old > 1:  # new layers start from one that uses the edges in the same direction
            assert all(source % 2 == place % 2 for place, (source, _) in enumerate(found))


def test_models_share_no_weights():
    model = trained()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in start_from(model, model.config).parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(dict(model.state_dict()), before)


def test_what_does_not_fit_is_refused():
    with pytest.raises(GrassError, match="2 layers cannot start from one of 3"):
        deepen(trained(), 2)
    with pytest.raises(GrassError, match="GRASS's attention"):
        deepen(trained(model__attention="gat"), 5)
    with pytest.raises(GrassError, match=r"configuration: edge_encoding\."):
        start_from(trained(), config(encoding__steps=5))
