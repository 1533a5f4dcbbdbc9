"""Calibration: known scales are found again, stored with the run, and applied by predict."""

import json
import math
import shutil

import numpy
import pytest
import torch
from scipy.stats import norm, spearmanr, wasserstein_distance
from sklearn.linear_model import LogisticRegression
from small_tables import TINY, read_csv, some_smiles, write_csv

from grass_gnn import GrassError, load_model
from grass_gnn.api.calibration import _check_spreads, calibrate
from grass_gnn.api.fitting import fit, fit_table
from grass_gnn.api.held_out import HeldOutPredictions, table_rows
from grass_gnn.api.prediction import predict_table
from grass_gnn.cli import main
from grass_gnn.config import GRASSConfig
from grass_gnn.data.tables.parsing import parse
from grass_gnn.evaluation import protocol
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.tasks import TASKS, rank_correlation
from grass_gnn.uncertainty import calibration as measures
from grass_gnn.uncertainty.calibration import find_calibration, half_width
from grass_gnn.uncertainty.ensembles import Spread


@pytest.fixture(scope="module")
def models(molecules, tmp_path_factory):
    """Runs that share a split with many validation rows: of numbers, twice, and of the rest."""
    folder = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        options = {"shares": (0.5, 0.4, 0.1), "split_seed": 0, "settings": TINY, "forest": False}
        for name, target, seed in (("a", "size", 0), ("b", "size", 1), ("kind", "kind", 0)):
            fit_table(molecules, [target], folder / name, seed=seed, **options)
        fit_table(molecules, ["size"], folder / "elsewhere", **options | {"split_seed": 5})
    return folder


@pytest.fixture
def runs(models, tmp_path):
    """A copy, since calibrations are written to it."""
    return shutil.copytree(models, tmp_path / "runs")


def held_out(tmp_path, rows):
    """A table of molecules outside the training set."""
    found = [[s, parse(s).GetNumAtoms() / 3, n] for n, s in enumerate(some_smiles(rows, seed=7))]
    return write_csv(tmp_path / "held_out.csv", ["smiles", "size", "id"], found)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.5])
def test_a_known_scale_is_found_again(scale):
    source = numpy.random.default_rng(1)
    std = source.uniform(0.1, 3, 20_000)
    z = source.normal(0, scale * std) / std
    found = measures.fit_scale(z)
    assert found == pytest.approx(scale, rel=0.02)
    grid = scale * numpy.linspace(0.9, 1.1, 401)  # no other scale is likelier
    likelihood = [norm.logpdf(z / s).sum() - len(z) * math.log(s) for s in grid]
    assert found == pytest.approx(grid[numpy.argmax(likelihood)], abs=1e-3 * scale)
    assert measures.miscalibration_area(z / found) < 0.01
    assert measures.coverage(z / scale)[190] == pytest.approx(0.95, abs=0.005)


def test_the_area_is_the_distance_of_two_distributions():
    source = numpy.random.default_rng(2)
    assert measures.miscalibration_area(source.normal(size=200_000)) < 0.003
    for z in (source.normal(size=50) * 3, source.standard_t(2, 80), source.normal(size=30) / 9):
        confidence = 2 * norm.cdf(numpy.abs(z)) - 1  # of the interval that just holds the error
        even = (numpy.arange(100_000) + 0.5) / 100_000
        expected = wasserstein_distance(confidence, even)
        assert measures.miscalibration_area(z) == pytest.approx(expected, abs=3e-3)
    assert measures.miscalibration_area(numpy.full(9, 1e9)) == pytest.approx(0.5, abs=5e-3)


def test_rank_correlation_is_spearmans_for_each_target():
    source = torch.Generator().manual_seed(0)
    spread, error = torch.rand(2, 60, 2, generator=source).double()
    error[:, 1] += 3 * spread[:, 1]
    error[::7, 0] = math.nan
    known = ~error[:, 0].isnan()
    expected = (
        spearmanr(spread[known, 0], error[known, 0])[0] + spearmanr(spread[:, 1], error[:, 1])[0]
    ) / 2
    assert rank_correlation(spread, error) == pytest.approx(expected, rel=1e-12)
    assert rank_correlation(torch.zeros(60, 2), error) is None


