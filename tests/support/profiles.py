"""Profiles and timelines of synthetic traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from ai500.profile.analysis import precision_profile
from ai500.profile.record import PrecisionProfile
from ai500.profile.trace import RankTrace
from ai500.records import Parallelism
from ai500.records.profiling import RankCapture


def capture(rank: int = 0, **more: Any) -> RankCapture:
    fields: dict[str, Any] = {
        "rank": rank, "host": "here", "device": "cuda:0", "device_name": "H200",
        "seconds_per_step": 0.5, "samples_per_step": 64, "clock_offset_seconds": 0.0,
        "clock_uncertainty_seconds": 0.0, "operations_per_step": {}, "torch": "2.11",
    }  # fmt: skip
    return RankCapture(**fields | more)


def profile_of(traces: list[RankTrace], **operations: int) -> PrecisionProfile:
    captures = [capture(rank, operations_per_step=operations) for rank in range(len(traces))]
    parallel = Parallelism("data", data_degree=len(traces))
    return precision_profile("fp32", captures, traces, steps=1, parallel=parallel)


def check_timeline(path: Path) -> dict[str, Any]:
    """Check a file against Chrome's trace format, each event by its phase."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        timeline: dict[str, Any] = json.load(file)
    assert isinstance(timeline["traceEvents"], list)
    for event in timeline["traceEvents"]:
        assert event["ph"] in ("X", "M", "s", "t", "f", "i"), event
        assert isinstance(event["name"], str), event
        assert isinstance(event["pid"], int), event
        assert isinstance(event["tid"], int | str), event
        if event["ph"] != "M":
            assert isinstance(event["ts"], int | float), event
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
        if event["ph"] in ("s", "t", "f"):
            assert event["id"], event
        if event["name"] in ("process_name", "thread_name"):
            assert isinstance(event["args"]["name"], str), event
    return timeline
