"""Read graphs from NetworkX, tables, files, and molecules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.api.graph_task import infer_input
from grass_gnn.config import InputConfig
from grass_gnn.data.benchmarks.raw import load_tensors_only
from grass_gnn.data.tables.features import input_config
from grass_gnn.data.tables.files import MISSING, Row, Table, open_table, parse_number
from grass_gnn.data.tables.molecules import Molecule, MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.data.tables.schema import TableSchema, infer_task
from grass_gnn.errors import GrassError, first_line
from grass_gnn.tasks import make_task


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
        if own and not any(target in values for values in own):
            raise GrassError(f"No node has the attribute {target!r} (target).")
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
    of each edge. All other columns except the target are numeric features. Undirected edges may be
    listed in one direction or in both.

    Args:
        nodes: The table of nodes.
        edges: The table of edges.
        target: The column of ``nodes`` to predict.
        directed: Whether edges are directed.
    """
    table, links = open_table(nodes), open_table(edges)
    if len(links.columns) < 2:
        raise GrassError(f"{links.path} has one column, but an edge needs two.")
    if not links.columns[0]:  # its numbers would be taken for nodes
        raise GrassError(
            f"The first column of {links.path} has no name and looks like an index: the first two "
            "columns must name the ends of each edge."
        )
    where = None if target is None else table.place(target, "target")
    columns = [place for place in range(1, len(table.columns)) if place != where]
    place: dict[str, int] = {}
    x, labels = [], []
    for row in _readable(table):
        if row.cells[0] in place:
            raise GrassError(f"{table.path}, line {row.line}: duplicate node {row.cells[0]!r}.")
        place[row.cells[0]] = len(place)
        x.append([_number(table, row.line, row.cells[column]) for column in columns])
        labels.append("" if where is None else row.cells[where])
    pairs, attributes = [], []
    listed: dict[tuple[int, int], list[list[float]]] = {}  # features of edges from u to v
    for row in _readable(links):
        for name in row.cells[:2]:
            if name not in place:
                raise GrassError(f"{links.path}, line {row.line}: there is no node {name!r}.")
        tail, head = place[row.cells[0]], place[row.cells[1]]
        features = [_number(links, row.line, cell) for cell in row.cells[2:]]
        ends = [(tail, head)]
        if not directed and tail != head:
            if (head, tail) in listed:  # the same edge from its other end
                if features in listed[head, tail]:
                    continue
                raise GrassError(
                    f"{links.path}, line {row.line}: the edge between {row.cells[0]!r} and "
                    f"{row.cells[1]!r} is listed in both directions with different features: is "
                    "the graph directed?"
                )
            listed.setdefault((tail, head), []).append(features)
            ends.append((head, tail))
        pairs += ends
        attributes += [features] * len(ends)
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


def _readable(table: Table) -> Iterator[Row]:
    """The rows of a table except blank lines.

    Raises:
        GrassError: A row cannot be used, such as one with too many cells.
    """
    for row in table:
        if row.problem and not any(row.cells):
            continue
        if row.problem:
            raise GrassError(f"{table.path}, line {row.line}: {row.problem}.")
        yield row


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
