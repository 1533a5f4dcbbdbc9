"""Scikit-learn's conventions, as far as they make sense for lists of graphs."""

import pickle
import sys

import networkx
import numpy as np
import pytest
import torch
from small_tables import TINY, some_smiles
from torch_geometric.data import Data

import grass_gnn
from grass_gnn import GRASSClassifier, GrassError, GRASSRegressor
from grass_gnn.data.tables.parsing import parse

sklearn = pytest.importorskip("sklearn")
from sklearn.base import clone, is_classifier, is_regressor  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

SETTINGS = TINY | {"training.epochs": 1}
BOTH = pytest.mark.parametrize("kind", [GRASSRegressor, GRASSClassifier])
SMILES = some_smiles(24)
SIZES = np.array([parse(smiles).GetNumAtoms() for smiles in SMILES], dtype=float)


def tiny(kind, **options):
    return kind(settings=SETTINGS, rewirings=2, random_state=0, **options)


@pytest.fixture(scope="module")
def regressor():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRASS_OPS", "reference")
        return tiny(GRASSRegressor).fit(SMILES, SIZES)


@BOTH
@pytest.mark.parametrize(
    "name",
    [
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_valid_tag_types",
        "check_mixin_order",
    ],
)
def test_scikit_learns_own_checks(kind, name):
    check = getattr(estimator_checks, name, None)
    if check is None:
        pytest.skip(f"this scikit-learn has no {name}")
    check(kind.__name__, kind())


@BOTH
def test_unfitted_estimators_say_so(kind):
    with pytest.raises(NotFittedError):
        kind().predict(["CCO"])
    assert is_regressor(kind()) == (kind is GRASSRegressor)
    assert is_classifier(kind()) == (kind is GRASSClassifier)


def test_regression_of_molecules(regressor):
    mean, std = regressor.predict(SMILES[:5], return_std=True)
    assert mean.shape == std.shape == (5,) and (std > 0).all()
    assert np.array_equal(mean, regressor.predict(SMILES[:5]))
    # A prediction does not depend on its company, nor on how a molecule is written.
    alone = regressor.predict([SMILES[3]])
    assert alone[0] == pytest.approx(mean[3], abs=1e-5)
    same = regressor.predict(["OCC", "CCO", parse("C(O)C")])
    assert same == pytest.approx(same[:1].repeat(3), abs=1e-5)
    assert regressor.predict(["[Xe]"]).shape == (1,)  # no such atom was trained on
    assert np.isfinite(regressor.score(SMILES, SIZES))
    again = clone(regressor).fit(SMILES, SIZES)
    assert np.array_equal(again.predict(SMILES[:5]), mean)  # random_state decides everything


def test_pickles_hold_the_model_and_clones_do_not(regressor):
    copy = pickle.loads(pickle.dumps(regressor))
    assert np.array_equal(copy.predict(SMILES[:4]), regressor.predict(SMILES[:4]))
    assert copy.get_params() == regressor.get_params()
    assert not hasattr(clone(regressor), "model_")


def test_several_targets_with_gaps(regressor):
    y = np.stack([SIZES, 100 * SIZES], axis=1)
    y[::3, 0], y[4] = np.nan, np.nan  # some, and a row without any
    model = tiny(GRASSRegressor).fit(SMILES, y)
    assert model.predict(SMILES[:3]).shape == (3, 2)
    assert model.model_.config.task.missing


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"], [3, 7]])
def test_classes_of_any_names(names):
    y = [names[int(size) % len(names)] for size in SIZES]
    model = tiny(GRASSClassifier).fit(SMILES, y)
    assert list(model.classes_) == sorted(names)
    shares, std = model.predict_proba(SMILES[:6], return_std=True)
    assert shares.shape == std.shape == (6, len(names))
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-5)
    found, spread = model.predict(SMILES[:6], return_std=True)
    assert list(found) == [model.classes_[k] for k in shares.argmax(axis=1)]
    assert spread == pytest.approx([std[n, k] for n, k in enumerate(shares.argmax(axis=1))])
    assert 0 <= model.score(SMILES, y) <= 1


def test_the_second_class_is_the_one_that_probabilities_are_of():
    """A learnable target: the probability of "large" must be high for the large ones."""
    smiles = ["C" * n for n in range(1, 25)]
    y = ["large" if len(text) > 12 else "small" for text in smiles]
    options = {"training.learning_rate": 0.02, "training.epochs": 15}
    model = GRASSClassifier(settings=TINY | options, rewirings=2, random_state=0).fit(smiles, y)
    assert model.score(smiles, y) > 0.85
    assert model.predict_proba(smiles[-1:])[0, list(model.classes_).index("large")] > 0.5


def test_networkx_and_pyg_graphs():
    rings = [networkx.cycle_graph(3 + n % 5) for n in range(12)]
    for graph in rings:
        networkx.set_node_attributes(graph, {v: v / 2 for v in graph}, "height")
    y = [len(graph) for graph in rings]
    model = tiny(GRASSRegressor, node_features=("height",), layers=3, width=4).fit(rings, y)
    assert model.model_.config.model.layers == 2  # settings by dotted name come last
    assert model.model_.config.input.nodes.kind == "continuous"
    data = [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2 + n % 2) for n in range(8)]
    model = tiny(GRASSClassifier).fit(data, [n % 2 for n in range(8)])
    assert model.predict(data).shape == (8,) and data[0].y is None


def test_searches_pipelines_and_cross_validation():
    strip = FunctionTransformer(lambda texts: [text.strip() for text in texts])
    pipeline = make_pipeline(strip, tiny(GRASSRegressor))
    padded = [f" {smiles} " for smiles in SMILES]
    scores = cross_val_score(pipeline, padded[:12], SIZES[:12], cv=2, error_score="raise")
    assert scores.shape == (2,) and np.isfinite(scores).all()
    settings = {name: value for name, value in SETTINGS.items() if name != "model.layers"}
    search = GridSearchCV(
        GRASSClassifier(settings=settings, rewirings=1, random_state=0),
        {"layers": [1, 2]},
        cv=2,
        error_score="raise",
    )
    search.fit(SMILES, np.median(SIZES) < SIZES)
    assert search.best_estimator_.model_.config.model.layers == search.best_params_["layers"]
    assert search.predict(SMILES[:3]).dtype == bool


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (["CC", "C("], [1.0, 2.0], r"X\[1\] cannot be read: the SMILES is not valid"),
        (["CC", 5], [1.0, 2.0], r"X\[1\] is a int"),
        ("CC", [1.0, 2.0], "list of molecules"),
        ([], [], "empty"),
        (["CC", "CCC"], [1.0], "inconsistent numbers of samples"),
        (["CC"], [1.0], "at least two graphs"),
        (["CC", "CCC"], [1.0, np.inf], "infinity"),
    ],
)
def test_what_cannot_be_fitted_is_a_value_error(X, y, words):
    with pytest.raises(ValueError, match=words):
        GRASSRegressor().fit(X, y)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least two classes"):
        GRASSClassifier().fit(["CC", "CCC"], ["a", "a"])


def test_without_scikit_learn_there_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "grass_gnn.api.estimators")
    monkeypatch.delattr(grass_gnn.api, "estimators")
    with pytest.raises(GrassError, match=r"pip install 'grass-gnn\[sklearn\]'"):
        _ = grass_gnn.GRASSRegressor
