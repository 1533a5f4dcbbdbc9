"""Fine-tuning: a run's layers with a new head, frozen or not."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from small_tables import TINY, read_csv, write_csv
from torch_geometric.data import Data

import grass_gnn
from grass_gnn import GrassError, load_model
from grass_gnn.api import finetuning
from grass_gnn.api.finetuning import Pretrained, finetune_table
from grass_gnn.cli import main
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.nn.model import BODY
from grass_gnn.training.signals import Interrupted

SHORT = {"training.epochs": 2, "training.batch_size": 16, "training.learning_rate": 0.01}
SET = [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def other(molecules, tmp_path_factory):
    """The same molecules under another column, with another target."""
    rows = [[row["smiles"], row["kind"]] for row in read_csv(molecules)]
    return write_csv(tmp_path_factory.mktemp("new") / "other.csv", ["smiles", "kind"], rows)


def body(folder):
    weights = load_file(folder / "weights.safetensors")
    return {name: value for name, value in weights.items() if name.split(".")[0] in BODY}


def test_command_line_freezes_layers_and_norms(run, other, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["finetune", str(run), str(other), "--target", "kind", "--freeze", *SET]
    assert main([*command, "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "Task: classification of 3 classes" in said and "learning rate 0.01" in said
    before, after = body(run), body(out)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    head = load_file(out / "weights.safetensors")["head.out.weight"]
    assert head.shape[0] == 3
    source, tuned = load_model(run), load_model(out)
    assert tuned.card["start"]["weights_sha256"] == source.card["weights_sha256"]
    assert tuned.card["start"]["frozen"] and tuned.config.encoding == source.config.encoding
    graphs = [ring(5), ring(6)]
    assert torch.equal(source.embed(graphs, rewirings=2), tuned.embed(graphs, rewirings=2))
    # An ordinary run folder: everything else works on it.
    table = str(tmp_path / "out.csv")
    assert main(["predict", str(out), str(other), "-o", table, "--rewirings", "1"]) == 0
    assert {row["kind_pred"] for row in read_csv(tmp_path / "out.csv")} <= set("abc")
    assert main(["evaluate", str(out), "--json"]) == 0
    assert main(["explain", str(out), str(other), "-o", str(tmp_path / "pictures")]) == 0


def test_a_frozen_head_learns_what_the_layers_know(run, molecules):
    settings = {"training.epochs": 12, "training.batch_size": 16, "training.learning_rate": 0.02}
    tuned = grass_gnn.finetune(run, molecules, target="large", freeze=True, settings=settings)
    graphs = read_tables(molecules, TableSpec(["large"])).splits["train"]
    mean, _ = tuned.predict(graphs, rewirings=2)
    right = (mean.flatten() > 0.5) == torch.cat([data.y.flatten() for data in graphs]).bool()
    assert right.float().mean() > 0.85


def test_molecules_that_the_source_was_trained_on_are_warned_of(
    run, molecules, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(finetuning, "train_table", lambda *_: None)
    lines = {int(row["line"]) for row in read_csv(run / "splits.csv") if row["split"] == "train"}
    known = [row["smiles"] for line, row in enumerate(read_csv(molecules), 2) if line in lines]
    new = [f"Br{smiles}" for smiles in known]

    def warnings(source, **parts):
        rows = [[one, n, part] for part, all_ in parts.items() for n, one in enumerate(all_)]
        path = write_csv(tmp_path / "new.csv", ["smiles", "boil", "part"], rows)
        caplog.clear()
        finetune_table(Pretrained(source), path, "boil", tmp_path / "run", split="part")
        return [m for m in caplog.messages if "training molecule" in m]

    source = load_model(run)
    (said,) = warnings(source, train=new[:20], val=new[20:26] + known[:4], test=new[30:40])
    assert said.startswith("At least 4 of 10 validation molecules") and str(run) in said
    assert len(warnings(source, train=new[:20], val=known[:9], test=known[9:18])) == 2
    # One in ten is still chance, training molecules do no harm, and memory has no fingerprints.
    assert not warnings(source, train=known[:20], val=new[:9] + known[:1], test=new[10:20])
    assert not warnings(replace(source, folder=None), train=new[:20], val=known[:9], test=known)


def test_loss_and_metric_are_those_of_the_new_task(run, molecules):
    source = load_model(run)
    changes = {"task.loss": "mse", "task.metric": "r2"}
    pretrained = Pretrained(replace(source, config=source.config.override(changes)))
    for target, expected in (("size", ("l1", "mae")), ("large", ("bce", "auc"))):
        data = read_tables(molecules, TableSpec([target]))
        task = pretrained.choose_table_config(data).task
        assert (task.loss, task.metric) == expected
    task = pretrained.choose_table_config(data, {"task.loss": "weighted-bce"}).task
    assert task.loss == "weighted-bce"


def test_whole_model_starts_from_the_weights_and_moves_gently(run, molecules, tmp_path):
    tuned = grass_gnn.finetune(
        run, molecules, tmp_path / "run", target="size", settings={"training.epochs": 1}
    )
    source = load_model(run)
    rate = tuned.config.training.learning_rate
    assert rate == source.config.training.learning_rate / 5
    before, after = dict(source.model.named_parameters()), dict(tuned.model.named_parameters())
    moved = [
        (after[name] - before[name]).abs().max() / rate
        for name in before
        if name.split(".")[0] in BODY
    ]
    steps = 64 // tuned.config.training.batch_size  # Lion moves each weight by its rate, and decay
    assert 0 < max(moved) <= 1.5 * steps
    assert not torch.equal(  # statistics are those of the new training
        source.model.layers.layers[0].node_norm.mean, tuned.model.layers.layers[0].node_norm.mean
    )
    assert int(tuned.model.node_encoding.norm.num_batches) == steps


@pytest.mark.parametrize("freeze", [False, True])
def test_an_interrupted_run_resumes_to_the_same_weights(run, molecules, tmp_path, freeze):
    options = {"target": "large", "freeze": freeze, "settings": SHORT}
    grass_gnn.finetune(run, molecules, tmp_path / "whole", **options)

    def stop_in_second_epoch(what, done, total):
        if what.startswith("Training") and done == total // 2 + 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        grass_gnn.finetune(
            run, molecules, tmp_path / "parts", progress=stop_in_second_epoch, **options
        )
    again = options | {"freeze": not freeze}
    with pytest.raises(GrassError, match="started from"):
        grass_gnn.finetune(run, molecules, tmp_path / "parts", resume=True, **again)
    moved = shutil.copytree(run, tmp_path / "moved")
    grass_gnn.finetune(moved, molecules, tmp_path / "parts", resume=True, **options)
    whole = (tmp_path / "whole" / "weights.safetensors").read_bytes()
    assert (tmp_path / "parts" / "weights.safetensors").read_bytes() == whole
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["start"]["run"] == str(run)


def ring(size, columns=None, y=None):
    nodes = torch.arange(size)
    pairs = torch.stack([nodes, nodes.roll(-1)])
    data = Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=size)
    data.x = torch.zeros(size, 9, dtype=torch.long) if columns is None else columns(size)
    data.edge_attr = torch.zeros(2 * size, 3, dtype=torch.long)
    data.y = y
    return data


def test_graphs_with_other_levels_and_fewer_categories():
    def graphs(columns, y):
        return [ring(4 + number % 3, columns, y(4 + number % 3)) for number in range(20)]

    def few(n):
        return torch.arange(n).remainder(2).view(-1, 1)

    settings = TINY | {"training.epochs": 1}
    first = grass_gnn.fit(
        graphs(lambda n: torch.arange(n).view(-1, 1), lambda n: torch.tensor([float(n)])),
        settings=settings,
    )
    nodes = graphs(few, lambda n: torch.arange(n) % 3)
    for freeze in (False, True):
        tuned = grass_gnn.finetune(first, nodes, freeze=freeze, settings=SHORT)
        assert tuned.config.input == first.config.input  # the larger vocabulary
        assert tuned.config.task.level == "node" and tuned.config.task.outputs == 3
        mean, _ = tuned.predict(nodes[:2], rewirings=1)
        assert mean.shape == (9, 3)
    for columns, words in (
        (lambda n: torch.arange(n).view(-1, 1) + 5, r"index \[11\], but the model .* index \[6\]"),
        (lambda n: torch.rand(n, 1), "kind continuous"),
        (lambda n: torch.zeros(n, 2, dtype=torch.long), "index"),
    ):
        with pytest.raises(GrassError, match=words):
            grass_gnn.finetune(first, graphs(columns, lambda n: torch.tensor([1.0])))


def test_edges_of_graphs_are_not_taken_for_bonds():
    # As many columns and categories as the vocabulary zinc has.
    rings = [ring(6, y=torch.tensor([float(number)])) for number in range(20)]
    for graph in rings:
        graph.edge_attr = torch.arange(12).view(-1, 1) % 4
    first = grass_gnn.fit(rings, settings=TINY | {"training.epochs": 1})
    config = first.config.override({"training.kekule_forms": True})
    tuned = grass_gnn.finetune(replace(first, config=config), rings, settings=SHORT)
    assert not tuned.config.training.kekule_forms


def test_invalid_fine_tuning_gives_a_one_sentence_error(run, molecules, tmp_path, capsys):
    command = ["finetune", str(run), str(molecules), "--target", "size", "--out"]
    out = tmp_path / "run"
    assert main([*command, str(out), "--set", "rewiring.degree=1"]) == 1
    assert "rewiring.degree cannot be changed" in capsys.readouterr().err
    assert not out.exists()
    assert main([*command, str(out), "--resume"]) == 1
    assert "no run to resume" in capsys.readouterr().err
    data = [ring(5, y=torch.tensor([1.0])) for _ in range(12)]
    grass_gnn.fit(data, tmp_path / "graphs", settings=TINY | {"training.epochs": 1})
    assert main(["finetune", str(tmp_path / "graphs"), *command[2:], str(out)]) == 1
    assert "was not trained on molecules" in capsys.readouterr().err
