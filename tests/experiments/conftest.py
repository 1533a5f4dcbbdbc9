"""Tiny grids: experiments of the catalogue on a few random graphs."""

import pytest

from grass_gnn.data.packed.prepare import prepare
from grass_gnn.experiments.job import Source
from grass_gnn.testing import random_input


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def random_source(tmp_path, monkeypatch):
    """Prepare random graphs that suit the configuration, in place of a benchmark."""

    def prepared(self, config):
        def graphs(count, first):
            return [random_input(config, 6 + seed % 5, first + seed) for seed in range(count)]

        splits = {"train": graphs(16, 0), "val": graphs(4, 100), "test": graphs(4, 200)}
        for split in splits if config.dataset == "roman-empire" else ():
            splits[split] = splits[split][:1]
        return prepare(splits, config, tmp_path / "prepared")

    monkeypatch.setattr(Source, "prepare", prepared)
