"""Graphs of any kind, from Python: features, tasks and splits are inferred."""

import networkx
import pytest
import torch
from small_tables import TINY, write_csv
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import grass_gnn
from grass_gnn import GrassError, load_model
from grass_gnn.api.graph_task import GraphSpec, infer_graph_task, infer_input, split_graphs
from grass_gnn.api.graphs import from_networkx, read_graph, read_graphs
from grass_gnn.api.links import fit_links, predict_links
from grass_gnn.cli import main

SETTINGS = TINY | {"training.epochs": 2, "evaluation.rewirings": 1}


def graphs(count=20, x=None, edge_attr=None, y=None):
    found = []
    for number in range(count):
        torch.manual_seed(number)
        data = ring(5 + number % 4)
        n, edges = data.num_nodes, data.edge_index.size(1)
        if x is not None:
            data.x = x(n)
        if edge_attr is not None:
            data.edge_attr = edge_attr(edges)
        data.y = y(n, edges) if y is not None else torch.tensor([n / 2])
        found.append(data)
    return found


def ring(size):
    nodes = torch.arange(size)
    pairs = torch.stack([nodes, nodes.roll(-1)])
    return Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=size)


def one_hot(rows):
    return torch.nn.functional.one_hot(torch.randint(3, (rows,)), 3).float()


@pytest.mark.parametrize(
    ("options", "kinds", "task"),
    [
        ({}, ("none", "none"), ("graph", "regression", 1)),
        (
            {"x": lambda n: torch.randint(4, (n, 2)), "edge_attr": lambda e: torch.rand(e, 3)},
            ("index", "continuous"),
            ("graph", "regression", 1),
        ),
        (
            {"x": one_hot, "y": lambda n, e: torch.randint(3, (n,))},
            ("one-hot", "none"),
            ("node", "classification", 3),
        ),
        (
            {"x": lambda n: torch.randn(n, 2), "y": lambda n, e: torch.rand(e, 2)},
            ("continuous", "none"),
            ("edge", "regression", 2),
        ),
        ({"y": lambda n, e: torch.tensor(n % 2)}, ("none", "none"), ("graph", "binary", 1)),
        (
            {"y": lambda n, e: torch.tensor([[1.0, float("nan"), n % 2]])},
            ("none", "none"),
            ("graph", "multilabel", 3),
        ),
    ],
)
def test_every_kind_of_graph_fits_and_predicts(tmp_path, options, kinds, task):
    data = graphs(**options)
    found = infer_input(data)
    assert (found.nodes.kind, found.edges.kind) == kinds
    inferred = infer_graph_task(data)
    assert (inferred.level, inferred.kind, inferred.outputs) == task
    model = grass_gnn.fit(data, tmp_path / "run", settings=SETTINGS)
    rows = {
        "graph": len(data),
        "node": sum(one.num_nodes for one in data),
        "edge": sum(one.num_edges for one in data),
    }[task[0]]
    mean, std = load_model(tmp_path / "run").predict(data, rewirings=2)
    assert mean.shape == std.shape == (rows, task[2])
    again, _ = model.predict(data, rewirings=2)
    assert torch.equal(mean, again)
    assert model.embed(data, rewirings=1).shape[0] == len(data)
    nodes = model.embed(data, "node", rewirings=1)
    assert nodes.shape == (sum(one.num_nodes for one in data), 8)


def test_directed_graphs_differ_from_their_reverse():
    data = graphs(10)
    for one in data:
        one.edge_index = one.edge_index[:, : one.num_nodes]  # one way round
    path = Data(edge_index=torch.tensor([[0, 0, 0], [1, 2, 3]]), num_nodes=4)
    reverse = Data(edge_index=path.edge_index.flip(0), num_nodes=4)
    model = grass_gnn.fit(data, settings=SETTINGS)
    mean, _ = model.predict([path, reverse], rewirings=4, deterministic=True)
    assert mean[0] != mean[1]


def test_deterministic_predictions_do_not_depend_on_other_graphs():
    model = grass_gnn.fit(graphs(), settings=SETTINGS)
    assert model.folder is None
    alone, spread = model.predict([ring(6)], rewirings=3, deterministic=True)
    among, _ = model.predict([ring(9), ring(6), ring(7)], 3, seed=5, deterministic=True)
    assert torch.allclose(alone[0], among[1], atol=1e-6, rtol=0)
    assert spread[0] > 0
    embedded = model.embed([ring(6)], rewirings=3, deterministic=True)
    others = model.embed([ring(9), ring(6)], rewirings=3, deterministic=True)
    assert torch.allclose(embedded[0], others[1], atol=1e-5)


