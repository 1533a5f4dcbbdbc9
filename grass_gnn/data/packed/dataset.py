"""Packed graphs: the graphs of a split, checked, encoded and laid end to end in long tensors."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from grass_gnn.config import EncodingConfig, GRASSConfig
from grass_gnn.data.batch import InputGraphs, known_pairs
from grass_gnn.data.checking import (
    MASKS,
    CheckedGraph,
    check,
    check_sizes,
    field_of,
    row_of,
    stored_type,
    type_in_use,
)
from grass_gnn.data.packed.kekule import KekuleForms
from grass_gnn.encoding import Encoding, make_encoding
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent
from grass_gnn.tasks import make_task

if TYPE_CHECKING:
    from torch_geometric.data import Data

Shapes = dict[str, tuple[torch.dtype, tuple[int, ...]]]

_SHARD = 2048  # graphs packed at a time

# Of InputGraphs: what is not a tensor with rows of nodes, edges, graphs or targets.
_STRUCTURE = ("graph_ptr", "edge_index", "stored", "added", "known_pairs")


@dataclass(frozen=True)
class PackedDataset:
    """The graphs of a split; batches are gathered without a loop over graphs.

    Tensors are stored in the smallest type for their values (``edge_index`` as rows [E, 2], with
    nodes numbered within their graph) and converted to the types of the model on selection.
    """

    graph_ptr: Tensor  # [B + 1] first node of each graph
    edge_ptr: Tensor  # [B + 1] first edge of each graph
    tensors: dict[str, Tensor]
    types: dict[str, torch.dtype]  # of selected tensors
    level: str  # what has a target: "graph", "node" or "edge"
    mask_name: str | None = None  # the mask of the targets that count
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)  # shared by the splits

    def __post_init__(self) -> None:
        for name in self.tensors:
            field_of(name)  # raises if unknown

    def __len__(self) -> int:
        return self.graph_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.graph_ptr[-1])

    @property
    def num_edges(self) -> int:
        """Number of input edges of all graphs."""
        return int(self.edge_ptr[-1])

    def for_split(self, split: str) -> PackedDataset:
        """The same graphs; if they have masks, only the targets of one split count."""
        name = f"{split}_mask"
        return replace(self, mask_name=name) if name in self.tensors else self

    def first(self, count: int) -> PackedDataset:
        """The first ``count`` graphs, as views."""
        return self.part(0, min(count, len(self)))

    def part(self, start: int, stop: int) -> PackedDataset:
        """The graphs ``start`` to ``stop - 1``, as views."""
        nodes, edges = self.graph_ptr[start : stop + 1], self.edge_ptr[start : stop + 1]
        rows = {
            "graph": slice(start, stop),
            "node": slice(int(nodes[0]), int(nodes[-1])),
            "edge": slice(int(edges[0]), int(edges[-1])),
        }
        tensors = {
            name: tensor[rows[row_of(name, self.level)]] for name, tensor in self.tensors.items()
        }
        return replace(
            self,
            graph_ptr=nodes - nodes[0],
            edge_ptr=edges - edges[0],
            tensors=tensors,
            _known={},
        )

    def select(self, ids: Tensor) -> InputGraphs:
        """The graphs with these indices [B'], in this order, laid end to end."""
        if len(self) == 1 and ids.numel() == 1:
            return self._only_graph
        return self._gather(ids)

    def with_known_pairs(self, graphs: InputGraphs, encoding: EncodingConfig) -> InputGraphs:
        """Add the encodings of input edges of a single large graph, computed only once."""
        encoder = make_encoding(encoding)
        if len(self) > 1 or not encoder.costly_pairs:
            return graphs
        key = encoding.model_dump_json()
        if key not in self._known:
            self._known[key] = known_pairs(graphs, encoder)
        return replace(graphs, known_pairs=self._known[key])

    @cached_property
    def _only_graph(self) -> InputGraphs:
        """The single graph of this dataset, gathered once rather than at each step."""
        return self._gather(torch.zeros(1, dtype=torch.int64))

    @cached_property
    def large_graph(self) -> LargeGraph:
        """The single graph of this dataset, from which parts can be taken."""
        return LargeGraph.of(self._only_graph)

    @cached_property
    def kekule_forms(self) -> KekuleForms:
        """The Kekulé forms of the molecules of this dataset."""
        return KekuleForms(self.edge_ptr, self.tensors["edge_index"], self.tensors["edge_attr"])

    def _gather(self, ids: Tensor) -> InputGraphs:
        graph_ptr, nodes = spans(self.graph_ptr, ids)
        edge_ptr, edges = spans(self.edge_ptr, ids)
        rows = {"graph": ids, "node": nodes, "edge": edges}
        found = {
            name: tensor.index_select(0, rows[row_of(name, self.level)]).to(
                self.types.get(name, tensor.dtype)
            )
            for name, tensor in self.tensors.items()
            if name not in MASKS or name == self.mask_name
        }
        first_node = torch.repeat_interleave(graph_ptr[:-1], edge_ptr.diff())  # [E]
        edge_index = found.pop("edge_index").t() + first_node  # [2, E]
        given = {name: found.pop(name) for name in _GIVEN if name in found}
        if self.mask_name:
            given["mask"] = found.pop(self.mask_name)
        return InputGraphs(graph_ptr=graph_ptr, edge_index=edge_index, stored=found, **given)


# Stored tensors with an attribute of their own in InputGraphs; the others belong to the encoding.
_GIVEN = ("x", "edge_attr", "y", "descriptors")


def spans(ptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where each selected span starts when they are laid end to end [B' + 1], and all rows."""
    first, size = ptr[ids], ptr[ids + 1] - ptr[ids]  # [B'] each
    new = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    torch.cumsum(size, 0, out=new[1:])
    total = int(new[-1])
    offset = torch.repeat_interleave(first - new[:-1], size, output_size=total)
    return new, offset + torch.arange(total)


def from_tensors(tensors: Mapping[str, Tensor], config: GRASSConfig) -> PackedDataset:
    """A dataset from the tensors that ``packed_shapes`` describes."""
    rest = dict(tensors)
    graph_ptr, edge_ptr = rest.pop("graph_ptr"), rest.pop("edge_ptr")
    types = {name: type_in_use(name, config) for name in rest}
    return PackedDataset(graph_ptr, edge_ptr, rest, types, config.task.level)


def pack(
    graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True, workers: int | None = None
) -> PackedDataset:
    """Check, encode and pack graphs in memory.

    Encodings that transforms have written to the graphs are not used.

    Args:
        graphs: PyG graphs.
        config: The input, task and encoding.
        targets: Whether graphs must have targets; otherwise ``y`` is left out.
        workers: Number of threads that compute eigenvectors; by default the number of cores.
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
    """Encode and pack graphs that need no checks, such as featurized molecules."""
    encoding = make_encoding(config.encoding)
    rows = _shard_rows(list(graphs), encoding)
    if encoding.spectral:
        spectra = list(encode_spectra(graphs, encoding, workers))
        rows |= {name: torch.cat([found[name] for found in spectra]) for name in spectra[0]}
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs])
    return from_tensors(rows | pointers(nodes, edges), config)


def packed_shapes(graphs: Sequence[Data], config: GRASSConfig, *, targets: bool = True) -> Shapes:
    """Type and shape of each tensor of the packed graphs."""
    nodes, edges = check_sizes(graphs)
    masks = [name for name in MASKS if targets and name in graphs[0]]
    return shapes_of(nodes, edges, config, masks, targets=targets)


def shapes_of(
    nodes: Tensor, edges: Tensor, config: GRASSConfig, masks: Sequence[str], *, targets: bool = True
) -> Shapes:
    """Type and shape of each tensor of packed graphs with these numbers of nodes and edges [B]."""
    task, inputs = make_task(config.task), config.input
    # Number of columns of each tensor; 0 for a vector.
    columns = {"edge_index": 2}
    for name, features in (("x", inputs.nodes), ("edge_attr", inputs.edges)):
        if features.num_columns:
            columns[name] = features.num_columns
    if inputs.descriptors:
        columns["descriptors"] = inputs.descriptors
    if targets:
        columns["y"] = 0 if len(task.target_shape(1)) == 1 else task.target_columns
    columns |= dict.fromkeys(masks, 0) | make_encoding(config.encoding).stored_columns

    count = {"graph": len(nodes), "node": int(nodes.sum()), "edge": int(edges.sum())}
    pointer = (torch.int64, (count["graph"] + 1,))
    shapes: Shapes = {"graph_ptr": pointer, "edge_ptr": pointer}
    for name, width in columns.items():
        rows = count[row_of(name, task.level)]
        dtype = stored_type(name, config, int(nodes.max()))
        shapes[name] = (dtype, (rows, width) if width else (rows,))
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
    """The rows of the packed tensors (without pointers), and how many graphs they complete.

    ``keep`` and ``progress`` are for the eigenpairs of large graphs, see :func:`encode_spectra`.
    """
    encoding = make_encoding(config.encoding)
    for first in range(0, len(graphs), _SHARD):
        shard = [
            check(number, graphs[number], config, targets)
            for number in range(first, min(first + _SHARD, len(graphs)))
        ]
        for number, graph in enumerate(shard, first):
            if graph.masks.keys() != shard[0].masks.keys():
                raise GrassError(f"Graph {number} has different masks from graph {first}.")
        yield 0 if encoding.spectral else len(shard), _shard_rows(shard, encoding)
        if encoding.spectral:
            for rows in encode_spectra(shard, encoding, workers, first, keep, progress):
                yield 1, rows


def encode_spectra(
    graphs: Sequence[CheckedGraph],
    encoding: Encoding,
    workers: int | None = None,
    first_number: int = 0,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Iterator[dict[str, Tensor]]:
    """:meth:`Encoding.compute_spectrum` of each graph in turn, on all cores.

    Threads are enough, because the solvers release Python's lock; each is limited to one core.
    Only a few results are held at a time.

    Args:
        graphs: The graphs.
        encoding: An encoding that needs eigenvectors.
        workers: Number of threads; by default the number of cores.
        first_number: Number of the first graph, for error messages.
        keep: Folder for intermediate results of the eigenpairs of large graphs, for resuming.
        progress: Called with the number of eigenpairs of a large graph found so far.
    """
    workers = min(workers or os.cpu_count() or 1, len(graphs))

    def encode(number: int, graph: CheckedGraph) -> dict[str, Tensor]:
        place = None if keep is None else keep / str(number)
        try:
            return encoding.compute_spectrum(
                graph.edge_index, graph.num_nodes, graph.weight, place, progress
            )
        except GrassError:
            raise
        except ValueError as error:  # such as a directed graph with encoding.directed = "error"
            raise GrassError(f"Graph {number} cannot be encoded: {error}") from error

    waiting: deque[Future[dict[str, Tensor]]] = deque()
    with threadpool_limits(1 if workers > 1 else None), ThreadPoolExecutor(workers) as pool:
        try:
            for number, graph in enumerate(graphs, first_number):
                waiting.append(pool.submit(encode, number, graph))
                if len(waiting) > 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def pointers(num_nodes: Tensor, num_edges: Tensor) -> dict[str, Tensor]:
    """Where the nodes and edges of each graph start, from their counts [B]."""
    start = torch.zeros(1, dtype=torch.int64)
    return {
        "graph_ptr": torch.cat([start, num_nodes.cumsum(0)]),
        "edge_ptr": torch.cat([start, num_edges.cumsum(0)]),
    }


def _shard_rows(shard: list[CheckedGraph], encoding: Encoding) -> dict[str, Tensor]:
    edge_index = torch.cat([graph.edge_index.long() for graph in shard], dim=1)  # [2, E]
    rows = {"edge_index": edge_index.t()}
    for name in _GIVEN:
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
    rows |= encoding.compute(union, int(nodes.sum()), weight)
    return rows


@dataclass(frozen=True)
class PoolingStatistics:
    """Means over the training set that the pooled sums are divided by."""

    mean_nodes: float
    mean_edges: float  # as given: no self-loops, no added edges
    mean_pairs: float  # |V| (|V| − 1)

    @classmethod
    def of(cls, dataset: PackedDataset) -> PoolingStatistics:
        """The means over a dataset."""
        nodes = dataset.graph_ptr.diff().double()
        edges = dataset.edge_ptr.diff().double()
        pairs = nodes * (nodes - 1)
        return cls(float(nodes.mean()), float(edges.mean()), float(pairs.mean()))


@dataclass(frozen=True)
class LargeGraph:
    """A single graph with node targets, and an index of the in-edges of each node."""

    graph: InputGraphs
    ptr: Tensor  # [N + 1]
    edges: Tensor  # [E] row of each edge, sorted by tail

    @classmethod
    def of(cls, graph: InputGraphs) -> LargeGraph:
        """Sort the edges of a graph by their tails."""
        tail = graph.edge_index[1]
        ptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(tail, minlength=graph.num_nodes), 0, out=ptr[1:])
        return cls(graph, ptr, torch.argsort(tail, stable=True))

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all edges into some nodes, and the position in ``nodes`` of the tail of each."""
        ptr, rows = spans(self.ptr, nodes)
        return self.edges[rows], torch.repeat_interleave(ptr.diff())  # [E'] each

    def induced(self, nodes: Tensor, counting: Tensor | None = None) -> InputGraphs:
        """The subgraph of some nodes, given in ascending order, and of all edges among them.

        Its edges are sorted by tail. The nodes in ``counting`` count in the loss; if it is not
        given, those that count in the whole graph do.
        """
        rows, tail = self.in_edges(nodes)
        whole = self.graph
        heads = whole.edge_index[0][rows]  # [E'] in the whole graph
        head = torch.searchsorted(nodes, heads).clamp(max=len(nodes) - 1)
        inside = nodes[head] == heads
        rows, head, tail = rows[inside], head[inside], tail[inside]

        def part(name: str, tensor: Tensor) -> Tensor:
            row = row_of(name, "node")
            return tensor if row == "graph" else tensor[nodes if row == "node" else rows]

        found = {
            one.name: part(one.name, tensor)
            for one in fields(whole)
            if one.name not in _STRUCTURE and (tensor := getattr(whole, one.name)) is not None
        }
        if counting is not None:
            found["mask"] = torch.isin(nodes, counting)
        return InputGraphs(
            graph_ptr=torch.tensor([0, len(nodes)]),
            edge_index=torch.stack([head, tail]),
            stored={name: part(name, tensor) for name, tensor in whole.stored.items()},
            **found,
        )

    def around(self, seeds: Tensor, fan_outs: list[int], generator: torch.Generator) -> Tensor:
        """The seed nodes and nodes near them, in ascending order.

        In each hop, at most ``fan_outs[hop]`` in-edges of each node reached by the last hop are
        drawn without replacement, and followed to their heads.
        """
        found = reached = seeds.sort().values
        for fan_out in fan_outs:
            rows, owner = self.in_edges(reached)
            # The first few edges of each node, in random order.
            order = torch.randperm(owner.numel(), generator=generator)
            order = order[torch.argsort(owner[order], stable=True)]
            count = torch.bincount(owner, minlength=len(reached))
            place = torch.arange(owner.numel()) - (count.cumsum(0) - count)[owner]
            heads = self.graph.edge_index[0][rows[order[place < fan_out]]].unique()
            reached = heads[~torch.isin(heads, found)]
            found = torch.cat([found, reached]).sort().values
        return found
