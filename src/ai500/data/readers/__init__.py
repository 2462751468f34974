"""Readers of the sources that `ai500 data pack` takes: each gives fields, counts and samples."""
