"""Structural encodings: each a plain function on a graph, and a PyG transform."""

from grass_gnn.encoding.decomposed import (
    AddDecomposedRRWP,
    decomposed_nodes,
    decomposed_pairs,
    rrwp_from_decomposition,
)
from grass_gnn.encoding.decomposition import Decomposition, decompose
from grass_gnn.encoding.degree import AddDegree, node_degrees
from grass_gnn.encoding.laplacian import AddLaplacianPE, flip_signs, laplacian_eigenvectors
from grass_gnn.encoding.rrwp import (
    AddRRWP,
    rrwp,
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
    "flip_signs",
    "laplacian_eigenvectors",
    "node_degrees",
    "rrwp",
    "rrwp_from_decomposition",
    "rrwp_nodes",
    "rrwp_pairs",
    "transition_probabilities",
]
