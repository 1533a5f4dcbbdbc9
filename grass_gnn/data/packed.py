"""Graphs laid end to end in a few long tensors, in memory or in a memory-mapped file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import EncodingConfig, FeatureConfig, GRASSConfig
from grass_gnn.data.batch import InputGraphs, known_pairs
from grass_gnn.data.checking import CheckedGraph, check, check_sizes
from grass_gnn.data.encode import encode_spectra, encode_structure, stored_columns
from grass_gnn.data.large_graph import LargeGraph
from grass_gnn.data.sbm import SPLITS
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent

Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]

# What a row of each tensor belongs to; y and masks follow the task.
_ROW_OF = {
    "x": "node",
    "degree": "node",
    "vectors": "node",
    "laplacian": "node",
    "edge_index": "edge",
    "edge_attr": "edge",
    "transition": "edge",
    "values": "graph",
    "descriptors": "graph",
}
_SHARD = 2048  # graphs that are packed at a time


@dataclass(frozen=True)
class PackedDataset:
    """The graphs of a split; a batch of any of them is gathered without a loop over graphs.

    Tensors keep the smallest type that holds their values (``edge_index`` the numbers of nodes
    within their graph, as rows [E, 2]) and become what the model takes when graphs are selected.
    """

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_ptr: Tensor  # [B + 1] first edge of each graph
    tensors: dict[str, Tensor]
    types: dict[str, torch.dtype]  # of selected tensors
    level: str  # what has a target: "graph", "node" or "edge"
    mask_name: str | None = None  # the tensor that says which targets count
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)  # shared by the splits

    def __len__(self) -> int:
        return self.graph_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of edges of all graphs, as they were given."""
        return int(self.edge_ptr[-1])

    def for_split(self, split: str) -> PackedDataset:
        """The same graphs where only the targets of one split count, if they have masks."""
        name = f"{split}_mask"
        return replace(self, mask_name=name) if name in self.tensors else self

    def first(self, count: int) -> PackedDataset:
        """The first so many graphs; nothing is copied."""
        count = min(count, len(self))
        graph_ptr, edge_ptr = self.graph_ptr[: count + 1], self.edge_ptr[: count + 1]
        rows = {"graph": count, "node": int(graph_ptr[-1]), "edge": int(edge_ptr[-1])}
        tensors = {
            name: tensor[: rows[_ROW_OF.get(name, self.level)]]
            for name, tensor in self.tensors.items()
        }
        return replace(self, graph_ptr=graph_ptr, edge_ptr=edge_ptr, tensors=tensors, _known={})

    def select(self, ids: Tensor) -> InputGraphs:
        """The graphs with these numbers [B'], in this order, laid end to end."""
        if len(self) == 1 and ids.numel() == 1:
            return self._only_graph
        return self._gather(ids)

    def with_known_pairs(self, graphs: InputGraphs, encoding: EncodingConfig) -> InputGraphs:
        """Add what rewiring does not change: of a single large graph it is encoded only once."""
        if len(self) > 1 or encoding.kind != "decomposed-rrwp":
            return graphs
        key = encoding.model_dump_json()
        if key not in self._known:
            self._known[key] = known_pairs(graphs, encoding)
        return replace(graphs, known_pairs=self._known[key])

    @cached_property
    def _only_graph(self) -> InputGraphs:
        """A single large graph is the same every time, and not worth copying at each step."""
        return self._gather(torch.zeros(1, dtype=torch.int64))

    @cached_property
    def large_graph(self) -> LargeGraph:
        """The only graph, with its edges in order, to take parts of it."""
        return LargeGraph.of(self._only_graph)

    def _gather(self, ids: Tensor) -> InputGraphs:
        graph_ptr, nodes = _spans(self.graph_ptr, ids)
        edge_ptr, edges = _spans(self.edge_ptr, ids)
        rows = {"graph": ids, "node": nodes, "edge": edges}
        found = {}
        for name, tensor in self.tensors.items():
            if not name.endswith("_mask") or name == self.mask_name:
                row = rows[_ROW_OF.get(name, self.level)]
                found[name] = tensor.index_select(0, row).to(self.types.get(name, tensor.dtype))
        first_node = torch.repeat_interleave(graph_ptr[:-1], edge_ptr.diff())  # [E]
        edge_index = found.pop("edge_index").t() + first_node  # [2, E]
        mask = found.pop(self.mask_name) if self.mask_name else None
        return InputGraphs(graph_ptr=graph_ptr, edge_index=edge_index, mask=mask, **found)


