"""A real Grid Engine on one machine, for the tests."""
