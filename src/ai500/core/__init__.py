"""What every other package stands on: errors, events, files, schema, units, randomness, plugins."""

__version__ = "0.1.0"
