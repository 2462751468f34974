"""Memory that a new process can take: of the machine, and of the own control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.jobs.free_memory import free_bytes

OWN = "job-7/step-0"
MACHINE = "MemTotal: 4000 kB\nMemAvailable:  3000 kB\n"
V2 = {"memory.max": "2000000", "memory.current": "1500000", "memory.stat": "inactive_file 100000"}
V1 = {
    "memory.limit_in_bytes": "2000000",
    "memory.usage_in_bytes": "1500000",
    "memory.stat": "inactive_file 7\ntotal_inactive_file 100000",
}


@pytest.mark.parametrize(
    ("groups", "folder", "files", "expected"),
    [
        (f"0::/{OWN}\n", OWN, V2, 600_000),
        (f"0::/{OWN}\n", "", V2, 600_000),
        (f"4:cpu,memory:/{OWN}\n0::/\n", f"memory/{OWN}", V1, 600_000),
        (f"0::/{OWN}\n", OWN, V2 | {"memory.max": "max"}, 3_072_000),
        (f"0::/{OWN}\n", OWN, V2 | {"memory.max": "9000000"}, 3_072_000),
        (f"0::/{OWN}\n", OWN, V2 | {"memory.current": "3000000"}, 0),
        ("", "", {}, 3_072_000),
    ],
)
def test_the_least_of_machine_and_group(
    groups: str, folder: str, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    (tmp_path / "machine").write_text(MACHINE)
    (tmp_path / "self").write_text(groups)
    place = tmp_path / "root" / folder
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text + "\n")
    free = free_bytes(
        machine=tmp_path / "machine", groups=tmp_path / "self", root=tmp_path / "root"
    )
    assert free == expected


def test_without_the_kernels_estimate_nothing_is_known(tmp_path: Path) -> None:
    assert free_bytes(machine=tmp_path / "none") is None
