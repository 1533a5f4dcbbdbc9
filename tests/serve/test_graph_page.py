"""The page of a model on other graphs: those of its data, drawn with their rewirings."""

import base64
import shutil
from dataclasses import replace

import torch
from sklearn.metrics import roc_auc_score

from grass_gnn import load_model
from grass_gnn.evaluation.trained import find_data
from grass_gnn.serve.limits import Limits

NODES = {
    "input__nodes__sizes": [3],
    "task__level": "node",
    "task__kind": "classification",
    "task__outputs": 3,
    "task__loss": "cross-entropy",
    "task__metric": "accuracy",
}


def drawing(answer):
    return base64.b64decode(answer["picture"].partition(",")[2]).decode()


def facts_of(answer):
    return {fact["name"]: fact["value"] for fact in answer["facts"]}


def test_a_graph_is_drawn_with_its_prediction_and_target(graph_run, open_page):
    folder = graph_run(input__nodes__sizes=[3])
    client = open_page(folder)
    page = client.get("/").text
    assert 'data-view="graphs"' in page and 'data-graphs="3"' in page
    whole = client.post("/look", json={"number": 1}).json()
    data = find_data(load_model(folder)).splits["test"]
    assert facts_of(whole)["nodes"] == "9"
    target = float(facts_of(whole)["true output"].replace(",", ""))
    assert abs(target - float(data.tensors["y"][1])) < 1e-3
    assert "stroke-dasharray" not in drawing(whole)
    (value,) = whole["values"]
    assert value["spread"]
    ones = [client.post("/look", json={"number": 1, "rewiring": k}).json() for k in range(3)]
    assert all("stroke-dasharray" in drawing(one) for one in ones)
    assert len({drawing(one) for one in ones}) == 3
    singles = [float(one["values"][0]["value"].replace("−", "-")) for one in ones]
    mean = float(value["value"].replace("−", "-"))
    assert abs(sum(singles) / 3 - mean) <= float(value["spread"])


def test_nodes_are_coloured_by_what_is_predicted(graph_run, open_page):
    folder = graph_run(**NODES)
    answer = open_page(folder).post("/look", json={"number": 2, "rewiring": 1}).json()
    model, data = load_model(folder), find_data(load_model(folder)).splits["test"]
    one = data.part(2, 3)
    best = model.sample_packed(one, 2, deterministic=True)[1].argmax(dim=1)
    right = int((best == one.tensors["y"].long()).sum())
    assert facts_of(answer)["nodes predicted correctly"] == f"{right} of 11"
    colors = [row["color"] for row in answer["classes"]]
    svg = drawing(answer).lower()
    for place, color in enumerate(colors):
        assert (f"fill: {color}" in svg) == bool((best == place).any())


def test_only_rows_of_the_chosen_split_are_scored(graph_run, open_page):
    rows = {"train": [0, 1, 2, 3], "val": [4], "test": [5, 6]}  # the rest have no target
    folder = graph_run(sizes=(9,), masks=rows, **NODES)
    client, model = open_page(folder), load_model(folder)
    for split, title in (("train", "training"), ("val", "validation"), ("test", "test")):
        facts = facts_of(client.post("/look", json={"split": split, "rewiring": 1}).json())
        one = replace(find_data(model).splits[split], mask_name=None)
        best = model.sample_packed(one, 2, deterministic=True)[1].argmax(dim=1)
        right = int((best == one.tensors["y"].long())[rows[split]].sum())
        expected = {f"{title} nodes predicted correctly": f"{right} of {len(rows[split])}"}
        assert expected.items() <= facts.items() and len(facts) == 3


def test_known_edges_are_not_scored(graph_run, open_page):
    edges = {"task__level": "edge", "task__kind": "binary", "input__nodes__sizes": [3]}
    edges |= {"task__loss": "bce", "task__metric": "auc"}
    folder = graph_run(
        sizes=(9,), masks={"train": [0], "val": [0], "test": [*range(6, 14)]}, **edges
    )
    client, model = open_page(folder), load_model(folder)
    facts = facts_of(client.post("/look", json={"rewiring": 1}).json())
    one = replace(find_data(model).splits["test"], mask_name=None)
    shown = model.sample_packed(one, 2, deterministic=True)[1, 6:14, 0]
    right = roc_auc_score(one.tensors["y"][6:14].flatten(), shown)
    assert abs(float(facts["ROC-AUC of test edges"]) - right) < 1e-3
    single = facts_of(client.post("/look", json={"split": "val"}).json())
    assert list(single) == ["nodes", "connected pairs"]  # the AUC of one edge is not defined


def test_graphs_that_cannot_be_drawn_have_a_reason(graph_run, open_page):
    folder = graph_run(input__nodes__sizes=[3])
    client = open_page(folder, limits=Limits(nodes=8))
    assert client.post("/look", json={"number": 0}).status_code == 200
    large = client.post("/look", json={"number": 1})
    assert (large.status_code, large.json()["error"]) == (
        413,
        "This graph has 9 nodes; at most 8 can be drawn.",
    )
    assert client.post("/look", json={"number": 3}).json()["error"] == (
        "Graphs are numbered from 0 to 2."
    )
    assert client.post("/look", json={"split": "other"}).status_code == 400
    assert client.post("/predict", content="CCO").status_code == 404
    shutil.rmtree(folder / "data")
    empty = open_page(folder)
    assert "There are no graphs to draw: The prepared data of this run" in empty.get("/").text
    assert empty.post("/look", json={}).status_code == 400


def test_a_part_of_a_dataset_is_those_graphs(graph_run):
    data = find_data(load_model(graph_run(input__nodes__sizes=[3]))).splits["test"]
    for start, stop in ((0, 1), (1, 3), (2, 3)):
        part, ids = data.part(start, stop), torch.arange(start, stop)
        found, expected = part.select(torch.arange(stop - start)), data.select(ids)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert torch.equal(found.graph_ptr, expected.graph_ptr)
        assert torch.equal(found.x, expected.x) and torch.equal(found.y, expected.y)
