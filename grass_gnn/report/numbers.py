"""Numbers as people write them."""

from __future__ import annotations

import math

from grass_gnn.experiments.measured import Measured
from grass_gnn.experiments.published import Published

EMPTY = "–"


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, but whole where it is large.

    Example:
        >>> number(0.047012), number(83.75), number(1234.5), number(1.37e-7, 3)
        ('0.0470', '83.75', '1,234', '1.37e-7')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3:
        mantissa, _, exponent = f"{value:.{max(digits - 2, 1)}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = digits if size < 0 else max(digits - 1 - size, 0)
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """A time as the paper writes it."""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 1 else f"{seconds:.2g}s"
    return f"{int(seconds // 60)}m {int(seconds % 60)}s"


def measured_text(measured: Measured | None, measure: str = "score") -> str:
    """Mean ± standard deviation, and the number of seeds."""
    if measured is None:
        return EMPTY
    if measure == "variance" and measured.mean == 0:
        return "Deterministic"
    if measure == "preparation_seconds":
        return duration(measured.mean)
    if measure == "epoch_seconds":
        return f"{measured.mean:.2f} ± {measured.spread or 0:.2f}"
    if measure == "peak_memory":
        return f"{measured.mean:,.0f}"
    text = number(measured.mean)
    if measured.spread is not None:
        decimals = len(text.partition(".")[2])
        small = "e" in text
        text += f" ± {number(measured.spread, 3) if small else f'{measured.spread:.{decimals}f}'}"
    return f"{text} (n = {measured.runs})"


def published_text(published: Published) -> str:
    """A printed number; a dash of the paper is one here."""
    return EMPTY if published.text == "-" else published.text
