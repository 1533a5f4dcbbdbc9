"""Small models, and the page of some of them."""

from grass_gnn.serve.app import make_app
from grass_gnn.serve.card import model_card
from grass_gnn.serve.views import open_view
from grass_gnn.uncertainty.ensembles import load_models

MOLECULES = {"input.nodes.kind": "ogb-atom", "input.edges.kind": "ogb-bond"}
TINY = {
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
}


def page_of(folders, limits, rewirings, title="<script>alert(1)</script>"):
    models = load_models(folders)
    view = open_view(models, rewirings, limits)
    return make_app(view, title, model_card(models, view), "127.0.0.1")
