"""What people do with data of their own: fit, predict, embed, explain."""

from grass_gnn.workflow.convert import from_networkx, read_graph, read_graphs
from grass_gnn.workflow.embed import embed_table
from grass_gnn.workflow.explain import explain_table
from grass_gnn.workflow.fit_table import EXAMPLE, EXAMPLE_TARGET, fit_table
from grass_gnn.workflow.fitting import fit
from grass_gnn.workflow.links import fit_links, link_question, predict_links
from grass_gnn.workflow.predict import PredictionSummary, predict_table

__all__ = [
    "EXAMPLE",
    "EXAMPLE_TARGET",
    "PredictionSummary",
    "embed_table",
    "explain_table",
    "fit",
    "fit_links",
    "fit_table",
    "from_networkx",
    "link_question",
    "predict_links",
    "predict_table",
    "read_graph",
    "read_graphs",
]
