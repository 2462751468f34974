"""Files are whole or absent, and a refusing disk is explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.core import atomic
from ai500.core.errors import EnvironmentLacksError
from tests.support import hostile_disk


def test_replaces_the_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    atomic.write_json(file, {"old": 1})
    atomic.write_json(file, {"name": "é", "seconds": 1.5})
    assert json.loads(file.read_text()) == {"name": "é", "seconds": 1.5}
    assert list(tmp_path.iterdir()) == [file]


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(tmp_path / "record.json", {"seconds": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x.txt"
    with pytest.raises(EnvironmentLacksError, match="ENOENT") as error:
        atomic.write_text(path, "hello")
    assert error.value.path == path
    assert error.value.remedy.startswith("Create it")


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    printed = hostile_disk.run_on_small_disk(
        tmp_path,
        """
        from ai500.core import atomic, errors
        atomic.write_text(Path("record.txt"), "old")
        fill_disk()
        try:
            atomic.write_text(Path("record.txt"), "new" * 100_000)
        except errors.EnvironmentLacksError as error:
            print(error.exit_code, error)
        print(Path("record.txt").read_text(), [p.name for p in Path().iterdir() if "tmp" in p.name])
        """,
        megabytes=1,
    )
    assert "3 cannot write record.txt (E" in printed
    assert "run the same command again" in printed
    assert printed.endswith("old []\n")


def test_no_permission_is_explained(tmp_path: Path) -> None:
    done = hostile_disk.run(
        tmp_path,
        """
        import tempfile
        from ai500.core import atomic, errors
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o555)
        become_nobody()
        try:
            atomic.write_text(folder / "x.txt", "hello")
        except errors.EnvironmentLacksError as error:
            print(error.exit_code, error)
        """,
    )
    assert "x.txt (EACCES)" in done.stdout, done.stderr
