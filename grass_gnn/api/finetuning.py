"""Where a fine-tuned run starts: the weights of another, and what its data must have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from grass_gnn.api.fitting import Graphs, train_graphs, train_table
from grass_gnn.api.graphs import divide, infer_graph_task, infer_input, read_graphs
from grass_gnn.api.settings import plan, suited_settings
from grass_gnn.config import FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.files import is_table, open_table
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.data.tables.splits import DEFAULT_SHARES
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import TrainedModel, load_model
from grass_gnn.files import read_json, write_json
from grass_gnn.nn.model import BODY, GRASS, FrozenGRASS
from grass_gnn.progress import Progress, reporting
from grass_gnn.training.build import build_model
from grass_gnn.training.run import Run, check_folder

FILE = "start.json"
GENTLER = 5  # what the learning rate of trained weights is divided by
# Settings that leave the layers, and what they are fed with, as they are.
_FREE = ("training.", "evaluation.", "task.loss", "task.metric")
_FREE_OF_MODEL = ("model.head_hidden", "model.edge_removal", "model.checkpoint")


@dataclass(frozen=True)
class Start:
    """A trained model to start from, and whether all but a new head is frozen."""

    source: TrainedModel
    freeze: bool = False

    def plan(
        self,
        graphs: Any,
        features: InputConfig,
        task: TaskConfig,
        settings: Mapping[str, Any] | None = None,
    ) -> GRASSConfig:
        """The source's settings, but training by the size of the new data, and gently.

        Args:
            graphs: The new training graphs.
            features: What they come with.
            task: The new task.
            settings: Changes, by dotted name, that leave the layers as they are.
        """
        settings = dict(settings or {})
        for name in settings:
            if not name.startswith(_FREE) and name not in _FREE_OF_MODEL:
                raise GrassError(
                    f"The setting {name} cannot be changed: the layers and their inputs are those "
                    f"of {self.name}."
                )
        suited = {
            name: value
            for name, value in suited_settings(graphs).items()
            if name in ("training.batch_size", "training.epochs", "training.patience")
        }
        # A new head alone may learn as fast as before; trained layers are to be moved a little.
        rate = self.source.config.training.learning_rate / (1 if self.freeze else GENTLER)
        config = self.source.config.override({**suited, "training.learning_rate": rate})
        return plan(graphs, features, task, config, settings)

    def build(self, config: GRASSConfig, data: PreparedData, seed: int) -> GRASS:
        """A model with the source's layers and a new head.

        Frozen layers keep their norms' statistics. Others collect them anew, from the new graphs.
        """
        fresh = build_model(config, data, seed)
        source, own = self.source.model.state_dict(), fresh.state_dict()
        learned = {name for name, _ in self.source.model.named_parameters()}
        kept = {
            name: value
            for name, value in source.items()
            if name.split(".")[0] in BODY and (self.freeze or name in learned)
        }
        if self.freeze and {"pooling.scales"} <= own.keys() & source.keys():
            kept["pooling.scales"] = source["pooling.scales"]  # so that embeddings stay the same
        assert isinstance(fresh, GRASS)
        model = FrozenGRASS(config) if self.freeze else fresh
        model.load_state_dict({**own, **kept})
        return model

    def check_features(self, given: InputConfig) -> InputConfig:
        """The features of the source, if graphs with the given ones fit them.

        Raises:
            GrassError: They do not.
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
        """Write into a run folder where it starts; a resumed run must have started there.

        Raises:
            GrassError: It started elsewhere.
        """
        start = {
            "run": str(self.source.folder),
            "weights_sha256": self.source.card.get("weights_sha256"),
            "frozen": self.freeze,
        }
        if resume and (folder / FILE).is_file():
            before = read_json(folder / FILE)
            for what in ("weights_sha256", "frozen"):
                if before.get(what) != start[what]:
                    raise GrassError(
                        f"The run in {folder} started from {before.get('run')}"
                        f"{', frozen' if before.get('frozen') else ''}: resume it so."
                    )
            return before
        write_json(folder / FILE, start)
        return start

    @property
    def name(self) -> str:
        """How sentences call the source."""
        return "the model" if self.source.folder is None else f"the run in {self.source.folder}"

    def describe(self, config: GRASSConfig) -> str:
        """What is trained, from where and how fast, in a sentence."""
        trained = "a new head on frozen layers" if self.freeze else "all layers and a new head"
        rate, before = config.training.learning_rate, self.source.config.training.learning_rate
        return (
            f"Start: {self.name}. To be trained: {trained}, at a learning rate of {rate:.3g} "
            f"(there: {before:.3g})."
        )


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
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
    **table_options: Any,
) -> TrainedModel:
    """Train a model further, on other data, with a new head for their targets.

    Features, encoding, rewiring and layers are those of the model to start from.

    Args:
        run: The folder of a run, or a model, to start from.
        data: What :func:`grass_gnn.fit` takes: graphs, a file of them, or a table of molecules.
        out: The run folder; if not given, only the model that is returned remains.
        target: Of a table, the column or columns to learn.
        freeze: Train the new head alone; layers, and the statistics of their norms, stay as they
            are. If not, all weights are trained and the norms' statistics are those of the new
            graphs.
        level: What has a target: ``"graph"``, ``"node"`` or ``"edge"``; inferred if not given.
        task: Kind of the task; inferred if not given.
        shares: Shares of training, validation and test, where they are drawn.
        settings: Changes by dotted name, of ``training``, ``evaluation`` and the head.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        progress: Told what is done; a bar on a terminal if not given.
        table_options: Of a table, what else :func:`finetune_table` takes.

    Example:
        >>> model = finetune("runs/logS", "own.csv", target="pKa", freeze=True)  # doctest: +SKIP
    """
    given: dict[str, Any] = {"shares": shares, "task": task, "settings": settings, "seed": seed}
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            given |= {"target": target, "freeze": freeze, "level": level, "progress": progress}
            found = finetune(run, data, Path(folder) / "run", **given, **table_options)
            return replace(found, folder=None)
    start = Start(run if isinstance(run, TrainedModel) else load_model(run), freeze)
    out = Path(out)
    given |= {"resume": resume, "progress": progress}
    if isinstance(data, (str, Path)) and is_table(data):
        targets = [target] if isinstance(target, str) else list(target)
        finetune_table(start, data, targets, out, **given, **table_options)
        return load_model(out)
    if table_options or target:
        unused = ", ".join([*table_options, *(["target"] if target else [])])
        raise GrassError(f"Of a list of graphs, there is no use for {unused}.")
    graphs = read_graphs(data) if isinstance(data, (str, Path)) else data
    _finetune_graphs(start, graphs, out, level, **given)
    return load_model(out)


