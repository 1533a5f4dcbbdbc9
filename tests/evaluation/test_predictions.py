"""Saved predictions: what is read is what was written, whatever the targets are called."""

import numpy as np
import pytest
import torch

from grass_gnn.config import TaskConfig
from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, shortest, write_predictions
from grass_gnn.tasks import TASKS, make_task


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
    write_predictions(tmp_path / "test.csv", target, mean, std, names, ends if named else None)
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


KINDS = [
    ("regression", ("y", "y_std"), ()),
    ("regression", ("y", "y_pred", "y_lower"), ()),
    ("regression", ("row",), ()),
    ("regression", ("graph", "smiles"), ()),
    ("multilabel", ("a_prob_b", "a_prob_c", "y"), ()),
    ("binary", ("y_prob_x",), ("no", "yes")),
    ("classification", ("y_prob_x",), ("low", "high_prob_1", "y_std")),
]


@pytest.mark.parametrize(("kind", "targets", "classes"), KINDS)
def test_columns_are_found_whatever_the_targets_are_called(kind, targets, classes, tmp_path):
    settings = TASKS[kind].default_settings(len(classes) if len(classes) > 2 else len(targets))
    task = make_task(TaskConfig.model_validate(settings))
    generator = torch.Generator().manual_seed(0)
    target = task.random_targets(20, generator)
    mean, std = torch.rand(2, 20, task.outputs, generator=generator)
    numbers, outputs = [str(n) for n in range(20)], task.output_columns(targets, classes)
    names = RowNames(numbers, ["C"] * 20, targets, outputs, classes)
    for ends in [None, (mean - std, mean + std)][: 1 + (kind == "regression")]:
        write_predictions(tmp_path / "test.csv", target, mean, std, names, ends)
        saved = SavedPredictions.read(tmp_path / "test.csv", task)
        assert saved.targets == list(targets) and saved.rows == numbers
        assert torch.equal(torch.from_numpy(saved.target).float(), target.view(20, -1).float())
        assert torch.equal(torch.from_numpy(saved.mean).float(), mean)
        assert torch.equal(torch.from_numpy(saved.std).float(), std)
        assert saved.ends.shape == (20, 0 if ends is None else 2 * task.outputs)
