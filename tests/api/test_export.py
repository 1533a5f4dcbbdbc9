"""Exported models: plain tensors in, the same predictions out, for batches of any size."""

import json
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Batch, Data

from grass_gnn import GRASS, GRASSConfig, TrainedModel, load_model
from grass_gnn.api.export import export_model, plain_tensors
from grass_gnn.cli import main
from grass_gnn.data.batch import batch_from_data
from grass_gnn.nn import collect_statistics
from grass_gnn.tasks import make_task
from grass_gnn.testing import random_input

BASE = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
}


def graphs(config, sizes):
    found = [random_input(config, size, seed=number) for number, size in enumerate(sizes)]
    if config.input.descriptors:
        for number, data in enumerate(found):
            data.descriptors = torch.full((1, config.input.descriptors), float(number))
    return found


def expected(trained, data, seeds):
    batch = batch_from_data(Batch.from_data_list(data), trained.config, seeds)
    with torch.no_grad():
        return make_task(trained.config.task).activate(trained.model(batch))


def used_norms(model, config):
    """Let all norms collect statistics, as those of a trained model have."""
    batch = batch_from_data(Batch.from_data_list(graphs(config, [9, 12, 7])), config)
    model.train()(batch)
    with torch.no_grad(), collect_statistics(model):
        model(batch)
    return model.eval()


@pytest.mark.parametrize(
    "changes",
    [
        {"input.nodes.kind": "ogb-atom", "input.edges.kind": "ogb-bond", "input.descriptors": 2},
        {
            "task.level": "node",
            "task.kind": "classification",
            "task.outputs": 3,
            "task.loss": "cross-entropy",
            "task.metric": "accuracy",
            "encoding.kind": "decomposed-rrwp",
            "input.nodes.kind": "continuous",
            "input.nodes.sizes": [3],
        },
        {
            "task.level": "edge",
            "task.kind": "binary",
            "task.loss": "bce",
            "task.metric": "auc",
            "encoding.kind": "none",
            "encoding.degrees": "none",
            "model.norm": "instance",
            "input.edges.kind": "index",
            "input.edges.sizes": [5],
        },
        {
            "model.pooling": "mean",
            "model.norm": "layer-graph",
            "encoding.kind": "laplacian",
            "task.outputs": 2,
            "task.target_scale": [2.0, 3.0],
        },
    ],
)
def test_round_trip_for_other_sizes(tmp_path, changes):
    config = GRASSConfig().override(BASE | changes)
    torch.manual_seed(0)
    trained = TrainedModel(used_norms(GRASS(config), config), config)
    beside = export_model(trained, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("grass" in name for name in called)  # PyTorch's own operations alone
    names = [one["name"] for one in json.loads(beside.read_text())["inputs"]]
    for sizes in ([6], [2], [5, 5], [3, 14, 8, 6, 25]):
        data, seeds = graphs(config, sizes), torch.arange(len(sizes))
        inputs = plain_tensors(trained, data, seeds)
        assert list(inputs) == names
        with torch.no_grad():
            found = program.module()(**inputs)
        assert torch.allclose(found, expected(trained, data, seeds), atol=1e-5, rtol=1e-5)


def test_the_command_exports_a_run(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", str(tmp_path / "size.pt2")]) == 0
    card = json.loads((tmp_path / "size.json").read_text())
    assert card["targets"] == ["size"] and card["output"]["shape"] == ["graphs", 1]
    assert card["inputs"][0]["shape"] == ["nodes", 9]
    assert card["inputs"][0]["categories"][0] == 119
    trained = load_model(run)
    one = Data(
        x=torch.zeros(3, 9, dtype=torch.long),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        edge_attr=torch.zeros(4, 3, dtype=torch.long),
    )
    inputs = plain_tensors(trained, [one, one], torch.tensor([1, 2]))
    torch.save(inputs, tmp_path / "inputs.pt")
    # In a process that cannot import this package.
    code = (
        "import sys, torch\n"
        "sys.modules['grass_gnn'] = None\n"
        "program = torch.export.load(sys.argv[1])\n"
        "print(program.module()(**torch.load(sys.argv[2])).flatten().tolist())"
    )
    files = [str(tmp_path / name) for name in ("size.pt2", "inputs.pt")]
    done = subprocess.run(
        [sys.executable, "-c", code, *files], capture_output=True, text=True, check=True
    )
    mean = expected(trained, [one, one], torch.tensor([1, 2])).flatten().tolist()
    assert json.loads(done.stdout) == pytest.approx(mean, abs=1e-5)


def test_a_missing_folder_gives_a_one_sentence_error(tmp_path, capsys):
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "a.pt2")]) == 1
    assert "no trained model" in capsys.readouterr().err