def _spans(ptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where each chosen span starts when they are laid end to end [B' + 1], and all its rows."""
    first, size = ptr[ids], ptr[ids + 1] - ptr[ids]  # [B'] each
    new = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    torch.cumsum(size, 0, out=new[1:])
    total = int(new[-1])
    offset = torch.repeat_interleave(first - new[:-1], size, output_size=total)
    return new, offset + torch.arange(total)


def pack(
    graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True, workers: int | None = None
) -> PackedDataset:
    """Check, encode and pack graphs in memory.

    Args:
        graphs: PyG graphs.
        config: What they must fit, and their encoding.
        targets: Whether they must have targets; without, ``y`` is left out.
        workers: Threads that look for eigenvectors; as many as there are cores if not given.
    """
    shapes = packed_shapes(graphs, config, targets=targets)
    parts: dict[str, list[Tensor]] = {}
    for _, rows in packed_rows(graphs, config, targets=targets, workers=workers):
        for name, tensor in rows.items():
            parts.setdefault(name, []).append(tensor)
    tensors = {name: torch.cat(part) for name, part in parts.items()}
    tensors |= pointers(*check_sizes(graphs))
    return from_tensors({name: tensors[name].to(shapes[name][0]) for name in shapes}, config)


def pack_checked(
    graphs: Sequence[CheckedGraph], config: GRASSConfig, *, workers: int | None = None
) -> PackedDataset:
    """Encode and pack graphs that need no checks, such as molecules that were read here."""
    rows = _shard_rows(list(graphs), config)
    if config.encoding.kind in ("decomposed-rrwp", "laplacian"):
        spectra = list(encode_spectra(graphs, config.encoding, workers))
        rows |= {name: torch.cat([found[name] for found in spectra]) for name in spectra[0]}
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs])
    return from_tensors(rows | pointers(nodes, edges), config)


def from_tensors(tensors: dict[str, Tensor], config: GRASSConfig) -> PackedDataset:
    """A dataset from the tensors that :func:`packed_shapes` describes."""
    tensors = dict(tensors)
    classes = config.task.kind == "classification"
    types = {
        "x": _type_in_use(config.input.nodes),
        "edge_attr": _type_in_use(config.input.edges),
        "edge_index": torch.int64,
        "y": torch.int64 if classes else torch.float32,
    }
    return PackedDataset(
        tensors.pop("graph_ptr"), tensors.pop("edge_ptr"), tensors, types, config.task.level
    )


def packed_shapes(graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True) -> Shapes:
    """Type and shape of each tensor of the packed graphs."""
    nodes, edges = check_sizes(graphs)
    masks = [f"{split}_mask" for split in SPLITS if f"{split}_mask" in graphs[0]]
    return shapes_of(nodes, edges, config, masks, targets=targets)


