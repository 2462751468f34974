"""Workloads beyond the papers' are submitted, verified, listed and studied as theirs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.ranking.entries import Ranked
from ai500.study.studies import STUDIES
from ai500.submission.manifest import open_submission
from ai500.submission.packing import submit
from ai500.submission.verify import recompute
from tests.support.submitted import OPTIONS, with_members_logs
from tests.support.synthetic_list import judged
from tests.support.synthetic_run import official_shape, write_synthetic_run
from tests.support.synthetic_study import prepared

WORKLOADS = ("language_model", "climate_segmentation", "cosmology")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_valid_run_is_submitted_verified_and_listed(workload: str, tmp_path: Path) -> None:
    run = with_members_logs(write_synthetic_run(tmp_path / "run", official_shape(workload)))
    out = tmp_path / "list" / f"{workload}.ai500"
    out.parent.mkdir()
    submit(run, out, options=OPTIONS)  # refuses a run that breaks a rule
    with open_submission(out) as submission:
        assert recompute(submission).confirmed
    (listed,) = judged(out.parent)
    assert isinstance(listed, Ranked), listed
    assert listed.entry.workload == workload


@pytest.mark.parametrize("study", [name for name in STUDIES if name != "frameworks"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_study_plans_its_points(workload: str, study: str, tmp_path: Path) -> None:
    plan = prepared(study, tmp_path, workload=workload)
    assert len(plan.pending()) > 1
