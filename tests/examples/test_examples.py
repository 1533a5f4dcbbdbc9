"""Every example runs and does what it says."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_parts_in_your_own_model_learns_to_see_triangles():
    assert load("parts_in_your_own_model").main(epochs=10) > 0.85


def test_preset_on_a_batch_is_rewired_anew():
    first, second = load("preset_on_a_batch").main()
    assert first.shape == (3, 1)
    assert not first.equal(second)


SMALL = {
    "model.layers": 2,
    "model.dim": 8,
    "training.epochs": 1,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}


def test_molecules_from_csv_gives_values_and_a_reason():
    pytest.importorskip("rdkit")
    *values, reason = load("molecules_from_csv").main(SMALL)
    assert all(float(row["logP_std"]) > 0 for row in values)
    assert reason["logP_pred"] == "" and "after the SMILES" in reason["error"]


def test_club_members_are_classified():
    assert load("club_of_two_leaders").main(epochs=40) > 0.7


def test_links_within_groups_are_more_likely_and_embeddings_separate_the_groups():
    inside, across, accuracy = load("links_and_embeddings").main(epochs=12)
    assert inside > across and accuracy > 0.8


def test_the_shipped_model_is_near_the_true_values():
    pytest.importorskip("rdkit")
    example = load("predict_with_the_shipped_model")
    mean, std = example.main()
    assert mean.flatten().tolist() == pytest.approx(list(example.MOLECULES.values()), abs=0.5)
    assert (std > 0).all()
