"""GRASS: graph attention with stochastic structures, as a library.

>>> from grass_gnn import GRASS, GRASSConfig
>>> model = GRASS(GRASSConfig.preset("zinc"))
"""

from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.encoding import AddDecomposedRRWP, AddDegree, AddLaplacianPE, AddRRWP
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel, load_model
from grass_gnn.nn import GRASS, GRASSConv
from grass_gnn.rewiring import AddRandomRegularEdges

__version__ = "0.1.0"

__all__ = [
    "GRASS",
    "AddDecomposedRRWP",
    "AddDegree",
    "AddLaplacianPE",
    "AddRRWP",
    "AddRandomRegularEdges",
    "GRASSConfig",
    "GRASSConv",
    "GraphBatch",
    "GrassError",
    "TrainedModel",
    "finetune",
    "fit",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Import what trains when it is asked for: it brings Lightning, or scikit-learn, along."""
    if name in ("fit", "finetune"):
        from grass_gnn import workflow

        return getattr(workflow, name)
    if name in ("GRASSClassifier", "GRASSRegressor"):
        from grass_gnn.workflow import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
