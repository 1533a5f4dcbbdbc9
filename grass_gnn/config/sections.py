"""The sections of the configuration, with the description and the default of each setting.

The descriptions become ``docs/configuration.md``.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]

# Upper bounds, so that an untrusted configuration cannot exhaust the memory.
MOST_CATEGORIES = 10**7
"""Maximum number of categories of a feature column."""
MOST_OUTPUTS, WIDEST, DEEPEST, MOST_STEPS, MOST_REWIRINGS = 10**6, 2**16, 2**10, 2**12, 10**6


class Section(BaseModel):
    """A part of the configuration: immutable, and unknown names are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


OGB_ATOM_SIZES = [119, 5, 12, 12, 10, 6, 6, 2, 2]
"""Categories of OGB's atom features: ``ogb.utils.features.get_atom_feature_dims()``."""
OGB_BOND_SIZES = [5, 6, 2]
"""Categories of OGB's bond features: ``ogb.utils.features.get_bond_feature_dims()``."""


class FeatureConfig(Section):
    """Type of the node or edge features, which decides how they are embedded."""

    kind: Literal["none", "index", "one-hot", "continuous", "ogb-atom", "ogb-bond"] = Field(
        "none",
        description="Feature type. none: no features; index: columns of category indices, whose "
        "embeddings are summed; one-hot: a linear layer without bias; continuous: batch norm, "
        "then a linear layer; ogb-atom, ogb-bond: OGB's molecule features.",
    )
    sizes: list[Annotated[int, Field(ge=1, le=MOST_CATEGORIES)]] = Field(
        default_factory=list,
        description="Number of categories of each column (index), or number of columns as a "
        "list of one (one-hot, continuous).",
    )

    @model_validator(mode="after")
    def _sizes_fit_kind(self) -> FeatureConfig:
        if self.is_float and len(self.sizes) != 1:
            raise ValueError(f"{self.kind} features need sizes = [number of columns]")
        if self.kind == "index" and not self.sizes:
            raise ValueError("index features need sizes = [number of categories of each column]")
        if self.kind in ("none", "ogb-atom", "ogb-bond") and self.sizes:
            raise ValueError(f"features of kind {self.kind!r} have no sizes")
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
    """Features of the input graphs."""

    nodes: FeatureConfig = FeatureConfig()
    edges: FeatureConfig = FeatureConfig()
    descriptors: Annotated[int, Field(ge=0, le=WIDEST)] = Field(
        0,
        description="Number of graph-level descriptors that are concatenated to the pooled "
        "representation (graph tasks only).",
    )


class EncodingConfig(Section):
    """Structural encodings of nodes and node pairs."""

    kind: Literal["rrwp", "decomposed-rrwp", "laplacian", "none"] = Field(
        "rrwp",
        description="rrwp: random-walk probabilities; decomposed-rrwp: the same from the leading "
        "eigenpairs, for large graphs; laplacian: Laplacian eigenvectors.",
    )
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = Field(
        16, description="k: number of random-walk steps or of Laplacian eigenvectors."
    )
    eigenpairs: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        None, description="m: number of eigenpairs of the decomposed RRWP (default: steps)."
    )
    directed: Literal["error", "symmetrize", "alternating"] = Field(
        "symmetrize",
        description="Decomposed RRWP of directed graphs. error: reject them; symmetrize: ignore "
        "directions; alternating: walks with forward and backward steps in turn.",
    )
    degrees: Literal["out-in", "out-out", "none"] = Field(
        "out-in",
        description="Node degrees in the node encoding. out-out repeats the out-degree, as the "
        "authors' code does.",
    )

    @property
    def num_eigenpairs(self) -> int:
        """Number of eigenpairs m of the decomposed RRWP."""
        return self.eigenpairs or self.steps


