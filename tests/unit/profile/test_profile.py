"""Profiles of traces whose numbers are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.core import schema
from ai500.core.errors import RunFolderError
from ai500.parallel import spans
from ai500.profile import communication, counters, operation_counters
from ai500.profile.analysis import precision_profile, with_counters
from ai500.profile.categories import Category, category_of_operators
from ai500.profile.intervals import common, length, union
from ai500.profile.page import write_page
from ai500.profile.record import PrecisionProfile, Profile
from ai500.profile.timeline import Timeline
from ai500.profile.trace import load, read
from ai500.records import Communication, Parallelism
from tests.support.profile_traces import Builder, accelerator_step
from tests.support.profiles import capture, check_timeline, profile_of

MICROSECOND = 1e-6


@pytest.mark.parametrize(
    ("operator", "category"),
    [
        ("aten::embedding_bag", "element-wise"),
        ("aten::_embedding_bag_dense_backward", "element-wise"),
        ("aten::argsort", "element-wise"),
        ("aten::gather_backward", "transformation"),
        ("aten::broadcast_tensors", "transformation"),
    ],
)
def test_operators_of_the_detector_are_known(operator: str, category: Category) -> None:
    assert category_of_operators((operator,)) == category


def test_intervals() -> None:
    assert union([(5, 7), (0, 2), (1, 3), (7, 8), (9, 9)]) == [(0, 3), (5, 8)]
    assert length([(0, 3), (5, 8)]) == 6
    assert common([(0, 3), (5, 8)], [(2, 6), (7, 20)]) == 1 + 1 + 1


def test_spans_are_parsed_and_cost_nothing_without_a_recorder() -> None:
    names: list[str] = []

    class Recorder:
        def __init__(self, name: str) -> None:
            names.append(name)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    assert spans.span("exchange", ranks=[0, 1]) is spans.span("reduce", key="bucket 0")
    spans.record_with(Recorder)
    try:
        with spans.span("exchange", key="bucket 7", ranks=[2, 3]):
            pass
    finally:
        spans.record_with(None)
    assert spans.parse(names[0]) == spans.Mark("exchange", "bucket 7", (2, 3))
    assert spans.parse("aten::mm") is None


def test_operators_of_a_cpu_have_their_own_time_only() -> None:
    trace = Builder()
    trace.annotation("ProfilerStep#2", 0, 100)
    trace.operator("autograd::engine::evaluate_function: ConvolutionBackward0", 10, 60)
    trace.operator("aten::convolution_backward", 20, 50)
    trace.operator("aten::empty", 22, 25)
    trace.operator("_AFunctionOfPython", 60, 70)  # a wait
    trace.operator("mylibrary::mystery", 70, 80)
    profile = profile_of([read(trace.events)], convolution=10**6)
    shares = {time.category: time.seconds_per_step for time in profile.categories}
    assert shares["convolution"] == pytest.approx(30 * MICROSECOND)
    assert profile.categories[0].flops == pytest.approx(1e6 / 30e-6)
    assert profile.kernel_seconds_per_step == pytest.approx(40 * MICROSECOND)
    assert profile.unknown_share == pytest.approx(0.25)
    assert [kernel.name for kernel in profile.unknown] == ["mylibrary::mystery"]
    assert profile.busy_share == pytest.approx(0.4)
    assert profile.profiled_seconds_per_step == pytest.approx(100 * MICROSECOND)
    assert {kernel.name: kernel.seconds_per_step for kernel in profile.top}[
        "aten::empty"
    ] == pytest.approx(3 * MICROSECOND)


def test_gloo_s_events_inside_a_marked_exchange_are_not_counted_twice() -> None:
    trace = Builder()
    trace.annotation("ProfilerStep#2", 0, 100)
    trace.annotation("ai500 reduce | bucket 0 | ", 10, 60, thread=2)
    trace.annotation("ai500 exchange |  | 0,1", 20, 60, thread=2)
    trace.annotation("gloo:all_reduce", 25, 59, thread=3)
    trace.annotation("gloo:broadcast", 70, 80, thread=3)
    profile = profile_of([read(trace.events)] * 2)
    shares = {time.category: time.seconds_per_step for time in profile.categories}
    assert shares["all-reduce"] == pytest.approx(50 * MICROSECOND)


def test_kernels_of_an_accelerator_belong_to_the_operator_that_launched_them() -> None:
    trace = read(accelerator_step(ready=200, enter=220, all_in=220).events)
    profile = profile_of([trace], convolution=10**9, dense=6 * 10**6)
    times = {time.category: time for time in profile.categories}
    assert times["convolution"].seconds_per_step == pytest.approx(100 * MICROSECOND)
    assert times["convolution"].flops == pytest.approx(1e9 / 100e-6)
    assert times["GEMM"].flops == pytest.approx(6e6 / 30e-6)
    assert times["all-reduce"].seconds_per_step == pytest.approx(100 * MICROSECOND)
    assert times["element-wise"].flops is None
    assert profile.products_flops == pytest.approx(1.006e9 / 130e-6)
    operators = {kernel.name: kernel.operator for kernel in profile.top}
    assert operators["void cutlass::Kernel2<x>"] == "aten::cudnn_convolution"
    # From 100 to 320, idle between 200 and 210.
    assert profile.profiled_seconds_per_step == pytest.approx(220 * MICROSECOND)
    assert profile.busy_share == pytest.approx(210 / 220)
    assert profile.communication is None
    assert "one rank" in str(profile.communication_missing)
    assert profile.samples_per_second == 128


def test_table_12_of_an_accelerator() -> None:
    """Rank 1's gradients are 300 µs later, and it enters the exchange 50 µs after that."""
    early_trace = read(accelerator_step(ready=200, enter=220, all_in=550).events)
    late_trace = read(accelerator_step(ready=500, enter=550, all_in=550).events)
    table = communication.table([early_trace, late_trace], steps=1, uncertainty=0.0)
    early, late = table.ranks
    assert early.waiting_for_data == pytest.approx(5 * MICROSECOND)
    assert early.queueing == pytest.approx(10 * MICROSECOND)
    assert early.copy_in == pytest.approx(10 * MICROSECOND)
    assert early.waiting_for_others == pytest.approx((500 - 220) * MICROSECOND)
    assert early.negotiation == pytest.approx((550 - 500) * MICROSECOND)
    assert early.all_reduce == pytest.approx(100 * MICROSECOND)
    assert early.copy_out == 0
    assert early.hidden == pytest.approx(30 * MICROSECOND)
    assert early.hidden + early.exposed == pytest.approx((650 - 210) * MICROSECOND)
    stages = ("queueing", "copy_in", "waiting_for_others", "negotiation", "all_reduce", "copy_out")
    total = sum(getattr(early, stage) for stage in stages)
    assert total == pytest.approx((650 - 200) * MICROSECOND)  # from ready to the end
    assert late.waiting_for_others == late.negotiation == 0
    assert late.queueing == pytest.approx(40 * MICROSECOND)
    assert late.all_reduce == pytest.approx(100 * MICROSECOND)
    assert table.buffers_per_step == 1
    assert table.mean.waiting_for_others == pytest.approx(140 * MICROSECOND)