def test_rewirings_are_at_least_one():
    model, data = grass_gnn.fit(graphs(), settings=SETTINGS), graphs(1)
    for ask in (
        model.predict,
        model.embed,
        *(
            lambda _, rewirings, ask=ask: ask(data[0], rewirings)
            for ask in (model.explain, model.attribute)
        ),
    ):
        for rewirings in (0, -1):
            with pytest.raises(GrassError, match="rewirings must be at least 1"):
                ask(data, rewirings=rewirings)
    with pytest.raises(TypeError, match="Expected a torch_geometric Data"):
        model.predict(None)


def masked(size=20, **masks):
    data = ring(size)
    data.y = torch.randn(size)
    for split, rows in masks.items():
        data[f"{split}_mask"] = torch.isin(torch.arange(size), torch.tensor(rows))
    return data


def test_some_masks_are_not_replaced_by_random_ones():
    rows = {"train": range(10), "val": range(10, 15), "test": range(15, 20)}
    rows = {split: list(part) for split, part in rows.items()}
    assert split_graphs(masked(**rows), GraphSpec(), 0)["test"][0].test_mask.sum() == 5
    for split in rows:
        others = {name: part for name, part in rows.items() if name != split}
        with pytest.raises(GrassError, match=f"no {split}_mask"):
            split_graphs(masked(**others), GraphSpec(), 0)
        with pytest.raises(GrassError, match=f"The {split} split is empty"):
            split_graphs(masked(**others, **{split: []}), GraphSpec(), 0)


def test_a_mask_of_missing_targets_only_is_refused():
    rows = {"train": list(range(10)), "val": list(range(10, 15)), "test": list(range(15, 20))}
    data = masked(**rows)
    data.y = torch.arange(20.0)
    data.y[12:] = float("nan")  # the validation set has two targets, the test set has none
    with pytest.raises(GrassError, match="All targets that the test_mask selects are missing"):
        split_graphs(data, GraphSpec(), 0)
    data.y[19] = 1.0
    assert split_graphs(data, GraphSpec(), 0)["test"][0].test_mask.sum() == 5


def test_nodes_without_a_class_are_in_no_mask():
    rows = {"train": list(range(10)), "val": list(range(10, 15)), "test": list(range(15, 20))}
    data = masked(**rows)
    data.y = torch.arange(20) % 3
    data.known_mask = torch.arange(20) % 4 > 0  # as networkx graphs and CSV files give it
    for split, part in rows.items():
        (found,) = split_graphs(data, GraphSpec(), 0)[split]
        kept = found[f"{split}_mask"].nonzero().flatten().tolist()
        assert kept == [row for row in part if row % 4]
    data.known_mask[10:15] = False
    with pytest.raises(GrassError, match="All targets that the val_mask selects are missing"):
        split_graphs(data, GraphSpec(), 0)
    data.known_mask[11:15] = True
    # A column for each of several splits.
    for split in rows:
        data[f"{split}_mask"] = data[f"{split}_mask"].unsqueeze(1).expand(-1, 2)
    (found,) = split_graphs(data, GraphSpec(), 0)["train"]
    assert found.train_mask.sum(dim=0).tolist() == [7, 7]


def test_both_directions_of_an_edge_are_in_the_same_split():
    data = ring(30)
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :4]], dim=1)  # parallel ones
    data.y = torch.randn(64)
    (found,) = split_graphs(data, GraphSpec(), 0)["train"]
    pairs = [frozenset(pair) for pair in data.edge_index.t().tolist()]
    seen = set()
    for split in ("train", "val", "test"):
        own = {pairs[row] for row in found[f"{split}_mask"].nonzero().flatten().tolist()}
        assert own and not own & seen
        seen |= own
    assert len(seen) == 30


@pytest.mark.parametrize("shares", [(1, 1), (1, -1, 1), (1, 1, 1, 1), (0, 0, 0)])
def test_invalid_shares_give_a_one_sentence_error(shares):
    with pytest.raises(GrassError, match="three numbers"):
        split_graphs(graphs(), GraphSpec(shares=shares), 0)


def test_what_is_not_a_list_of_graphs_gets_one_clear_error():
    for wrong, words in (
        (None, "Expected PyG graphs"),
        (5, "Expected"),
        (DataLoader(graphs()), "batch"),
    ):
        with pytest.raises(GrassError, match=words):
            grass_gnn.fit(wrong, settings=SETTINGS)
    with pytest.raises(GrassError, match="Expected a NetworkX graph"):
        from_networkx([0, 1])


def test_features_of_unusual_tensors(tmp_path):
    data = graphs(x=lambda n: torch.randn(n, 2))
    for one in data:
        one.x = one.x.bfloat16()
    expected = [grass_gnn.fit(data, settings=SETTINGS).predict(data[:2], rewirings=1).mean]
    for change in (torch.Tensor.float, lambda x: x.float().requires_grad_()):
        for one in data:
            one.x = change(one.x.detach())
        expected.append(grass_gnn.fit(data, settings=SETTINGS).predict(data[:2], rewirings=1).mean)
    assert all(torch.equal(one, expected[0]) for one in expected)


