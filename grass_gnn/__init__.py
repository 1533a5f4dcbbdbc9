"""GRASS: graph attention with stochastic structures, as a library.

>>> from grass_gnn import GRASS, GRASSConfig
>>> model = GRASS(GRASSConfig.preset("zinc"))
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grass_gnn.config import GRASSConfig
    from grass_gnn.data import GraphBatch
    from grass_gnn.encoding import AddDecomposedRRWP, AddDegree, AddLaplacianPE, AddRRWP
    from grass_gnn.errors import GrassError
    from grass_gnn.evaluation import TrainedModel, load_model
    from grass_gnn.nn import GRASS, GRASSConv
    from grass_gnn.rewiring import AddRandomRegularEdges
    from grass_gnn.workflow import finetune, fit
    from grass_gnn.workflow.estimators import GRASSClassifier as GRASSClassifier
    from grass_gnn.workflow.estimators import GRASSRegressor as GRASSRegressor

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

# Where each name is, imported when it is asked for: torch alone takes seconds. The estimators are
# not in __all__, for they need scikit-learn, which not everyone has.
_HOMES = {
    "config": ("GRASSConfig",),
    "data": ("GraphBatch",),
    "encoding": ("AddDecomposedRRWP", "AddDegree", "AddLaplacianPE", "AddRRWP"),
    "errors": ("GrassError",),
    "evaluation": ("TrainedModel", "load_model"),
    "nn": ("GRASS", "GRASSConv"),
    "rewiring": ("AddRandomRegularEdges",),
    "workflow": ("finetune", "fit"),
    "workflow.estimators": ("GRASSClassifier", "GRASSRegressor"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"grass_gnn.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
