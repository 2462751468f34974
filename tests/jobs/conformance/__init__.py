"""Conformance tests of schedulers: docs/plugins.md tells how a site runs them on its own."""
