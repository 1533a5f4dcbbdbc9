"""The command line, in-process: outputs, exit codes, and errors of one sentence."""

import csv
import json
import os

import pytest
import torch

import grass_gnn
from grass_gnn.api.fitting import EXAMPLE
from grass_gnn.cli import main, run
from grass_gnn.cli.common import show_results
from grass_gnn.evaluation.trained import load_model

SMALL = [
    *("--generate", "6,3,3", "--epochs", "1", "--set", "model.layers=2", "--set", "model.dim=8"),
    *("--set", "encoding.steps=4", "--set", "training.batch_size=3"),
    *("--set", "evaluation.statistics_passes=1", "--set", "evaluation.rewirings=2"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")  # the kernel's cache is elsewhere then
    monkeypatch.setenv("GRASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_train_evaluate_and_resume(tmp_path, capsys):
    assert main(["train", "cluster", *SMALL, "--out", "run", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["official"] is False and results["test"]["rewirings"] == 2
    assert main(["evaluate", "run", "--json"]) == 0  # the graphs are generated again
    captured = capsys.readouterr()
    again = json.loads(captured.out)
    assert again["test"]["mean"] == pytest.approx(results["test"]["mean"], rel=1e-6)
    assert "other graphs" not in captured.err
    assert main(["evaluate", "run", "--split", "val", "--deterministic"]) == 0
    assert "val" in capsys.readouterr().out
    assert main(["train", "cluster", *SMALL, "--out", "run"]) == 1
    assert "--resume" in capsys.readouterr().err
    assert main(["train", "cluster", *SMALL, "--out", "run", "--resume"]) == 0
    assert "Everything is in run" in capsys.readouterr().out
    card = json.loads((tmp_path / "run" / "config.json").read_text())
    card["data"]["origin"]["seed"] = 1  # as if the files of a dataset had been replaced
    (tmp_path / "run" / "config.json").write_text(json.dumps(card))
    assert main(["evaluate", "run"]) == 0
    assert "other graphs" in capsys.readouterr().err


def test_rounding_is_no_gain_from_averaging(capsys):
    row = {"metric": "mae", "mean": 0.1 + 0.2, "variance": 0.0, "averaged": {"1": 0.3, "2": 0.3}}
    show_results({"test": {**row, "metrics": {"mae": (0.3, (0.2, 0.4))}}})
    told = capsys.readouterr().out
    assert "makes no difference on test" in told and "better" not in told


def test_config_file_of_a_run_trains_again(tmp_path, capsys):
    assert main(["train", "cluster", *SMALL, "--out", "first"]) == 0
    assert main(["train", "first/config.toml", "--generate", "6,3,3", "--out", "second"]) == 0
    first = (tmp_path / "first" / "weights.safetensors").read_bytes()
    assert (tmp_path / "second" / "weights.safetensors").read_bytes() == first
    text = "preset = 'zinc'\n[model]\nlayers = 3\n"
    (tmp_path / "mine.toml").write_text(text)
    capsys.readouterr()
    assert main(["info", "mine.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["model"]["layers"] == 3


def test_a_run_starts_from_one_with_fewer_layers(capsys):
    """Its first loss is that of the trained model, in all processes."""
    train = ["train", "cluster", *SMALL, "--set", "model.edge_removal=0"]
    train += ["--set", "training.batch_size=6"]  # one batch
    large = ["--set", "training.learning_rate=0.05", "--set", "training.initial_learning_rate=0.05"]
    assert main([*train, *large, "--out", "shallow"]) == 0
    train += ["--start-from", "shallow"]
    assert main([*train, "--out", "same"]) == 0
    deeper = [*train, "--set", "model.layers=5"]
    assert main([*deeper, "--out", "deep"]) == 0
    assert main([*deeper, "--out", "two", "--devices", "2"]) == 0
    deep = load_model("deep")
    assert deep.config.model.layers == 5
    checksum = load_model("shallow").card["weights_sha256"]
    assert deep.card["start"] == {"run": "shallow", "weights_sha256": checksum}
    with open("deep/config.toml") as file:
        assert "# Training started from the weights of shallow.\n" in file.readlines()
    losses = []
    for name in ("shallow", "same", "deep", "two"):
        with open(f"{name}/metrics.csv") as file:
            losses.append(float(next(csv.DictReader(file))["train_loss"]))
    assert losses[1:] == [pytest.approx(losses[1], rel=1e-5)] * 3
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)
    assert main([*deeper, "--set", "model.dim=16", "--out", "other"]) == 1
    assert "does not fit the configuration" in capsys.readouterr().err
    assert main([*deeper, "--start-from", "same", "--out", "deep", "--resume"]) == 1
    assert "started from shallow" in capsys.readouterr().err
    deeper.remove("--start-from")
    deeper.remove("shallow")
    assert main([*deeper, "--out", "deep", "--resume"]) == 0  # keeps the record
    assert load_model("deep").card["start"]["run"] == "shallow"
    assert main(["train", "example", "--start-from", "shallow"]) == 1
    assert "--start-from applies only to benchmarks" in capsys.readouterr().err


def test_info_shows_the_papers_parameter_count(capsys):
    assert main(["info", "zinc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 496545
    assert main(["info", "pascalvoc-sp"]) == 0
    assert "501,493" in capsys.readouterr().out


def test_datasets_commands(capsys):
    assert main(["datasets"]) == 0
    assert "peptides-func" in capsys.readouterr().out
    assert main(["datasets", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 12
    assert main(["datasets", "prepare", "cluster", "--generate", "4,2,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] > 0
    assert main(["datasets", "fingerprint", "cluster", "--generate", "4,2,2"]) == 0
    assert "not official" in capsys.readouterr().out
    assert main(["datasets", "stats", "cluster", "--generate", "4,2,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["graphs"] == 8


def test_doctor(capsys):
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["torch"] == torch.__version__ or facts["torch"] in torch.__version__
    assert "cluster" not in facts["datasets here"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "zink"], "did you mean 'zinc'"),
        (["train", "zinc", "--data", "nowhere"], "nowhere"),
        (["train", "zinc", "--set", "model.layer=3"], "did you mean 'model.layers'"),
        (["train", "zinc", "--set", "model.layers"], "name=value"),
        (["train", "zinc", "--set", "model.layers=0"], "model.layers"),
        (["train", "cluster", "--generate", "1,2"], "three numbers"),
        (["train", "missing.toml"], "missing.toml"),
        (["train", "zinc", "--config", "x.toml"], "--config does not apply"),
        (["train", "zinc", "--target", "y"], "--target applies only to tables"),
        (["train", "zinc", "--split", "random"], "--split applies only to tables"),
        (["train", "zinc", "--val", "v.csv"], "--val applies only to tables"),
        (["train", "zinc", "--folds", "3"], "--folds applies only to tables"),
        (["train", "some.csv", "--data", "folder"], "--data applies only to benchmarks"),
        (["train", "some.csv", "--generate", "3,3,3"], "--generate applies only to benchmarks"),
        (["train", "some.pt", "--smiles", "s"], "--smiles applies only to tables"),
        (["evaluate", "nowhere"], "no trained model"),
        (["info", "mnist", "--set", "training.betas=[2, 0.9]"], "training.betas"),
        (["datasets", "stats", "zinck"], "zinc"),
    ],
)
def test_errors_are_one_sentence(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error
    assert len(error.strip().splitlines()) == 1


def test_evaluate_with_rewirings_of_each_graph_alone(tmp_path, capsys):
    """Of a regression, whose score changes with every rewiring."""
    pytest.importorskip("rdkit")
    table = "\n".join(EXAMPLE.read_text("utf-8").splitlines()[:31])
    (tmp_path / "table.csv").write_text(table, "utf-8")
    arguments = [*SMALL[2:], "--set", "model.head_hidden=0", "--target", "logP", "--out", "run"]
    arguments += ["--no-baseline"]
    assert main(["train", "table.csv", *arguments]) == 0
    capsys.readouterr()

    def score(*options):
        assert main(["evaluate", "run", "--rewirings", "3", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["test"]

    first, second = (score("--deterministic", "--seed", seed) for seed in "17")
    assert first == second and first["rewirings"] == len(set(first["scores"])) == 3
    seeded = [score("--seed", seed)["scores"] for seed in "17"]
    assert len({*first["scores"], *seeded[0], *seeded[1]}) == 9  # no rewiring occurs twice


def test_info_shows_runs_and_shipped_weights(capsys):
    assert main(["train", "cluster", *SMALL, "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["info", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["model"]["layers"] == found["weights"]["layers"] == 2
    assert found["parameters"] == found["weights"]["parameters"]
    assert main(["info", "run"]) == 0
    assert "Trained weights in run" in capsys.readouterr().out
    assert main(["info", "zinc"]) == 0
    assert "Shipped weights zinc" in capsys.readouterr().out
    assert main(["info", "cluster"]) == 0
    assert "weights" not in capsys.readouterr().out.replace("class-weights", "")


def test_a_baseline_does_not_promise_an_evaluation(capsys):
    arguments = ["train", "cluster", *SMALL, "--set", "model.architecture=gcn"]
    assert main([*arguments, "--set", "encoding.kind=none", "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "Everything is in run" in said and "Next:" not in said and "no weights" in said


def test_version_and_the_bare_command(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"grass-gnn {grass_gnn.__version__}\n"
    assert main([]) == 0
    said = capsys.readouterr()
    assert "Your own data" in said.out and "Error" not in said.err


def test_usage_errors_and_help(capsys):
    assert main(["train"]) == 2
    assert "Missing argument" in capsys.readouterr().err
    assert main(["train", "zinc", "--epochs", "0"]) == 2
    for command in ("train", "evaluate", "info", "doctor", "demo", "datasets"):
        assert main([command, "--help"]) == 0
        assert "Examples" in capsys.readouterr().out


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="zinc"):
        main(["info", "zink", "--debug"])


def test_info_says_what_a_preset_of_ours_is_for(capsys):
    assert main(["info", "zinc-cpu", "--set", "model.layers=1"]) == 0
    assert "one CPU core" in capsys.readouterr().err
    assert main(["info", "zinc", "--set", "model.layers=1"]) == 0
    assert not capsys.readouterr().err  # the paper's own need no word


@pytest.mark.parametrize(
    ("name", "default"), [("THP_MEM_ALLOC_ENABLE", "1"), ("GOMP_SPINCOUNT", "20000")]
)
@pytest.mark.parametrize("before", [None, "0"])
def test_the_command_configures_torch_unless_the_user_does(monkeypatch, name, default, before):
    for variable in ("THP_MEM_ALLOC_ENABLE", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(variable, "0")  # so that it is put back at the end
    if before is None:
        monkeypatch.delenv(name)
    monkeypatch.setattr("grass_gnn.cli.main", lambda: 3)
    with pytest.raises(SystemExit, match="3"):
        run()
    assert os.environ[name] == (before or default)
