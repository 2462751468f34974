"""Rooflines in a real Chromium: no text over another, nothing clipped, wherever they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ai500.inventory import machine as system
from ai500.roofline.compare import write_comparison
from ai500.roofline.page import write_page
from ai500.roofline.records import (
    Advice,
    KernelTime,
    LinkTime,
    MemoryTime,
    Peak,
    Placed,
    PlacedLink,
    RooflineRecord,
    RunPlacement,
)
from tests.support.chromium import BROKEN_NAMES, TEXT_COLLISIONS, WIDTHS, opened

SPEEDS = {
    "gemm": {"fp32": 51, "tf32": 414, "fp16": 762, "bf16": 794, "fp8": 1400, "int8": 1300},
    "conv": {"fp32": 48, "tf32": 380, "fp16": 800, "bf16": 827},
}
PEAKS = {"fp32": 67, "tf32": 535, "fp16": 1070, "bf16": 1070, "fp8": 2140, "int8": 2140}


def full_record() -> RooflineRecord:
    """Return a record of everything that a large node may have."""
    kernels = tuple(
        KernelTime("gemm" if kernel == "gemm" else "conv", precision, "8192×8192×8192",
                   10**12, 1 / speed, 30)
        for kernel, speeds in SPEEDS.items()
        for precision, speed in speeds.items()
    )  # fmt: skip
    links = (
        LinkTime("all_reduce", "inside_node", 8, 1, 2**26, 3.4e-4, 20),
        LinkTime("all_reduce", "inside_node", 8, 1, 2**10, 1e-5, 20),
        LinkTime("all_reduce", "between_nodes", 2, 8, 2**26, 1.7e-3, 20),
        LinkTime("all_reduce", "between_nodes", 2, 8, 2**10, 2e-5, 20),
    )
    return RooflineRecord(
        format=1, version="test", measured_at="2026-01-01T00:00:00+00:00", complete=True,
        system=system.describe(), device="cuda", device_name="NVIDIA H200", unit="accelerator",
        units=1, seconds=60.0, kernels=kernels,
        memory=(MemoryTime("copy", 2**33, 2e-3, 30),), links=links,
        peaks=tuple(Peak(name, peak * 1e12, "on paper") for name, peak in PEAKS.items()),
    )  # fmt: skip


def placement() -> RunPlacement:
    """Return an ensemble on two nodes, near the ridge."""
    links = (
        PlacedLink("between_nodes", 1e8, 1e8, 2.1e4, 2.1e4, 6e11),
        PlacedLink("inside_node", 7e8, 7e8, 3e3, 3e3, 6e12),
    )
    advice = Advice("FP16 compression", 'communication.precision = "fp16"', 2, 1, "computation",
                    1.42, 3.1, "FP16 compression: COI ×2, bound moves to computation, at most 1.42×")  # fmt: skip  # noqa: E501
    placed = tuple(
        Placed("distributed", subject, 2, 16, 4e15, "CONV BF16", 827e12 * 16, 1.7e16, links, 12e15,
               "communication", "links between nodes", (advice,))
        for subject in ("member", "ensemble")
    )  # fmt: skip
    return RunPlacement(
        run="<img src=x onerror=alert(1)>", workload="image_classification",
        precision="mixed-bf16", kernel_precision="bf16", convention="matmul",
        score_convention="aiperf", score_flops=4e15, traffic_source="counted",
        warnings=("a warning",), placed=placed, ceilings=full_record(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("roofline") / "roofline.html"
    write_page(path, full_record(), placement())
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_runs_in_one_plot_fit(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "compare.html"
    first = placement()
    placed = tuple(
        replace(each, flops=2.4e15, links=tuple(replace(link, coi=1e4) for link in each.links))
        for each in first.placed
    )
    slow = replace(first, placed=placed, kernel_precision="fp32")
    write_comparison(path, {"fp32": slow, "mixed-bf16, fp16 sent": first})
    page = opened(browser, path, viewport={"width": width, "height": 900})
    assert "2.4 PFLOPS" in page.locator("table").first.inner_text()
    assert {"CONV FP32", "CONV BF16"} <= {
        " ".join(text.split()[:2]) for text in page.locator("svg .roof.label").all_text_contents()
    }
    assert page.evaluate(TEXT_COLLISIONS) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_no_text_overlaps_or_is_clipped(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file)
    assert page.locator("svg").count() == 4
    assert page.locator("img").count() == 0
    for width, media in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        assert page.evaluate(TEXT_COLLISIONS) == [], width
        if media == "screen":
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(BROKEN_NAMES) == [], width
    page.close()
