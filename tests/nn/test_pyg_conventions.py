"""The model and its parts in PyG workflows: loaders, copies, files, compilers, precisions."""

import copy
import pickle
import warnings

import pytest
import torch
import torch.multiprocessing as mp
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from grass_gnn import (
    GRASS,
    AddDegree,
    AddLaplacianPE,
    AddRandomRegularEdges,
    AddRRWP,
    GRASSConfig,
    GRASSConv,
    GrassError,
    load_model,
)
from grass_gnn.evaluation.trained import save_model
from grass_gnn.nn.baselines import Baseline
from grass_gnn.nn.norm import collect_statistics


def ring(num_nodes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.arange(num_nodes)
    edges = torch.stack([nodes, (nodes + 1) % num_nodes])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(
        x=torch.randn(num_nodes, 4, generator=generator),
        edge_index=edges,
        edge_attr=torch.randn(edges.size(1), 2, generator=generator),
        y=torch.randn(1, 1, generator=generator),
    )


def graphs():
    return [ring(n, n) for n in (4, 7, 5, 6)]


def make_model(**changes):
    torch.manual_seed(0)
    settings = {"encoding.steps": 3, "rewiring.degree": 2, "rewiring.when": "graph"}
    dimensions = {"in_channels": 4, "edge_channels": 2, "hidden_channels": 8, "num_layers": 3,
                  "out_channels": 1, "head_hidden": 6}  # fmt: skip
    return GRASS(**{**dimensions, **settings, **changes})


@pytest.fixture
def model():
    """With collected statistics, so that graphs do not depend on the others of their batch."""
    model = make_model()
    model.train()(Batch.from_data_list(graphs()))
    with torch.no_grad(), collect_statistics(model):
        model(Batch.from_data_list(graphs()))
    return model


@pytest.fixture
def conv():
    return GRASSConv(8).eval()


def conv_input(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 8, generator=generator).to(dtype)
    edge_attr = torch.randn(15, 8, generator=generator).to(dtype)
    return x, torch.randint(6, (2, 15), generator=generator), edge_attr


class Rings(InMemoryDataset):
    """As in PyG's tutorial, with a ``pre_transform`` that is cached on disk."""

    processed_file_names = "data.pt"

    def __init__(self, root, transform=None, pre_transform=None):
        super().__init__(root, transform, pre_transform)
        self.load(self.processed_paths[0])

    def process(self):
        made = graphs()
        if self.pre_transform is not None:
            made = [self.pre_transform(data) for data in made]
        self.save(made, self.processed_paths[0])


# Constructors


def test_constructor_by_dimensions_is_the_one_by_configuration():
    config = GRASSConfig().override(
        {"input.nodes.kind": "continuous", "input.nodes.sizes": [4], "input.edges.kind": "index",
         "input.edges.sizes": [3, 2], "model.dim": 16, "model.layers": 2, "task.outputs": 5,
         "task.level": "node", "model.norm": "instance", "rewiring.degree": 3}
    )  # fmt: skip
    model = GRASS(
        in_channels=4, edge_channels=[3, 2], hidden_channels=16, num_layers=2, out_channels=5,
        level="node", norm="instance", **{"rewiring.degree": 3},
    )  # fmt: skip
    assert model.config == config
    assert model.state_dict().keys() == GRASS(config).state_dict().keys()
    data = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]),
                edge_attr=torch.tensor([[0, 1], [2, 0]]))  # fmt: skip
    assert model(data).shape == (3, 5)
    assert GRASS(num_layers=1)(Data(edge_index=data.edge_index, num_nodes=3)).shape == (1, 1)


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="not both"):
        GRASS(GRASSConfig(), num_layers=2)
    with pytest.raises(GrassError, match="num_heads"):
        GRASS(in_channels=4, num_heads=8)
    with pytest.raises(GrassError, match="level"):
        GRASS(level="subgraph")
    with pytest.raises(TypeError, match="edge_weight"):
        GRASSConv(8)(*conv_input(), edge_weight=True)
    x, edge_index, edge_attr = conv_input()
    with pytest.raises(TypeError, match=r"needs edge_attr, a representation \[E, 8\]"):
        GRASSConv(8)(x, edge_index, None)
    with pytest.raises(TypeError, match=r"int64 or int32 of shape \[2, E\], not torch.float32"):
        GRASSConv(8)(x, edge_index.float(), edge_attr)
    with pytest.raises(TypeError, match=r"of shape \[3\]"):
        GRASSConv(8)(x, torch.tensor([0, 1, 2]), edge_attr)
    with pytest.raises(TypeError, match=r"needs x, a representation \[N, 8\] .*not a tuple"):
        GRASSConv(8)((x, x), edge_index, edge_attr)
    for place in (-1, 6):
        edge_index[0, 3] = place
        for weights in (False, True):
            with pytest.raises(ValueError, match=rf"edge_index\[0, 3\] is {place}"):
                GRASSConv(8)(x, edge_index, edge_attr, return_attention_weights=weights)


