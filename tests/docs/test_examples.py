"""The examples of the documentation run, and show what is printed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ai500.cli import main
from tests.support import synthetic_run
from tests.support.docs_examples import (
    PAGES,
    ROOT,
    Example,
    check_toml,
    environment_with,
    examples_of,
    made_by,
    run_console,
)
from tests.support.submitted import packed, submittable_run

"""One worker prepares the folder, once."""


def _remove(paths: Iterable[Path]) -> None:
    """A page may make it itself, so it does not exist before."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _quick(page: Path) -> list[Example]:
    return [example for example in examples_of(page) if example.runs and not example.is_long]


NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that examples run in: two finished runs, submissions, some pictures."""
    folder = tmp_path_factory.mktemp("prepared")
    submittable_run(folder / "runs" / "first", host="another")
    valid = submittable_run(folder / "runs" / "valid")
    (folder / "submissions").mkdir()
    packed(valid, folder / "submissions" / "mine.ai500")
    with pytest.MonkeyPatch.context() as patched:  # other times: the same work is ranked once
        patched.setattr(synthetic_run, "EPOCH_SECONDS", 2.5)
        other = submittable_run(tmp_path_factory.mktemp("theirs") / "run")
    packed(other, folder / "submissions" / "theirs.ai500")
    pixels = np.random.default_rng(1)
    for number in range(40):
        path = folder / "photos" / ("cats", "dogs")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 255, (40, 40, 3), np.uint8)).save(path)
    for name in ("outside-script", "own-images", "own-regression"):
        example = Path("docs") / "examples" / name
        shutil.copytree(ROOT / example, folder / example)
    return folder


@pytest.fixture
def run_page(
    prepared: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[list[Example]], None]:
    """Runs examples in such a folder of their own, one after the other."""
    (tmp_path / "bin").mkdir()
    cache = tmp_path_factory.getbasetemp() / "cache"
    environment = environment_with(tmp_path / "bin", cache=cache)
    for name in ("AI500_CACHE", "NO_COLOR", "COLUMNS"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "work"))

    def here(words: list[str]) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ai500", *words])
        code: object = 0
        try:
            main()
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        return int(str(code or 0)), out, err

    def run(examples: list[Example]) -> None:
        _remove(path for example in examples for path in made_by(example))
        for example in examples:
            if example.language == "toml":
                check_toml(example)
            elif example.language == "python":
                # A namespace each: a reader may begin anywhere.
                exec(compile(example.text, example.where, "exec"), {"__name__": example.where})
            else:
                run_console(example, here=here, environment=environment)

    return run


@pytest.mark.parametrize("name", [name for name in NAMES if any(_quick(ROOT / name))])
def test_the_examples_of_a_page_run(name: str, run_page: Callable[[list[Example]], None]) -> None:
    run_page(_quick(ROOT / name))


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "name", [name for name in NAMES if any(example.is_long for example in examples_of(ROOT / name))]
)
def test_the_long_examples_of_a_page_run(
    name: str, run_page: Callable[[list[Example]], None]
) -> None:
    """All of the page, in order: a long example may need what a short one made."""
    run_page([example for example in examples_of(ROOT / name) if example.runs])


def test_every_block_says_what_it_is() -> None:
    """A language, and where it is not run a reason."""
    for page in PAGES:
        for example in examples_of(page):
            assert example.language, f"{example.where}: name the block's language (text: none)"
            known = ("", "long", "exits 1", "exits 2")
            reason = example.mark.removeprefix("not run, ")
            assert example.mark in known or len(reason.split()) > 1, f"{example.where}: why?"
