"""Training on your own data: a table of molecules, or a list of PyG graphs.

Features and task follow from the data, depth and number of epochs from its size
(:func:`default_settings`).

The run folder keeps the encoded splits next to the trained model, so that ``evaluate`` and
``calibrate`` need nothing else.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grass_gnn.api.calibration import add_error_bars
from grass_gnn.api.forest import (
    FittedForest,
    add_forest,
    describe_baseline,
    fit_forest,
    remove_forest,
)
from grass_gnn.api.graph_task import Graphs, GraphSpec, split_graphs
from grass_gnn.api.graphs import read_graphs
from grass_gnn.config import (
    FeatureConfig,
    GRASSConfig,
    InputConfig,
    TaskConfig,
    check_names,
    with_fields,
)
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.data.tables.dataset import TableData, read_tables
from grass_gnn.data.tables.features import input_config
from grass_gnn.data.tables.files import guard, is_table
from grass_gnn.data.tables.spec import BUNDLED, TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import RowNames
from grass_gnn.evaluation.protocol import device_of
from grass_gnn.evaluation.trained import TrainedModel, load_model
from grass_gnn.files import write_json
from grass_gnn.progress import reporting
from grass_gnn.tasks import make_task
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import Run, check_folder, run_folder, train
from grass_gnn.training.start import read_start
from grass_gnn.uncertainty.domain import Domain
from grass_gnn.uncertainty.ensembles import FOLDS
from grass_gnn.uncertainty.similarity import SimilarityReference

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from grass_gnn.api.finetuning import Pretrained

logger = logging.getLogger(__name__)

DATA_FOLDER = "data"  # in a run folder: the encoded splits

_LARGE = 60  # mean number of nodes above which RRWP costs more than eigenvectors
_STEPS = 7_000  # approximate number of optimiser steps in a run

EXAMPLE = BUNDLED["example"].path
"""Well-known molecules with Crippen's logP and the polar surface area (TPSA) from RDKit."""
EXAMPLE_TARGET = BUNDLED["example"].target
"""The column of the example table to predict."""


