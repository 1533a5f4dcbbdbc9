"""Every part of the network computes the same on another device as on the CPU."""

import pytest
import torch
from pretend import DEVICE
from small import SMALL

from grass_gnn import GRASSConfig
from grass_gnn.config import EncodingConfig
from grass_gnn.data.batch import batch_from_data
from grass_gnn.encoding import ENCODINGS, decompose, laplacian_eigenvectors
from grass_gnn.evaluation.protocol import move_batch
from grass_gnn.nn.baselines import LAYERS
from grass_gnn.nn.model import make_model
from grass_gnn.nn.norm import NORMS, collect_statistics
from grass_gnn.rewiring import AddRandomRegularEdges
from grass_gnn.tasks import make_task
from grass_gnn.testing import random_input

NODES = {"task.level": "node", "task.kind": "classification", "task.outputs": 3}
NODES |= {"task.loss": "weighted-cross-entropy", "task.metric": "accuracy"}
VARIANTS = {
    **{f"encoding {kind}": {"encoding.kind": kind, "encoding.eigenpairs": 3} for kind in ENCODINGS},
    **{f"norm {norm}": {"model.norm": norm} for norm in NORMS},
    **{
        f"attention {a}": {"model.attention": a}
        for a in ("grass", "gat", "gatedgcn", "transformer")
    },
    **{f"baseline {name}": {"model.architecture": name} for name in LAYERS},
    "directed": {"encoding.directed": "alternating", "encoding.kind": "decomposed-rrwp"},
    "complete rewiring": {"rewiring.kind": "complete"},
    "no rewiring": {"rewiring.kind": "none", "model.flip": False},
    "mean pooling, linear head": {"model.pooling": "mean", "model.head_hidden": 0},
    "activation checkpointing": {"model.layers": 3, "model.checkpoint": 2},
    "one-hot and continuous": {
        "input.nodes.kind": "one-hot",
        "input.nodes.sizes": [3],
        "input.edges.kind": "continuous",
        "input.edges.sizes": [2],
    },
    "ogb features and descriptors": {
        "input.nodes.kind": "ogb-atom",
        "input.nodes.sizes": [],
        "input.edges.kind": "ogb-bond",
        "input.descriptors": 2,
    },
    "several targets, some missing": {"task.outputs": 3, "task.missing": True, "task.loss": "mse"},
    "multilabel": {
        "task.kind": "multilabel",
        "task.outputs": 3,
        "task.missing": True,
        "task.loss": "bce",
        "task.metric": "ap",
    },
    "binary": {"task.kind": "binary", "task.loss": "bce", "task.metric": "auc"},
    "nodes": NODES,
    "edges": NODES | {"task.level": "edge", "task.loss": "cross-entropy"},
}
# Both are cast alike; bfloat16 runs everything, float16 what decides on types.
MIXED = {name: torch.bfloat16 for name in VARIANTS if not name.startswith("encoding")}
HALF = [name for name in VARIANTS if name.startswith(("norm", "attention", "several"))]


def make_config(changes):
    return GRASSConfig().override(SMALL | {"model.edge_removal": 0.0} | changes)


def make_batch(config):
    from torch_geometric.data import Batch

    graphs = [random_input(config, 5 + seed, seed) for seed in range(3)]
    if config.task.missing:
        graphs[0].y[0, 0] = torch.nan
    return batch_from_data(Batch.from_data_list(graphs), config, torch.arange(3))


def training_step(model, batch, config, dtype=None):
    """Loss and gradients of a step, then the evaluation with collected statistics."""
    torch.manual_seed(1)
    model.train()
    kind = model.target_scale.device.type
    with torch.autocast(kind, dtype=dtype, enabled=dtype is not None):
        output = model(batch)
    smoothing = config.training.label_smoothing
    loss = make_task(config.task).loss(output.float(), batch.y, smoothing, lambda total: total)
    model.zero_grad()
    loss.backward()
    gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    with torch.no_grad(), torch.autocast(kind, dtype=dtype, enabled=dtype is not None):
        with collect_statistics(model):
            model(batch)
        predicted = make_task(config.task).activate(model.eval()(batch).float())
    return loss.detach().cpu(), gradients, predicted.cpu()


def both_devices(changes, dtype=None):
    """The same step on the CPU in float32 and on the device."""
    config = make_config(changes)
    batch = make_batch(config)
    torch.manual_seed(0)
    model = make_model(config)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = training_step(model, batch, config)
    model.load_state_dict(state)
    model.to(DEVICE)
    found = training_step(model, move_batch(batch, torch.device(DEVICE)), config, dtype)
    return expected, found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_equals_that_on_the_cpu(variant):
    (loss, gradients, predicted), found = both_devices(VARIANTS[variant])
    assert torch.allclose(found[0], loss, rtol=1e-4)
    assert len(found[1]) == len(gradients)
    for ours, theirs in zip(found[1], gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5 * (1 + theirs.abs().max()))
    assert torch.allclose(found[2], predicted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("variant", "dtype"), [*MIXED.items(), *((name, torch.float16) for name in HALF)]
)
def test_mixed_precision_runs_every_part(variant, dtype):
    """Under the cast rules of CUDA, and near float32."""
    expected, found = both_devices(VARIANTS[variant], dtype)
    assert all(gradient.dtype == torch.float32 for gradient in found[1])
    assert all(gradient.isfinite().all() for gradient in found[1])
    assert (found[2] - expected[2]).norm() <= 0.1 * expected[2].norm() + 0.05


def test_recomputed_layers_draw_the_same_edge_removal(device):
    """Activation checkpointing restores the generator of the device."""
    losses = []
    for checkpoint in (0, 1):
        config = make_config({"model.edge_removal": 0.5, "model.checkpoint": checkpoint})
        batch = make_batch(config).to(DEVICE)
        torch.manual_seed(0)
        model = make_model(config).to(DEVICE).train()
        torch.manual_seed(1)
        model(batch).sum().backward()
        losses.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
    for plain, recomputed in zip(*losses, strict=True):
        assert torch.allclose(plain, recomputed, rtol=1e-4, atol=1e-5)


def test_encodings_stay_on_the_device_of_the_edges():
    graph = random_input(make_config({}), 7)
    edges = graph.edge_index.to(DEVICE)
    for found, expected in (
        (decompose(edges, 7, 4).vectors, decompose(graph.edge_index, 7, 4).vectors),
        (laplacian_eigenvectors(edges, 7, 3), laplacian_eigenvectors(graph.edge_index, 7, 3)),
    ):
        assert found.device == edges.device
        assert torch.allclose(found.cpu(), expected)


@pytest.mark.parametrize("kind", ENCODINGS)
def test_graphs_on_the_device_can_be_encoded_and_rewired_there(kind):
    config = EncodingConfig(kind=kind, steps=3, eigenpairs=3)
    full = make_config({f"encoding.{name}": v for name, v in config.model_dump().items()})
    model = make_model(full).to(DEVICE).eval()
    graph = random_input(full, 6)
    assert model([graph.to(DEVICE)]).device == torch.device(DEVICE)
    rewired = AddRandomRegularEdges(2)(random_input(full, 6).to(DEVICE))
    assert rewired.edge_index.device == torch.device(DEVICE)
