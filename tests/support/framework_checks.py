"""Checks of a framework beside PyTorch: equal steps, equal counts, members trained and resumed.

A test file per framework calls these, with the framework's name in configurations.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ai500.core import events
from ai500.metrics.statistics import welch
from ai500.operations import Op, Shapes, Trace, count, count_trace, with_loss
from ai500.operations.graph import graph_sha256
from ai500.operations.published import AIPERF_TABLE_III
from ai500.operations.torch_trace import trace
from ai500.records import Operations, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.workloads.models.resnet import resnet50
from tests.support import reference_steps
from tests.support.commands import SOURCE, TINY, Start, wait_for
from tests.support.interpreters import interpreter
from tests.support.reference_steps import (
    RESNET_50,
    Case,
    bottlenecks,
    largest_difference,
    texts,
)
from tests.support.submitted import packed

LIMIT = 1500
"""Seconds after which a command has hung; one on a busy machine takes a tenth of it."""
REFERENCE_QUALITIES = (0.8844, 0.8924, 0.8859)
"""Top-1 accuracy of PyTorch's trials at the settings of `check_entry` (docs/frameworks.md)."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
STEP_CASES = {
    "FP64": Case(),
    "FP32": Case(dtype="float32", steps=3),
    "bottlenecks v1": bottlenecks("v1"),
    "bottlenecks v1.5": bottlenecks("v1.5"),
    "ResNet-50": RESNET_50,
}
TEXT_CASES = {"FP64": texts(), "FP32": texts(dtype="float32", steps=3)}
"""Steps of the language model, for frameworks that have it."""
NOT_IMPORTED = {"torch", "h5py", "PIL", "psutil", "typer", "rich", "jinja2"}


def check_steps(
    framework: str, case: Case, folder: Path, *, own_modules: frozenset[str] = frozenset()
) -> None:
    """Compare steps with PyTorch's; the framework itself imports `own_modules`."""
    own_steps, extras = reference_steps.of_framework(
        framework, interpreter(framework), case, folder
    )
    ours = reference_steps.reference(case)
    differences = largest_difference(own_steps, ours)
    # Predictions are FP32 in every type.
    assert differences.pop("predictions") < 1e-4
    assert max(differences.values()) < TOLERANCE[case.dtype], differences
    # The momenta after the first step are its gradients: they moved.
    moved = [name for name in own_steps.states[0] if name.startswith("momentum.")]
    assert max(np.abs(own_steps.states[0][name]).max() for name in moved) > 1e-4
    model = reference_steps.fresh_model(case)
    kind = torch.int64 if case.definition.input_dtype == "int64" else torch.float32
    example = torch.zeros(2, *case.input_shape, dtype=kind)
    assert str(extras["graph_sha256.2"]) == graph_sha256(trace(model, example))
    loaded = set(json.loads(str(extras["modules"])))
    assert not loaded & (NOT_IMPORTED - own_modules)


def check_mixed_bf16(framework: str, folder: Path) -> None:
    """Compare mixed-precision steps with PyTorch's in FP32: close, not equal, the same graph."""
    case = Case(dtype="float32", precision="mixed-bf16", steps=3)
    own_steps, extras = reference_steps.of_framework(
        framework, interpreter(framework), case, folder
    )
    differences = largest_difference(own_steps, reference_steps.reference(case))
    assert differences.pop("predictions") < 1e-3
    # A BF16 number has 8 bits: the reference here computes in FP32.
    assert 1e-4 < max(differences.values()) < 0.01, differences
    assert {array.dtype for state in own_steps.states for array in state.values()} == {
        np.dtype("float32")
    }
    model = reference_steps.fresh_model(case)
    assert str(extras["graph_sha256.2"]) == graph_sha256(trace(model, (2, *case.input_shape)))


IMPORT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.import_ai500()
"""
SMOKE_BACKEND = """
from ai500.frameworks.{framework}_backend import make_backend
from ai500.frameworks.backend import Setting
from ai500.train.worker import Rank
from ai500.workloads.image_classification import CLASSES
from ai500.workloads.models.resnet_layers import class_resnet, initial_weights
smoke = CLASSES["smoke"]
weights = initial_weights(class_resnet(smoke), seed=1)
setting = Setting(smoke, smoke.reference, weights, Rank(0, 0, 1, 1), "cpu", 1)
backend = make_backend(setting)
"""


def output_of(framework: str, code: str, **environment: str) -> str:
    """Run code in the framework's interpreter, `ai500` imported as in a worker; return its output.

    `backend` is the framework's, of class `smoke` on one core.
    """
    code = IMPORT + SMOKE_BACKEND.format(framework=framework) + code
    done = subprocess.run(
        [interpreter(framework), "-c", code, SOURCE / "ai500/frameworks/start_worker.py"],
        capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


COUNT = """
import dataclasses, json
from ai500.frameworks.{framework}_backend import trace_model
from ai500.workloads.models.resnet_layers import resnet50
for version in ("v1", "v1.5"):
    trace = trace_model(resnet50(version=version), (1, 3, 224, 224), dtype="float32")
    print(json.dumps(dataclasses.asdict(trace)))
