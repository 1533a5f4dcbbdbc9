"""The processes that train one model together.

The process of rank 0 leads: it reads data, validates, evaluates and writes files. The others take
part in the steps. Processes are started by torchrun or SLURM, or by the leader itself.
"""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.hardware import find_device
from grass_gnn.ops import use_native
from grass_gnn.ops.processes import join_processes, leave_processes

if TYPE_CHECKING:  # Lightning is imported when a run starts: that takes seconds
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import ClusterEnvironment, Precision

PATIENCE = timedelta(days=7)  # of followers, while the leader prepares, validates or evaluates
# Of a step. A process that ends closes its connections, which is noticed at once; the timeout is
# for machines or networks that stop answering.
TIMEOUT = timedelta(minutes=30)
STARTING = timedelta(minutes=10)  # of the leader, while the others import torch
ENDING = 60  # seconds that followers have to end by themselves when a run is finished
_LEADER = "grass_gnn/leader"

logger = logging.getLogger(__name__)
T = TypeVar("T")


class LostProcess(GrassError):
    """Another process of the run has ended; the run can be resumed."""


class Team:
    """All processes of a run, seen from one of them.

    Args:
        environment: How this process was started; it knows the rank and the leader's address.
        devices: Processes per machine.
        nodes: Number of machines.
        started_here: Whether the first process of a machine starts the others.
        device: Device to train on, such as ``"cpu"`` or ``"cuda:1"``; by default a GPU if there is
            one. Several processes use one GPU each, numbered by their rank.
    """

    def __init__(
        self,
        environment: ClusterEnvironment | None = None,
        devices: int = 1,
        nodes: int = 1,
        started_here: bool = False,
        device: str | None = None,
    ) -> None:
        self.environment = environment
        self.devices, self.nodes, self.size = devices, nodes, devices * nodes
        self.rank = 0
        if environment is not None and self.size > 1:
            # Launchers set the rank; Lightning's own environment needs it from us.
            rank = environment.node_rank() * devices + environment.local_rank()
            environment.set_global_rank(rank)
            self.rank = environment.global_rank()
        self.started_here = started_here
        self.device = device
        self._waiting: Any = None  # process group for long waits

    @property
    def leads(self) -> bool:
        """Whether this process is the one that reads and writes files."""
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        """Whether each of several processes uses a GPU."""
        return torch.cuda.is_available() and (self.device or "cuda").startswith("cuda")

    def meet(self) -> None:
        """Connect all processes, unless they are connected already."""
        if self.size == 1 or self._waiting is not None:
            return
        assert self.environment is not None
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
        """Send the leader's value to all processes."""
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
        """Whether something is true in any process."""
        return here if self.size == 1 else bool(self.add_up(torch.tensor(int(here))))

    def fabric(self, config: GRASSConfig) -> Fabric:
        """Lightning Fabric for the device, the precision and the processes of a run.

        Raises:
            GrassError: There is no such device.
        """
        from lightning.fabric import Fabric
        from lightning.fabric.plugins.environments import LightningEnvironment
        from lightning.fabric.strategies import DDPStrategy

        plugins: list[Any] = [self.environment or LightningEnvironment()]
        if self.size == 1:
            device = find_device(self.device)
            kind, options = device.type, _single_device(device)
        else:
            kind = "cuda" if self.on_gpu else "cpu"
            options = {
                "accelerator": kind,
                "devices": self.devices,
                "num_nodes": self.nodes,
                "strategy": DDPStrategy(
                    find_unused_parameters=self._leaves_weights_unused(config),
                    **_own_buffers(),
                ),
            }
        if config.training.precision != "32-true":
            plugins.append(_mixed_precision(config.training.precision, kind))
        try:
            return Fabric(**options, plugins=plugins)
        except Exception as error:  # Lightning raises its own errors for missing devices
            raise GrassError(f"Cannot train on the device {self.device}: {error}") from error

    def _leaves_weights_unused(self, config: GRASSConfig) -> bool:
        """Whether some weights may get no gradient, which DDP has to be told."""
        model, exact = config.model, config.training.precision == "32-true"
        if model.architecture != "grass" or model.attention != "grass":
            return True
        # A node task does not use the edges of the last layer. Fused layers compute all gradients
        # at once, so there every weight has one.
        fused = exact and not self.on_gpu and use_native(torch.zeros(1), model.norm)
        return config.task.level == "node" and not fused

    @contextmanager
    def noticing_loss(self) -> Iterator[None]:
        """Turn the errors of a lost connection into a clear message.

        Raises:
            LostProcess: Another process has ended or cannot be reached.
        """
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_lost_connection(error):
                raise
            raise LostProcess(
                f"Process {self.rank} of {self.size} has lost the others: a process has ended or "
                "cannot be reached. Resume from the last checkpoint with --resume."
            ) from error

    @contextmanager
    def sharing_cores(self) -> Iterator[None]:
        """Use this process's share of the cores, if several processes train on this machine."""
        threads, setting = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
        share = max(1, threads // self.devices) if setting is None else threads
        if self.size > 1:  # Fabric sets the variable if it is missing, and would leave it set
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


ALONE = Team()


def _own_buffers() -> dict[str, Any]:
    """The argument of DDP for buffers of each process: synchronised norms agree, others need not.

    Torch 2.13 has given it another name, and warns of the old one.
    """
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {name: False}


def _single_device(device: torch.device) -> dict[str, Any]:
    """The arguments of Fabric for one device."""
    from lightning.fabric.accelerators import CPUAccelerator
    from lightning.fabric.strategies import SingleDeviceStrategy

    class OtherDevice(CPUAccelerator):
        """A device that Lightning has no name for, such as an XPU."""

        def setup_device(self, device: torch.device) -> None:
            torch.get_device_module(device).set_device(device)

    if device.type == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    if device.type == "cuda":
        return {"accelerator": "cuda", "devices": [device.index or 0]}
    return {"accelerator": OtherDevice(), "strategy": SingleDeviceStrategy(device)}


def _mixed_precision(precision: str, device: str) -> Precision:
    """Autocast for the forward pass, but inputs stay as they are.

    Fabric's own plugin would round features, encodings and targets before they are normalised.
    """
    from lightning.fabric.plugins import MixedPrecision

    class KeepInputs(MixedPrecision):
        def convert_input(self, data: Any) -> Any:
            return data

    if device == "cpu" and precision == "16-mixed":
        logger.warning("The CPU has no float16 autocast: training.precision is bf16-mixed here.")
        precision = "bf16-mixed"
    return KeepInputs(precision, device)  # type: ignore[arg-type]


def _is_lost_connection(error: RuntimeError) -> bool:
    words = ("gloo", "nccl", "connection")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


_team: Team | None = None  # the current team of this process


@contextmanager
def join(
    devices: int | str | None = None, nodes: int | None = None, device: str | None = None
) -> Iterator[Team]:
    """The team of this process; the other processes are started unless a launcher has done so.

    Args:
        devices: Processes per machine; ``"auto"``: one per GPU, or as many as torchrun or SLURM
            started; by default as many as torchrun started, or one.
        nodes: Number of machines.
        device: Device to train on.

    Raises:
        GrassError: That many processes cannot be started.
    """
    global _team
    if _team is not None:
        yield _team
        return
    team = find_team(devices, nodes, device)
    if not team.started_here:
        _team = team
        try:
            yield team
        finally:
            if team.size == 1:  # processes of a launcher connect once and stay a team
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
        for follower in followers:  # still running only if the leader failed
            follower.kill()
            follower.communicate()
        team.part()
        _team = None
        os.environ.clear()
        os.environ.update(before)


def find_team(
    devices: int | str | None = None, nodes: int | None = None, device: str | None = None
) -> Team:
    """The requested team, or the one that a launcher has started.

    Raises:
        GrassError: That many processes cannot be started, or there is no such device.
    """
    asked = _number(devices)
    find_device(device)
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
        return Team(environment, found, machines, device=device)
    if devices == "auto":
        asked = max(torch.cuda.device_count(), 1)
    asked, nodes = asked or 1, nodes or 1
    if asked * nodes == 1:
        return Team(device=device)
    from lightning.fabric.plugins.environments import LightningEnvironment

    environment = LightningEnvironment()
    started_here = not environment.creates_processes_externally
    if started_here:
        _check_can_start(asked, nodes)
    return Team(environment, asked, nodes, started_here, device)


def _number(devices: int | str | None) -> int | None:
    if devices is None or devices == "auto":
        return None
    try:
        return max(0, int(devices))
    except ValueError:
        raise GrassError(f"--devices takes a number or auto, not {devices!r}.") from None


# Name and environment of a launcher, processes per machine, and number of machines.
Launcher = tuple[str, "ClusterEnvironment", int, int]


def _torchrun() -> Launcher | None:
    """Checked first: torchrun may run within a SLURM job, once on each machine."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    from lightning.fabric.plugins.environments import TorchElasticEnvironment

    found, size = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return "torchrun", TorchElasticEnvironment(), found, size // found


def _slurm() -> Launcher | None:
    if int(os.environ.get("SLURM_NTASKS", 1)) == 1:
        return None
    from lightning.fabric.plugins.environments import SLURMEnvironment

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about srun, which our own processes do not need
        if not SLURMEnvironment.detect():
            return None
        try:
            environment = SLURMEnvironment(auto_requeue=False)
        except RuntimeError:
            raise GrassError(
                "With SLURM, set the number of processes with --ntasks-per-node."
            ) from None
    found, machines = int(os.environ["SLURM_NTASKS_PER_NODE"]), int(os.environ["SLURM_NNODES"])
    return "SLURM", environment, found, machines


def _check_can_start(devices: int, nodes: int) -> None:
    """Raise if that many processes cannot be started here."""
    if torch.cuda.is_available() and devices > torch.cuda.device_count():
        raise GrassError(
            f"There are {torch.cuda.device_count()} GPUs here, not {devices}: use fewer --devices."
        )
    if hasattr(sys, "ps1"):
        raise GrassError(
            "Training on several devices does not work from a notebook or an interactive session: "
            "put the code in a script, or use the command grass-gnn train."
        )
    needed = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
    if nodes > 1 and not all(name in os.environ for name in needed):
        raise GrassError(
            "Several machines need torchrun or SLURM, or the same command on each of them with "
            "MASTER_ADDR, MASTER_PORT and NODE_RANK set."
        )


def _start_followers(team: Team) -> list[subprocess.Popen[bytes]]:
    """Start the other processes of this machine, with the environment that a launcher would set."""
    assert team.environment is not None
    os.environ["MASTER_ADDR"] = team.environment.main_address
    os.environ["MASTER_PORT"] = str(team.environment.main_port)
    os.environ["LOCAL_RANK"] = "0"
    threads = os.environ.get("OMP_NUM_THREADS", max(1, torch.get_num_threads() // team.devices))
    start = "import sys; from grass_gnn.training.run import follower; sys.exit(follower())"
    return [
        subprocess.Popen(
            [sys.executable, "-c", start, str(team.devices), str(team.nodes), team.device or ""],
            env={**os.environ, "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,  # when it closes, they know that the leader has ended
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the leader, which tells the others
        )
        for rank in range(1, team.devices)
    ]
