"""Baselines from PyG's own layers, in the same harness as GRASS."""

from grass_gnn.baselines.model import Baseline

__all__ = ["Baseline"]