def test_clocks_of_two_hosts_are_brought_together() -> None:
    """The second host's clock is a second ahead; uncorrected, one rank would wait forever."""
    ahead = accelerator_step(ready=200, enter=220, all_in=220)
    traces = [
        read(accelerator_step(ready=200, enter=220, all_in=220).events),
        read(ahead.events, base=10**9, shift=10**9),
    ]
    table = communication.table(traces, steps=1, uncertainty=2e-6)
    assert table.mean.waiting_for_others == table.mean.negotiation == 0
    assert table.clock_uncertainty_seconds == 2e-6


def test_communication_outside_the_traced_collectives_is_not_measured() -> None:
    trace = Builder()
    trace.annotation("ProfilerStep#2", 0, 100)
    trace.operator("aten::mm", 10, 60)
    traces = [read(trace.events)] * 2
    parallel = Parallelism("tensor", tensor_degree=2)
    profile = precision_profile(
        "fp32", [capture(0), capture(1)], traces, steps=1, parallel=parallel
    )
    assert "tensor" in str(profile.communication_missing)


def test_flops_of_int8_are_of_convolutions_and_products_together() -> None:
    """Convolutions run as matrix products there: only both together have a meaning."""
    trace = read(accelerator_step(ready=200, enter=220, all_in=220).events)
    captures = [capture(operations_per_step={"convolution": 10**9})]
    profile = precision_profile("int8", captures, [trace], steps=1, parallel=Parallelism("data"))
    assert all(time.flops is None for time in profile.categories)
    assert profile.products_flops == pytest.approx(1e9 / 130e-6)


