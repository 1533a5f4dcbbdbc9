"""Settings of the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grass_gnn.config.section import DEEPEST, WIDEST, Probability, Section


class ModelConfig(Section):
    """The network itself."""

    architecture: Literal["grass", "gcn", "gin", "gat", "gatedgcn", "gps"] = Field(
        "grass", description="GRASS, or a baseline from PyG's layers in the same harness"
    )
    dim: Annotated[int, Field(ge=1, le=WIDEST)] = Field(32, description="width of nodes and edges")
    layers: Annotated[int, Field(ge=1, le=DEEPEST)] = Field(16, description="number of layers")
    attention: Literal["grass", "gat", "gatedgcn", "transformer"] = Field(
        "grass", description="GRASS attention, or a replacement for the ablations"
    )
    attention_dim: Annotated[int, Field(ge=1, le=WIDEST)] | None = Field(
        None, description="inner width of a replacement attention; the width if not given"
    )
    norm: Literal["batch", "layer", "layer-graph", "instance", "none"] = Field(
        "batch",
        description="layer-graph: the authors' layer norm, over rows and channels of a graph",
    )
    output_bias: bool = Field(False, description="output biases; only for norms that keep the mean")
    residual_scale: Annotated[float, Field(gt=0)] = Field(0.2, description="α")
    edge_removal: Probability = Field(0.1, description="probability of random edge removal")
    flip: bool = Field(True, description="exchange head and tail from layer to layer")
    pooling: Literal["sum", "mean"] = Field(
        "sum", description="how the nodes, edges and added edges of a graph come together"
    )
    head_hidden: Annotated[int, Field(ge=0, le=WIDEST)] = Field(
        192, description="hidden width of the GLU head; 0: one linear map"
    )
    checkpoint: Annotated[int, Field(ge=0)] = Field(
        0, description="keep activations only every so many layers, and recompute the rest (0: off)"
    )

    @model_validator(mode="after")
    def _bias_needs_mean(self) -> ModelConfig:
        if self.output_bias and self.norm == "batch":
            raise ValueError(
                "batch norm removes output biases: set output_bias only for other norms"
            )
        return self
