"""What is left of an accelerator's memory."""

from __future__ import annotations

import torch


def free_bytes(device: torch.device) -> int:
    """Of the device's own memory; a CPU's is nobody's to share out, and counts as none."""
    ask = getattr(torch.get_device_module(device), "mem_get_info", None)
    return 0 if ask is None or device.type == "cpu" else int(ask(device)[0])
