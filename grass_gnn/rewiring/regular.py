"""Random regular graphs by the permutation model (equation 5), for a whole batch at once."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from grass_gnn.rewiring.seeds import random_bits, shift_right
from grass_gnn.validation import (
    check_choice,
    check_graph_ptr,
    check_non_negative_int,
    check_positive_int,
)

Variant = Literal["directed", "undirected", "half", "simple"]
"""How repeats are removed from a drawn graph: ``config.RewiringConfig.variant``."""

_KEY_BITS = 40  # random bits of a sorting key; the others hold the permutation and graph


def random_regular_edges(
    graph_ptr: Tensor,
    r: int,
    seeds: Tensor,
    variant: Variant = "directed",
    max_trials: int = 1000,
) -> Tensor:
    r"""Edges of a random regular graph on the nodes of each graph, in both directions.

    For each graph :math:`\min(r, |V| - 1)` random permutations :math:`\sigma` of its nodes are
    drawn (none for one node), which give the pairs :math:`(i, \sigma(i))`. Then, by ``variant``:

    * ``"directed"`` (the paper's experiments): pairs :math:`(i, i)` and repeats of :math:`(i, j)`
      are removed, and each remaining pair becomes two edges. Where both :math:`(i, j)` and
      :math:`(j, i)` were drawn, there are two edges in each direction.
    * ``"undirected"`` (the paper's pseudocode): the same, but :math:`(j, i)` counts as a repeat of
      :math:`(i, j)`.
    * ``"half"`` (the paper's main text): as ``"undirected"``, with :math:`r / 2` permutations.
    * ``"simple"``: all permutations of a graph are redrawn until nothing has to be removed.
      With :math:`p` permutations a trial succeeds with probability about
      :math:`e^{-(p^2 + p/2)}`, so this is for r = 1 or 2.

    Args:
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        r: Number of permutations (twice that number for ``"half"``).
        seeds: One int64 seed per graph [B]; a graph's edges depend on its seed and size alone.
        variant: How loops and repeats are removed.
        max_trials: Most draws of ``"simple"``.

    Returns:
        Head and tail of each edge [2, E], grouped by graph; each drawn pair precedes its reverse.
    """
    check_graph_ptr(graph_ptr)
    check_non_negative_int("r", r)
    check_choice("variant", variant, get_args(Variant))
    check_seeds(seeds, graph_ptr)
    graph_ptr = graph_ptr.long()
    if variant == "half":
        if r % 2:
            raise ValueError(f'r must be even in the variant "half" (r / 2 permutations), not {r}.')
        r //= 2
    r = min(r, max(0, int(graph_ptr.diff(prepend=graph_ptr[:1]).max()) - 1))  # no graph uses more
    if variant == "simple":
        return both_directions(_draw_until_simple(graph_ptr, r, seeds, max_trials))
    head, tail = _draw(graph_ptr, r, seeds)  # [N, r] each
    kept = head != tail  # [N, r]
    if variant == "directed":
        # A repeat of a pair is among the r targets of its head, so no sorting is needed.
        for p in range(1, r):
            kept[:, p] &= (tail[:, :p] != tail[:, p : p + 1]).all(1)
        return both_directions(torch.stack([head[kept], tail[kept]]))
    return both_directions(distinct_pairs(torch.stack([head[kept], tail[kept]]), directed=False))


def both_directions(pairs: Tensor) -> Tensor:
    """Each pair followed by its reverse [2, 2M], which keeps the pairs of a graph together."""
    return torch.stack([pairs, pairs.flip(0)], dim=2).view(2, -1)


def distinct_pairs(pairs: Tensor, directed: bool) -> Tensor:
    """The unique pairs of [2, M], sorted by head; if not ``directed``, (j, i) equals (i, j)."""
    if pairs.numel() == 0:
        return pairs
    head, tail = pairs if directed else pairs.sort(dim=0).values
    size = int(pairs.max()) + 1
    code = torch.unique(head * size + tail)
    return torch.stack([code // size, code % size])


def check_seeds(seeds: Tensor, graph_ptr: Tensor) -> None:
    """Raise unless there is one int64 seed for each graph [B]."""
    if seeds.dtype != torch.int64:
        raise TypeError(f"seeds must hold int64, not {seeds.dtype}.")
    if seeds.shape != (graph_ptr.numel() - 1,):
        raise ValueError(
            f"seeds must have one value for each of the {graph_ptr.numel() - 1} graphs, "
            f"but their shape is {list(seeds.shape)}."
        )


def _draw(graph_ptr: Tensor, r: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs (i, σ_p(i)) of all graphs, as head and tail [N, r] each.

    Beyond the |V| − 1 permutations that a small graph gets, σ_p is the identity: only loops.
    """
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    num_graphs, num_nodes = sizes.numel(), graph.numel()
    if num_graphs * r >= 1 << (63 - _KEY_BITS):
        raise ValueError(f"{num_graphs} graphs with r = {r} are too many for one call.")
    node = torch.arange(num_nodes, device=graph.device)  # [N]
    permutation = torch.arange(r, device=graph.device).unsqueeze(1)  # [r, 1]

    # Sorting random keys within each (permutation, graph) gives a uniform permutation of nodes.
    bits = random_bits(seeds[graph], permutation, node - graph_ptr[graph])  # [r, N]
    group = permutation * num_graphs + graph  # [r, N]
    key = (group << _KEY_BITS) | shift_right(bits, 64 - _KEY_BITS)  # [r, N]
    order = torch.argsort(key.view(-1), stable=True).view(r, num_nodes)
    target = order - permutation * num_nodes  # [r, N]: a row of keys holds all nodes once
    target = torch.where(permutation < (sizes - 1)[graph], target, node)  # [r, N]
    return node.unsqueeze(1).expand(-1, r), target.t().contiguous()


def _draw_until_simple(graph_ptr: Tensor, r: int, seeds: Tensor, max_trials: int) -> Tensor:
    """Pairs [2, M] of simple graphs; those that are not simple are redrawn."""
    check_positive_int("max_trials", max_trials)
    sizes = graph_ptr.diff()  # [B]
    permutations = (sizes - 1).clamp(min=0, max=r)  # [B]
    impossible = (2 * permutations > sizes - 1) & (permutations > 0)
    if bool(impossible.any()):
        place = int(impossible.nonzero()[0])
        raise ValueError(
            f"Graph {place} has {int(sizes[place])} nodes, but a simple graph in which each has "
            f"{2 * int(permutations[place])} neighbours needs more: lower r or change the variant."
        )
    pending = torch.arange(sizes.numel(), device=sizes.device)  # graphs that are not simple yet
    found = []
    for trial in range(max_trials):
        pending_sizes = sizes[pending]
        ptr = torch.cat([pending_sizes.new_zeros(1), pending_sizes.cumsum(0)])
        head, tail = _draw(ptr, r, random_bits(seeds[pending], trial))  # [n, r] each
        graph = torch.repeat_interleave(pending_sizes)  # [n]
        wanted = torch.arange(r, device=ptr.device) < permutations[pending][graph].unsqueeze(1)
        pairs = torch.stack([head[wanted], tail[wanted]])  # [2, M]
        unique = distinct_pairs(pairs[:, pairs[0] != pairs[1]], directed=False)
        count = torch.bincount(graph[unique[0]], minlength=pending.numel())
        simple = count == permutations[pending] * pending_sizes  # nothing had to be removed
        pair_graph = graph[pairs[0]]
        offset = (graph_ptr[pending] - ptr[:-1])[pair_graph]
        found.append((pairs + offset)[:, simple[pair_graph]])
        pending = pending[~simple]
        if pending.numel() == 0:
            pairs = torch.cat(found, dim=1)
            return pairs[:, torch.argsort(pairs[0], stable=True)]
    raise ValueError(
        f"No simple graph found for {pending.numel()} of {sizes.numel()} graphs in {max_trials} "
        f"trials with r = {r}; the probability falls as exp(-(r² + r/2)): lower r, raise "
        "max_trials or change the variant."
    )
