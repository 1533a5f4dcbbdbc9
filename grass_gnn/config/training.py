"""Settings of training and evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grass_gnn.config.section import MOST_REWIRINGS, PositiveFloat, Probability, Section


class TrainingConfig(Section):
    """How the weights are found."""

    epochs: Annotated[int, Field(ge=1)] = Field(100, description="passes over the training set")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        200, description="graphs a step; at most the number of training graphs"
    )
    accumulate: Annotated[int, Field(ge=1)] = Field(
        1, description="steps whose gradients are added up"
    )
    optimizer: Literal["lion", "adamw"] = Field(
        "lion", description="Lion, as in the paper, or AdamW"
    )
    learning_rate: PositiveFloat = Field(1e-3, description="peak learning rate")
    initial_learning_rate: PositiveFloat = Field(1e-7, description="at the first step")
    final_learning_rate: PositiveFloat = Field(1e-7, description="at the last step")
    warmup: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="share of steps to the peak"
    )
    betas: tuple[Probability, Probability] = Field(
        (0.95, 0.98), description="the optimiser's two rates of averaging gradients"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.3, description="biases are not decayed")
    label_smoothing: Probability = Field(
        0.1, description="share of a class or label that is spread over all of them"
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        0,
        description="stop after so many validations without improvement and keep the best weights; "
        "0: train to the end and keep the last, as the paper does",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="type of numbers; the mixed ones are for GPUs"
    )
    compile: bool = Field(False, description="torch.compile the model (for GPUs)")
    synchronise: bool = Field(
        True, description="with several processes, normalise over the batch of all of them"
    )
    checkpoint_minutes: PositiveFloat = Field(5.0, description="minutes between checkpoints")
    skipped_steps: Annotated[int, Field(ge=1)] = Field(
        10,
        description="steps in a row whose loss or gradients are not finite that end training; "
        "each of them is left out",
    )
    sampling: Literal["none", "partition", "neighbour"] = Field(
        "none",
        description="steps on parts of one large graph whose nodes have targets: a random part of "
        "its nodes, or training nodes with neighbours drawn around them",
    )
    parts: Annotated[int, Field(ge=1)] = Field(
        16, description="sampling: steps an epoch, among which nodes (or training nodes) are dealt"
    )
    fan_outs: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = Field(
        [10, 5], description="sampling by neighbours: in-edges followed from a node, hop by hop"
    )


class EvaluationConfig(Section):
    """The paper's final evaluation."""

    statistics_passes: Annotated[int, Field(ge=0, le=MOST_REWIRINGS)] = Field(
        10, description="passes over the training set that collect the norm statistics"
    )
    rewirings: Annotated[int, Field(ge=1, le=MOST_REWIRINGS)] = Field(
        10, description="evaluations of each graph"
    )
    every: Annotated[int, Field(ge=1)] = Field(1, description="epochs between validations")
    streamed_above: Annotated[int, Field(ge=0)] = Field(
        4_000_000,
        description="edges, added ones included, from which a single graph whose nodes have "
        "targets is evaluated in blocks of edges, their states in a temporary file",
    )
    block_edges: Annotated[int, Field(ge=1)] = Field(
        1 << 15, description="edges of a block, which bound the memory of such an evaluation"
    )
