"""Link prediction: which pairs of nodes are, or will be, connected.

A queried pair is added to the graph as an edge of weight zero with its own edge category: random
walks and degrees ignore it, attention sees it as a query. The encodings therefore do not leak the
label, and a trained model can predict any pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from grass_gnn.api.fitting import fit
from grass_gnn.config import GRASSConfig
from grass_gnn.data.checking import check_sizes
from grass_gnn.data.tables.dataset import check_shares
from grass_gnn.data.tables.spec import DEFAULT_SHARES
from grass_gnn.encoding import plain_tensor
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import Prediction, TrainedModel
from grass_gnn.progress import Progress
from grass_gnn.tasks import Binary

_KNOWN, _QUERIED = 0, 1  # edge categories
_HIDDEN = 0.2  # fraction of the training edges that are hidden and queried in each view
_VIEWS = 16  # training graphs, each with different hidden edges


def link_question(graph: Data, pairs: Tensor) -> Data:
    """A graph with queried pairs of nodes [2, M] appended to its edges."""
    _check(graph, pairs)
    known = graph.edge_index
    kinds = torch.tensor([_KNOWN, _QUERIED]).repeat_interleave(
        torch.tensor([known.size(1), pairs.size(1)])
    )
    data = Data(
        edge_index=torch.cat([known, pairs], dim=1),
        edge_attr=kinds.unsqueeze(1),  # [E, 1]
        edge_weight=(kinds == _KNOWN).float(),  # [E]
        num_nodes=graph.num_nodes,
    )
    if graph.x is not None:
        data.x = graph.x
    return data


def fit_links(
    graph: Data,
    out: str | Path | None = None,
    *,
    shares: tuple[float, float, float] = DEFAULT_SHARES,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TrainedModel:
    """Train a model that predicts the edges of a graph.

    Some edges are held out for validation and test. Training uses several views of the rest; each
    hides and queries different edges, together with as many pairs of nodes that are not connected.
    Node features are used, edge features are not.

    Args:
        graph: The graph; if it is undirected, so are the pairs. Self-loops are left out, and
            parallel edges count once.
        out: The run folder; by default, only the model is returned and nothing is saved.
        shares: Fractions of the edges for training, validation and test.
        config: Configuration to start from.
        settings: Changes to the configuration, by dotted name.
        seed: Random seed.
        progress: Progress hook; by default a progress bar on a terminal.
    """
    check_sizes([graph])
    check_shares(shares)
    generator = torch.Generator().manual_seed(seed)
    undirected = _is_undirected(graph)
    edges = graph.edge_index
    edges = edges[:, edges[0] < edges[1]] if undirected else edges[:, edges[0] != edges[1]]
    edges = edges.unique(dim=1)  # of parallel edges, one that is known would give away the other
    edges = edges[:, torch.randperm(edges.size(1), generator=generator)]  # [2, M]
    count = edges.size(1)
    val, test = (max(1, round(count * share / sum(shares))) for share in shares[1:])
    if count < val + test + 5:
        raise GrassError(f"{count} edges are too few for link prediction.")
    val_edges, test_edges, rest = edges.split([val, test, count - val - test], dim=1)

    def view(split: str, known: Tensor, queried: Tensor, number: int) -> Data:
        both = torch.cat([known, known.flip(0)], dim=1) if undirected else known
        none = unconnected_pairs(graph, queried.size(1), seed + number)
        labels = torch.cat([torch.ones(queried.size(1)), torch.zeros(none.size(1))])
        base = Data(x=graph.x, edge_index=both, num_nodes=graph.num_nodes)
        data = link_question(base, torch.cat([queried, none], dim=1))
        data.y = torch.cat([torch.ones(both.size(1)), labels])  # [E]
        data[f"{split}_mask"] = torch.arange(data.y.size(0)) >= both.size(1)
        return data

    views = []
    for number in range(_VIEWS):
        order = torch.randperm(rest.size(1), generator=generator)
        hidden = max(1, round(_HIDDEN * rest.size(1)))
        views.append(view("train", rest[:, order[hidden:]], rest[:, order[:hidden]], number))
    splits = {
        "train": views,
        "val": [view("val", rest, val_edges, _VIEWS)],
        "test": [view("test", torch.cat([rest, val_edges], dim=1), test_edges, _VIEWS + 1)],
    }
    chosen = {"training.batch_size": 1, "training.epochs": 20, "training.patience": 0}
    return fit(
        splits,
        out,
        level="edge",
        task=Binary.name,
        config=config,
        settings={**({} if config else chosen), **(settings or {})},
        seed=seed,
        progress=progress,
    )


def unconnected_pairs(graph: Data, count: int, seed: int) -> Tensor:
    """Different pairs of different nodes without an edge, drawn at random: [2, up to count].

    PyG's ``negative_sampling`` draws from Python's global generator,
    which the seed of the run does not control.

    Args:
        graph: The graph; in an undirected graph a pair and its reverse are the same.
        count: Number of pairs; fewer if the graph is nearly complete.
        seed: Random seed.
    """
    n, undirected = int(graph.num_nodes or 0), _is_undirected(graph)
    generator = torch.Generator().manual_seed(seed)

    def number(pairs: Tensor) -> Tensor:  # of each pair [2, M] → [M]
        head, tail = pairs.sort(dim=0).values if undirected else pairs
        return head * n + tail

    taken = number(graph.edge_index).unique()
    found = taken.new_empty(0)
    for _ in range(20):  # each round finds at least a few, unless the graph is nearly complete
        drawn = torch.randint(n, (2, 2 * count + 10), generator=generator)
        drawn = number(drawn[:, drawn[0] != drawn[1]])
        found = torch.cat([found, drawn[~torch.isin(drawn, torch.cat([taken, found]))].unique()])
        if found.numel() >= count:
            break
    found = found[torch.randperm(found.numel(), generator=generator)[:count]]
    return torch.stack([found // n, found % n])


def predict_links(
    model: TrainedModel, graph: Data, pairs: Tensor, rewirings: int = 16, seed: int = 0
) -> Prediction:
    """Probability that each pair of nodes [2, M] is connected, and its std, [M, 1] each.

    In an undirected graph, the order of the two nodes of a pair does not matter. Rows are in the
    order of the pairs.
    """
    _check(graph, pairs)
    if _is_undirected(graph):
        pairs = pairs.sort(dim=0).values  # training only asks with the smaller number first
    pairs, place = pairs.unique(dim=1, return_inverse=True)  # queries see each other: ask once
    question = link_question(graph, pairs)
    mean, std = model.predict([question], rewirings, seed)
    first = graph.edge_index.size(1)  # the known edges come first
    return Prediction(mean[first:][place], std[first:][place])


def _check(graph: Data, pairs: Tensor) -> None:
    check_sizes([graph])
    if not isinstance(pairs, Tensor) or pairs.dim() != 2 or pairs.size(0) != 2:
        raise GrassError("The pairs of nodes must be a tensor of shape [2, M].")


def _is_undirected(graph: Data) -> bool:
    """Whether each edge has its reverse, whatever the edge features, which are not used.

    Otherwise the reverse of a hidden edge could be among the known ones.
    """
    return is_undirected(plain_tensor(graph.edge_index), num_nodes=graph.num_nodes)
