"""Batch norm, ReLU, skip and pooling around convolutions in the fewest passes over memory.

Every activation is a matrix of rows (image, height, width) by channels, which is channels-last
memory. `reference` computes with torch on any device in any precision, `fused` in Triton on a GPU.
Both have the same methods; a test compares them.
"""