def test_so_are_those_of_a_fused_step() -> None:
    step = accelerator_step(ready=200, enter=220, all_in=220)
    step.kernel("linear_normal", 80, 300, 302)
    captures = [capture(operations_per_step={"convolution": 10**9})]
    profile = precision_profile(
        "mixed-bf16", captures, [read(step.events)], steps=1, parallel=Parallelism("data")
    )
    assert all(time.flops is None for time in profile.categories)
    assert profile.products_flops == pytest.approx(1e9 / 130e-6)


@pytest.mark.parametrize(("replayed", "separate"), [(20, True), (200, False)])
def test_so_are_those_of_a_replayed_step(replayed: int, separate: bool) -> None:
    """A CUDA graph's kernels have one launch and no operator; names alone would say GEMM."""
    step = accelerator_step(ready=200, enter=220, all_in=220)
    step.kernel("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", 80, 400, 400 + replayed)
    profile = profile_of([read(step.events)], convolution=10**9, dense=6 * 10**6)
    times = {time.category: time for time in profile.categories}
    assert times["GEMM"].seconds_per_step == pytest.approx((30 + replayed) * MICROSECOND)
    assert (times["convolution"].flops is not None) == separate
    assert (times["GEMM"].flops is not None) == separate
    assert profile.products_flops == pytest.approx(1.006e9 / ((130 + replayed) * MICROSECOND))


def test_the_record_is_read_back_as_it_was_written() -> None:
    profile = profile_of([read(accelerator_step(ready=200, enter=220, all_in=220).events)] * 2)
    plain = json.loads(json.dumps(schema.encode(profile)))
    assert schema.decode(PrecisionProfile, plain) == profile


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", "[1, 2]", '{"traceEvents": '):
        (tmp_path / "trace.json").write_text(text)
        with pytest.raises(RunFolderError) as error:
            load(tmp_path / "trace.json")
        assert error.value.path == tmp_path / "trace.json"


