"""Random rewiring: edges added to every graph of a batch at once, driven by one seed per graph."""

from grass_gnn.rewiring.alternatives import complete_edges, random_edges
from grass_gnn.rewiring.regular import Variant, random_regular_edges
from grass_gnn.rewiring.seeds import graph_seeds, random_bits, step_seeds
from grass_gnn.rewiring.transform import AddRandomRegularEdges

__all__ = [
    "AddRandomRegularEdges",
    "Variant",
    "complete_edges",
    "graph_seeds",
    "random_bits",
    "random_edges",
    "random_regular_edges",
    "step_seeds",
]
