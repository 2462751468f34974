"""The soak finds a defect that was planted on purpose, and nothing wrong without it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ai500.records.checkpoint_file import generations
from ai500.records.run_folder import RunFolder
from tests.soak.ensembles import Ensemble
from tests.soak.faults import FLIPPED_BYTE, Fault, Flip
from tests.soak.scenario import IDENTICAL, Scenario, Site, Tally, WrongError
from tests.support.commands import SOURCE, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
SMALL = Ensemble("image_classification", (128, 64), epochs=12, size=1)


def resume_with_damaged_checkpoints(folder: Path, source: Path) -> str:
    """Stop a run, flip a byte in the middle of each checkpoint, and let the soak compare it."""
    folder.mkdir()
    scenario = Scenario(Site(folder, SMALL, source=source), Tally(), random.Random(1))
    command = scenario.begin()
    member = RunFolder(scenario.run).trial(1).member(0)
    wait_for(member.events, "epoch", where=lambda event: event["epoch"] == 3)
    command.interrupt()
    assert scenario.site.end(command) == 130
    for path in generations(member.checkpoint):
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 64
        path.write_bytes(changed)
        scenario.flips.append(
            Flip(Fault(FLIPPED_BYTE, "checkpoint"), path, content, bytes(changed))
        )
    return scenario.resume_and_compare()[0]


def test_a_planted_defect_makes_the_soak_fail(tmp_path: Path) -> None:
    planted = Path(shutil.copytree(SOURCE, tmp_path / "planted"))
    module = planted / "ai500/records/checkpoint_file.py"
    good = module.read_text(encoding="utf-8")
    check = 'if digest != seal["sha256"]:'
    assert good.count(check) == 1
    module.write_text(good.replace(check, "if False:"), encoding="utf-8")
    with pytest.raises(WrongError, match="another result"):
        resume_with_damaged_checkpoints(tmp_path / "with", planted)
    assert resume_with_damaged_checkpoints(tmp_path / "without", SOURCE) == IDENTICAL
