"""Error bars: stated coverage on synthetic errors, wider outside the domain, and never zero."""

import json
import shutil

import numpy
import pytest
import torch
from scipy.stats import spearmanr
from small_tables import read_csv, some_smiles, write_csv

from grass_gnn import GrassError, load_model
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.parsing import parse
from grass_gnn.uncertainty.calibration import (
    clue_table,
    find_calibration,
    fit_error_model,
    half_width,
)
from grass_gnn.uncertainty.domain import Domain
from grass_gnn.uncertainty.neighbours import Nearness, Neighbours


def synthetic(rows, source, forest=False):
    """Five or six clues and heavy-tailed errors [M] whose size follows two or three of them."""
    near = Nearness(
        source.lognormal(0, 0.5, rows),
        source.lognormal(0, 0.5, (rows, 1)),
        source.lognormal(-1, 0.5, (rows, 1)),
        source.uniform(0, 0.8, rows),
        source.lognormal(-1, 0.5, (rows, 1)) if forest else None,
    )
    sigma = 0.3 * near.distance**0.8 * near.disagreement[:, 0] ** 0.6
    if forest:
        sigma = sigma * near.leaf_error[:, 0]
    spread = source.lognormal(-3, 0.3, rows)
    return spread, near, numpy.abs(sigma * source.standard_t(4, rows)), sigma


@pytest.mark.parametrize("forest", [False, True])
def test_intervals_cover_what_they_promise_and_follow_the_error(forest):
    source = numpy.random.default_rng(0)
    inside, ranks, best = {0.5: [], 0.9: []}, [], []
    for _ in range(40):
        spread, near, error, _ = synthetic(60, source, forest)
        clues = clue_table(spread, near, 0, 1.0)
        model, scores = fit_error_model(clues, error, 1.0, forest=forest)
        spread, near, error, sigma = synthetic(200, source, forest)
        std = model.std(spread, near, 0)
        for coverage, found in inside.items():
            found.append(numpy.mean(error <= half_width(sorted(scores), coverage) * std))
        ranks.append(spearmanr(std, error)[0])
        best.append(spearmanr(sigma, error)[0])
        assert (numpy.array(model.weights) >= 0).all()
    assert numpy.mean(inside[0.9]) == pytest.approx(0.9, abs=0.025)
    assert numpy.mean(inside[0.5]) == pytest.approx(0.5, abs=0.04)
    assert numpy.mean(ranks) > 0.8 * numpy.mean(best)


def test_the_quantile_is_that_of_finitely_many_scores():
    scores = list(numpy.arange(1.0, 20.0))  # 19 of them: 18 of 20 ranks are 90 %
    assert half_width(scores, 0.9) == 18 and half_width(scores, 0.95) == 19
    assert 19 < half_width(scores, 0.99) < half_width(scores, 0.999)  # beyond the largest
    assert half_width([0.0, 0.0], 0.9) > 0


@pytest.mark.parametrize("forest", [False, True])
def test_no_clue_makes_a_standard_deviation_zero_and_more_of_it_never_shrinks_one(forest):
    source = numpy.random.default_rng(1)
    spread, near, error, _ = synthetic(50, source, forest)
    clues = clue_table(spread, near, 0, 1.0)
    assert clues.shape == (50, 6 if forest else 5)
    model, _ = fit_error_model(clues, error, 1.0, forest=forest)
    shapes = ((1,), (1, 1), (1, 1), (1,), (1, 1))[: 5 if forest else 4]
    nothing = Nearness(*(numpy.zeros(shape) for shape in shapes))
    smallest = model.std(numpy.zeros(1), nothing, 0)[0]
    assert smallest > 0
    for number in range(len(shapes)):
        more = [numpy.array(part) for part in nothing[: len(shapes)]]
        more[number] = more[number] + 5.0
        assert model.std(numpy.zeros(1), Nearness(*more), 0)[0] >= smallest
    alone = model.std(spread, None, 0)  # the other clues are not known
    assert numpy.isfinite(alone).all() and (alone > 0).all()


