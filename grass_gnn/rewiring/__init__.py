"""Random rewiring: edges added to every graph of a batch at once, driven by one seed per graph."""

from typing import TYPE_CHECKING

from grass_gnn._lazy import lazy_names
from grass_gnn.rewiring.alternatives import complete_edges, random_edges
from grass_gnn.rewiring.regular import Variant, random_regular_edges
from grass_gnn.rewiring.seeds import graph_seeds, random_bits, step_seeds

if TYPE_CHECKING:
    from grass_gnn.rewiring.transform import AddRandomRegularEdges

# Imported when first used, because PyG takes seconds.
__getattr__, *_ = lazy_names(__name__, {"transform": ("AddRandomRegularEdges",)})

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
