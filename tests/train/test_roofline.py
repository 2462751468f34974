"""COI as measured equals COI as computed: in real processes, and in a real run that is placed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500.inventory import machine as system
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.roofline.model import WIRE_BYTES
from ai500.roofline.place_run import place_run
from ai500.roofline.records import KernelTime, LinkTime, RooflineRecord, RunPlacement
from ai500.roofline.traffic import on_grid
from tests.support.commands import SOURCE, Command
from tests.support.traffic_checks import RANKS_PER_NODE

PARAMETERS = 1024 * 512 + 512 + 512 * 768 + 768
CASES = {
    2: ["all_reduce:fp32", "all_reduce:fp16", "all_reduce:int8"],
    4: ["all_reduce:fp32", "all_reduce:fp16", "all_reduce:int8", "hierarchical:fp32",
        "hierarchical:bf16", "torus_2d:fp32"],
}  # fmt: skip


def ranks_tell(size: int, folder: Path) -> list[dict[str, Any]]:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.traffic_checks", str(folder / "store"),
             str(folder / "report"), *CASES[size]],
            cwd=SOURCE.parent,
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{SOURCE.parent}",
                 "OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": str(size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        output = "".join(rank.communicate(timeout=300)[0] for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), output
    return [json.loads((folder / f"report.{rank}").read_text()) for rank in range(size)]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.long)])
def test_counted_bytes_are_those_the_kernel_sent_and_those_of_theory(
    size: int, tmp_path: Path
) -> None:
    ranks = ranks_tell(size, tmp_path)
    nodes = [rank // RANKS_PER_NODE for rank in range(size)]
    for case in CASES[size]:
        mode, precision = case.split(":")
        gradient_bytes = WIRE_BYTES[precision] * PARAMETERS
        theory = on_grid(nodes, mode=mode, gradient_bytes=gradient_bytes)
        counted = {
            scope: sum(rank[case]["counted"][scope] for rank in ranks)
            for scope in ("inside_node", "between_nodes")
        }
        sent = sum(rank[case]["kernel"] for rank in ranks)
        total = counted["inside_node"] + counted["between_nodes"]
        assert total == pytest.approx(sent, rel=0.02), case
        assert counted["inside_node"] == pytest.approx(theory.inside_node, rel=0.02), case
        assert counted["between_nodes"] == pytest.approx(theory.between_nodes, rel=0.02), case


@pytest.fixture(scope="module")
def run_of_two(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One member of two ranks, to its end; what it sends is counted, not a library's own matter."""
    folder = tmp_path_factory.mktemp("of two")
    pairs = ["parallel.degree=2", "ensemble.size=1", "train.epochs=1", "train.batch_size=32",
             "system.accelerators_per_node=2", "system.cores_per_slot=1",
             "communication.precision=fp16", "scheduler.poll_seconds=0.05"]  # fmt: skip
    command = Command(
        "run", "--out", folder / "run", "--data", tiny_store,
        *(word for pair in pairs for word in ("--set", pair)),
        cwd=folder, environment={"TMPDIR": str(folder)},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    return folder / "run"


def machine(*, links: bool = True, cpu: str | None = None) -> RooflineRecord:
    """A roofline of this machine with numbers that are easy to check."""
    here = system.describe()
    kernels = (
        KernelTime("gemm", "fp32", "any", 10**12, 1.0, 5),
        KernelTime("gemm", "bf16", "any", 3 * 10**12, 1.0, 5),
    )
    times = (LinkTime("all_reduce", "inside_node", 2, 1, 10**6, 0.1, 5),) if links else ()
    return RooflineRecord(
        format=1, version="test", measured_at="2026-01-01T00:00:00+00:00", complete=True,
        system=replace(here, cpu=cpu or here.cpu), device="cpu", device_name="test", unit="core",
        units=2, seconds=1.0, kernels=kernels, links=times,
    )  # fmt: skip


def test_a_run_is_placed_by_the_bytes_it_sent(run_of_two: Path) -> None:
    placement = place_run(RunFolder.open(run_of_two), machine())
    assert placement.convention == "matmul"
    assert placement.traffic_source == "counted"
    assert placement.warnings == ()
    (member,) = placement.placed
    (link,) = member.links
    assert (member.model, member.ranks, link.scope) == ("single node", 2, "inside_node")
    assert link.coi is not None
    assert link.analytical_coi is not None
    assert link.coi == pytest.approx(link.analytical_coi, rel=0.02)
    # Two ranks of one core each of a machine of two: its whole ceiling; 10 MB/s from each of both.
    assert member.ceiling_flops == pytest.approx(1e12)
    assert link.bytes_per_second == pytest.approx(2e7)
    assert member.attainable_flops == pytest.approx(2e7 * link.coi)
    assert (member.bound, member.limit) == ("communication", "links inside a node")
    first = {advice.change: advice for advice in member.advice}
    assert "FP16 compression" not in first
    assert first["INT8 compression"].gain_at_roof == pytest.approx(2, rel=0.01)
    assert first["INT8 compression"].text.endswith("communication still bounds, at most 1.99×")
    assert first["training in mixed-bf16"].gain_at_roof == 1


def test_more_operations_for_each_byte_with_a_larger_batch(run_of_two: Path) -> None:
    plan = run_folder.read(Plan, RunFolder(run_of_two).plan)
    (link,) = place_run(RunFolder.open(run_of_two), machine()).placed[0].links
    assert link.coi is not None
    per_sample = 14065152 + 27632640  # smoke, by the convention matmul
    assert link.bytes_per_step == pytest.approx(2 * 2 * 78172, rel=0.02)
    expected = plan.global_batch_size * per_sample / (2 * 2 * 78172)
    assert link.coi == pytest.approx(expected, rel=0.02)


def test_another_machines_roofline_and_unmeasured_links_are_reported(run_of_two: Path) -> None:
    placement = place_run(RunFolder.open(run_of_two), machine(links=False, cpu="another CPU"))
    another, unmeasured = placement.warnings
    assert "of another machine" in another
    assert "were not measured" in unmeasured
    member = placement.placed[0]
    assert member.bound == "not known"
    advice_by_change = {advice.change: advice for advice in member.advice}
    assert advice_by_change["INT8 compression"].gain_at_roof is None
    assert "gain unknown" in advice_by_change["training in mixed-bf16"].text


def test_the_command_writes_page_record_and_report(run_of_two: Path, tmp_path: Path) -> None:
    ceilings = tmp_path / "here.json"
    run_folder.write(ceilings, machine())
    command = Command(
        "roofline", "--run", run_of_two, "--ceilings", ceilings,
        cwd=tmp_path, environment={"NO_COLOR": "1", "COLUMNS": "80"},
    )  # fmt: skip
    assert command.wait() == 0, command.err
    shown = " ".join(command.out.split())
    assert "communication (links inside a node) bounds it" in shown
    assert "INT8 compression: COI ×1.99, communication still bounds, at most 1.99×" in shown
    names = (str(run_of_two), str(ceilings))
    assert all(len(line) <= 80 for line in command.out.splitlines()
               if not any(name in line for name in names))  # fmt: skip
    run_folder.read(RunPlacement, run_of_two / "roofline.json")
    assert "<h2>Roofline</h2>" in (run_of_two / "report.html").read_text(encoding="utf-8")
    assert (run_of_two / "roofline.html").exists()


def test_one_rank_sends_nothing(finished_run: Path) -> None:
    placement = place_run(RunFolder.open(finished_run), machine())
    assert placement.traffic_source == "none"
    member, ensemble = placement.placed
    assert member.links == ensemble.links == ()
    assert member.bound == "computation"
    assert ensemble.ceiling_flops == pytest.approx(2 * member.ceiling_flops)
    assert not any("compression" in advice.change for advice in member.advice)
