"""The roofline's parts that are pure: fits, traffic, advice, peaks, figures, records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ai500.cli import app
from ai500.core import events, schema
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError, JobError
from ai500.inventory import machine as system
from ai500.records import Operations, Plan, TrainRecord, run_folder
from ai500.records.run_folder import MemberFolder
from ai500.roofline import compare, links, peaks
from ai500.roofline import page as pages
from ai500.roofline.advice import advise, best
from ai500.roofline.measure import check_precisions, find_partial, open_measurement
from ai500.roofline.model import Channel, Standing
from ai500.roofline.place_run import place_run, run_ceiling
from ai500.roofline.records import KernelTime, RooflineRecord, ceilings, peak_of, roof_flops
from ai500.roofline.traffic import Traffic, along_line, analytical, counted, in_mode, on_grid
from tests.support import changed_records
from tests.support.synthetic_roofline import h200_roofline, synthetic_roofline
from tests.support.synthetic_run import Shape, write_synthetic_run


def test_best_and_typical_over_shapes() -> None:
    gemm = next(
        ceiling for ceiling in ceilings(synthetic_roofline()) if ceiling.name == "GEMM FP32"
    )
    assert gemm.flops == pytest.approx(50e12)
    assert gemm.typical_flops == pytest.approx(37.5e12)
    assert gemm.shape == "1×2×3"
    assert peak_of(synthetic_roofline(), "fp32") is None


def test_the_best_is_a_burst_and_beside_it_stands_what_lasts() -> None:
    kernels = (
        KernelTime("gemm", "bf16", "small", 10**12, 2e-3, 5, burst_seconds=1.5e-3),
        KernelTime("gemm", "bf16", "large", 10**12, 1.6e-3, 5, burst_seconds=1.25e-3),
        KernelTime("gemm", "bf16", "slower at once", 10**12, 1.8e-3, 5, burst_seconds=9e-3),
    )
    (ceiling,) = ceilings(synthetic_roofline(kernels=kernels))
    assert (ceiling.shape, ceiling.flops, ceiling.sustained_flops) == ("large", 8e14, 6.25e14)
    assert ceiling.typical_flops == pytest.approx(1e12 / 1.8e-3)


@given(
    latency=st.floats(1e-7, 1e-3),
    rate=st.floats(1e6, 1e12),
    noise=st.lists(st.floats(0.99, 1.01), min_size=9, max_size=9),
)
def test_a_fit_finds_latency_and_bandwidth(latency: float, rate: float, noise: list[float]) -> None:
    sizes = [1024 * 4**power for power in range(9)]
    exact = links.fit([(size, latency + size / rate) for size in sizes])
    assert exact is not None
    assert exact.worst_relative_error < 1e-6
    assert exact.latency_seconds + sizes[4] / exact.bytes_per_second == pytest.approx(
        latency + sizes[4] / rate
    )
    noisy = links.fit([(s, (latency + s / rate) * k) for s, k in zip(sizes, noise, strict=True)])
    assert noisy is not None
    assert noisy.latency_seconds >= 0
    assert noisy.worst_relative_error < 0.05


def test_no_fit_through_one_size_or_times_that_fall() -> None:
    assert links.fit([(1024, 1.0), (1024, 2.0)]) is None
    assert links.fit([(1.0, 2.0), (1e9, 1.0)]) is None


def test_bandwidth_of_a_node() -> None:
    """2 (n−1)/n of the buffer from each of its ranks; between nodes a group for each rank."""
    assert links.node_bandwidth(synthetic_roofline(), "inside_node") == pytest.approx(
        1.5 * 1e11 * 4
    )
    assert links.node_bandwidth(synthetic_roofline(), "between_nodes") == pytest.approx(1e9 * 4)
    assert links.node_bandwidth(synthetic_roofline(links=()), "inside_node") is None


def test_traffic_of_each_mode_is_that_of_the_table_in_communication_md() -> None:
    nodes = [0, 0, 1, 1, 2, 2, 3, 3]  # N = 4 nodes of L = 2
    flat = on_grid(nodes, mode="all_reduce", gradient_bytes=8.0)
    assert flat.between_nodes == pytest.approx(4 * 2 * 7 / 8 * 8)
    assert flat.inside_node == pytest.approx(4 * 2 * 7 / 8 * 8)
    by_node = on_grid(nodes, mode="hierarchical", gradient_bytes=8.0)
    assert by_node.inside_node == pytest.approx(8 * 2 * 1 / 2 * 8)
    assert by_node.between_nodes == pytest.approx(4 * 2 * 3 / 4 * 8)
    torus = on_grid(nodes, mode="torus_2d", gradient_bytes=8.0)
    assert torus == by_node  # rows of 2 are nodes
    assert along_line([0], 8.0).inside_node == 0


def test_traffic_of_point_to_point_modes_is_that_of_the_table_in_communication_md() -> None:
    nodes, size = [0, 0, 1, 1, 2, 2, 3, 3], 8.0  # N = 4 nodes of L = 2, n = 8
    ring = in_mode(nodes, mode="ring", gradient_bytes=size)
    assert ring == on_grid(nodes, mode="all_reduce", gradient_bytes=size)
    tree = in_mode(nodes, mode="double_binary_tree", gradient_bytes=size)
    assert tree is not None
    assert tree.inside_node + tree.between_nodes == pytest.approx(2 * 7 * size)  # 2 (n − 1) b
    butterfly = in_mode(nodes, mode="butterfly", gradient_bytes=size)
    assert butterfly is not None
    assert butterfly.inside_node == pytest.approx(8 * 2 * size / 2)  # the first half stays near
    assert butterfly.between_nodes == pytest.approx(8 * 2 * (size / 4 + size / 8))
    folded = in_mode([0, 0, 0, 1, 1, 1], mode="butterfly", gradient_bytes=size)
    assert folded is not None  # 4 × 2 (3/4) b by halving, 2 pairs × 2 b by folding
    assert folded.inside_node + folded.between_nodes == pytest.approx(4 * 1.5 * size + 4 * size)
    server = in_mode(nodes, mode="parameter_server", gradient_bytes=size)
    assert server == Traffic(inside_node=2 * size, between_nodes=2 * 6 * size)
    assert in_mode(nodes, mode="of_another_package", gradient_bytes=size) is None


def test_advice_names_the_bound_it_moves_to() -> None:
    """The issue's own words."""
    ceiling = 142e12
    standing = Standing(ceiling, (Channel("links", 1e9, 100e3),))
    changes = advise(
        standing,
        attained_flops=50e12,
        wire_precision="fp32",
        other_ceilings={"mixed-bf16": 400e12, "int8": 100e12},
        hierarchical=None,
    )
    texts = [change.text for change in changes]
    assert "FP16 compression: COI ×2, bound moves to computation, at most 1.42×" in texts
    assert "training in mixed-bf16: ceiling ×2.82, nothing to gain: communication bounds" in texts
    fp16 = next(change for change in changes if change.change == "FP16 compression")
    assert fp16.gain_limit == pytest.approx(2.84)
    chosen = best(changes)
    assert chosen is not None
    assert chosen.gain_at_roof == pytest.approx(1.42)


