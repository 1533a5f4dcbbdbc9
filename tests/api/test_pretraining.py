"""Pretraining on a list of SMILES: which molecules are used, and resuming to the same bytes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from grass_gnn.api.embedding import embed_table
from grass_gnn.api.fitting import fit_table
from grass_gnn.api.pretraining import PretrainingSpec, pretrain
from grass_gnn.cli import main
from grass_gnn.data.pretraining import shards
from grass_gnn.data.pretraining.lists import constitution, draw, excluded_molecules, read_list
from grass_gnn.data.pretraining.shards import MOLECULES, TargetScaling
from grass_gnn.data.pretraining.targets import target_names
from grass_gnn.data.tables.parsing import parse
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import trained
from grass_gnn.evaluation.trained import WEIGHTS, load_model
from grass_gnn.training import start
from grass_gnn.training.options import RunOptions

SMALL = {
    "model.layers": 2,
    "model.dim": 8,
    "model.head_hidden": 0,
    "training.batch_size": 8,
    "evaluation.rewirings": 1,
}

RINGS = ("c1ccccc1", "C1CC1", "c1ccncc1", "C1CCNCC1", "c1ccc(O)cc1", "C1CCOC1")
CHAINS = (
    "C",
    "CC",
    "CO",
    "C(=O)O",
    "C(C)O",
    "N",
    "C#N",
    "CCl",
    "OC",
    "C[N+](C)(C)C",
    "C(F)(F)F",
    "S",
)


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """A list of small molecules, and a table of some of them."""
    folder = tmp_path_factory.mktemp("lists")
    texts = [f"{chain}{ring}" for ring in RINGS for chain in CHAINS]
    (folder / "list.smi").write_text("".join(f"{text} name\n" for text in texts) + "no molecule\n")
    (folder / "table.csv").write_text("y,smiles\n" + "".join(f"1,{text}\n" for text in texts[::5]))
    return folder


def run(folder, out, **options):
    spec = PretrainingSpec(1000, (str(folder / "table.csv"),))
    settings = {**SMALL, "training.epochs": 2}
    return pretrain(
        [folder / "list.smi"], out, spec, RunOptions(seed=3, **options), settings=settings
    )


class Kill(BaseException):
    pass


def test_an_interrupted_run_is_resumed_to_the_same_bytes(molecules, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 16)
    run(molecules, tmp_path / "whole", progress=lambda *_: None)
    for what, least in (("Describing", 32), ("Training", 3)):

        def stop(text, done, total, what=what, least=least):
            if text.startswith(what) and done >= least:
                raise Kill

        with pytest.raises(Kill):
            run(molecules, tmp_path / "killed", progress=stop, resume=what == "Training")
    run(molecules, tmp_path / "killed", progress=lambda *_: None, resume=True)
    first, second = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("whole", "killed"))
    assert first == second
    assert not list((tmp_path / "killed" / "data").glob("shards/*"))

    used = set((tmp_path / "whole" / "data" / MOLECULES).read_text().split())
    left_out = excluded_molecules([molecules / "table.csv"])
    assert len(used) > 20
    assert not left_out & {constitution(parse(text)) for text in used}

    model = load_model(tmp_path / "whole")
    assert model.card["table"]["targets"] == model.card["pretraining"]["targets"]["names"]
    assert str(tmp_path) not in (tmp_path / "whole" / "config.json").read_text().split("origin")[0]

    other = PretrainingSpec(500)
    with pytest.raises(GrassError, match="different molecules"):
        pretrain([molecules / "list.smi"], tmp_path / "whole", other, RunOptions(3, resume=True))


def test_the_command_leaves_a_run_to_fine_tune(molecules, tmp_path, capsys):
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    folder = tmp_path / "run"
    words = ["pretrain", str(molecules / "list.smi"), "--out", str(folder), "--molecules", "24"]
    assert main([*words, "--epochs", "1", *changes]) == 0
    assert f"grass-gnn finetune {folder} " in " ".join(capsys.readouterr().out.split())
    assert load_model(folder).card["pretraining"]["targets"]["names"]


def test_lists_contribute_equally_and_short_ones_everything(tmp_path):
    for name, letter, size in (("a", "C", 50), ("b", "N", 8), ("c", "O", 70)):
        lines = "".join(f"{letter * number} name\n" for number in range(1, size + 1))
        (tmp_path / f"{name}.smi").write_text(lines)
    paths = [tmp_path / f"{name}.smi" for name in "abc"]
    drawn = draw(paths, 48, seed=0)
    assert len(set(drawn)) == 48
    assert [sum(text[0] == letter for text in drawn) for letter in "CNO"] == [20, 8, 20]
    assert draw(paths, 48, seed=0) == drawn != draw(paths, 48, seed=1)
    assert sorted(draw(paths, 1000, seed=0)) == sorted(t for p in paths for t in read_list(p))


def test_targets_are_centred_scaled_and_bounded():
    values = torch.randn(5000, 3, generator=torch.Generator().manual_seed(0)) * 7 + 3
    values[0, 0], values[1, 1], values[:, 2] = 1e9, torch.nan, 4.0
    scaling = TargetScaling.of(values, ["a", "b", "constant"])
    targets = scaling.apply(values)
    assert scaling.names == ["a", "b"]
    assert targets.abs().nan_to_num().max() < 4
    assert targets[1, 1].isnan()
    assert targets.nanmean(dim=0).abs().max() < 1e-3
    assert abs(float(targets[:, 0].std()) - 1) < 0.01


def test_names_of_descriptors_are_distinct():
    names = target_names()
    assert len(set(names)) == len(names) > 200


def test_missing_files_are_named(tmp_path):
    with pytest.raises(GrassError, match=r"nothing\.smi"):
        pretrain([Path("nothing.smi")], tmp_path / "run")


def test_tables_start_from_the_shipped_model_unless_told_otherwise(
    molecules, tmp_path, monkeypatch
):
    run(molecules, tmp_path / "pretrained", progress=lambda *_: None)
    monkeypatch.setattr(trained, "SHIPPED", tmp_path)
    monkeypatch.setattr(start, "SHIPPED", tmp_path)
    texts = list(read_list(molecules / "list.smi"))[:60]
    table = tmp_path / "own.csv"
    table.write_text("Drug,y\n" + "".join(f"{text},{len(text)}\n" for text in texts))
    spec = TableSpec(("y",), smiles="Drug")
    short = {"training.epochs": 1, "evaluation.rewirings": 1}

    tuned = fit_table(table, spec, tmp_path / "tuned", settings=short)
    record = json.loads((tmp_path / "tuned" / "start.json").read_text())
    assert record["run"] == "pretrained"
    assert tuned.model.config.model.dim == 8
    source = load_model("pretrained").model
    for name in ("node_encoding", "edge_encoding"):  # as in pretraining, also while training
        norm = getattr(tuned.model, name).norm
        assert norm.frozen
        assert torch.equal(norm.mean, getattr(source, name).norm.mean)
    assert not torch.equal(  # but weights are trained
        tuned.model.node_encoding.linear.weight, source.node_encoding.linear.weight
    )

    layers = {**short, "model.layers": 1, "model.dim": 4}  # not the layers of the shipped model
    for name, changes, own in (
        ("layers", layers, spec),
        ("scratch", layers, replace(spec, from_scratch=True)),
    ):
        fit_table(table, own, tmp_path / name, settings=changes)
        assert not (tmp_path / name / "start.json").exists()

    embed_table(load_model("pretrained"), table, tmp_path / "own.npz", smiles="Drug", rewirings=1)
    found = np.load(tmp_path / "own.npz")
    assert found["embedding"].shape[1] == 24
