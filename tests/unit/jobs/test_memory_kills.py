"""The kernel's counter of processes killed for lack of memory, in both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.jobs.memory_kills import memory_kills

OWN = "job-7/step-0"
CASES = {
    "version 2": (f"0::/{OWN}\n", f"{OWN}/memory.events", "low 0\nmax 9\noom 3\noom_kill 2\n"),
    "version 2 in a container": (f"0::/{OWN}\n", "memory.events", "oom 3\noom_kill 2\n"),
    "version 1": (
        f"5:devices:/x\n4:cpu,memory:/{OWN}\n0::/\n",
        f"memory/{OWN}/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    ),
    "version 1 in a container": (
        f"4:memory:/{OWN}\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_counter_of_the_own_group(name: str, tmp_path: Path) -> None:
    groups, file, text = CASES[name]
    (tmp_path / "self").write_text(groups)
    (tmp_path / "root" / file).parent.mkdir(parents=True)
    (tmp_path / "root" / file).write_text(text)
    assert memory_kills(groups=tmp_path / "self", root=tmp_path / "root") == 2


@pytest.mark.parametrize(
    ("groups", "text"),
    [(None, ""), ("0::/a\n", None), ("0::/a\n", "low 0\n"), ("0::/a\n", "oom_kill x\n"),
     ("nonsense\n", "oom_kill 2\n")],
)  # fmt: skip
def test_without_a_counter_nothing_is_known(
    groups: str | None, text: str | None, tmp_path: Path
) -> None:
    if groups is not None:
        (tmp_path / "self").write_text(groups)
    if text is not None:
        (tmp_path / "memory.events").write_text(text)
    assert memory_kills(groups=tmp_path / "self", root=tmp_path) is None


def test_this_machine_has_a_counter_or_none() -> None:
    assert (memory_kills() or 0) >= 0
