"""Random stacks of layers, and what they give in float64 by the reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from grass_gnn.ops import (
    EdgeOrder,
    LayerWeights,
    edge_order,
    grass_layer,
    grass_stack,
    pack_weights,
    removal_mask,
)

EPSILON = 1e-7


class Problem(NamedTuple):
    """Inputs in float64, and the directions in which gradients are taken."""

    x: Tensor
    e: Tensor
    edge_index: Tensor
    graph_ptr: Tensor
    layers: list[LayerWeights]
    along_x: Tensor
    along_e: Tensor

    def order(self) -> EdgeOrder:
        return edge_order(self.edge_index, self.x.size(0), self.graph_ptr)


class Result(NamedTuple):
    x: Tensor
    e: Tensor
    statistics: Tensor | None
    grad_x: Tensor
    grad_e: Tensor
    grad_weights: Tensor


def random_edges(sizes: list[int], per_node: float, generator: torch.Generator) -> Tensor:
    """Uniform edges within graphs, in random order: with loops, repeats and isolated nodes."""
    parts, start = [], 0
    for size in sizes:
        count = round(size * per_node)
        parts.append(torch.randint(size, (2, count), generator=generator) + start)
        start += size
    edges = torch.cat(parts, dim=1)
    return edges[:, torch.randperm(edges.size(1), generator=generator)]


def make_problem(
    width: int = 32,
    layers: int = 2,
    sizes: tuple[int, ...] = (9, 1, 14),
    per_node: float = 4.0,
    edge_index: Tensor | None = None,
    output_bias: bool = False,
    seed: int = 0,
) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if edge_index is None:
        edge_index = random_edges(list(sizes), per_node, generator)
    nodes, edges = sum(sizes), edge_index.size(1)
    d, scale = width, width**-0.5

    def layer() -> LayerWeights:
        return LayerWeights(
            normal(4 * d, d) * scale,
            normal(3 * d, d) * scale,
            normal(d) * 0.2,
            normal(d) * 0.2,
            normal(d, d) * scale,
            normal(d, d) * scale,
            normal(d) * 0.2 if output_bias else None,
            normal(d) * 0.2 if output_bias else None,
        )

    return Problem(
        normal(nodes, d) * 1.5 + 0.5,
        normal(edges, d),
        edge_index,
        torch.tensor([0, *sizes]).cumsum(0),
        [layer() for _ in range(layers)],
        normal(nodes, d),
        normal(edges, d),
    )


def run_native(problem: Problem, norm: str = "batch", flip: bool = True, **options: Any) -> Result:
    x, e = (t.float().requires_grad_() for t in (problem.x, problem.e))
    weights = pack_weights(problem.layers).float().requires_grad_()
    if options.get("statistics") is not None:
        options["statistics"] = options["statistics"].float()
    out = grass_stack(
        x,
        e,
        problem.edge_index,
        problem.order(),
        weights,
        residual_scale=0.3,
        flip=flip,
        norm=norm,
        **options,
    )
    torch.autograd.backward([out.x, out.e], [problem.along_x.float(), problem.along_e.float()])
    assert x.grad is not None and e.grad is not None and weights.grad is not None
    return Result(out.x, out.e, out.statistics, x.grad, e.grad, weights.grad)


def run_reference(
    problem: Problem,
    norm: str = "batch",
    flip: bool = True,
    removal: float = 0.0,
    seed: int = 0,
    statistics: Tensor | None = None,
    first_layer: int = 0,
) -> Result:
    x, e = (t.clone().requires_grad_() for t in (problem.x, problem.e))
    layers = [LayerWeights(*(_leaf(part) for part in layer)) for layer in problem.layers]
    start, found = (x, e), []
    for number, layer in enumerate(layers, first_layer):
        edge_index = problem.edge_index.flip(0) if flip and number % 2 else problem.edge_index
        keep = None
        if removal > 0:
            keep = removal_mask(seed, number, e.size(0), e.size(1), removal, dtype=e.dtype)
        out = grass_layer(x, e, edge_index, layer, 0.3, keep)
        found.append(torch.stack([_moments(out.x), _moments(out.e)]))
        given = None if statistics is None else statistics[number - first_layer].double()
        node_graph = torch.bucketize(
            torch.arange(out.x.size(0)), problem.graph_ptr[1:-1], right=True
        )
        x = _norm(out.x, norm, None if given is None else given[0], node_graph)
        e = _norm(out.e, norm, None if given is None else given[1], node_graph[edge_index[0]])
    torch.autograd.backward([x, e], [problem.along_x, problem.along_e])
    grads = [torch.cat([_grad(p).flatten() for p in w if p is not None]) for w in layers]
    return Result(
        x.detach(), e.detach(), torch.stack(found), _grad(start[0]), _grad(start[1]),
        torch.stack(grads),
    )  # fmt: skip


def _leaf(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.clone().requires_grad_()


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _moments(v: Tensor) -> Tensor:
    mean = v.detach().sum(0) / max(len(v), 1)
    return torch.stack([mean, (v.detach() - mean).square().sum(0) / max(len(v) - 1, 1)])


def _norm(v: Tensor, norm: str, given: Tensor | None, graph: Tensor) -> Tensor:
    if norm == "batch":
        if given is None:
            mean = v.sum(0) / max(len(v), 1)
            variance = (v - mean).square().sum(0) / max(len(v) - 1, 1)
        else:
            mean, variance = given
        return (v - mean) / (variance + EPSILON).sqrt()
    if norm == "instance":
        graphs = int(graph.max()) + 1 if len(graph) else 0
        total = v.new_zeros(graphs, v.size(1)).index_add(0, graph, v.square())
        mean = total / torch.bincount(graph, minlength=graphs).clamp(min=1).unsqueeze(1)
        return v / (mean + EPSILON).sqrt()[graph]
    return v


def distance(found: Tensor, expected: Tensor) -> float:
    """Of the whole tensors, relative to the expected one."""
    difference, size = (found.detach().double() - expected).norm(), expected.norm()
    return float(difference / size if size > 0 else difference)


def assert_parity(problem: Problem, **options: Any) -> None:
    """Outputs within 1e-5 and gradients within 1e-4 of the reference in float64."""
    found, expected = run_native(problem, **options), run_reference(problem, **options)
    for name in ("x", "e"):
        assert distance(getattr(found, name), getattr(expected, name)) < 1e-5, name
    for name in ("grad_x", "grad_e", "grad_weights"):
        assert distance(getattr(found, name), getattr(expected, name)) < 1e-4, name
