"""The profile of a training step: kernels by category, communication by stage (V2 §7).

`train.profiler` captures traces inside the workers; this package reads them without torch.
"""
