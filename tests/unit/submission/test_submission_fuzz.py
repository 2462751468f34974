"""Thousands of bad submissions: no traceback, no hang, no file outside the folder."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ai500.submission import archive, packing
from ai500.submission.manifest import MANIFEST, open_submission
from ai500.submission.verify import recompute
from tests.support.submitted import contents, packed, small_run

# By a thread, not by a signal: an exception that a signal raises while hypothesis draws a value is
# reported as FlakyStrategyDefinition, and hides that the limit was reached.
pytestmark = pytest.mark.timeout(3600, method="thread")
QUICK = 60
# Three long tests of 67 batches of 100: 20,100 cases. Two runs of 6,700 ended with hypothesis'
# FlakyStrategyDefinition, whose cause was not found; a batch has a smaller tree of choices.
BATCHES, BATCH = range(67), 100
MEMORY = Path("/dev/shm")
Fuzz = Callable[[dict[str, bytes], Path, st.DataObject], None]
same_folder = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
quick = settings(max_examples=QUICK, suppress_health_check=same_folder)
batch = settings(max_examples=BATCH, suppress_health_check=same_folder)

EVIL_NUMBERS = [0, -1, 1, 1e308, -1e308, 1e-320, 10**39, -(10**39), 2**63, True, 0.5]
EVIL_TEXTS = ["", "..", "../../etc/passwd", "\x1b[2J", "\u202e", "<script>", "x" * 5000, "nan"]
evil_values = st.one_of(
    st.sampled_from([None, *EVIL_NUMBERS, *EVIL_TEXTS]),
    st.sampled_from([[], {}, [[]], {"": {}}, [None], {"event": "end"}]).map(copy.deepcopy),
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20),
)  # fmt: skip
EVIL_TOKENS = [b"NaN", b"-Infinity", b"1e999", b"9" * 50, b"9" * 5000, b"[" * 200, b'"\\ud800"',
               b"\xff", b"\x00", b"\r", b"{" * 5000, b"1e-999", b"'", b"\xef\xbb\xbf"]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("fuzz")
    return contents(packed(small_run(folder / "run"), folder / "s.ai500"))


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder for everything that a case may write; nothing may appear beside it."""
    # Thousands of small folders are faster in memory.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as outer:
        folder = Path(outer) / "arena"
        (folder / "tmp").mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        yield folder
        assert [path.name for path in Path(outer).iterdir()] == ["arena"]


def survives(data: bytes, arena: Path) -> list[str]:
    """Open and verify bytes; return the problems. An exception fails the test."""
    path = arena / "s.ai500"
    path.write_bytes(data)
    with open_submission(path) as submission:
        result = recompute(submission)
        assert all(problem.isprintable() for problem in submission.problems)
        assert result.confirmed <= submission.intact
    assert sorted(path.name for path in arena.iterdir()) == ["s.ai500", "tmp"]
    assert list((arena / "tmp").iterdir()) == []
    return [*submission.problems, *result.problems]


def sealed(files: dict[str, bytes]) -> bytes:
    """Pack files with a matching manifest, so that no digest ends a case early."""
    fresh = {name: content for name, content in files.items() if name != MANIFEST}
    packing.seal(fresh, key=None)
    return b"".join(archive.blocks(fresh))


@st.composite
def spliced(draw: st.DrawFn, whole: bytes) -> bytes:
    """Change, cut or repeat a few pieces of bytes."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.sampled_from([1, 2, 12, 512, 1024]))
        kind = draw(st.sampled_from(["change", "cut", "repeat", "token"]))
        if kind == "change":
            data[start : start + length] = draw(st.binary(min_size=1, max_size=length))
        elif kind == "cut":
            del data[start : start + length]
        elif kind == "repeat":
            data[start:start] = data[start : start + length]
        else:
            data[start : start + draw(st.integers(0, 8))] = draw(st.sampled_from(EVIL_TOKENS))
    return bytes(data)


@st.composite
def with_another_value(draw: st.DrawFn, content: bytes, *, lines: bool) -> bytes:
    """Replace values or remove keys of JSON at any depth."""
    documents = [json.loads(line) for line in (content.splitlines() if lines else [content])]
    for _ in range(draw(st.integers(1, 3))):
        inner: Any = documents
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            deeper = isinstance(inner[key], dict | list) and inner[key]
            if deeper and (inner is documents or draw(st.integers(0, 3))):
                inner = inner[key]
                continue
            if inner is not documents and draw(st.integers(0, 4)) == 0:
                del inner[key]
            else:
                inner[key] = draw(evil_values)
            break
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def fuzz_values(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    names = sorted(name for name in files if name.endswith((".json", ".jsonl")))
    name = data.draw(st.sampled_from(names))
    changed = data.draw(with_another_value(files[name], lines=name.endswith("l")))
    if name == MANIFEST:
        survives(b"".join(archive.blocks(files | {name: changed})), arena)
    else:
        survives(sealed(files | {name: changed}), arena)


def fuzz_contents(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    changed = data.draw(spliced(files[name]))
    survives(sealed(files | {name: changed}), arena)
    if changed != files[name]:
        plain = b"".join(archive.blocks(files | {name: changed}))
        assert any(name in problem for problem in survives(plain, arena))


def fuzz_archives(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    whole = b"".join(archive.blocks(files))
    changed = data.draw(spliced(whole))
    assert bool(survives(changed, arena)) == (changed != whole)


@quick
@seed(25)
@given(data=st.data())
def test_other_values(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    fuzz_values(files, arena, data)


@quick
@seed(25)
@given(data=st.data())
def test_other_contents(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    fuzz_contents(files, arena, data)


@settings(quick, max_examples=250)
@seed(25)
@given(data=st.data())
def test_other_archives(files: dict[str, bytes], arena: Path, data: st.DataObject) -> None:
    fuzz_archives(files, arena, data)


@settings(max_examples=1000, suppress_health_check=same_folder)
@seed(25)
@given(data=st.binary(max_size=3000))
def test_anything_at_all(arena: Path, data: bytes) -> None:
    assert survives(data, arena)


@pytest.mark.long
@pytest.mark.parametrize("fuzz", [fuzz_values, fuzz_contents, fuzz_archives])
def test_many_others(files: dict[str, bytes], arena: Path, fuzz: Fuzz) -> None:
    for number in BATCHES:

        @batch
        @seed(number)
        @given(data=st.data())
        def cases(data: st.DataObject) -> None:
            fuzz(files, arena, data)

        cases()
