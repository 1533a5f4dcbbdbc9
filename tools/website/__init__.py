"""Hooks and checks of the documentation site."""
