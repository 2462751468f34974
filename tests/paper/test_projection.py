"""Published scaling, recomputed by the projection's model and shown in docs/projection.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.projection import published

pytestmark = pytest.mark.slow  # starts SimGrid
PAGE = Path(__file__).parents[2] / "docs" / "projection.md"


def test_the_page_shows_v2_v3_and_mlperf_beside_ours() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = published.table()
    assert len(rows) == 10
    for row in rows:
        assert row in page, f"docs/projection.md has not: {row}"


def test_v3_fig_7_one_model_is_faster_the_more_accelerators_it_has() -> None:
    """V3 §4.4.1: P_degree 8, 16, 64; images per second of a model rise."""
    item = published.series()[0]
    speeds = [degree * published.efficiency(item, degree) for degree in (8, 16, 64)]
    assert speeds == sorted(speeds)


def test_v3_fig_9_an_ensemble_scales_better_than_data_parallelism() -> None:
    """Members of one node share no link: their efficiency stays that of a node."""
    for item in published.series()[:3]:
        assert published.efficiency(item, 8) == 1.0 > published.efficiency(item, 64)
