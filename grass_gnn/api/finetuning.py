"""Fine-tuning: train a model further on other data, with a new head."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grass_gnn.api.fitting import (
    choose_config,
    class_names,
    default_settings_for,
    graph_options,
    table_options,
    train_graphs,
    train_table,
)
from grass_gnn.api.graph_task import Graphs, GraphSpec, split_graphs
from grass_gnn.api.graphs import read_graphs
from grass_gnn.config import FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.data.tables.dataset import TableData, read_tables
from grass_gnn.data.tables.files import is_table, open_table
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import device_of
from grass_gnn.evaluation.trained import TrainedModel, load_model, shipped_models
from grass_gnn.nn.model import BODY, GRASS, FrozenGRASS, build_model
from grass_gnn.nn.norm import freeze_norms
from grass_gnn.progress import reporting
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import Run, check_folder
from grass_gnn.training.start import record_start
from grass_gnn.uncertainty.ensembles import similarity_reference
from grass_gnn.uncertainty.similarity import count_familiar

if TYPE_CHECKING:
    from torch_geometric.data import Data


logger = logging.getLogger(__name__)

SHIPPED_PRETRAINED = "pretrained"
"""Name of the pretrained model that comes with the package."""
_STEPS = 700  # approximate number of optimiser steps when a table starts from it
RATE_DIVISOR = 5  # factor of the learning rate of pretrained weights
# Settings that change neither the layers nor their inputs.
_FREE = ("training.", "evaluation.", "task.loss", "task.metric")
_FREE_OF_MODEL = ("model.head_hidden", "model.edge_removal", "model.checkpoint")


@dataclass(frozen=True)
class Pretrained:
    """A trained model to start from.

    Args:
        source: The trained model.
        freeze: Whether to freeze everything except the new head.
        fixed_norms: Whether norms keep the statistics of the source while all weights are trained.
            A small table then cannot make its rare structures look extreme, and small batches add
            no noise.
    """

    source: TrainedModel
    freeze: bool = False
    fixed_norms: bool = False

    def choose_config(
        self,
        graphs: Sequence[Data],
        features: InputConfig,
        task: TaskConfig,
        settings: Mapping[str, Any] | None = None,
    ) -> GRASSConfig:
        """The source's configuration, with training settings that suit the new data.

        Args:
            graphs: The new training graphs.
            features: Their features.
            task: The new task.
            settings: Changes by dotted name, which must not affect the layers.
        """
        settings = dict(settings or {})
        for name in settings:
            if not self.allows([name]):
                raise GrassError(
                    f"The setting {name} cannot be changed: {self.name} determines the layers "
                    "and their inputs."
                )
        if self.fixed_norms:
            chosen = transfer_settings(len(graphs))
        else:
            chosen = {
                name: value
                for name, value in default_settings_for(graphs).items()
                if name in ("training.batch_size", "training.epochs", "training.patience")
            }
            # A new head can learn at the full rate; pretrained layers should change only a little.
            rate = self.source.config.training.learning_rate / (1 if self.freeze else RATE_DIVISOR)
            chosen["training.learning_rate"] = rate
        # The task, with its loss and metric, is the new one.
        config = self.source.config.override(chosen).model_copy(update={"task": TaskConfig()})
        return choose_config(graphs, features, task, config, settings)

    def choose_table_config(
        self, data: TableData, settings: Mapping[str, Any] | None = None
    ) -> GRASSConfig:
        """:meth:`choose_config` for a table."""
        columns = {"descriptors": data.schema.num_descriptors}
        features = self.source.config.input.model_copy(update=columns)
        return self.choose_config(data.splits["train"], features, data.task, settings)

    def build(self, config: GRASSConfig, data: PreparedData, seed: int) -> GRASS:
        """Build a model with the source's layers and a new head.

        Frozen layers and fixed norms keep the statistics of the norms; otherwise these are
        collected again from the new graphs.
        """
        fresh = build_model(config, data, seed)
        source, own = self.source.model.state_dict(), fresh.state_dict()
        learned = {name for name, _ in self.source.model.named_parameters()}
        kept = {
            name: value
            for name, value in source.items()
            if name.split(".")[0] in BODY and (self.freeze or self.fixed_norms or name in learned)
        }
        if self.freeze and {"pooling.scales"} <= own.keys() & source.keys():
            kept["pooling.scales"] = source["pooling.scales"]  # keeps the embeddings unchanged
        assert isinstance(fresh, GRASS)
        model = FrozenGRASS(config) if self.freeze else fresh
        model.load_state_dict({**own, **kept})
        if self.fixed_norms:
            for name in BODY:  # descriptors of the table have statistics of their own
                if (part := getattr(model, name)) is not None:
                    freeze_norms(part)
        return model

    def check_features(self, given: InputConfig) -> InputConfig:
        """The features of the source, after checking that the given ones are compatible.

        Raises:
            GrassError: They are not.
        """
        known = self.source.config.input
        for what, mine, other in (
            ("node", known.nodes, given.nodes),
            ("edge", known.edges, given.edges),
        ):
            if not mine.accepts(other):
                raise GrassError(
                    f"The graphs have {what} features of kind {_describe(other)}, "
                    f"but {self.name} was trained with {_describe(mine)}."
                )
        return known.model_copy(update={"descriptors": given.descriptors})

    def record(self, folder: Path, resume: bool) -> dict[str, Any]:
        """Record the source in a run folder; a resumed run must have the same one."""
        return record_start(folder, self.source, resume, frozen=self.freeze)

    def allows(self, settings: Iterable[str]) -> bool:
        """Whether settings of these dotted names leave the layers and their inputs as they are."""
        return all(name.startswith(_FREE) or name in _FREE_OF_MODEL for name in settings)

    @property
    def name(self) -> str:
        """The source, for messages."""
        return "the model" if self.source.folder is None else f"the run in {self.source.folder}"

    def describe(self, config: GRASSConfig) -> str:
        """What is trained and at which learning rate, in one sentence."""
        trained = "a new head on frozen layers" if self.freeze else "all layers and a new head"
        rate, before = config.training.learning_rate, self.source.config.training.learning_rate
        return (
            f"Fine-tuning {self.name}: training {trained} with learning rate {rate:.3g} "
            f"(originally {before:.3g})."
        )


def transfer_settings(num_train: int) -> dict[str, Any]:
    """Settings for starting from the pretrained model that comes with the package.

    Small tables get small batches and at most forty epochs, large ones at least twenty. The moving
    average of the weights takes the place of an ensemble of several trainings. Learning rate and
    epochs were chosen on training and validation rows of two splits of FreeSolv: sixty epochs at
    2e-4 take longer and are worse.

    Args:
        num_train: Number of training molecules.
    """
    batch_size = max(8, min(64, num_train // 16))
    epochs = max(20, min(40, round(_STEPS * batch_size / max(num_train, 1))))
    return {
        "training.batch_size": batch_size,
        "training.epochs": epochs,
        "training.patience": max(10, epochs // 3),
        "training.learning_rate": 5e-4,
        "training.average": 0.99,
        "training.checkpoint_minutes": 5.0,
        "evaluation.rewirings": 16,
    }


def default_start(features: str, settings: Iterable[str]) -> Pretrained | None:
    """The pretrained model that comes with the package, if a run can start from it.

    Args:
        features: Vocabulary of atoms and bonds of the table.
        settings: Names of changed settings; those of the layers need a training from scratch.
    """
    if SHIPPED_PRETRAINED not in shipped_models():
        return None
    pretrained = Pretrained(load_model(SHIPPED_PRETRAINED), fixed_norms=True)
    schema = TableSchema.from_card(pretrained.source.card)
    same = schema is not None and schema.features == features
    return pretrained if same and pretrained.allows(settings) else None


def _describe(features: FeatureConfig) -> str:
    sizes = f" {features.sizes or features.categories}" if features.num_columns else ""
    return f"{features.kind}{sizes}"


def finetune(
    run: str | Path | TrainedModel,
    data: Graphs | str | Path,
    out: str | Path | None = None,
    *,
    target: str | Sequence[str] = (),
    freeze: bool = False,
    level: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> TrainedModel:
    """Train a model further on other data, with a new head for the new targets.

    Features, encoding, rewiring and layers are those of the pretrained model.

    Args:
        run: The run folder of the pretrained model, or the model itself.
        data: Graphs, a file of graphs, or a table of molecules, as for :func:`grass_gnn.fit`.
        out: The run folder; by default, only the model is returned and nothing is saved.
        target: Column or columns of a table to predict.
        freeze: Freeze the layers and the statistics of their norms, and train only the new head.
            Otherwise all weights are trained, and the statistics are those of the new graphs.
        level: What the targets belong to: ``"graph"``, ``"node"`` or ``"edge"``; inferred by
            default.
        settings: Changes by dotted name, of ``training``, ``evaluation`` and the head.
        **options: Fields of :class:`RunOptions` and :class:`TableSpec`, as for
            :func:`grass_gnn.fit`.

    Example:
        >>> model = finetune("runs/logS", "own.csv", target="pKa", freeze=True)  # doctest: +SKIP
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            options |= {"target": target, "freeze": freeze, "level": level, "settings": settings}
            if isinstance(data, (str, Path)) and is_table(data):
                options = {"forest": False, **options}  # the model alone is returned
            return replace(finetune(run, data, Path(folder) / "run", **options), folder=None)
    source = run if isinstance(run, TrainedModel) else load_model(run, "cpu")  # to copy from
    pretrained = Pretrained(source, freeze)
    if isinstance(data, (str, Path)) and is_table(data):
        trained = finetune_table(pretrained, data, target, out, settings=settings, **options)
        return load_model(out, device_of(trained.model))
    graphs = read_graphs(data) if isinstance(data, (str, Path)) else data
    spec, run_options = graph_options(level, target, options)
    trained = finetune_graphs(pretrained, graphs, spec, out, run_options, settings)
    return load_model(out, device_of(trained.model))


