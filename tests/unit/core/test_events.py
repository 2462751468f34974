"""Event logs: append-only, both clocks, torn lines, a follower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core import events
from ai500.core.errors import RunFolderError


def test_events_carry_both_clocks_host_and_number(tmp_path: Path) -> None:
    log = events.EventLog(tmp_path / "log", member=3)
    log.emit("start", pid=1)
    log.emit("end")
    first, second = events.read(tmp_path / "log")
    assert first["wall"] > 0
    assert first["monotonic"] <= second["monotonic"]
    assert (first["sequence"], second["sequence"], second["member"]) == (1, 2, 3)


def test_numbers_go_on_after_a_restart_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    events.EventLog(path).emit("start")
    with path.open("a") as file:
        file.write('{"event": "half')
    events.EventLog(path).emit("resumed")
    assert [(e["event"], e["sequence"]) for e in events.read(path)] == [
        ("start", 1),
        ("resumed", 2),
    ]


def test_a_short_write_is_an_error_and_spoils_nothing(tmp_path: Path) -> None:
    """A disk that is full in the middle of a line."""
    script = (
        "import resource, sys; from pathlib import Path; from ai500.core import events\n"
        "log = events.EventLog(Path(sys.argv[1])); log.emit('one')\n"
        "size = Path(sys.argv[1]).stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))\n"
        "try:\n    log.emit('two')\nexcept Exception as error:\n    print(type(error).__name__)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "log.emit('three')\n"
    )
    path = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "EnvironmentLacksError"
    assert [event["event"] for event in events.read(path)] == ["one", "three"]


def test_nan_never_reaches_a_log(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        events.EventLog(tmp_path / "log").emit("epoch", loss=float("nan"))


def test_a_follower_sees_each_event_once_and_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = events.Follower(path)
    assert follower.new() == []
    log = events.EventLog(path)
    log.emit("one")
    line = path.read_text().replace("one", "two")
    with path.open("a") as file:
        file.write(line[:-2])
        file.flush()
        assert [e["event"] for e in follower.new()] == ["one"]
        file.write(line[-2:])
    assert [e["event"] for e in follower.new()] == ["two"]


EPOCH = {"trial": 1, "member": 0, "attempt": 1, "epoch": 1, "loss": 0.5}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[(key, None) for key in ("wall", "host", "sequence", "trial", "member", "epoch")],
        ("wall", "noon"),
        ("monotonic", 1e300),
        ("sequence", 1.5),
        ("epoch", True),
        ("member", {"a": 1}),
        ("loss", "small"),
        ("samples", 10**30),
    ],
)
def test_a_field_of_no_use_is_named_with_its_file_and_line(
    tmp_path: Path, key: str, value: object
) -> None:
    """None: the field is missing."""
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)
    log.emit("epoch", **EPOCH)
    log.emit("epoch", **EPOCH)
    first, second = path.read_text().splitlines()
    changed = json.loads(second) | {key: value}
    if value is None:
        del changed[key]
    path.write_text(f"{first}\n{json.dumps(changed)}\n")
    with pytest.raises(RunFolderError) as caught:
        list(events.read_checked(path))
    assert (caught.value.key, caught.value.path) == (key, path)
    assert f"{path}, line 2: {key}:" in str(caught.value)
    follower = events.Follower(path)
    with pytest.raises(RunFolderError, match="line 2"):
        follower.new()


@given(st.binary(max_size=200))
def test_any_bytes_read_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    for event in events.read(path):
        assert isinstance(event["event"], str)
    events.Follower(path).new()


@pytest.mark.parametrize("line", ['{"event": "x", "wall": NaN}', '{"event": "x", "event": "y"}',
                                  '{"event": "x", "a": 1' + "0" * 50 + "}",
                                  '{"event": ' + "[" * 5000])  # fmt: skip
def test_a_line_that_ai500_never_writes_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "x"}\n' + line + "\n")
    with pytest.raises(RunFolderError, match=r"events\.jsonl, line 2"):
        list(events.read(path))


def test_events_of_some_kinds_are_read_without_the_others(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)
    log.emit("run_start", reason="job_suspended")
    log.emit("job_suspended", member=1)
    with path.open("a") as file:
        file.write('{"event": "epoch", "wall": NaN}\n')  # `read_checked` refuses it
    log.emit("job_continued", member=1)
    read = list(events.read_kinds(path, ("job_suspended", "job_continued")))
    assert [event["event"] for event in read] == ["job_suspended", "job_continued"]
    with path.open("a") as file:
        file.write('{"event": "job_suspended"}\n')
    with pytest.raises(RunFolderError):
        list(events.read_kinds(path, ("job_suspended",)))