def test_networkx_graphs_without_edges_have_columns_of_edge_features(tmp_path):
    pair = networkx.Graph()
    pair.add_edge(0, 1, length=1.0, width=2.0)
    shapes = [
        from_networkx(graph, edge_features=("length", "width")).edge_attr.shape
        for graph in (pair, networkx.empty_graph(3))
    ]
    assert shapes == [(2, 2), (0, 2)]
    nodes = write_csv(tmp_path / "nodes.csv", ["name"], [["a"], ["b"]])
    edges = write_csv(tmp_path / "edges.csv", ["from", "to", "length", "width"], [])
    assert read_graph(nodes, edges).edge_attr.shape == (0, 2)


def test_networkx_graph_with_node_labels(tmp_path):
    club = networkx.karate_club_graph()
    del club.nodes[5]["club"]  # one whose side is to be found out
    data = from_networkx(club, target="club")
    assert data.classes == ["Mr. Hi", "Officer"] and torch.isnan(data.y[5])
    model = grass_gnn.fit(data, tmp_path / "run", settings=SETTINGS, shares=(0.6, 0.2, 0.2))
    assert model.config.task.kind == "binary" and model.config.task.level == "node"
    assert model.card["classes"] == ["Mr. Hi", "Officer"]
    mean, _ = model.predict([data])
    assert mean.shape == (34, 1) and bool(((mean > 0) & (mean < 1)).all())


def test_a_pair_of_tables(tmp_path):
    nodes = [[f"n{k}", k / 10, "abc"[k % 3]] for k in range(12)]
    edges = [[f"n{k}", f"n{(k + step) % 12}", step] for k in range(12) for step in (1, 3)]
    write_csv(tmp_path / "nodes.csv", ["id", "size", "kind"], nodes)
    write_csv(tmp_path / "edges.csv", ["from", "to", "step"], edges)
    data = read_graph(tmp_path / "nodes.csv", tmp_path / "edges.csv", "kind")
    assert data.x.shape == (12, 1) and data.edge_attr.shape == (48, 1)
    assert data.y.tolist() == [k % 3 for k in range(12)] and data.node_names[3] == "n3"
    model = grass_gnn.fit(data, settings=SETTINGS)
    assert model.config.task.kind == "classification" and model.config.task.level == "node"
    one_way = read_graph(tmp_path / "nodes.csv", tmp_path / "edges.csv", "kind", directed=True)
    assert one_way.edge_index.size(1) == 24
    write_csv(tmp_path / "edges.csv", ["from", "to"], [["n1", "nobody"]])
    with pytest.raises(GrassError, match=r"edges\.csv, line 2: there is no node 'nobody'"):
        read_graph(tmp_path / "nodes.csv", tmp_path / "edges.csv", "kind")


def tables_of_a_graph(folder, nodes, edges):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "nodes.csv", folder / "edges.csv"


def test_rows_with_too_many_cells_are_errors_and_blank_lines_are_skipped(tmp_path):
    both = tables_of_a_graph(tmp_path, "id,size\na,1\n\nb,2\n", "from,to\n\na,b\n")
    data = read_graph(*both)
    assert data.node_names == ["a", "b"] and data.edge_index.tolist() == [[0, 1], [1, 0]]
    both = tables_of_a_graph(tmp_path, "id,size\na,1,5\nb,2\n", "from,to\na,b\n")
    with pytest.raises(GrassError, match=r"nodes\.csv, line 2: the row has 3 cells"):
        read_graph(*both)
    both = tables_of_a_graph(tmp_path, "id,size\na,1\nb,2\n", "from,to\na,b\nb,a,7\n")
    with pytest.raises(GrassError, match=r"edges\.csv, line 3: the row has 3 cells"):
        read_graph(*both)


def test_edge_tables_with_an_index_are_refused(tmp_path):
    both = tables_of_a_graph(tmp_path, "id\n0\n1\n2\n", ",from,to\n0,1,2\n1,2,0\n")
    with pytest.raises(GrassError, match="looks like an index"):
        read_graph(*both)


