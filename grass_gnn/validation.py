"""Checks of arguments; error messages name the invalid value."""

from __future__ import annotations

import torch
from torch import Tensor


def check_graph(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> None:
    """Raise unless ``edge_index`` (and ``weight``) describe edges among ``num_nodes`` nodes.

    Args:
        edge_index: Head and tail of each edge [2, E], integers in [0, num_nodes).
        num_nodes: The number of nodes.
        weight: Weight of each edge [E], finite and non-negative.
    """
    check_non_negative_int("num_nodes", num_nodes)
    check_pairs("edge_index", edge_index, num_nodes)
    if weight is not None:
        check_weights("weight", weight, edge_index.size(1))


def check_weights(name: str, weights: Tensor, num_edges: int) -> None:
    """Raise unless ``weights`` [E] has a finite, non-negative number for each edge."""
    if not isinstance(weights, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(weights).__name__}.")
    if weights.shape != (num_edges,):
        raise ValueError(
            f"{name} must have one value for each of the {num_edges} edges, "
            f"but its shape is {list(weights.shape)}."
        )
    check_finite(name, weights)
    if weights.numel() and weights.min() < 0:
        place = int(weights.argmin())
        raise ValueError(f"{name}[{place}] is {weights[place].item()}, but must not be negative.")


def check_pairs(name: str, pairs: Tensor, num_nodes: int) -> None:
    """Raise unless ``pairs`` is an integer tensor [2, M] with values in [0, num_nodes)."""
    if not isinstance(pairs, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(pairs).__name__}.")
    if pairs.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must contain integers (int64 or int32), not {pairs.dtype}.")
    if pairs.dim() != 2 or pairs.size(0) != 2:
        raise ValueError(f"{name} must have shape [2, E], but its shape is {list(pairs.shape)}.")
    if pairs.numel() == 0:
        return
    low, high = torch.aminmax(pairs)
    if low < 0 or high >= num_nodes:
        row, column = ((pairs < 0) | (pairs >= num_nodes)).nonzero()[0].tolist()
        raise ValueError(
            f"{name}[{row}, {column}] is {pairs[row, column].item()}, "
            f"but must be between 0 and {num_nodes - 1} (there are {num_nodes} nodes)."
        )


def check_graph_ptr(graph_ptr: Tensor, num_nodes: int | None = None) -> None:
    """Raise unless ``graph_ptr`` [B + 1] has the first node of each graph, and the end."""
    if not isinstance(graph_ptr, Tensor) or graph_ptr.dtype not in (torch.int64, torch.int32):
        raise TypeError("graph_ptr must be an integer tensor.")
    if graph_ptr.dim() != 1 or graph_ptr.numel() == 0:
        raise ValueError(
            f"graph_ptr must have shape [B + 1], but its shape is {list(graph_ptr.shape)}."
        )
    if graph_ptr[0] != 0 or bool((graph_ptr.diff() < 0).any()):
        raise ValueError("graph_ptr must start at 0 and never decrease.")
    if num_nodes is not None and graph_ptr[-1] != num_nodes:
        raise ValueError(
            f"graph_ptr must end at the number of nodes, {num_nodes}, not at {int(graph_ptr[-1])}."
        )


def check_within_graphs(name: str, pairs: Tensor, graph_ptr: Tensor) -> None:
    """Raise if one of ``pairs`` [2, M] connects two different graphs."""
    graph = torch.repeat_interleave(graph_ptr.diff())  # [N]
    head, tail = graph[pairs]  # [M] each
    if not torch.equal(head, tail):
        place = int((head != tail).nonzero()[0])
        raise ValueError(f"{name}[:, {place}] connects nodes of two different graphs.")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise if ``tensor`` contains NaN or infinity."""
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        place = (~finite).nonzero()[0].tolist()
        raise ValueError(f"{name}{place} is {tensor[tuple(place)].item()}, but must be finite.")


def check_positive_int(name: str, value: int) -> None:
    """Raise unless ``value`` is an integer of at least 1."""
    _check_int(name, value, least=1)


def check_non_negative_int(name: str, value: int) -> None:
    """Raise unless ``value`` is an integer of at least 0."""
    _check_int(name, value, least=0)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def check_attr_name(attr_name: str) -> None:
    """Raise unless ``attr_name`` can name an attribute that is not incremented in PyG batches."""
    if not isinstance(attr_name, str):
        raise TypeError(f"attr_name must be a string, not {type(attr_name).__name__}.")
    if not attr_name.isidentifier() or "index" in attr_name or "batch" in attr_name:
        raise ValueError(
            f"attr_name must be an identifier without 'index' or 'batch' in it (PyG increments "
            f"those when batching), not {attr_name!r}."
        )


def _check_int(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}.")
