"""The command line, called in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.cli import main
from tests.support.commands import Run


@pytest.fixture
def ai500(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """Call the command line in this process, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ai500", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run