def shapes_of(
    nodes: Tensor, edges: Tensor, config: GRASSConfig, masks: Sequence[str], *, targets: bool = True
) -> Shapes:
    """Type and shape of each tensor of packed graphs with these numbers of nodes and edges [B]."""
    count = {"graph": len(nodes), "node": int(nodes.sum()), "edge": int(edges.sum())}
    shapes: Shapes = {
        "graph_ptr": (torch.int64, (count["graph"] + 1,)),
        "edge_ptr": (torch.int64, (count["graph"] + 1,)),
        "edge_index": (_smallest_type(int(nodes.max()) - 1), (count["edge"], 2)),
    }
    for name, features in (("x", config.input.nodes), ("edge_attr", config.input.edges)):
        if features.kind != "none":
            continuous = features.kind in ("one-hot", "continuous")
            columns = features.sizes[0] if continuous else len(features.categories)
            shapes[name] = (_stored_type(features), (count[_ROW_OF[name]], columns))
    if config.input.descriptors:
        shapes["descriptors"] = (torch.float32, (count["graph"], config.input.descriptors))
    task = config.task
    if targets and task.kind == "classification":
        shapes["y"] = (_smallest_type(task.outputs - 1), (count[task.level],))
    elif targets:
        shapes["y"] = (torch.float32, (count[task.level], task.outputs))
    shapes |= dict.fromkeys(masks, (torch.bool, (count[task.level],)))
    for name, columns in stored_columns(config.encoding).items():
        rows = count[_ROW_OF[name]]
        shapes[name] = (torch.float32, (rows, columns) if columns else (rows,))
    return shapes


def packed_rows(
    graphs: Sequence[Data],
    config: GRASSConfig,
    *,
    targets: bool = True,
    workers: int | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The rows of the packed tensors (but for the pointers), and how many graphs they finish.

    ``keep`` and ``progress`` are for the eigenpairs of large graphs, see :func:`encode_spectra`.
    """
    spectral = config.encoding.kind in ("decomposed-rrwp", "laplacian")
    for first in range(0, len(graphs), _SHARD):
        shard = [
            check(number, graphs[number], config, targets)
            for number in range(first, min(first + _SHARD, len(graphs)))
        ]
        for number, graph in enumerate(shard, first):
            if graph.masks.keys() != shard[0].masks.keys():
                raise GrassError(f"Graph {number} has other masks than graph {first}.")
        yield 0 if spectral else len(shard), _shard_rows(shard, config)
        if spectral:
            for rows in encode_spectra(shard, config.encoding, workers, first, keep, progress):
                yield 1, rows


def pointers(num_nodes: Tensor, num_edges: Tensor) -> dict[str, Tensor]:
    """Where the nodes and edges of each graph start, from their numbers [B]."""
    start = torch.zeros(1, dtype=torch.int64)
    return {
        "graph_ptr": torch.cat([start, num_nodes.cumsum(0)]),
        "edge_ptr": torch.cat([start, num_edges.cumsum(0)]),
    }


def _shard_rows(shard: list[CheckedGraph], config: GRASSConfig) -> dict[str, Tensor]:
    edge_index = torch.cat([graph.edge_index.long() for graph in shard], dim=1)  # [2, E]
    rows = {"edge_index": edge_index.t()}
    for name in ("x", "edge_attr", "y", "descriptors"):
        if getattr(shard[0], name) is not None:
            rows[name] = torch.cat([getattr(graph, name) for graph in shard])
    for split in shard[0].masks:
        rows[f"{split}_mask"] = torch.cat([graph.masks[split] for graph in shard])
    # Degrees and transition probabilities of many graphs are those of their disjoint union.
    nodes = torch.tensor([graph.num_nodes for graph in shard])
    edges = torch.tensor([graph.edge_index.size(1) for graph in shard])
    union = edge_index + torch.repeat_interleave(nodes.cumsum(0) - nodes, edges)
    weight = None
    if any(graph.weight is not None for graph in shard):
        weight = torch.cat(
            [
                torch.ones(graph.edge_index.size(1)) if graph.weight is None else graph.weight
                for graph in shard
            ]
        )
    rows |= encode_structure(union, int(nodes.sum()), config.encoding, weight)
    return rows


def _smallest_type(largest: int) -> torch.dtype:
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if largest <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


def _stored_type(features: FeatureConfig) -> torch.dtype:
    if features.kind in ("continuous", "one-hot"):
        return torch.float32
    return _smallest_type(max(features.categories) - 1)


def _type_in_use(features: FeatureConfig) -> torch.dtype:
    return torch.float32 if features.kind in ("continuous", "one-hot") else torch.int64
