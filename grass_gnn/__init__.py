"""GRASS: graph attention with stochastic structures, as a library.

>>> from grass_gnn import GRASS, GRASSConfig
>>> model = GRASS(GRASSConfig.preset("zinc"))
"""

from typing import TYPE_CHECKING

from grass_gnn._lazy import lazy_names

if TYPE_CHECKING:
    from grass_gnn.api.calibration import calibrate as calibrate
    from grass_gnn.api.cross_validation import CrossValidation as CrossValidation
    from grass_gnn.api.cross_validation import cross_validate as cross_validate
    from grass_gnn.api.embedding import embed_table as embed_table
    from grass_gnn.api.estimators import GRASSClassifier as GRASSClassifier
    from grass_gnn.api.estimators import GRASSRegressor as GRASSRegressor
    from grass_gnn.api.explanation import explain_table as explain_table
    from grass_gnn.api.export import export_model as export_model
    from grass_gnn.api.finetuning import finetune as finetune
    from grass_gnn.api.fitting import fit as fit
    from grass_gnn.api.fitting import fit_table as fit_table
    from grass_gnn.api.graphs import from_networkx as from_networkx
    from grass_gnn.api.graphs import read_graph as read_graph
    from grass_gnn.api.graphs import read_graphs as read_graphs
    from grass_gnn.api.links import fit_links as fit_links
    from grass_gnn.api.links import predict_links as predict_links
    from grass_gnn.api.options import PredictOptions as PredictOptions
    from grass_gnn.api.options import SearchOptions as SearchOptions
    from grass_gnn.api.prediction import predict_table as predict_table
    from grass_gnn.api.tuning import TuneResult as TuneResult
    from grass_gnn.api.tuning import tune as tune
    from grass_gnn.config import GRASSConfig as GRASSConfig
    from grass_gnn.data.batch import GraphBatch as GraphBatch
    from grass_gnn.data.tables.spec import TableSpec as TableSpec
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
    from grass_gnn.training.options import RunOptions as RunOptions
    from grass_gnn.uncertainty.ensembles import load_models as load_models

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "api": (
            "CrossValidation",
            "PredictOptions",
            "SearchOptions",
            "TuneResult",
            "calibrate",
            "cross_validate",
            "embed_table",
            "explain_table",
            "export_model",
            "finetune",
            "fit",
            "fit_links",
            "fit_table",
            "from_networkx",
            "predict_links",
            "predict_table",
            "read_graph",
            "read_graphs",
            "tune",
        ),
        "config": ("GRASSConfig",),
        "data": ("GraphBatch",),
        "data.tables.spec": ("TableSpec",),
        "encoding": ("AddDecomposedRRWP", "AddDegree", "AddLaplacianPE", "AddRRWP"),
        "errors": ("GrassError",),
        "evaluation": ("TrainedModel", "load_model"),
        "nn": ("GRASS", "GRASSConv"),
        "rewiring": ("AddRandomRegularEdges",),
        "training.options": ("RunOptions",),
        "uncertainty": ("load_models",),
    },
    extras={"api": ("GRASSClassifier", "GRASSRegressor")},  # need scikit-learn
)
