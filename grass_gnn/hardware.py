"""Peak memory, processor, devices and versions of a run."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Peak memory so far, in MB: of the process, or of a GPU."""
    if device is not None and device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
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
