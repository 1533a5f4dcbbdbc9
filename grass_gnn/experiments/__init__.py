"""Experiments: GRASS and baselines under equal conditions."""