def test_edge_indices_of_32_bits_give_the_same_result():
    x, edge_index, edge_attr = conv_input()
    layer = GRASSConv(8)
    expected = layer(x, edge_index, edge_attr)
    found = layer(x, edge_index.int(), edge_attr)
    assert all(a.equal(b) for a, b in zip(expected, found, strict=True))


def test_an_edge_index_of_pyg_gives_the_same_result(model, conv):
    """``torch_geometric.EdgeIndex`` has no memory that C++ could read: it used to crash Python."""
    x, edges, edge_attr = conv_input()
    edges = EdgeIndex(edges[:, edges[0].argsort()], sparse_size=(6, 6), sort_order="row")
    plain = edges.as_tensor()
    for found, expected in zip(conv(x, edges, edge_attr), conv(x, plain, edge_attr), strict=True):
        assert type(found) is torch.Tensor and torch.equal(found, expected)

    def rewired(edge_index):
        data = Data(x=x, edge_index=edge_index)
        encode = Compose([AddDegree(), AddRRWP(4), AddLaplacianPE(2, attr_name="pe")])
        return AddRandomRegularEdges(2, seed=0)(Batch.from_data_list([encode(data)] * 2))

    for name, expected in rewired(plain):
        found = rewired(edges)[name]
        assert type(found) is torch.Tensor and torch.equal(found, expected), name
    features = {"x": torch.zeros(6, 4), "edge_attr": torch.zeros(15, 2)}
    predicted, expected = (model(Data(edge_index=e, **features)) for e in (edges, plain))
    assert torch.equal(predicted, expected)


def test_repr_is_one_line(model, conv):
    for module in (model, conv):
        assert "\n" not in repr(module)
    expected = "GRASS(in_channels=4, hidden_channels=8, num_layers=3, out_channels=1, "
    assert repr(model) == expected + "edge_channels=2, level='graph')"
    rebuilt = eval(repr(model).replace(")", ", head_hidden=6, **{'encoding.steps': 3})"))
    assert rebuilt.state_dict().keys() == model.state_dict().keys()


def test_reset_parameters_gives_a_model_as_if_new(model):
    with torch.device("meta"):
        empty = make_model()
    for module in (model, empty.to_empty(device="cpu")):
        if module is not model:
            for tensor in module.state_dict().values():
                tensor.fill_(7)
        module.reset_parameters()
        fresh = make_model().state_dict()
        assert {k: v.shape for k, v in module.state_dict().items()} == {
            k: v.shape for k, v in fresh.items()
        }
        for name, buffer in module.named_buffers():
            assert torch.equal(buffer, fresh[name]), name
        for name, parameter in module.named_parameters():
            bound = fresh[name].abs().max() * 2 + 1e-6
            assert parameter.abs().max() <= bound, name
        assert torch.isfinite(module(graphs())).all()


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "gatedgcn", "gps"])
def test_baselines_reset_copy_and_take_lists(name):
    model = Baseline(make_model(architecture=name).config).eval()
    expected = model(graphs())
    assert expected.shape == (4, 1)
    copied = pickle.loads(pickle.dumps(model))
    assert torch.equal(copied(graphs()), expected)
    copied.reset_parameters()
    assert not torch.allclose(copied(graphs()), expected)


