"""Learning rate by step: two half-cosines, from initial to peak and from peak to final."""

from __future__ import annotations

from math import cos, pi

from grass_gnn.config import TrainingConfig


def learning_rate(step: int, total: int, training: TrainingConfig) -> float:
    """Learning rate of a step (from 0) out of ``total``."""
    # The peak is reached after u = warmup × total − 1 steps; at least 1, for very short runs.
    peak_step = max(training.warmup * total - 1, 1.0)
    if step <= peak_step:
        return _half_cosine(
            training.initial_learning_rate, training.learning_rate, step / peak_step
        )
    progress = (step - peak_step) / max(total - 1 - peak_step, 1e-9)
    return _half_cosine(training.learning_rate, training.final_learning_rate, min(progress, 1.0))


def _half_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + cos(pi * progress)) / 2
