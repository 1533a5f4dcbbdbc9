"""Random rewiring as a PyG transform, of one graph or a whole batch."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding import (
    ENCODINGS,
    Structure,
    check_not_stale,
    graph_ptr_of,
    plain_tensor,
)
from grass_gnn.rewiring.edges import (
    Variant,
    complete_edges,
    graph_seeds,
    random_bits,
    random_edges,
    random_regular_edges,
    step_seeds,
)
from grass_gnn.validation import check_choice, check_graph, check_non_negative_int

Kind = Literal["regular", "non-regular", "complete"]
When = Literal["always", "once", "graph"]


class AddRandomRegularEdges(BaseTransform):
    """Superimpose a random regular graph, H = (V, E_G ⊔ E_R).

    Added edges are appended to the input edges (in a batch, to those of their graph if the edges
    are grouped by graph), and
    ``data.added_edge_mask`` [E] marks them; they may be parallel to input edges. Their
    ``edge_attr`` is zero, and the encodings of edges that transforms such as ``AddRRWP`` have
    written (under any ``attr_name``) are extended to them. Other edge-level tensors, such as
    ``edge_weight``, are not changed: they belong to the edges outside the mask.

    Transforms that change nodes or edges (``ToUndirected``, ``subgraph``) come first, then
    encodings, and this transform last.

    Args:
        r: Number of random permutations, each of which adds two edges per node.
        kind: ``"regular"``; ``"non-regular"``, as many edges between independent random nodes; or
            ``"complete"``, all pairs of nodes, regardless of ``r``.
        variant: How ``"regular"`` removes loops and repeats, see :func:`random_regular_edges`.
        when: ``"always"`` draws new edges in each call. ``"once"`` gives a graph the same edges in
            each call of this transform. ``"graph"`` gives it the same edges in every run, derived
            from ``seed`` and a hash of the graph (its numbered nodes and edges, not its features).
        seed: Random seed. Without it, ``"always"`` and ``"once"`` use PyTorch's default generator.
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
        # "once" hashes the graph with a seed drawn for this transform.
        self._hash_seed = _draw_seed() if when == "once" and seed is None else seed or 0
        self._calls = 0

    def forward(self, data: Data) -> Data:
        """Append the edges, their features and their encodings."""
        if not isinstance(data, Data):
            raise TypeError(
                f"A torch_geometric Data or Batch is expected, not {type(data).__name__}."
            )
        if "added_edge_mask" in data:
            raise ValueError("The graph has already been rewired: it has an added_edge_mask.")
        data.edge_index = plain_tensor(data.edge_index)
        check_graph(data.edge_index, data.num_nodes)
        graph_ptr = graph_ptr_of(data)
        added = self._draw(data.edge_index, graph_ptr)  # [2, E_R]
        num_present, num_added = data.edge_index.size(1), added.size(1)
        extended = {
            "edge_index": torch.cat([data.edge_index, added.to(data.edge_index.dtype)], dim=1),
            "added_edge_mask": torch.arange(num_present + num_added, device=added.device)
            >= num_present,
        }
        for key, rows in _edge_features(data, added, graph_ptr).items():
            extended[key] = torch.cat([data[key], rows])
        if graph_ptr.numel() > 2 or isinstance(data, Batch):
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
            return step_seeds(_draw_seed(), 0, graphs)  # each worker has its own generator
        self._calls += 1
        # A loader's workers start with copies of one transform, but each has its own seed.
        worker = get_worker_info()
        return random_bits(
            step_seeds(self.seed, self._calls, graphs), worker.seed if worker is not None else 0
        )


def _draw_seed() -> int:
    return int(torch.randint(-(2**63), 2**63 - 1, (), device="cpu"))


def _edge_features(data: Data, added: Tensor, graph_ptr: Tensor) -> dict[str, Tensor]:
    """Rows of the added edges in ``edge_attr`` and in the encodings of edges."""
    rows = {}
    if data.edge_attr is not None:
        rows["edge_attr"] = data.edge_attr.new_zeros(added.size(1), *data.edge_attr.shape[1:])
    for name in _encoding_names(data):
        check_not_stale(data, name, data.edge_index, graph_ptr)
        written = (encoding.of_written(data, name) for encoding in ENCODINGS.values())
        found = next((one for one in written if one is not None), None)
        if found is None:
            raise ValueError(
                f"The graph has 'edge_{name}', but not the tensors needed to encode added "
                f"edges, such as '{name}_transition' or '{name}_vectors'."
            )
        encoding, stored = found
        rows[f"edge_{name}"] = encoding.pairs(added, Structure(data.edge_index, graph_ptr, stored))
    if "degree_checksum" in data:
        check_not_stale(data, "degree", data.edge_index, graph_ptr)
    return rows


def _encoding_names(data: Data) -> list[str]:
    """The ``attr_name`` of each encoding that transforms wrote to a graph."""
    default = {encoding.attr_name for encoding in ENCODINGS.values()}
    names = [key.removeprefix("edge_") for key, _ in data if key.startswith("edge_")]
    return [
        name for name in names if name in data and (f"{name}_checksum" in data or name in default)
    ]


def _put_in_batch(batch: Data, extended: dict[str, Tensor], graph_ptr: Tensor) -> None:
    """Sort the edges by graph and update the slices, so that the batch can be split again.

    If the present edges are not grouped by graph, sorting would take them away from tensors such
    as ``edge_weight``. They keep their order instead, and the batch cannot be split.
    """
    graph = torch.repeat_interleave(graph_ptr.diff())[extended["edge_index"][0]]  # [E]
    present = graph[~extended["added_edge_mask"]]
    if bool((present.diff() < 0).any()):
        for key, value in extended.items():
            batch[key] = value
        for name in ("_slice_dict", "_inc_dict"):  # they count edges in front of added ones
            if hasattr(batch, name):
                delattr(batch, name)
        return
    order = torch.argsort(graph, stable=True)
    num_graphs = graph_ptr.numel() - 1
    ends = torch.bincount(graph, minlength=num_graphs).cumsum(0).cpu()  # [B]
    for key, value in extended.items():
        batch[key] = value[..., order] if key == "edge_index" else value[order]
        # A batch made by hand has no slices.
        if getattr(batch, "_slice_dict", None) is not None:
            batch._slice_dict[key] = torch.cat([ends.new_zeros(1), ends])
            batch._inc_dict.setdefault(key, torch.zeros_like(ends))
