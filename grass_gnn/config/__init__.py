"""Every setting once: typed, defaulted, documented, and checked against the others.

The defaults are what suits a graph of one's own; ``presets/*.toml`` hold what the paper's ten
configurations change. ``docs/configuration.md`` is written from the descriptions here.
"""

from grass_gnn.config.grass import GRASSConfig, preset_names, preset_note, setting_names, suggest
from grass_gnn.config.sections import (
    METRICS,
    MOST_CATEGORIES,
    OGB_ATOM_SIZES,
    OGB_BOND_SIZES,
    TASK_KINDS,
    EncodingConfig,
    EvaluationConfig,
    FeatureConfig,
    InputConfig,
    ModelConfig,
    RewiringConfig,
    Section,
    TaskConfig,
    TaskKind,
    TrainingConfig,
)

__all__ = [
    "METRICS",
    "MOST_CATEGORIES",
    "OGB_ATOM_SIZES",
    "OGB_BOND_SIZES",
    "TASK_KINDS",
    "EncodingConfig",
    "EvaluationConfig",
    "FeatureConfig",
    "GRASSConfig",
    "InputConfig",
    "ModelConfig",
    "RewiringConfig",
    "Section",
    "TaskConfig",
    "TaskKind",
    "TrainingConfig",
    "preset_names",
    "preset_note",
    "setting_names",
    "suggest",
]