@pytest.mark.parametrize("kind", ["binary", "multilabel", "classification"])
def test_a_known_temperature_is_found_again(kind):
    task, source = TASKS[kind], torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(20_000, {"binary": 1}.get(kind, 3), generator=source).double()
    if kind == "classification":
        target = torch.multinomial(logits.softmax(dim=1), 1, generator=source).flatten()
        true, sharp = logits.softmax(dim=1), (2.5 * logits).softmax(dim=1)
    else:
        draws = torch.rand(logits.shape, generator=source).double()
        target = (draws < logits.sigmoid()).double()
        target[::5, 0] = math.nan  # missing labels count for nothing
        true, sharp = logits.sigmoid(), (2.5 * logits).sigmoid()
    temperature = measures.fit_temperature(task, sharp, target)
    assert temperature == pytest.approx(2.5, rel=0.05)
    mended = measures.with_temperature(task, sharp, temperature)
    assert torch.allclose(measures.with_temperature(task, sharp, 2.5), true, atol=1e-6)
    errors = [measures.calibration_error(task, p, target) for p in (sharp, mended)]
    assert errors[0] > 0.1 and errors[1] < 0.02
    assert task.log_loss(mended, target) < task.log_loss(sharp, target)


def test_temperature_is_a_logistic_regression_of_one_weight():
    source = numpy.random.default_rng(4)
    logits = source.normal(size=30_000)
    labels = source.random(30_000) < 1 / (1 + numpy.exp(-0.4 * logits))
    fitted = LogisticRegression(C=1e9, fit_intercept=False).fit(logits[:, None], labels)
    probability = torch.tensor(logits)[:, None].sigmoid()
    target = torch.tensor(labels)[:, None].double()
    found = measures.fit_temperature(TASKS["binary"], probability, target)
    assert 1 / found == pytest.approx(float(fitted.coef_[0, 0]), rel=0.01)
    # Of few rows, the prior counts.
    few = 40
    signed = numpy.where(labels, logits, -logits)[:few]
    grid = numpy.linspace(-3, 3, 6001)
    losses = [numpy.logaddexp(0, -signed / numpy.exp(t)).sum() + 2 * t**2 for t in grid]
    best = numpy.exp(grid[int(numpy.argmin(losses))])
    found = measures.fit_temperature(TASKS["binary"], probability[:few], target[:few])
    assert found == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize("kind", ["multilabel", "classification"])
@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 20.0])
def test_temperatures_change_how_certain_a_model_is_but_not_its_answers(kind, temperature):
    task, source = TASKS[kind], torch.Generator().manual_seed(6)
    before = task.activate(torch.randn(200, 3, generator=source).double())
    after = measures.with_temperature(task, before, temperature)
    if kind == "multilabel":  # the ranking of rows stays, and which side of a half they are on
        assert torch.equal(after.argsort(dim=0), before.argsort(dim=0))
        assert torch.equal(after > 0.5, before > 0.5)
        certain = [(one - 0.5).abs() for one in (before, after)]
    else:
        assert torch.equal(after.argmax(dim=1), before.argmax(dim=1))
        assert torch.allclose(after.sum(dim=1), torch.ones(200).double())
        certain = [one.amax(dim=1) for one in (before, after)]
    if temperature == 1:
        assert torch.allclose(after, before)
    else:
        assert bool((certain[1] > certain[0]).all()) == (temperature < 1)
        assert bool((certain[1] < certain[0]).all()) == (temperature > 1)


def test_few_rows_without_positives_do_not_make_predictions_certain():
    task, source = TASKS["binary"], torch.Generator().manual_seed(0)
    probability = torch.rand(12, 1, generator=source) / 10
    found = measures.fit_temperature(task, probability, torch.zeros(12, 1))
    assert 0.6 < found < 1
    positive = torch.tensor([[0.12], [0.06]])
    assert (measures.with_temperature(task, positive, found) > 0.005).all()


def test_calibration_error_and_groups_as_numpy_has_them():
    source = numpy.random.default_rng(5)
    probability = source.dirichlet([1, 1, 1], 400)
    target = source.integers(0, 3, 400)
    confidence, right = probability.max(axis=1), probability.argmax(axis=1) == target
    place = numpy.digitize(confidence, numpy.linspace(0, 1, measures.BINS + 1)[1:-1], right=True)
    expected = sum(
        abs(confidence[place == n].sum() - right[place == n].sum()) for n in range(measures.BINS)
    )
    tensors = torch.tensor(probability), torch.tensor(target)
    found = measures.calibration_error(TASKS["classification"], *tensors)
    assert found == pytest.approx(expected / 400, rel=1e-5)
    mean, share, deviation = measures.reliability(TASKS["classification"], *tensors)
    groups = numpy.array_split(numpy.argsort(confidence, kind="stable"), 10)
    assert mean == pytest.approx([confidence[group].mean() for group in groups])
    assert share == pytest.approx([right[group].mean() for group in groups])
    assert deviation == pytest.approx(numpy.sqrt(share * (1 - share) / 40))


