"""Entries of a list from known numbers, and submissions of valid runs, without training."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ai500.core import editions
from ai500.metrics.quality import quality_ratio
from ai500.ranking.entries import ID_LENGTH, Claim, Entry, MemberWork, Ranked, Rejected
from ai500.ranking.judging import Judge, find_submissions
from ai500.records.findings import LayerVerdict
from tests.support import synthetic_run
from tests.support.submitted import OPTIONS, packed, submittable_run

ACCELERATORS = ("Synthetic A100", "Synthetic MI300", "CPU: Synthetic Xeon", "Synthetic TPU")
ORGANIZATIONS = ("Example University", "Sample Laboratory", "Test Centre", "Demo Institute")
EDITIONS = ("2025-11", "2026-05", "2026-11")
LISTS = (
    ("image_classification", "full", "hardware"),
    ("image_classification", "full", "system"),
    ("image_classification", "workstation", "hardware"),
    ("extreme_weather", "full", "hardware"),
)
TITLE = "A list"


def identity(number: int) -> str:
    """Return the id of an entry by its number."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:ID_LENGTH]


def entry(number: int, **changes: Any) -> Entry:
    """Make the entry of a number; the same number gives the same entry."""
    workload, problem_class, level = LISTS[0 if number % 5 < 2 else number % 4]
    scale = 8 * 2 ** (number * 7 % 6)
    flops = scale * (1e13 + 3e9 * (number * 7919 % 1000))
    quality = 0.74 + 0.00005 * (number * 104_729 % 1000)
    metered = number * 31 % 7 < 3
    vflops = changes.get("vflops", flops * (quality / 0.759) ** 5)
    spread = 0.002 * (number * 17 % 11)
    default = Entry(
        id=identity(number),
        system=f"Synthetic {number // 2:05d}",
        organization=ORGANIZATIONS[number // 2 % 4],
        name="",
        edition=EDITIONS[number % 3],
        level=level,
        signed=number % 2 == 0,
        workload=workload,
        problem_class=problem_class,
        vflops=vflops,
        flops=flops,
        time_to_quality_seconds=(4.01e5 + 97 * (number * 7919 % 1000)) / scale,
        time_to_target_seconds=None if quality < 0.759 else 3.5e5 / scale,
        vflops_per_watt=flops / (400 * scale) if metered else None,
        flops_per_watt=flops / (380 * scale) if metered else None,
        power_coverage=("accelerators", "whole nodes")[number // 7 % 2] if metered else None,
        quality_name="top-1 accuracy",
        quality=quality,
        target_quality=0.759,
        quality_ratio=quality_ratio(quality, target=0.759, direction="higher"),
        ensemble_size=8,
        parallel_degree=scale // 8,
        system_scale=scale,
        nodes=max(1, scale // 8),
        accelerator=ACCELERATORS[number // 2 % 4],
        precision=("fp32", "bf16")[number % 2],
        framework="torch 2.13.0",
        trials=10,
        score_variation=0.01,
        lowest_vflops=vflops * (1 - spread),
        highest_vflops=vflops * (1 + spread),
        penalty_exponent=5,
    )
    return dataclasses.replace(default, **changes)


def ranked(
    entry: Entry,
    body: str = "<p>synthetic</p>",
    *,
    fingerprint: str | None = None,
    work: tuple[MemberWork, ...] = (),
) -> Ranked:
    """Make a ranked entry with layers that depend on its accelerator, precision and scale."""
    facts = {
        1: {"nodes": f"{entry.nodes}", "Sys_scale": f"{entry.system_scale}"},
        2: {"operating system": "Synthetic Linux 1"},
        3: {"all-reduce's mode": "all_reduce"},
        4: {"device": entry.accelerator, "precision": entry.precision},
        5: {"framework": entry.framework},
        6: {"parallel mode": "data"},
        7: {"parameters": "25557032"},
        8: {"batch size": "64"},
        9: {"epochs": "90"},
    }
    layers = tuple(
        LayerVerdict(layer, "same", tuple((name, None, value) for name, value in values.items()))
        for layer, values in sorted(facts.items(), reverse=True)
    )
    sha256 = entry.id + hashlib.sha256(entry.id.encode()).hexdigest()[ID_LENGTH:]
    return Ranked(entry, body, layers, Claim(f"{entry.id}.ai500", sha256, fingerprint, work))


def synthetic_list(count: int) -> Iterator[Ranked]:
    """Make a number of different entries."""
    return (ranked(entry(number)) for number in range(count))


def submission(
    folder: Path,
    name: str,
    *,
    epoch_seconds: float = 2.0,
    host: str = "host",
    edition: str = editions.CURRENT,
    **options: Any,
) -> Path:
    """Pack a valid run of class smoke with a chosen speed; two speeds are no copies."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch.object(synthetic_run, "EPOCH_SECONDS", epoch_seconds),
    ):
        run = submittable_run(
            Path(scratch) / "run", host=host, edition=edition, noise=0.01 * epoch_seconds
        )
        return packed(
            run, folder / f"{name}.ai500", options=dataclasses.replace(OPTIONS, **options)
        )


def judged(folder: Path, **options: Any) -> list[Ranked | Rejected]:
    """Judge the submissions in a folder, without a cache."""
    judge = Judge(**({"cache": None} | options))
    return [each.result for each in judge.judge(find_submissions(folder))]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Read every file of a site."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