def test_advice_without_all_roofs_promises_nothing() -> None:
    changes = advise(
        Standing(1e12, ()), attained_flops=1e9, wire_precision="fp32",
        other_ceilings={"mixed-bf16": 3e12}, hierarchical=None, bound_known=False,
    )  # fmt: skip
    assert {change.change for change in changes} >= {"FP16 compression", "INT8 compression"}
    assert all(change.gain_at_roof is None and "gain unknown" in change.text for change in changes)
    assert not any(
        "bounds" in change.text or change.bound_after != "not known" for change in changes
    )
    assert best(changes) is None


def test_of_sharded_weights_a_larger_batch_is_the_only_one_that_helps() -> None:
    changes = advise(
        Standing(1e12, (Channel("links", 1e9, 10.0),)), attained_flops=1e9, wire_precision=None,
        other_ceilings={}, hierarchical=None, sharded=True,
    )  # fmt: skip
    assert [change.setting for change in changes] == ["train.batch_size × 2"]


def test_a_roof_is_no_higher_than_the_theoretical_peak() -> None:
    record = h200_roofline()
    roofs = {ceiling.name: roof_flops(record, ceiling) for ceiling in ceilings(record)}
    assert roofs["CONV FP32"] == 66.9e12
    assert roofs["CONV BF16"] == pytest.approx(795e12)
    assert roofs["GEMM FP8"] == pytest.approx(1474e12)  # its peak is not known
    assert "CONV FP32: fewer multiplications than counted" in pages.above_peak_note(record)
    assert "Winograd" in pages.machine_figure(record).caption
    assert pages.above_peak_note(synthetic_roofline()) == ""


