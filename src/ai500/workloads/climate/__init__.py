"""Learnable climate: fields and events, the same bytes on every device.

It uses only operations that IEEE 754 defines to the last bit, each rounded separately: + − × ÷ √,
minimum, maximum, comparison, floor. It avoids division by a constant (torch multiplies by the
inverse on GPUs), fused operations, exponentials, and sums in an order that the device chooses.
"""
