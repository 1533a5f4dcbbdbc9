"""Random rewiring: edges for all graphs of a batch at once, from one seed per graph."""

from typing import TYPE_CHECKING

from grass_gnn._lazy import lazy_names
from grass_gnn.rewiring.edges import (
    Variant,
    complete_edges,
    graph_seeds,
    random_bits,
    random_edges,
    random_regular_edges,
    step_seeds,
)

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