"""


def check_counts(framework: str) -> None:
    """Compare the counts of ResNet-50 v1 and v1.5 with the published table and PyTorch's."""
    output = output_of(framework, COUNT.format(framework=framework))
    v1, v1_5 = map(_trace, output.splitlines()[-2:])
    counted = count_trace(with_loss(v1, "softmax"), convention="aiperf")
    assert not counted.unknown
    for kind, row in AIPERF_TABLE_III.items():
        ours = counted if kind == "total" else counted.by_kind[kind]
        for direction in {"forward", "backward"} - row.recorded:
            assert f"{getattr(ours, direction):.2e}" == f"{getattr(row, direction):.2e}", kind
    for version, traced in (("v1", v1), ("v1.5", v1_5)):
        model: Any = resnet50(version=version)  # type: ignore[arg-type]
        expected = count(model, (1, 3, 224, 224), loss="softmax")
        counted = count_trace(with_loss(traced, "softmax"), convention="aiperf")
        assert counted.as_record() == expected.as_record()
        assert graph_sha256(traced) == graph_sha256(trace(model, (1, 3, 224, 224)))


def _trace(line: str) -> Trace:
    data = json.loads(line)
    ops = tuple(
        Op(**{**op, "shapes": Shapes(**{k: _tuples(v) for k, v in op["shapes"].items()})})
        for op in data.pop("ops")
    )
    return Trace(ops=ops, **data | {"outputs": _tuples(data["outputs"])})


def _tuples(shapes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, shapes))


def settings(
    store: Path,
    *,
    framework: str,
    workload: str = "image_classification",
    degree: int = 1,
    size: int = 1,
    epochs: int = 4,
) -> list[str | Path]:
    values = {
        "parallel.degree": degree,
        "ensemble.size": size,
        "train.epochs": epochs,
        "train.checkpoint_minutes": 0.002,
        "scheduler.poll_seconds": 0.05,
        "system.device": "cpu",
        "system.accelerators_per_node": degree * size,
        "system.cores_per_slot": 1,
        "framework.kind": framework,
    }
    if framework != "pytorch":
        values["framework.python"] = interpreter(framework)
    pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return ["--workload", workload, "--data", store, *pairs]


def record(run: Path, member: int = 0) -> TrainRecord:
    return run_folder.read(TrainRecord, RunFolder(run).trial(1).member(member).record)