def finetune_table(
    start: Start,
    path: str | Path,
    targets: Sequence[str],
    out: Path,
    *,
    smiles: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    workers: int = 1,
    logger: str | None = None,
    console: Console | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    progress: Progress | None = None,
    **reading: Any,
) -> Run:
    """Train a model further on a table of molecules, and leave a run folder.

    Args:
        start: What to start from, a model that was trained on molecules.
        path: The table.
        targets: Columns to learn.
        out: The run folder.
        smiles: Column of SMILES; that of the start, or found by its name, if not given.
        settings: Changes to the settings, by dotted name.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        workers: Threads that prepare batches.
        logger: Another place to log to.
        console: Where the progress of training goes.
        say: Told what was found, a sentence at a time.
        progress: Told about reading and evaluation; a bar on a terminal if not given.
        reading: What else :func:`read_tables` takes, but for the features, which are the start's.
    """
    check_folder(out, resume)
    schema = TableSchema.from_card(start.source.card)
    if schema is None:
        raise GrassError(f"A table needs a model of molecules, which {start.name} is not.")
    if smiles is None and schema.smiles in open_table(path).columns:
        smiles = schema.smiles
    with reporting(progress) as report:
        data = read_tables(
            path,
            targets,
            smiles=smiles,
            features=schema.features,
            seed=seed,
            progress=report,
            **reading,
        )
    for sentence in data.said:
        say(sentence)
    features = start.source.config.input.model_copy(
        update={"descriptors": len(data.schema.descriptors)}
    )
    config = start.plan(data.splits["train"], features, data.task, settings)
    say(start.describe(config))
    return train_table(
        data,
        config,
        out,
        path,
        seed=seed,
        resume=resume,
        start=start,
        workers=workers,
        logger=logger,
        console=console,
        progress=progress,
    )


def _finetune_graphs(
    start: Start,
    data: Graphs,
    out: Path,
    level: str | None,
    task: str | None,
    shares: Sequence[float],
    settings: Mapping[str, Any] | None,
    seed: int,
    resume: bool,
    progress: Progress | None,
) -> None:
    check_folder(out, resume)
    splits = divide(data, level, shares, seed)
    graphs = list({id(one): one for part in splits.values() for one in part}.values())
    features = start.check_features(infer_input(graphs))
    found = infer_graph_task(graphs, level, task)
    config = start.plan(splits["train"], features, found, settings)
    card = {"classes": graphs[0].get("classes") or []}
    train_graphs(splits, config, out, seed, resume, card=card, start=start, progress=progress)
