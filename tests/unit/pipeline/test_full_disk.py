"""A disk that is full when a run is planned or resumed: one error, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import hostile_disk

BODY = """
import json
from ai500.cli import app
from ai500.core.errors import AI500Error

def attempt(*arguments):
    try:
        app(list(arguments), standalone_mode=False)
    except AI500Error as error:
        return type(error).__name__, error.exit_code, str(error)

before = sorted(os.listdir("."))
fill_disk()
planned = attempt("run", "--out", "runs/first", "--class", "smoke", "--json")
empty_disk()
left = sorted(set(os.listdir(".")) - set(before))

from ai500 import config
from ai500.pipeline.stages import prepare
prepare(config.load(None, overrides={"problem_class": "smoke"}), Path("runs/first"))
resumed = ("EnvironmentLacksError", 3, "not tried: no disk of its own")
if ON_TMPFS:
    fill_disk()
    resumed = attempt("resume", "runs/first", "--json")
print(json.dumps([planned, left, resumed]))
"""


def test_a_full_disk_explains_itself_and_leaves_nothing(tmp_path: Path) -> None:
    printed = hostile_disk.run_on_small_disk(tmp_path, BODY, megabytes=2)
    planned, left, resumed = json.loads(printed.splitlines()[-1])
    assert planned[:2] == ["EnvironmentLacksError", 3]
    assert "runs/first" in planned[2]
    assert left == []
    assert resumed[:2] == ["EnvironmentLacksError", 3]
