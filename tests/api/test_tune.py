"""Tuning: studies that prune, resume, survive failures, and end in a configuration for train."""

import json
import os
import signal

import pytest
from small_tables import TINY

from grass_gnn import GRASSConfig, GrassError, load_model
from grass_gnn.api import tuning as study_module
from grass_gnn.api import tuning as trial_module
from grass_gnn.api.fitting import choose_table_config, default_settings
from grass_gnn.api.tuning import Range, open_study, search_space, tune
from grass_gnn.cli import main
from grass_gnn.config.names import flatten
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.spec import TableSpec

optuna = pytest.importorskip("optuna")

FIXED = TINY | {"training.epochs": 1}
# The learning rate, the weight decay and the rest are searched through.
SEARCHED = {name: value for name, value in FIXED.items() if name != "rewiring.degree"}
SET = [word for name, value in SEARCHED.items() for word in ("--set", f"{name}={value}")]


def settings_of(result):
    return {one.number: one.settings for one in result.trials}


def test_command_line_resumes_and_its_best_settings_train(molecules, tmp_path, capsys):
    best, out = tmp_path / "best.toml", tmp_path / "tune"
    command = ["tune", str(molecules), "--target", "size", *SET, "--out", str(out), "-o", str(best)]
    assert main([*command, "--trials", "2"]) == 0
    said = capsys.readouterr()
    assert "Trial 0: mae" in said.err and "learning_rate 0.0005" in said.out
    assert (out / "tune.db").is_file()
    assert main([*command, "--trials", "3", "--json"]) == 0
    said = capsys.readouterr()
    assert "Trial 2" in said.err and "Trial 1:" not in said.err
    trials = json.loads(said.out)["trials"]
    assert sorted(one["number"] for one in trials) == [0, 1, 2]
    scores = [one["score"] for one in trials]
    assert scores == sorted(scores)
    # The first trial is what train does by itself.
    first = next(one for one in trials if one["number"] == 0)["settings"]
    usual = default_settings(64, 12)
    assert all(first[name] == usual[name] for name in ("training.learning_rate", "rewiring.degree"))
    assert "model.layers" not in first  # --set fixes what it names

    run = tmp_path / "run"
    train = ["train", str(molecules), "--target", "size", "--config", str(best), "--no-baseline"]
    assert main([*train, "--out", str(run)]) == 0
    config = load_model(run).config
    for name, value in trials[0]["settings"].items():
        section, key = name.split(".")
        assert getattr(getattr(config, section), key) == value
    assert config.model.layers == 2
    # The run validates to what the trial reported: nothing else differs.
    lines = (run / "metrics.csv").read_text().splitlines()
    metric = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))["val_metric"]
    assert float(metric) == pytest.approx(trials[0]["score"], rel=1e-6)


def quick(monkeypatch, score=lambda config: config.training.learning_rate):
    """Trials that only inspect their settings."""

    def train_trial(trial, config, *rest):
        trial.report(score(config), 1)
        return score(config)

    monkeypatch.setattr(study_module, "train_trial", train_trial)


def test_a_resumed_study_draws_the_same_settings_as_an_uninterrupted_one(
    molecules, tmp_path, monkeypatch
):
    quick(monkeypatch)
    whole = tune(molecules, ["size"], tmp_path / "a", trials=12, settings=FIXED)
    for trials in (5, 12):
        parts = tune(molecules, ["size"], tmp_path / "b", trials=trials, settings=FIXED)
        assert len(parts.trials) == trials
    assert settings_of(parts) == settings_of(whole)
    rates = [one.settings["training.learning_rate"] for one in whole.trials]
    assert len(set(rates)) == 12 and rates == sorted(rates)
    other = tune(molecules, ["size"], tmp_path / "c", trials=2, settings=FIXED, seed=1)
    assert settings_of(other)[1] != settings_of(whole)[1]
    decays = [one.settings["training.weight_decay"] for one in whole.trials]
    assert len({round(rate / decay, 6) for rate, decay in zip(rates, decays, strict=True)}) > 5


@pytest.mark.parametrize(
    ("target", "loss", "metric"),
    [("large", "weighted-bce", "ap"), ("kind", "cross-entropy", "f1"), ("size", "l1", "mae")],
)
def test_the_best_settings_include_the_loss_and_metric_that_were_tuned(
    molecules, tmp_path, monkeypatch, target, loss, metric
):
    quick(monkeypatch)
    settings = FIXED | {"task.loss": loss, "task.metric": metric}
    result = tune(molecules, [target], tmp_path, trials=1, settings=settings)
    best = GRASSConfig.from_toml(result.file)
    assert choose_table_config(read_tables(molecules, TableSpec([target])), best) == result.best
    # Without a choice of one's own, the file can be used for tables with other tasks.
    assert ("[task]" in result.file.read_text()) == (target != "size")


