"""Where the time of a training step goes: kernels by category, communication by stage (V2 §7).

`capture.py` (torch) runs inside the workers, the rest reads what they left and needs no torch.
"""
