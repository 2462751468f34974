"""The meters' figures in a real Chromium: no text touches another, on a screen and on a phone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from ai500.bagging.program import score_trial
from ai500.core import events
from ai500.meters.log import read_meters
from ai500.metrics.trials import mean_of_trials
from ai500.pipeline.scoring import write_report
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.chromium import TEXT_COLLISIONS, opened
from tests.support.metered import GPU_NODE_COLUMNS, gpu_node, write_log
from tests.support.synthetic_run import BEGAN, Shape, write_synthetic_run


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Four members on one node of four accelerators, each with a recorder."""
    shape = Shape(members=4, slots=4, epochs=20)
    run = write_synthetic_run(tmp_path_factory.mktemp("metered") / "run", shape)
    log = list(events.read(run.events))
    began = min(event["wall"] for event in log if event["event"] == "first_batch")
    for member in range(4):
        write_log(
            run.trial(1).meters, host=shape.host, member=member, period=0.5,
            covers={"nvml": ["accelerators"]}, columns=GPU_NODE_COLUMNS, monotonic_zero=BEGAN,
            times=[began - 2 + 0.5 * n + 0.1 * member for n in range(120)],
            values=lambda t: gpu_node(t - began + 10),
        )  # fmt: skip
    plan = replace(run_folder.read(Plan, run.plan), device="cuda")
    run_folder.write(run.plan, plan)
    meters = read_meters(run.trial(1).meters)
    score = score_trial(plan, log, trial=1, meters=meters)
    assert score.watts == pytest.approx(4 * 660, rel=0.03)
    run_folder.write(run.score, mean_of_trials([score], required_runs=3))
    write_report(run)
    return run


def test_figures_of_meters_are_legible(browser: Browser, metered: RunFolder) -> None:
    page = opened(browser, metered.report)
    section = page.locator("section", has=page.locator("h2", has_text="Power, load"))
    assert section.locator("figure").count() == 5
    assert section.locator("polygon.band").count() == 3
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(TEXT_COLLISIONS) == [], width
    words = section.inner_text()
    assert "Metered: accelerators, on every node." in words
    assert "MFLOPS/W" in words
    page.close()
