"""Forest and process beside the network: parity with scikit-learn, runs, damaged files."""

import hashlib
import json
import math
import shutil
import warnings
from contextlib import closing

import numpy
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from small_tables import TINY, read_csv, some_smiles, write_csv

from grass_gnn import GrassError, load_model
from grass_gnn.api import forest as fitting
from grass_gnn.api.calibration import calibrate
from grass_gnn.api.cross_validation import cross_validate
from grass_gnn.api.fitting import fit_table
from grass_gnn.api.forest import describe_baseline, fit_forest
from grass_gnn.api.held_out import split_forest, validation_rows
from grass_gnn.api.prediction import predict_table
from grass_gnn.cli import main
from grass_gnn.config import TaskConfig
from grass_gnn.data.packed.dataset import pack_checked
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.descriptors import fill_columns
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.evaluation.forest import leaf_errors
from grass_gnn.evaluation.run import evaluate_run
from grass_gnn.evaluation.stack import ARRAYS, FILE, load_stack, mix, other_members
from grass_gnn.report.run_files import RunReport
from grass_gnn.report.table import number as shown
from grass_gnn.serve.card import model_card
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.molecules import MoleculeView
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.ensembles import Ensemble
from grass_gnn.uncertainty.neighbours import Nearness


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Targets that count atoms, with gaps; every row has at least one."""
    header = ["smiles", "carbons", "aromatic", "kind", "oxygen", "fluorine", "bulk"]
    rows = []
    for number, text in enumerate(some_smiles(80)):
        carbons = text.upper().count("C") - text.count("Cl")
        kind = "ring" if "c1" in text else "cage" if "C1" in text else "chain"
        label = int("O" in text) if number % 5 else ""
        rows.append([text, carbons, int("c" in text), kind, label, int("F" in text), 10 * carbons])
    return write_csv(tmp_path_factory.mktemp("forest") / "own.csv", header, rows)


@pytest.fixture(scope="module")
def trained(table, tmp_path_factory):
    """A run with a forest."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        fit_table(table, "carbons", folder, settings=TINY, shares=(0.6, 0.2, 0.2))
    return folder


KINDS = [
    (["carbons"], "mae", 1.5),
    (["carbons", "bulk"], "mae", 10.0),
    (["aromatic"], "auc", 0.9),
    (["kind"], "accuracy", 0.7),
    (["oxygen", "fluorine"], "ap", 0.7),
]


@pytest.mark.parametrize(("targets", "metric", "bound"), KINDS)
def test_a_forest_learns_every_kind_of_task(table, targets, metric, bound):
    data = read_tables(table, TableSpec(tuple(targets)), workers=0)
    found = fit_forest(data, workers=0).baseline
    assert metric in found.test
    assert found.test[metric] <= bound if metric == "mae" else found.test[metric] >= bound
    assert found.rows == found.drawn_from == len(data.splits["train"]) + len(data.splits["val"])
    assert f"{found.test[metric]:.4f}" in describe_baseline(found.to_dict(), metric)


@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_a_forest_learns_in_any_unit(unit):
    columns = numpy.random.default_rng(0).normal(size=(60, 5)).astype(numpy.float32)
    targets = unit * (columns[:, :1] + columns[:, 1:2] ** 2).astype(float)
    forest, _ = fitting._fit(make_task(TaskConfig()), columns, targets, 0)
    error = numpy.abs(forest.predict(columns, 1).mean - targets).mean()
    assert error < 0.5 * targets.std()
    assert error < forest.error.mean() < 2 * targets.std()  # out of bag


@pytest.mark.parametrize("targets", [kind[0] for kind in KINDS])
def test_predictions_are_those_of_scikit_learn(table, targets):
    data = read_tables(table, TableSpec(tuple(targets)), workers=0)
    task, rows = make_task(data.task), fitting._Rows(data)
    train, test = rows.of("train") + rows.of("val"), rows.of("test")
    found = fit_forest(data, 3, workers=0)
    inputs = fill_columns(rows.inputs(train + test, 0), found.forest.columns, found.forest.median)
    x, asked = inputs[: len(train)], inputs[len(train) :]
    for column in range(task.target_columns):
        y = numpy.array([float(rows.targets[row].reshape(-1)[column]) for row in train])
        known = ~numpy.isnan(y)
        options = {"bootstrap": True, "oob_score": True, "random_state": 3}
        if task.predicts_probabilities:
            count = 30 if task.target_columns < 3 else 15
            forest = ExtraTreesClassifier(count, **options).fit(x[known], y[known])
            expected = forest.predict_proba(asked)
            expected = expected if task.classes else expected[:, 1:]
        else:
            forest = ExtraTreesRegressor(15, **options).fit(x[known], y[known])
            expected = forest.predict(asked)[:, None]
        places = slice(None) if task.classes else slice(column, column + 1)
        mean = found.splits["test"].mean[:, places].numpy()
        numpy.testing.assert_allclose(
            mean,
            expected.clip(1e-3, 1 - 1e-3) if task.predicts_probabilities else expected,
            atol=4e-3 if task.predicts_probabilities else 1e-5,
        )
        if not task.predicts_probabilities:  # validation rows by trees that have not seen them
            held = numpy.arange(len(train))[known] >= len(rows.of("train"))
            own = found.splits["val"].mean[:, column].numpy()[known[len(rows.of("train")) :]]
            numpy.testing.assert_allclose(own, forest.oob_prediction_[held], atol=1e-5)


