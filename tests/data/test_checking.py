from collections.abc import Callable

import pytest
import torch
from random_graphs import CONFIG, random_graph
from torch_geometric.data import Data

from grass_gnn.api.graph_task import infer_input
from grass_gnn.data.packed.dataset import pack
from grass_gnn.errors import GrassError

CLASSES = {"task.kind": "classification", "task.outputs": 3, "task.loss": "cross-entropy"}
BINARY = {"task.kind": "binary", "task.loss": "bce", "task.metric": "auc"}


def setting(name: str, value: object) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[name] = value

    return change


def entry(name: str, place: tuple[int, ...], value: float) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[name][place] = value

    return change


WRONG = {
    "edge beyond": (entry("edge_index", (1, 2), 7), r"edge_index\[1, 2\] is 7, .* 5 nodes"),
    "edge negative": (entry("edge_index", (0, 0), -1), r"edge_index\[0, 0\] is -1"),
    "edges float": (setting("edge_index", torch.zeros(2, 6)), "must contain integers"),
    "edges shape": (setting("edge_index", torch.zeros(3, 6).long()), r"shape \[2, E\]"),
    "no edges": (setting("edge_index", None), r"Graph 2 has no edge_index"),
    "node feature": (entry("x", (3, 0), 5), "node feature 5 in row 3.*beyond its 5 categories"),
    "float index": (setting("x", torch.zeros(5, 1)), "integers, not floats"),
    "no x": (setting("x", None), "Graph 2 has no node"),
    "columns": (setting("x", torch.zeros(5, 2).long()), r"\[5, 2\], but the model takes \[5, 1\]"),
    "NaN": (entry("edge_attr", (1, 0), torch.nan), "edge features of row 1 are not finite"),
    "infinite": (entry("edge_attr", (1, 0), torch.inf), "edge features of row 1 are not finite"),
    "edge rows": (setting("edge_attr", torch.zeros(5, 2)), r"\[5, 2\], .* \[6, 2\]"),
    "no y": (setting("y", None), "Graph 2 has no target y"),
    "NaN y": (setting("y", torch.tensor([torch.nan])), "target y is not finite"),
    "shape of y": (setting("y", torch.zeros(3)), r"shape \[3\], but the task expects 1"),
    "weights": (setting("edge_weight", -torch.ones(6)), "weight.* must not be negative"),
    "masks": (setting("train_mask", torch.ones(5)), r"train_mask must be boolean of shape \[1\]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_graph_at_fault_is_named(what: str) -> None:
    change, message = WRONG[what]
    graphs = [random_graph(seed, 5, 6) for seed in range(4)]
    pack(graphs, CONFIG)
    if what == "no x":  # PyG then knows the number of nodes from nowhere else
        graphs[2].num_nodes = 5
    change(graphs[2])
    with pytest.raises(GrassError, match=message) as caught:
        pack(graphs, CONFIG)
    text = str(caught.value)
    assert text.startswith("Graph 2") and text.endswith((".", ").")) and "\n" not in text


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        (CLASSES | {"task.metric": "accuracy"}, 3, "is 3, but classes are 0 to 2"),
        (CLASSES | {"task.metric": "accuracy"}, -1, "is -1, but classes are 0 to 2"),
        (CLASSES | {"task.metric": "accuracy"}, 0.5, "not a whole number"),
        (BINARY, 2, "is 2, but labels are 0 or 1"),
    ],
)
def test_invalid_targets(task: dict, y: float, message: str) -> None:
    graph = random_graph(0, 5, 6)
    graph.y = torch.tensor([y])
    with pytest.raises(GrassError, match=message):
        pack([graph], CONFIG.override(task))


def test_invalid_datasets() -> None:
    with pytest.raises(GrassError, match="There are no graphs"):
        pack([], CONFIG)
    with pytest.raises(GrassError, match="Graph 1 has no nodes"):
        pack(_with_empty(), CONFIG)
    with pytest.raises(GrassError, match="Graph 0 is not a PyG Data but a str"):
        pack(["CCO"], CONFIG)  # type: ignore[list-item]


def _with_empty() -> list[Data]:
    empty = Data(
        x=torch.empty(0, 1).long(),
        edge_index=torch.empty(2, 0).long(),
        edge_attr=torch.empty(0, 2),
        y=torch.zeros(1),
    )
    return [random_graph(0), empty]


def test_y_may_be_a_number() -> None:
    graph = random_graph(0)
    graph.y = 1.5
    found = pack([graph], CONFIG).select(torch.tensor([0])).y
    assert found is not None and found.tolist() == [[1.5]]


FLOATS = CONFIG.override({"input.nodes.kind": "continuous", "input.nodes.sizes": [1]})


def test_features_of_any_real_type_count_as_the_same_numbers() -> None:
    flags = (torch.rand(5, 1, generator=torch.Generator().manual_seed(0)) > 0.5).to(torch.uint8)
    graph = random_graph(0, 5, 6)
    for config, plain in ((FLOATS, flags.float()), (CONFIG, flags.long())):
        graph.x = plain
        expected = pack([graph], config).select(torch.tensor([0])).x
        for dtype in (torch.bool, torch.uint8, torch.uint16, torch.int32):
            graph.x = flags.to(dtype)
            assert torch.equal(pack([graph], config).select(torch.tensor([0])).x, expected)
            assert infer_input([graph]).nodes.kind == "index"


def test_complex_and_sparse_features_are_refused() -> None:
    graph = random_graph(0, 5, 6)
    for x in (torch.ones(5, 1, dtype=torch.complex64), torch.ones(5, 1).to_sparse()):
        graph.x = x
        for config in (FLOATS, CONFIG):
            with pytest.raises(GrassError, match="dense tensor of real numbers"):
                pack([graph], config)
        with pytest.raises(GrassError, match="dense tensors of real numbers"):
            infer_input([graph])


def test_an_empty_list_of_edge_features_is_enough_for_a_graph_without_edges() -> None:
    graph = random_graph(0, 5, 0)
    graph.edge_attr = torch.tensor([])
    assert pack([graph, random_graph(1, 5, 6)], CONFIG).tensors["edge_attr"].shape == (6, 2)
    categories = CONFIG.override({"input.edges.kind": "index", "input.edges.sizes": [3, 4]})
    assert pack([graph], categories).tensors["edge_attr"].shape == (0, 2)


def test_masks_do_not_matter_where_targets_do_not() -> None:
    graphs = [random_graph(seed, 5, 6) for seed in range(2)]
    graphs[0].train_mask = torch.ones(5)
    assert "train_mask" not in pack(graphs, CONFIG, targets=False).tensors