def test_distance_disagreement_and_residuals_come_from_the_nearest_graphs(tmp_path):
    source = numpy.random.default_rng(2)
    embeddings = source.normal(size=(300, 6))
    embeddings[:, 5] = 7.0  # a column that tells nothing
    targets = numpy.stack([embeddings[:, 0], numpy.full(300, numpy.nan)], axis=1)
    targets[:5, 1] = 1.0
    fitted = targets + 0.1
    known = Neighbours.of(embeddings, targets, fitted)
    queries = numpy.array([[0, 0, 0, 0, 0, 7.0], [30, 0, 0, 0, 0, 900.0]])
    near = known.compare(queries, numpy.array([[0.0, 1.0], [0.0, 1.0]]))
    assert near.distance[0] < 2 and near.distance[1] > 5
    assert near.residual[:, 0] == pytest.approx(0.1, rel=1e-3)
    wrong = known.compare(queries[:1], numpy.array([[4.0, 1.0]]))
    assert wrong.disagreement[0, 0] > 3 and numpy.isfinite(wrong.disagreement).all()
    _, error = known.leave_one_out()
    assert 0 < numpy.abs(error[:, 0]).mean() < numpy.abs(targets[:, 0]).mean()

    path = tmp_path / "neighbours.safetensors"
    checksum = known.save(path)
    again = Neighbours.load(path, checksum).compare(queries, numpy.zeros((2, 2)))
    assert again.distance == pytest.approx(near.distance, rel=1e-2)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(GrassError, match="damaged"):
        Neighbours.load(path, checksum)


def test_error_bars_of_sparse_targets_do_not_depend_on_the_other_rows():
    source = numpy.random.default_rng(1)
    targets = source.normal(size=(200, 2)) * [1, 1000] + [0, 500]
    targets[source.random(200) > 0.05, 1] = numpy.nan  # most graphs have no neighbour with one
    reference = Neighbours.of(source.normal(size=(200, 5)), targets, targets + 1)
    queries, mean = source.normal(size=(40, 5)), source.normal(size=(40, 2)) * [1, 1000]
    together = reference.compare(queries, mean)
    for row in range(40):
        alone = reference.compare(queries[row : row + 1], mean[row : row + 1])
        for one, among in zip(alone[:3], together[:3], strict=True):
            assert one[0] == pytest.approx(among[row], rel=1e-4)
    assert numpy.median(together.disagreement[:, 1]) > 300  # in the units of that target
    # Nor does a graph whose representation overflows spoil the others.
    queries[3] = numpy.nan
    found = reference.compare(queries, mean)
    others = numpy.arange(40) != 3
    assert found.disagreement[others] == pytest.approx(together.disagreement[others])


def compositions(*texts):
    return [Composition.of(parse(text)) for text in texts]


def test_what_the_training_set_does_not_contain_is_named():
    training = compositions("CCO", "c1ccccc1N", "C[N+](=O)[O-]", "CCCCCC")
    domain = Domain.of(training, numpy.array([[0.0], [1.0], [2.0], [3.0]]))
    for text, warning in (
        ("CC[Si]", "element Si"),
        ("CC[O-]", "net charge -"),
        ("C[NH3+]", "net charge +"),
        ("C[S+](C)C", "element S"),
        ("C[N-]C", "charged atom N-"),
        ("[13CH3]O", "isotope 13C"),
        ("C1CC1", "ring size 3"),
        ("CCCCCCCCCC", "10 atoms (training molecules have 3 to 7)"),
    ):
        (one,) = compositions(text)
        found = domain.compare(one, torch.tensor([1.0]))
        assert any(told.startswith(warning) for told in found.warnings), (text, found)
        assert found.added[0] > 0
    (known,) = compositions("CCCO")
    assert domain.compare(known, torch.tensor([1.0])).warnings == []
    assert domain.compare(known, torch.tensor([1.0])).added == pytest.approx([0])
    beyond = domain.compare(known, torch.tensor([-4.0]))
    assert beyond.warnings == ["the prediction is beyond the training range 0 to 3"]
    assert beyond.added[0] == pytest.approx(4.0)
    other = Domain.of(compositions("C1CC1", "C"), numpy.array([[9.0], [8.0]]))
    both = domain.union(other)
    assert both.rings == [3, 6] and both.atoms == (1, 7) and both.targets[0].high == 9


