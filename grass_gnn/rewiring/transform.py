"""Random rewiring as a PyG transform, for one graph or a whole batch."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.drrwp import decomposed_pairs_of
from grass_gnn.encoding.laplacian import laplacian_pairs
from grass_gnn.encoding.rrwp import rrwp_pairs
from grass_gnn.rewiring.alternatives import complete_edges, random_edges
from grass_gnn.rewiring.regular import Variant, random_regular_edges
from grass_gnn.rewiring.seeds import graph_seeds, random_bits, step_seeds
from grass_gnn.validation import check_choice, check_graph, check_non_negative_int

Kind = Literal["regular", "non-regular", "complete"]
When = Literal["always", "once", "graph"]


class AddRandomRegularEdges(BaseTransform):
    """Superimpose a random regular graph, H = (V, E_G ⊔ E_R).

    The added edges follow the present ones (on a batch, those of their graph), and
    ``data.added_edge_mask`` [E] tells them apart; parallels to present edges stay. ``edge_attr`` is
    zero on them. Their ``edge_rrwp`` and ``edge_laplacian_pe`` are computed where an encoding's
    transform has come before. Other edge-level tensors are not touched: they describe, in their
    order, the edges outside the mask.

    Args:
        r: Number of random permutations, each of which adds two edges per node.
        kind: ``"regular"``; ``"non-regular"``, as many edges between independent random nodes; or
            ``"complete"``, all pairs, whatever ``r``.
        variant: How ``"regular"`` deals with loops and repeats, see :func:`random_regular_edges`.
        when: ``"always"`` draws anew in each call. ``"once"`` gives a graph the same edges in each
            call of this transform. ``"graph"`` gives them in every run: they follow from a hash of
            the graph (its numbered nodes and edges, not its features), and from ``seed``.
        seed: Makes what is drawn reproducible. Without it ``"always"`` and ``"once"`` draw from
            PyTorch's default generator.
    """

    def __init__(
        self,
        r: int,
        kind: Kind = "regular",
        variant: Variant = "directed",
        when: When = "always",
        seed: int | None = None,
    ) -> None:
        check_non_negative_int("r", r)
        check_choice("kind", kind, get_args(Kind))
        check_choice("variant", variant, get_args(Variant))
        check_choice("when", when, get_args(When))
        if variant == "half" and r % 2:
            raise ValueError(f'r must be even in the variant "half" (r / 2 permutations), not {r}.')
        self.r = r
        self.kind = kind
        self.variant: Variant = variant
        self.when = when
        self.seed = seed
        # "once" is a graph's hash with a seed of this transform's own.
        self._hash_seed = _draw_seed() if when == "once" and seed is None else seed or 0
        self._calls = 0

    def forward(self, data: Data) -> Data:
        """Append the edges, their features and their encodings."""
        if not isinstance(data, Data):
            raise TypeError(
                f"A torch_geometric Data or Batch is expected, not {type(data).__name__}."
            )
        if "added_edge_mask" in data:
            raise ValueError("The graph is rewired already: it has an added_edge_mask.")
        check_graph(data.edge_index, data.num_nodes)
        graph_ptr = (
            data.ptr
            if isinstance(data, Batch)
            else torch.tensor([0, data.num_nodes], device=data.edge_index.device)
        )
        added = self._draw(data.edge_index, graph_ptr)  # [2, E_R]
        num_present, num_added = data.edge_index.size(1), added.size(1)
        extended = {
            "edge_index": torch.cat([data.edge_index, added.to(data.edge_index.dtype)], dim=1),
            "added_edge_mask": torch.arange(num_present + num_added, device=added.device)
            >= num_present,
        }
        for key, rows in _edge_features(data, added, graph_ptr).items():
            extended[key] = torch.cat([data[key], rows])
        if isinstance(data, Batch):
            _put_in_batch(data, extended, graph_ptr)
        else:
            for key, value in extended.items():
                data[key] = value
        return data

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(r={self.r}, kind={self.kind!r}, variant={self.variant!r}, "
            f"when={self.when!r}, seed={self.seed})"
        )

    def _draw(self, edge_index: Tensor, graph_ptr: Tensor) -> Tensor:
        if self.kind == "complete":
            return complete_edges(graph_ptr)
        seeds = self._seeds(edge_index, graph_ptr)  # [B]
        if self.kind == "non-regular":
            return random_edges(graph_ptr, self.r, seeds)
        return random_regular_edges(graph_ptr, self.r, seeds, self.variant)

    def _seeds(self, edge_index: Tensor, graph_ptr: Tensor) -> Tensor:
        if self.when != "always":
            return graph_seeds(edge_index, graph_ptr, self._hash_seed)
        graphs = torch.arange(graph_ptr.numel() - 1, device=graph_ptr.device)  # [B]
        if self.seed is None:
            return step_seeds(_draw_seed(), 0, graphs)  # workers have generators of their own
        self._calls += 1
        # A loader's workers start as copies of one transform, but with seeds of their own.
        worker = get_worker_info()
        return random_bits(
            step_seeds(self.seed, self._calls, graphs), worker.seed if worker is not None else 0
        )


def _draw_seed() -> int:
    return int(torch.randint(-(2**63), 2**63 - 1, ()))


def _edge_features(data: Data, added: Tensor, graph_ptr: Tensor) -> dict[str, Tensor]:
    """Rows that the edge-level tensors of a graph get for its added edges."""
    rows = {}
    if data.edge_attr is not None:
        rows["edge_attr"] = data.edge_attr.new_zeros(added.size(1), *data.edge_attr.shape[1:])
    if "edge_laplacian_pe" in data:
        rows["edge_laplacian_pe"] = laplacian_pairs(data.laplacian_pe, added)
    if "edge_rrwp" not in data:
        return rows
    if "rrwp_transition" in data:
        rows["edge_rrwp"] = rrwp_pairs(
            added,
            data.rrwp_edge_index,
            data.rrwp_transition,
            data.num_nodes,
            data.rrwp.size(1),
            graph_ptr,
        )
    elif "rrwp_vectors" in data:
        sides = 2 if "rrwp_right_vectors" in data else 1
        rows["edge_rrwp"] = decomposed_pairs_of(data, added, data.rrwp.size(1) // sides)
    else:
        raise ValueError(
            "The graph has edge_rrwp, but neither rrwp_transition nor rrwp_vectors, which the "
            "encoding of added edges needs."
        )
    return rows


def _put_in_batch(batch: Batch, extended: dict[str, Tensor], graph_ptr: Tensor) -> None:
    """Sort the edges by graph and note their new ends: the batch can be taken apart again."""
    graph = torch.repeat_interleave(graph_ptr.diff())[extended["edge_index"][0]]  # [E]
    order = torch.argsort(graph, stable=True)
    num_graphs = graph_ptr.numel() - 1
    ends = torch.bincount(graph, minlength=num_graphs).cumsum(0).cpu()  # [B]
    for key, value in extended.items():
        batch[key] = value[..., order] if key == "edge_index" else value[order]
        # A batch made by hand has no record of its parts.
        if getattr(batch, "_slice_dict", None) is not None:
            batch._slice_dict[key] = torch.cat([ends.new_zeros(1), ends])
            batch._inc_dict.setdefault(key, torch.zeros(num_graphs, dtype=torch.int64))
