"""Files of a grid without real runs: reports need only the files."""

import json
from dataclasses import asdict

import pytest

from grass_gnn.experiments.budget import BUDGETS
from grass_gnn.experiments.catalogue import experiment
from grass_gnn.training.run import config_toml

HASH = "0123456789abcdef"


@pytest.fixture
def write_grid(tmp_path):
    """Write the folder of an experiment whose runs have made-up, orderly numbers."""

    def write(name, seeds=(0, 1), folder="grid", without=()):
        chosen, budget, root = experiment(name), BUDGETS["smoke"], tmp_path / folder
        root.mkdir()
        (root / "grid.json").write_text(json.dumps({"experiment": name, "budget": asdict(budget)}))
        for place, cell in enumerate(chosen.cells.values()):
            for seed in seeds if cell.name not in without else ():
                _write_run(root / cell.name / f"seed-{seed}", chosen, cell, budget, place, seed)
        return root

    return write


def _write_run(run, chosen, cell, budget, place, seed):
    run.mkdir(parents=True)
    config = budget.apply(cell.config())
    score = 0.5 + 0.01 * place + 0.001 * seed
    scores = {
        "metric": config.task.metric,
        "mean": score,
        "variance": 1e-6,
        "rewirings": 2,
        "interval": [score - 0.1, score + 0.1],
        "averaged": {"1": score, "2": score},
        "scores": [score, score],
    }
    results = {
        "official": False,
        "seed": seed,
        "val": scores,
        "test": scores,
        "training": {
            "epochs": 3,
            "seconds": 12.0,
            "epoch_seconds": {"mean": 4.0, "std": 0.5, "epochs": 3},
            "peak_memory_mb": 1048.576,
        },
        "data": {
            "fingerprint": {"name": "zinc", "hash": HASH, "differences": ["few graphs"]},
            "preparation_seconds": 3.0,
            "prepared_bytes": 2**30,
        },
        "hardware": {"cpu": "<b>a processor</b>"},
    }
    card = {
        "experiment": chosen.name,
        "cell": cell.name,
        "seed": seed,
        "preset": cell.preset,
        "settings": cell.settings,
        "budget": asdict(budget),
        "epochs": 3,
        "parameters": 12345,
        "dense_rrwp_bytes": 20 * 2**30,
    }
    (run / "results.json").write_text(json.dumps(results))
    (run / "cell.json").write_text(json.dumps(card))
    (run / "config.toml").write_text(config_toml(config, seed))
    rows = [f"{e},{e},0.1,1.0,{score + 1 / e},4.0,100,1000" for e in (1, 2, 3)]
    head = "epoch,step,learning_rate,train_loss,val_metric,seconds,graphs_per_second,peak_memory_mb"
    (run / "metrics.csv").write_text("\n".join([head, *rows]) + "\n")
    pairs = [f"{t % 3},{t * 2 % 3}" for t in range(30)]
    kind = config.task.kind
    (run / "predictions.csv").write_text(
        "\n".join([f"target,prediction,{kind},graph", *pairs]) + "\n"
    )