def fit(
    data: Graphs | str | Path,
    out: str | Path | None = None,
    *,
    target: str | Sequence[str] = (),
    level: str | None = None,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> TrainedModel:
    """Train GRASS on your own data; features, task and dimensions are inferred.

    Args:
        data: A list or ``Dataset`` of PyG graphs with targets ``y``; a mapping of ``"train"``,
            ``"val"`` and ``"test"`` to such lists; one graph with node or edge targets; a file of
            saved graphs (``.pt``); or a table of molecules.
        out: The run folder; by default, only the model is returned and nothing is saved.
        target: Column or columns of a table to predict.
        level: What the targets belong to: ``"graph"``, ``"node"`` or ``"edge"``; inferred by
            default.
        config: Configuration to start from; chosen by the size of the data by default.
        settings: Changes to the configuration, by dotted name.
        **options: Fields of :class:`RunOptions` (``seed``, ``resume``, ``progress``, …), and of
            :class:`TableSpec` (``smiles``, ``split``, ``descriptors``, …). For graphs, only
            ``task``, ``shares`` and ``split_seed`` of the latter apply.

    Example:
        >>> model = fit(graphs, "runs/mine", settings={"training.epochs": 50})  # doctest: +SKIP
        >>> mean, std = model.predict(new_graphs, rewirings=16)  # doctest: +SKIP
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            options |= {"target": target, "level": level, "config": config, "settings": settings}
            if isinstance(data, (str, Path)) and is_table(data):
                options = {"forest": False, **options}  # the model alone is returned
            return replace(fit(data, Path(folder) / "run", **options), folder=None)
    if isinstance(data, (str, Path)) and is_table(data):
        run = fit_table(data, target, out, config=config, settings=settings, **options)
        return load_model(out, device_of(run.model))
    graphs = read_graphs(data) if isinstance(data, (str, Path)) else data
    spec, run_options = graph_options(level, target, options)
    run = fit_graphs(graphs, spec, out, run_options, config=config, settings=settings)
    return load_model(out, device_of(run.model))


def fit_table(
    path: str | Path,
    targets: TableSpec | str | Sequence[str],
    out: str | Path,
    options: RunOptions | None = None,
    *,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """Train on a table of molecules and write a run folder with everything ``predict`` needs.

    Args:
        path: The table.
        targets: Columns to predict, or a :class:`TableSpec`.
        out: The run folder.
        options: How to run the training.
        config: Configuration to start from; chosen by the size of the data by default.
        settings: Changes to the configuration, by dotted name.
        **fields: Further fields of :class:`TableSpec` and :class:`RunOptions`.
    """
    spec, options = table_options(targets, options, fields)
    out = Path(out)
    check_folder(out, options.resume)
    if (out / FOLDS).exists():
        raise GrassError(f"{out} contains a cross-validation: use another --out, or --folds.")
    with reporting(options.progress):
        data = read_tables(path, spec, options.seed)
    for sentence in data.summary:
        logger.info(sentence)
    began = options.resume and (out / "config.toml").exists() and read_start(out) is None
    scratch = spec.from_scratch or began  # a run is resumed as it was started
    chosen, pretrained = choose_start(data, config, settings, scratch)
    logger.info(describe(chosen))
    return train_table(data, chosen, out, path, options, pretrained, spec)


def table_options(
    targets: TableSpec | str | Sequence[str], options: RunOptions | None, given: Mapping[str, Any]
) -> tuple[TableSpec, RunOptions]:
    """Sort keyword arguments into the columns of a table and the options of a run."""
    check_names(given, TableSpec, RunOptions)
    spec = with_fields(TableSpec.of(targets), given)
    return spec, with_fields(options or RunOptions(), given)


def choose_start(
    data: TableData,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    from_scratch: bool = False,
) -> tuple[GRASSConfig, Pretrained | None]:
    """The configuration for a table, and the pretrained model to start from, if any.

    Args:
        data: The table.
        config: Configuration to train from scratch, instead of the defaults.
        settings: Changes by dotted name. Those of layers or inputs need a training from scratch.
        from_scratch: Do not use the pretrained model.
    """
    from grass_gnn.api.finetuning import default_start  # which imports this module

    found = None
    if config is None and not from_scratch:
        found = default_start(data.schema.features, settings or {})
    if found is None:
        return choose_table_config(data, config, settings), None
    logger.info("Starting from the pretrained model; --from-scratch trains without it.")
    return found.choose_table_config(data, settings), found


def fit_graphs(
    data: Graphs,
    spec: GraphSpec,
    out: str | Path,
    options: RunOptions | None = None,
    *,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Train on PyG graphs and write a run folder; :func:`fit` describes the arguments."""
    options = options or RunOptions()
    check_folder(Path(out), options.resume)
    splits = split_graphs(data, spec, options.seed)
    features, task = spec.infer(splits)
    chosen = choose_config(splits["train"], features, task, config, settings)
    return train_graphs(splits, chosen, out, options, card={"classes": class_names(splits)})


def graph_options(
    level: str | None, target: str | Sequence[str], given: Mapping[str, Any]
) -> tuple[GraphSpec, RunOptions]:
    """Sort keyword arguments for graphs, and reject those that apply only to tables."""
    check_names(given, TableSpec, GraphSpec, RunOptions)
    own = {"level", *vars(GraphSpec()), *vars(RunOptions())}
    if only_tables := [*(["target"] if target else []), *(n for n in given if n not in own)]:
        verb = "applies" if len(only_tables) == 1 else "apply"
        raise GrassError(f"{', '.join(only_tables)} {verb} only to tables of molecules.")
    return with_fields(GraphSpec(level=level), given), with_fields(RunOptions(), given)


def class_names(splits: Mapping[str, Sequence[Data]]) -> list[str]:
    """The names of the classes, if the graphs were read from text."""
    return splits["train"][0].get("classes") or []


def train_table(
    data: TableData,
    config: GRASSConfig,
    out: str | Path,
    path: str | Path,
    options: RunOptions,
    pretrained: Pretrained | None = None,
    spec: TableSpec | None = None,
) -> Run:
    """Train on a table that was read from ``path``; the folder lists used and skipped rows.

    If ``spec`` asks for a forest or a baseline, a forest is trained first.
    """
    spec = spec or TableSpec()
    out = Path(out)
    with run_folder(out, options.resume) as lock:
        others = {name: bits for name, bits in data.fingerprints.items() if name != "train"}
        similarity = SimilarityReference.of(data.fingerprints["train"], others=others)
        domain = Domain.of(data.compositions["train"], training_numbers(data))
        _check_resumed(config, similarity, domain, out)
        data.write_row_lists(out)
        checksum = similarity.save(out)
        domain.save(out)
        names = row_names(data)
        forest = _forest(data, options, spec.forest) if spec.forest or spec.baseline else None
        run = train_graphs(
            data.splits,
            config,
            out,
            options,
            card={"table": data.schema.model_dump(), "similarity_sha256": checksum},
            origin={"table": str(path)},
            pretrained=pretrained,
            names=names,
        )
        lock.check()
        if forest is not None and spec.forest:
            run = add_forest(run, forest, names)
        else:
            remove_forest(out)  # of an earlier training that this one resumes
            if forest is not None:
                run.results["baseline"] = forest.baseline.to_dict()
                write_json(out / "results.json", run.results)
        return add_error_bars(run, names["test"], data.compositions["test"], options.progress)


def _check_resumed(
    config: GRASSConfig, similarity: SimilarityReference, domain: Domain, out: Path
) -> None:
    """Raise if a folder has a run on another table, before any of its files is replaced."""
    path = out / "config.toml"
    if not path.is_file():
        return
    earlier = GRASSConfig.from_toml(path)
    if (
        (earlier.task, earlier.input) != (config.task, config.input)
        or similarity.contradicts(out)
        or Domain.load(out) not in (None, domain)
    ):
        raise GrassError(
            f"The table, its columns or its split are not those of the run in {out}: resume with "
            "the same table and options, or choose another --out."
        )


def _forest(data: TableData, options: RunOptions, process: bool) -> FittedForest | None:
    """The forest of a table, with a line about its score; a baseline needs no Gaussian process."""
    with reporting(options.progress):
        found = fit_forest(data, options.seed, None, process)
    if found and (told := describe_baseline(found.baseline.to_dict(), data.task.metric)):
        logger.info(told)
    return found


def training_numbers(data: TableData) -> np.ndarray | None:
    """Targets of the training molecules [M, outputs], if they are numbers."""
    if make_task(data.task).predicts_probabilities:
        return None
    return np.concatenate([graph.y.double().numpy() for graph in data.splits["train"]])


def row_names(data: TableData) -> dict[str, RowNames]:
    """How files of predictions name the rows and columns of each split of a table.

    A row is identified by its line, as in ``splits.csv``, and by its SMILES.
    """
    schema, names = data.schema, {}
    outputs = make_task(data.task).output_columns(schema.targets, schema.classes)
    for split in data.splits:
        rows = [row for row in data.rows if row.split == split and not row.problem]
        names[split] = RowNames(
            [str(row.line) for row in rows],
            [guard(row.smiles) for row in rows],
            [guard(name) for name in schema.targets],
            [(guard(value), guard(std)) for value, std in outputs],
            schema.classes,
        )
    return names


def train_graphs(
    splits: Mapping[str, Sequence[Data]],
    config: GRASSConfig,
    out: str | Path,
    options: RunOptions,
    *,
    card: Mapping[str, Any],
    origin: Mapping[str, Any] | None = None,
    pretrained: Pretrained | None = None,
    names: Mapping[str, RowNames] | None = None,
) -> Run:
    """Encode graphs into a run folder and train on them.

    Args:
        splits: The graphs of each split.
        config: The configuration.
        out: The run folder.
        options: How to run the training.
        card: Information about the data for the model card.
        origin: Where the data come from.
        pretrained: A trained model to start from.
        names: Names of rows and columns in the files of predictions.
    """
    out = Path(out)
    with run_folder(out, options.resume):
        if pretrained is not None:
            card = {**card, "start": pretrained.record(out, options.resume)}
        prepared = prepare(splits, config, out / DATA_FOLDER, progress=options.progress)
        prepared = replace(prepared, origin={"prepared": prepared.folder.name, **(origin or {})})
        model = None if pretrained is None else pretrained.build(config, prepared, options.seed)
        return train(config, prepared, out, options, model=model, card=card, names=names)


def default_settings(num_train: int, mean_nodes: float) -> dict[str, Any]:
    """Depth, width, batch size, epochs, encoding and evaluation, by dotted name.

    Small datasets get shallow networks and many epochs of small batches, large ones the opposite,
    so that a run takes minutes on two cores. Three added edges per node train faster than the
    paper's six and are no worse in runs this short. Graphs with more than sixty nodes on average
    are encoded by their leading eigenvectors (D-RRWP). Normalised inputs are clipped, because
    values that are rare in a small training set could otherwise become arbitrarily large.

    Args:
        num_train: Number of training graphs.
        mean_nodes: Mean number of nodes of a graph.
    """
    batch_size = max(8, min(100, num_train // 20))
    epochs = max(20, min(300, round(_STEPS * batch_size / max(num_train, 1))))
    layers = 8 if num_train < 1000 else 12
    large = mean_nodes > _LARGE
    return {
        "encoding.kind": "decomposed-rrwp" if large else "rrwp",
        "encoding.steps": 32 if large else 16,
        "rewiring.degree": 3,
        "model.layers": layers,
        "model.input_limit": 8.0,
        "model.residual_scale": 0.3 if layers < 12 else 0.2,
        "training.batch_size": batch_size,
        "training.epochs": epochs,
        "training.learning_rate": 1e-3 if num_train >= 1000 else 5e-4,
        "training.patience": max(20, epochs // 3),
        "evaluation.statistics_passes": 3 if num_train >= 1000 else 10,
        "evaluation.rewirings": 16,
    }


def data_settings(features: InputConfig, task: TaskConfig) -> dict[str, Any]:
    """The settings that follow from the data: features and task."""
    return {
        **_feature_settings("input.nodes", features.nodes),
        **_feature_settings("input.edges", features.edges),
        "input.descriptors": features.descriptors,
        **{f"task.{name}": value for name, value in task.model_dump().items()},
    }


def _feature_settings(name: str, features: FeatureConfig) -> dict[str, Any]:
    return {f"{name}.kind": features.kind, f"{name}.sizes": features.sizes}


def choose_table_config(
    data: TableData, config: GRASSConfig | None = None, settings: Mapping[str, Any] | None = None
) -> GRASSConfig:
    """:func:`choose_config` for a table."""
    columns = {"descriptors": data.schema.num_descriptors}
    inputs = input_config(data.schema.features).model_copy(update=columns)
    return choose_config(data.splits["train"], inputs, data.task, config, settings)


def choose_config(
    graphs: Sequence[Data],
    features: InputConfig,
    task: TaskConfig,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> GRASSConfig:
    """The configuration of a run on your own data.

    Args:
        graphs: The training graphs.
        features: Their features.
        task: The task that follows from the targets.
        config: Configuration to start from, instead of the defaults by size. If it sets a loss and
            a metric, these are kept; the rest of its task follows from the targets.
        settings: Changes by dotted name, which override everything else.

    Raises:
        GrassError: The configuration is for another kind of task.
    """
    if config is None:
        config = GRASSConfig().override(default_settings_for(graphs))
    task = task.model_copy(update=_loss_and_metric(config, task.kind))
    scaling = make_task(task).scaling([_training_targets(data) for data in graphs])
    task = task.model_copy(update=scaling)
    fixed = data_settings(features, task) | {"dataset": None}
    return config.override(fixed | dict(settings or {}))


def _loss_and_metric(config: GRASSConfig, kind: str) -> dict[str, str]:
    """The loss and the metric that a configuration sets for this kind of task."""
    given, own = config.task.model_fields_set, config.task
    if own.kind == kind:
        return {name: getattr(own, name) for name in ("loss", "metric") if name in given}
    # The task of a preset is that of its benchmark; only its other sections are meant.
    if config.dataset is None and given & {"kind", "loss", "metric"}:
        raise GrassError(
            f"The configuration is for a {own.kind} task, but the targets are a {kind} task: "
            f"change its section [task], or choose the task (--task {own.kind})."
        )
    return {}


def default_settings_for(graphs: Sequence[Data]) -> dict[str, Any]:
    """The default settings for training graphs, by dotted name."""
    nodes = sum(int(data.num_nodes or 0) for data in graphs) / len(graphs)
    return default_settings(len(graphs), nodes)


def _training_targets(data: Data) -> Any:
    """The targets of a graph that are in the training set."""
    return data.y if data.get("train_mask") is None else data.y[data.train_mask]


def describe(config: GRASSConfig) -> str:
    """Model and training in one sentence."""
    model, training = config.model, config.training
    stopping = f", patience {training.patience}" if training.patience else ""
    return (
        f"Model: {model.layers} layers of width {model.dim}; at most {training.epochs} "
        f"epochs with batches of {training.batch_size}{stopping}."
    )
