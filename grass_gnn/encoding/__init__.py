"""Structural encodings: each one has functions on tensors, an Encoding object and a PyG transform.

``ENCODINGS`` lists them by the names of ``EncodingConfig.kind``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from grass_gnn._lazy import lazy_names
from grass_gnn.config import EncodingConfig
from grass_gnn.encoding.base import Encoding, NoEncoding, Structure, check_not_stale, node_degrees
from grass_gnn.encoding.drrwp import (
    DecomposedRRWP,
    Decomposition,
    decompose,
    decomposed_nodes,
    decomposed_pairs,
    rrwp_from_decomposition,
)
from grass_gnn.encoding.graph import Graph, edge_weights, graph_ptr_of, plain_tensor, read_graph
from grass_gnn.encoding.laplacian import LaplacianPE, flip_signs, laplacian_eigenvectors
from grass_gnn.encoding.rrwp import (
    RRWP,
    dense_rrwp,
    rrwp_nodes,
    rrwp_pairs,
    transition_probabilities,
)
from grass_gnn.errors import GrassError

if TYPE_CHECKING:
    from grass_gnn.encoding.transforms import AddDecomposedRRWP, AddDegree, AddLaplacianPE, AddRRWP

ENCODINGS: Mapping[str, type[Encoding]] = MappingProxyType(
    {
        "rrwp": RRWP,
        "decomposed-rrwp": DecomposedRRWP,
        "laplacian": LaplacianPE,
        "none": NoEncoding,
    }
)
"""The encodings by the names of ``EncodingConfig.kind``."""


def make_encoding(config: EncodingConfig) -> Encoding:
    """The encoding that a configuration describes."""
    return ENCODINGS[config.kind].from_config(config)


def require_local(config: EncodingConfig, purpose: str) -> None:
    """Raise if an encoding needs the whole graph for each pair of nodes, as RRWP does.

    Args:
        config: The configuration of the encoding.
        purpose: What cannot be done with it, as the beginning of a sentence.
    """
    if not ENCODINGS[config.kind].local:
        others = ", ".join(kind for kind, encoding in ENCODINGS.items() if encoding.local)
        raise GrassError(
            f"{purpose} cannot use encoding.kind = {config.kind}, which needs the whole graph for "
            f"each pair of nodes: choose one of {others}."
        )


# Imported when first used, because PyG takes seconds.
__getattr__, *_ = lazy_names(
    __name__, {"transforms": ("AddDecomposedRRWP", "AddDegree", "AddLaplacianPE", "AddRRWP")}
)

__all__ = [
    "ENCODINGS",
    "RRWP",
    "AddDecomposedRRWP",
    "AddDegree",
    "AddLaplacianPE",
    "AddRRWP",
    "DecomposedRRWP",
    "Decomposition",
    "Encoding",
    "Graph",
    "LaplacianPE",
    "NoEncoding",
    "Structure",
    "check_not_stale",
    "decompose",
    "decomposed_nodes",
    "decomposed_pairs",
    "dense_rrwp",
    "edge_weights",
    "flip_signs",
    "graph_ptr_of",
    "laplacian_eigenvectors",
    "make_encoding",
    "node_degrees",
    "plain_tensor",
    "read_graph",
    "require_local",
    "rrwp_from_decomposition",
    "rrwp_nodes",
    "rrwp_pairs",
    "transition_probabilities",
]
