"""Learnable climate (issue of the Extreme Weather workload): fields and events, drawn exactly.

Only operations that IEEE 754 fixes to the last bit, each rounded by itself: + − × ÷ √, minimum,
maximum, comparison, floor. No division by a number (torch multiplies by its inverse on GPUs), no
fused operation, no exponential, no sum in an order that the device chooses. So a CPU and a GPU
make the same bytes.
"""
