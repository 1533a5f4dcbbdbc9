import threading
import time

import pytest
import torch
from random_graphs import CONFIG, random_graph
from torch import Tensor

from grass_gnn.data.batch import GraphBatch
from grass_gnn.data.packed.dataset import pack
from grass_gnn.data.packed.loader import GraphLoader, TrainingLoader
from grass_gnn.errors import GrassError


@pytest.fixture(scope="module")
def packed():
    return pack([random_graph(seed) for seed in range(23)], CONFIG)


def loader(packed, config=CONFIG, **settings) -> GraphLoader:
    defaults = {"batch_size": 4, "shuffle": True, "drop_last": False, "seed": 1, "workers": 0}
    settings = {**defaults, **settings}
    kind = TrainingLoader if settings.pop("drop_last") else GraphLoader
    return kind(packed, config, **settings)


def same(a: GraphBatch, b: GraphBatch) -> bool:
    def equal(x: object, y: object) -> bool:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x.dtype == y.dtype and torch.equal(x, y)
        return x is y or (isinstance(x, tuple) and all(map(equal, x, y)))  # type: ignore[arg-type]

    return all(map(equal, a, b))


def targets(batches) -> list[float]:
    return torch.cat([batch.y for batch in batches]).flatten().tolist()


def test_workers_change_nothing(packed) -> None:
    for epoch in (0, 3):
        runs = []
        for workers in (0, 1, 2, 5):
            one = loader(packed, workers=workers)
            one.set_epoch(epoch)
            runs.append(list(one))
        for run in runs[1:]:
            assert len(run) == len(runs[0])
            assert all(map(same, run, runs[0]))


def test_an_epoch_has_each_graph_once(packed) -> None:
    everything = packed.select(torch.arange(23)).y.flatten().tolist()
    assert targets(loader(packed, shuffle=False)) == everything
    one = loader(packed)
    first, again = list(one), list(one)
    assert all(map(same, first, again))
    one.set_epoch(1)
    second = list(one)
    assert targets(first) != targets(second)
    assert sorted(targets(first)) == sorted(targets(second)) == sorted(everything)


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [4] * 5), (False, [4] * 5 + [3])])
def test_the_last_batch(packed, drop_last: bool, sizes: list[int]) -> None:
    one = loader(packed, drop_last=drop_last)
    assert [batch.num_graphs for batch in one] == sizes
    assert len(one) == len(sizes)


def test_a_batch_is_no_larger_than_the_dataset(packed) -> None:
    assert [batch.num_graphs for batch in loader(packed, batch_size=99, drop_last=True)] == [23]


@pytest.mark.parametrize("workers", [0, 2])
def test_going_on_in_the_middle_of_an_epoch(packed, workers: int) -> None:
    whole = loader(packed, workers=workers)
    whole.set_epoch(2)
    expected = list(whole)
    resumed = loader(packed, workers=workers)
    resumed.set_epoch(2)
    resumed.resume_from(3)
    resumed.set_epoch(2)  # the same epoch: nothing changes
    rest = list(resumed)
    assert len(rest) == 3 and all(map(same, rest, expected[3:]))
    assert len(list(resumed)) == 6  # the next time, from the start
    by_number = loader(packed)
    by_number.set_epoch(2)
    by_number.resume_from(4)
    assert len(by_number) == 2
    assert all(map(same, list(by_number), expected[4:]))


def test_shares_of_several_processes(packed) -> None:
    shares = [batch for rank in range(3) for batch in loader(packed).shard(rank, 3)]
    assert sorted(targets(shares)) == sorted(targets(loader(packed)))
    full = [loader(packed, batch_size=3, drop_last=True).shard(rank, 2) for rank in range(2)]
    assert [len(list(share)) for share in full] == [len(share) for share in full] == [3, 3]


def test_rewiring_is_new_by_epoch_and_stream(packed) -> None:
    def edges(epoch: int = 0, **settings) -> Tensor:
        one = loader(packed, shuffle=False, batch_size=23, **settings)
        one.set_epoch(epoch)
        return next(iter(one)).edge_index

    base = edges()
    assert torch.equal(base, edges())
    for other in (edges(epoch=1), edges(stream=1), edges(seed=2)):
        assert not torch.equal(base, other)


@pytest.mark.parametrize("when", ["once", "graph"])
def test_rewiring_that_stays(packed, when: str) -> None:
    config = CONFIG.override({"rewiring.when": when})
    found = []
    for seed, stream, epoch in ((1, 0, 0), (1, 1, 5), (2, 0, 0)):
        one = GraphLoader(packed, config, 23, seed=seed, stream=stream, workers=0)
        one.set_epoch(epoch)
        found.append(next(iter(one)).edge_index)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2]) == (when == "graph")


def test_edges_of_a_graph_that_stay_also_stay_in_deterministic_predictions(packed) -> None:
    config = CONFIG.override({"rewiring.when": "graph"})
    trained = next(iter(GraphLoader(packed, config, 23, workers=0))).edge_index
    deterministic = GraphLoader(packed, config, 23, workers=0, by_graph=True)
    for epoch in (0, 3):
        deterministic.set_epoch(epoch)
        assert torch.equal(next(iter(deterministic)).edge_index, trained)


def test_a_single_graph_is_encoded_once() -> None:
    config = CONFIG.override({"encoding.kind": "decomposed-rrwp"})
    graphs = [random_graph(7, 8, 20), random_graph(8, 8, 20)]
    alone, among = pack(graphs[:1], config), pack(graphs, config)
    for epoch in range(2):
        found, expected = (
            loader(packed, config, batch_size=1, shuffle=False) for packed in (alone, among)
        )
        found.set_epoch(epoch)
        expected.set_epoch(epoch)
        a, b = next(iter(found)), next(iter(expected))
        assert torch.equal(a.edge_index, b.edge_index)
        torch.testing.assert_close(a.edge_encoding, b.edge_encoding)
        torch.testing.assert_close(a.node_encoding, b.node_encoding)


def test_a_graph_is_rewired_alike_in_any_batch(packed) -> None:
    large = next(iter(loader(packed, shuffle=False, batch_size=23)))
    small = next(iter(loader(packed, shuffle=False, batch_size=2)))
    within = large.node_graph[large.edge_index[1]] < 2
    assert torch.equal(large.edge_index[:, within], small.edge_index)
    assert torch.equal(large.edge_encoding[within], small.edge_encoding)


def worker_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("grass-loader")]


def test_an_error_in_a_worker_reaches_the_caller(packed, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise GrassError("This batch cannot be made.")

    one = loader(packed, workers=2)
    monkeypatch.setattr("grass_gnn.data.packed.loader.rewire", fail)
    with pytest.raises(GrassError, match="This batch cannot be made"):
        list(one)
    assert not worker_threads()


def test_no_thread_outlives_an_iteration(packed) -> None:
    for batch in loader(packed, workers=3):
        assert batch.num_graphs == 4
        break
    for _ in range(100):
        if not worker_threads():
            break
        time.sleep(0.01)
    assert not worker_threads()
