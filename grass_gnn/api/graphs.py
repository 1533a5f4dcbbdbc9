"""Read graphs from NetworkX, tables or files, and infer their features and task.

Features, task and prediction level are inferred from tensors; graphs are split at random or by
their masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import MOST_CATEGORIES, FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.benchmarks.raw import load_tensors_only
from grass_gnn.data.checking import check_sizes, number_tensor
from grass_gnn.data.tables.dataset import random_split
from grass_gnn.data.tables.features import input_config
from grass_gnn.data.tables.files import MISSING, Table, open_table, parse_number
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.schema import TableSchema, infer_task
from grass_gnn.data.tables.spec import DEFAULT_SHARES, SPLITS
from grass_gnn.errors import GrassError, first_line
from grass_gnn.tasks import TASKS, kind_of_tensor, make_task, too_many_classes


def from_networkx(
    graph: Any,
    target: str | None = None,
    node_features: Sequence[str] = (),
    edge_features: Sequence[str] = (),
) -> Data:
    """Convert a NetworkX graph into a PyG graph; the order of the nodes is kept.

    Args:
        graph: A ``Graph``, ``DiGraph`` or multigraph; undirected edges are added in both
            directions.
        target: Node attribute to predict: a number or the name of a class. Nodes without it are
            predicted but not trained on.
        node_features: Numeric node attributes.
        edge_features: Numeric edge attributes.
    """
    if not _is_networkx(graph):
        raise GrassError(f"Expected a NetworkX graph, not a {type(graph).__name__}.")
    nodes = list(graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    pairs, attributes = [], []
    for first, second, values in graph.edges(data=True):
        ends = [(place[first], place[second])]
        if not graph.is_directed() and first != second:
            ends.append((place[second], place[first]))
        pairs += ends
        attributes += [values] * len(ends)
    data = Data(
        edge_index=torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous(),
        num_nodes=len(nodes),
    )
    own = [graph.nodes[node] for node in nodes]
    if node_features:
        data.x = _numbers(own, node_features, "node")  # [n, columns]
    if edge_features:
        data.edge_attr = _numbers(attributes, edge_features, "edge")  # [E, columns]
    if target is not None:
        _set_targets(data, [str(values.get(target, "")) for values in own])
    return data


def read_graph(
    nodes: str | Path,
    edges: str | Path,
    target: str | None = None,
    *,
    directed: bool = False,
) -> Data:
    """Read a graph from a table of nodes and a table of edges.

    The first column of ``nodes`` names the nodes, the first two columns of ``edges`` name the ends
    of each edge. All other columns except the target are numeric features.

    Args:
        nodes: The table of nodes.
        edges: The table of edges.
        target: The column of ``nodes`` to predict.
        directed: Whether edges are directed.
    """
    table, links = open_table(nodes), open_table(edges)
    if len(links.columns) < 2:
        raise GrassError(f"{links.path} has one column, but an edge needs two.")
    where = None if target is None else table.place(target, "target")
    columns = [place for place in range(1, len(table.columns)) if place != where]
    place: dict[str, int] = {}
    x, labels = [], []
    for row in table:
        if row.cells[0] in place:
            raise GrassError(f"{table.path}, line {row.line}: duplicate node {row.cells[0]!r}.")
        place[row.cells[0]] = len(place)
        x.append([_number(table, row.line, row.cells[column]) for column in columns])
        labels.append("" if where is None else row.cells[where])
    pairs, attributes = [], []
    for row in links:
        for name in row.cells[:2]:
            if name not in place:
                raise GrassError(f"{links.path}, line {row.line}: there is no node {name!r}.")
        ends = [(place[row.cells[0]], place[row.cells[1]])]
        if not directed and ends[0][0] != ends[0][1]:
            ends.append((ends[0][1], ends[0][0]))
        pairs += ends
        attributes += [[_number(links, row.line, cell) for cell in row.cells[2:]]] * len(ends)
    data = Data(
        edge_index=torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous(),
        num_nodes=len(place),
    )
    if columns:
        data.x = torch.tensor(x)  # [n, columns]
    if len(links.columns) > 2:
        data.edge_attr = torch.tensor(attributes).view(len(pairs), len(links.columns) - 2)
    if target is not None:
        _set_targets(data, labels)
    data.node_names = list(place)
    return data


def is_graph_file(path: str | Path) -> bool:
    """Whether a file name is that of saved PyG graphs."""
    return Path(path).suffix.lower() in (".pt", ".pth")


def read_graphs(path: str | Path) -> list[Data]:
    """Read PyG graphs that were saved with ``torch.save``: a list of graphs, or a single one.

    Only tensors and PyG's own classes are loaded, so that untrusted files cannot run code.
    """
    path = Path(path)
    try:
        found = load_tensors_only(path)
    except FileNotFoundError:
        raise GrassError(f"There is no file {path}.") from None
    except Exception as error:  # torch raises many kinds for damaged files
        reason = first_line(error)
        raise GrassError(
            f"The file {path} contains no graphs that can be read safely: {reason}."
        ) from None
    graphs = [found] if isinstance(found, Data) else found
    if not isinstance(graphs, (list, tuple)) or not all(_is_graph(graph) for graph in graphs):
        raise GrassError(f"The file {path} does not contain a list of PyG graphs.")
    return list(graphs)


def _is_graph(graph: Any) -> bool:
    try:  # objects in a manipulated file may lack attributes that PyG always sets
        return isinstance(graph, Data) and isinstance(graph.to_dict(), dict)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _set_targets(data: Data, cells: Sequence[str]) -> None:
    """Set ``y`` [n], ``known_mask`` [n] and the class names from text."""
    found, names, _ = infer_task({"target": cells})
    task = make_task(found)
    schema = TableSchema(smiles="", targets=["target"], classes=names)
    known = torch.tensor([cell.strip().lower() not in MISSING for cell in cells])
    values = []
    for number, (cell, is_known) in enumerate(zip(cells, known.tolist(), strict=True)):
        try:
            values.append(schema.encode(task, [cell])[0] if is_known else task.placeholder)
        except ValueError as error:
            raise GrassError(f"Node {number}: {error}.") from None
    data.y = task.as_targets(torch.tensor(values))  # [n]
    data.known_mask, data.classes = known, names


def _numbers(values: Sequence[Any], names: Sequence[str], what: str) -> Tensor:
    try:
        rows = [[float(own[name]) for name in names] for own in values]
    except (KeyError, TypeError, ValueError) as error:
        raise GrassError(
            f"The {what} attributes {', '.join(names)} are not all numbers: {error}."
        ) from None
    return torch.tensor(rows).view(len(rows), len(names))  # also of a graph without edges


def _number(table: Table, line: int, cell: str) -> float:
    try:
        value = parse_number(cell)
    except ValueError as error:
        raise GrassError(f"{table.path}, line {line}: {error}.") from None
    if math.isnan(value):
        raise GrassError(f"{table.path}, line {line}: a feature is missing.")
    return value


_LEVELS = ("graph", "node", "edge")


def infer_input(graphs: Sequence[Data]) -> InputConfig:
    """Infer the node, edge and graph features."""
    descriptors = graphs[0].get("descriptors")
    return InputConfig(
        nodes=_infer_features("node", [data.x for data in graphs]),
        edges=_infer_features("edge", [data.edge_attr for data in graphs]),
        descriptors=0 if descriptors is None else number_tensor("descriptors", descriptors).numel(),
    )


def _infer_features(what: str, tensors: Sequence[Tensor | None]) -> FeatureConfig:
    """Integers are categories; floats are one-hot if each row has a single 1, else continuous."""
    given = [tensor for tensor in tensors if tensor is not None]
    if not given:
        return FeatureConfig()
    if len(given) < len(tensors):
        raise GrassError(f"Some graphs have {what} features and others have none.")
    for tensor in given:
        if not isinstance(tensor, Tensor) or not tensor.dim():
            raise GrassError(f"The {what} features must be tensors with a row for each {what}.")
        if tensor.is_complex() or tensor.layout != torch.strided:
            raise GrassError(f"The {what} features must be dense tensors of real numbers.")
    flat = [tensor.flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1) for tensor in given]
    widths = {tensor.size(1) for tensor in flat if tensor.size(0)} or {flat[0].size(1)}
    if len(widths) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some graphs have {few} columns of {what} features, others {many}.")
    rows = torch.cat([tensor for tensor in flat if tensor.size(0)] or flat[:1])  # [M, columns]
    if not rows.is_floating_point():
        rows = rows.long()  # uint16 has no minimum
        if rows.numel() and int(rows.min()) < 0:
            raise GrassError(f"A {what} feature is negative, but categories start at 0.")
        largest = rows.max(dim=0).values.tolist() if rows.size(0) else [0] * rows.size(1)
        if max(largest, default=0) >= MOST_CATEGORIES:
            raise GrassError(
                f"A {what} feature is {max(largest):,}, too large for a category: "
                "store quantities as floats."
            )
        return _features("index", [int(value) + 1 for value in largest])
    one_hot = bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(dim=1) == 1).all())
    kind = "one-hot" if one_hot and rows.size(1) > 1 else "continuous"
    return _features(kind, [rows.size(1)])


def _features(kind: str, sizes: list[int]) -> FeatureConfig:
    values = {"input": {"nodes": {"kind": kind, "sizes": sizes}}}
    return GRASSConfig.from_dict(values, "the features").input.nodes


def infer_level(graphs: Sequence[Data]) -> str:
    """Infer from the number of targets whether they belong to graphs, nodes or edges."""
    nodes, edges = check_sizes(graphs)
    counts = []
    for number, data in enumerate(graphs):
        if data.y is None:
            raise GrassError(f"Graph {number} has no target y.")
        y = number_tensor("target y", data.y)
        counts.append(y.size(0) if y.dim() else 1)
    rows = torch.tensor(counts)
    if torch.equal(rows, nodes) and int(rows.max()) > 1:
        return "node"
    if torch.equal(rows, edges) and int(rows.max()) > 1:
        return "edge"
    return "graph"


def infer_graph_task(
    graphs: Sequence[Data], level: str | None = None, kind: str | None = None
) -> TaskConfig:
    """Infer the task from the targets ``y``.

    Args:
        graphs: The graphs of all splits.
        level: ``"graph"``, ``"node"`` or ``"edge"``; inferred by default.
        kind: Kind of the task; inferred by default (integers are classes, floats are quantities,
            zeros and ones are labels).
    """
    level = _check_level(level) or infer_level(graphs)
    if kind is not None and kind not in TASKS:
        raise GrassError(f"The task must be one of {', '.join(TASKS)}, not {kind!r}.")
    values = [number_tensor("target y", data.y) for data in graphs if data.y is not None]
    if len(values) < len(graphs):
        raise GrassError("Some graphs have no target y.")
    if level == "graph":
        parts = [y.reshape(1, -1) for y in values]
    else:
        parts = [y.flatten(1) if y.dim() > 1 else y.reshape(-1, 1) for y in values]
    if len(widths := {part.size(1) for part in parts}) > 1:
        few, many = min(widths), max(widths)
        raise GrassError(f"Some targets y have {few} values per {level}, others have {many}.")
    for number, (data, part) in enumerate(zip(graphs, parts, strict=True)):
        _check_masks(number, data, len(part))
    rows = torch.cat(parts)  # [M, outputs]
    known = rows[~torch.isnan(rows)] if rows.is_floating_point() else rows.flatten()
    if not known.numel():
        raise GrassError("All targets y are missing.")
    if known.is_floating_point() and not torch.isfinite(known).all():
        raise GrassError("Some targets y are infinite.")
    found = kind_of_tensor(rows, known) if kind is None else TASKS[kind]
    if kind is None and found.cells == "classes":
        count, total = len(known.unique()), len(known)
        if too_many_classes(count, total):
            raise GrassError(
                f"The {total:,} targets y are {count:,} different integers, too many for classes: "
                'use task="regression" (--task), or floats.'
            )
    outputs = found.count_outputs(rows.size(1), classes=int(known.max()) + 1)
    missing = rows.is_floating_point() and known.numel() < rows.numel()
    task = found.default_settings(outputs, missing, level)
    return GRASSConfig.from_dict({"task": task}, "the targets y").task


def _check_masks(number: int, data: Data, rows: int) -> None:
    for name in (f"{split}_mask" for split in SPLITS):
        mask = data.get(name)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (rows,):
            raise GrassError(
                f"The {name} of graph {number} must be boolean of shape [{rows}] "
                "(select one if there are several splits)."
            )


def _check_level(level: str | None) -> str | None:
    if level not in (None, *_LEVELS):
        raise GrassError(f"The level must be one of {', '.join(_LEVELS)}, not {level!r}.")
    return level


Graphs: TypeAlias = Sequence[Data] | Mapping[str, Sequence[Data]] | Data


@dataclass(frozen=True)
class GraphSpec:
    """What graphs contain and how they are split; whatever is not given is inferred.

    Args:
        level: What the targets belong to: ``"graph"``, ``"node"`` or ``"edge"``.
        task: Kind of the task, such as ``"regression"``.
        shares: Fractions of the training, validation and test set.
        split_seed: Random seed of the split; by default that of the run.
        input: The features of nodes and edges.
    """

    level: str | None = None
    task: str | None = None
    shares: Sequence[float] = DEFAULT_SHARES
    split_seed: int | None = None
    input: InputConfig | None = None

    def infer(self, splits: Mapping[str, Sequence[Data]]) -> tuple[InputConfig, TaskConfig]:
        """The features and the task of the graphs of all splits."""
        graphs = distinct(splits)
        return self.input or infer_input(graphs), infer_graph_task(graphs, self.level, self.task)


def distinct(splits: Mapping[str, Sequence[Data]]) -> list[Data]:
    """The graphs of all splits; a graph that is in several splits counts once."""
    return list({id(graph): graph for part in splits.values() for graph in part}.values())


def split_graphs(graphs: Graphs, spec: GraphSpec, seed: int) -> dict[str, list[Data]]:
    """Split graphs into training, validation and test set.

    A mapping of splits is used as it is; a list is split at random. For a single graph, the nodes
    (or edges) are split, by its masks if it has any and at random otherwise.
    """
    if isinstance(graphs, Mapping):
        if missing := [split for split in SPLITS if not len(graphs.get(split, ()))]:
            raise GrassError(f"The splits {', '.join(missing)} are empty: all three are needed.")
        return {split: list(graphs[split]) for split in SPLITS}
    found = [graphs] if isinstance(graphs, Data) else list(_each(graphs))
    check_sizes(found)
    seed = seed if spec.split_seed is None else spec.split_seed
    if len(found) == 1:
        single = [_with_masks(found[0], spec, seed)]
        for split in SPLITS:
            mask = single[0][f"{split}_mask"]
            if isinstance(mask, Tensor) and not bool(mask.any()):
                raise GrassError(f"The {split} split is empty: it has no node or edge to predict.")
        return dict.fromkeys(SPLITS, single)  # one list: it is stored once
    drawn = random_split(len(found), spec.shares, seed)
    splits = {
        split: [data for data, own in zip(found, drawn, strict=True) if own == split]
        for split in SPLITS
    }
    if not all(splits.values()):
        raise GrassError(
            f"{len(found)} graphs are too few for a training, validation and test set."
        )
    return splits


def _each(graphs: Iterable[Any]) -> Iterable[Data]:
    """The graphs of a list or of a PyG dataset."""
    if not hasattr(graphs, "__iter__") and not hasattr(graphs, "__getitem__"):
        raise GrassError(f"Expected PyG graphs or the name of a file, not {graphs!r}.")
    if not hasattr(graphs, "__len__") or not hasattr(graphs, "__getitem__"):
        return list(graphs)
    rows = cast("Sequence[Any]", graphs)  # PyG datasets do not inherit from Sequence
    return (rows[number] for number in range(len(rows)))


def _with_masks(data: Data, spec: GraphSpec, seed: int) -> Data:
    """A single graph with split masks, which leave out missing targets."""
    missing = [f"{split}_mask" for split in SPLITS if f"{split}_mask" not in data]
    if not missing:
        _check_known(data)
        return data
    if len(missing) < len(SPLITS):  # a random split would train on nodes that one mask sets aside
        raise GrassError(
            f"The graph has no {' and no '.join(missing)}: give it masks of all three splits, or "
            "none to split it at random."
        )
    level = _check_level(spec.level) or infer_level([data])
    if level == "graph":
        raise GrassError("A single graph with one target cannot be split: provide several graphs.")
    y = number_tensor("target y", data.y)
    if y.dim() == 0:
        raise GrassError(f"The target y is a single number: it needs one row per {level}.")
    pair = torch.arange(y.size(0))  # [M]
    if level == "edge" and len(y) == data.edge_index.size(1):
        # The two directions of an edge stay together, because one gives the target of the other.
        pair = data.edge_index.sort(dim=0).values.unique(dim=1, return_inverse=True)[1]
    split_of = random_split(int(pair.max()) + 1 if len(pair) else 0, spec.shares, seed)
    drawn = [split_of[number] for number in pair.tolist()]
    known = data.get("known_mask")
    if known is None:
        known = _known(y)
    elif not isinstance(known, Tensor) or known.dtype != torch.bool or known.shape != y.shape[:1]:
        raise GrassError(f"The known_mask must be boolean of shape [{len(y)}].")
    copy = data.clone()
    for split in SPLITS:
        own_rows = torch.tensor([own == split for own in drawn], dtype=torch.bool)
        copy[f"{split}_mask"] = own_rows & known
    return copy


def _known(y: Tensor) -> Tensor:
    """Rows of the target that are not missing altogether [M]."""
    return ~torch.isnan(y.float().reshape(len(y), -1 if len(y) else 1)).all(dim=1)


def _check_known(data: Data) -> None:
    """Raise if a mask selects only missing targets."""
    known = _known(data.y) if isinstance(data.y, Tensor) and data.y.dim() else None
    for split in SPLITS:
        mask = data[f"{split}_mask"]
        if known is None or not isinstance(mask, Tensor) or mask.shape != known.shape:
            continue  # another check says what is wrong, or there is a mask for each of many splits
        if mask.any() and not known[mask.bool()].any():
            raise GrassError(f"All targets that the {split}_mask selects are missing.")


@dataclass(frozen=True)
class GraphReader:
    """Converts SMILES, RDKit molecules, NetworkX graphs and PyG graphs to PyG graphs.

    Args:
        features: Atom and bond features of molecules: ``"ogb-cip"``, ``"ogb"`` or ``"zinc"``.
        node_features: Numeric attributes of NetworkX nodes.
        edge_features: Numeric attributes of NetworkX edges.
    """

    features: str = "ogb-cip"
    node_features: tuple[str, ...] = ()
    edge_features: tuple[str, ...] = ()

    def read(self, items: Iterable[Any]) -> list[Data]:
        """Convert all items, without modifying them.

        Raises:
            ValueError: An item cannot be converted; the message gives its index.
        """
        if isinstance(items, (str, bytes)):
            raise ValueError("X must be a list of molecules or graphs, not a single string.")
        items = list(items)
        molecules = self._read_molecules(items)
        found = []
        for number, item in enumerate(items):
            molecule = molecules.get(number)
            if isinstance(molecule, str):
                raise ValueError(f"X[{number}] cannot be read: {molecule}.")
            try:
                found.append(self._read(item) if molecule is None else molecule.data)
            except TypeError as error:
                raise ValueError(f"X[{number}] {error}") from None
        if not found:
            raise ValueError("X is empty.")
        return found

    def _read_molecules(self, items: Sequence[Any]) -> dict[int, Molecule | str]:
        """The molecules among some items, or why they cannot be read, by index."""
        texts = {n: _smiles(item) for n, item in enumerate(items) if _is_molecule(item)}
        if not texts:
            return {}
        # In canonical order, so that all SMILES of a molecule give the same prediction.
        with ReadingPool(MoleculeReader(self.features, canonical_order=True)) as pool:
            return dict(zip(texts, pool.read(list(texts.values())), strict=True))

    def _read(self, item: Any) -> Data:
        if isinstance(item, Data):
            return copy(item)
        if _is_networkx(item):
            return from_networkx(item, None, self.node_features, self.edge_features)
        raise TypeError(
            f"is a {type(item).__name__}, not a SMILES string, an RDKit molecule, "
            "a NetworkX or a PyG graph."
        )

    def input_of(self, items: Iterable[Any], graphs: list[Data]) -> InputConfig:
        """The features: the complete vocabulary for molecules, inferred for other graphs."""
        if all(_is_molecule(item) for item in items):
            return input_config(self.features)
        return infer_input(graphs)


def _is_networkx(item: Any) -> bool:
    return hasattr(item, "nodes") and hasattr(item, "is_directed")


def _smiles(item: Any) -> str:
    if isinstance(item, str):
        return item
    from rdkit.Chem import MolToSmiles

    return str(MolToSmiles(item))


def _is_molecule(item: Any) -> bool:
    return isinstance(item, str) or type(item).__module__.startswith("rdkit.")
