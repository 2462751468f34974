"""Schedulers, launchers, the node agent and the barrier."""
