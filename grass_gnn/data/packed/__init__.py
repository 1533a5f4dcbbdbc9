"""Graphs laid end to end in a few long tensors: built once, cached, loaded in batches."""
