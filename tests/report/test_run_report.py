"""The report of one run: its numbers, its worst molecules, and nothing machine-specific."""

import json
import re

import browser
import numpy as np
import pytest

from grass_gnn import GRASSConfig, GrassError
from grass_gnn.cli import main
from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.report.page import write_report
from grass_gnn.report.run_figures import agreement_figure, residual_figure
from grass_gnn.report.run_files import RunReport
from grass_gnn.training.run import config_toml
from grass_gnn.uncertainty.plot import draw_coverage

SMILES = ["C" * size + "O" for size in range(1, 31)]
TASKS = {
    "regression": {"task.loss": "l1", "task.metric": "mae"},
    "classification": {
        "task.outputs": 2,
        "task.loss": "cross-entropy",
        "task.metric": "accuracy",
    },
    "binary": {"task.loss": "bce", "task.metric": "auc"},
}


def split_scores(metric, value):
    return {
        "metric": metric,
        "mean": value + 0.1,
        "variance": 1e-4,
        "rewirings": 4,
        "interval": [value, value + 0.2],
        "averaged": {"1": value + 0.1, "4": value},
        "averaged_interval": [value - 0.05, value + 0.05],
        "metrics": {metric: [value, [value - 0.05, value + 0.05]], "rmse": [0.7, [0.6, 0.8]]},
    }


@pytest.fixture
def write_run(tmp_path):
    """Write the folder of a run on a table; `header` and `row` give the layout of predictions."""

    def write(header, row, kind="regression", targets=("logP",), classes=()):
        folder = tmp_path / "solubility"
        folder.mkdir()
        settings = {"task.kind": kind, "task.outputs": len(targets), "model.layers": 3}
        config = GRASSConfig().override(settings | TASKS[kind])
        metric = config.task.metric
        data = {
            "origin": {"table": "/home/somebody/secret/solubility.csv"},
            "fingerprint": {
                "name": "graphs",
                "hash": "abc",
                "splits": {"train": {"graphs": 80}, "test": {"graphs": 30}},
                "differences": [],
            },
            "preparation_seconds": 1.0,
            "prepared_bytes": 10,
        }
        results = {
            "val": split_scores(metric, 0.4321),
            "test": split_scores(metric, 0.5432),
            "training": {
                "epochs": 3,
                "best_epoch": 2,
                "seconds": 12.0,
                "epoch_seconds": {"mean": 4.0, "std": 0.5, "epochs": 3},
                "peak_memory_mb": 500.0,
            },
            "seed": 7,
            "data": data,
            "hardware": {"cpu": "a processor", "gpus": []},
        }
        table = {"smiles": "smiles", "targets": list(targets), "classes": list(classes)}
        card = {"table": table, "weights_sha256": "w", "data": data}
        (folder / "results.json").write_text(json.dumps(results))
        (folder / "config.json").write_text(json.dumps(card))
        (folder / "config.toml").write_text(config_toml(config, 7))
        curve = ["epoch,train_loss,val_metric,seconds"]
        curve += [f"{e},{1 / e},{0.9 / e},4.0" for e in (1, 2, 3)]
        (folder / "metrics.csv").write_text("\n".join(curve) + "\n")
        lines = [",".join(header), *(",".join(map(str, row(i))) for i in range(len(SMILES)))]
        for split in ("val", "test"):
            (folder / f"{split}_predictions.csv").write_text("\n".join(lines) + "\n")
        return folder

    return write


def regression(write_run):
    # The error of row i is i / 100, and alternates in sign.
    return write_run(
        ["row", "smiles", "logP", "logP_pred", "logP_std"],
        lambda i: [i + 2, SMILES[i], i, i + (-1) ** i * i / 100, 0.1],
    )


