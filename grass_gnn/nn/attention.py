"""The GRASS layer, the stack of layers of a model, and initial values of weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from grass_gnn.config import ModelConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.encoding.graph import plain_tensor
from grass_gnn.nn.norm import make_norm
from grass_gnn.ops import (
    EdgeOrder,
    LayerWeights,
    autocasts_to_bfloat16,
    edge_order,
    grass_layer,
    grass_stack,
    pack_weights,
    use_native,
)
from grass_gnn.validation import check_pairs

if TYPE_CHECKING:
    from grass_gnn.nn.alternatives import ReplacementConv


class GRASSConv(nn.Module):
    r"""The edge-based attention layer of *Greener GRASS*, equations (7) to (14).

    The attention weight of an edge is a softmax over the in-edges of a node, separately for each
    channel, of a linear map of the edge's own representation. Edges are updated from both of their
    ends:

    .. math::
        \tilde x_j = W_1 x_j + \sum_{i \to j} a_{ij} \odot (W_2 x_i + W_3 e_{ij}), \qquad
        \tilde e_{ij} = W_4 e_{ij} + W_5 x_i + W_6 x_j, \qquad
        a_{ij} = \operatorname{softmax}_i(W_7 e_{ij})

    followed, for both, by ``norm(v + α W mish(ṽ + b))``. GRASS swaps the head and tail of every
    edge from one layer to the next (``edge_index.flip(0)``) and adds a self-loop to every node;
    both are left to the caller.

    The batch norm normalises every batch by its own moments, in evaluation as well, until
    :func:`grass_gnn.nn.collect_statistics` has averaged those of training batches. Without that,
    predictions depend on the other graphs of the batch.

    Args:
        dim: Width d of nodes and edges.
        residual_scale: α.
        edge_removal: Probability with which random edge removal drops a score in training.
        norm: ``"batch"``, ``"layer"``, ``"layer-graph"``, ``"instance"`` or ``"none"``.
        output_bias: Whether the output maps have a bias (a batch norm would remove it).

    Shapes:
        - **input**: nodes [N, d], ``edge_index`` [2, E], edges [E, d], ``batch`` [N] for norms that
          work graph by graph
        - **output**: nodes [N, d], edges [E, d], and attention weights [E, d] if requested

    Example:
        >>> conv = GRASSConv(32)
        >>> x, edge_attr = torch.randn(4, 32), torch.randn(6, 32)
        >>> edge_index = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 0, 2]])
        >>> x, edge_attr = conv(x, edge_index, edge_attr)
        >>> x.shape, edge_attr.shape
        (torch.Size([4, 32]), torch.Size([6, 32]))
    """

    def __init__(
        self,
        dim: int,
        residual_scale: float = 0.2,
        edge_removal: float = 0.0,
        norm: str = "batch",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim must be at least 1, not {dim}")
        if not 0 <= edge_removal < 1:
            raise ValueError(f"edge_removal must be a probability below 1, not {edge_removal}")
        if output_bias and norm == "batch":
            raise ValueError(
                "a batch norm removes output biases: choose another norm, or output_bias=False"
            )
        self.dim = dim
        self.residual_scale = residual_scale
        self.edge_removal = edge_removal
        self.norm = norm
        # Rows: tail←tail | tail←head | edge←head | edge←tail, and edge←edge | tail←edge | attn←edge
        self.node_in = nn.Linear(dim, 4 * dim, bias=False)
        self.edge_in = nn.Linear(dim, 3 * dim, bias=False)
        self.node_bias = nn.Parameter(torch.zeros(dim))
        self.edge_bias = nn.Parameter(torch.zeros(dim))
        self.node_out = nn.Linear(dim, dim, bias=output_bias)
        self.edge_out = nn.Linear(dim, dim, bias=output_bias)
        self.node_norm = make_norm(norm, dim)
        self.edge_norm = make_norm(norm, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise all weights and discard the statistics of the norms."""
        for linear in (self.node_in, self.edge_in, self.node_out, self.edge_out):
            init_linear(linear)
        nn.init.zeros_(self.node_bias)
        nn.init.zeros_(self.edge_bias)
        self.node_norm.reset_parameters()
        self.edge_norm.reset_parameters()

    @property
    def weights(self) -> LayerWeights:
        """The parameters in the form that ``ops`` expects."""
        return LayerWeights(
            self.node_in.weight,
            self.edge_in.weight,
            self.node_bias,
            self.edge_bias,
            self.node_out.weight,
            self.edge_out.weight,
            self.node_out.bias,
            self.edge_out.bias,
        )

    def removal(self, e: Tensor) -> Tensor | None:
        """Factors of the edges' scores [E, d] in training: 0 or 1/(1 − p), drawn at random."""
        if not self.training or self.edge_removal == 0:
            return None
        return nn.functional.dropout(torch.ones_like(e), self.edge_removal)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        keep: Tensor | None = None,
        return_attention_weights: bool = False,
        **deprecated: bool,
    ) -> tuple[Any, ...]:
        """Update nodes and edges.

        Args:
            x: Node representations [N, d].
            edge_index: Head and tail of each edge [2, E].
            edge_attr: Edge representations [E, d].
            batch: The graph of each node [N]; by default a single graph.
            num_graphs: Number of graphs in ``batch``; computed by default.
            keep: Factors of random edge removal [E, d], instead of freshly drawn ones.
            return_attention_weights: Also return ``(edge_index, weights)``, with the attention
                weights [E, d] of the edges.

        Returns:
            Nodes [N, d] and edges [E, d], and the pair with the attention weights if requested.
        """
        if deprecated:
            return self._deprecated_forward(
                (x, edge_index, edge_attr, batch, num_graphs, keep), deprecated
            )
        edge_index = plain_tensor(edge_index)
        self._check(x, edge_index, edge_attr)
        x, edge_attr = keep_precision(self, x, edge_attr)
        by_graph = batch is not None and self.node_norm.by_graph
        plain = keep is not None or return_attention_weights or by_graph
        if not plain and use_native(x, self.node_norm.fused_name, edge_attr):
            order = edge_order(edge_index, x.size(0))
            x, e = fused_layers([self], x, edge_attr, edge_index, order)
            # The backward pass needs these outputs, which nn.ReLU(inplace=True) would overwrite.
            return (x.clone(), e.clone()) if x.requires_grad else (x, e)
        if keep is None:
            keep = self.removal(edge_attr)
        if batch is None:
            batch, num_graphs = torch.zeros_like(x[:, 0], dtype=torch.int64), 1
        elif num_graphs is None:
            num_graphs = int(batch.max()) + 1 if batch.numel() else 0
        out = grass_layer(x, edge_attr, edge_index, self.weights, self.residual_scale, keep)
        x = self.node_norm(out.x, batch, num_graphs)
        e = self.edge_norm(out.e, batch[edge_index[1]], num_graphs)
        return (x, e, (edge_index, out.attention)) if return_attention_weights else (x, e)

    def _check(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(
                f"GRASSConv needs x, a representation [N, {self.dim}] of the nodes, not a "
                f"{type(x).__name__}: heads and tails of edges are the same nodes"
            )
        if edge_attr is None:
            raise TypeError(
                f"GRASSConv needs edge_attr, a representation [E, {self.dim}] of the edges"
            )
        integers = edge_index.dtype in (torch.int64, torch.int32)
        if not integers or edge_index.dim() != 2 or edge_index.size(0) != 2:
            shape = list(edge_index.shape)
            raise TypeError(
                "edge_index must be int64 or int32 of shape [2, E], "
                f"not {edge_index.dtype} of shape {shape}"
            )
        # Elsewhere, looking at the values would wait for a GPU or break a compiled graph.
        if edge_index.device.type == "cpu" and not torch.compiler.is_compiling():
            check_pairs("edge_index", edge_index, x.size(0))

    def _deprecated_forward(
        self, inputs: tuple[Any, ...], deprecated: dict[str, bool]
    ) -> tuple[Any, ...]:
        """``return_attention=True`` used to return the attention weights alone."""
        wanted = deprecated.pop("return_attention", False)
        if deprecated:
            raise TypeError(f"GRASSConv got an unexpected argument {next(iter(deprecated))!r}")
        warnings.warn(
            "return_attention is deprecated: use return_attention_weights, "
            "which returns (edge_index, weights)",
            DeprecationWarning,
            stacklevel=5,
        )
        out = self(*inputs, return_attention_weights=wanted)
        return (*out[:2], out[2][1]) if wanted else out

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.dim}, residual_scale={self.residual_scale}, "
            f"edge_removal={self.edge_removal}, norm={self.norm!r})"
        )