def finetune_table(
    pretrained: Pretrained,
    path: str | Path,
    targets: TableSpec | str | Sequence[str],
    out: str | Path,
    options: RunOptions | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """Fine-tune a model on a table of molecules and write a run folder.

    Args:
        pretrained: The model to start from; it must have been trained on molecules.
        path: The table.
        targets: Columns to predict, or a :class:`TableSpec`. The features are those of the
            pretrained model, and so is the column of SMILES if the table has it.
        out: The run folder.
        options: How to run the training.
        settings: Changes to the configuration, by dotted name.
        **fields: Further fields of :class:`TableSpec` and :class:`RunOptions`.
    """
    spec, options = table_options(targets, options, fields)
    out = Path(out)
    check_folder(out, options.resume)
    schema = TableSchema.from_card(pretrained.source.card)
    if schema is None:
        raise GrassError(
            f"Cannot fine-tune on a table: {pretrained.name} was not trained on molecules."
        )
    if spec.smiles is None and schema.smiles in open_table(path).columns:
        spec = replace(spec, smiles=schema.smiles)
    with reporting(options.progress):
        data = read_tables(path, replace(spec, features=schema.features), options.seed)
    for sentence in data.summary:
        logger.info(sentence)
    _warn_of_familiar(pretrained, data)
    config = pretrained.choose_table_config(data, settings)
    logger.info(pretrained.describe(config))
    return train_table(data, config, out, path, options, pretrained, spec)


def _warn_of_familiar(pretrained: Pretrained, data: TableData) -> None:
    """Warn if the source was trained on molecules that the new run is selected or scored on."""
    try:
        reference = similarity_reference(pretrained.source)
    except GrassError:  # the file is damaged, but only this warning needs it
        return
    if reference is None:
        return
    for split, title in (("val", "validation"), ("test", "test")):
        if (bits := data.fingerprints.get(split)) is None:
            continue
        # "At least", because the reference has at most 2,000 training molecules.
        if same := count_familiar(reference.nearest(bits)):
            logger.warning(
                "At least %d of %d %s molecules have the fingerprint of a training molecule of %s: "
                "scores and error bars are too good if its targets are the same or related.",
                same,
                len(bits),
                title,
                pretrained.name,
            )


def finetune_graphs(
    pretrained: Pretrained,
    data: Graphs,
    spec: GraphSpec,
    out: str | Path,
    options: RunOptions | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Fine-tune a model on PyG graphs and write a run folder."""
    options = options or RunOptions()
    check_folder(Path(out), options.resume)
    splits = split_graphs(data, spec, options.seed)
    inferred, task = spec.infer(splits)
    features = pretrained.check_features(inferred)
    # Only of tables is it known that edges are bonds.
    settings = {"training.kekule_forms": False, **(settings or {})}
    config = pretrained.choose_config(splits["train"], features, task, settings)
    card = {"classes": class_names(splits)}
    return train_graphs(splits, config, out, options, card=card, pretrained=pretrained)
