"""Settings of what is computed from the edges of a graph: its encoding and its rewiring."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grass_gnn.config.section import MOST_STEPS, Section


class EncodingConfig(Section):
    """The structural encoding of nodes and pairs of nodes."""

    kind: Literal["rrwp", "decomposed-rrwp", "laplacian", "none"] = Field(
        "rrwp",
        description="probabilities of random walks; the same from leading eigenpairs, for large "
        "graphs; eigenvectors of the Laplacian",
    )
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = Field(
        16, description="k: random-walk steps, or Laplacian eigenvectors"
    )
    eigenpairs: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        None, description="m of the decomposed RRWP; as many as steps if not given"
    )
    directed: Literal["error", "symmetrize", "alternating"] = Field(
        "symmetrize", description="the decomposed RRWP of directed graphs"
    )
    degrees: Literal["out-in", "out-out", "none"] = Field(
        "out-in", description="degrees given to nodes; out-out is what the authors' code feeds"
    )

    @property
    def num_eigenpairs(self) -> int:
        """Number of eigenpairs m of the decomposed RRWP."""
        return self.eigenpairs or self.steps

    @property
    def node_columns(self) -> int:
        """Columns of the node encoding, degrees included."""
        columns = 0 if self.kind == "none" else self.steps
        if self.kind == "decomposed-rrwp" and self.directed == "alternating":
            columns = 2 * self.steps
        return columns + (0 if self.degrees == "none" else 2)

    @property
    def edge_columns(self) -> int:
        """Columns of the pair encoding: P_ij ‖ P_ji, v_i ‖ v_j, or the symmetric D-RRWP."""
        if self.kind == "none":
            return 0
        if self.kind == "decomposed-rrwp":
            return 2 * self.steps if self.directed == "alternating" else self.steps
        return 2 * self.steps


class RewiringConfig(Section):
    """The random graph that is superimposed on every input graph."""

    kind: Literal["regular", "non-regular", "complete", "none"] = Field(
        "regular",
        description="a random regular graph; as many edges with both ends at random; all pairs",
    )
    degree: Annotated[int, Field(ge=0, le=MOST_STEPS)] = Field(
        6, description="r: permutations per graph, each drawn pair added in both directions"
    )
    variant: Literal["directed", "undirected", "half", "simple"] = Field(
        "directed",
        description="removal of repeats: same-direction, as published runs did; undirected, as the "
        "pseudocode; half: r/2 permutations, as the main text; simple: redraw until simple",
    )
    when: Literal["always", "once", "graph"] = Field(
        "always",
        description="draw anew whenever a graph is read; once per graph and run; "
        "or from a hash of the graph itself",
    )

    @model_validator(mode="after")
    def _half_needs_even(self) -> RewiringConfig:
        if self.variant == "half" and self.degree % 2:
            raise ValueError(f"the r/2 variant needs an even degree, not {self.degree}")
        return self

    def added_edges(self, num_nodes: float, num_pairs: float) -> float:
        """Nominal number of added edges of a graph, which the third pool is divided by."""
        if self.kind == "none":
            return 0.0
        if self.kind == "complete":
            return num_pairs
        return (1 if self.variant == "half" else 2) * self.degree * num_nodes