def test_a_run_warns_of_strange_molecules_and_widens_their_intervals(run, molecules, tmp_path):
    facts = json.loads((run / "results.json").read_text())["error_bars"]
    assert facts["coverage"] == 0.9 and 0 <= facts["targets"]["size"]["inside"] <= 1
    known = read_csv(molecules)[0]["smiles"]
    strange = [known, "C" * 200, "[2H]OC", "CC[Si](C)C", "C"]
    path = write_csv(tmp_path / "in.csv", ["smiles"], [[text] for text in strange])
    predict_table([load_model(run)], path, tmp_path / "out.csv", rewirings=2)
    first, chain, heavy, silicon, atom = read_csv(tmp_path / "out.csv")
    assert first["warning"] == "" and "200 atoms" in chain["warning"]
    assert "isotope 2H" in heavy["warning"] and "element Si" in silicon["warning"]
    widths = [
        float(row["size_upper"]) - float(row["size_lower"]) for row in (first, chain, silicon)
    ]
    assert widths[1] > 5 * widths[0] and widths[2] > widths[0]
    for row in (first, chain, heavy, silicon, atom):
        assert float(row["size_lower"]) < float(row["size_pred"]) < float(row["size_upper"])
        assert float(row["size_std"]) > 0
    tested = read_csv(run / "test_predictions.csv")
    assert float(tested[0]["size_lower"]) < float(tested[0]["size_upper"])


def test_runs_of_earlier_versions_predict_as_before(run, tmp_path):
    old = shutil.copytree(run, tmp_path / "old")
    for name in ("domain.json", "calibration.json", "neighbours.safetensors"):
        (old / name).unlink()
    path = write_csv(tmp_path / "in.csv", ["smiles"], [["CCO"], ["C" * 200]])
    summary = predict_table([load_model(old)], path, tmp_path / "out.csv", rewirings=2)
    row = read_csv(tmp_path / "out.csv")[0]
    assert "not calibrated" in summary.calibration
    assert row["size_pred"] and row["size_std"] and row["size_lower"] == ""
    (old / "domain.json").write_text('{"elements": []}')
    with pytest.raises(GrassError, match=r"domain\.json is damaged"):
        predict_table([load_model(old)], path, tmp_path / "out.csv", rewirings=2)


@pytest.mark.parametrize("rewirings", [1, 2, 4])
def test_multiples_of_the_spread_are_never_zero(run, tmp_path, rewirings):
    """A calibration of the first kind, as the shipped ZINC weights have it."""
    old = shutil.copytree(run, tmp_path / "old")
    for name in ("domain.json", "neighbours.safetensors"):
        (old / name).unlink()
    stored = json.loads((old / "calibration.json").read_text())
    for one in stored["targets"]:
        one["scale"] = 3.0
        for name in ("errors", "scores", "calibrated_correlation"):
            del one[name]
    (old / "calibration.json").write_text(json.dumps(stored | {"neighbours": None}))
    rows = [[text] for text in ("CCOC(C)N", "CC(C)CC#N", "C")]
    path = write_csv(tmp_path / "in.csv", ["smiles"], rows)
    model = load_model(old)
    summary = predict_table(model, path, tmp_path / "out.csv", rewirings=rewirings)
    predict_table(model, path, tmp_path / "raw.csv", rewirings=max(rewirings, 2), calibrated=False)
    assert ("has no spread" in summary.calibration) == (rewirings == 1)
    pairs = list(zip(read_csv(tmp_path / "out.csv"), read_csv(tmp_path / "raw.csv"), strict=True))
    for found, raw in pairs:
        assert float(found["size_lower"]) < float(found["size_pred"]) < float(found["size_upper"])
        assert found["size_pred"] == raw["size_pred"]
    for found, raw in pairs[:2]:
        assert float(found["size_std"]) == pytest.approx(3 * float(raw["size_std"]), rel=1e-3)
    scale = model.config.task.target_scale[0]
    assert float(pairs[2][0]["size_std"]) == pytest.approx(scale, rel=1e-3)  # no spread at all


def test_a_damaged_file_of_neighbours_is_named(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "neighbours.safetensors").write_bytes(b"0" * 50)
    path = write_csv(tmp_path / "in.csv", ["smiles"], [[text] for text in some_smiles(3)])
    model = load_model(copy)
    assert find_calibration([model])[0].neighbours is not None
    with pytest.raises(GrassError, match=r"neighbours\.safetensors is damaged"):
        predict_table([model], path, tmp_path / "out.csv", rewirings=1)
