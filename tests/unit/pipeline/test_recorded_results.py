"""Events have no digest: their results are compared with the sealed records of the aggregation."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ai500.core.errors import RunFolderError
from ai500.pipeline import scoring
from tests.support.synthetic_run import Shape, write_synthetic_run

FIELDS = ("ensemble_quality", "members_mean_quality", "out_of_bag_quality", "out_of_bag_samples")


@pytest.mark.parametrize("field", FIELDS)
def test_a_result_that_was_changed_in_the_log_is_refused(field: str, tmp_path: Path) -> None:
    """A digit of the quality would be another score without a word."""
    run = write_synthetic_run(tmp_path / "my run", Shape())
    score = scoring.score_run(run)
    lines = run.events.read_text().splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if json.loads(line)["event"] == "aggregate")
    event = json.loads(lines[at])
    event["result"][field] = (event["result"][field] or 0) + 1
    run.events.write_text("".join([*lines[:at], json.dumps(event) + "\n", *lines[at + 1 :]]))
    with pytest.raises(RunFolderError) as caught:
        scoring.score_run(run)
    assert (caught.value.key, caught.value.path) == ("aggregate", run.events)
    record = run.trial(event["trial"]).ensemble
    words = shlex.split(caught.value.remedy.partition(": ")[2])
    assert words == ["rm", str(record), "&&", "ai500", "resume", str(run.path)]
    # A trial that was aggregated again has two results: the last one counts.
    run.events.write_text("".join([*lines[:at], json.dumps(event) + "\n", *lines[at:]]))
    assert scoring.score_run(run) == score