def test_a_page_of_hostile_names_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    step = accelerator_step(ready=200, enter=220, all_in=220)
    step.kernel(hostile + "x" * 500, 71, 400, 450)
    profile = Profile(
        format=1, version="0", workload=hostile, problem_class=hostile, run=hostile,
        hosts=("here",), device="cuda", device_name=hostile, torch="2.11", parallel_degree=2,
        parallel=Parallelism("data"), communication=Communication(), global_batch_size=64, steps=1,
        precisions=(profile_of([read(step.events)] * 2),),
    )  # fmt: skip
    write_page(profile, tmp_path / "profile.html")
    page = (tmp_path / "profile.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Unknown kernels" in page
    assert "x" * 200 not in page  # names of C++ are cut, profile.json has them whole
    assert "waiting for others" in page


def test_a_timeline_has_a_process_for_every_rank_and_accelerator(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json.gz"
    note = {"ph": "X", "cat": "Trace", "name": "x", "pid": "Spans", "tid": "y", "ts": 0, "dur": 1}
    flow = {"ph": "s", "id": 3, "pid": 4711, "tid": 1, "ts": 15, "cat": "ac2g", "name": "ac2g"}
    with Timeline(path) as timeline:
        for rank in range(2):
            made = accelerator_step(ready=200, enter=220, all_in=220)
            timeline.add(
                [*made.events, note, flow], process=f"fp32: rank {rank}", zero_microseconds=100
            )
    events = check_timeline(path)["traceEvents"]
    names = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert sorted(names) == [
        "fp32: rank 0", "fp32: rank 0, accelerator 0",
        "fp32: rank 1", "fp32: rank 1, accelerator 0",
    ]  # fmt: skip
    assert len(set(names.values())) == 4
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 2
    assert not any(e["name"] == "x" for e in events)
    nccl = [e for e in events if e["name"].startswith("nccl")]
    assert [e["ts"] for e in nccl] == [120, 120]
    assert sorted(path.parent.iterdir()) == [path]


def test_an_accelerator_is_known_by_its_work_not_by_its_number(tmp_path: Path) -> None:
    """In a container a process of the host may have a small number."""
    path = tmp_path / "timeline.json.gz"
    work = {"ph": "X", "tid": 1, "ts": 0, "dur": 1}
    events = [
        work | {"cat": "cpu_op", "name": "aten::mm", "pid": 17},
        work | {"cat": "kernel", "name": "gemm", "pid": 300},
    ]
    with Timeline(path) as timeline:
        timeline.add(events, process="fp32: rank 0", zero_microseconds=0)
    written = check_timeline(path)["traceEvents"]
    names = [e["args"]["name"] for e in written if e["name"] == "process_name"]
    assert names == ["fp32: rank 0", "fp32: rank 0, accelerator 300"]


def test_a_timeline_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Timeline(tmp_path / "timeline.json.gz"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


NCU = """==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "sm90_xmma_fprop_implicit_gemm" - 1: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__time_duration.sum","sm__inst_executed.avg.per_cycle_active"
"","","","","","","","","","","","%","ns","inst/cycle"
"0","4242","python3.12","127.0.0.1","sm90_xmma_fprop_implicit_gemm_bf16","1","7","(384, 1, 1)",\
"(132, 1, 1)","0","9.0","40.00","3,000","0.50"
"1","4242","python3.12","127.0.0.1","sm90_xmma_dgrad_implicit_gemm_bf16","1","7","(384, 1, 1)",\
"(132, 1, 1)","0","9.0","20.00","1,000","0.90"
"2","4242","python3.12","127.0.0.1","void shared_kernel<float, int>(float *)","1","7",\
"(384, 1, 1)","(132, 1, 1)","0","9.0","80.00","500","2.00"
"3","4242","python3.12","127.0.0.1","Memset","1","7","","","0","9.0","n/a","100","n/a"
"""


def test_counters_are_weighted_by_time() -> None:
    assert counters.refusal(NCU) is None
    counted = counters.parse(NCU)
    assert len(counted) == 3
    known: dict[str, dict[Category, float]] = {"shared_kernel<float,int>(float*)": {"pooling": 1.0}}
    means = counters.by_category(counted, known)
    assert means["convolution"].instructions_per_cycle == pytest.approx(0.6)
    assert means["convolution"].dram_utilization == pytest.approx(0.35)
    assert means["pooling"].dram_utilization == pytest.approx(0.8)
    trace = read(accelerator_step(ready=200, enter=220, all_in=220).events)
    shown = with_counters(profile_of([trace]), means)
    rates = {time.category: time.instructions_per_cycle for time in shown.categories}
    assert rates["convolution"] == pytest.approx(0.6)
    assert rates["GEMM"] is None
    assert shown.counters_missing is None


def test_counters_of_a_kernel_in_two_categories_are_split_by_time() -> None:
    slow = counters.CountedKernel("shared", 400.0, 1.0, 0.2)
    other = counters.CountedKernel("only", 100.0, 3.0, 0.8)
    shares: dict[str, dict[Category, float]] = {
        "shared": {"GEMM": 3.0, "convolution": 1.0},
        "only": {"convolution": 5.0},
    }
    means = counters.by_category([slow, other], shares)
    assert means["GEMM"].instructions_per_cycle == pytest.approx(1.0)
    assert means["convolution"].instructions_per_cycle == pytest.approx(2.0)  # 100 ns of each


def test_idle_is_of_a_step_without_the_profiler() -> None:
    """Kernels take 210 µs of the step, which without the profiler is 250 µs long."""
    trace = read(accelerator_step(ready=200, enter=220, all_in=220).events)
    plain = [capture(seconds_per_step=250 * MICROSECOND)]
    profile = precision_profile("fp32", plain, [trace], steps=1, parallel=Parallelism("data"))
    assert profile.idle_share == pytest.approx(40 / 250)
    shorter = [capture(seconds_per_step=200 * MICROSECOND)]
    profile = precision_profile("fp32", shorter, [trace], steps=1, parallel=Parallelism("data"))
    assert profile.idle_share == 0


def test_counters_that_can_not_be_read_have_a_reason() -> None:
    denied = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters on the target device 0."
    )
    assert "ERR_NVGPUCTRPERM" in str(counters.refusal(denied))
    assert "no kernel" in str(counters.refusal("==PROF== Connected"))
    assert "==" not in str(counters.refusal("==ERROR== Unknown metric"))
    assert "cpu" in str(counters.missing_requirement(device="cpu", scheduler="local"))
    assert "slurm" in str(counters.missing_requirement(device="cuda", scheduler="slurm"))


CUDA_METRICS = {
    "fadd": 1000, "fmul": 500, "ffma": 2000, "hadd": 0, "hmul": 0, "hfma": 10, "dadd": 0,
    "dmul": 0, "dfma": 0,
}  # fmt: skip
LISTED = "\n".join(
    [
        *(f"smsp__sass_thread_inst_executed_op_{name}_pred_on   # of …" for name in CUDA_METRICS),
        "sm__ops_path_tensor_src_bf16_dst_fp32   # of math ops executed in Tensor path",
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off   its part",
        "sm__ops_path_tensor_src_fp16   both destinations",
        "sm__ops_path_tensor_src_fp16_dst_fp32   one of two destinations",
    ]
)


def ncu_page(rows: dict[str, list[str]]) -> str:
    """Write a raw page of ncu with metrics and values of two kernels and a copy."""
    names = ("gemm", "relu", "Memset")
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *rows))
    lines = [",".join(f'"{value}"' for value in (number, name, *(v[number] for v in rows.values())))
             for number, name in enumerate(names)]  # fmt: skip
    return "\n".join(["==PROF== Connected", head, ",".join('""' for _ in (1, 2, *rows)), *lines])


