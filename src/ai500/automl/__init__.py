"""AIPerf: every worker searches architectures by network morphism and trains them."""