class RewiringConfig(Section):
    """The random graph that is superimposed on each input graph."""

    kind: Literal["regular", "non-regular", "complete", "none"] = Field(
        "regular",
        description="regular: a random regular graph; non-regular: as many edges with random "
        "endpoints; complete: all pairs of nodes; none: no added edges.",
    )
    degree: Annotated[int, Field(ge=0, le=MOST_STEPS)] = Field(
        6,
        description="r: number of random permutations per graph. Each pair is added in both "
        "directions.",
    )
    variant: Literal["directed", "undirected", "half", "simple"] = Field(
        "directed",
        description="How duplicate edges are removed. directed: duplicates in the same direction, "
        "as in the published runs; undirected: in either direction, as in the paper's "
        "pseudocode; half: r/2 permutations, as in the paper's text; simple: redraw until the "
        "graph is simple.",
    )
    when: Literal["always", "once", "graph"] = Field(
        "always",
        description="always: a new random graph each time a graph is loaded; once: one per graph "
        "and run; graph: one that depends only on a hash of the graph.",
    )

    @model_validator(mode="after")
    def _half_needs_even(self) -> RewiringConfig:
        if self.variant == "half" and self.degree % 2:
            raise ValueError(f"the half variant needs an even degree, not {self.degree}")
        return self

    def added_edges(self, num_nodes: float, num_pairs: float) -> float:
        """Nominal number of edges that are added to a graph."""
        if self.kind == "none":
            return 0.0
        if self.kind == "complete":
            return num_pairs
        return (1 if self.variant == "half" else 2) * self.degree * num_nodes


TaskKind = Literal["regression", "binary", "classification", "multilabel"]
"""Names of the kinds of tasks."""


class KindRules(NamedTuple):
    """The settings that a kind of task allows. The first loss and metric are its defaults."""

    losses: tuple[str, ...]
    metrics: tuple[str, ...]
    min_outputs: int = 1
    max_outputs: int = MOST_OUTPUTS
    may_be_missing: bool = True  # whether a graph may lack some of its targets


TASK_KINDS: dict[str, KindRules] = {
    "regression": KindRules(("l1", "mse", "l1+tail"), ("mae", "rmse", "r2")),
    "binary": KindRules(("bce", "weighted-bce"), ("auc", "ap", "accuracy", "f1"), max_outputs=1),
    "classification": KindRules(
        ("cross-entropy", "weighted-cross-entropy"),
        ("accuracy", "class-accuracy", "f1"),
        min_outputs=2,
        may_be_missing=False,
    ),
    "multilabel": KindRules(("bce", "weighted-bce"), ("ap", "auc", "accuracy", "f1")),
}
"""What each kind of task allows. What it computes is in :mod:`grass_gnn.tasks`."""

METRICS = {kind: rules.metrics for kind, rules in TASK_KINDS.items()}
"""Metrics of each kind of task."""