def test_leaves_know_the_errors_of_their_rows(table):
    """Against the prediction of scikit-learn's trees for the rows that they have not seen."""
    data = read_tables(table, TableSpec(("carbons",)), workers=0)
    rows = fitting._Rows(data)
    train, test = rows.of("train") + rows.of("val"), rows.of("test")
    found = fit_forest(data, 3, workers=0)
    inputs = fill_columns(rows.inputs(train + test, 0), found.forest.columns, found.forest.median)
    x, asked = inputs[: len(train)], inputs[len(train) :]
    y = numpy.array([float(rows.targets[row]) for row in train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with 15 trees, some rows may be in all samples
        options = {"bootstrap": True, "oob_score": True, "random_state": 3}
        forest = ExtraTreesRegressor(15, **options).fit(x, y)
    drawn = numpy.array([numpy.bincount(s, minlength=len(y)) for s in forest.estimators_samples_])
    error = numpy.abs(forest.oob_prediction_ - y)
    error[drawn.all(axis=0)] = error[~drawn.all(axis=0)].mean()
    expected = []
    for molecule in asked:
        of_trees = []
        for tree, count in zip(forest.estimators_, drawn, strict=True):
            own = count * (tree.apply(x) == tree.apply(molecule[None]))
            of_trees.append((own * error).sum() / own.sum())
        expected.append(numpy.mean(of_trees))
    numpy.testing.assert_allclose(found.splits["test"].error[:, 0], expected, rtol=1e-5)
    kinds = read_tables(table, TableSpec(("kind",)), workers=0)
    assert fit_forest(kinds, 3, workers=0).forest.error is None


def test_it_is_reproducible_and_stays_small(table, monkeypatch):
    data = read_tables(table, TableSpec(("carbons",)), workers=0)
    first, again = (fit_forest(data, 3, workers=0) for _ in range(2))
    assert first.baseline.test == again.baseline.test
    monkeypatch.setattr(fitting, "_MOST_NODES", 3 * first.forest.roots[1])
    assert 1 <= len(fit_forest(data, 3, workers=0).forest.roots) < 15
    monkeypatch.setattr(fitting, "_MOST_NUMBERS", 20)
    monkeypatch.setattr(fitting, "_FEW", 10)
    limited = fit_forest(data, workers=0)
    assert limited.baseline.rows == 20
    assert "20 of 72" in describe_baseline(limited.baseline.to_dict(), "mae")
    assert torch.isfinite(limited.splits["val"].mean).all()  # also of rows that were not drawn
    monkeypatch.setattr(fitting, "MOST_ROWS", 2)
    assert fit_forest(data, workers=0) is None


def test_molecules_without_some_descriptors_are_predicted(tmp_path):
    # Partial charges of metals are undefined; the forest fills gaps.
    rows = [[text, len(text)] for text in [*some_smiles(30), "[Fe]", "[Na+].[Cl-]", "[U]"]]
    path = write_csv(tmp_path / "own.csv", ["smiles", "y"], rows)
    found = fit_forest(read_tables(path, TableSpec(("y",)), workers=0), workers=0)
    assert math.isfinite(found.baseline.test["mae"])
    assert torch.isfinite(found.splits["test"].mean).all()


def regression(outputs=1):
    return make_task(TaskConfig(kind="regression", outputs=outputs, loss="l1", metric="mae"))


def as_before(folder):
    """Make a run as versions wrote it that had no process, and forests without errors."""
    arrays = load_file(folder / ARRAYS)
    new = {name for name in arrays if name.startswith("process.") or name.endswith("error")}
    assert len(new) > 12
    save_file({name: own for name, own in arrays.items() if name not in new}, folder / ARRAYS)
    card = json.loads((folder / FILE).read_text())
    del card["even_spread"], card["process_shares"], card["reach"]
    card["sha256"] = hashlib.sha256((folder / ARRAYS).read_bytes()).hexdigest()
    (folder / FILE).write_text(json.dumps(card))


def test_forests_of_earlier_versions_predict_and_calibrate_as_before(trained, table, tmp_path):
    copy, old = (shutil.copytree(trained, tmp_path / name) for name in ("copy", "old"))
    as_before(old)
    new = load_model(copy)
    shares = json.loads((old / FILE).read_text())["shares"]
    stack = load_stack(load_model(old))
    ensemble = Ensemble([new])
    molecule = ensemble.reader(100)(read_csv(table)[0]["smiles"])
    network = new.predict_packed(pack_checked([molecule.checked()], new.config), 2, 0)
    (forest,) = ensemble.ask_forests(ensemble.forest_columns([molecule], [[]]))
    both = stack.combine(network, forest)
    assert both == mix(network, forest, shares, regression(), even_spread=False)
    assert both.std != mix(network, forest, shares, regression(), even_spread=True).std
    assert leaf_errors([stack.splits["val"]]) is None
    assert stack.process is None and other_members(load_model(old)) == ["forest"]
    assert other_members(new) == ["forest", "Gaussian process"]
    assert leaf_errors([forest, None]) is None and leaf_errors([forest]).shape == (1, 1)

    six, five = (calibrate(folder, rewirings=2).targets[0].errors for folder in (copy, old))
    assert len(six.weights) == 6 and len(five.weights) == 5
    # A calibration of five indicators is applied to five, although a sixth is known.
    row, column = numpy.ones(1), numpy.ones((1, 1))
    near, known = Nearness(row, column, column, row), Nearness(row, column, column, row, column)
    assert five.std(row, near, 0) == five.std(row, known, 0)
    assert six.std(row, near._replace(leaf_error=0 * column), 0) <= six.std(row, known, 0)
    predict_table(load_model(old), table, tmp_path / "out.csv", rewirings=2)
    for row in read_csv(tmp_path / "out.csv"):
        assert float(row["carbons_lower"]) < float(row["carbons_upper"])


def predictions(folder, table, out, **options):
    predict_table(load_model(folder), table, out, rewirings=2, deterministic=True, **options)
    return [float(row["carbons_pred"]) for row in read_csv(out)]


def test_predict_averages_network_and_forest(trained, table, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(trained, alone)
    (alone / FILE).unlink()
    both = predictions(trained, table, tmp_path / "both.csv")
    network = predictions(alone, table, tmp_path / "network.csv")
    stack = load_stack(load_model(trained))
    assert load_stack(load_model(alone)) is None
    share = stack.card.shares[0]
    rows = fitting._Rows(read_tables(table, TableSpec(("carbons",)), workers=0))
    forest = stack.predict(rows.inputs(range(len(rows.smiles)), 0)).mean[:, 0].numpy()
    expected = share * numpy.array(network) + (1 - share) * forest
    numpy.testing.assert_allclose(both, expected, rtol=1e-4, atol=1e-4)
    assert not numpy.allclose(both, network, atol=0.01)
    # The calibration belongs to the average, and is not applied to the network alone.
    assert read_csv(tmp_path / "both.csv")[0]["carbons_lower"]
    assert not read_csv(tmp_path / "network.csv")[0]["carbons_lower"]


def test_forest_and_process_are_averaged_by_their_shares(trained, table):
    """Of new molecules as of the splits; the share is that of predictions of unseen rows."""
    stack = load_stack(load_model(trained))
    rows = fitting._Rows(read_tables(table, TableSpec(("carbons",), shares=(0.6, 0.2, 0.2)), 0))
    columns = rows.inputs(rows.of("test"), 0)
    forest = stack.forest.predict(columns, 1)
    process = stack.process.predict(columns, stack.task)
    share = stack.card.process_shares[0]
    found = stack.predict(columns)
    expected = share * process.mean + (1 - share) * forest.mean
    numpy.testing.assert_allclose(found.mean, expected, rtol=1e-6)
    gap = process.mean - forest.mean
    variance = (process.std.square() + forest.std.square()) / 2 + gap.square() / 4
    numpy.testing.assert_allclose(found.std, variance.sqrt(), rtol=1e-6)
    numpy.testing.assert_allclose(stack.join("test").mean, found.mean, rtol=1e-5)
    # Carbons are almost a descriptor: a process extrapolates where a forest cannot.
    assert share > 0.5
    errors = [
        abs(own.mean[:, 0].numpy() - rows.truth(rows.of("val"))[:, 0]).mean()
        for own in (stack.process_splits["val"], stack.splits["val"])
    ]
    assert errors[0] < errors[1]


def test_scores_of_train_evaluate_and_files_agree(trained):
    results = json.loads((trained / "results.json").read_text())
    for split in ("val", "test"):
        found = evaluate_run(trained, split=split)[split]
        value, interval = found["metrics"]["mae"]
        assert interval[0] <= value <= interval[1]
        assert results[split]["metrics"]["mae"][0] == pytest.approx(value, abs=1e-3)
        assert results[split]["members"] == {
            name: pytest.approx(scores, abs=1e-3) for name, scores in found["members"].items()
        }
        rows = read_csv(trained / f"{split}_predictions.csv")
        errors = [abs(float(row["carbons"]) - float(row["carbons_pred"])) for row in rows]
        assert numpy.mean(errors) == pytest.approx(value, abs=1e-3)
    assert results["test"]["members"]["forest"] == pytest.approx(results["baseline"]["test"])
    assert "members" not in evaluate_run(trained, split="train")["train"]


def test_runs_and_folds_are_averaged_each_with_its_forest(trained, table, tmp_path):
    other = tmp_path / "other"
    spec = {"settings": TINY, "shares": (0.6, 0.2, 0.2), "split_seed": 0, "seed": 1}
    fit_table(table, "carbons", other, **spec)
    found = calibrate(trained, [other], rewirings=2, store=False)
    assert found.rows == len(read_csv(trained / "val_predictions.csv"))  # the same split
    models = [load_model(trained), load_model(other)]
    out = tmp_path / "out.csv"
    predict_table(models, table, out, rewirings=2, deterministic=True)
    single = [predictions(run, table, tmp_path / "one.csv") for run in (trained, other)]
    mean = [float(row["carbons_pred"]) for row in read_csv(out)]
    numpy.testing.assert_allclose(mean, numpy.mean(single, axis=0), rtol=1e-4, atol=1e-4)
    folds = cross_validate(table, "carbons", tmp_path / "cv", 2, settings=TINY)
    assert math.isfinite(folds.baseline["mae"])
    assert (tmp_path / "cv" / "fold-2" / FILE).is_file()
    assert (tmp_path / "cv" / "fold-1" / "calibration_ensemble.json").is_file()
    held = calibrate(trained, data=table, rewirings=2, store=False)
    assert held.rows == 80


def test_the_page_shows_samples_around_the_average(trained):
    ensemble = Ensemble([load_model(trained)])
    molecule = ensemble.reader(100, canonical_order=True)("CCOCC")
    graph, columns = molecule.checked(), ensemble.forest_columns([molecule], [[]])
    samples = ensemble.samples(graph, 2, columns)
    found = ensemble.predict([graph], 2, deterministic=True, columns=columns)
    assert float(samples.mean()) == pytest.approx(float(found.mean), rel=1e-5)
    with pytest.raises(ValueError, match="columns"):
        ensemble.predict([graph], 2)


def test_a_run_resumed_without_a_forest_predicts_without_one(trained, table, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "run")
    assert (folder / FILE).is_file()
    options = {"settings": TINY, "shares": (0.6, 0.2, 0.2), "forest": False}
    run = fit_table(table, "carbons", folder, resume=True, **options)
    assert not (folder / FILE).exists() and not (folder / ARRAYS).exists()
    scores = run.results["test"]["metrics"]
    assert evaluate_run(folder)["test"]["metrics"]["mae"][0] == pytest.approx(scores["mae"][0])


def test_rows_of_a_molecule_that_differ_in_a_descriptor_keep_their_own_forest(tmp_path):
    rows = []
    for number, text in enumerate(some_smiles(24)):
        part = "val" if number >= 17 else "test" if number >= 15 else "train"
        rows += [[text, heat, part, len(text) + heat] for heat in (0, 10, 20, 30)]
    own = write_csv(tmp_path / "heat.csv", ["smiles", "heat", "part", "y"], rows)
    options = {"settings": TINY, "descriptors": ("heat",), "split": "part"}
    for seed in (1, 2):
        fit_table(own, "y", tmp_path / f"run-{seed}", seed=seed, **options)
    models = [load_model(tmp_path / f"run-{seed}") for seed in (1, 2)]
    held = validation_rows(models)
    assert len(held.target) == 28  # the molecules are in no training set
    for model, found in zip(models, held.forests, strict=True):
        stack = load_stack(model)
        assert found.mean.equal(split_forest(stack, "val", 28).mean)


def rewrite(folder, **changes):
    """Change arrays of a forest, with a new checksum."""
    arrays = load_file(folder / ARRAYS)
    save_file({**arrays, **{n: f(arrays[n].copy()) for n, f in changes.items()}}, folder / ARRAYS)
    card = json.loads((folder / FILE).read_text())
    card["sha256"] = hashlib.sha256((folder / ARRAYS).read_bytes()).hexdigest()
    (folder / FILE).write_text(json.dumps(card))


def put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    "changes",
    [
        {"child": put(0, 0)},  # a cycle
        {"child": put(0, 10**6)},
        {"feature": put(0, 10**6)},
        {"value": put(0, math.nan)},
        {"roots": put(0, -1)},
        {"targets": put(0, 1)},
        {"threshold": lambda a: a[:-1]},
        {"value": lambda a: a.astype(numpy.float64)},
        {"val.mean": lambda a: a[:, :0]},
        {"val.error": lambda a: a[:, :0]},
        {"error": put(0, math.nan)},
        {"error": put(0, -1.0)},
        {"error": lambda a: a[:-1]},
        {"process.kernel": put(0, math.nan)},
        {"process.weights": lambda a: a[:-1]},
        {"process.test.mean": lambda a: a[:-1]},
        {"process.val.std": lambda a: a[:, :0]},
    ],
)
def test_files_that_do_not_fit_together_are_refused(trained, tmp_path, changes):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    rewrite(folder, **changes)
    with pytest.raises(GrassError):
        load_stack(load_model(folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shares", [1.5]),
        ("shares", [0.5, 0.5]),
        ("process_shares", [-0.1]),
        ("process_shares", []),
        ("reach", [-1.0]),
        ("reach", []),
        ("model", "0"),
        ("sha256", "0"),
    ],
)
def test_a_wrong_card_is_refused(trained, tmp_path, name, value):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    card = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps({**card, name: value}))
    with pytest.raises(GrassError):
        load_stack(load_model(folder))


def test_training_shows_all_members_and_can_do_without(table, tmp_path, capsys):
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    command = ["train", str(table), "--target", "carbons", *settings]
    main([*command, "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("network", "forest", "Gaussian process", "averaged"))
    main([*command, "--out", str(tmp_path / "alone"), "--no-forest"])
    assert not (tmp_path / "alone" / FILE).exists()
    results = json.loads((tmp_path / "alone" / "results.json").read_text())
    assert set(results["baseline"]["test"]) == set(results["test"]["metrics"])
    data = read_tables(table, TableSpec(("carbons",)), workers=0)
    assert fit_forest(data, workers=0, process=False).process is None
    assert "members" not in results["test"]
    main([*command, "--out", str(tmp_path / "none"), "--no-forest", "--no-baseline"])
    assert "baseline" not in json.loads((tmp_path / "none" / "results.json").read_text())


def test_report_and_model_card_are_about_the_average(trained):
    test = json.loads((trained / "results.json").read_text())["test"]
    value, network = test["metrics"]["mae"][0], test["members"]["network"]["mae"]
    assert value != pytest.approx(network)
    report = RunReport(trained, "run")
    assert report.calibration is not None  # train calibrated the network together with its forest
    models = [load_model(trained)]
    with closing(MoleculeView(models, 2, Limits())) as view:
        facts = dict(model_card(models, view))
        view.calibration_note = ""  # as without a calibration
        told = dict(model_card(models, view))["Error bars"]
    assert "2 rewirings, and between network, forest and Gaussian process" in told
    assert shown(value) in facts["Test score"] and shown(network) not in facts["Test score"]
    assert "network, forest and Gaussian process" in facts["Test score"]
    assert "averaged with a forest and a Gaussian process" in facts["Model"]


def test_targets_may_be_named_like_rows_and_predictions(table, tmp_path):
    text = table.read_text().replace("carbons", "row", 1).replace("bulk", "row_std", 1)
    (tmp_path / "own.csv").write_text(text)
    found = {}
    for path, targets in ((table, ["carbons", "bulk"]), (tmp_path / "own.csv", ["row", "row_std"])):
        out = tmp_path / targets[0]
        found[targets[0]] = cross_validate(path, targets, out, 2, settings=TINY)
        results = json.loads((out / "fold-1" / "results.json").read_text())
        assert list(results["error_bars"]["targets"]) == targets
        assert len(RunReport(out / "fold-1", "run").predictions("test")) == 40
    assert found["row"] == found["carbons"]