def check_resume(
    framework: str,
    tiny_store: Path,
    start: Start,
    tmp_path: Path,
    *,
    workload: str = "image_classification",
    degree: int = 1,
) -> None:
    """Stop a member by SIGTERM and resume it: the weights are an uninterrupted run's."""
    words = settings(tiny_store, framework=framework, workload=workload, degree=degree)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    command = start("run", "--out", whole, *words)
    assert command.wait(timeout=LIMIT) == 0, command.err
    command = start("run", "--out", halves, *words)
    log = RunFolder(halves).trial(1).member(0).events
    wait_for(log, "epoch", timeout=LIMIT)
    command.interrupt()
    command.wait()
    wait_for(log, "interrupted", timeout=1)
    _check_foreign_checkpoint(halves, start)
    command = start("resume", halves)
    assert command.wait(timeout=LIMIT) == 0, command.err
    wait_for(log, "resumed", timeout=1)
    straight, resumed = record(whole), record(halves)
    assert straight.weights_sha256 == resumed.weights_sha256
    assert straight.quality == resumed.quality
    assert straight.samples == resumed.samples == 4 * (TINY["train"] // 64) * 64
    assert straight.effective["framework"]["name"] == framework
    assert straight.effective["data"]["staged"] and "torch" not in straight.versions
    counted = next(e for e in events.read(log) if e["event"] == "operations")
    assert straight.operations == Operations(
        **{k: v for k, v in counted.items() if k in Operations.__dataclass_fields__}
    )


def _check_foreign_checkpoint(run: Path, start: Start) -> None:
    """Put PyTorch's checkpoint beside a stopped member's own: no job is started."""
    member = RunFolder(run).trial(1).member(0)
    before = member.events.read_bytes()
    member.checkpoint.write_bytes(b"PyTorch's")
    command = start("resume", run)
    assert command.wait(timeout=LIMIT) == 2 and str(member.checkpoint) in command.err
    assert member.events.read_bytes() == before
    member.checkpoint.unlink()


def check_two_ranks(
    tested: str, backend: str, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Train a member on two ranks, in PyTorch too: the epochs' losses agree."""
    losses = {}
    for framework in (tested, "pytorch"):
        run = tmp_path / framework
        words = settings(tiny_store, framework=framework, degree=2, epochs=2)
        command = start("run", "--out", run, *words)
        assert command.wait(timeout=LIMIT) == 0, command.err
        log = events.read(RunFolder(run).trial(1).member(0).events)
        losses[framework] = [event["loss"] for event in log if event["event"] == "epoch"]
        assert record(run).world_size == 2
    assert np.allclose(losses[tested], losses["pytorch"], rtol=1e-3), losses
    communication = record(tmp_path / tested).effective["communication"]
    assert (communication["backend"], communication["mode"]) == (backend, "all_reduce")


def check_rerun(framework: str, tiny_store: Path, start: Start, tmp_path: Path) -> None:
    """Repeat submitted members: they train in the submission's framework, to the same weights."""
    run, again = tmp_path / "run", tmp_path / "again"
    words = settings(tiny_store, framework=framework, size=2, epochs=1)
    command = start("run", "--out", run, *words)
    assert command.wait(timeout=LIMIT) == 0, command.err
    file = packed(RunFolder(run), tmp_path / "s.ai500")
    command = start(
        "verify", file, "--rerun", "--members", "2", "--out", again, "--data", tiny_store,
        "--set", f"framework.python={interpreter(framework)}", "--json",
    )  # fmt: skip
    assert command.wait(timeout=LIMIT) in (0, 1), command.err  # 1 where the second run was slower
    _, quality = json.loads(command.out)["replication"]["comparisons"]
    assert quality["repeated"] == quality["claimed"]
    for member in (0, 1):
        submitted, repeated = record(run, member), record(again, member)
        assert repeated.effective["framework"] == submitted.effective["framework"]
        assert repeated.effective["framework"]["name"] == framework
        assert repeated.weights_sha256 == submitted.weights_sha256


def check_entry(framework: str, start: Start, tmp_path: Path) -> None:
    """Class `smoke`, nothing made smaller: run, judged at two levels, submitted, verified, ranked.

    At hardware level only the framework is in its way.
    """
    run, folder, site = tmp_path / "run", tmp_path / "submissions", tmp_path / "list"
    folder.mkdir()
    file = folder / f"{framework}.ai500"
    words: list[str | Path] = ["run", "--runs", "valid", "--out", run]
    chosen = {
        "framework.kind": framework,
        "framework.python": interpreter(framework),
        "system.device": "cpu",
        # An official entry trains its ensemble at once: on two slots two members share each [D11].
        "parallel.degree": 1,
        "ensemble.members_per_accelerator": 2,
        "system.accelerators_per_node": 2,
        "system.cores_per_slot": 1,
    }
    words += [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
    for command in (
        words,
        ("check", run, "--level", "system"),
        ("submit", run, "--level", "system", "--out", file, "--name", "A. Tester"),
        ("verify", file),
        ("rank", folder, "--out", site),
    ):
        done = start(*command)
        assert done.wait(timeout=4 * LIMIT) == 0, done.out + done.err
    hardware = start("check", run, "--level", "hardware", "--json")
    assert hardware.wait(timeout=LIMIT) != 0
    broken = [f for f in json.loads(hardware.out)["findings"] if f["severity"] == "violation"]
    assert {finding["rule"] for finding in broken} == {"same framework"}, broken
    score = json.loads((run / "score.json").read_text())
    # Trial by trial the reference's bootstraps, order and initial weights.
    qualities = [trial["ensemble_quality"] for trial in score["trials"]]
    assert welch(REFERENCE_QUALITIES, qualities).p_value > 0.05, qualities
    spread = max(REFERENCE_QUALITIES) - min(REFERENCE_QUALITIES)
    assert abs(fmean(qualities) - fmean(REFERENCE_QUALITIES)) < spread, qualities
    version = record(run).versions[framework]
    assert f"{framework} {version}" in (site / "data" / "list.js").read_text()
