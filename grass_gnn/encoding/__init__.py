"""Structural encodings: each a plain function on a graph, and a PyG transform."""

from grass_gnn.encoding.degree import AddDegree, node_degrees
from grass_gnn.encoding.drrwp import (
    AddDecomposedRRWP,
    Decomposition,
    decompose,
    decomposed_nodes,
    decomposed_pairs,
    rrwp_from_decomposition,
)
from grass_gnn.encoding.laplacian import AddLaplacianPE, flip_signs, laplacian_eigenvectors
from grass_gnn.encoding.rrwp import (
    AddRRWP,
    dense_rrwp,
    rrwp_nodes,
    rrwp_pairs,
    transition_probabilities,
)

__all__ = [
    "AddDecomposedRRWP",
    "AddDegree",
    "AddLaplacianPE",
    "AddRRWP",
    "Decomposition",
    "decompose",
    "decomposed_nodes",
    "decomposed_pairs",
    "dense_rrwp",
    "flip_signs",
    "laplacian_eigenvectors",
    "node_degrees",
    "rrwp_from_decomposition",
    "rrwp_nodes",
    "rrwp_pairs",
    "transition_probabilities",
]
