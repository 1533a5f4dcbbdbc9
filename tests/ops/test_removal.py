import pytest
import torch

from grass_gnn.ops import removal_mask


def test_removes_the_right_share_and_scales_the_rest():
    mask = removal_mask(seed=3, layer=0, num_edges=4000, dim=32, p=0.3)
    assert mask.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (mask == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert mask.mean().item() == pytest.approx(1.0, abs=0.01)


def test_edges_and_channels_are_independent():
    removed = (removal_mask(5, 2, 20_000, 16, 0.5) == 0).double()
    correlation = torch.corrcoef(removed.T) - torch.eye(16)
    assert correlation.abs().max() < 0.04
    neighbours = torch.corrcoef(torch.stack([removed[:-1].flatten(), removed[1:].flatten()]))
    assert neighbours[0, 1].abs() < 0.01


@pytest.mark.parametrize(("seed", "layer"), [(0, 1), (1, 0), (2**63 + 1, 0), (-1, 0)])
def test_seed_and_layer_each_give_another_mask(seed, layer):
    mask, other = removal_mask(0, 0, 500, 32, 0.5), removal_mask(seed, layer, 500, 32, 0.5)
    assert (mask == other).float().mean().item() == pytest.approx(0.5, abs=0.02)


def test_nothing_removed():
    assert (removal_mask(0, 0, 10, 4, 0.0) == 1).all()
