"""Explanations: shares of attention that add up, contributions that agree with masked graphs."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from small_tables import TINY, read_csv, write_csv
from torch_geometric.data import Data

from grass_gnn import GRASS, GRASSConfig, load_model
from grass_gnn.api.explanation import explain_table
from grass_gnn.api.fitting import fit_table
from grass_gnn.cli import main
from grass_gnn.data.batch import ADDED_EDGE
from grass_gnn.data.packed.dataset import pack
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.pictures import draw_graph, layout
from grass_gnn.evaluation.protocol import collect
from grass_gnn.evaluation.trained import TrainedModel


def model(**changes):
    torch.manual_seed(0)
    config = GRASSConfig().override(TINY | {k.replace("__", "."): v for k, v in changes.items()})
    return TrainedModel(GRASS(config).eval(), config)


def path(size=5):
    nodes = torch.arange(size - 1)
    pairs = torch.stack([nodes, nodes + 1])
    return Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=size)


def test_what_each_node_takes_adds_up_to_one():
    found = model().explain(path(), rewirings=3)
    taken = torch.zeros(5).index_add(0, found.edge_index[1], found.attention)
    assert torch.allclose(taken, torch.ones(5), atol=1e-2)
    assert sum(found.by_kind.values()) == pytest.approx(1, abs=1e-2)
    assert set(found.pairs()) == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_flipped_layers_count_for_the_opposite_direction():
    """On one arc 0 → 1, layer 0 gives it to node 1, and the flipped layer 1 to node 0."""
    arc = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    trained = model(rewiring__kind="none", model__layers=2)
    found = trained.explain(arc, rewirings=1)
    batch, weights = trained.model.attention(arc)
    row = int(batch.input_edges[0])
    shares = {
        (int(i), int(j)): float(a)
        for i, j, kind, a in zip(*found.edge_index, found.kind, found.attention, strict=True)
        if kind == 0
    }
    assert shares[0, 1] == pytest.approx(float(weights[0, row].mean()) / 2, rel=1e-4)
    assert shares[1, 0] == pytest.approx(float(weights[1, row].mean()) / 2, rel=1e-4)
    straight = model(rewiring__kind="none", model__layers=2, model__flip=False)
    kinds = straight.explain(arc, rewirings=1)
    assert not any(i > j for i, j in kinds.edge_index.t().tolist())


def test_pictures_and_numbers_of_molecules(run, tmp_path, capsys):
    table = write_csv(tmp_path / "in.csv", ["smiles"], [["c1ccccc1CCO"], ["C("], ["C"]])
    out = tmp_path / "pictures"
    arguments = ["explain", str(run), str(table), "-o", str(out), "--rewirings", "2"]
    assert main([*arguments, "--show", "attention"]) == 0
    names = {file.name for file in out.iterdir()}
    assert names == {"2.svg", "2.json", "3.json", "4.svg", "4.json"}
    assert "</svg>" in (out / "2.svg").read_text()
    numbers = json.loads((out / "2.json").read_text())
    bonds = {(e["from"], e["to"]) for e in numbers["edges"] if e["kind"] == "existing"}
    assert (5, 6) in bonds and (6, 5) in bonds and len(bonds) == 18
    assert "not valid" in json.loads((out / "3.json").read_text())["error"]


def test_pictures_of_a_call_share_a_scale_and_name_the_molecule(run, tmp_path):
    rows = [["<b>benzene & co", "c1ccccc1"], ["ethene", "C=C"]]
    table = write_csv(tmp_path / "in.csv", ["name", "smiles"], rows)
    out = tmp_path / "pictures"
    arguments = ["explain", str(run), str(table), "-o", str(out), "--rewirings", "2"]
    assert main([*arguments, "--show", "attention"]) == 0
    attention, ends = [], set()
    for line, (name, _) in enumerate(rows, 2):
        picture = ElementTree.fromstring((out / f"{line}.svg").read_text("utf-8"))
        texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
        numbers = json.loads((out / f"{line}.json").read_text())
        assert texts[:2] == [name, numbers["prediction"]] and "±" in texts[1]
        assert texts[3] == "0"
        ends.add(texts[4])
        pairs = {}
        for edge in numbers["edges"]:
            if edge["kind"] == "existing":
                ends_of_bond = frozenset((edge["from"], edge["to"]))
                pairs[ends_of_bond] = pairs.get(ends_of_bond, 0.0) + edge["attention"]
        attention += pairs.values()
    assert ends == {f"{max(attention):.2f}"}


FEATURES = {
    "input__nodes__kind": "index",
    "input__nodes__sizes": [4],
    "input__edges__kind": "index",
    "input__edges__sizes": [3],
}


def ring(size=6):
    nodes = torch.arange(size)
    pairs = torch.stack([nodes, nodes.roll(-1)])
    kinds = torch.arange(size) % 2
    return Data(
        x=(nodes % 3).unsqueeze(1),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        edge_attr=torch.cat([kinds, kinds]).unsqueeze(1),
    )


def settled(**changes):
    """A model with norm statistics, so that a prediction does not depend on the rest of a batch."""
    trained = model(**FEATURES, **changes)
    graphs = [ring(size) for size in range(3, 9)]
    trained.model.train()(graphs)  # input norms learn their statistics in training
    collect(trained.model, pack(graphs, trained.config, targets=False), trained.config, workers=0)
    return trained


@pytest.mark.parametrize("encoding", ["rrwp", "decomposed-rrwp"])
def test_contributions_are_differences_to_graphs_with_a_masked_node(encoding):
    """The last category of nodes and edges has an embedding of zero, which masks by hand."""
    trained = settled(encoding__kind=encoding, task__outputs=2)
    with torch.no_grad():
        trained.model.node_features.embedding.tables[0].weight[3] = 0
        trained.model.edge_features.embedding.tables[0].weight[2] = 0
    graph = ring()
    found = trained.attribute(graph, rewirings=3)
    whole = trained.predict(graph, 3, deterministic=True).mean
    assert torch.allclose(found.output.float(), whole[0], atol=1e-5)
    for node in range(6):
        masked = graph.clone()
        masked.x[node] = 3
        masked.edge_attr[(graph.edge_index == node).any(dim=0)] = 2
        other = trained.predict(masked, 3, deterministic=True).mean
        assert torch.allclose(found.contribution[node].float(), (whole - other)[0], atol=1e-5)
    assert found.contribution.abs().min() > 1e-4  # not vacuous


def test_contributions_do_not_depend_on_how_copies_are_batched(monkeypatch):
    from grass_gnn.evaluation import attribution

    trained, graph = settled(), ring(7)
    whole = trained.attribute(graph, rewirings=2)
    monkeypatch.setattr(attribution, "_BATCH_NODES", 15)  # two copies at a time
    parts = trained.attribute(graph, rewirings=2)
    # Contributions are differences of outputs, which are float32 and depend on the order of sums.
    rounding = 32 * torch.finfo(torch.float32).eps * float(whole.output.abs().max())
    assert torch.allclose(parts.contribution, whole.contribution, rtol=0, atol=rounding)


def test_one_of_two_classes_is_named(molecules, tmp_path):
    rows = [
        [row["smiles"], ("inactive", "active")[int(row["large"])]] for row in read_csv(molecules)
    ]
    table = write_csv(tmp_path / "own.csv", ["smiles", "act"], rows)
    for kind in ("binary", "classification"):
        fit_table(table, ["act"], tmp_path / kind, task=kind, settings=TINY, forest=False)
        folder = tmp_path / f"{kind}-explained"
        explain_table(load_model(tmp_path / kind), table, folder, limit=12, rewirings=1)
        texts = [json.loads(path.read_text())["prediction"] for path in folder.glob("*.json")]
        pictures = [path.read_text("utf-8") for path in folder.glob("*.svg")]
        assert len(texts) == len(pictures) == 12
        classes = ["inactive"] if kind == "binary" else ["active", "inactive"]
        assert all(any(f"act: {name} " in text for name in classes) for text in texts)
        for page in pictures:
            assert any(f"{name} (logit)" in page for name in classes)


def test_only_predictions_of_graphs_are_attributed():
    trained = model(**FEATURES, task__level="node")
    with pytest.raises(GrassError):
        trained.attribute(ring())


def test_contributions_are_drawn_and_written(run, tmp_path):
    table = write_csv(tmp_path / "in.csv", ["name", "smiles"], [["phenol", "c1ccccc1O"]])
    out = tmp_path / "pictures"
    arguments = ["explain", str(run), str(table), "-o", str(out), "--rewirings", "2"]
    assert main(arguments) == 0
    numbers = json.loads((out / "2.json").read_text())
    assert np.array(numbers["contributions"]).shape == (7, len(numbers["output"]))
    assert {edge["kind"] for edge in numbers["edges"]} == {"existing", "self-loop", "added"}
    picture = ElementTree.fromstring((out / "2.svg").read_text("utf-8"))
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    largest = max(abs(row[0]) for row in numbers["contributions"])
    assert f"{largest:.2f}" in texts and f"−{largest:.2f}" in texts  # the ends of the scale
    assert main([*arguments, "--show", "colours"]) != 0


@pytest.mark.parametrize("pairs", [[], [(0, 1), (1, 2)], [(0, 1), (2, 3), (3, 3), (3, 4)]])
def test_layouts_are_reproducible_and_keep_nodes_apart(pairs):
    place = layout(5, pairs)
    assert place.shape == (5, 2) and np.isfinite(place).all()
    assert np.array_equal(place, layout(5, pairs))
    apart = np.linalg.norm(place[:, None] - place[None], axis=2) + np.eye(5)
    assert apart.min() > 1e-3
    assert layout(1, []).shape == (1, 2)


def test_other_graphs_are_laid_out(tmp_path):
    found = model().explain(path(6), rewirings=2)
    draw_graph(found, tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
    assert found.pairs(ADDED_EDGE)
    json.dumps(found.to_dict())


def test_a_loaded_model_explains(run):
    from grass_gnn.data.tables.molecules import MoleculeReader

    data = MoleculeReader()("CCO").data
    found = load_model(run).explain(data, rewirings=1, deterministic=True)
    assert found.num_nodes == 3
