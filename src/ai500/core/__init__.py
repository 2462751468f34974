"""What every other package stands on: errors, events, files, schema, units, randomness, plugins."""
