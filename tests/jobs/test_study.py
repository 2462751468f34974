"""Every study of the papers, its points being jobs of a real Slurm."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import ON_SLURM, Submit, arguments, jobs, run_events

Settings = dict[str, object]

# Two nodes of one slot each: an ensemble's members, or one member's ranks, are on both.
TINY: Settings = {**ON_SLURM, "system.nodes": 2, "train.epochs": 1}
VARIED: Settings = {"ensemble.size": None, "parallel.degree": None}

STUDIES: dict[str, tuple[Settings, list[str]]] = {
    "scaling": ({"ensemble.size": None}, ["m1", "m2"]),
    "tradeoff": (VARIED, ["m2-p1", "m1-p2"]),
    "optimizations": (
        # A small batch, so that an epoch of the tiny store has steps enough for a large one.
        {"ensemble.size": None, "parallel.degree": 2, "train.batch_size": 8},
        ["fp32", "mixed-bf16", "compression", "both", "large-batch", "large-batch-neither"],
    ),
    "data-parallel": ({"ensemble.size": None}, ["ensemble-1", "ensemble-2", "single-2"]),
    "repeatability": ({"ensemble.size": 2}, ["seed-1", "seed-2"]),
}


@pytest.mark.long
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_on_virtual_nodes(
    cluster: Cluster, submit: Submit, shared_store: Path, shared_folder: Path, study: str
) -> None:
    settings, names = STUDIES[study]
    folder = shared_folder / "study"
    seeds = ("--seeds", "2") if study == "repeatability" else ()
    words = ("study", study, *seeds, "--points", ",".join(names), "--out", folder)
    scratch: Settings = {"data.scratch": f"{shared_folder}/scratch/$SLURM_JOB_ID"}
    command = submit(cluster, *words, *arguments(shared_store, TINY | scratch | settings))
    assert command.wait(600) == 0, command.err
    assert not list((shared_folder / "scratch").iterdir())  # jobs leave nothing on their nodes
    result = json.loads((folder / "result.json").read_text())
    assert [point["name"] for point in result["points"]] == names
    assert not result["missing"]
    with (folder / "points.csv").open(newline="") as file:
        assert [row["point"] for row in csv.DictReader(file)] == names
    page = (folder / "report.html").read_text()
    assert all(point["label"] in page for point in result["points"])
    for point in result["points"]:
        _is_of_jobs(cluster, folder, point)
    if study == "repeatability":
        first, second = result["points"]
        assert first["score"]["operations"] == second["score"]["operations"]
        seeds_of = [point["score"]["trials"][0]["seed"] for point in (first, second)]
        assert seeds_of[0] != seeds_of[1]


def _is_of_jobs(cluster: Cluster, folder: Path, point: dict[str, Any]) -> None:
    """Check that the point's members ran as jobs on the cluster's nodes."""
    run = folder / point["run"]
    score = point["score"]
    known = jobs(run)
    assert set(known) == set(range(score["ensemble_size"]))
    assert all(cluster.job_states(job["id"]) == ["COMPLETED"] for job in known.values())
    ranks = {event["host"] for event in run_events(run, "start")}
    assert ranks <= set(cluster.names)
    assert point["busy_share"] is None
    # But their events tell that the nodes are one host.
    if score["system_scale"] > 1:
        assert any("2 nodes are parts of 1 host" in issue for issue in point["timing_issues"])