def test_rows_without_spread_do_not_decide_the_scale(tmp_path):
    std = torch.full((50, 1), 0.5)
    std[:3] = torch.tensor([0.0, 1e-9, 1e-7])[:, None]  # single atoms, up to rounding
    error = torch.linspace(-2, 2, 50)[:, None]
    held = HeldOutPredictions(Spread(torch.zeros(50, 1), std, std, std), error, None, "rows")
    (found,) = _check_spreads([held], [1.0], ["y"], tmp_path / "plot.png")
    assert found.without_spread == 3 and found.rows == 50
    assert found.scale == pytest.approx(float(error[3:].square().mean().sqrt() / 0.5), rel=1e-6)
    none = held._replace(found=held.found._replace(std=0 * std))
    (found,) = _check_spreads([none], [1.0], ["y"])  # nothing but the size of errors is known
    flat = found.std(torch.tensor([0.0, 0.0]), torch.zeros(2), None, 0)
    assert flat[0] == flat[1] == pytest.approx(float(error.square().mean().sqrt()), rel=0.1)


def test_a_target_with_many_gaps_leaves_the_others_their_intervals(tmp_path):
    rows = [
        [text, parse(text).GetNumAtoms(), number if number % 5 == 0 else ""]
        for number, text in enumerate(some_smiles(120))
    ]
    table = write_csv(tmp_path / "gaps.csv", ["smiles", "size", "rare"], rows)
    run = fit_table(table, ["size", "rare"], tmp_path / "run", settings=TINY, forest=False)
    found, _ = find_calibration([load_model(run.folder)])
    full, rare = found.targets
    assert full.rows == 12  # of the validation set
    assert rare.rows > 12  # training rows, too, because the validation set has hardly any


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_target_without_training_rows_is_calibrated_too(tmp_path):
    rows = []
    for number, text in enumerate(some_smiles(60)):
        split = "train" if number < 36 else "val" if number < 48 else "test"
        size = parse(text).GetNumAtoms()
        rows.append([text, size, "" if split == "train" else size, split])
    table = write_csv(tmp_path / "gaps.csv", ["smiles", "size", "new", "part"], rows)
    run = fit_table(
        table, ["size", "new"], tmp_path / "run", settings=TINY, split="part", forest=False
    )
    assert [one["rows"] for one in run.results["error_bars"]["targets"].values()] == [12, 12]


