"""The edges that rewiring adds, for a whole batch at once, and the random numbers behind them.

Random regular graphs by the permutation model (equation 5); for the ablations, independent random
edges and all pairs. Random numbers are counter-based: a hash of (seed, counters), computed for all
nodes of all graphs at once. With a stateful generator, the rewiring of a graph would depend on the
graphs before it in the batch; here it depends on the seed of the graph alone.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from grass_gnn.errors import GrassError
from grass_gnn.validation import (
    check_choice,
    check_graph,
    check_graph_ptr,
    check_non_negative_int,
    check_positive_int,
)

Variant = Literal["directed", "undirected", "half", "simple"]
"""How repeats are removed from a drawn graph: ``config.RewiringConfig.variant``."""

_KEY_BITS = 40  # random bits of a sorting key; the others hold the permutation and graph
_GOLDEN_RATIO = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio, and odd


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
        max_trials: Maximum number of draws for ``"simple"``.

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
        raise TypeError(f"seeds must be int64, not {seeds.dtype}.")
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
        raise GrassError(
            f"A graph has {int(sizes[place])} nodes, but a simple graph in which each has "
            f"{2 * int(permutations[place])} neighbours needs more: lower r (rewiring.degree) or "
            "change the variant (rewiring.variant)."
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
    raise GrassError(
        f"No simple graph found for {pending.numel()} of {sizes.numel()} graphs in {max_trials} "
        f"trials with r = {r}; the probability falls as exp(-(r² + r/2)): lower r "
        "(rewiring.degree), raise max_trials or change the variant (rewiring.variant)."
    )


def random_edges(graph_ptr: Tensor, r: int, seeds: Tensor) -> Tensor:
    """As many random pairs as :func:`random_regular_edges` draws, but with independent ends.

    min(r, |V| − 1) · |V| pairs per graph are drawn with uniform ends. Loops and repeats in the same
    direction are removed, and each remaining pair becomes two edges.

    Args:
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        r: Number of pairs per node.
        seeds: One int64 seed per graph [B].

    Returns:
        Head and tail of each edge [2, E], grouped by graph; each drawn pair precedes its reverse.
    """
    check_graph_ptr(graph_ptr)
    check_non_negative_int("r", r)
    check_seeds(seeds, graph_ptr)
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    drawn = sizes * (sizes - 1).clamp(min=0, max=r)  # [B]
    graph = torch.repeat_interleave(drawn)  # [M]
    first = drawn.cumsum(0) - drawn  # [B]
    number = torch.arange(graph.numel(), device=graph.device) - first[graph]  # [M], in its graph
    end = torch.arange(2, device=graph.device).unsqueeze(1)  # [2, 1]
    bits = shift_right(random_bits(seeds[graph], number, end), 32)  # [2, M]
    pairs = ((bits * sizes[graph]) >> 32) + graph_ptr[graph]  # [2, M]
    return both_directions(distinct_pairs(pairs[:, pairs[0] != pairs[1]], directed=True))


def complete_edges(graph_ptr: Tensor) -> Tensor:
    """All ordered pairs of different nodes of each graph [2, E], sorted by head.

    Args:
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
    """
    check_graph_ptr(graph_ptr)
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    size = sizes[graph]  # [N]
    head = torch.repeat_interleave(size)  # [Σ n²]: each node once per node of its graph
    row_start = torch.cumsum(size, 0) - size  # [N]
    tail = torch.arange(head.numel(), device=head.device) - row_start[head] + graph_ptr[graph[head]]
    return torch.stack([head, tail])[:, head != tail]


def random_bits(seeds: Tensor, *counters: Tensor | int) -> Tensor:
    """64 random bits for every combination of a seed and its counters.

    Args:
        seeds: One int64 seed for each result, of any shape [...].
        counters: Distinguish results of the same seed; all broadcast with ``seeds``.
    """
    bits = _mix(seeds + _signed(_GOLDEN_RATIO))
    for counter in counters:
        # Tensors wrap around by themselves, Python integers do not.
        step = (
            counter * _signed(_GOLDEN_RATIO)
            if isinstance(counter, Tensor)
            else (_signed(counter * _GOLDEN_RATIO))
        )
        bits = _mix(bits + step)
    return bits


def shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical right shift of int64 [...]; ``>>`` would repeat the sign bit."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def step_seeds(seed: int, epoch: int, graph_ids: Tensor) -> Tensor:
    """Seeds of the graphs of one training step.

    Args:
        seed: Random seed of the run.
        epoch: Number of the epoch; each has new random edges.
        graph_ids: Index of each graph in its dataset [B].

    Returns:
        One int64 seed per graph [B].
    """
    return random_bits(
        torch.full_like(graph_ids, _signed(seed), dtype=torch.int64), epoch, graph_ids
    )


def graph_seeds(
    edge_index: Tensor,
    graph_ptr: Tensor,
    seed: int = 0,
    x: Tensor | None = None,
    edge_attr: Tensor | None = None,
) -> Tensor:
    """A hash of each graph as its seed, so that a graph has the same seed in any batch.

    The hash covers the number of nodes, the multiset of edges (in any order, with nodes numbered
    within the graph), and features if given. It depends on the numbering of the nodes.

    Args:
        edge_index: Head and tail of each edge [2, E].
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
        seed: Random seed of the hash.
        x: Node features [N, ...] to include in the hash.
        edge_attr: Edge features [E, ...] to include in the hash.

    Returns:
        One int64 seed per graph [B].
    """
    check_graph_ptr(graph_ptr)
    check_graph(edge_index, int(graph_ptr[-1]))
    graph_ptr = graph_ptr.long()
    sizes = graph_ptr.diff()  # [B]
    graph = torch.repeat_interleave(sizes)  # [N]
    local = torch.arange(graph.numel(), device=graph.device) - graph_ptr[graph]  # [N]
    head, tail = edge_index.long()

    edge_hash = random_bits(local[head], local[tail])  # [E]
    if edge_attr is not None:
        edge_hash = random_bits(edge_hash, _row_hash(edge_attr))
    # A sum does not depend on the order of edges, and counts parallel ones.
    total = torch.zeros_like(sizes).index_add(0, graph[head], edge_hash)  # [B]
    if x is not None:
        total.index_add_(0, graph, random_bits(_row_hash(x), local, 1))
    return random_bits(total, sizes, seed)


def _row_hash(features: Tensor) -> Tensor:
    rows = features.reshape(features.size(0), -1)  # [N, F]
    if rows.is_floating_point():
        rows = (rows.double() + 0.0).view(torch.int64)  # -0.0 + 0.0 is 0.0: equal, so equal bits
    columns = torch.arange(rows.size(1), device=rows.device)
    return random_bits(rows.long(), columns).sum(1)  # [N]


def _mix(bits: Tensor) -> Tensor:
    """The finaliser of splitmix64; int64 products wrap around, as intended."""
    bits = (bits ^ shift_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shift_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ shift_right(bits, 31)


def _signed(value: int) -> int:
    """The int64 with the bits of ``value`` modulo 2⁶⁴."""
    return (value + 2**63) % 2**64 - 2**63
