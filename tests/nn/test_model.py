"""The whole model: equivariance in all its variants, pooling, heads, compiling, bad input."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose

from grass_gnn import (
    GRASS,
    AddDecomposedRRWP,
    AddDegree,
    AddLaplacianPE,
    AddRandomRegularEdges,
    AddRRWP,
    GRASSConfig,
    GrassError,
)
from grass_gnn.data.batch import ADDED_EDGE, SELF_LOOP
from grass_gnn.nn.model import make_model, prepare_batch
from grass_gnn.nn.norm import collect_statistics
from grass_gnn.testing import assert_permutation_equivariant, random_input

SMALL = {
    "input.nodes.kind": "index",
    "input.nodes.sizes": [5],
    "input.edges.kind": "index",
    "input.edges.sizes": [3],
    "encoding.steps": 4,
    "rewiring.degree": 2,
    "model.dim": 8,
    "model.layers": 3,
    "model.head_hidden": 6,
}


def config(**changes):
    return GRASSConfig().override(SMALL | {k.replace("__", "."): v for k, v in changes.items()})


def batch_of(chosen, sizes=(5, 8, 1, 2)):
    graphs = [random_input(chosen, n, seed) for seed, n in enumerate(sizes)]
    return Batch.from_data_list(graphs)


def node_task(**changes):
    return changes | {"task__level": "node", "task__kind": "classification", "task__outputs": 3,
                      "task__loss": "cross-entropy", "task__metric": "accuracy"}  # fmt: skip


VARIANTS = {
    "graph head": {},
    "linear head": {"model__head_hidden": 0},
    "node head": node_task(),
    "edge head": {"task__level": "edge"},
    "mean pooling": {"model__pooling": "mean"},
    "continuous": {
        "input__nodes__kind": "continuous",
        "input__edges__kind": "continuous",
        "input__edges__sizes": [2],
    },
    "one-hot": {"input__nodes__kind": "one-hot", "input__edges__kind": "one-hot"},
    "no features": {
        "input__nodes__kind": "none",
        "input__nodes__sizes": [],
        "input__edges__kind": "none",
        "input__edges__sizes": [],
    },
    "ogb": {
        "input__nodes__kind": "ogb-atom",
        "input__nodes__sizes": [],
        "input__edges__kind": "ogb-bond",
        "input__edges__sizes": [],
    },
    "d-rrwp": {"encoding__kind": "decomposed-rrwp"},
    "laplacian": {"encoding__kind": "laplacian"},
    "no encoding": {"encoding__kind": "none", "encoding__degrees": "none"},
    "complete": {"rewiring__kind": "complete"},
    "non-regular": {"rewiring__kind": "non-regular"},
    "no rewiring": {"rewiring__degree": 0},
    "no flipping": {"model__flip": False},
    "output bias": {"model__norm": "layer", "model__output_bias": True},
    **{
        f"{norm} norm": {"model__norm": norm}
        for norm in ("layer", "layer-graph", "instance", "none")
    },
    **{name: {"model__attention": name} for name in ("gat", "gatedgcn", "transformer")},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("ops", ["native", "reference"])
def test_model_is_equivariant_with_its_rewiring_permuted_along(name, ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    chosen = config(**VARIANTS[name])
    torch.manual_seed(1)
    model = GRASS(chosen)
    batch = model.prepare(batch_of(chosen))
    for seed in range(3):
        assert_permutation_equivariant(model.eval(), batch, chosen.task.level, seed)
    with collect_statistics(model):
        model(batch)
    assert_permutation_equivariant(model, batch, chosen.task.level)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_gradients_for_all_parameters(name):
    chosen = config(**VARIANTS[name])
    model = GRASS(chosen).train()
    model(batch_of(chosen, (6, 9, 7))).square().sum().backward()
    last = len(model.layers.layers) - 1
    for label, parameter in model.named_parameters():
        if chosen.task.level == "node" and f"layers.{last}." in label and "edge" in label:
            continue  # nobody reads the last layer's edges
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), label


def test_transforms_and_the_model_prepare_the_same_batch():
    for encoding, transform in (
        ("rrwp", AddRRWP(4)),
        ("decomposed-rrwp", AddDecomposedRRWP(4)),
        ("laplacian", AddLaplacianPE(4)),
    ):
        chosen = config(encoding__kind=encoding, rewiring__when="graph")
        model = GRASS(chosen).eval()
        data = random_input(chosen, 9)
        ready = Compose([AddDegree(), transform, AddRandomRegularEdges(2, when="graph")])(
            data.clone()
        )
        by_transforms, by_model = model.prepare(ready), model.prepare(transform(data.clone()))
        assert torch.equal(by_transforms.edge_index, by_model.edge_index)
        assert torch.equal(by_transforms.edge_kind, by_model.edge_kind)
        assert torch.allclose(by_transforms.edge_encoding, by_model.edge_encoding, atol=1e-6)
        assert torch.allclose(model(ready), model(by_model), atol=1e-5)


def test_every_node_has_one_self_loop_and_edges_are_sorted_by_tail():
    chosen = config(rewiring__degree=3)
    batch = GRASS(chosen).prepare(batch_of(chosen))
    head, tail = batch.edge_index
    assert torch.equal(tail, tail.sort().values)
    loops = batch.edge_kind == SELF_LOOP
    assert torch.equal(head[loops], torch.arange(16)) and torch.equal(tail[loops], head[loops])
    assert (batch.node_graph[head] == batch.node_graph[tail]).all()
    assert (head != tail)[batch.edge_kind == ADDED_EDGE].all()
    attributes = batch.edge_attr[batch.edge_kind != 0]
    assert torch.count_nonzero(attributes) == 0


def test_pooling_divides_by_the_training_sets_averages():
    chosen = config(rewiring__degree=0)
    model = GRASS(chosen)
    model.pooling.set_scales(2.0, 6.0, 0.0)
    batch = model.prepare(batch_of(chosen, (3, 4)))
    x, e = torch.ones(7, 8), torch.ones(batch.edge_kind.numel(), 8)
    pooled = model.pooling(x, e, batch).view(2, 3, 8)
    edges = torch.bincount(batch.node_graph[batch.edge_index[1]])
    assert torch.equal(pooled[:, 0, 0], torch.tensor([1.5, 2.0]))
    assert torch.allclose(pooled[:, 1, 0], edges / 8)
    assert torch.count_nonzero(pooled[:, 2]) == 0


def test_checkpointing_changes_nothing_but_memory():
    torch.manual_seed(0)
    chosen = config(model__layers=5)
    plain, saving = GRASS(chosen), GRASS(chosen.override({"model.checkpoint": 2}))
    saving.load_state_dict(plain.state_dict())
    batch = plain.prepare(batch_of(chosen))
    gradients = []
    for model in (plain, saving):
        torch.manual_seed(7)  # edge removal differs by segment unless there is none
        for layer in model.layers.layers:
            layer.edge_removal = 0.0
        model(batch).sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_signs_of_eigenvectors_are_drawn_in_training_alone():
    chosen = config(encoding__kind="laplacian", encoding__degrees="none")
    model = GRASS(chosen)
    batch = model.prepare(batch_of(chosen))
    assert torch.equal(model.eval().embed(batch)[0], model.embed(batch)[0])
    model.train()
    given = (batch.node_encoding, batch.edge_encoding, batch.edge_index, batch.node_graph, 4)
    seen = {tuple(model.encoding.random_signs(*given)[0][2].tolist()) for _ in range(20)}
    assert len(seen) > 1
    nodes, edges = model.encoding.random_signs(*given)
    assert torch.equal(nodes.abs(), batch.node_encoding.abs())
    head, tail = batch.edge_index
    assert torch.equal(edges, torch.cat([nodes[head], nodes[tail]], dim=1))


def test_baselines_see_random_signs_too():
    chosen = config(encoding__kind="laplacian", model__architecture="gcn")
    model = make_model(chosen)
    batch = prepare_batch(batch_of(chosen), chosen, torch.device("cpu"))
    outputs = {
        mode: {tuple(model.train(mode)(batch).flatten().tolist()) for _ in range(10)}
        for mode in (True, False)
    }
    assert len(outputs[True]) > 1
    assert len(outputs[False]) == 1


def test_attention_weights_of_a_node_add_up_to_one():
    chosen = config()
    model = GRASS(chosen).eval()
    batch, weights = model.attention(batch_of(chosen))
    for number, layer in enumerate(weights):
        end = batch.edge_index[1 - number % 2]
        total = torch.zeros(16, 8).index_add(0, end, layer)
        assert torch.allclose(total, torch.ones(16, 8), atol=1e-3)


def test_compiled_reference_compiles_at_most_twice_and_equals_eager(monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    torch._dynamo.reset()
    chosen = config(model__layers=2)
    model = GRASS(chosen).eval()
    graphs = []

    def counting(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model.forward, backend=counting, fullgraph=True, dynamic=True)
    for seed in range(20):
        torch.manual_seed(seed)
        sizes = [int(n) for n in torch.randint(3, 12, (2 + seed % 5,))]
        batch = model.prepare(batch_of(chosen, sizes))
        assert torch.allclose(compiled(batch), model(batch), atol=1e-5)
    assert 1 <= len(graphs) <= 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update({"edge_index": d.edge_index + 7}), "edge_index"),
        (lambda d: d.update({"edge_index": d.edge_index.float()}), "edge_index"),
        (lambda d: d.update({"edge_index": d.edge_index[:1]}), "edge_index"),
        (lambda d: d.update({"x": d.x + 9}), "beyond its 5 categories"),
        (lambda d: d.update({"x": d.x.float()}), "integers"),
        (lambda d: d.update({"x": None}), "no node features"),
        (lambda d: d.update({"x": d.x[:-1]}), "shape"),
        (lambda d: d.update({"edge_attr": torch.zeros(1, 1).long()}), "edge features"),
    ],
)
def test_bad_graphs_get_one_clear_error(damage, message):
    chosen = config()
    data = random_input(chosen, 6)
    damage(data)
    data.num_nodes = 6
    with pytest.raises((GrassError, ValueError, TypeError), match=message) as error:
        GRASS(chosen)(data)
    assert "\n" not in str(error.value)


def test_nan_features_and_empty_graphs_are_refused():
    chosen = config(input__nodes__kind="continuous")
    data = random_input(chosen, 6)
    data.x[3, 1] = float("nan")
    with pytest.raises(GrassError, match="row 3"):
        GRASS(chosen)(data)
    with pytest.raises(GrassError, match="no nodes"):
        GRASS(chosen)(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0))
