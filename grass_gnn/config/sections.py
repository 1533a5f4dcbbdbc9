"""What all sections share: immutable, no unknown names, and bounds that no model exceeds."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]

# Beyond these no model is meant: a configuration of a stranger's shall not ask for all memory.
MOST_CATEGORIES = 10**7
"""Categories of a column of features."""
MOST_OUTPUTS, WIDEST, DEEPEST, MOST_STEPS, MOST_REWIRINGS = 10**6, 2**16, 2**10, 2**12, 10**6


class Section(BaseModel):
    """A part of the configuration: immutable, and no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
        if self.is_float and len(self.sizes) != 1:
            raise ValueError(f"{self.kind} features take sizes = [number of columns]")
        if self.kind == "index" and not self.sizes:
            raise ValueError("index features take sizes = [number of categories of each column]")
        if self.kind in ("none", "ogb-atom", "ogb-bond") and self.sizes:
            raise ValueError(f"sizes are not needed for features of kind {self.kind!r}")
        return self

    @property
    def is_float(self) -> bool:
        """Whether the features are columns of floats, rather than category numbers."""
        return self.kind in ("one-hot", "continuous")

    @property
    def is_one_hot(self) -> bool:
        """Whether each row has a single 1."""
        return self.kind == "one-hot"

    @property
    def categories(self) -> list[int]:
        """Number of categories of each index column; one for graphs without features."""
        known = {"none": [1], "ogb-atom": OGB_ATOM_SIZES, "ogb-bond": OGB_BOND_SIZES}
        return known.get(self.kind, self.sizes)

    @property
    def num_columns(self) -> int:
        """Number of columns; 0 for graphs without features."""
        if self.kind == "none":
            return 0
        return self.sizes[0] if self.is_float else len(self.categories)

    def accepts(self, given: FeatureConfig) -> bool:
        """Whether an embedding of these features can embed others as well."""
        if not self.num_columns or not given.num_columns:
            return self.num_columns == given.num_columns
        if self.is_float:
            alike = given.is_one_hot or given.kind == self.kind
            return alike and self.sizes == given.sizes
        if given.is_float:
            return False
        return len(self.categories) == len(given.categories) and all(
            here <= there for here, there in zip(given.categories, self.categories, strict=True)
        )


class InputConfig(Section):
    """What comes in with a graph."""

    nodes: FeatureConfig = FeatureConfig()
    edges: FeatureConfig = FeatureConfig()
    descriptors: Annotated[int, Field(ge=0, le=WIDEST)] = Field(
        0, description="numbers known of each graph as a whole, given to the head; graph tasks only"
    )


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


TaskKind = Literal["regression", "binary", "classification", "multilabel"]


class KindRules(NamedTuple):
    """The settings that a kind of task allows. The first loss and metric are its defaults."""

    losses: tuple[str, ...]
    metrics: tuple[str, ...]
    min_outputs: int = 1
    max_outputs: int = MOST_OUTPUTS
    may_be_missing: bool = True  # whether a graph may lack some of its targets


TASK_KINDS: dict[str, KindRules] = {
    "regression": KindRules(("l1", "mse"), ("mae", "rmse", "r2")),
    "binary": KindRules(("bce",), ("auc", "ap", "accuracy", "f1"), max_outputs=1),
    "classification": KindRules(
        ("cross-entropy", "weighted-cross-entropy"),
        ("accuracy", "class-accuracy", "f1"),
        min_outputs=2,
        may_be_missing=False,
    ),
    "multilabel": KindRules(("bce",), ("ap", "auc", "accuracy", "f1")),
}
"""What each kind of task allows. What it computes is in :mod:`grass_gnn.tasks`."""

METRICS = {kind: rules.metrics for kind, rules in TASK_KINDS.items()}
"""Metrics of each kind of task."""


class TaskConfig(Section):
    """What is predicted, how it is scored, and what is minimised."""

    level: Literal["graph", "node", "edge"] = Field("graph", description="what has a target")
    kind: TaskKind = Field(
        "regression", description="numbers, one yes or no, one of several classes, or labels"
    )
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)] = Field(
        1, description="number of targets, classes or labels (binary: 1)"
    )
    loss: Literal["l1", "mse", "cross-entropy", "weighted-cross-entropy", "bce"] = Field(
        "l1", description="what is minimised; it has to fit the kind of task"
    )
    metric: Literal["mae", "rmse", "r2", "accuracy", "class-accuracy", "f1", "ap", "auc"] = Field(
        "mae", description="what models are compared by; class-accuracy is averaged over classes"
    )
    target_scale: Annotated[list[PositiveFloat], Field(min_length=1)] = Field(
        [1.0], description="prediction = scale × output + shift; one value, or one per output"
    )
    target_shift: Annotated[list[float], Field(min_length=1)] = Field(
        [0.0], description="one value, or one per output"
    )
    missing: bool = Field(
        False, description="whether targets may be missing (NaN): they count in no loss or metric"
    )

    @model_validator(mode="after")
    def _fits_kind(self) -> TaskConfig:
        kind, rules = self.kind, TASK_KINDS[self.kind]
        if self.loss not in rules.losses:
            raise ValueError(f"the loss of {kind} is one of {', '.join(rules.losses)}")
        if self.metric not in rules.metrics:
            raise ValueError(f"the metric of {kind} is one of {', '.join(rules.metrics)}")
        if self.outputs < rules.min_outputs:
            raise ValueError(f"{kind} needs at least {rules.min_outputs} outputs")
        if self.outputs > rules.max_outputs:
            raise ValueError(f"{kind} takes at most {rules.max_outputs} output")
        if self.missing and not rules.may_be_missing:
            raise ValueError(f"{kind} does not support missing targets: leave these graphs out")
        for name in ("target_scale", "target_shift"):
            if len(getattr(self, name)) not in (1, self.outputs):
                raise ValueError(f"{name} has one value, or one for each output")
        return self


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
