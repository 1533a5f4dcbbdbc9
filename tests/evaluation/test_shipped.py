"""The trained models that come with the package."""

import csv
import runpy
import shutil
from pathlib import Path

import pytest

from grass_gnn import GRASSConfig, load_model
from grass_gnn.api.calibration import calibrate
from grass_gnn.cli import main
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.run import evaluate_run
from grass_gnn.evaluation.trained import SHIPPED, shipped_models
from grass_gnn.files import read_json

RESULTS = Path(__file__).parents[2] / "results"


def test_the_shipped_weights_are_those_of_the_results():
    assert shipped_models() == ["pretrained", "zinc"]
    described = ["calibration.json", "results.json", "domain.json", "similarity.safetensors"]
    files = {"zinc": described, "pretrained": []}
    for model, more in files.items():
        for name in ("weights.safetensors", "config.json", *more):
            shipped, kept = (folder / model / name for folder in (SHIPPED, RESULTS))
            assert shipped.read_bytes() == kept.read_bytes()


def test_it_is_the_last_stage_of_its_recipe_on_the_official_files():
    stage = runpy.run_path(str(RESULTS / "zinc" / "make.py"))["STAGES"][-1]
    trained = load_model("zinc")
    assert trained.config == GRASSConfig.preset(stage.preset, **stage.settings)
    assert trained.card["data"]["fingerprint"]["official"]
    assert "folder" not in trained.card["data"]["origin"]  # a place on somebody's disk


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zinc").mkdir()
    assert load_model("zinc").folder == SHIPPED / "zinc"  # a folder without a run is none
    shutil.copy(SHIPPED / "zinc" / "config.json", tmp_path / "zinc")
    with pytest.raises(GrassError, match="zinc contains no trained model"):
        load_model("zinc")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(GrassError, match=r"comes? with the package \(pretrained, zinc\)"):
        load_model("zinq")


def test_it_is_not_calibrated_in_place():
    before = sorted(SHIPPED.rglob("*"))
    with pytest.raises(GrassError, match="copy of its folder"):
        calibrate("zinc")
    assert sorted(SHIPPED.rglob("*")) == before


def test_molecules_are_predicted_by_name(tmp_path, capsys):
    table, output = tmp_path / "new.csv", tmp_path / "out.csv"
    table.write_text("smiles\nCCCCCCCCCC\nOCC(O)C(O)C(O)C(O)CO\nnothing\n")
    assert main(["predict", "zinc", str(table), "-o", str(output), "--rewirings", "4"]) == 0
    assert "calibrat" in capsys.readouterr().err
    with output.open(newline="") as file:
        decane, sorbitol, nothing = list(csv.DictReader(file))
    oil, sugar = (float(row["penalised_logP_pred"]) for row in (decane, sorbitol))
    assert oil > sugar + 2
    assert float(decane["penalised_logP_std"]) > 0
    assert nothing["error"] and not nothing["penalised_logP_pred"]


def test_the_reported_error_is_seen_again(shared_data, tmp_path):
    reported = read_json(RESULTS / "zinc" / "results.json")["test"]
    data = tmp_path / "zinc"
    shutil.copytree(shared_data / "zinc", data)
    found = evaluate_run(RESULTS / "zinc", data, rewirings=2, seed=7)["test"]
    assert found["mean"] == pytest.approx(reported["mean"], abs=4 * reported["variance"] ** 0.5)
