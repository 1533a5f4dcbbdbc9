"""GRASS: graph attention with stochastic structures, as a library.

>>> from grass_gnn import GRASS, GRASSConfig
>>> model = GRASS(GRASSConfig.preset("zinc"))
"""

from typing import TYPE_CHECKING

from grass_gnn._lazy import lazy_names

if TYPE_CHECKING:
    from grass_gnn.api.estimators import GRASSClassifier as GRASSClassifier
    from grass_gnn.api.estimators import GRASSRegressor as GRASSRegressor
    from grass_gnn.api.finetuning import finetune as finetune
    from grass_gnn.api.fitting import fit as fit
    from grass_gnn.config import GRASSConfig as GRASSConfig
    from grass_gnn.data.batch import GraphBatch as GraphBatch
    from grass_gnn.encoding import AddDecomposedRRWP as AddDecomposedRRWP
    from grass_gnn.encoding import AddDegree as AddDegree
    from grass_gnn.encoding import AddLaplacianPE as AddLaplacianPE
    from grass_gnn.encoding import AddRRWP as AddRRWP
    from grass_gnn.errors import GrassError as GrassError
    from grass_gnn.evaluation.trained import TrainedModel as TrainedModel
    from grass_gnn.evaluation.trained import load_model as load_model
    from grass_gnn.nn import GRASS as GRASS
    from grass_gnn.nn import GRASSConv as GRASSConv
    from grass_gnn.rewiring import AddRandomRegularEdges as AddRandomRegularEdges

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "api": (
            "GRASSClassifier",  # needs scikit-learn
            "GRASSRegressor",
            "finetune",
            "fit",
        ),
        "config": ("GRASSConfig",),
        "data": ("GraphBatch",),
        "encoding": ("AddDecomposedRRWP", "AddDegree", "AddLaplacianPE", "AddRRWP"),
        "errors": ("GrassError",),
        "evaluation": ("TrainedModel", "load_model"),
        "nn": ("GRASS", "GRASSConv"),
        "rewiring": ("AddRandomRegularEdges",),
    },
)
