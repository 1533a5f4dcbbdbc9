"""A grid of the catalogue, small enough for tests."""

from grass_gnn.experiments.budget import Budget
from grass_gnn.experiments.catalogue import Cell, Experiment, experiment

TINY = Budget("tiny", epochs=1, layers=2, graphs=8, passes=1, rewirings=2)
SMALL = {
    "model.dim": 8,
    "model.head_hidden": 4,
    "encoding.steps": 4,
    "training.batch_size": 4,
}


def tiny_experiment(name="zinc-ablation", cells=("grass", "rewire-once", "gat")):
    """Some cells of an experiment, with a small network."""
    chosen = experiment(name).only(list(cells))
    small = {
        key: Cell(**(vars(cell) | {"settings": cell.settings | SMALL}))
        for key, cell in chosen.cells.items()
    }
    return Experiment(chosen.name, chosen.title, small, chosen.fillings, chosen.equal_time)
