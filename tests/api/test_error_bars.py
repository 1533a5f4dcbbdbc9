"""Error bars: stated coverage on synthetic errors, wider outside the domain, and never zero."""

import json
import math
import shutil
from functools import reduce

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit.DataStructs import BulkTanimotoSimilarity, CreateFromBitString
from scipy.optimize import minimize
from scipy.stats import spearmanr
from small_tables import read_csv, some_smiles, write_csv

from grass_gnn import GrassError, load_model
from grass_gnn.api.prediction import predict_table
from grass_gnn.data.tables.composition import Composition
from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.parsing import parse
from grass_gnn.evaluation.trained import Prediction
from grass_gnn.uncertainty.calibration import (
    PRIOR,
    WITH_FOREST,
    Calibration,
    SpreadCalibration,
    find_calibration,
    fit_error_model,
    half_width,
    indicator_table,
    kept_scores,
)
from grass_gnn.uncertainty.domain import ADDED, Domain, TargetRange
from grass_gnn.uncertainty.ensembles import combine
from grass_gnn.uncertainty.neighbours import Nearness, Neighbours
from grass_gnn.uncertainty.similarity import SimilarityReference, count_familiar


def synthetic(rows, source, forest=False):
    """Indicators, five or six, and heavy-tailed errors [M] whose size follows two or three."""
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
        indicators = indicator_table(spread, near, 0, 1.0)
        model, scores = fit_error_model(indicators, error, 1.0, forest=forest)
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
    assert half_width(scores, 0.55) == 11  # 20 · 0.55 is a little more than 11 in floating point


@given(
    scores=st.lists(st.floats(0, 1e6), min_size=1, max_size=60).map(sorted),
    first=st.floats(0.001, 0.999),
    second=st.floats(0.001, 0.999),
)
def test_intervals_of_a_larger_coverage_contain_those_of_a_smaller_one(scores, first, second):
    low, high = sorted((first, second))
    assert 0 < half_width(scores, low) <= half_width(scores, high) < math.inf


@pytest.mark.parametrize("forest", [False, True])
def test_weights_are_the_most_likely_ones_of_laplacian_errors(forest):
    """Against another search, with the best intercept for each choice of weights."""
    spread, near, error, _ = synthetic(50, numpy.random.default_rng(6), forest)
    indicators = indicator_table(spread, near, 0, 1.0)
    model, _ = fit_error_model(indicators, error, 1.0, forest=forest)
    centred = indicators - indicators.mean(axis=0)
    prior = numpy.array(WITH_FOREST if forest else PRIOR)

    def loss(weights):
        sizes = error * numpy.exp(-centred @ weights)
        return len(error) * math.log(sizes.mean()) + 10 * numpy.square(weights - prior).sum()

    bounds = [(0, 2)] * len(prior)
    best = minimize(loss, prior, method="SLSQP", bounds=bounds, options={"ftol": 1e-12})
    assert model.weights == pytest.approx(best.x, abs=1e-3)
    assert numpy.abs(best.x - prior).max() > 0.05  # the rows do say something
    assert model.centers == pytest.approx(indicators.mean(axis=0))


def test_a_row_is_not_judged_by_a_fit_to_itself():
    """Of two rows in a fold, the scores are as the errors, whatever these are."""
    spread, near, error, _ = synthetic(37, numpy.random.default_rng(3))
    indicators = indicator_table(spread, near, 0, 1.0)
    _, before = fit_error_model(indicators, error, 1.0)
    error[4] *= 50
    _, after = fit_error_model(indicators, error, 1.0)
    assert after[4] / after[14] == pytest.approx(50 * before[4] / before[14], rel=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 4184.0])
def test_error_bars_follow_the_unit_of_the_targets(unit):
    def fitted(unit):
        spread, near, error, _ = synthetic(40, numpy.random.default_rng(7), forest=True)
        in_units = ("disagreement", "residual", "leaf_error")
        near = near._replace(**{name: unit * getattr(near, name) for name in in_units})
        indicators = indicator_table(unit * spread, near, 0, unit)
        model, scores = fit_error_model(indicators, unit * error, unit, forest=True)
        return model.std(unit * spread, near, 0), scores

    (std, scores), (same, same_scores) = fitted(unit), fitted(1.0)
    assert std == pytest.approx(unit * same) and scores == pytest.approx(same_scores)