def test_predict_applies_what_was_found_on_the_validation_rows(runs, molecules, tmp_path, capsys):
    out, few = tmp_path / "out.csv", read_csv(molecules)[:12]
    table = write_csv(tmp_path / "few.csv", list(few[0]), [list(row.values()) for row in few])
    predict = ["predict", str(runs / "a"), str(table), "-o", str(out)]
    (runs / "a" / "calibration.json").unlink()
    assert main(predict) == 0
    before = read_csv(out)
    assert "not calibrated" in capsys.readouterr().err
    assert before[0]["size_lower"] == before[0]["size_upper"] == ""
    assert main(["calibrate", str(runs / "a"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["targets"]
    assert found["target"] == "size" and found["rows"] == 32
    kept = json.loads((runs / "a" / "calibration.json").read_text())
    assert kept["targets"] == [found] and (runs / "a" / "calibration.png").stat().st_size > 5000

    assert main(["calibrate", str(runs / "a"), "--no-store"]) == 0
    said = capsys.readouterr().out
    assert "uncalibrated" in said and "over rewirings" not in said
    model = load_model(runs / "a")
    splits = [row["split"] for row in read_csv(runs / "a" / "splits.csv")]
    rows = [row for row, split in zip(read_csv(molecules), splits, strict=True) if split == "val"]
    graphs = write_csv(tmp_path / "val.csv", list(rows[0]), [list(row.values()) for row in rows])
    predict_table([model], graphs, tmp_path / "val_out.csv", calibrated=False)
    val = read_csv(tmp_path / "val_out.csv")
    error = [(float(row["size"]) - float(row["size_pred"])) / float(row["size_std"]) for row in val]
    # The same rows, under other rewirings.
    assert found["scale"] == pytest.approx(numpy.sqrt(numpy.mean(numpy.square(error))), rel=0.3)

    assert main(predict) == 0
    assert "32 rows (validation split); intervals contain about 90 %" in capsys.readouterr().err
    half = half_width(found["scores"], 0.9)
    for old, new in zip(before, read_csv(out), strict=True):
        assert new["size_pred"] == old["size_pred"] and float(new["size_std"]) > 0
        ends = [float(new[f"size_{end}"]) for end in ("lower", "upper")]
        assert numpy.mean(ends) == pytest.approx(float(new["size_pred"]), rel=1e-4)
        assert numpy.ptp(ends) == pytest.approx(2 * half * float(new["size_std"]), rel=2e-3)
    assert main([*predict, "--coverage", "0.5"]) == 0
    width = numpy.ptp([float(read_csv(out)[-1][f"size_{end}"]) for end in ("lower", "upper")])
    assert width < numpy.ptp(ends)
    assert main([*predict, "--coverage", "1.5"]) == 1
    capsys.readouterr()
    assert main([*predict, "--uncalibrated"]) == 0
    assert read_csv(out) == before and "alibrated" not in capsys.readouterr().err
    assert main([*predict, "--rewirings", "3"]) == 0
    assert "with 16 rewirings, not 3" in capsys.readouterr().err


def test_a_calibration_of_other_weights_or_a_damaged_one(runs, molecules, tmp_path):
    calibrate(runs / "a", rewirings=4)
    shutil.copy(runs / "a" / "calibration.json", runs / "b" / "calibration.json")
    found, reason = find_calibration([load_model(runs / "b")])
    assert found is None and "other models" in reason
    summary = predict_table([load_model(runs / "b")], molecules, tmp_path / "x.csv", rewirings=1)
    assert "other models" in summary.calibration
    (runs / "a" / "calibration.json").write_text('{"kind": "regression"}')
    with pytest.raises(GrassError, match=r"calibration\.json is damaged"):
        find_calibration([load_model(runs / "a")])


def test_an_ensemble_is_calibrated_as_a_whole(runs, tmp_path, molecules, capsys):
    both = [str(runs / "a"), "--ensemble", str(runs / "b")]
    assert main(["calibrate", *both, "--rewirings", "4"]) == 0
    assert "32 rows" in capsys.readouterr().out
    found, _ = find_calibration([load_model(runs / name) for name in "ba"])  # in any order
    assert found is not None and len(found.models) == 2
    alone, _ = find_calibration([load_model(runs / "a")])  # that of its own training
    assert alone is not None and len(alone.models) == 1
    out = tmp_path / "out.csv"
    assert main(["predict", *both, str(molecules), "-o", str(out), "--rewirings", "4"]) == 0
    for row in read_csv(out):
        parts = [float(row[f"size_std_{kind}"]) for kind in ("rewirings", "models")]
        assert float(row["size_std"]) == pytest.approx(math.hypot(*parts), rel=1e-3)


def test_rows_that_another_run_was_trained_on_are_left_out(runs, capsys):
    arguments = ["calibrate", str(runs / "a"), "--rewirings", "2", "--ensemble"]
    assert main([*arguments, str(runs / "elsewhere"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    splits = [
        {(row["line"], row["split"]) for row in read_csv(runs / name / "splits.csv")}
        for name in ("a", "elsewhere")
    ]
    trained = {line for line, split in splits[1] if split == "train"}
    assert rows == len(
        [line for line, split in splits[0] if split == "val" and line not in trained]
    )
    assert 10 <= rows < 32


def test_classes_get_a_temperature(runs, molecules, tmp_path, capsys):
    predict = ["predict", str(runs / "kind"), str(molecules), "--rewirings", "2", "-o"]
    assert main([*predict, str(tmp_path / "before.csv"), "--uncalibrated"]) == 0
    assert main(["calibrate", str(runs / "kind"), "--rewirings", "2"]) == 0
    assert "expected calibration error" in capsys.readouterr().out
    found, _ = find_calibration([load_model(runs / "kind")])
    temperature = found.probabilities.temperature
    assert found.probabilities.scaled_log_loss <= found.probabilities.log_loss
    assert main([*predict, str(tmp_path / "after.csv")]) == 0
    assert f"temperature {temperature:.3g}" in capsys.readouterr().err
    pairs = zip(read_csv(tmp_path / "before.csv"), read_csv(tmp_path / "after.csv"), strict=True)
    for old, new in pairs:
        scaled = numpy.array([float(old[f"kind_prob_{c}"]) for c in "abc"]) ** (1 / temperature)
        probabilities = [float(new[f"kind_prob_{c}"]) for c in "abc"]
        assert probabilities == pytest.approx(scaled / scaled.sum(), rel=1e-4)
        assert old["kind_pred"] == new["kind_pred"] and old["kind_std_a"] == new["kind_std_a"]


def test_without_data_it_says_what_to_do_and_a_table_will_do(runs, run, tmp_path, capsys):
    shutil.rmtree(runs / "a" / "data")
    (runs / "a" / "calibration.json").unlink()
    arguments = ["calibrate", str(runs / "a"), "--rewirings", "2"]
    assert main(arguments) == 1
    assert "--data" in capsys.readouterr().err
    table = held_out(tmp_path, 25)
    assert main([*arguments, "--data", str(table), "--no-store"]) == 0
    assert "25 rows (held_out.csv)" in capsys.readouterr().out
    assert not (runs / "a" / "calibration.json").exists()
    assert main([*arguments, "--data", str(held_out(tmp_path, 5))]) == 1
    assert "too few" in capsys.readouterr().err
    assert main(["calibrate", str(run)]) == 0  # eight validation rows, and all training rows
    assert "nearest neighbours" in capsys.readouterr().out


def test_other_graphs_are_calibrated_too(tmp_path):
    source = torch.Generator().manual_seed(0)
    from torch_geometric.data import Data

    graphs = [
        Data(
            x=torch.randn(6, 2, generator=source),
            edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]),
            y=torch.randn(1, 1, generator=source),
        )
        for _ in range(60)
    ]
    fit(graphs, tmp_path / "run", shares=(0.5, 0.3, 0.2), settings=TINY)
    found = calibrate(tmp_path / "run", rewirings=4)
    mean, std = load_model(tmp_path / "run").predict(graphs[:5], rewirings=4)
    assert found.std(std) == pytest.approx(std * found.targets[0].scale)
    assert torch.equal(found.mean(mean), mean)


def test_evaluate_shows_the_gain_of_averaging_and_bootstraps_once(runs, monkeypatch, capsys):
    calls = []

    def counting(task, prediction, target, owner, metric=None):
        calls.append(metric or task.metric)
        return bootstrap(task, prediction, target, owner, metric)

    monkeypatch.setattr("grass_gnn.evaluation.protocol.bootstrap", counting)
    arguments = ["evaluate", str(runs / "a"), "--split", "val", "--rewirings", "16"]
    assert main([*arguments, "--json"]) == 0
    assert sorted(calls) == ["mae", "mae", "r2", "rmse"]  # of one rewiring, and of the average
    found = json.loads(capsys.readouterr().out)["val"]
    assert found["metrics"]["mae"] == [found["averaged"]["16"], found["averaged_interval"]]
    assert -1 <= found["spread_correlation"] <= 1
    assert main(arguments) == 0
    said = capsys.readouterr().out
    for words in ("one rewiring", "4 averaged", "16 averaged", "Averaging 16", "Rank correlation"):
        assert words in said
    gain = abs(found["mean"] - found["averaged"]["16"])
    assert f"{gain:.4f}" in said


def test_intervals_of_one_rewiring_stay_within_the_range_of_the_metric(monkeypatch):
    target = torch.tensor([0.0, 1.0] * 20)[:, None]

    def predict(model, dataset, config, seed, number, stream, workers):
        found = torch.cat([target[:20].roll(1), target[20:]]) if number == 0 else target
        return found, target, torch.arange(40)

    monkeypatch.setattr(protocol, "predict_split", predict)
    for kind, metric in (("binary", "auc"), ("regression", "mae")):
        task = {"task.kind": kind, "task.metric": metric}
        task["task.loss"] = "bce" if kind == "binary" else "l1"
        found, _, _ = protocol.evaluate(None, None, GRASSConfig().override(task), rewirings=8)
        low, high = found.interval
        assert (low if kind == "regression" else 1 - high) == 0  # else beyond, by the shift
        assert low < found.mean < high


def test_training_rows_in_a_table_for_calibration_are_noticed(run, molecules, tmp_path, caplog):
    table_rows([load_model(run)], molecules)
    assert "training molecule" in caplog.text
    caplog.clear()
    table_rows([load_model(run)], held_out(tmp_path, 25))
    assert "training molecule" not in caplog.text