class LayerStack(nn.Module):
    """L layers; every second one uses the edges with head and tail swapped."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.flip = config.flip
        self.checkpoint = config.checkpoint
        self.compiled = False
        self.layers = nn.ModuleList(make_layer(config) for _ in range(config.layers))

    def reset_parameters(self) -> None:
        """Reinitialise all layers."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def compile_layers(self, **options: Any) -> None:
        """Compile the layers with ``torch.compile``, for batches of any size.

        All layers run the code that is compiled for one of them, so compiling 49 layers takes no
        longer than compiling one. Compiled as a whole, the stack would take minutes.

        Args:
            options: Further arguments of ``torch.compile``.
        """
        for layer in self.layers:
            layer.compile(dynamic=True, **options)
        self.compiled = True

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Update nodes [N, d] and edges [E, d] through all layers."""
        x, e = keep_precision(self, x, e)
        step = self.checkpoint or len(self.layers)
        for first in range(0, len(self.layers), step):
            last = min(first + step, len(self.layers))
            if self.checkpoint and torch.is_grad_enabled():
                # Only the inputs of a segment are kept; the backward pass recomputes the rest.
                x, e = checkpoint(self.segment, x, e, batch, first, last, use_reentrant=False)
            else:
                x, e = self.segment(x, e, batch, first, last)
        return x, e

    def segment(
        self, x: Tensor, e: Tensor, batch: GraphBatch, first: int, last: int
    ) -> tuple[Tensor, Tensor]:
        """Run layers ``first`` to ``last − 1`` on nodes [N, d] and edges [E, d]."""
        layers = [self.layers[number] for number in range(first, last)]
        ours = [layer for layer in layers if isinstance(layer, GRASSConv)]
        if ours and use_native(x, ours[0].node_norm.fused_name, e):
            return fused_layers(ours, x, e, batch.edge_index, batch.order, self.flip, first)
        with constant_floats() if self.compiled else nullcontext():
            for number, layer in enumerate(layers, first):
                edges = batch.edge_index.flip(0) if self.flip and number % 2 else batch.edge_index
                x, e = layer(x, edges, e, batch.node_graph, batch.num_graphs)
        return x, e

    @torch.no_grad()
    def attention(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Attention weights of every layer [L, E, d], in the order of ``batch.edge_index``.

        In flipped layers (those with odd numbers, counting from 0) the softmax is over the
        out-edges of a node instead of its in-edges.
        """
        x, e = keep_precision(self, x, e)
        weights = []
        for number, layer in enumerate(self.layers):
            if not isinstance(layer, GRASSConv):
                raise ValueError("only GRASS attention has attention weights for every channel")
            edges = batch.edge_index.flip(0) if self.flip and number % 2 else batch.edge_index
            x, e, (_, a) = layer(
                x, edges, e, batch.node_graph, batch.num_graphs, return_attention_weights=True
            )
            weights.append(a)
        return torch.stack(weights)


