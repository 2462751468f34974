"""Memory and time of the aggregation over the size of the ensemble: M = 4, 64, 1,024.

    python benchmarks/aggregation.py [--workload NAME] [FOLDER]

Files are those that workers leave: validation and out-of-bag predictions with their digests, and
bootstraps. Eight members' files are written to FOLDER (default: a temporary folder); member m
reads those of member m mod 8, so that M = 1,024 needs no more disk than M = 8. Each ensemble is
aggregated in a process of its own for its peak memory, beside an empty ensemble's (M = 1).
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ai500.bagging.aggregate import aggregate
from ai500.bagging.data_sampler import SAMPLERS
from ai500.bagging.predictions import FinishedMember
from ai500.core.reading import file_sha256
from ai500.data.bootstrap import load_bootstrap, save_bootstrap
from ai500.records import Field, TrainRecord
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.workloads.extreme_weather import WORKLOAD as EXTREME_WEATHER
from ai500.workloads.image_classification import WORKLOAD as IMAGE_CLASSIFICATION

SIZES = (4, 64, 1024)
FILES = 8
CLASSES = 100


@dataclass(frozen=True)
class Case:
    """Targets and predictions of one workload."""

    workload: Any
    field: Field
    validation: int
    train: int
    limit: int


CASES = {
    # 4 MB of validation predictions per member, as the audit of issue 23 measured.
    "image_classification": Case(
        IMAGE_CLASSIFICATION, Field("labels", "target", "int64", ()), 10_000, 100_000, 10_000
    ),
    "extreme_weather": Case(
        EXTREME_WEATHER, Field("boxes", "target", "float32", (15, 5)), 32, 128, 32
    ),
}


@dataclass(frozen=True)
class Targets:
    """Targets of the samples, which follow from their numbers."""

    case: Case
    count: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return (self.case.field,)

    def rows(self, indices: Any, **_: object) -> dict[str, Any]:
        if self.case.field.name == "labels":
            return {"labels": indices * 7919 % CLASSES}
        boxes = np.full((len(indices), 15, 5), -1.0, np.float32)
        boxes[:, 0] = (100, 100, 200, 200, 1)
        boxes[:, 1] = (300, 500, 420, 700, 3)
        return {"boxes": boxes}


def predictions(case: Case, indices: Any, generator: np.random.Generator) -> Any:
    """Draw predictions that are right more often than not."""
    targets = Targets(case, 0).rows(indices)
    if case.field.name == "labels":
        rows = generator.random((len(indices), CLASSES), np.float32)
        rows[np.arange(len(indices)), targets["labels"]] += 0.6
        return rows
    found = np.full((len(indices), 50, 6), -1.0, np.float32)
    found[:, :2, :4] = targets["boxes"][:, :2, :4] + generator.normal(0, 8, (len(indices), 2, 4))
    found[:, :2, 5] = targets["boxes"][:, :2, 4]
    corner = generator.uniform(0, 600, (len(indices), 3, 2))
    found[:, 2:5, :4] = np.concatenate([corner, corner + 80], axis=2)
    found[:, 2:5, 5] = generator.integers(0, 4, (len(indices), 3))
    found[:, :5, 4] = generator.uniform(0.05, 1, (len(indices), 5))
    return found


def write_member(case: Case, trial: TrialFolder, member: int) -> TrainRecord:
    """Write the files of a member, and return its record."""
    generator = np.random.default_rng(member)
    folder = trial.member(member)
    folder.path.mkdir(parents=True)
    trial.bootstrap(member).parent.mkdir(exist_ok=True)
    counts = SAMPLERS["poisson"].draw(case.train, seed=0, member=member)
    save_bootstrap(trial.bootstrap(member), counts, algorithm="poisson", seed=0, member=member)
    candidates = np.arange(case.limit) * case.train // case.limit
    everything = np.arange(case.validation)
    validation = predictions(case, everything, generator)
    np.save(folder.validation, validation)
    np.save(folder.out_of_bag, predictions(case, candidates[counts[candidates] == 0], generator))
    targets = Targets(case, case.validation).rows(everything)
    return TrainRecord(
        member=member, parameters=1, samples=1, steps=1, epochs=1, world_size=1, device="cpu",
        device_name="", quality=case.workload.quality(validation, targets),
        weights_sha256="0" * 64, operations=None, effective={}, versions={},
        validation_sha256=file_sha256(folder.validation),
        out_of_bag_sha256=file_sha256(folder.out_of_bag),
    )  # fmt: skip


def read_counts(path: Path) -> Any:
    return load_bootstrap(path)[1]


def measure(name: str, run: Path, records: list[TrainRecord], size: int) -> dict[str, float]:
    """Aggregate an ensemble and return its cost."""
    case, trial = CASES[name], RunFolder(run).trial(1)
    members = [
        FinishedMember(
            member=number,
            folder=trial.member(number % FILES),
            record=records[number % FILES],
            run=run,
            read_counts=partial(read_counts, trial.bootstrap(number % FILES)),
        )
        for number in range(size)
    ]
    start, cpu = time.perf_counter(), time.process_time()
    result = aggregate(
        members, workload=case.workload, validation=Targets(case, case.validation),
        train=Targets(case, case.train), ensemble_size=size, out_of_bag_limit=case.limit,
    ).result  # fmt: skip
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "quality": result.ensemble_quality or 0.0,
        "out_of_bag": result.out_of_bag_quality or 0.0,
    }


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=CASES, action="append")
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for name in arguments.workload or CASES:
        table = Table("M", "peak memory", "more than M = 1", "seconds", "CPU ms per member",
                      "ensemble", "out of bag", title=name)  # fmt: skip
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            trial = RunFolder(Path(folder)).trial(1)
            records = [write_member(CASES[name], trial, member) for member in range(FILES)]
            least = None
            for size in (1, *SIZES):
                with context.Pool(1) as pool:
                    cost = pool.apply(measure, (name, Path(folder), records, size))
                least = cost["peak"] if least is None else least
                table.add_row(
                    f"{size:,}", f"{cost['peak'] / 1e6:,.1f} MB",
                    f"{(cost['peak'] - least) / 1e6:+,.1f} MB", f"{cost['seconds']:.2f}",
                    f"{1e3 * cost['cpu_seconds'] / size:.1f}",
                    f"{cost['quality']:.4f}", f"{cost['out_of_bag']:.4f}",
                )  # fmt: skip
        Console().print(table)


if __name__ == "__main__":
    main()
