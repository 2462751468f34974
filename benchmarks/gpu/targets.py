"""Quality of reference FP32 ensembles on one GPU: what the target of a class is set from.

    PYTHONPATH=src:.:.carry/site python3 -m benchmarks.gpu.targets WORKLOAD [--class workstation]
        [--seeds 1,2,3] [--precision fp32]

Prints ensemble, members' mean and seconds per member for each seed, then the mean over the seeds
moved by one standard deviation towards worse: the target (docs/workloads.md). Full numbers:
$OUT/targets-WORKLOAD.json, written after each seed.

Predictions before the first run, class `workstation`: cosmology 0.25 to 0.33 (one seed reached
0.296), members 0.01 to 0.03 worse; language_model 1.19 to 1.21 (one seed: 1.1985);
climate_segmentation 0.73 to 0.77 (two seeds: 0.7404 and 0.7561).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from benchmarks.gpu.framework import make_member, make_task
from numpy.typing import NDArray

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.store import Store
from ai500.records import Task
from ai500.records.fields import target_names
from ai500.train import loop
from ai500.workloads.class_data import generate_store
from ai500.workloads.member_predictions import ArrayPredictions
from ai500.workloads.protocol import load_workload


def member_task(
    options: argparse.Namespace, store: Store, folder: Path, *, seed: int, member: int
) -> Task:
    """Make the task of one member with the reference hyper-parameters."""
    task = make_task(options, store, folder)
    bootstrap = folder / f"bootstrap-{seed}-{member}"
    counts = BOOTSTRAP.draw(store.splits["train"].count, seed=seed, member=member)
    save_bootstrap(bootstrap, counts, algorithm="bootstrap", seed=seed, member=member)
    reference = dataclasses.replace(task.definition.reference, precision=options.precision)
    return dataclasses.replace(
        task, seed=seed, member=member, hyperparameters=reference, bootstrap=str(bootstrap)
    )


def validation_predictions(task: Task) -> NDArray[Any]:
    """Train a member; return its predictions of the validation samples."""
    member = make_member(task, f"{task.seed}-{task.member}")
    loop.train(member)
    predictions = member.evaluator.validation()
    assert predictions is not None, "a member of one process predicts everything"
    return np.asarray(predictions)


def main() -> None:
    """Train the ensembles of the chosen seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--class", dest="problem_class", default="workstation")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        store = generate_store(options.workload, options.problem_class, path=path)
        measure(options, store, Path(folder))


def measure(options: argparse.Namespace, store: Store, folder: Path) -> None:
    """Train, evaluate and print the ensemble of each seed."""
    workload = load_workload(options.workload)
    definition = workload.problem_classes[options.problem_class]
    options.batch = definition.reference.batch_size
    samples = store.splits["validation"]
    targets = samples.rows(np.arange(samples.count), names=target_names(samples.fields))
    results: dict[str, Any] = {"class": options.problem_class, "precision": options.precision}
    ensembles = []
    for seed in map(int, options.seeds.split(",")):
        began = time.perf_counter()
        predictions = np.stack(
            [
                validation_predictions(
                    member_task(options, store, folder, seed=seed, member=member)
                )
                for member in range(definition.ensemble_size)
            ]
        )
        seconds = (time.perf_counter() - began) / definition.ensemble_size
        ensemble = workload.quality(workload.combine(ArrayPredictions(predictions)), targets)
        members = [workload.quality(rows, targets) for rows in predictions]
        print(
            f"{options.workload} seed {seed}: ensemble {ensemble:.4f}, members' mean "
            f"{mean(members):.4f} {[round(quality, 4) for quality in members]}, {seconds:.0f} s a "
            "member, start and compilation included",
            flush=True,
        )
        results[f"seed {seed}"] = {"ensemble": ensemble, "members": members, "seconds": seconds}
        ensembles.append(ensemble)
        file = Path(os.environ.get("OUT", ".")) / f"targets-{options.workload}.json"
        file.write_text(json.dumps(results, indent=1))
    if len(ensembles) > 1:
        spread = stdev(ensembles) * (-1 if workload.quality_direction == "higher" else 1)
        print(f"mean, one standard deviation towards worse: {mean(ensembles) + spread:.4f}")


if __name__ == "__main__":
    main()