def test_operations_by_hardware_counters_are_compared_with_the_analytical_count() -> None:
    weights = operation_counters.metrics_of(LISTED)
    tensor = [name for name in weights if "tensor" in name]
    # Neither a part of another metric nor a type without all of its destinations.
    assert tensor == [
        "sm__ops_path_tensor_src_fp16.sum",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    ]
    rows = {
        f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum": [f"{value:,}", "0", "n/a"]
        for name, value in CUDA_METRICS.items()
    } | {tensor[0]: ["0", "0", "n/a"], tensor[1]: ["4,000,000", "0", "n/a"]}
    total = operation_counters.total_operations(ncu_page(rows), weights)
    assert total == 1000 + 500 + 2 * 2000 + 2 * 10 + 4_000_000
    counted = operation_counters.compare(
        total, samples=2, operations_per_step={"convolution": 7_000_000, "dense": 1_000_000},
        samples_per_step=4,
    )  # fmt: skip
    assert (counted.counted_per_sample, counted.analytical_per_sample) == (2_002_760, 2_000_000)
    assert counted.ratio == pytest.approx(1.00138)
    incomplete = rows | {tensor[1]: ["4,000,000", "n/a", "n/a"]}
    assert operation_counters.total_operations(ncu_page(incomplete), weights) is None
    assert operation_counters.total_operations("==PROF== nothing", weights) is None


def test_operations_are_not_counted_where_a_part_of_the_metrics_is_missing() -> None:
    without_tensor = "\n".join(line for line in LISTED.splitlines() if "tensor" not in line)
    without_cuda = "\n".join(line for line in LISTED.splitlines() if "ffma" not in line)
    assert operation_counters.metrics_of(without_tensor) == {}
    assert operation_counters.metrics_of(without_cuda) == {}
    assert operation_counters.metrics_of("") == {}
