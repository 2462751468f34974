"""The HPC-AI roofline (V2 §6): measured ceilings, the position of a run under them, and advice.

model      the equations, pure
measure    measures a machine into a record      place_run   places a run under a record
advice     gains that the model allows           traffic     bytes that a run sends
links      α–β fits, pure                        peaks       theoretical peaks of the hardware
kernel_worker, kernel_benchmarks                 kernels and memory, timed with torch
link_worker, link_jobs                           links, timed by several ranks
"""
