"""The pretend device raises where CUDA does, and only there."""

import pickle

import pytest
import torch
from pretend import DEVICE, PretendTensor
from torch import nn

from grass_gnn import GrassError
from grass_gnn.hardware import find_device, peak_memory_mb

MIXED = "same device"


def on_device(*shape):
    return torch.randn(*shape).to(DEVICE)


MIXTURES = {
    "sum": lambda: on_device(2) + torch.ones(2),
    "product": lambda: on_device(2, 2) @ torch.ones(2, 2),
    "concatenation": lambda: torch.cat([on_device(2), torch.ones(2)]),
    "stack of scalars": lambda: torch.stack([on_device(2).sum(), torch.tensor(1.0)]),
    "index_add": lambda: on_device(3).index_add(0, torch.tensor([1]), on_device(1)),
    "scatter": lambda: on_device(3).scatter_add(0, torch.tensor([1]), on_device(1)),
    "gather": lambda: on_device(3).gather(0, torch.tensor([1])),
    "embedding": lambda: nn.Embedding(3, 2).to(DEVICE)(torch.tensor([1])),
    "index on the device": lambda: torch.ones(3)[torch.tensor([1]).to(DEVICE)],
    "assignment": lambda: on_device(3).__setitem__(torch.tensor([0, 1]), torch.ones(2)),
    "mask": lambda: on_device(2).masked_fill(torch.tensor([True, False]), 0.0),
    "where": lambda: torch.where(torch.ones(2, dtype=torch.bool), on_device(2), 0.0),
    "into a CPU scalar": lambda: torch.tensor(1.0).add_(on_device(1).sum()),
    "layer": lambda: nn.Linear(2, 2)(on_device(1, 2)),
    "loss": lambda: nn.functional.l1_loss(on_device(2), torch.ones(2)),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_tensors_of_two_devices_do_not_mix(name):
    with pytest.raises(RuntimeError, match=MIXED):
        MIXTURES[name]()


def test_numpy_and_generators_of_the_cpu_are_refused():
    with pytest.raises(TypeError, match="numpy"):
        on_device(2).numpy()
    with pytest.raises(RuntimeError, match="generator"):
        on_device(2).bernoulli(generator=torch.Generator())


def test_what_cuda_allows_is_allowed():
    x = on_device(3)
    assert torch.equal((x * torch.tensor(2.0)).cpu(), 2 * x.cpu())
    assert torch.equal(x[torch.tensor([2, 0])].cpu(), x.cpu()[[2, 0]])
    x[torch.tensor([0])] = torch.tensor(5.0)
    assert x.tolist()[0] == 5.0
    assert torch.where(x > 0, x, torch.tensor(0.0)).device == torch.device(DEVICE)
    assert x.to("cpu", torch.float64).device.type == "cpu"
    assert not isinstance(pickle.loads(pickle.dumps(x)), PretendTensor)


def test_gradients_stay_on_the_device():
    layer = nn.Linear(3, 2).to(DEVICE)
    layer(on_device(4, 3)).square().sum().backward()
    assert layer.weight.grad.device == torch.device(DEVICE)


def test_random_numbers_have_a_generator_of_their_own():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = torch.rand(2, device=DEVICE)
    assert torch.equal(torch.rand(2), expected)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2, device=DEVICE).cpu(), first.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_products_and_keeps_exponentials(dtype):
    x, layer = on_device(2, 3), nn.Linear(3, 2).to(DEVICE)
    with torch.autocast("pretend", dtype=dtype):
        assert layer(x).dtype == dtype
        assert torch.exp(layer(x)).dtype == torch.float32
        assert torch.cat([layer(x), x[:, :2]]).dtype == torch.float32
    assert layer(x).dtype == torch.float32


def test_the_gpu_is_the_default_and_missing_devices_are_named(device):
    assert find_device() == torch.device("pretend")
    device.present = False
    try:
        assert find_device() == torch.device("cpu")
    finally:
        device.present = True
    for missing in ("pretend:3", "cuda:0", "gpu", "meta"):
        with pytest.raises(GrassError, match="no device"):
            find_device(missing)


def test_peak_memory_is_that_of_the_device():
    assert peak_memory_mb(find_device()) == 3.0
    assert peak_memory_mb() > 10.0  # the process
