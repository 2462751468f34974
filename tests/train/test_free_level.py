"""The example of docs/free-level.md: trained, counted, recorded and judged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ai500.core import events
from ai500.operations.shipped import shipped_model, shipped_operations
from tests.support.commands import REPOSITORY, Start

EXAMPLE = REPOSITORY / "docs" / "examples" / "free-level"


def findings(start: Start, run: Path, level: str) -> dict[str, set[tuple[str, str]]]:
    """Return severity → (rule, value of the run) of what `check` finds."""
    command = start("check", run, "--level", level, "--json")
    assert command.wait() == 1, "too few trials"
    by_severity: dict[str, set[tuple[str, str]]] = {"violation": set(), "note": set()}
    for finding in json.loads(command.out)["findings"]:
        by_severity[finding["severity"]].add((finding["rule"], finding["run"]))
    return by_severity


def test_the_example_is_trained_counted_recorded_and_judged(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = start(
        "run", "--config", EXAMPLE / "ai500.toml", "--out", run, "--data", tiny_store,
        "--set", "train.epochs=1", "--set", "ensemble.size=1", "--set", "parallel.degree=1",
        "--set", "train.warmup_epochs=0", "--set", "system.scale=1",
    )  # fmt: skip
    assert command.wait() == 0, command.out + command.err
    member = run / "trials/01/members/000"
    record: dict[str, Any] = json.loads((member / "record.json").read_text())
    source = (EXAMPLE / "my_parts.py").read_text()
    assert record["effective"]["own_code"] == {
        part: {"code": f"my_parts:{name}", "source": source,
               "sha256": hashlib.sha256(source.encode()).hexdigest()}
        for part, name in (("model", "narrow_network"), ("optimizer", "nesterov"),
                           ("loss", "focal_loss"))
    }  # fmt: skip
    # 3·32·9 + 2·32 + 32·64·9 + 2·64 + 64·128·9 + 2·128 + 128·12 + 12
    classes = 12
    parameters = 864 + 64 + 18432 + 128 + 73728 + 256 + 128 * classes + classes
    assert record["effective"]["model"]["parameters"] == parameters
    assert record["operations"]["parameters"] == parameters
    shipped = shipped_operations("image_classification", "smoke")
    assert shipped is not None
    (counted,) = [e for e in events.read(member / "events.jsonl") if e["event"] == "operations"]
    assert 0 < counted["forward_per_sample"] != shipped.forward_per_sample
    model = shipped_model("image_classification", "smoke")
    assert model is not None
    assert record["effective"]["model"]["graph_sha256"] != model.graph_sha256

    own = {("same model", "my_parts:narrow_network"), ("same model", "my_parts:focal_loss")}
    hardware, free = (findings(start, run, level) for level in ("hardware", "free"))
    assert own <= hardware["violation"]
    assert own <= free["note"]
    assert not {rule for rule, _ in free["violation"]} & {"same model", "open code"}