def test_the_report_is_about_the_run(write_run, tmp_path):
    folder = regression(write_run)
    page = tmp_path / "elsewhere" / "x.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    assert [path.name for path in page.parent.iterdir()] == ["x.html"]
    text = page.read_text("utf-8")
    assert "<h1>Report: solubility</h1>" in text and "Greener" not in text
    for fact in ("80 training", "solubility.csv", "0.5432", "0.7000", "epoch 2 kept"):
        assert fact in text
    for title in ("Predicted against true logP: test set", "Residuals of logP", "Calibration of"):
        assert title in text
    assert "/home/somebody" not in text and "not calibrated" in text
    assert "model.layers" in text and "<pre" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_dollar_signs_in_names_are_no_formulas(tmp_path):
    numbers = np.linspace(0.0, 1.0, 30)
    name = "$a^$"
    made = residual_figure("x", name, "test", numbers, numbers + 0.1)
    assert f"predicted {name}" in made.svg
    assert f"true {name}" in agreement_figure("x", name, "test", numbers, numbers, numbers).svg
    draw_coverage({name: numbers}, {name: numbers}, tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").is_file()


def test_the_std_of_members_is_not_called_one_over_rewirings(write_run):
    folder = regression(write_run)
    results = json.loads((folder / "results.json").read_text())
    results["test"]["spread_correlation"] = 0.25
    for members, title in (
        ({}, "|error| and std over rewirings"),
        ({"network": {"mae": 0.5}}, "|error| and uncalibrated std<"),
    ):
        results["test"] |= {"members": members} if members else {}
        (folder / "results.json").write_text(json.dumps(results))
        assert main(["report", str(folder)]) == 0
        text = (folder / "report.html").read_text("utf-8")
        assert title in text and text.count("|error| and ") == text.count(title)


def test_the_default_is_in_the_run_folder(write_run):
    folder = regression(write_run)
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").is_file()


def test_the_ten_largest_errors_are_drawn_in_order(write_run, tmp_path):
    pytest.importorskip("rdkit")
    folder = regression(write_run)
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    rows = [int(row) for row in re.findall(r"<h3>Row (\d+)</h3>", page)]
    assert rows == list(range(31, 21, -1))
    assert page.count("data:image/svg+xml;base64,") == 10
    assert "28.71" in page  # of row 31: 29 − 0.29


def calibration_file():
    one = {"target": "logP", "scale": 3.0, "rows": 30, "without_spread": 0}
    one |= {"rank_correlation": 0.1, "area": 0.1, "scaled_area": 0.1}
    one |= {"within": [0.1, 0.2], "scaled_within": [0.6, 0.9]}
    found = {"kind": "regression", "models": ["w"], "rewirings": 4, "rows": 30}
    return found | {"source": "validation split", "targets": [one]}


def test_error_bars_with_intervals_are_not_calibrated_twice(write_run, tmp_path):
    header = ["row", "smiles", "logP", "logP_pred", "logP_std", "logP_lower", "logP_upper"]
    folder = write_run(header, lambda i: [i + 2, SMILES[i], i, i + i / 100, 0.1, i - 1, i + 1])
    (folder / "calibration.json").write_text(json.dumps(calibration_file()))
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8").replace("\u00a0", " ")
    assert "± 0.10" in page and "± 0.30" not in page


def test_a_calibration_widens_the_error_bars(write_run, tmp_path):
    folder = regression(write_run)
    before = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    found = calibration_file()
    (folder / "calibration.json").write_text(json.dumps(found))
    after = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    assert "calibrated (× 3)" in after and "calibrated (× 3)" not in before
    assert "± 0.30" in after.replace("\u00a0", " ") and "± 0.10" in before.replace("\u00a0", " ")
    other = found | {"models": ["of other weights"]}
    (folder / "calibration.json").write_text(json.dumps(other))
    assert RunReport(folder, "run").calibration is None


LAYOUTS = {
    "old": (["graph", "target_0", "mean_0", "std_0"], lambda i: [i, i, i + 0.5, 0.1]),
    "new": (
        ["row", "smiles", "a,b", "a,b_pred", "a,b_std"],
        lambda i: [i, SMILES[i], i, i + 0.5, 0.1],
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_both_layouts_of_predictions_are_read(name, tmp_path):
    header, row = LAYOUTS[name]
    lines = [[f'"{cell}"' if "," in str(cell) else str(cell) for cell in header]]
    lines += [list(map(str, row(i))) for i in range(4)]
    path = tmp_path / "test_predictions.csv"
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")
    found = SavedPredictions.read(path)
    assert found.targets == (["target_0"] if name == "old" else ["a,b"])
    assert found.smiles == ([] if name == "old" else SMILES[:4])
    assert np.allclose(found.mean - found.target, 0.5) and np.allclose(found.std, 0.1)
    path.write_text("graph,nothing\n1,2\n")
    with pytest.raises(GrassError, match="damaged"):
        SavedPredictions.read(path)


def test_classes_by_name_and_their_worst_rows(write_run, tmp_path):
    header = ["row", "smiles", "kind", "kind_pred", "kind_prob_low", "kind_std_low"]
    header += ["kind_prob_high", "kind_std_high"]
    folder = write_run(
        header,
        lambda i: [i, SMILES[i], "low", "high", f"{i / 100}", 0.1, f"{1 - i / 100}", 0.1],
        "classification",
        ["kind"],
        ["low", "high"],
    )
    saved = RunReport(folder, "run").predictions("test")
    assert saved.target[:, 0].tolist() == [0.0] * 30 and saved.mean.shape == (30, 2)
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    assert re.findall(r"<h3>Row (\d+)</h3>", page) == [str(row) for row in range(10)]
    assert "Recall per class" in page and ">high<" in page


def test_one_of_two_classes_is_named(write_run, tmp_path):
    folder = write_run(
        ["row", "smiles", "act", "act_prob_inactive", "act_std"],
        lambda i: [i, SMILES[i], i % 2, 0.75, 0.1],
        "binary",
        ["act"],
        ["active", "inactive"],
    )
    results = json.loads((folder / "results.json").read_text())
    results["test"]["metrics"] = {"f1": [0.5, [0.4, 0.6]]}
    (folder / "results.json").write_text(json.dumps(results))
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    assert "True act active Probability of inactive 0.75 ± 0.10 Error +0.75" in text
    assert "F1, " in text and "macro F1" not in text


@pytest.mark.parametrize("kind", ["classification", "binary"])
def test_calibration_of_probabilities_is_drawn(write_run, tmp_path, kind):
    header, classes = ["row", "smiles", "toxic", "toxic_prob", "toxic_std"], []
    if kind == "classification":
        header[3:] = ["toxic_pred", "toxic_prob_a", "toxic_std_a", "toxic_prob_b", "toxic_std_b"]
        classes = ["a", "b"]

    def row(i):  # 0.9 for the second class, of which every other row is
        chances = [0.9, 0.1] if kind == "binary" else ["b", 0.1, 0.1, 0.9, 0.1]
        return [i, SMILES[i], (classes or [0, 1])[i % 2], *chances]

    folder = write_run(header, row, kind, ["toxic"], classes)
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    assert "Calibration of probabilities: test set" in page
    assert "error 0.400 (as predicted)" in page and "temperature" not in page
    found = {"temperature": 2.0, "rows": 30, "error": 0.4, "scaled_error": 0.2}
    found |= {"log_loss": 1.0, "scaled_log_loss": 0.8}
    card = {"kind": kind, "models": ["w"], "rewirings": 4, "rows": 30, "probabilities": found}
    (folder / "calibration.json").write_text(json.dumps(card | {"source": "validation split"}))
    page = write_report([folder], tmp_path / "x.html").read_text("utf-8")
    assert "0.250 (temperature 2)" in page  # the logit of 0.9, halved, is that of 0.75


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_labels_and_several_targets_have_pages(write_run, tmp_path):
    folder = write_run(
        ["row", "smiles", "toxic", "toxic_prob", "toxic_std"],
        lambda i: [i, SMILES[i], i % 2, 0.5, 0.1],
        "binary",
        ["toxic"],
    )
    assert "Largest errors" in write_report([folder], tmp_path / "x.html").read_text("utf-8")
    folder.rename(tmp_path / "other")
    folder = write_run(
        ["row", "smiles", *"abc", "a_pred", "a_std", "b_pred", "b_std", "c_pred", "c_std"],
        lambda i: [i, SMILES[i], i, "" if i % 2 else -i, "", i + 0.1, 0.1, -i - 0.1, 0.1, 1, 0.1],
        "regression",
        ["a", "b", "c"],
    )
    page = write_report([folder, tmp_path / "other"], tmp_path / "x.html").read_text("utf-8")
    assert "Residuals of b: test set" in page and "<h1>Report: 2 runs</h1>" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_opens_in_a_browser(write_run, tmp_path, width):
    browser.find()
    page = write_report([regression(write_run)], tmp_path / "report.html")
    content, tables, figures, messages = browser.measure(tmp_path, page, width)
    assert content == width
    assert tables >= 4 and figures == 5
    assert messages == []
