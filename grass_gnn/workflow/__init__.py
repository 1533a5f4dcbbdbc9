"""What people do with data of their own: fit, predict, embed, explain."""

from grass_gnn.workflow.calibration import calibrate
from grass_gnn.workflow.convert import from_networkx, read_graph, read_graphs
from grass_gnn.workflow.cross_validation import cross_validate
from grass_gnn.workflow.embed import embed_table
from grass_gnn.workflow.explain import explain_table
from grass_gnn.workflow.export import batch_tensors, export_model, plain_tensors
from grass_gnn.workflow.finetune import finetune, finetune_table
from grass_gnn.workflow.fit_table import EXAMPLE, EXAMPLE_TARGET, fit_table
from grass_gnn.workflow.fitting import fit
from grass_gnn.workflow.fold_summary import CrossValidation
from grass_gnn.workflow.links import fit_links, link_question, predict_links
from grass_gnn.workflow.predict import PredictionSummary, predict_table
from grass_gnn.workflow.run_folders import load_models
from grass_gnn.workflow.start import Start
from grass_gnn.workflow.stored_calibration import Calibration, find_calibration
from grass_gnn.workflow.tune import TuneResult, tune_table

__all__ = [
    "EXAMPLE",
    "EXAMPLE_TARGET",
    "Calibration",
    "CrossValidation",
    "PredictionSummary",
    "Start",
    "TuneResult",
    "batch_tensors",
    "calibrate",
    "cross_validate",
    "embed_table",
    "explain_table",
    "export_model",
    "find_calibration",
    "finetune",
    "finetune_table",
    "fit",
    "fit_links",
    "fit_table",
    "from_networkx",
    "link_question",
    "load_models",
    "plain_tensors",
    "predict_links",
    "predict_table",
    "read_graph",
    "read_graphs",
    "tune_table",
]
