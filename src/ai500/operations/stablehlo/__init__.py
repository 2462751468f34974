"""StableHLO text as a source of a count: `ai500 flops model.mlir`. Needs neither torch nor JAX."""

from ai500.operations.stablehlo.trace import trace_stablehlo

__all__ = ["trace_stablehlo"]
