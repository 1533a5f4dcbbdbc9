"""Molecules for pretraining: drawn from lists of SMILES, described, and packed piece by piece."""
