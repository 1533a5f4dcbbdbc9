"""Inputs as strangers and accidents make them, by the hundred thousand: ``make fuzz``."""
