"""Other ways to write a graph: NetworkX, a pair of tables, a file of saved graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.data.pickles import load_tensors_only
from grass_gnn.data.tables import MISSING, Table, open_table, parse_number
from grass_gnn.errors import GrassError, first_line
from grass_gnn.workflow.schema import TableSchema, infer_task


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
    if len(links.columns) < 2:
        raise GrassError(f"{links.path} has one column, but an edge has two ends.")
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
        found = load_tensors_only(path)
    except FileNotFoundError:
        raise GrassError(f"There is no file {path}.") from None
    except Exception as error:  # whatever torch may meet in a damaged file
        reason = first_line(error)
        raise GrassError(
            f"The file {path} holds no graphs that can be read safely: {reason}."
        ) from None
    graphs = [found] if isinstance(found, Data) else found
    if not isinstance(graphs, (list, tuple)) or not all(_is_whole(graph) for graph in graphs):
        raise GrassError(f"The file {path} holds no list of PyG graphs.")
    return list(graphs)


def _is_whole(graph: Any) -> bool:
    try:  # of a file that was changed, an object may lack what PyG itself always sets
        return isinstance(graph, Data) and isinstance(graph.to_dict(), dict)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _set_targets(data: Data, cells: Sequence[str]) -> None:
    """Targets of nodes from text: ``y`` [n], the names of its classes, and which are known."""
    task, names, _ = infer_task({"target": cells})
    schema = TableSchema(smiles="", targets=["target"], classes=names)
    known = torch.tensor([cell.strip().lower() not in MISSING for cell in cells])
    values = []
    for number, (cell, is_known) in enumerate(zip(cells, known.tolist(), strict=True)):
        try:
            values.append(schema.encode(task.kind, [cell])[0] if is_known else math.nan)
        except ValueError as error:
            raise GrassError(f"Node {number}: {error}.") from None
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