class TaskConfig(Section):
    """Targets, loss and metric."""

    level: Literal["graph", "node", "edge"] = Field(
        "graph", description="What the targets belong to."
    )
    kind: TaskKind = Field(
        "regression",
        description="regression: numbers; binary: one yes/no label; classification: one of "
        "several classes; multilabel: several yes/no labels.",
    )
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)] = Field(
        1, description="Number of targets, classes or labels (binary: 1)."
    )
    loss: Literal[
        "l1", "mse", "l1+tail", "cross-entropy", "weighted-cross-entropy", "bce", "weighted-bce"
    ] = Field(
        "l1",
        description="Training loss; must match the kind of task. l1+tail: |u| of the error u in "
        "standard deviations, plus (|u| − 1)² where |u| is between one and five, which gives rare "
        "structures more weight. The weighted ones give rare classes more weight, which makes "
        "their predicted probabilities too high.",
    )
    metric: Literal["mae", "rmse", "r2", "accuracy", "class-accuracy", "f1", "ap", "auc"] = Field(
        "mae",
        description="Main metric; must match the kind of task. class-accuracy is the mean of the "
        "per-class accuracies.",
    )
    target_scale: Annotated[list[PositiveFloat], Field(min_length=1)] = Field(
        [1.0], description="prediction = scale × output + shift. One value, or one per output."
    )
    target_shift: Annotated[list[float], Field(min_length=1)] = Field(
        [0.0], description="See target_scale. One value, or one per output."
    )
    missing: bool = Field(
        False,
        description="Allow missing targets (NaN), which are ignored in the loss and metrics.",
    )

    @model_validator(mode="after")
    def _fits_kind(self) -> TaskConfig:
        kind, rules = self.kind, TASK_KINDS[self.kind]
        if self.loss not in rules.losses:
            raise ValueError(f"the loss of {kind} must be one of {', '.join(rules.losses)}")
        if self.metric not in rules.metrics:
            raise ValueError(f"the metric of {kind} must be one of {', '.join(rules.metrics)}")
        if self.outputs < rules.min_outputs:
            raise ValueError(f"{kind} needs at least {rules.min_outputs} outputs")
        if self.outputs > rules.max_outputs:
            raise ValueError(f"{kind} has at most {rules.max_outputs} output")
        if self.missing and not rules.may_be_missing:
            raise ValueError(f"{kind} does not support missing targets: remove these graphs")
        for name in ("target_scale", "target_shift"):
            if len(getattr(self, name)) not in (1, self.outputs):
                raise ValueError(f"{name} must have one value, or one per output")
        return self


class ModelConfig(Section):
    """The network."""

    architecture: Literal["grass", "gcn", "gin", "gat", "gatedgcn", "gps"] = Field(
        "grass", description="GRASS, or a baseline made of PyG layers."
    )
    dim: Annotated[int, Field(ge=1, le=WIDEST)] = Field(
        32, description="Hidden dimension of nodes and edges."
    )
    layers: Annotated[int, Field(ge=1, le=DEEPEST)] = Field(16, description="Number of layers.")
    attention: Literal["grass", "gat", "gatedgcn", "transformer"] = Field(
        "grass", description="GRASS attention, or a replacement for ablations."
    )
    attention_dim: Annotated[int, Field(ge=1, le=WIDEST)] | None = Field(
        None, description="Inner dimension of a replacement attention (default: dim)."
    )
    norm: Literal["batch", "layer", "layer-graph", "instance", "none"] = Field(
        "batch",
        description="Normalisation. layer-graph normalises over all rows and channels of a graph, "
        "as the authors' layer norm does.",
    )
    output_bias: bool = Field(
        False, description="Biases of the output layers; not with batch norm, which removes them."
    )
    input_limit: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="Clip normalised features, encodings and descriptors to this many standard "
        "deviations, so that values that are rare in training cannot dominate a prediction. "
        "0: no limit, as in the paper.",
    )
    residual_scale: Annotated[float, Field(gt=0)] = Field(
        0.2, description="α: scale of the residual branch."
    )
    edge_removal: Probability = Field(0.1, description="Probability of random edge removal.")
    flip: bool = Field(True, description="Reverse all edges from layer to layer.")
    pooling: Literal["sum", "mean"] = Field(
        "sum", description="Pooling of nodes, edges and added edges for graph tasks."
    )
    head_hidden: Annotated[int, Field(ge=0, le=WIDEST)] = Field(
        192, description="Hidden dimension of the GLU head; 0: a linear head."
    )
    checkpoint: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Activation checkpointing: store activations only every N layers and "
        "recompute the others (0: off).",
    )

    @model_validator(mode="after")
    def _bias_needs_mean(self) -> ModelConfig:
        if self.output_bias and self.norm == "batch":
            raise ValueError(
                "batch norm removes output biases: set output_bias only for other norms"
            )
        return self


