"""Where a fine-tuned run starts: the weights of another, and what its data must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grass_gnn.config import FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel
from grass_gnn.files import read_json, write_json
from grass_gnn.nn.frozen import BODY, FrozenGRASS
from grass_gnn.nn.model import GRASS
from grass_gnn.training import build_model
from grass_gnn.workflow.plan import plan, suited_settings

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
            if not _fits(mine, other):
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


def _fits(known: FeatureConfig, given: FeatureConfig) -> bool:
    """Whether features can be read by an embedding that was trained with others."""
    if "none" in (known.kind, given.kind):
        return known.kind == given.kind
    if known.kind in ("one-hot", "continuous"):
        alike = given.kind == "one-hot" or given.kind == known.kind
        return alike and known.sizes == given.sizes
    if given.kind in ("one-hot", "continuous"):
        return False
    return len(known.categories) == len(given.categories) and all(
        here <= there for here, there in zip(given.categories, known.categories, strict=True)
    )


def _describe(features: FeatureConfig) -> str:
    sizes = "" if features.kind == "none" else f" {features.sizes or features.categories}"
    return f"{features.kind}{sizes}"
