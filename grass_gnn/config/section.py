"""What all sections share: immutable, no unknown names, and bounds that no model exceeds."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]

# Beyond these no model is meant: a configuration of a stranger's shall not ask for all memory.
MOST_CATEGORIES = 10**7
"""Categories of a column of features."""
MOST_OUTPUTS, WIDEST, DEEPEST, MOST_STEPS, MOST_REWIRINGS = 10**6, 2**16, 2**10, 2**12, 10**6


class Section(BaseModel):
    """A part of the configuration: immutable, and no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
