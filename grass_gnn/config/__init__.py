"""All settings: typed, documented, with defaults, and checked against each other.

The defaults are for your own graphs; ``presets/*.toml`` contain only the settings that the paper's
configurations change. ``docs/configuration.md`` is generated from the descriptions here.
"""

from grass_gnn.config.names import (
    check_names,
    preset_names,
    preset_note,
    suggest,
    with_fields,
)
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
from grass_gnn.config.settings import GRASSConfig, setting_names

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
    "check_names",
    "preset_names",
    "preset_note",
    "setting_names",
    "suggest",
    "with_fields",
]