# Data in, predictions out


def test_data_batch_list_and_loader_agree(model):
    whole = model(Batch.from_data_list(graphs()))
    assert whole.shape == (4, 1)
    assert torch.allclose(model(graphs()), whole)
    each = torch.cat([model(data) for data in graphs()])
    loaded = torch.cat([model(batch) for batch in DataLoader(graphs(), batch_size=3)])
    assert torch.allclose(each, whole, atol=1e-5)
    assert torch.allclose(loaded, whole, atol=1e-5)


def test_batch_round_trip(model):
    batch = Batch.from_data_list(graphs())
    before = {
        key: value.clone() for key, value in batch.to_dict().items() if torch.is_tensor(value)
    }
    model(batch)
    assert before.keys() == {k for k, v in batch.to_dict().items() if torch.is_tensor(v)}
    assert all(torch.equal(batch[key], value) for key, value in before.items())
    again = Batch.from_data_list(batch.to_data_list())
    assert torch.allclose(model(again), model(batch), atol=1e-6)
    reordered = Batch.from_data_list(list(reversed(batch.to_data_list())))
    assert torch.allclose(model(reordered).flip(0), model(batch), atol=1e-5)


def test_transforms_in_compose_with_a_loader_of_workers(model):
    transform = Compose([AddDegree(), AddRRWP(3), AddRandomRegularEdges(2)])
    assert repr(transform).count("\n") <= 5
    transformed = [transform(data.clone()) for data in graphs()]
    loader = DataLoader(transformed, batch_size=2, num_workers=2, multiprocessing_context="fork")
    found = torch.cat([model(batch) for batch in loader])
    expected = torch.cat([model(Batch.from_data_list(transformed[i : i + 2])) for i in (0, 2)])
    assert torch.allclose(found, expected, atol=1e-6)


def test_in_memory_dataset_caches_encodings(model, tmp_path):
    pre_transform = Compose([AddDegree(), AddRRWP(3)])
    dataset = Rings(tmp_path, pre_transform=pre_transform)
    first = model(Batch.from_data_list(list(dataset)))
    cached = Rings(tmp_path, pre_transform=pre_transform)
    assert torch.equal(model(Batch.from_data_list(list(cached))), first)
    assert torch.allclose(first, model(graphs()), atol=1e-5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Rings(tmp_path, pre_transform=Compose([AddDegree(), AddRRWP(4)]))
    assert any("pre_transform" in str(warning.message) for warning in caught)


def test_random_transforms_run_in_the_workers_of_a_loader(tmp_path):
    """As a ``transform``: every epoch draws other edges, on top of the cached encodings."""
    dataset = Rings(tmp_path, AddRandomRegularEdges(2), Compose([AddDegree(), AddRRWP(3)]))
    loader = DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="fork")
    epochs = [next(iter(loader)) for _ in range(2)]
    for batch in epochs:
        assert (batch.num_graphs, batch.num_nodes) == (4, 22)
        assert make_model().eval()(batch).shape == (4, 1)
    assert epochs[0].to_dict().keys() == epochs[1].to_dict().keys()
    one, other = (batch.edge_index[:, batch.added_edge_mask] for batch in epochs)
    assert one.shape != other.shape or not torch.equal(one, other)


# Copies, files, processes


def test_copies_and_pickles_predict_the_same(model, conv, tmp_path):
    torch.save(model, tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=False)
    expected = model(graphs())
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model)), saved):
        assert torch.equal(other(graphs()), expected)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(other(*conv_input())[0], conv(*conv_input())[0])
    deep = copy.deepcopy(model)
    deep.reset_parameters()
    assert torch.equal(model(graphs()), expected)


