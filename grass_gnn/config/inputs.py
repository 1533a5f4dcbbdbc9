"""Settings of what comes in with a graph."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grass_gnn.config.section import MOST_CATEGORIES, WIDEST, Section

OGB_ATOM_SIZES = [119, 5, 12, 12, 10, 6, 6, 2, 2]
"""Categories of OGB's atom features, as ``ogb.utils.features.get_atom_feature_dims()`` has them."""
OGB_BOND_SIZES = [5, 6, 2]
"""Categories of OGB's bond features, as ``ogb.utils.features.get_bond_feature_dims()`` has them."""


class FeatureConfig(Section):
    """How the features of nodes or edges come in, and so how they are embedded."""

    kind: Literal["none", "index", "one-hot", "continuous", "ogb-atom", "ogb-bond"] = Field(
        "none",
        description="none: no features; index: columns of category numbers, a table each, summed; "
        "one-hot: rows of a bias-free linear map; continuous: batch norm, then a linear map; "
        "ogb-atom, ogb-bond: the columns of OGB's molecule features",
    )
    sizes: list[Annotated[int, Field(ge=1, le=MOST_CATEGORIES)]] = Field(
        default_factory=list,
        description="index: number of categories of each column; one-hot, continuous: [columns]",
    )

    @model_validator(mode="after")
    def _sizes_fit_kind(self) -> FeatureConfig:
        if self.kind in ("one-hot", "continuous") and len(self.sizes) != 1:
            raise ValueError(f"{self.kind} features take sizes = [number of columns]")
        if self.kind == "index" and not self.sizes:
            raise ValueError("index features take sizes = [number of categories of each column]")
        if self.kind in ("none", "ogb-atom", "ogb-bond") and self.sizes:
            raise ValueError(f"sizes are not needed for features of kind {self.kind!r}")
        return self

    @property
    def categories(self) -> list[int]:
        """Number of categories of each index column; one for graphs without features."""
        known = {"none": [1], "ogb-atom": OGB_ATOM_SIZES, "ogb-bond": OGB_BOND_SIZES}
        return known.get(self.kind, self.sizes)


class InputConfig(Section):
    """What comes in with a graph."""

    nodes: FeatureConfig = FeatureConfig()
    edges: FeatureConfig = FeatureConfig()
    descriptors: Annotated[int, Field(ge=0, le=WIDEST)] = Field(
        0, description="numbers known of each graph as a whole, given to the head; graph tasks only"
    )
