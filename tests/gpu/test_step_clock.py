"""Step times by the device's events, while the host runs ahead."""

from __future__ import annotations

import time

import pytest
import torch

from ai500.train.step_clock import PENDING_EVENTS, step_clock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="NO GPU: step times of a device are untested"
    ),
]
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize("stream", ["default", "own"])
def test_device_times_add_up_while_the_host_waits_for_none(stream: str) -> None:
    """A step of ten products among steps of one; marks on the stream of the kernels."""
    matrix = torch.randn(4096, 4096, device=DEVICE)
    own = torch.cuda.Stream(DEVICE) if stream == "own" else torch.cuda.default_stream(DEVICE)
    products = [1, 1, 10, *[1] * (2 * PENDING_EVENTS)]
    with torch.cuda.stream(own):
        for _ in range(20):
            matrix @ matrix
        torch.cuda.synchronize()
        clock = step_clock(DEVICE)
        began = time.perf_counter()
        clock.mark()
        for count in products:
            for _ in range(count):
                matrix @ matrix
            clock.mark()
        launched = time.perf_counter() - began
        torch.cuda.synchronize()
        ended = time.perf_counter() - began
        times = clock.take()
    assert len(times) == len(products)
    assert sum(times) == pytest.approx(ended, rel=0.1)
    assert launched < 0.5 * ended  # the host waited for none of them
    assert times[2] == pytest.approx(10 * sorted(times)[len(times) // 2], rel=0.3)
