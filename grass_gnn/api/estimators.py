"""Estimators with the interface of scikit-learn."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.api.fitting import fit_graphs
from grass_gnn.api.graph_task import GraphSpec
from grass_gnn.api.graphs import GraphReader
from grass_gnn.config import GRASSConfig, InputConfig
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import CARD, WEIGHTS, TrainedModel, load_model, save_model
from grass_gnn.progress import silent
from grass_gnn.tasks import Regression, kind_of_classes
from grass_gnn.training.options import RunOptions


def to_bytes(trained: TrainedModel) -> dict[str, bytes]:
    """The files of a model (weights and card, no code), for pickling."""
    details = {
        n: v for n, v in trained.card.items() if n not in ("format", "weights_sha256", "config")
    }
    with tempfile.TemporaryDirectory() as folder:
        save_model(trained.model, folder, **details)
        return {name: (Path(folder) / name).read_bytes() for name in (WEIGHTS, CARD)}


def from_bytes(files: dict[str, bytes]) -> TrainedModel:
    """The model that :func:`to_bytes` serialised."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (WEIGHTS, CARD):
            (Path(folder) / name).write_bytes(files[name])
        return replace(load_model(folder), folder=None)


try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import LabelEncoder
    from sklearn.utils import check_consistent_length, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
except ImportError as error:
    raise GrassError(
        "GRASSRegressor and GRASSClassifier need scikit-learn: pip install 'grass-gnn[sklearn]'."
    ) from error


