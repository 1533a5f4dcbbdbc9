"""Which device to use; peak memory, processor, devices and versions of a run."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from grass_gnn.errors import GrassError

_NO_FLOAT64 = ("mps",)  # chosen by name only: encodings and norms use float64


def find_device(device: str | torch.device | None = None) -> torch.device:
    """The device with this name; by default the GPU if there is one, otherwise the CPU.

    Raises:
        GrassError: There is no such device.
    """
    if device is None:
        if torch.accelerator.is_available():
            found = torch.accelerator.current_accelerator()
            if found is not None and found.type not in _NO_FLOAT64:
                return found
        return torch.device("cpu")
    try:
        found = torch.device(device)
        count = 1 if found.type == "cpu" else torch.get_device_module(found).device_count()
    except (RuntimeError, AttributeError):
        raise GrassError(f"There is no device {str(device)!r}: use cpu, cuda, cuda:1, …") from None
    if (found.index or 0) >= count:
        raise GrassError(
            f"There is no device {str(device)!r}: PyTorch sees {count} {found.type} devices."
        )
    return found


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Peak memory so far, in MB: of the process, or what PyTorch has allocated on a GPU."""
    if device is not None and device.type != "cpu":
        module = torch.get_device_module(device)
        return round(module.max_memory_allocated(device) / 1e6, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6, 1)


def cpu_name() -> str:
    """The name of the processor, as reported by the system."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Processor, devices and versions of the main packages."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "python": platform.python_version(),
        **{name: _version(name) for name in ("grass-gnn", "torch", "torch_geometric", "lightning")},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
