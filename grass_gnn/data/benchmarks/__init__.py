"""The datasets of the paper: raw files, generators, fingerprints and statistics."""
