"""Settings of a network that trains in a second, also as options of the command line."""

SMALL = {
    "input.nodes.kind": "index",
    "input.nodes.sizes": [4],
    "encoding.steps": 3,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 2,
    "model.head_hidden": 4,
    "training.epochs": 2,
    "training.batch_size": 8,
    "evaluation.statistics_passes": 1,
    "evaluation.rewirings": 2,
}
SET = [
    word
    for name, value in SMALL.items()
    if not name.startswith("input")
    for word in ("--set", f"{name}={value}")
]