def make_layer(config: ModelConfig) -> GRASSConv | ReplacementConv:
    """A layer of the configured kind."""
    if config.attention == "grass":
        return GRASSConv(
            config.dim, config.residual_scale, config.edge_removal, config.norm, config.output_bias
        )
    from grass_gnn.nn.alternatives import ReplacementConv  # which is made of parts of this file

    return ReplacementConv(
        config.dim,
        config.attention,
        config.attention_dim,
        config.residual_scale,
        config.norm,
        config.output_bias,
    )


def fused_layers(
    layers: Sequence[GRASSConv],
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    flip: bool = False,
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Run layers with the same settings on nodes [N, d] and edges [E, d] in one fused operation.

    ``first`` is the number of the first layer in the model. Statistics of batch norms are used or
    collected as the norms themselves would do.
    """
    norms = [norm for layer in layers for norm in (layer.node_norm, layer.edge_norm)]
    given = [stored for norm in norms if (stored := norm.fused_statistics()) is not None]
    removal = layers[0].edge_removal if layers[0].training else 0.0
    out = grass_stack(
        x,
        e,
        edge_index,
        order,
        pack_weights([layer.weights for layer in layers]),
        residual_scale=layers[0].residual_scale,
        flip=flip,
        norm=norms[0].fused_name,
        removal=removal,
        seed=int(torch.randint(2**62, ())) if removal else 0,
        statistics=torch.stack(given).unflatten(0, (len(layers), 2)) if given else None,
        first_layer=first,
        synchronise=any(norm.synchronises for norm in norms),
        mixed=autocasts_to_bfloat16(),
    )
    rows = [x.size(0), e.size(0)] * len(layers)
    moments = out.statistics.flatten(0, 1)  # [2L, 2, d]
    for norm, number, (mean, var) in zip(norms, rows, moments, strict=True):
        if number:  # no rows have no moments
            norm.observe(mean, var)
    return out.x, out.e


def constant_floats() -> AbstractContextManager[None]:
    """Let ``torch.compile`` treat numbers such as α, ε and the removal probability as constants.

    With dynamic shapes it first takes them for inputs, finds that it cannot, and starts again, so
    that the layer would be compiled twice.
    """
    return torch._dynamo.config.patch(specialize_float=True)


def keep_precision(layer: nn.Module, x: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes [N, d] and edges [E, d] in the precision of the weights, under autocast.

    Autocast is meant for matrix products. Representations accumulate over the layers, and norms
    need their moments, so they stay in float32. Otherwise an embedding would return whatever type
    its last operation had, which may differ between nodes and edges.
    """
    if torch.is_autocast_enabled(x.device.type):
        dtype = next(layer.parameters()).dtype
        return x.to(dtype), e.to(dtype)
    return x, e


def uniform_(weight: Tensor, fan_in: int) -> None:
    """Fill weights [out, fan-in] uniformly from ±√(3 / fan-in), which has variance 1 / fan-in."""
    bound = (3.0 / fan_in) ** 0.5
    nn.init.uniform_(weight, -bound, bound)


def init_linear(linear: nn.Linear) -> nn.Linear:
    """Initialise a linear map in place: uniform weights, zero bias."""
    uniform_(linear.weight, linear.in_features)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


@contextmanager
def only_shapes() -> Iterator[None]:
    """Build models without values: parameters are on the meta device, and are not initialised."""
    with torch.device("meta"), _WithoutInitialisation():
        yield


class _WithoutInitialisation(TorchFunctionMode):
    """Skips random numbers, for which PyTorch would import its compiler on the meta device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the tensor without initialising it."""
        kwargs = kwargs or {}
        module = getattr(func, "__module__", None)
        if func in (Tensor.normal_, Tensor.uniform_) or module == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
