"""Other ways to write a graph: NetworkX, a pair of tables, a file of saved graphs."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from grass_gnn.data.tables import MISSING, Table, open_table, parse_number
from grass_gnn.errors import GrassError
from grass_gnn.workflow.schema import TableSchema, infer_task

_SAFE = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]  # what a saved graph consists of


def from_networkx(
    graph: Any,
    target: str | None = None,
    node_features: Sequence[str] = (),
    edge_features: Sequence[str] = (),
) -> Data:
    """A PyG graph from a NetworkX one; nodes keep the order in which NetworkX lists them.

    Args:
        graph: A ``Graph``, ``DiGraph`` or multigraph; edges of an undirected one go both ways.
        target: Node attribute to learn: a number, or the name of a class. Nodes without it are
            predicted and not trained on.
        node_features: Node attributes that are numbers.
        edge_features: Edge attributes that are numbers.
    """
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
    """A graph from a table of nodes and one of edges.

    The first column of ``nodes`` names each node, the first two of ``edges`` name the ends of each
    edge; all other columns are features, which must be numbers, but for the target.

    Args:
        nodes: The table of nodes.
        edges: The table of edges.
        target: The column of ``nodes`` to learn.
        directed: Whether an edge goes one way only.
    """
    table, links = open_table(nodes), open_table(edges)
    where = None if target is None else table.place(target, "target")
    columns = [place for place in range(1, len(table.columns)) if place != where]
    place: dict[str, int] = {}
    x, labels = [], []
    for row in table:
        if row.cells[0] in place:
            raise GrassError(
                f"{table.path}, line {row.line}: the node {row.cells[0]!r} is there twice."
            )
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
        data.edge_attr = torch.tensor(attributes)  # [E, columns]
    if target is not None:
        _set_targets(data, labels)
    data.node_names = list(place)
    return data


def read_graphs(path: str | Path) -> list[Data]:
    """PyG graphs that ``torch.save`` wrote: a list of them, or one.

    Only tensors and PyG's own classes are read from the file, never code.
    """
    path = Path(path)
    try:
        with torch.serialization.safe_globals(_SAFE):
            found = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise GrassError(f"There is no file {path}.") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise GrassError(
            f"The file {path} holds no graphs that can be read safely: {reason}."
        ) from None
    graphs = [found] if isinstance(found, Data) else found
    if not isinstance(graphs, (list, tuple)) or not all(isinstance(g, Data) for g in graphs):
        raise GrassError(f"The file {path} holds no list of PyG graphs.")
    return list(graphs)


def _set_targets(data: Data, cells: Sequence[str]) -> None:
    """Targets of nodes from text: ``y`` [n], the names of its classes, and which are known."""
    task, names, _ = infer_task({"target": cells})
    schema = TableSchema(smiles="", targets=["target"], classes=names)
    known = torch.tensor([cell.strip().lower() not in MISSING for cell in cells])
    values = [
        schema.encode(task.kind, [cell])[0] if is_known else math.nan
        for cell, is_known in zip(cells, known.tolist(), strict=True)
    ]
    data.y = torch.tensor(values)
    if task.kind == "classification":  # a class that is not known is never looked at
        data.y = torch.where(known, data.y, 0.0).long()
    data.known_mask, data.classes = known, names


def _numbers(values: Sequence[Any], names: Sequence[str], what: str) -> Tensor:
    try:
        return torch.tensor([[float(own[name]) for name in names] for own in values])
    except (KeyError, TypeError, ValueError) as error:
        raise GrassError(
            f"The {what} attributes {', '.join(names)} are not all numbers: {error}."
        ) from None


def _number(table: Table, line: int, cell: str) -> float:
    try:
        value = parse_number(cell)
    except ValueError as error:
        raise GrassError(f"{table.path}, line {line}: {error}.") from None
    if math.isnan(value):
        raise GrassError(f"{table.path}, line {line}: a feature is missing.")
    return value
