"""PyG graphs as users pass them to ``fit``, and files of such graphs."""

from __future__ import annotations

import copy
import io
import random
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import torch
from torch_geometric.data import Data

from fuzz.harness import Edit, Passed, Target, edited, edits, random_edit
from fuzz.models import SMALL
from grass_gnn.api.fitting import choose_config
from grass_gnn.api.graph_task import GraphSpec, infer_graph_task, infer_input, split_graphs
from grass_gnn.api.graphs import read_graphs
from grass_gnn.config import GRASSConfig
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.packed.dataset import pack

_TYPES = [
    torch.float32,
    torch.int64,
    torch.float64,
    torch.uint8,
    torch.bool,
    torch.float16,
    torch.int32,
]
_ODD = [torch.complex64, torch.bfloat16]
_odd_tensors = st.builds(
    lambda shape, kind, value: torch.full(shape, value).to(kind),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(_TYPES + _ODD),
    st.sampled_from([0, 1, 2, -1, 7, 2**40, 0.5, float("nan"), float("inf"), 1e30]),
)
_odd_values = st.one_of(
    _odd_tensors,
    _odd_tensors,
    st.none(),
    st.sampled_from([1, 2.5, "x", [1, 2], [], ["a"], {}, True]),
)
_KEYS = [
    "x",
    "edge_index",
    "edge_attr",
    "y",
    "num_nodes",
    "edge_weight",
    "descriptors",
    "train_mask",
]
_KEYS += ["val_mask", "test_mask", "known_mask", "classes"]


@st.composite
def _tensors(draw: Any, rows: int, columns: int) -> torch.Tensor:
    values = draw(st.lists(st.integers(0, 3), min_size=rows * columns, max_size=rows * columns))
    return torch.tensor(values, dtype=torch.float32).view(rows, columns)


@st.composite
def _graphs(draw: Any) -> list[Any]:
    """Graphs of one kind, some of them with something unusual."""
    level = draw(st.sampled_from(["graph", "graph", "node", "edge"]))
    kind, edge_kind, y_kind = (draw(st.sampled_from(_TYPES[:3])) for _ in range(3))
    graphs: list[Any] = []
    for _ in range(draw(st.integers(1, 5))):
        n, m = draw(st.integers(1, 4)), draw(st.integers(0, 5))
        ends = draw(st.lists(st.integers(0, n - 1), min_size=2 * m, max_size=2 * m))
        rows = {"graph": 1, "node": n, "edge": m}[level]
        graphs.append(
            Data(
                x=draw(_tensors(n, 2)).to(kind),
                edge_index=torch.tensor(ends, dtype=torch.int64).view(2, m),
                edge_attr=draw(_tensors(m, 1)).to(edge_kind),
                y=draw(_tensors(rows, 1)).to(y_kind),
            )
        )
    for _ in range(draw(st.integers(0, 2))):
        victim = draw(st.integers(0, len(graphs) - 1))
        key, value = draw(st.sampled_from(_KEYS)), draw(_odd_values)
        for graph in graphs if draw(st.booleans()) else [graphs[victim]]:
            graph[key] = value
    if draw(st.integers(0, 30)) == 0:
        graphs[0] = draw(st.sampled_from([None, "CCO", 1, {}, []]))
    return graphs


_ODD_VALUES: list[Any] = [None, 1, 2.5, "x", [1, 2], [], ["a"], {}, True]
_ODD_NUMBERS = [0, 1, 2, -1, 7, 2**40, 0.5, float("nan"), float("inf"), 1e30]


def _vary(case: tuple[list[Any], str | None, str | None], draw: random.Random) -> Any:
    """The same graphs, one of which gets another tensor, a number in it, or an odd value."""
    graphs = [copy.copy(graph) for graph in case[0]]
    place = draw.randrange(len(graphs))
    if not isinstance(graphs[place], Data):
        return case
    key, kind = draw.choice(_KEYS), draw.randrange(4)
    value: Any
    old = graphs[place].get(key)
    if kind == 0:
        value = copy.deepcopy(draw.choice(_ODD_VALUES))
    elif kind == 1 or not isinstance(old, torch.Tensor) or old.numel() == 0:
        shape = [draw.randrange(4) for _ in range(draw.randrange(4))]
        value = torch.full(shape, draw.choice(_ODD_NUMBERS)).to(draw.choice(_TYPES + _ODD))
    elif kind == 2:
        value = old[: draw.randrange(len(old) + 1)] if old.dim() else old[None]
    else:
        value = old.clone()
        value.view(-1)[draw.randrange(value.numel())] = draw.choice([0, 1, -1, 3, 7, 2**30])
    graphs[place][key] = value
    return graphs, *case[1:]


def _fit(case: tuple[list[Any], str | None, str | None], folder: Path, past: Passed) -> None:
    """Everything ``fit_graphs`` does except training."""
    graphs, level, task = case
    check_sizes(graphs)
    past()
    splits = split_graphs(graphs, GraphSpec(level, shares=(0.6, 0.2, 0.2)), 0)
    every = list({id(one): one for part in splits.values() for one in part}.values())
    found = infer_graph_task(every, level, task)
    small = GRASSConfig().override({**SMALL, "encoding.kind": "rrwp"})
    config = choose_config(splits["train"], infer_input(every), found, small)
    for part in splits.values():
        pack(part, config, workers=1)


def _saved(graphs: list[Any]) -> bytes:
    file = io.BytesIO()
    torch.save(graphs, file)
    return file.getvalue()


def _vary_file(case: tuple[list[Any], list[Edit]], draw: random.Random) -> Any:
    """Mostly another graph: a changed byte hardly ever passes the checksums of the archive."""
    graphs, edits = case
    if draw.random() < 0.7:
        return _vary((graphs, None, None), draw)[0], edits
    return graphs, [*edits, random_edit(draw)]


def _read(case: tuple[list[Any], list[Edit]], folder: Path, past: Passed) -> None:
    path = folder / "graphs.pt"
    path.write_bytes(edited(_saved(case[0]), case[1]))
    for graph in read_graphs(path):
        past()
        check_sizes([graph])


TARGETS = [
    Target(
        "PyG graphs",
        st.tuples(
            _graphs(),
            st.sampled_from([None, None, None, "graph", "node", "edge", "x"]),
            st.sampled_from([None, None, None, "regression", "binary", "classification", "x"]),
        ),
        _fit,
        _vary,
    ),
    Target("files of PyG graphs", st.tuples(_graphs(), edits(0.4)), _read, _vary_file),
]
