"""Batch norm, ReLU, skip and pooling around convolutions in the fewest passes over memory.

Everything is a matrix of rows (image, height, width) by channels: what channels-last memory is.
`plain` computes with torch on any device and in any precision; `fused` in Triton on a GPU. Both
have the same methods, and a test holds them equal.
"""
