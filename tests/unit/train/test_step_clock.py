"""Times of single steps by the host's clock; tests/gpu has those of a device."""

from __future__ import annotations

import time

import pytest
import torch

from ai500.train.step_clock import step_clock


def test_each_step_has_its_time_without_what_is_no_step() -> None:
    clock = step_clock(torch.device("cpu"))
    time.sleep(0.02)  # before the first step ends: not of a step alone
    clock.mark()
    for seconds in (0.002, 0.03):
        time.sleep(seconds)
        clock.mark()
    clock.interrupt()
    time.sleep(0.05)  # a checkpoint
    clock.mark()
    time.sleep(0.004)
    clock.mark()
    times = clock.take()
    assert len(times) == 3
    for measured, least in zip(times, (0.002, 0.03, 0.004), strict=True):
        assert least <= measured
    # Each is its own step's: the checkpoint's 50 ms are in none, however busy this machine is.
    assert times[1] > max(times[0], times[2])
    time.sleep(0.01)
    clock.mark()
    assert clock.take() == pytest.approx([])