class _GRASSEstimator(BaseEstimator):
    """Base class of the two estimators.

    Args:
        epochs: Maximum number of epochs; this and the next four are chosen by the size of the data
            by default.
        learning_rate: Peak learning rate.
        batch_size: Graphs per batch.
        layers: Number of layers.
        width: Width of node and edge representations.
        settings: Any other settings, by dotted name.
        config: Configuration to start from, instead of the defaults by size.
        validation_fraction: Fraction of the training data used for early stopping.
        rewirings: Number of random rewirings to average predictions over. They are derived from
            each graph alone, so that a prediction does not depend on the other graphs.
        features: Atom and bond features of molecules: ``"ogb-cip"``, ``"ogb"`` or ``"zinc"``.
        node_features: Numeric attributes of NetworkX nodes.
        edge_features: Numeric attributes of NetworkX edges.
        random_state: Random seed.
        device: Device to run on; the GPU if there is one, otherwise the CPU.

    Attributes:
        model_: The :class:`grass_gnn.TrainedModel`.
    """

    def __init__(
        self,
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        layers: int | None = None,
        width: int | None = None,
        settings: Mapping[str, Any] | None = None,
        config: GRASSConfig | None = None,
        validation_fraction: float = 0.1,
        rewirings: int = 16,
        features: str = "ogb-cip",
        node_features: Sequence[str] = (),
        edge_features: Sequence[str] = (),
        random_state: Any = None,
        device: str | None = None,
    ) -> None:
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.layers = layers
        self.width = width
        self.settings = settings
        self.config = config
        self.validation_fraction = validation_fraction
        self.rewirings = rewirings
        self.features = features
        self.node_features = node_features
        self.edge_features = edge_features
        self.random_state = random_state
        self.device = device

    def _fit(
        self,
        graphs: list[Data],
        features: InputConfig,
        targets: Sequence[Tensor],
        task: str,
        labels: Any = None,
    ) -> None:
        """Train on graphs with targets; ``labels``, if given, stratify the validation set."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        for data, target in zip(graphs, targets, strict=True):
            data.y = target
        if len(graphs) < 2:
            raise ValueError(f"GRASS needs at least two graphs, but there is only {len(graphs)}.")
        count = max(1, round(self.validation_fraction * len(graphs)))
        rows = np.arange(len(graphs))
        if labels is not None:
            counts = np.bincount(labels)
            if counts.min() < 2 or min(count, len(graphs) - count) < len(counts):
                labels = None  # too few to stratify
        train, val = train_test_split(rows, test_size=count, random_state=seed, stratify=labels)
        validation = [graphs[row] for row in val]
        given = {
            "training.epochs": self.epochs,
            "training.learning_rate": self.learning_rate,
            "training.batch_size": self.batch_size,
            "model.layers": self.layers,
            "model.dim": self.width,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            fit_graphs(
                {"train": [graphs[row] for row in train], "val": validation, "test": validation},
                GraphSpec("graph", task, input=features),
                run,
                RunOptions(seed=seed, device=self.device, progress=silent),
                config=self.config,
                settings={**chosen, **(self.settings or {})},
            )
            self.model_: TrainedModel = replace(load_model(run, self.device), folder=None)

    @property
    def _reader(self) -> GraphReader:
        return GraphReader(self.features, tuple(self.node_features), tuple(self.edge_features))

    def _predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values or probabilities and their std over rewirings, [M, outputs] each."""
        check_is_fitted(self, "model_")
        graphs = self._reader.read(X)
        mean, std = self.model_.predict(graphs, self.rewirings, deterministic=True)
        return mean.double().numpy(), std.double().numpy()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = to_bytes(state["model_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": from_bytes(state["model_"])}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.no_validation = True  # X is not an array
        return tags


class GRASSRegressor(RegressorMixin, _GRASSEstimator):
    """GRASS regressor for one target or several; targets may be missing (NaN).

    Example:
        >>> model = GRASSRegressor(epochs=50, random_state=0)  # doctest: +SKIP
        >>> model.fit(smiles, solubility).predict(new, return_std=True)  # doctest: +SKIP
    """

    def fit(self, X: Sequence[Any], y: Any) -> Self:
        """Train on molecules or graphs X [M] and their targets y, [M] or [M, targets]."""
        graphs = self._reader.read(X)
        values = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan")
        check_consistent_length(graphs, values)
        self._flat = values.ndim == 1
        values = values.reshape(len(graphs), -1)  # [M, targets]
        known = ~np.isnan(values).all(axis=1)
        self._fit(
            [data for data, use in zip(graphs, known, strict=True) if use],
            self._reader.input_of(X, graphs),
            [torch.tensor([row.tolist()]) for row in values[known]],
            Regression.name,
        )
        return self

    def predict(self, X: Sequence[Any], return_std: bool = False) -> Any:
        """The mean over rewirings, with ``return_std`` also the std; shaped like y."""
        found = self._predict(X)
        mean, std = (part[:, 0] if self._flat else part for part in found)
        return (mean, std) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class GRASSClassifier(ClassifierMixin, _GRASSEstimator):
    """GRASS classifier for two or more classes.

    Example:
        >>> model = GRASSClassifier(random_state=0).fit(smiles, toxic)  # doctest: +SKIP
        >>> model.predict_proba(new)  # doctest: +SKIP
    """

    def fit(self, X: Sequence[Any], y: Any) -> Self:
        """Train on molecules or graphs X [M] and their classes y [M]."""
        graphs = self._reader.read(X)
        y = column_or_1d(y)
        check_consistent_length(graphs, y)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_ = encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError("A classifier needs at least two classes, but y has only one.")
        labels = encoder.transform(y)
        task = kind_of_classes(len(self.classes_)).name
        targets = [torch.tensor(int(label)) for label in labels]
        self._fit(graphs, self._reader.input_of(X, graphs), targets, task, labels)
        return self

    def predict_proba(self, X: Sequence[Any], return_std: bool = False) -> Any:
        """Probabilities of ``classes_`` [M, classes], with ``return_std`` also their std."""
        mean, std = self._predict(X)
        if len(self.classes_) == 2:  # a binary model predicts the probability of the second class
            mean, std = np.hstack([1 - mean, mean]), np.hstack([std, std])
        return (mean, std) if return_std else mean

    def predict(self, X: Sequence[Any], return_std: bool = False) -> Any:
        """The most probable classes [M], with ``return_std`` also the std of their probability."""
        mean, std = self.predict_proba(X, return_std=True)
        best = mean.argmax(axis=1)
        names = self.classes_[best]
        return (names, std[np.arange(len(best)), best]) if return_std else names
