"""Saved predictions: what is read is what was written."""

import csv

import numpy as np
import pytest
import torch

from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, shortest, write_predictions


def written(path, target, mean, std, names=None, ends=None):
    write_predictions(path, target, mean, std, names, ends)
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("named", [False, True])
def test_predictions_are_read_in_full_precision(tmp_path, named):
    """Total energies differ in their last digits only."""
    generator = torch.Generator().manual_seed(0)
    target, mean, std = torch.randn(3, 50, 2, generator=generator)
    target, mean = target / 10 - 20_000, mean / 10 - 20_000
    names = None
    if named:
        outputs = [(f"{name}_pred", f"{name}_std") for name in "EF"]
        names = RowNames([str(n) for n in range(50)], ["C"] * 50, ["E", "F"], outputs)
    ends = (mean - std, mean + std)
    written(tmp_path / "test.csv", target, mean, std, names, ends if named else None)
    saved = SavedPredictions.read(tmp_path / "test.csv")
    assert torch.equal(torch.from_numpy(saved.target).float(), target)
    assert torch.equal(torch.from_numpy(saved.mean).float(), mean)
    assert torch.equal(torch.from_numpy(saved.std).float(), std)
    if named:
        found = torch.from_numpy(saved.ends).float().view(50, 2, 2)
        assert torch.equal(found, torch.stack(ends, dim=2))


def test_cells_are_as_short_as_they_can_be():
    expected = ["0.1", "1", "-20000.053", "0.33333334", "1e-07", "1e+15", "123456", "nan", "inf"]
    values = [0.1, 1.0, -20_000.0535, 1 / 3, 1e-7, 1e15, 123_456, float("nan"), 1e300]
    assert [shortest(value) for value in values] == expected
    many = np.random.default_rng(0).integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    many = many[np.isfinite(many)]
    assert (np.array([shortest(float(one)) for one in many], dtype=np.float32) == many).all()
