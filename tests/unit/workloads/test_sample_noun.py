"""The unit of speed and operations comes from the workload."""

from __future__ import annotations

import pytest
from rich.console import Console

from ai500 import config as configuration
from ai500.bagging.member_views import MemberView
from ai500.cli.plan import show_plan
from ai500.cli.terminal import members_table
from ai500.core import plugins
from ai500.inventory import machine
from ai500.pipeline.planning import make_plan
from ai500.workloads.protocol import sample_noun

NOUNS = {
    "image_classification": "image", "extreme_weather": "frame", "automl": "image",
    "language_model": "sequence", "cosmology": "volume", "climate_segmentation": "frame",
    "custom": "sample",
}  # fmt: skip


def test_every_workload_has_its_noun() -> None:
    assert {name: sample_noun(name) for name in plugins.BUILT_IN["workload"]} == NOUNS
    assert sample_noun("a workload of another machine") == "sample"


@pytest.mark.parametrize("workload", ["image_classification", "language_model", "cosmology"])
def test_a_plan_counts_operations_per_sample_of_its_workload(
    workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"workload": workload, "problem_class": "smoke"}
    show_plan(make_plan(configuration.load(overrides=settings), machine.describe()))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"FLOP per {NOUNS[workload]} " in printed


def test_the_live_view_shows_the_unit(capsys: pytest.CaptureFixture[str]) -> None:
    view = MemberView(0, state="running", samples_per_second=7.0, sample_noun="volume")
    Console(width=100).print(members_table([view]))
    shown = capsys.readouterr().out
    assert "volumes/s" in shown and "images" not in shown