def test_each_target_has_error_bars_of_its_own():
    """Also where the spread, the neighbours and the units of the targets differ."""
    source = numpy.random.default_rng(4)
    rows, units = 60, (1.0, 200.0)
    near = Nearness(
        source.lognormal(0, 0.5, rows),
        source.lognormal(0, 0.5, (rows, 2)) * units,
        source.lognormal(-1, 0.5, (rows, 2)) * units,
        source.uniform(0, 0.8, rows),
        source.lognormal(-1, 0.5, (rows, 2)) * units,
    )
    std, rewirings = (torch.tensor(source.lognormal(-3, 0.3, (rows, 2)) * units) for _ in range(2))
    error = numpy.abs(source.standard_t(4, (rows, 2))) * near.leaf_error
    targets = []
    for number, (unit, between_models) in enumerate(zip(units, (True, False), strict=True)):
        spread = (std if between_models else rewirings)[:, number].numpy()
        indicators = indicator_table(spread, near, number, unit)
        model, scores = fit_error_model(indicators, error[:, number], unit, between_models, True)
        targets.append(
            SpreadCalibration(
                target=f"y{number}",
                scale=1,
                rows=rows,
                without_spread=0,
                rank_correlation=None,
                area=0,
                scaled_area=0,
                within=(0, 0),
                scaled_within=(0, 0),
                errors=model,
                scores=kept_scores(scores),
            )
        )
    found = Calibration(
        kind="regression", models=[], rewirings=2, rows=rows, source="", targets=targets
    )
    bars = found.error_std(std, rewirings, near)
    for number, one in enumerate(targets):
        spread = (std if one.errors.between_models else rewirings)[:, number].numpy()
        assert bars[:, number].numpy() == pytest.approx(one.errors.std(spread, near, number))
        assert spearmanr(bars[:, number], error[:, number])[0] > 0.3
    assert found.half_widths(0.8) == [one.half_width(0.8) for one in targets]


def test_the_spread_of_an_ensemble_is_that_of_all_samples_together():
    samples = torch.randn(3, 8, 20, 2, dtype=torch.float64)  # models, rewirings, rows, outputs
    samples = samples * torch.rand(3, 1, 20, 2) + torch.randn(3, 1, 20, 2)
    found = combine([Prediction(one.mean(dim=0), one.std(dim=0, correction=0)) for one in samples])
    together = samples.flatten(0, 1)
    torch.testing.assert_close(found.mean, together.mean(dim=0))
    torch.testing.assert_close(found.std, together.std(dim=0, correction=0))
    torch.testing.assert_close(found.models, samples.mean(dim=1).std(dim=0, correction=0))
    wider = found.with_std(3 * found.std)
    torch.testing.assert_close(torch.hypot(wider.rewirings, wider.models), 3 * found.std)
    torch.testing.assert_close(wider.models, 3 * found.models)


def test_of_many_scores_evenly_spaced_ones_are_kept():
    scores = numpy.random.default_rng(5).lognormal(0, 1, 12_345)
    kept = kept_scores(scores)
    assert len(kept) == 1000 and kept == sorted(kept) and set(kept) <= set(scores)
    assert kept[0] == scores.min() and kept[-1] == scores.max()
    for coverage in (0.5, 0.9, 0.99):
        inside = numpy.mean(scores <= half_width(kept, coverage))
        assert inside == pytest.approx(coverage, abs=2e-3)
    assert kept_scores(scores[:9]) == sorted(scores[:9])


@pytest.mark.parametrize("forest", [False, True])
def test_no_clue_makes_a_standard_deviation_zero_and_more_of_it_never_shrinks_one(forest):
    source = numpy.random.default_rng(1)
    spread, near, error, _ = synthetic(50, source, forest)
    indicators = indicator_table(spread, near, 0, 1.0)
    assert indicators.shape == (50, 6 if forest else 5)
    model, _ = fit_error_model(indicators, error, 1.0, forest=forest)
    shapes = ((1,), (1, 1), (1, 1), (1,), (1, 1))[: 5 if forest else 4]
    nothing = Nearness(*(numpy.zeros(shape) for shape in shapes))
    smallest = model.std(numpy.zeros(1), nothing, 0)[0]
    assert smallest > 0
    for number in range(len(shapes)):
        more = [numpy.array(part) for part in nothing[: len(shapes)]]
        more[number] = more[number] + 5.0
        assert model.std(numpy.zeros(1), Nearness(*more), 0)[0] >= smallest
    alone = model.std(spread, None, 0)  # the other indicators are not known
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
    assert both.rings == [3, 6] and both.atoms == (1, 7)
    assert both.targets == [TargetRange(low=0, high=9, std=numpy.std([0, 1, 2, 3]))]


