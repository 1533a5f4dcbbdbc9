"""Packed graphs: laid end to end in a few long tensors, cached, and loaded in batches."""
