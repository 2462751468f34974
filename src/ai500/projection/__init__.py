"""Projection: score, time and bounds of an ensemble on a system that can't be measured.

platform     a system in TOML: node, topology, file system; shipped ones in `systems/`
application  what a member does, read from a run: steps, gradients, evaluation, staging
activations  what the ranks of a divided model exchange, from such a run's record
traffic      messages between ranks of every communication mode, folded to distinct rounds
simulator    SimGrid, in a process of its own: seconds of each round on the platform
model        step, member and ensemble from these times; stragglers and failures
answers      sweep, best (M, P_degree), doubled parts; `page` shows them
"""
