"""The ground layer: errors, events, atomic files, schema, units, randomness, clocks, plugins."""

__version__ = "0.2.0"