def test_undirected_edges_may_be_listed_in_both_directions(tmp_path):
    nodes = "id\na\nb\nc\n"
    once = read_graph(*tables_of_a_graph(tmp_path, nodes, "from,to,w\na,b,1\nb,c,2\nc,c,3\n"))
    twice = "from,to,w\na,b,1\nb,a,1\nb,c,2\nc,b,2.0\nc,c,3\n"
    both = tables_of_a_graph(tmp_path, nodes, twice)
    data = read_graph(*both)
    assert torch.equal(data.edge_index, once.edge_index)
    assert torch.equal(data.edge_attr, once.edge_attr)
    assert read_graph(*both, directed=True).edge_index.size(1) == 5
    both = tables_of_a_graph(tmp_path, nodes, "from,to,w\na,b,1\nb,a,2\n")
    with pytest.raises(GrassError, match=r"edges\.csv, line 3: .*both directions"):
        read_graph(*both)


def test_networkx_graphs_without_the_target_are_refused():
    with pytest.raises(GrassError, match="No node has the attribute 'wrong'"):
        from_networkx(networkx.karate_club_graph(), target="wrong")


def test_links_within_communities_are_distinguished_from_others(tmp_path):
    graph = networkx.stochastic_block_model([14, 14], [[0.7, 0.03], [0.03, 0.7]], seed=1)
    data = from_networkx(graph)
    settings = SETTINGS | {"training.epochs": 20, "training.learning_rate": 3e-3}
    model = fit_links(data, tmp_path / "run", settings=settings)
    assert model.config.task.level == "edge"
    absent = list(networkx.non_edges(graph))
    within = torch.tensor([p for p in absent if (p[0] < 14) == (p[1] < 14)]).t()
    across = torch.tensor([p for p in absent if (p[0] < 14) != (p[1] < 14)]).t()
    inside, spread = predict_links(model, data, within, rewirings=4)
    outside, _ = predict_links(model, data, across, rewirings=4)
    assert inside.shape == spread.shape == (within.size(1), 1)
    assert inside.mean() > outside.mean() + 0.1


def test_saved_graphs_are_read_without_running_code(tmp_path):
    torch.save(graphs(12), tmp_path / "graphs.pt")
    assert len(read_graphs(tmp_path / "graphs.pt")) == 12
    model = grass_gnn.fit(tmp_path / "graphs.pt", settings=SETTINGS)
    assert model.config.task.kind == "regression"
    torch.save([print], tmp_path / "code.pt")
    with pytest.raises(GrassError, match=r"code\.pt"):
        read_graphs(tmp_path / "code.pt")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "no graphs"),
        (graphs(2), "too few"),
        ([Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=1)] * 5, "no target"),
        (ring(5), "no target"),
        ({"train": graphs(3)}, "val, test"),
    ],
)
def test_invalid_graphs_give_a_one_sentence_error(data, words):
    with pytest.raises(GrassError, match=words):
        grass_gnn.fit(data, settings=SETTINGS)


def test_train_takes_a_file_of_graphs_as_fit_does(tmp_path, capsys):
    torch.save(graphs(), tmp_path / "graphs.pt")
    changes = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "graphs.pt"), *changes, "--out", str(run)]) == 0
    assert "Next: grass-gnn evaluate" in capsys.readouterr().out
    grass_gnn.fit(tmp_path / "graphs.pt", tmp_path / "fit", settings=SETTINGS)
    weights = "weights.safetensors"
    assert (run / weights).read_bytes() == (tmp_path / "fit" / weights).read_bytes()
    with pytest.raises(GrassError, match="applies only to tables"):
        grass_gnn.fit(graphs(), smiles="smiles", settings=SETTINGS)
    with pytest.raises(TypeError, match="did you mean 'shares'"):
        grass_gnn.fit(graphs(), share=(0.5, 0.2, 0.3), settings=SETTINGS)


def test_a_graph_a_batch_a_list_and_a_loader_are_predicted_alike():
    data = graphs(6, x=one_hot)
    model = grass_gnn.fit(graphs(x=one_hot), settings=SETTINGS)
    expected = model.predict(data, rewirings=2, deterministic=True).mean
    given = (Batch.from_data_list(data), DataLoader(data, batch_size=4), tuple(data))
    for same in given:
        assert torch.equal(model.predict(same, rewirings=2, deterministic=True).mean, expected)
        assert torch.equal(model(same, rewirings=2, deterministic=True).mean, expected)
    one = model.predict(data[2], rewirings=2, deterministic=True)
    assert torch.allclose(one.mean, expected[2:3], rtol=1e-5)
    assert model.to("cpu").device == torch.device("cpu") and one.mean.device.type == "cpu"


def test_integers_that_nearly_all_differ_are_not_taken_for_classes():
    data = [Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([7 * n])) for n in range(20)]
    for one in data:
        one.num_nodes = 2
    with pytest.raises(GrassError, match="20 different integers"):
        infer_graph_task(data)
    assert infer_graph_task(data, kind="regression").kind == "regression"
    for number, one in enumerate(data):
        one.y = torch.tensor([number % 10])
    assert infer_graph_task(data).outputs == 10