class TrainingConfig(Section):
    """Optimiser, schedule and training loop."""

    epochs: Annotated[int, Field(ge=1)] = Field(100, description="Number of epochs.")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        200, description="Graphs per batch; at most the number of training graphs."
    )
    accumulate: Annotated[int, Field(ge=1)] = Field(
        1, description="Number of batches whose gradients are accumulated."
    )
    optimizer: Literal["lion", "adamw", "muon"] = Field(
        "lion",
        description="Optimiser; the paper uses Lion. muon: Muon for the matrices of the layers, "
        "Lion for the rest.",
    )
    learning_rate: PositiveFloat = Field(1e-3, description="Peak learning rate.")
    initial_learning_rate: PositiveFloat = Field(
        1e-7, description="Learning rate of the first step."
    )
    final_learning_rate: PositiveFloat = Field(1e-7, description="Learning rate of the last step.")
    warmup: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Fraction of the steps before the peak learning rate is reached."
    )
    hold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="Fraction of the steps at the peak learning rate, between warm-up and "
        "decay. 0: decay right after the warm-up, as in the paper.",
    )
    betas: tuple[Probability, Probability] = Field(
        (0.95, 0.98), description="β₁ and β₂ of the optimiser."
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.3, description="Weight decay; biases are not decayed."
    )
    label_smoothing: Probability = Field(
        0.1, description="Label smoothing of classification, binary and multilabel tasks."
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Early stopping: stop after this many validations without improvement and "
        "keep the best weights. 0: train to the end and keep the last weights, as the paper does.",
    )
    average: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Decay of a moving average of the weights (such as 0.999), which is validated "
        "and kept instead of the last weights. 0: no average, as in the paper.",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true",
        description="Floating-point precision; mixed precision is for GPUs and for CPUs "
        "with AVX512_BF16.",
    )
    compile: bool = Field(False, description="Compile the layers with torch.compile (for GPUs).")
    synchronise: bool = Field(
        True,
        description="With several processes, compute batch norm statistics over all of them.",
    )
    kekule_forms: bool = Field(
        False,
        description="Data augmentation for molecules without aromatic bonds (--features zinc, ZINC "
        "benchmark): a random Kekulé form of each molecule in each epoch.",
    )
    checkpoint_minutes: PositiveFloat = Field(5.0, description="Minutes between checkpoints.")
    skipped_steps: Annotated[int, Field(ge=1)] = Field(
        10,
        description="Steps with a loss or gradients that are not finite are skipped; training "
        "stops after this many in a row.",
    )
    sampling: Literal["none", "partition", "neighbour"] = Field(
        "none",
        description="Train on parts of one large graph (node tasks). partition: a random part of "
        "the nodes; neighbour: training nodes with sampled neighbours.",
    )
    parts: Annotated[int, Field(ge=1)] = Field(
        16,
        description="With sampling: number of steps per epoch, among which the (training) nodes "
        "are divided.",
    )
    fan_outs: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = Field(
        [10, 5], description="With neighbour sampling: in-edges sampled per node, for each hop."
    )


class EvaluationConfig(Section):
    """The evaluation protocol of the paper."""

    statistics_passes: Annotated[int, Field(ge=0, le=MOST_REWIRINGS)] = Field(
        10, description="Passes over the training set to collect the batch norm statistics."
    )
    rewirings: Annotated[int, Field(ge=1, le=MOST_REWIRINGS)] = Field(
        10, description="Number of random rewirings that each graph is evaluated with."
    )
    every: Annotated[int, Field(ge=1)] = Field(
        1,
        description="Epochs between validations. Each validation first collects norm statistics "
        "from at least 2,000 training graphs (or all), which takes at most as long as the forward "
        "pass of an epoch.",
    )
    streamed_above: Annotated[int, Field(ge=0)] = Field(
        4_000_000,
        description="A single graph with more edges than this (including added ones) is "
        "evaluated in blocks of edges, which are kept in a temporary file (node tasks).",
    )
    block_edges: Annotated[int, Field(ge=1)] = Field(
        1 << 15, description="Edges per block of such an evaluation; bounds its memory."
    )
