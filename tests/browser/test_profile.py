"""The page of a profile in a real Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ai500.profile.page import write_page
from ai500.profile.record import Profile
from ai500.profile.trace import read
from ai500.records import Communication, Parallelism
from tests.support.chromium import BROKEN_NAMES, TEXT_COLLISIONS, opened
from tests.support.profile_traces import accelerator_step
from tests.support.profiles import profile_of

KERNEL = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn_align8>"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    step = accelerator_step(ready=200, enter=220, all_in=220)
    step.kernel(KERNEL * 3, 71, 400, 450)
    profile = Profile(
        format=1, version="0", workload="image_classification", problem_class="workstation",
        run="a-run-with-a-long-name-20261119-183000", hosts=("here",), device="cuda",
        device_name="NVIDIA H200", torch="2.13", parallel_degree=2,
        parallel=Parallelism("data"), communication=Communication(), global_batch_size=64, steps=1,
        precisions=(profile_of([read(step.events)] * 2),),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("profile") / "profile.html"
    write_page(profile, path)
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overlaps_and_no_page_scrolls_sideways(
    browser: Browser, page_file: Path, width: int
) -> None:
    page = opened(browser, page_file, viewport={"width": width, "height": 900})
    assert page.locator("svg").count() > 0
    assert page.evaluate(TEXT_COLLISIONS) == []
    assert page.evaluate(BROKEN_NAMES) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
