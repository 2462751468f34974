"""Meter logs of a real run: load, traffic, and energy where it is metered."""

from __future__ import annotations

import json
from pathlib import Path

from ai500.core import events
from ai500.meters.log import read_meters
from ai500.records import Plan, Score, run_folder
from ai500.records.run_folder import RunFolder


def test_a_run_records_load_and_traffic_and_measures_energy_or_states_why_not(
    finished_run: Path,
) -> None:
    run = RunFolder.open(finished_run)
    plan, score = run_folder.read(Plan, run.plan), run_folder.read(Score, run.score)
    for trial in score.trials:
        (log,) = read_meters(run.trial(trial.trial).meters)
        assert {head.member for head in log.heads} == set(range(plan.ensemble_size))
        quantities = {c.quantity for sample in log.samples for c in sample.columns}
        assert {"cpu_busy_seconds", "network_sent_bytes", "memory_utilization"} <= quantities
        assert "lo" in {c.device for sample in log.samples for c in sample.columns}
        logged = [e for e in events.read(run.events) if e.get("trial") == trial.trial]
        first = min(e["monotonic"] for e in logged if e["event"] == "first_batch")
        last = max(e["monotonic"] for e in logged if e["event"] == "end")
        times = sorted(sample.clocks["monotonic"] for sample in log.samples)
        assert times[0] < first
        assert times[-1] > last
        for place, head in enumerate(log.heads):  # at least: begun, first batch, end
            assert sum(sample.recorder == place for sample in log.samples) >= 3, head
        metered = any(parts for head in log.heads for parts in head.covers.values())
        assert (trial.energy_joules is not None) == metered
        assert (trial.vflops_per_watt is None) == (trial.power_coverage is None) == (not metered)
    page = run.report.read_text(encoding="utf-8")
    assert "Hosts over time" in page
    assert "Network over time" in page
    if score.energy_joules is None:
        assert "Energy was not measured: " in page
        assert "has no power meter (" in page


def test_the_lines_of_a_meter_log_are_documented(finished_run: Path) -> None:
    file = next(RunFolder.open(finished_run).trial(1).meters.glob("*.jsonl"))
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines[:3]] == ["meters", "columns", "sample"]
    assert len(lines[1]["columns"]) == len(lines[2]["values"])
    documented = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text(encoding="utf-8")
    for name in ("meters", "columns", "sample", "meter_stopped"):
        assert f"`{name}`" in documented
