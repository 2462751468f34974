"""The system under test, described by itself (V2 §3.2, SPEC §5).

A node is described by the process that trains on it, before and after; what no file or command
tells is None and prints as "not found". Nothing here imports torch: a process that has it loaded
is asked for its versions.
"""
