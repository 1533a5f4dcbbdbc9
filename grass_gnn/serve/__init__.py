"""A local web page for a trained model: predictions, explanations and single rewirings."""

from grass_gnn.serve.app import make_app
from grass_gnn.serve.limits import Limits
from grass_gnn.serve.server import Address, serve
from grass_gnn.serve.views import open_view

__all__ = ["Address", "Limits", "make_app", "open_view", "serve"]