def test_failed_and_killed_trials_stop_nothing(molecules, tmp_path, monkeypatch, caplog):
    def fail_often(config):
        if config.training.learning_rate != 5e-4:
            raise GrassError("The loss became nan.")
        return 1.0

    quick(monkeypatch, fail_often)
    caplog.set_level("INFO", "grass_gnn")
    options = {"settings": FIXED}
    result = tune(molecules, ["size"], tmp_path / "a", trials=3, **options)
    assert [one.state for one in result.trials] == ["complete", "failed", "failed"]
    assert "Trial 2 failed: The loss became nan." in caplog.messages
    # A process that was killed left a trial running, and another one waiting.
    study = optuna.load_study(
        study_name="grass-gnn", storage=f"sqlite:///{tmp_path / 'a' / 'tune.db'}"
    )
    study.ask()
    study.enqueue_trial({"training.learning_rate": 5e-4})
    result = tune(molecules, ["size"], tmp_path / "a", trials=5, **options)
    assert len(result.trials) == 5
    assert [one.number for one in result.trials if one.state == "complete"] == [0, 4]
    assert GRASSConfig.from_toml(tmp_path / "a" / "best.toml").training.learning_rate == 5e-4


def test_ctrl_c_keeps_finished_trials(molecules, tmp_path, monkeypatch, capsys):
    trained = trial_module.train_trial
    started = []

    def interrupt_second(trial, config, *rest):
        started.append(trial.number)
        if len(started) == 2:
            config = config.override({"training.epochs": 50})
            report = trial.report

            def press(*given):
                report(*given)
                os.kill(os.getpid(), signal.SIGINT)

            trial.report = press
        return trained(trial, config, *rest)

    monkeypatch.setattr(study_module, "train_trial", interrupt_second)
    command = ["tune", str(molecules), "--target", "large", *SET, "--out", str(tmp_path / "a")]
    assert main([*command, "--trials", "3"]) == 130
    assert started == [0, 1]
    assert (tmp_path / "a" / "best.toml").is_file()
    assert "resume" in capsys.readouterr().err
    assert main([*command, "--trials", "3", "--json"]) == 0
    numbers = [one["number"] for one in json.loads(capsys.readouterr().out)["trials"]]
    assert sorted(numbers) == [0, 2, 3]


def test_a_trial_that_falls_behind_is_ended(molecules, tmp_path):
    """Five perfect trials, then one with realistic errors."""
    settings = SEARCHED | {"training.epochs": 4}
    options = {"settings": settings, "trials": 6}
    tune(molecules, ["size"], tmp_path / "a", minutes=0, **options)  # a study, no trial yet
    study = optuna.load_study(
        study_name="grass-gnn", storage=f"sqlite:///{tmp_path / 'a' / 'tune.db'}"
    )
    perfect = dict.fromkeys(range(1, 5), 0.0)
    for _ in range(5):
        study.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values=perfect))
    result = tune(molecules, ["size"], tmp_path / "a", **options)
    last = result.trials[-1]
    assert last.state == "pruned" and last.epochs == 1 and last.score > 0
    assert last.settings["training.learning_rate"] == 5e-4


def test_invalid_studies_give_a_one_sentence_error(molecules, tmp_path, monkeypatch):
    quick(monkeypatch)
    tune(molecules, ["size"], tmp_path / "a", trials=1, settings=FIXED)
    with pytest.raises(GrassError, match="different data"):
        tune(molecules, ["large"], tmp_path / "a", trials=2, settings=FIXED)
    with pytest.raises(GrassError, match="different settings"):
        tune(molecules, ["size"], tmp_path / "a", trials=2, settings=SEARCHED)
    (tmp_path / "no.db").write_text("nothing " * 1000)
    for storage in (tmp_path / "no.db", "nosuch://host/base"):
        with pytest.raises(GrassError, match="cannot be opened") as caught:
            open_study(storage, "study", True, 0, 1, {})
        assert "\n" not in str(caught.value)


def test_no_trial_begins_after_the_given_time(molecules, tmp_path, monkeypatch):
    quick(monkeypatch)
    result = tune(molecules, ["size"], tmp_path / "a", minutes=0, settings=FIXED)
    assert result.trials == [] and result.best is None and not result.interrupted


def test_the_space_holds_the_defaults_of_any_size():
    for count in (40, 700, 4000, 10**6):
        for nodes in (20, 150):
            base = GRASSConfig().override(default_settings(count, nodes))
            usual = dict(flatten(base.model_dump()))
            for name, values in search_space(base, count, {}).items():
                assert values.contains(usual[name]), name
    assert "rewiring.degree" not in search_space(base.override({"rewiring.kind": "none"}), 9, {})
    assert not Range(0, 9, step=3).contains(4)
