"""The processes that train one model together, and what they tell each other.

The one of rank 0 leads: it reads data, validates, evaluates and writes. The others follow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.ops import use_native
from grass_gnn.ops.processes import join_processes, leave_processes

PATIENCE = timedelta(days=7)  # of followers, while the leader prepares, validates or evaluates
# Of a step. A process that ends closes its connections and is noticed at once; this is for a
# machine or a network that falls silent.
TIMEOUT = timedelta(minutes=30)
STARTING = timedelta(minutes=10)  # of the leader, until others have imported torch
_LEADER = "grass_gnn/leader"

T = TypeVar("T")


class LostProcess(GrassError):
    """Another process of a run has ended; the run can be resumed."""


class Team:
    """All processes of a run, seen from one of them.

    Args:
        environment: How this process was started: what knows its rank, and where to meet.
        devices: Processes on each machine.
        nodes: Machines.
        started_here: Whether the first process of a machine starts the others.
    """

    def __init__(
        self,
        environment: ClusterEnvironment | None = None,
        devices: int = 1,
        nodes: int = 1,
        started_here: bool = False,
    ) -> None:
        self.environment = environment or LightningEnvironment()
        self.devices, self.nodes, self.size = devices, nodes, devices * nodes
        self.rank = 0
        if self.size > 1:  # launchers know the rank and keep it, Lightning's own has to be told
            rank = self.environment.node_rank() * devices + self.environment.local_rank()
            self.environment.set_global_rank(rank)
            self.rank = self.environment.global_rank()
        self.started_here = started_here
        self._waiting: Any = None  # a group of processes for what takes long

    @property
    def leads(self) -> bool:
        """Whether this process is the one that reads and writes."""
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        """Whether several processes use a GPU each."""
        return torch.cuda.is_available()

    def meet(self) -> None:
        """Connect all processes, unless they are."""
        if self.size == 1 or self._waiting is not None:
            return
        os.environ["MASTER_ADDR"] = self.environment.main_address
        os.environ["MASTER_PORT"] = str(self.environment.main_port)
        patience = STARTING if self.started_here else PATIENCE
        store, *_ = next(dist.rendezvous("env://", self.rank, self.size, timeout=patience))
        if self.leads:
            store.set(_LEADER, "ready")
        else:
            store.wait([_LEADER], PATIENCE)
        if self.on_gpu:
            torch.cuda.set_device(self.environment.local_rank())
        backend = "cpu:gloo,cuda:nccl" if self.on_gpu else "gloo"
        dist.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.size, timeout=TIMEOUT
        )
        self._waiting = dist.new_group(backend="gloo", timeout=PATIENCE)
        join_processes()

    def part(self) -> None:
        """Close the connections."""
        if self._waiting is not None:
            leave_processes()
            dist.destroy_process_group()
            self._waiting = None

    def share(self, value: T) -> T:
        """The leader's value, in all processes."""
        if self.size == 1:
            return value
        box = [value if self.leads else None]
        dist.broadcast_object_list(box, src=0, group=self._waiting)
        return box[0]  # type: ignore[return-value]

    def add_up(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all processes, without gradients."""
        if self.size > 1:
            values = values.detach().clone()
            dist.all_reduce(values)
        return values

    def any(self, here: bool) -> bool:
        """Whether something is so in any process."""
        return bool(self.add_up(torch.tensor(int(here))))

    def trainer_options(self, config: GRASSConfig) -> dict[str, Any]:
        """What Lightning's trainer needs to know about processes."""
        if self.size == 1:
            return {"accelerator": "auto", "devices": 1}
        strategy = DDPStrategy(
            find_unused_parameters=self._leaves_weights_unused(config),
            broadcast_buffers=False,  # norms that are synchronised agree, others need not
        )
        accelerator = "gpu" if self.on_gpu else "cpu"
        return {
            "accelerator": accelerator,
            "devices": self.devices,
            "num_nodes": self.nodes,
            "strategy": strategy,
        }

    def _leaves_weights_unused(self, config: GRASSConfig) -> bool:
        """Whether some weights may get no gradient, which torch has to look for."""
        model, exact = config.model, config.training.precision == "32-true"
        if model.architecture != "grass" or model.attention != "grass":
            return True
        # A node task does not see the last layer's edges; fused layers have their gradients as one.
        fused = exact and not self.on_gpu and use_native(torch.zeros(1), model.norm)
        return config.task.level == "node" and not fused

    @contextmanager
    def noticing_loss(self) -> Iterator[None]:
        """Say in a sentence that another process is gone, when that is why this one cannot go on.

        Raises:
            LostProcess: It is.
        """
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_lost_connection(error):
                raise
            raise LostProcess(
                f"Process {self.rank} of {self.size} has lost the others: one of them has ended or "
                "cannot be reached; go on from the last checkpoint with --resume."
            ) from error

    @contextmanager
    def sharing_cores(self) -> Iterator[None]:
        """Take a share of the cores, where all processes of this machine are to have one."""
        threads, setting = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
        share = max(1, threads // self.devices) if setting is None else threads
        if self.size > 1:  # Lightning would leave the environment changed
            torch.set_num_threads(share)
            os.environ["OMP_NUM_THREADS"] = str(share)
        try:
            yield
        finally:
            if self.size > 1:
                torch.set_num_threads(threads)
                os.environ.pop("OMP_NUM_THREADS")
                if setting is not None:
                    os.environ["OMP_NUM_THREADS"] = setting


def _is_lost_connection(error: RuntimeError) -> bool:
    words = ("gloo", "nccl", "connection")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


ALONE = Team()
