"""How a process comes to be one of several: by torchrun, by SLURM, or because we start the others.

Processes that are started here need nothing but the leader, who tells them what to do. So several
devices work from the command line and from Python alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.plugins.environments import (
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)

from grass_gnn.errors import GrassError
from grass_gnn.training.team import Team

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
