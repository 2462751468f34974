"""Detections of a pretended ensemble: true boxes, some moved, some missed, and others added."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.bagging.aggregate import illustrate
from ai500.bagging.predictions import ValidationPredictions
from ai500.core.errors import DataError
from ai500.data.climate.store import ClimateStore
from ai500.data.store import Samples
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.climate.recipe import ClimateRecipe, generate_years
from ai500.workloads.protocol import load_workload
from tests.support.finished_members import members_of
from tests.support.synthetic_run import Shape, write_synthetic_run

RECIPE = ClimateRecipe(seed=5, height=48, width=72, train=2, validation=10, event_scale=1.6)
ROWS = 30


def detections(
    boxes: NDArray[np.float32], *, member: int, size: tuple[int, int]
) -> NDArray[np.float32]:
    """[S, 30, 6] from true boxes [S, 15, 5]; each member errs in its own way."""
    rng = np.random.default_rng((17, member))
    height, width = size
    predicted = np.full((len(boxes), ROWS, 6), -1, dtype=np.float32)
    for frame, truth in enumerate(boxes):
        rows = []
        for south, west, north, east, kind in truth[truth[:, 4] >= 0]:
            tall, wide = north - south, east - west
            if rng.random() < 0.85:
                shift = rng.normal(0, 0.08, 4) * (tall, wide, tall, wide)
                kind = 1 - kind if kind < 2 and rng.random() < 0.15 else kind
                rows.append((*(np.array([south, west, north, east]) + shift), rng.beta(5, 2), kind))
        for _ in range(rng.poisson(1.5)):
            south, west = rng.random() * (height - 9), rng.random() * (width - 9)
            rows.append((south, west, south + 8, west + 8, rng.beta(2, 4), rng.integers(4)))
        if rows:
            predicted[frame, : len(rows)] = rows
    limits = (height, width, height, width)
    predicted[..., :4] = np.where(
        predicted[..., 4:5] > 0, np.clip(predicted[..., :4], 0, limits), -1
    )
    return predicted


def climate_store(path: Path, recipe: ClimateRecipe = RECIPE) -> ClimateStore:
    """A small folder of years."""
    return generate_years(path, recipe, workers=1)


def write_illustrated_run(path: Path, store: ClimateStore, shape: Shape) -> RunFolder:
    """A synthetic run of extreme weather whose first trial went through the stage that draws."""
    run = write_synthetic_run(path, shape)
    samples = store.splits["validation"]
    for member in range(shape.members):
        folder = run.trial(1).member(member)
        if folder.record.exists():
            predicted = detections(samples.boxes, member=member, size=samples.fields[0].shape[1:])
            np.save(folder.validation, predicted)
    plan = run_folder.read_json(run.plan) | {"workload": "extreme_weather"}
    run_folder.write(run.plan, plan)
    draw_pictures(run, samples, size=shape.members)
    return run


def draw_pictures(run: RunFolder, samples: Samples, *, size: int) -> None:
    """Draw the first trial as its aggregation does."""
    members = members_of(run, size=size)
    workload = load_workload(run_folder.read(Plan, run.plan).workload)
    ensemble = np.zeros((samples.count, 1))
    with contextlib.suppress(DataError):  # a damaged file fails where it is drawn
        ensemble = workload.combine(ValidationPredictions.of(members))
    illustrate(run.trial(1), members, workload=workload, ensemble=ensemble, samples=samples)
