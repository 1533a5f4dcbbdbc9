"""Layers under ``torch.compile``: compiled once for all of them, and for batches of any size."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from grass_gnn import GRASS, GRASSConfig
from grass_gnn.nn.norm import collect_statistics
from grass_gnn.testing import random_input

LAYERS = 5


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("GRASS_OPS", "reference")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_model(**changes):
    settings = {
        "input.nodes.kind": "index",
        "input.nodes.sizes": [4],
        "encoding.steps": 3,
        "rewiring.degree": 2,
        "model.dim": 8,
        "model.layers": LAYERS,
        "model.head_hidden": 0,
    }
    torch.manual_seed(0)
    return GRASS(GRASSConfig().override(settings | changes))


def batches(model, count=4):
    """Batches of different numbers of graphs, nodes and edges."""
    for number in range(count):
        sizes = range(4, 6 + number)
        yield model.prepare([random_input(model.config, size, number) for size in sizes])


def step(model, batch, dtype=None):
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        output = model(batch).float()
    model.zero_grad()
    output.square().mean().backward()
    return output.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


CASES = {
    "batch norm, checkpointing": ({"model.checkpoint": 2}, None),
    "instance norm, bfloat16": ({"model.norm": "instance"}, torch.bfloat16),
}


@pytest.mark.parametrize("case", CASES)
def test_all_layers_and_batches_share_one_compilation(case):
    """There are no graph breaks, and the results are those of uncompiled layers."""
    changes, dtype = CASES[case]
    changes = {"model.edge_removal": 0.0, **changes}
    model, plain = make_model(**changes).train(), make_model(**changes).train()
    counter = CompileCounterWithBackend("aot_eager")
    model.layers.compile_layers(backend=counter, fullgraph=True)
    for batch in batches(model):
        (found, ours), (expected, theirs) = step(model, batch, dtype), step(plain, batch, dtype)
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-2 * expected.abs().max())
        if dtype is None:
            for one, other in zip(ours, theirs, strict=True):
                assert torch.allclose(one, other, rtol=1e-2, atol=1e-3 * (1 + other.abs().max()))
    assert counter.frame_count == 1


def test_each_mode_of_a_batch_norm_is_compiled_once():
    """Training, its own moments without gradients, collecting moments, and using their averages."""
    model = make_model(**{"model.layers": 2})
    counter = CompileCounterWithBackend("eager")
    model.layers.compile_layers(backend=counter, fullgraph=True)
    made = list(batches(model, 2))

    def compilations(batches, run):
        before = counter.frame_count
        for batch in batches:
            run(batch)
        return counter.frame_count - before

    assert compilations(made, model.train()) == 1
    with torch.no_grad():
        assert compilations(made, model.eval()) == 1
        with collect_statistics(model):
            assert compilations(made, model) == 1
        assert compilations(made, model.eval()) == 1
    assert compilations(made, model.train()) == 0
