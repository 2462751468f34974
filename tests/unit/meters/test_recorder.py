"""Recorders in real processes: one of several samples, another takes over, training never fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai500.core import events
from ai500.meters.log import read_meters
from ai500.meters.recorder import Recorder
from tests.support.commands import SOURCE

RECORD = """
import sys, time
from pathlib import Path
from ai500.meters.recorder import Recorder
path, member, lock = sys.argv[1:4]
recorder = Recorder(
    Path(path), trial=1, member=int(member), period_seconds=0.05, lock_name=lock
)
recorder.start()
for line in sys.stdin:
    recorder.mark() if line.strip() == "mark" else recorder.close()
"""


class Member:
    """A process with a recorder; its standard input says when to mark and when to end."""

    def __init__(self, folder: Path, member: int, *path: Path) -> None:
        self.log = folder / f"here-{member:03d}.jsonl"
        search = ":".join(map(str, (SOURCE, *path)))
        self.process = subprocess.Popen(
            [sys.executable, "-c", RECORD, str(self.log), str(member), str(folder)],
            env={**os.environ, "PYTHONPATH": search, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """End the process and return its standard error."""
        self.say("end")
        _, errors = self.process.communicate(timeout=30)
        return errors

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in events.read(self.log) if line["event"] == kind]

    def wait_until_it_records(self) -> None:
        deadline = time.monotonic() + 60
        while not self.log.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def killed() -> Iterator[list[Member]]:
    """Kill the processes that a test leaves running."""
    members: list[Member] = []
    yield members
    for member in members:
        member.process.kill()
        member.process.communicate()


@pytest.mark.serial
def test_one_of_two_samples_and_the_other_takes_over(tmp_path: Path, killed: list[Member]) -> None:
    first = Member(tmp_path, 0)
    killed.append(first)
    first.wait_until_it_records()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("ai500-meters-*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = Member(tmp_path, 1)
    killed.append(second)
    second.wait_until_it_records()
    second.say("mark")
    time.sleep(0.5)
    before = time.monotonic()
    assert first.end() == ""
    time.sleep(1.0)
    assert second.end() == ""
    sampled = [sample["monotonic"] for sample in second.events("sample")]
    # While the first samples, the second samples only at its start and at its mark.
    assert len([at for at in sampled if at < before]) == 2
    after = [at for at in sampled if at > before]
    assert len(after) >= 3
    last = first.events("sample")[-1]["monotonic"]
    assert min(after) - last < 1.0
    assert not list(tmp_path.glob("*.lock"))


PLUGIN = """
from ai500.meters import Reading

class Thermometer:
    covers = ("node",)
    looks = 0

    def read(self):
        self.looks += 1
        if self.looks > 3:
            raise OSError("the wire is cut")
        return [Reading("wall", "watts", 400.0 + self.looks)]

    def close(self):
        pass

def open_meter(root):
    return Thermometer()
"""


def test_a_meter_of_one_file_by_an_entry_point_and_what_it_breaks(
    tmp_path: Path, killed: list[Member]
) -> None:
    """It is recorded like the built-in ones; when it fails, it alone stops, and is noted once."""
    site = tmp_path / "site"
    information = site / "wattmeter-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "wattmeter.py").write_text(PLUGIN, encoding="utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wattmeter\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ai500.meter]\nwall = wattmeter:open_meter\n")
    member = Member(tmp_path, 0, site)
    killed.append(member)
    member.wait_until_it_records()
    time.sleep(0.5)
    assert member.end() == ""
    (head,) = member.events("meters")
    assert head["covers"]["wall"] == ["node"]
    (stopped,) = member.events("meter_stopped")
    assert (stopped["meter"], stopped["reason"]) == ("wall", "OSError: the wire is cut")
    (log,) = read_meters(tmp_path)
    watts = [
        next(v for c, v in zip(s.columns, s.values, strict=True) if c.meter == "wall")
        for s in log.samples
    ]
    assert watts[:4] == [401.0, 402.0, 403.0, None]
    busy = [
        [v for c, v in zip(s.columns, s.values, strict=True) if c.quantity == "cpu_total_seconds"]
        for s in log.samples
    ]
    assert len(busy) > 4
    assert all(values and values[0] for values in busy)


def test_a_folder_that_can_t_be_written_does_not_disturb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(
        tmp_path / "file" / "a-000.jsonl", trial=1, member=0, period_seconds=0.01, lock_name="x"
    )
    recorder.start()
    recorder.mark()
    recorder.close()
    assert capsys.readouterr().err.startswith("meters: recording stopped: ")


def test_no_period_no_meters(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path / "a-000.jsonl", trial=1, member=0, period_seconds=0.0, lock_name="x"
    )
    recorder.start()
    recorder.mark()
    recorder.close()
    assert not list(tmp_path.iterdir())
