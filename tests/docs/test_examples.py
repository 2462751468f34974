"""The examples of the documentation run, and show what is printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.docs.examples import (
    PAGES,
    ROOT,
    Example,
    check_toml,
    environment_with,
    examples_of,
    run_console,
)
from tests.unit.submitted import packed, submittable_run

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What examples find around them: two finished runs, submissions, some pictures."""
    folder = tmp_path_factory.mktemp("prepared")
    first = submittable_run(folder / "runs" / "first")
    submittable_run(folder / "runs" / "second", epochs=10)
    for name in ("first.ai500", "submissions/ours.ai500"):
        (folder / name).parent.mkdir(exist_ok=True)
        packed(first, folder / name)
    pixels = np.random.default_rng(1)
    for number in range(40):
        path = folder / "photos" / ("cats", "dogs")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 255, (40, 40, 3), np.uint8)).save(path)
    return folder


@pytest.fixture
def workspace(prepared: Path, tmp_path: Path) -> Path:
    """Such a folder for one page alone."""
    return shutil.copytree(prepared, tmp_path / "work")


def _run(examples: list[Example], workspace: Path, cache: Path, monkeypatch: object) -> None:
    shims = workspace.parent / "bin"
    shims.mkdir()
    environment = environment_with(shims, cache=cache)
    names: dict[str, object] = {}
    for example in examples:
        if example.language == "toml":
            check_toml(example)
        elif example.language == "python":
            exec(compile(example.text, example.where, "exec"), names)
        else:
            run_console(example, folder=workspace, environment=environment)


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_page_run(
    name: str,
    workspace: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [one for one in examples_of(ROOT / name) if one.runs and not one.is_long]
    monkeypatch.chdir(workspace)
    _run(found, workspace, tmp_path_factory.getbasetemp() / "cache", monkeypatch)


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.parametrize(
    "name", [name for name in NAMES if any(one.is_long for one in examples_of(ROOT / name))]
)
def test_the_long_examples_of_a_page_run(
    name: str,
    workspace: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of the page, in order: a long example may need what a short one made."""
    found = [one for one in examples_of(ROOT / name) if one.runs]
    monkeypatch.chdir(workspace)
    _run(found, workspace, tmp_path_factory.getbasetemp() / "cache", monkeypatch)


def test_every_block_says_what_it_is() -> None:
    """A language, and where it is not run a reason."""
    for page in PAGES:
        for example in examples_of(page):
            assert example.language, f"{example.where}: name the block's language (text: none)"
            known = ("", "long", "exits 1", "exits 2")
            reason = example.mark.removeprefix("not run, ")
            assert example.mark in known or len(reason.split()) > 1, f"{example.where}: why?"
