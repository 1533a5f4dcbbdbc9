"""Shared fixtures: where real data are, and little work so that tests can run side by side."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def few_resamples():
    """Confidence intervals from few resamples: with all, they take most of a small run's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grass_gnn.evaluation.protocol.BOOTSTRAP", 20)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real benchmark data, if it is there."""
    chosen = os.environ.get("GRASS_TEST_DATA")
    folder = Path(chosen) if chosen else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data: set GRASS_TEST_DATA to their folder")
    return folder
