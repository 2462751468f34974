"""Each file is judged in a process with limits: one that hangs or crashes is refused alone."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from ai500.core.errors import RuleError
from ai500.ranking import judging
from ai500.ranking.entries import Judged, Ranked, Rejected
from ai500.ranking.judge_server import Limits
from ai500.ranking.judging import File, Judge, find_submissions
from ai500.submission import archive, packing
from tests.support.submitted import contents, packed, small_run, submittable_run

pytestmark = pytest.mark.slow

HOSTILE = """
import os, signal
CALLS = {
    "hang": lambda: exec("while True: pass"),
    "sleep": lambda: signal.pause(),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(5),
    "memory": lambda: bytearray(8 << 30),
    "noise": lambda: (os.write(1, b'{"status": 0}\\n'), print("on the terminal"), os._exit(6)),
}
def __getattr__(name):
    if name not in CALLS:
        raise AttributeError(name)
    CALLS[name]()
"""
CRASHES = {
    "crash": "SIGSEGV", "exit": "exit code 5", "memory": "of memory", "noise": "exit code 6",
}  # fmt: skip
OVERRUNS = {
    "hang": (Limits(cpu_seconds=1), "processor time"),
    "sleep": (Limits(wall_seconds=0.5), "more than 0.5 s"),
}
NAMES = (*CRASHES, *OVERRUNS)


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid submission, and one for each way in which a workload's code ends its judge."""
    folder = tmp_path_factory.mktemp("hostile")
    submissions = folder / "submissions"
    submissions.mkdir()
    packed(submittable_run(folder / "run"), submissions / "valid.ai500")
    files = contents(packed(small_run(folder / "small"), folder / "small.ai500"))
    for name in NAMES:
        own = json.dumps(name).encode()
        changed = {
            path: content.replace(b'"image_classification"', own) for path, content in files.items()
        }
        del changed["manifest.json"]
        packing.seal(changed, key=None)
        archive.pack(submissions / f"{name}.ai500", changed)
    return submissions


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package whose workloads end the process that loads them."""
    information = tmp_path / "hostile-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1\n")
    points = "".join(f"{name} = hostile:{name}\n" for name in NAMES)
    (information / "entry_points.txt").write_text(f"[ai500.workload]\n{points}")
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def select(submissions: Path, *names: str) -> list[File]:
    return [file for file in find_submissions(submissions) if file.path.stem in names]


def test_a_file_that_ends_its_judge_is_refused_and_the_others_are_judged(
    submissions: Path, plugin: None, capfd: pytest.CaptureFixture[str]
) -> None:
    files = select(submissions, "valid", *CRASHES)
    judged = zip(files, Judge(workers=2, cache=None).judge(files), strict=True)
    results = {file.path.stem: each.result for file, each in judged}
    assert isinstance(results.pop("valid"), Ranked)
    for name, expected in CRASHES.items():
        refused = results.pop(name)
        assert isinstance(refused, Rejected), name
        assert expected in refused.reasons[0]
    assert results == {}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", OVERRUNS)
def test_a_file_that_does_not_end_is_refused(submissions: Path, plugin: None, name: str) -> None:
    limits, expected = OVERRUNS[name]
    (judged,) = Judge(limits=limits, cache=None).judge(select(submissions, name))
    assert judged.rejected is not None
    assert expected in judged.rejected.reasons[0]


def test_a_module_in_the_current_folder_is_not_imported(
    submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "ai500", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    (judged,) = Judge(cache=None).judge(select(submissions, "valid"))
    assert judged.ranked is not None


def test_a_judgement_is_made_once(
    submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valid = select(submissions, "valid")
    (first,) = Judge(cache=tmp_path / "cache").judge(valid)
    monkeypatch.setattr(judging.sys, "executable", "/nowhere")  # a judge can't be started
    (again,) = Judge(cache=tmp_path / "cache").judge(valid)
    assert again == first
    with pytest.raises(FileNotFoundError):
        list(Judge(limits=Limits(cpu_seconds=7), cache=tmp_path / "cache").judge(valid))
    monkeypatch.setattr(judging, "source_sha256", lambda: "a changed checker")
    with pytest.raises(FileNotFoundError):
        list(Judge(cache=tmp_path / "cache").judge(valid))


def test_a_damaged_cache_is_no_judgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junk.ai500").write_bytes(b"junk")
    files = find_submissions(tmp_path)
    list(Judge(cache=tmp_path / "cache").judge(files))
    (known,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(judging.sys, "executable", "/nowhere")
    for content in ("", "{", "[]", '{"day": 1, "judged": {}}', '{"judged": null}'):
        known.write_text(content)
        with pytest.raises(FileNotFoundError):
            list(Judge(cache=tmp_path / "cache").judge(files))


def test_a_refusal_counts_for_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "junk.ai500").write_bytes(b"junk")
    files = find_submissions(tmp_path)
    (first,) = Judge(cache=tmp_path / "cache").judge(files)
    assert first.rejected is not None
    monkeypatch.setattr(judging.sys, "executable", "/nowhere")
    assert list(Judge(cache=tmp_path / "cache").judge(files)) == [first]
    monkeypatch.setattr(judging, "_today", lambda: "2999-01-01")
    with pytest.raises(FileNotFoundError):
        list(Judge(cache=tmp_path / "cache").judge(files))


def test_a_file_larger_than_any_submission_is_not_read(tmp_path: Path) -> None:
    """Its digest is computed by the list itself, outside of every limit: 2 TB would take hours."""
    with (tmp_path / "sparse.ai500").open("wb") as file:
        file.truncate(2 << 40)
    (judged,) = Judge(cache=None).judge(find_submissions(tmp_path))
    assert judged.rejected is not None
    assert "has more than" in judged.rejected.reasons[0]


def test_an_interrupted_list_leaves_no_process(submissions: Path, plugin: None) -> None:
    """Leaving early, as Ctrl-C does, ends the judges at once."""
    files = select(submissions, "sleep")
    judge = Judge(limits=Limits(wall_seconds=300.0), workers=1, cache=None)
    judgements = judge.judge([*files, *files])
    before = threading.active_count()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(judgements)
    timer.join()
    assert threading.active_count() <= before + 1
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"judge_server" in command]


def test_a_judgement_has_a_result() -> None:
    with pytest.raises(RuleError):
        _ = Judged().result
