"""The processes that train one model together, and what they tell each other.

The one of rank 0 leads: it reads data, validates, evaluates and writes. The others follow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.plugins.environments import (
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
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


ENDING = 60  # seconds until they are ended, once all is done

_team: Team | None = None  # what this process belongs to now


@contextmanager
def join(devices: int | str | None = None, nodes: int | None = None) -> Iterator[Team]:
    """The processes of a run, one of which is this; the others are started if nobody else does.

    Args:
        devices: Processes on each machine; ``"auto"``: one for each GPU, or as many as torchrun or
            SLURM started; if not given, as many as torchrun started, or one.
        nodes: Machines.

    Raises:
        GrassError: There cannot be so many.
    """
    global _team
    if _team is not None:
        yield _team
        return
    team = find_team(devices, nodes)
    if not team.started_here:
        _team = team
        try:
            yield team
        finally:
            if team.size == 1:  # the others remain a team, to be met once
                _team = None
        return
    before = dict(os.environ)
    followers = _start_followers(team)
    _team = team
    try:
        yield team
        for follower in followers:
            with suppress(subprocess.TimeoutExpired):
                follower.wait(ENDING)
    finally:
        for follower in followers:  # that were not told to end: the leader has failed
            follower.kill()
            follower.communicate()
        team.part()
        _team = None
        os.environ.clear()
        os.environ.update(before)


def find_team(devices: int | str | None = None, nodes: int | None = None) -> Team:
    """The processes that are asked for, or that a launcher has started."""
    asked = _number(devices)
    if asked == 0 or nodes == 0:
        raise GrassError("There must be at least one device and one node.")
    launcher = _torchrun()
    if launcher is None and (devices == "auto" or (asked or 1) * (nodes or 1) > 1):
        launcher = _slurm()
    if launcher is not None:
        name, environment, found, machines = launcher
        if (asked or found, nodes or (machines if asked is None else 1)) != (found, machines):
            raise GrassError(
                f"{name} started {found} processes on each of {machines} machines, which does not "
                f"agree with --devices {devices} --nodes {nodes or 1}."
            )
        return Team(environment, found, machines)
    if devices == "auto":
        asked = max(torch.cuda.device_count(), 1)
    asked, nodes, environment = asked or 1, nodes or 1, LightningEnvironment()
    started_here = asked * nodes > 1 and not environment.creates_processes_externally
    if started_here:
        _check_plain(asked, nodes)
    return Team(environment, asked, nodes, started_here)


def _number(devices: int | str | None) -> int | None:
    if devices is None or devices == "auto":
        return None
    try:
        return max(0, int(devices))
    except ValueError:
        raise GrassError(f"--devices takes a number or auto, not {devices!r}.") from None


# What started this process as one of several, how many it started on a machine, and on how many.
Launcher = tuple[str, ClusterEnvironment, int, int]


def _torchrun() -> Launcher | None:
    """Looked for first: it may run within a job of SLURM, once on each machine."""
    if not TorchElasticEnvironment.detect():
        return None
    found, size = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return "torchrun", TorchElasticEnvironment(), found, size // found


def _slurm() -> Launcher | None:
    if int(os.environ.get("SLURM_NTASKS", 1)) == 1:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about srun, which a process of our own does not need
        if not SLURMEnvironment.detect():
            return None
        try:
            environment = SLURMEnvironment(auto_requeue=False)
        except RuntimeError:
            raise GrassError("With SLURM, say how many processes by --ntasks-per-node.") from None
    found, machines = int(os.environ["SLURM_NTASKS_PER_NODE"]), int(os.environ["SLURM_NNODES"])
    return "SLURM", environment, found, machines


def _check_plain(devices: int, nodes: int) -> None:
    """Raise if so many processes cannot be started here."""
    if torch.cuda.is_available() and devices > torch.cuda.device_count():
        raise GrassError(
            f"There are {torch.cuda.device_count()} GPUs here, not {devices}: give fewer --devices."
        )
    if hasattr(sys, "ps1"):
        raise GrassError(
            "Several devices cannot train from a notebook or an interactive Python: put the lines "
            "into a script, or use the command grass-gnn train."
        )
    needed = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
    if nodes > 1 and not all(name in os.environ for name in needed):
        raise GrassError(
            "Several machines need torchrun or SLURM, or the same command on each of them with "
            "MASTER_ADDR, MASTER_PORT and NODE_RANK set."
        )


def _start_followers(team: Team) -> list[subprocess.Popen[bytes]]:
    """Start the other processes of this machine, which is then as a launcher would leave it."""
    os.environ["MASTER_ADDR"] = team.environment.main_address
    os.environ["MASTER_PORT"] = str(team.environment.main_port)
    os.environ["LOCAL_RANK"] = "0"
    threads = os.environ.get("OMP_NUM_THREADS", max(1, torch.get_num_threads() // team.devices))
    start = "import sys; from grass_gnn.training.follow import main; sys.exit(main())"
    return [
        subprocess.Popen(
            [sys.executable, "-c", start, str(team.devices), str(team.nodes)],
            env={**os.environ, "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,  # its end tells them that the leader has ended
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the leader's, who tells them
        )
        for rank in range(1, team.devices)
    ]