def test_added_standard_deviations_are_those_documented_and_independent():
    """Fractions of the standard deviation of each target, and distances to its range."""
    targets = numpy.array([[0.0, 10.0], [2.0, numpy.nan], [0.0, 50.0], [2.0, 30.0]])
    domain = Domain.of(compositions("CCO", "c1ccccc1N", "CCCC", "CCCCCC"), targets)
    std = numpy.array([1.0, numpy.std([10, 50, 30])])  # 3 to 7 atoms
    inside = torch.tensor([1.0, 20.0])
    for text, fractions in (
        ("C" * 10, [ADDED["size"] + 3 / 7]),
        ("C", [ADDED["size"] + 2 / 7]),
        ("CC[Si]", [ADDED["element"]]),
        ("C1CC1[Si]", [ADDED["element"], ADDED["ring"]]),
        ("[13CH3]C[O-]", [ADDED["isotope"], ADDED["charge"]]),
        ("C[Si+](C)C", [ADDED["element"]]),  # whose charge is no second reason
    ):
        (one,) = compositions(text)
        expected = numpy.sqrt(numpy.square(fractions).sum()) * std
        assert domain.compare(one, inside).added == pytest.approx(expected), text
    (one,) = compositions("CC[Si]")
    added = domain.compare(one, torch.tensor([5.0, 4.0])).added
    assert added == pytest.approx(numpy.hypot(0.5 * std, [3.0, 6.0]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(some_smiles(40)), min_size=2, max_size=12), st.integers(1, 11))
def test_no_training_molecule_is_outside_of_its_domain_or_of_a_union(texts, cut):
    molecules = compositions(*texts)
    values = torch.arange(len(texts)).double()[:, None]
    domain = Domain.of(molecules, values.numpy())
    parts = [p for p in (slice(None, cut), slice(cut, None)) if texts[p]]
    union = reduce(Domain.union, [Domain.of(molecules[p], values[p].numpy()) for p in parts])
    for one, value in zip(molecules, values, strict=True):
        for known in (domain, union):
            assert known.compare(one, value).warnings == []
            assert not known.compare(one, value).added.any()
    assert union.model_copy(update={"targets": domain.targets}) == domain


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


def test_the_error_bars_of_a_run_are_summed_up_as_its_test_predictions_have_them(run):
    rows = read_csv(run / "test_predictions.csv")
    low, high, true, mean, std = (
        numpy.array([float(row[f"size{end}"]) for row in rows])
        for end in ("_lower", "_upper", "", "_pred", "_std")
    )
    assert ((low < mean) & (mean < high)).all()
    found = json.loads((run / "results.json").read_text())["error_bars"]["targets"]["size"]
    assert found["rows"] == len(rows) == 8
    assert found["inside"] == numpy.mean((low <= true) & (true <= high))
    assert found["width"] == pytest.approx(numpy.mean(high - low), rel=1e-4)
    expected = spearmanr(std, abs(true - mean))[0]
    assert found["rank_correlation"] == pytest.approx(expected, abs=0.05)  # std has four digits


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


def test_similarity_is_tanimotos_and_the_threshold_a_quantile_of_the_training_set(tmp_path):
    reader = MoleculeReader(fingerprints=True)
    bits = numpy.stack([reader(text).fingerprint for text in some_smiles(60)])
    vectors = [CreateFromBitString("".join(map(str, row))) for row in bits]
    among = numpy.array([BulkTanimotoSimilarity(one, vectors) for one in vectors])
    found = SimilarityReference.of(bits[:40], others={"val": bits[40:]})
    expected = among[40:, :40].max(axis=1)
    assert found.nearest(bits[40:]) == pytest.approx(expected)
    others = among[:40, :40] - numpy.eye(40)
    assert found.threshold == pytest.approx(numpy.quantile(others.max(axis=1), 0.05))
    again = SimilarityReference.load(tmp_path, found.save(tmp_path))
    assert (again.bits == found.bits).all() and again.threshold == pytest.approx(found.threshold)
    assert again.splits["val"] == pytest.approx(expected)
    assert not found.contradicts(tmp_path)
    assert SimilarityReference.of(bits[:39]).contradicts(tmp_path)
    both = SimilarityReference.of(bits[:20]).union(SimilarityReference.of(bits[20:40]))
    assert both.nearest(bits[40:]) == pytest.approx(expected)
    nothing = numpy.zeros((1, bits.shape[1]), dtype=numpy.uint8)
    assert found.nearest(nothing) == 0


def test_up_to_a_tenth_of_familiar_fingerprints_is_chance():
    assert count_familiar(numpy.array([1.0] * 2 + [0.99] * 18)) == 0
    assert count_familiar(numpy.array([1.0] * 3 + [0.99] * 17)) == 3