def test_state_dict_round_trip(model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    other = make_model().eval()
    other.reset_parameters()
    assert not torch.allclose(other(graphs()), model(graphs()))
    assert other.load_state_dict(state) == ([], [])
    assert torch.equal(other(graphs()), model(graphs()))
    with torch.device("meta"):
        third = make_model()
    third.load_state_dict(state, assign=True)
    assert torch.equal(third.eval()(graphs()), model(graphs()))


def predict_in_process(model, data, path):
    torch.set_num_threads(1)
    with torch.no_grad():
        torch.save(model(data), path)


def test_a_model_travels_to_a_spawned_process(model, tmp_path):
    context = mp.get_context("spawn")
    process = context.Process(
        target=predict_in_process, args=(model, graphs(), tmp_path / "out.pt")
    )
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert torch.allclose(torch.load(tmp_path / "out.pt"), model(graphs()), atol=1e-6)


# The layer


def test_attention_weights_come_with_their_edges(conv):
    x, edge_index, edge_attr = conv_input()
    out_x, out_e, (edges, alpha) = conv(x, edge_index, edge_attr, return_attention_weights=True)
    assert torch.equal(edges, edge_index)
    assert alpha.shape == edge_attr.shape
    total = torch.zeros(6, 8).index_add(0, edge_index[1], alpha)
    present = torch.bincount(edge_index[1], minlength=6) > 0
    assert torch.allclose(total[present], torch.ones_like(total[present]), atol=1e-3)
    plain = conv(x, edge_index, edge_attr)
    assert torch.allclose(out_x, plain[0], atol=1e-5)
    assert torch.allclose(out_e, plain[1], atol=1e-5)
    with pytest.warns(DeprecationWarning, match="return_attention_weights"):
        *_, old = conv(x, edge_index, edge_attr, return_attention=True)
    assert torch.equal(old, alpha)


@pytest.mark.parametrize("norm", ["batch", "layer", "layer-graph", "instance", "none"])
def test_a_batch_of_no_nodes(norm):
    x, edge_index, edge_attr = conv_input()
    conv, batch = GRASSConv(8, norm=norm), torch.empty(0, dtype=torch.int64)
    nodes, edges = conv(x[:0], edge_index[:, :0], edge_attr[:0], batch=batch)
    assert nodes.shape == edges.shape == (0, 8)


@pytest.mark.parametrize("ops", ["native", "reference"])
def test_outputs_may_be_changed_in_place(conv, ops, monkeypatch):
    monkeypatch.setenv("GRASS_OPS", ops)
    gradients = []
    for inplace in (False, True):
        x, edge_index, edge_attr = conv_input()
        relu = torch.nn.ReLU(inplace=inplace)
        x, edge_attr = (relu(v) for v in conv(x, edge_index, edge_attr))
        loss = x.square().sum() + edge_attr.square().sum()
        gradients.append(torch.autograd.grad(loss, list(conv.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_precisions(conv):
    exact = copy.deepcopy(conv).double()(*conv_input(torch.float64))[0]
    assert exact.dtype == torch.float64
    single = conv(*conv_input())[0]
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), exact, atol=1e-4)
    low = copy.deepcopy(conv).bfloat16()(*conv_input(torch.bfloat16))[0]
    assert low.dtype == torch.bfloat16
    assert (low.double() - exact).norm() < 0.05 * exact.norm()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = conv(*conv_input())[0]
    assert (mixed.double() - exact).norm() < 0.05 * exact.norm()


def test_a_whole_model_in_float64(model):
    double = copy.deepcopy(model).double()
    out = double(graphs())
    assert out.dtype == torch.float64
    assert torch.allclose(out, model(graphs()).double(), atol=1e-3)


@pytest.fixture
def default_type():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("ops", ["native", "reference"])
def test_encodings_do_not_depend_on_the_default_type(ops, default_type, monkeypatch):
    """C++ writes float32 into memory that used to be of torch's default type."""
    monkeypatch.setenv("GRASS_OPS", ops)
    rewire = AddRandomRegularEdges(2, when="graph")
    encode = Compose([AddDegree(), AddRRWP(4), AddLaplacianPE(2), rewire])
    data = ring(6)
    expected = encode(data)
    default_type(torch.float64)
    for name, found in encode(data):
        assert found.dtype == expected[name].dtype and torch.equal(found, expected[name]), name


def test_saved_models_do_not_depend_on_the_default_type(model, default_type, tmp_path):
    data = Batch.from_data_list(graphs())
    save_model(model, tmp_path / "single")
    default_type(torch.float64)
    assert torch.equal(load_model(tmp_path / "single").model(data), model(data))
    double = make_model().eval()
    save_model(double, tmp_path / "double")
    default_type(torch.float32)
    found = load_model(tmp_path / "double").model(data)
    torch.testing.assert_close(found, double(data).float(), rtol=1e-4, atol=1e-5)


def test_derivatives(conv):
    x, edge_index, edge_attr = conv_input()

    def energy(x):
        return conv(x, edge_index, edge_attr)[0].tanh().square().sum()

    direction = torch.ones_like(x).cumsum(0)
    _, slope = torch.func.jvp(energy, (x,), (direction,))
    y = x.clone().requires_grad_()
    (force,) = torch.autograd.grad(energy(y), y, create_graph=True)
    assert torch.allclose(slope, (force * direction).sum(), rtol=1e-3, atol=1e-4)
    force.square().sum().backward()
    assert y.grad.abs().sum() > 0


def test_a_whole_model_under_autocast(model):
    exact = model(graphs())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(graphs())
    assert torch.isfinite(mixed).all() and not torch.equal(mixed.float(), exact)
    assert (mixed - exact).norm() < 0.1 * exact.norm()


@pytest.mark.filterwarnings("error")
def test_forces_of_a_whole_model_can_be_trained(model):
    """Double backward through embedding, layers, pooling and head, against finite differences."""
    model = copy.deepcopy(model).double()
    batch = Batch.from_data_list(graphs())
    batch.x, batch.edge_attr = batch.x.double().requires_grad_(), batch.edge_attr.double()

    def energy(x):
        changed = batch.clone()
        changed.x = x
        return model(changed).sum()

    (force,) = torch.autograd.grad(energy(batch.x), batch.x, create_graph=True)
    step = torch.zeros_like(batch.x)
    step[5, 1] = 1e-5
    slope = (energy(batch.x + step) - energy(batch.x - step)) / 2e-5
    assert torch.allclose(force[5, 1], slope, rtol=1e-4, atol=1e-7)
    force.square().sum().backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    assert found and all(torch.isfinite(one).all() for one in found)
    assert sum(one.abs().sum() for one in found) > 0


# Compilers


def test_torch_compile_of_a_layer(conv):
    torch._dynamo.reset()
    compiled = torch.compile(conv, backend="eager", fullgraph=True)
    for a, b in zip(compiled(*conv_input()), conv(*conv_input()), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_torch_compile_of_a_training_model_compiles_a_bounded_number_of_times():
    torch._dynamo.reset()
    model, count = make_model(num_layers=1), 0

    def counting(graph, example_inputs):
        nonlocal count
        count += 1
        return graph.forward

    compiled = torch.compile(model.forward, backend=counting, dynamic=True)
    batch = model.prepare(graphs())
    for _ in range(6):
        compiled(batch).sum().backward()
    assert model.node_encoding.norm.num_batches == 6
    assert count <= 3


def test_torch_export_of_a_layer(conv):
    exported = torch.export.export(conv, conv_input()).module()
    for a, b in zip(exported(*conv_input()), conv(*conv_input()), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
