"""One rank that trains a few steps in every communication mode and tells what was really sent.

What was sent is the kernel's own count of its TCP sockets (TCP_INFO), not ours.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ai500.parallel import collectives

BYTES_SENT_AT = 200
"""Offset of `tcpi_bytes_sent` in Linux's struct tcp_info; `tcpi_bytes_retrans` follows it."""
STEPS = 4
RANKS_PER_NODE = 2


def kernel_bytes_sent() -> int:
    """Return the bytes that all TCP sockets of this process sent; retransmissions once."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            descriptor = os.dup(int(entry.name))
        except OSError:
            continue
        with socket.socket(fileno=descriptor) as connection:
            if connection.type == socket.SOCK_STREAM and connection.family in (
                socket.AF_INET,
                socket.AF_INET6,
            ):
                info = connection.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_SENT_AT + 16
                )
                sent, sent_again = struct.unpack_from("QQ", info, BYTES_SENT_AT)
                total += sent - sent_again
    return total


def train(mode: str, precision: str) -> dict[str, object]:
    """Return the bytes per step by the collective's count and by the kernel's."""
    torch.manual_seed(1)
    made = collectives.make(mode, precision, group=None, local_size=RANKS_PER_NODE)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1024, 512), nn.Linear(512, 768)))
    model.register_comm_hook(None, made.ddp_hook)

    def step() -> None:
        model(torch.randn(4, 1024)).square().mean().backward()
        model.zero_grad()

    step()
    made.reset()  # DDP lays out its buckets anew after its first backward pass
    step()
    made.reset()
    before = kernel_bytes_sent()
    for _ in range(STEPS):
        step()
    sent = kernel_bytes_sent() - before
    counted = {name: value / STEPS for name, value in asdict(made.traffic).items()}
    return {"counted": counted, "kernel": sent / STEPS}


if __name__ == "__main__":
    store, report, *cases = sys.argv[1:]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    results = {case: train(*case.split(":")) for case in cases}
    Path(f"{report}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
