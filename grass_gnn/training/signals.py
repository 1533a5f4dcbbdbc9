"""Ctrl-C and SIGTERM stop a run between two steps, so that it can be resumed.

Schedulers of clusters send SIGTERM some seconds before they kill a job. With several processes,
all of them have to stop after the same batch, because each waits for the gradients of the others.
"""

from __future__ import annotations

import signal
from typing import Any, Self

from grass_gnn.errors import GrassError
from grass_gnn.training.distributed import Team


class Interrupted(GrassError):
    """The run was stopped by a signal; it can be resumed."""


class StopOnSignal:
    """Ctrl-C and SIGTERM stop training after the current step, so that a checkpoint is consistent.

    A second signal stops at once.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        except ValueError:  # only the main thread receives signals
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number

    def requested(self, team: Team) -> bool:
        """Whether any process was asked to stop; all of them stop after the same batch."""
        if team.any(self.received is not None):
            self.received = self.received or signal.SIGTERM
            return True
        return False
