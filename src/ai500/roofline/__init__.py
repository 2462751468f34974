"""The HPC-AI roofline (V2 §6): measured ceilings, where a run stands, what bounds it, what helps.

model      the equations, pure                 v2        what V2 recorded
ceilings   GEMM, CONV and memory, timed        theory    peaks from the hardware's own numbers
links      α–β fits, pure                      link_worker, link_jobs   links, timed by ranks
measure    all of that, into a record          placing, advice          a run against a record
"""