def test_precisions_are_compared_by_the_same_kernel(tmp_path: Path) -> None:
    """FP8's and INT8's matrix products, however fast, say nothing about convolutions."""
    run = write_synthetic_run(tmp_path / "run", Shape())
    member = place_run(run, h200_roofline()).placed[0]
    assert member.ceiling == "CONV FP32"
    assert member.ceiling_flops == pytest.approx(66.9e12 * member.ranks)
    changes = {advice.change: advice for advice in member.advice}
    assert changes["training in mixed-bf16"].ceiling_factor == pytest.approx(795 / 66.9)
    assert not {"training in fp8", "training in int8"} & changes.keys()
    assert (
        run_ceiling(
            [advice for advice in ceilings(h200_roofline()) if advice.precision == "fp8"]
        ).kernel
        == "gemm"
    )


def test_arrays_lie_beyond_the_cache_or_memory_is_not_measured() -> None:
    assert peaks.memory_sizes("cpu", memory=2**34, cache=2**28) == [2**29]
    assert peaks.memory_sizes("cpu", memory=5 * 2**29, cache=2**28) == [2**29]
    assert peaks.memory_sizes("cuda", memory=2**37, cache=2**26) == [2**30, 2**32]
    assert peaks.memory_sizes("cuda", memory=2**32, cache=2**26) == [2**32 // 5 // 1024 * 1024]
    with pytest.raises(MemoryError, match="too small for three arrays of twice the cache"):
        peaks.memory_sizes("cpu", memory=4 * 2**29, cache=2**28)


def test_sharded_weights_are_gathered_for_each_part_of_a_batch(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(members=1, degree=2))
    plan = run_folder.read(Plan, run.plan)
    parallel = replace(plan.parallel, sharded=True, data_degree=2)
    for accumulation, passes in ((1, 3), (4, 9)):
        hyper = replace(plan.hyperparameters, accumulation=accumulation)
        sharded = replace(plan, parallel=parallel, hyperparameters=hyper)
        sent = analytical(sharded, parameters=100)
        assert sent is not None
        assert sent.inside_node == pytest.approx(2 * passes * 1 / 2 * 400)


def test_caches_and_cores_of_a_machine_are_counted_once(tmp_path: Path) -> None:
    """Two sockets of two cores with two threads each."""
    for cpu in range(8):
        socket, core = cpu // 4, cpu // 2
        for level, size, shared in ((2, "1024K", f"{core}"), (3, "32768K", f"socket {socket}")):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{level}"
            folder.mkdir(parents=True)
            for name, value in (("level", level), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{value}\n")
        (tmp_path / f"cpu{cpu}" / "topology").mkdir()
        siblings = tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        siblings.write_text(f"{2 * core}-{2 * core + 1}\n")
    assert peaks.last_level_cache_bytes(tmp_path) == 2 * 32 * 2**20
    assert peaks.physical_cores(range(8), root=tmp_path) == 4
    assert peaks.physical_cores([0, 2], root=tmp_path) == 2
    assert peaks.physical_cores(range(3), root=tmp_path / "nothing") == 3
    assert peaks.last_level_cache_bytes(tmp_path / "nothing") is None
    assert peaks.available_memory_bytes() > 2**20


def test_no_advice_on_what_is_done_already() -> None:
    standing = Standing(1e12, (Channel("links", 1e9, 10.0),))
    changes = advise(standing, attained_flops=1e9, wire_precision="int8", other_ceilings={},
                  hierarchical=None)  # fmt: skip
    assert [change.change for change in changes] == ["twice the batch (or accumulation)"]
    alone = advise(Standing(1e12, ()), attained_flops=1e9, wire_precision=None, other_ceilings={},
                   hierarchical=None)  # fmt: skip
    assert alone == []
    assert best(alone) is None


def test_theoretical_peaks() -> None:
    """H100 SXM: 132 multiprocessors at 1.83 GHz are the 989 TFLOPS of its data sheet."""
    h100 = {
        peak.quantity: peak.value
        for peak in peaks.nvidia_peaks((9, 0), multiprocessors=132, hertz=1.83e9)
    }
    assert h100["bf16"] == pytest.approx(989.4e12, rel=1e-3)
    assert h100["fp8"] == pytest.approx(1979e12, rel=1e-3)
    a100 = {
        peak.quantity: peak.value
        for peak in peaks.nvidia_peaks((8, 0), multiprocessors=108, hertz=1.41e9)
    }
    assert (a100["fp32"], a100["bf16"]) == pytest.approx((19.5e12, 312e12), rel=1e-2)
    assert all(
        peak.value is None for peak in peaks.nvidia_peaks((12, 0), multiprocessors=1, hertz=1e9)
    )
    xeon = peaks.Processor("GenuineIntel", 6, frozenset({"avx512f", "amx_tile", "amx_bf16"}), 2e9)
    cpu = {peak.quantity: peak for peak in peaks.cpu_peaks(xeon, cores=10)}
    assert cpu["fp32"].value == 10 * 2e9 * 64
    assert cpu["bf16"].value == 10 * 2e9 * 1024
    assert cpu["int8"].value is None
    silent = peaks.cpu_peaks(replace(xeon, hertz=None), cores=10)
    assert all("not derivable" in peak.derivation for peak in silent)


def test_records_go_to_disk_and_back_and_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "roofline.json"
    run_folder.write(path, synthetic_roofline())
    assert run_folder.read(RooflineRecord, path) == synthetic_roofline()
    data = changed_records.load(path)
    path.write_text(json.dumps(data | {"extra": 1}))
    with pytest.raises(AI500Error) as raised:
        run_folder.read(RooflineRecord, path)
    assert (raised.value.key, raised.value.path) == ("roofline.json.extra", path)
    assert schema.decode(RooflineRecord, data) == synthetic_roofline()


def test_an_unknown_precision_gets_the_nearest_known() -> None:
    with pytest.raises(InputError) as caught:
        check_precisions(["fp12"])
    assert (caught.value.key, caught.value.value) == ("--precision", "fp12")
    assert check_precisions([]) == ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def test_only_a_partial_roofline_of_this_machine_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    run_folder.write(path, synthetic_roofline())
    with pytest.raises(InputError) as raised:
        open_measurement(path, "cuda", seconds=1)
    assert (raised.value.key, raised.value.path) == ("complete", path)
    elsewhere = replace(system.describe(), hostname="elsewhere")
    run_folder.write(path, synthetic_roofline(complete=False, system=elsewhere))
    with pytest.raises(InputError) as raised:
        open_measurement(path, "cuda", seconds=1)
    assert (raised.value.key, raised.value.value) == ("system", "elsewhere")
    run_folder.write(path, synthetic_roofline(complete=False))
    assert open_measurement(path, "cuda", seconds=1).record == synthetic_roofline(complete=False)


def test_the_default_file_is_the_one_that_was_interrupted(tmp_path: Path) -> None:
    assert find_partial(tmp_path, host="here") is None
    run_folder.write(tmp_path / "here-1.json", synthetic_roofline(complete=False))
    (tmp_path / "here-2.json").write_text("{}")
    assert find_partial(tmp_path, host="here") == tmp_path / "here-1.json"
    run_folder.write(tmp_path / "here-1.json", synthetic_roofline())
    assert find_partial(tmp_path, host="here") is None


def test_a_resumed_member_counts_from_its_last_start(tmp_path: Path) -> None:
    """Ten steps of an epoch, stopped after the fourth of the second: sixteen steps were counted."""
    sent = {"inside_node": 1600, "between_nodes": 32, "calls": 1}
    effective = {"parallel": {"communication": {"bytes": "counted", "traffic": sent}}}
    operations = Operations("aiperf", 1, 2, 3, 4)
    record = TrainRecord(
        member=0, parameters=4, samples=300, steps=30, epochs=3, world_size=2, device="cpu",
        device_name="any", quality=0.5, weights_sha256="", operations=operations,
        effective=effective, versions={},
    )  # fmt: skip
    folder = MemberFolder(tmp_path)
    log = events.EventLog(folder.events, trial=1, member=0, attempt=2)
    log.emit("resumed", epoch=1, step=4)
    assert counted(record, folder) == (Traffic(100.0, 2.0), "counted")
    sharded = replace(record, effective={"parallel": {"communication": {"bytes": "not counted"}}})
    assert counted(sharded, folder) == (None, "not counted")
    assert counted(replace(record, world_size=1), folder) == (Traffic(0.0, 0.0), "none")


def test_an_unfinished_run_has_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_synthetic_run(tmp_path / "run", Shape())
    run.events.write_text("")
    run_folder.write(tmp_path / "a.json", synthetic_roofline())
    arguments = ["roofline", "--run", "run", "--ceilings", "a.json"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, JobError)
    assert "no finished trial yet" in str(result.exception)


def test_without_any_roofline_the_remedy_is_to_measure_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_synthetic_run(tmp_path / "run", Shape())
    result = CliRunner().invoke(app, ["roofline", "--run", "run"])
    assert isinstance(result.exception, EnvironmentLacksError)
    assert "ai500 roofline" in result.exception.remedy


def test_a_roofline_without_the_runs_precision_is_refused(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    only_bf16 = tuple(
        kernel for kernel in synthetic_roofline().kernels if kernel.precision == "bf16"
    )
    with pytest.raises(InputError) as caught:
        place_run(run, synthetic_roofline(kernels=only_bf16))
    assert (caught.value.key, caught.value.value) == ("train.precision", "fp32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--show", "nowhere.json"], "no such file"),
        (["--run", "nowhere"], "nowhere is not a run folder"),
        (["--precision", "fp12"], "did you mean 'fp"),
        (["--scheduler", "slrm"], "did you mean 'slurm'?"),
        (["--scheduler", "slurm", "--ranks", "2"], "--set system.accelerators_per_node"),
    ],
)
def test_mistakes_are_one_message(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["roofline", *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_no_roofline(tmp_path: Path) -> None:
    other = tmp_path / "system.json"
    other.write_text('{"notes": {}}')
    done = CliRunner().invoke(app, ["roofline", "--show", str(other)])
    assert isinstance(done.exception, InputError)
    assert done.exception.path == other


def test_show_prints_and_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder.write(
        tmp_path / "a.json", synthetic_roofline(device="cpu", unit="core", complete=False)
    )
    result = CliRunner().invoke(app, ["roofline", "--show", "a.json"])
    assert result.exit_code == 0, result.exception
    for words in ("CPU's roofline", "PARTIAL", "GEMM FP32", "50 TFLOPS", "it is a test"):
        assert words in result.stdout
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.html").exists()


def test_precisions_and_compressions_share_a_plot(tmp_path: Path) -> None:
    """V2 Fig. 9: runs under the same ceilings, each with a mark named by what it varies."""
    placements = {}
    for precision in ("fp32", "mixed-bf16"):
        run = write_synthetic_run(tmp_path / precision, Shape())
        plan = run_folder.read(Plan, run.plan)
        hyper = replace(plan.hyperparameters, precision=precision)
        run_folder.write(run.plan, replace(plan, hyperparameters=hyper))
        label = compare.label_of(run_folder.read(Plan, run.plan))
        placements[label] = place_run(run, h200_roofline())
    assert list(placements) == ["fp32", "mixed-bf16"]
    figures = compare.comparison_figures(placements)
    assert len(figures) == len(placements["fp32"].placed)
    for figure in figures:
        assert "fp32" in str(figure.svg) and "mixed-bf16" in str(figure.svg)
        assert len(figure.chart.marks) >= 2  # type: ignore[union-attr]
    compare.write_comparison(tmp_path / "page.html", placements)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "V2 Fig. 9" in page
    compressed = replace(plan.communication, precision="fp16")
    shown = compare.label_of(replace(plan, communication=compressed))
    assert shown == f"{plan.hyperparameters.precision}, fp16 sent"
    other = replace(placements["fp32"], workload="extreme_weather")
    with pytest.raises(InputError) as refused:
        compare.write_comparison(tmp_path / "no.html", {**placements, "other": other})
    assert refused.value.key == "--beside"
