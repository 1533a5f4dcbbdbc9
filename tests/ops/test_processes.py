"""Batch norms over the rows of several processes, fused and plain."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import rewire
from grass_gnn.data.packed.dataset import pack
from grass_gnn.nn import GRASS
from grass_gnn.nn.norm import synchronise_norms
from grass_gnn.ops import build, processes
from grass_gnn.ops.processes import join_processes
from grass_gnn.testing import random_input

CONFIG = GRASSConfig.preset(
    "zinc",
    **{"model.layers": 3, "model.dim": 24, "model.edge_removal": 0.0, "rewiring.degree": 0},
)
SIZES = (5, 9, 30, 3, 12)


def all_graphs():
    return [random_input(CONFIG, size, seed) for seed, size in enumerate(SIZES)]


def gradients(graphs) -> tuple[torch.Tensor, list[torch.Tensor]]:
    inputs = pack(graphs, CONFIG).select(torch.arange(len(graphs)))
    batch = rewire(inputs, CONFIG.encoding, CONFIG.rewiring)
    torch.manual_seed(1)
    model = GRASS(CONFIG)
    synchronise_norms(model)
    output = model(batch)
    output.square().sum().backward()
    return output.detach(), [p.grad for p in model.parameters()]


def work(rank: int, folder: str, implementations: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    join_processes()
    part = slice(0, 2) if rank == 0 else slice(2, None)
    for ops in implementations:
        os.environ["GRASS_OPS"] = ops
        output, grads = gradients(all_graphs()[part])
        for grad in grads:
            dist.all_reduce(grad)
        torch.save((output, grads), f"{folder}/{ops}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The folder of what two processes computed, with each implementation."""
    folder = tmp_path_factory.mktemp("processes")
    implementations = ["reference", "native"] if build.available() else ["reference"]
    mp.spawn(work, (str(folder), implementations), nprocs=2)
    return folder


@pytest.mark.parametrize("ops", ["reference", "native"])
def test_two_processes_are_one_batch(ops, two_processes, monkeypatch):
    if ops == "native" and not build.available():
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("GRASS_OPS", ops)
    output, grads = gradients(all_graphs())
    found = [torch.load(two_processes / f"{ops}-{rank}.pt", weights_only=True) for rank in range(2)]
    torch.testing.assert_close(torch.cat([f[0] for f in found]), output, rtol=1e-4, atol=1e-5)
    for a, b in zip(found[0][1], grads, strict=True):
        assert (a - b).norm() <= 1e-3 * b.norm() + 1e-5


def test_a_lost_process_is_an_error(monkeypatch):
    def lost(*_, **__):
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(processes.dist, "all_reduce", lost)
    monkeypatch.setattr(processes, "_group", object())
    if not build.available():
        pytest.skip("no C++ compiler")
    with pytest.raises(RuntimeError, match="connection closed"):
        gradients(all_graphs())
