"""Rounds of messages, timeline, and projections with the real SimGrid."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from typer.testing import CliRunner

from ai500.cli import app as command_line
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.projection import answers, application, platform, simulator, timeline, traffic
from ai500.projection.model import Projector, Settings, degrees, speed_factor
from ai500.projection.planned_time import projected_time
from ai500.projection.quality_curve import QualityCurve
from ai500.records import Plan, run_folder
from ai500.roofline.traffic import in_mode

pytestmark = pytest.mark.slow  # starts SimGrid
MODES = (
    "all_reduce", "hierarchical", "torus_2d", "ring", "double_binary_tree", "butterfly",
    "parameter_server",
)  # fmt: skip
H200 = Path(__file__).parents[3] / "docs/examples/h200"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per_node", [1, 2, 4])
def test_rounds_send_the_bytes_of_the_formula(mode: str, per_node: int) -> None:
    nodes = [rank // per_node for rank in range(16)]
    rounds = traffic.rounds(mode, nodes, buffer=1600.0, library=True)
    sent: Counter[bool] = Counter()
    for item in rounds:
        for sender, receiver, size in item.transfers:
            sent[nodes[sender] == nodes[receiver]] += size * item.times  # type: ignore[assignment]
    expected = in_mode(nodes, mode=mode, gradient_bytes=1600.0)
    assert expected is not None
    # A parameter server's clients are sampled: those of one node stand for others.
    loose = 0.5 if mode == "parameter_server" else 1e-9
    assert sent[False] == pytest.approx(expected.between_nodes, rel=loose)
    assert sent[True] + sent[False] == pytest.approx(
        expected.inside_node + expected.between_nodes, rel=1e-9
    )


@pytest.mark.parametrize("kind", ["fat_tree", "dragonfly"])
@pytest.mark.parametrize(("mode", "nodes"), [*((mode, 96) for mode in MODES), ("butterfly", 128)])
def test_a_part_of_the_nodes_stands_for_all(
    mode: str, kind: platform.TopologyKind, nodes: int
) -> None:
    topology = platform.Topology(kind, leaf=8, uplinks=4, radix=64, switches=4, endpoints=4)
    system = replace(platform.read("cluster-100gbe"), topology=topology)
    assert folding(mode, system, nodes, part=64) == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize(
    ("mode", "nodes"),
    [("all_reduce", 113), ("hierarchical", 113), ("hierarchical", 125), ("torus_2d", 125),
     ("butterfly", 125)],
)  # fmt: skip
def test_a_folded_torus_keeps_its_long_sides(
    mode: str, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers of 5 × 5 of five; of the prime number the last one is not full."""
    monkeypatch.setattr(platform, "FOLDED_NODES", 32)
    torus = replace(platform.read("frontier"), rails=1, topology=platform.Topology("torus"))
    part = platform.folded_nodes(torus, nodes)
    assert part == {125: 50, 113: 38}[nodes]
    assert folding(mode, torus, nodes, part=part) == pytest.approx(1, rel=0.25)


