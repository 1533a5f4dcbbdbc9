"""Trained models: saving, loading and predicting, and the data that they were trained on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeAlias

import torch
from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.dataset import PackedDataset, pack
from grass_gnn.errors import GrassError, RunError, first_line, shortened
from grass_gnn.evaluation.attribution import Attribution, attribute_graph
from grass_gnn.evaluation.explain import Explanation, explain_graph
from grass_gnn.evaluation.protocol import (
    BY_GRAPH,
    TEST,
    check_rewirings,
    device_of,
    embed_split,
    predict_split,
)
from grass_gnn.files import read_checked, read_json, write_checked, write_json
from grass_gnn.hardware import find_device
from grass_gnn.nn.attention import only_shapes
from grass_gnn.nn.model import GRASS
from grass_gnn.progress import Progress, silent

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from grass_gnn.data.packed.prepare import PreparedData


logger = logging.getLogger(__name__)

WEIGHTS, CARD = "weights.safetensors", "config.json"
FORMAT = 1
SHIPPED = Path(__file__).parents[1] / "models"  # trained weights that come with the package
_HEADER = 4096  # bytes that safetensors may take to describe a tensor
_BATCH_GRAPHS, _BATCH_NODES = 256, 40_000  # at most, when predicting


class Prediction(NamedTuple):
    """Predictions under several rewirings."""

    mean: Tensor  # [M, outputs] values, or probabilities
    std: Tensor  # [M, outputs] over rewirings


Graphs: TypeAlias = "Data | Iterable[Data]"
"""A ``Data``, a ``Batch``, a list of graphs, or a PyG loader."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with its configuration, ready to predict."""

    model: GRASS
    config: GRASSConfig
    card: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None  # where it was loaded from

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return device_of(self.model)

    def to(self, device: str | torch.device) -> TrainedModel:
        """Move the model to a device, in place; predictions are returned on the CPU.

        Raises:
            GrassError: There is no such device.
        """
        self.model.to(find_device(device))
        return self

    def __call__(self, graphs: Graphs, **options: Any) -> Prediction:
        """:meth:`predict`."""
        return self.predict(graphs, **options)

    def predict(
        self,
        graphs: Graphs,
        rewirings: int = 16,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Prediction:
        """Predict PyG graphs, averaged over rewirings.

        Args:
            graphs: A ``Data``, a ``Batch``, a list of graphs or a loader; their features must be
                those that the model was trained on.
            rewirings: Number of random rewirings to average over.
            seed: Random seed of the rewirings.
            deterministic: Derive the rewirings of each graph from the graph alone, so that its
                prediction depends neither on the seed nor on the other graphs.

        Example:
            >>> mean, std = load_model("zinc").predict(graphs)  # doctest: +SKIP
        """
        dataset = pack(single_graphs(graphs), self.config, targets=False)
        return self.predict_packed(dataset, rewirings, seed, deterministic)

    def predict_packed(
        self,
        dataset: PackedDataset,
        rewirings: int = 16,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Prediction:
        """:meth:`predict` for graphs that are encoded and packed already."""
        samples = self.sample_packed(dataset, rewirings, seed, deterministic)
        return Prediction(samples.mean(dim=0), samples.std(dim=0, correction=0))

    def sample_packed(
        self,
        dataset: PackedDataset,
        rewirings: int = 16,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Tensor:
        """The predictions of each rewiring [rewirings, M, outputs], for graphs that are packed."""
        check_rewirings(rewirings)
        return torch.stack(
            [
                predict_split(
                    self.model,
                    dataset,
                    self.config,
                    seed,
                    number,
                    BY_GRAPH if deterministic else TEST,
                    batch_size=_size(dataset),
                )[0]
                for number in range(rewirings)
            ]
        )

    def embed(
        self,
        graphs: Graphs,
        level: str = "graph",
        rewirings: int = 16,
        seed: int = 0,
        deterministic: bool = False,
    ) -> Tensor:
        """Embeddings of graphs or of their nodes, averaged over rewirings.

        Args:
            graphs: The graphs, as for :meth:`predict`.
            level: ``"graph"``: the input of the head of a graph task, [B, 3d] and descriptors (for
                other tasks, the mean over nodes, [B, d]); ``"node"``: x after the last layer, of
                all graphs end to end [N, d].
            rewirings: Number of random rewirings to average over.
            seed: Random seed of the rewirings.
            deterministic: Derive the rewirings of each graph from the graph alone.
        """
        dataset = pack(single_graphs(graphs), self.config, targets=False)
        found = embed_split(
            self.model, dataset, self.config, level, rewirings, seed, deterministic, _size(dataset)
        )
        return found.cpu()

    def explain(
        self, graph: Data, rewirings: int = 16, seed: int = 0, deterministic: bool = False
    ) -> Explanation:
        """The attention of each edge of a graph (see :mod:`grass_gnn.evaluation.explain`).

        Args:
            graph: One graph.
            rewirings: Number of random rewirings to average over.
            seed: Random seed of the rewirings.
            deterministic: Derive the rewirings from the graph alone.
        """
        return explain_graph(self.model, self.config, graph, rewirings, seed, deterministic)

    def attribute(self, graph: Data, rewirings: int = 16) -> Attribution:
        """The contribution of each node to the prediction of a graph, by masking.

        See :mod:`grass_gnn.evaluation.attribution`.

        Args:
            graph: One graph.
            rewirings: Number of rewirings to average over; they follow from the graph alone.
        """
        return attribute_graph(self.model, self.config, graph, rewirings)


def single_graphs(graphs: Graphs) -> list[Data]:
    """The single graphs of a ``Data``, a ``Batch``, a list of either, or a loader."""
    from torch_geometric.data import Batch, Data

    if isinstance(graphs, Batch):
        return graphs.to_data_list()
    if isinstance(graphs, Data):
        return [graphs]
    try:
        each = iter(graphs)
    except TypeError:
        what = type(graphs).__name__
        raise TypeError(
            f"Expected a torch_geometric Data, a Batch or a list of Data, not {what}."
        ) from None
    found: list[Data] = []
    for one in each:
        found += one.to_data_list() if isinstance(one, Batch) else [one]
    return found


def _size(dataset: PackedDataset) -> int:
    """Number of graphs per batch."""
    largest = int(dataset.graph_ptr.diff().max())
    return max(1, min(_BATCH_GRAPHS, _BATCH_NODES // largest))


def save_model(model: GRASS, folder: str | Path, **details: Any) -> None:
    """Write the weights and the card of a model; details (seed, data, …) go into the card."""
    folder = Path(folder)
    state = model.state_dict()
    weights = save_tensors(
        {name: value.to("cpu", _stored_type(value)).contiguous() for name, value in state.items()}
    )
    checksum = write_checked(folder / WEIGHTS, weights)
    write_json(
        folder / CARD,
        {
            "format": FORMAT,
            "weights_sha256": checksum,
            "config": model.config.model_dump(mode="json"),
            **details,
        },
    )


def _stored_type(value: Tensor) -> torch.dtype:
    """The type of a tensor in a file of weights, whatever torch's default type is."""
    return torch.float32 if value.is_floating_point() else value.dtype


def shipped_models() -> list[str]:
    """Names of the trained models that come with the package."""
    return sorted(card.parent.name for card in SHIPPED.glob(f"*/{CARD}"))


def model_folder(name: str | Path) -> Path:
    """A run folder, or that of a shipped model if there is no run folder of that name."""
    folder = Path(name)
    if str(name) in shipped_models() and not (folder / CARD).is_file():
        return SHIPPED / str(name)
    return folder


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a trained model: its configuration, checksum, and what it was trained on.

    Raises:
        RunError: It is missing, damaged, or of another version.
    """
    if not (folder / CARD).is_file():
        _refuse(folder)
    card = read_json(folder / CARD)
    if not isinstance(card, dict) or not isinstance(card.get("config"), dict):
        raise RunError(f"The file {folder / CARD} is damaged: it contains no configuration.")
    if card.get("format") != FORMAT:
        raise RunError(
            f"The model in {folder} has format {card.get('format')!r}; this version reads {FORMAT}."
        )
    return card


def refuse_folds(folder: Path) -> None:
    """Raise if a folder is that of a cross-validation, which contains several models."""
    fold = folder / "fold-1"
    if (fold / CARD).is_file():
        raise RunError(
            f"{folder} is the folder of a cross-validation: name one of its runs, such as {fold}."
        )


def _refuse(folder: Path) -> NoReturn:
    refuse_folds(folder)
    raise RunError(
        f"{folder} contains no trained model ({CARD} and {WEIGHTS}), and is not the name of one "
        f"that comes with the package ({', '.join(shipped_models())})."
    )


def load_model(folder: str | Path, device: str | torch.device | None = None) -> TrainedModel:
    """Load a trained model from its run folder, or one that comes with the package by its name.

    Args:
        folder: The run folder, or the name of a model.
        device: Device to run on; the GPU if there is one, otherwise the CPU.

    Example:
        >>> load_model("zinc").config.model.layers
        49

    Raises:
        RunError: The folder is not a run, or a file in it is damaged (the message says which).
        GrassError: There is no such device.
    """
    folder, found = model_folder(folder), find_device(device)
    if not (folder / WEIGHTS).is_file():
        _refuse(folder)
    card = read_card(folder)
    config = GRASSConfig.from_dict(card["config"], str(folder / CARD))
    with only_shapes():  # takes no memory, however large the model
        model = GRASS(config)
    state = model.state_dict().values()
    size = sum(value.numel() * value.element_size() for value in state)
    limit = size + _HEADER * (1 + len(state))
    data = read_checked(folder / WEIGHTS, limit, card.get("weights_sha256"))
    try:
        _load_weights(model, load_tensors(data))
    except GrassError:
        raise
    except (RuntimeError, SafetensorError, ValueError, TypeError) as error:
        reason = shortened([*str(error).splitlines(), ""][1].strip(), 300) or first_line(error)
        raise RunError(
            f"The weights in {folder / WEIGHTS} do not match {CARD}: {reason.rstrip('.')}."
        ) from None
    return TrainedModel(model.eval(), config, card, folder).to(found)


def _load_weights(model: GRASS, weights: dict[str, Tensor]) -> None:
    """Load the weights into a model on the meta device."""
    for name, expected in model.state_dict().items():
        dtype = _stored_type(expected)
        if name in weights and weights[name].dtype != dtype:
            raise ValueError(f"{name} is of type {weights[name].dtype}, not {dtype}")
    model.load_state_dict({name: value.clone() for name, value in weights.items()}, assign=True)


def find_data(
    trained: TrainedModel, data: str | Path | None = None, progress: Progress = silent
) -> PreparedData:
    """The data of a run, from its folder or from the raw files of its benchmark."""
    # Imported here because of PyG's datasets, which take seconds.
    from grass_gnn.data.packed.prepare import open_prepared, prepare_benchmark

    try:
        known = _CardData.model_validate(trained.card.get("data", {}))
    except ValidationError:
        raise GrassError(f"The description of the data in {trained.folder} is damaged.") from None
    origin = known.origin
    if origin.prepared is not None and trained.folder is not None:
        return open_prepared(trained.folder / "data" / origin.prepared, trained.config)
    generate = origin.generated
    if data is None and origin.folder is not None and Path(origin.folder).is_dir():
        data = origin.folder
    prepared = prepare_benchmark(
        trained.config, data, None if data else generate, origin.seed, progress
    )
    if known.fingerprint.hash not in (None, prepared.fingerprint.hash):
        logger.warning(
            "The run used other graphs than these, or only some of them (their hash is %s, not "
            "%s): the scores differ from those in its results.json.",
            prepared.fingerprint.hash,
            known.fingerprint.hash,
        )
    return prepared


class _Origin(BaseModel):
    """Where the data of a run came from, as its card says."""

    prepared: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None  # no path
    folder: str | None = None
    generated: list[int] | None = None
    seed: int = 0


class _Fingerprint(BaseModel):
    """What is known about these data."""

    hash: str | None = None


class _CardData(BaseModel):
    origin: _Origin = _Origin()
    fingerprint: _Fingerprint = _Fingerprint()