def folding(mode: str, system: platform.Platform, nodes: int, *, part: int) -> float:
    """Return the seconds of a part of the nodes over those of all."""
    ranks = [rank // 2 for rank in range(2 * nodes)]
    folded, whole = (
        simulator.collective_seconds(
            system,
            ranks,
            [traffic.rounds(mode, ranks, buffer=1e9, library=True, most_nodes=most)],
        )[0]
        for most in (part, None)
    )
    return folded / whole


def test_ranks_of_a_divided_model_skip_nodes_where_they_are_folded() -> None:
    """A pipeline of 24 on nodes of 8: every third node, and none is the 1,024th."""
    nodes = list(range(0, 3 * 500, 3))
    assert traffic.folded_ranks(nodes, most_nodes=1024) == 342


def test_a_plugins_mode_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        traffic.rounds("gossip", [0, 1], buffer=1.0, library=False)
    assert caught.value.key == "communication.mode"


def test_buckets_overlap_with_computation() -> None:
    step = timeline.overlapped_step
    assert step(compute=1.0, ready=[0.5, 1.0], reduce=[0.2, 0.2]) == pytest.approx(1.2)
    assert step(compute=1.0, ready=[0.5, 1.0], reduce=[2.0, 2.0]) == pytest.approx(4.5)
    assert step(compute=1.0, ready=[], reduce=[]) == 1.0


def test_failures_lengthen_the_window_and_more_members_wait_longer() -> None:
    failing = partial(
        timeline.with_failures, 1e4, mtbf=1e5, interval=1000.0, checkpoint=10.0, requeue=120.0,
        seed=1,
    )  # fmt: skip
    few, many = failing(members=1), failing(members=10_000)
    assert 1e4 < few[0] < many[0]
    assert many[1] <= many[0] <= many[2]


def test_simulated_failures_agree_with_dalys_expectation() -> None:
    """Daly, 2006: MTBF · e^(requeue / MTBF) · (e^((interval + cost) / MTBF) − 1) · work / interval.

    One member, many trials: the mean is between the percentiles, and near the median.
    """
    work, mtbf, interval, cost, requeue = 1e5, 2e3, 200.0, 10.0, 60.0
    ends = timeline.with_failures(
        work, members=1, mtbf=mtbf, interval=interval, checkpoint=cost, requeue=requeue, seed=1,
        trials=401,
    )  # fmt: skip
    segment = mtbf * math.exp(requeue / mtbf) * (math.exp((interval + cost) / mtbf) - 1)
    assert ends[0] == pytest.approx(segment * work / interval, rel=0.02)
    assert ends[1] < ends[0] < ends[2]


def test_a_member_that_fails_before_each_checkpoint_never_ends() -> None:
    ends = timeline.with_failures(
        1e5, members=2, mtbf=100.0, interval=1000.0, checkpoint=10.0, requeue=60.0, seed=1
    )
    assert math.isinf(ends[0])


def test_groups_of_a_divided_model_share_the_ports_of_a_node() -> None:
    system, nodes = platform.read("cluster-100gbe"), list(range(8))
    rounds = traffic.rounds("ring", nodes, buffer=1e9, library=True)
    (alone,) = simulator.collective_seconds(system, nodes, [rounds])
    (shared,) = simulator.collective_seconds(system, nodes, [rounds], sharing=4)
    assert shared == pytest.approx(4 * alone, rel=0.01)
    app = application.read(H200)
    whole = Projector(app, system).project(accelerators=64, degree=64)
    divided = Projector(app, system, Settings(tensor_degree=8, activation_bytes=1.0)).project(
        accelerators=64, degree=64
    )
    # An eighth of the gradients on each rank, eight of them in a node: the same bytes per port.
    # (7/8 of them instead of 63/64, and in fewer rounds.)
    assert 0.6 * whole.reduce_seconds < divided.reduce_seconds < whole.reduce_seconds


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("ready", [0.2, 0.6])
def test_the_overlap_of_a_profile_is_found_again(buckets: int, ready: float) -> None:
    step = timeline.bucketed_step(1.0, reduce=2.0, buckets=buckets, forward=ready)
    found = timeline.first_bucket(1.0, reduce=2.0, buckets=buckets, step=step)
    again = timeline.bucketed_step(1.0, reduce=2.0, buckets=buckets, forward=found)
    assert again == pytest.approx(step)


def test_members_that_read_the_shared_file_system_wait_for_it() -> None:
    app = application.read(H200)
    system = replace(platform.read("dgx-h100-superpod"), file_system_bytes_per_second=1e9)
    staged = Projector(app, system).project(accelerators=64, degree=8)
    direct = Projector(app, system, Settings(staged=False)).project(accelerators=64, degree=8)
    # 8 nodes share 1 GB/s; a node's step is 8 × 128 images of two members each.
    assert direct.input_seconds == pytest.approx(8 * 2 * 8 * 128 * app.sample_bytes / 1e9)
    assert direct.step_seconds == direct.input_seconds > staged.step_seconds
    assert (direct.staging_seconds, staged.input_seconds, direct.bound) == (0.0, 0.0, "input")
    gains = {gain.part: gain.flops_gain for gain in answers.gains(
        Projector(app, system, Settings(staged=False)), direct)}  # fmt: skip
    assert gains["file system"] > 1.8 > gains["accelerator"]


def test_a_checkpoint_has_the_weights_and_the_optimizers_state() -> None:
    """SGD with momentum: two copies of the weights of both members of an accelerator, in FP32."""
    app, plan = application.read(H200), run_folder.read(Plan, H200 / "plan.json")
    assert plan.operations is not None and plan.hyperparameters.optimizer == "sgd"
    assert app.checkpoint_bytes == 2 * 2 * 4 * plan.operations.parameters


def test_steps_wait_for_a_checkpoint_only_while_the_last_one_is_written() -> None:
    app = application.read(H200)
    app = replace(app, checkpoint_interval_seconds=10.0, epochs=100 * app.epochs)
    system = platform.read("dgx-h100-superpod")
    slow = replace(system, file_system_bytes_per_second=app.checkpoint_bytes * 8 / 25.0)
    behind, waiting = (
        Projector(app, each).project(accelerators=64, degree=8) for each in (system, slow)
    )
    # Eight members write at once: 25 s for a checkpoint every 10 s, so that each adds 15 s.
    assert waiting.checkpoint_seconds == pytest.approx(25.0)
    assert behind.checkpoint_seconds < 10.0
    every = math.floor(behind.seconds / 10.0)
    assert every > 3
    assert waiting.seconds - behind.seconds == pytest.approx(15.0 * every)
    seldom = replace(app, checkpoint_interval_seconds=1e6)
    alone = Projector(seldom, slow).project(accelerators=64, degree=8)
    assert alone.seconds == pytest.approx(behind.seconds)


def test_members_of_a_node_share_its_ports_when_they_write() -> None:
    """8 GB/s of a node, 1.2 TB/s of the store: eight members of one accelerator get 1 GB/s each."""
    app = replace(application.read(H200), checkpoint_bytes=8e9)
    system = replace(platform.read("dgx-h100-superpod"), file_system_bytes_per_second=1.2e12)
    seconds = {
        degree: Projector(app, system).project(accelerators=64, degree=degree).checkpoint_seconds
        for degree in (1, 8, 64)
    }
    assert seconds == pytest.approx({1: 8.0, 8: 1.0, 64: 1.0})


def test_larger_checkpoints_cost_more_where_nodes_fail() -> None:
    """At Young's interval √(2 · cost · MTBF) a window is longer by about √(2 · cost / MTBF)."""
    app, system = application.read(H200), platform.read("dgx-h100-superpod")
    work, mtbf = Projector(app, system).project(accelerators=8, degree=8).seconds, 1e4
    app = replace(app, epochs=round(200 * mtbf / work) * app.epochs)
    without = Projector(app, system).project(accelerators=8, degree=8)
    for cost in (1.0, 10.0):
        point = Projector(
            # A node writes 8 GB/s.
            replace(app, checkpoint_bytes=8e9 * cost),
            system,
            Settings(node_mtbf_seconds=mtbf, requeue_seconds=0.0),
        ).project(accelerators=8, degree=8)
        assert point.checkpoint_seconds == pytest.approx(cost)
        longer = point.seconds / without.seconds - 1
        assert longer == pytest.approx(math.sqrt(2 * cost / mtbf), rel=0.2)


def test_fsdp2_gathers_weights_twice_for_each_part_of_a_batch() -> None:
    """And reduces gradients once: 2 a + 1 half rings, where an all-reduce is two."""
    app, system = application.read(H200), platform.read("cluster-100gbe")

    def reduce_seconds(accumulation: int, settings: Settings) -> float:
        work = replace(app, accumulation=accumulation)
        return Projector(work, system, settings).project(accelerators=64, degree=64).reduce_seconds

    ring = reduce_seconds(1, Settings(mode="ring"))
    for accumulation in (1, 4):
        sharded = reduce_seconds(accumulation, Settings(sharded=True))
        assert sharded == pytest.approx(ring * (2 * accumulation + 1) / 2)


def test_an_accumulated_batch_hides_less_of_the_averaging(tmp_path: Path) -> None:
    """Only the last part's backward pass averages gradients."""
    run = changed_run(tmp_path, lambda plan: plan["hyperparameters"].update(accumulation=4))
    parts, whole = application.read(run), application.read(H200)
    assert (parts.accumulation, parts.batch_size) == (4, 4 * whole.batch_size)
    assert whole.gradients_ready == pytest.approx(1 / 3)
    assert parts.gradients_ready == pytest.approx(1 - 2 / 3 / 4)


def test_an_evaluation_is_as_long_as_the_run_measured_it() -> None:
    """A run of P_degree 4 measured evaluations that four accelerators share."""
    app, system = application.read(H200), platform.read("dgx-h100-superpod")
    shared = replace(app, evaluation_seconds=app.evaluation_seconds / 4, run_data_degree=4)
    alone, same = (
        Projector(each, system).project(accelerators=8, degree=8) for each in (app, shared)
    )
    assert alone.seconds == pytest.approx(same.seconds)


def test_members_that_share_a_nodes_ports_are_refused() -> None:
    projector = Projector(application.read(H200), platform.read("dgx-h100-superpod"))
    with pytest.raises(InputError) as caught:
        projector.project(accelerators=24, degree=12)
    assert caught.value.key == "P_degree"
    assert degrees(24, per_node=6) == [1, 2, 3, 6, 12, 24]


def test_a_divided_runs_record_gives_its_activations(tmp_path: Path) -> None:
    counted = {"samples": 1000, "tensor": {"bytes": 6e6, "calls": 40},
               "pipeline": {"bytes": 8e6, "calls": 4}}  # fmt: skip
    run = changed_run(
        tmp_path, lambda plan: plan["parallel"].update(tensor_degree=2, pipeline_degree=3)
    )
    for path in run.glob("trials/01/members/*/record.json"):
        record = json.loads(path.read_text())
        record["effective"]["parallel"]["activations"] = counted
        path.write_text(json.dumps(record))
    known = application.read_all(H200, [], activations=run).activations
    assert known is not None and (known.tensor_degree, known.pipeline_degree) == (2, 3)
    assert known.tensor_bytes == 6e6 / 1000 / 2  # two ranks send 2 (2 − 1) buffers
    assert known.cut_bytes == 8e6 / 1000 / 4 / 2  # two cuts, both ways, by each of two ranks
    with pytest.raises(InputError) as caught:
        application.read_all(H200, [], activations=H200)
    assert caught.value.key == "--activations"


def test_simgrid_agrees_with_the_ring_formula_on_a_star() -> None:
    system = platform.read("cluster-100gbe")
    nodes = list(range(8))
    rounds = traffic.rounds("ring", nodes, buffer=1e9, library=True)
    (seconds,) = simulator.collective_seconds(system, nodes, [rounds])
    expected = 14 * (20e-6 + 1e9 / 8 / 12.5e9)
    assert seconds == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", ["torus", "dragonfly"])
def test_every_topology_carries_messages(kind: str) -> None:
    system = platform.read("frontier")
    if kind == "torus":
        system = replace(system, rails=1, topology=platform.Topology("torus"))
    (seconds,) = simulator.collective_seconds(
        system, list(range(16)), [[traffic.Round([(0, 15, 1e9)], 1)]]
    )
    rate = system.rails * system.rail_bytes_per_second
    assert 1e9 / rate <= seconds < 1e9 / rate + 1e-4


@pytest.mark.parametrize(
    ("kind", "receiver", "switches"),
    [("fat_tree", 3, 0), ("fat_tree", 4, 2), ("fat_tree", 127, 4),
     ("dragonfly", 3, 0), ("torus", 1, 0), ("torus", 2, 1)],
)  # fmt: skip
def test_a_message_pays_its_ports_once_and_each_switch_on_its_way(
    kind: platform.TopologyKind, receiver: int, switches: int
) -> None:
    """4 nodes on a leaf, 16 in a pod, and more beyond; 128 nodes are a torus of 8 × 4 × 4."""
    topology = platform.Topology(kind, leaf=4, uplinks=4, radix=8, switches=4, endpoints=4)
    system = replace(
        platform.read("cluster-100gbe"), topology=topology, nodes=128, rail_latency_seconds=20e-6,
        switch_latency_seconds=1e-6,
    )  # fmt: skip
    nodes = 128 if kind != "dragonfly" else 64
    everyone = {(nodes - 1, 0): 1.0}
    ((seconds, _),) = simulator.simulate(system, nodes, [[{(0, receiver): 1.0}, everyone]])
    assert seconds == pytest.approx(20e-6 + switches * 1e-6, rel=1e-3)


def test_staging_is_bound_by_the_file_system_or_the_node() -> None:
    stage = simulator.staging_seconds
    assert stage(nodes=2, bytes_per_node=1e9, file_system=1e10, node=1e9) == pytest.approx(1.0)
    assert stage(nodes=20, bytes_per_node=1e9, file_system=1e10, node=1e9) == pytest.approx(2.0)
    assert stage(nodes=5000, bytes_per_node=1e9, file_system=1e12, node=1e9) == pytest.approx(5.0)


def test_a_run_projected_to_its_own_machine_has_its_own_flops() -> None:
    app = application.read(H200)
    system = replace(platform.read("dgx-h100-superpod"), accelerator="NVIDIA H200")
    point = Projector(app, system).project(accelerators=1, degree=1)
    assert point.ensemble_size == app.run_members == 2
    assert point.flops == pytest.approx(app.run_flops, rel=0.05)
    assert point.seconds == pytest.approx(app.run_seconds, rel=0.05)


def test_an_ensemble_scales_better_than_one_model() -> None:
    app = application.read(H200)
    projector = Projector(app, platform.read("cluster-100gbe"))
    ensemble = projector.project(accelerators=128, degree=8)
    single = projector.project(accelerators=128, degree=128)
    assert ensemble.efficiency > single.efficiency
    assert ensemble.exposed_seconds < single.exposed_seconds
    assert ensemble.quality_extrapolated


def test_half_the_bytes_take_half_the_time_on_a_slow_network() -> None:
    app, system = application.read(H200), platform.read("cluster-100gbe")
    full = Projector(app, system).project(accelerators=64, degree=64)
    half = Projector(app, system, Settings(precision="fp16")).project(accelerators=64, degree=64)
    assert 0.5 * full.reduce_seconds <= half.reduce_seconds < 0.7 * full.reduce_seconds


def test_a_pipeline_needs_its_activations() -> None:
    app, system = application.read(H200), platform.read("cluster-100gbe")
    with pytest.raises(InputError) as caught:
        Projector(app, system, Settings(pipeline_degree=4)).project(accelerators=8, degree=8)
    assert caught.value.key == "--activations"
    divided = Settings(pipeline_degree=4, microbatches=8, activation_bytes=1e6)
    made = Projector(app, system, divided).project(accelerators=8, degree=8)
    alone = Projector(app, system).project(accelerators=8, degree=8)
    # 8 micro-batches on 4 stages: 8 of 11 slots compute.
    assert made.compute_seconds == pytest.approx(alone.compute_seconds * 11 / 8)


def test_the_m_curve_is_fitted_and_its_scatter_is_that_of_the_trials() -> None:
    """0.9 − 0.1 / M and 0.8 − 0.1 / M: means of 0.85 − 0.1 / M, two standard errors of 0.1."""
    trials = tuple({size: limit - 0.1 / size for size in (1, 2, 4)} for limit in (0.9, 0.8))
    curve = QualityCurve(trials, "")
    for members in (2, 10, 1000):
        assert curve.quality(members) == pytest.approx(0.85 - 0.1 / members)
        assert curve.uncertainty(members) == pytest.approx(2 * stdev([0.9, 0.8]) / math.sqrt(2))
    assert curve.largest_residual() == pytest.approx(0, abs=1e-9)
    bent = QualityCurve(({1: 0.7, 2: 0.85, 4: 0.86},), "")
    assert bent.largest_residual() > 0.01  # type: ignore[operator]


@pytest.mark.parametrize(("alone", "two", "last"), [(0.90, 0.97, 3), (0.20, 0.06, 3)])
def test_a_quality_that_can_not_be_is_not_known(alone: float, two: float, last: int) -> None:
    """1.04 − 0.14 / M passes 1 between three and four members, −0.08 + 0.28 / M passes 0."""
    curve = QualityCurve(({1: alone, 2: two}, {1: alone, 2: two}), "")
    assert curve.quality(last) is not None and curve.uncertainty(last) is not None
    assert curve.quality(1000) is None and curve.uncertainty(1000) is None
    app = replace(application.read(H200), quality=curve)
    point = Projector(app, platform.read("frontier")).project(accelerators=64, degree=8)
    assert (point.quality, point.vflops) == (None, None)


def test_a_step_of_another_batch_is_between_measured_ones(tmp_path: Path) -> None:
    app = application.read(H200)
    assert application.step_of_batch(app, 64) == pytest.approx(app.step_seconds / 2)
    larger = replace(app, steps_by_batch=((128, 0.1), (256, 0.16)))
    assert application.step_of_batch(larger, 192) == pytest.approx(0.13)
    assert application.step_of_batch(larger, 512) == pytest.approx(0.32)
    other = changed_run(tmp_path, lambda plan: plan["hyperparameters"].update(batch_size=64))
    assert [batch for batch, _ in application.read_all(H200, [other]).steps_by_batch] == [64, 128]
    other = changed_run(tmp_path, lambda plan: plan["hyperparameters"].update(precision="fp32"))
    with pytest.raises(InputError) as caught:
        application.read_all(H200, [other])
    assert caught.value.key == "--also"


def test_a_run_that_divides_its_model_is_refused(tmp_path: Path) -> None:
    run = changed_run(tmp_path, lambda plan: plan["parallel"].update(tensor_degree=2))
    with pytest.raises(InputError) as caught:
        application.read(run)
    assert caught.value.key == "parallel.mode"


def changed_run(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of the H200 run with another plan."""
    run = folder / "changed"
    shutil.copytree(H200, run, dirs_exist_ok=True)
    plan = json.loads((run / "plan.json").read_text())
    change(plan)
    (run / "plan.json").write_text(json.dumps(plan))
    return run


def test_a_plan_takes_its_time_from_a_measured_run() -> None:
    app, plan = application.read(H200), run_folder.read(Plan, H200 / "plan.json")
    made = projected_time(plan, H200, "dgx-h100-superpod")
    # An H200 has the peaks of the SuperPOD's H100.
    assert made.estimated_seconds == pytest.approx(app.run_seconds * plan.trials, rel=0.05)
    assert "projected from h200" in made.estimate_basis
    with pytest.raises(InputError) as caught:
        projected_time(plan, H200, None)
    assert caught.value.key == "--measured"
    with pytest.raises(InputError) as caught:
        projected_time(replace(plan, problem_class="full"), H200, "frontier")
    assert caught.value.key == "--measured"


def test_an_unknown_accelerator_of_the_run_is_refused() -> None:
    app = replace(application.read(H200), accelerator="Abacus", ceiling_flops=None, peak_flops=None)
    with pytest.raises(InputError) as caught:
        speed_factor(app, platform.read("frontier"))
    assert caught.value.key == "node.accelerator"


def test_choices_leave_nodes_idle_that_make_no_whole_member() -> None:
    """127 nodes have 63 members of two, 31 of four."""
    result = answers.answer(
        application.read(H200), platform.read("dgx-h100-superpod"), Settings(), version="test",
        accelerators=1016, degree=None, sweep=False, wanted=0.9,
    )  # fmt: skip
    used = {choice.parallel_degree: choice.accelerators for choice in result.choices}
    assert (used[8], used[16], used[32]) == (1016, 1008, 992)
    assert result.best is not None and result.best.parallel_degree > 8
    with pytest.raises(InputError) as caught:
        answers.answer(
            application.read(H200), platform.read("frontier"), Settings(), version="test",
            accelerators=10**9, degree=8, sweep=False, wanted=None,
        )  # fmt: skip
    assert caught.value.key == "--accelerators"


def test_a_degree_must_divide_the_accelerators() -> None:
    projector = Projector(application.read(H200), platform.read("frontier"))
    with pytest.raises(InputError, match=r"Eq\. 5"):
        projector.project(accelerators=10, degree=8)
    with pytest.raises(InputError, match="samples of an epoch"):
        projector.project(accelerators=1024, degree=1024)


def test_without_simgrid_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "simgrid_python", lambda: None)
    with pytest.raises(EnvironmentLacksError, match="python3-simgrid") as caught:
        simulator.require_simgrid()
    assert caught.value.exit_code == 3


def test_a_run_of_several_accelerators_needs_a_profile(tmp_path: Path) -> None:
    folder = changed_run(tmp_path, lambda plan: plan.update(parallel_degree=2))
    with pytest.raises(InputError, match="no profile") as caught:
        application.read(folder)
    assert "ai500 profile" in str(caught.value)


def test_the_command_writes_page_csv_and_json(tmp_path: Path) -> None:
    words = ["project", "--system", "frontier", "--run", str(H200), "--accelerators", "64"]
    words += ["--node-mtbf", "5y", "--quality", "0.9", "--out", str(tmp_path), "--json"]
    made = CliRunner().invoke(command_line, words)
    assert made.exit_code == 0, made.output
    result = json.loads(made.stdout)
    assert result["projection"]["accelerators"] == 64
    assert result["best"]["quality"] >= 0.9
    parts = {gain["part"] for gain in result["gains"]}
    assert parts >= {"network bandwidth", "accelerator", "file system"}
    assert "no result" in (tmp_path / "projection.html").read_text()
    rows = (tmp_path / "projection.csv").read_text().splitlines()
    assert len(rows) == 2 + len(result["choices"])


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--quality", "nan"], "--quality"),
        (["--microbatches", "4"], "--microbatches"),
        (["--mode", "gossip"], "--mode"),
        (["--precision", "fp13"], "--precision"),
        (["--node-mtbf", "5 years"], "--node-mtbf"),
        (["--accelerators", "12", "--degree", "8"], "P_degree"),
        (["--accelerators", "1000000000"], "--accelerators"),
        (["--tensor", "3"], "P_degree"),
        (["--tensor", "8"], "--activations"),
        (["--batch", "1000000000"], "P_degree"),
    ],
)
def test_wrong_options_are_named(words: list[str], key: str, tmp_path: Path) -> None:
    command = [
        "project",
        "--system",
        "frontier",
        "--run",
        str(H200),
        "--out",
        str(tmp_path / "out"),
    ]
    made = CliRunner().invoke(command_line, [*command, *words])
    assert isinstance(made.exception, InputError), made.output
    assert made.exception.key == key
    assert not (tmp_path / "out").exists()
