"""Joules of a trial from what meters recorded: windows, gaps, wraps, nodes, overlapping meters."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from ai500.bagging.program import score_trial
from ai500.cli import score_view, terminal
from ai500.core import events
from ai500.core.errors import RunFolderError
from ai500.meters.log import read_meters
from ai500.metrics.energy import (
    Energy,
    NotMeasured,
    Window,
    counter_increase,
    integral,
    sample_times,
    trial_energy,
)
from ai500.metrics.meter_series import MAX_POINTS, meter_curves
from ai500.metrics.trials import mean_of_trials
from ai500.records import Plan, Score, TrialScore, run_folder
from tests.support.metered import GPU_NODE_COLUMNS, gpu_node, seconds, write_log
from tests.support.synthetic_run import BEGAN, Shape, write_synthetic_run

ACCELERATORS = {"nvml": ["accelerators"]}
COUNTER = [("nvml", "GPU-0", "energy_joules", None)]


def wall(sample: events.Event) -> float:
    return float(sample["wall"])


def energy_of(
    folder: Path, first: float, last: float, *, members: Sequence[int] = (0,), device: str = "cuda"
) -> Energy | NotMeasured:
    window, nodes = Window(first, last, wall), dict.fromkeys(members, 1)
    return trial_energy(read_meters(folder), window, nodes_of_members=nodes, device=device)


def joules(folder: Path, first: float, last: float, *, members: Sequence[int] = (0,)) -> float:
    energy = energy_of(folder, first, last, members=members)
    assert isinstance(energy, Energy), energy
    return energy.joules


def reason(folder: Path, first: float, last: float, *, members: Sequence[int] = (0,)) -> str:
    energy = energy_of(folder, first, last, members=members)
    assert isinstance(energy, NotMeasured), energy
    return energy.reason


@pytest.mark.parametrize("covers", [{"ipmi": ["fans"]}, {"ipmi": ["<b>"]}, {"x" * 65: ["node"]}])
def test_a_meter_of_an_unknown_part_measures_nothing(
    covers: dict[str, list[str]], tmp_path: Path
) -> None:
    """Each coverage is a ranking of its own, and stands on the page of all."""
    columns = [(next(iter(covers)), "a", "watts", None)]
    write_log(tmp_path, covers=covers, columns=columns, times=seconds(0, 20), values=lambda t: [1])
    assert reason(tmp_path, 3.0, 13.0)


def test_a_counter_is_interpolated_at_the_ends_of_the_window(tmp_path: Path) -> None:
    write_log(
        tmp_path, covers=ACCELERATORS, columns=COUNTER, times=seconds(0, 20),
        values=lambda t: [5000 + 300 * t],
    )  # fmt: skip
    energy = energy_of(tmp_path, 3.25, 13.75)
    assert isinstance(energy, Energy)
    assert energy.joules == pytest.approx(300 * 10.5)
    assert energy.watts == pytest.approx(300)
    assert energy.coverage == "accelerators"


def test_watts_without_a_counter_are_integrated(tmp_path: Path) -> None:
    """The integral of 500 + 100 sin t is known."""
    write_log(
        tmp_path, covers=ACCELERATORS, columns=[("nvml", "GPU-0", "watts", None)],
        times=seconds(0, 20, 0.1), values=lambda t: [500 + 100 * math.sin(t)],
    )  # fmt: skip
    expected = 500 * 15 - 100 * (math.cos(17.5) - math.cos(2.5))
    assert joules(tmp_path, 2.5, 17.5) == pytest.approx(expected, rel=1e-3)


def test_a_counter_that_wraps_goes_on_and_one_that_was_reset_is_a_hole() -> None:
    wrapping = [(float(t), (900 + 100 * t) % 65_712.0) for t in range(1400)]
    assert min(b - a for (_, a), (_, b) in pairwise(wrapping)) < 0
    total, covered = counter_increase(wrapping, 10, 1390, wraps_at=65_712.0)
    assert total == pytest.approx(100 * 1380)
    assert covered == pytest.approx(1380)
    reset = [(0.0, 5000.0), (1.0, 5100.0), (2.0, 10.0), (3.0, 110.0)]
    assert counter_increase(reset, 0, 3, wraps_at=None) == (200.0, 2.0)
    # 40 s at up to 2 kW may be more than one turn of 65 kJ: nobody can tell.
    assert counter_increase([(0.0, 1.0), (40.0, 2.0)], 0, 40, wraps_at=65_712.0) == (0.0, 0.0)


def test_a_pause_of_the_sampler_costs_a_counter_nothing(tmp_path: Path) -> None:
    """Between two waves no meter samples, but the counter counts."""
    times = [*seconds(0, 10), *seconds(60, 100)]
    write_log(tmp_path, covers=ACCELERATORS, columns=COUNTER, times=times,
              values=lambda t: [250 * t])  # fmt: skip
    assert joules(tmp_path, 0, 100) == pytest.approx(25_000)


def test_a_hole_of_five_percent_in_watts_is_not_measured(tmp_path: Path) -> None:
    watts = [("nvml", "GPU-0", "watts", None)]
    for hole, name in ((110.0, "large"), (45.0, "small")):
        times = [*seconds(0, 1000), *seconds(1000 + hole, 2000)]
        write_log(tmp_path / name, covers=ACCELERATORS, columns=watts, times=times,
                  values=lambda t: [400.0])  # fmt: skip
    assert "covers only 94% of the time" in reason(tmp_path / "large", 0, 2000)
    assert joules(tmp_path / "small", 0, 2000) == pytest.approx(400 * 2000)


def test_what_is_missing_at_the_edge_is_filled_with_the_device_s_own_mean(tmp_path: Path) -> None:
    write_log(tmp_path, covers=ACCELERATORS, columns=COUNTER, times=seconds(2, 100),
              values=lambda t: [200 * t])  # fmt: skip
    assert joules(tmp_path, 0, 100) == pytest.approx(200 * 100)
    assert "94%" in reason(tmp_path, -4, 100)


def test_no_meter_and_a_meter_that_stands_still_are_not_zero(tmp_path: Path) -> None:
    host = [("host", "host", "cpu_busy_seconds", None)]
    write_log(tmp_path / "none", covers={"host": []}, columns=host, times=seconds(0, 10),
              values=lambda t: [t], absent={"rapl": "may be read by root alone"})  # fmt: skip
    assert "a has no power meter (rapl: may be read by root alone)" in reason(
        tmp_path / "none", 0, 10
    )
    write_log(tmp_path / "still", covers=ACCELERATORS, columns=COUNTER, times=seconds(0, 10),
              values=lambda t: [0.0])  # fmt: skip
    assert isinstance(energy_of(tmp_path / "still", 0, 10), NotMeasured)
    assert "meters were recorded on 0" in reason(tmp_path / "nothing here", 0, 10)


def test_two_nodes_whose_clocks_differ(tmp_path: Path) -> None:
    """Node b's wall clock is an hour ahead, as its worker measured; power steps up at t = 10."""

    def stepped(t: float) -> list[float]:
        return [100 * t if t < 10 else 1000 + 900 * (t - 10)]

    for member, (host, offset) in enumerate((("a", 0.0), ("b", 3600.0))):
        write_log(tmp_path, host=host, member=member, covers=ACCELERATORS, columns=COUNTER,
                  times=seconds(0, 30), values=stepped, offset=offset, boot=host)  # fmt: skip
    clock = {
        "event": "clock", "host": "b", "boot": "b",
        "wall": 3600.0, "offset_seconds": 3600.0, "uncertainty_seconds": 0.001, "reference": "r",
    }  # fmt: skip
    window = Window(5.0, 25.0, sample_times([clock], "wall"))
    energy = trial_energy(
        read_meters(tmp_path), window, nodes_of_members={0: 1, 1: 1}, device="cuda"
    )
    assert isinstance(energy, Energy)
    assert energy.joules == pytest.approx(2 * (100 * 5 + 900 * 15))


@pytest.mark.parametrize(
    ("device", "covers", "energy"),
    [
        ("cpu", {"nvml": ["accelerators"]}, "the processors trained, and the meters cover acc"),
        ("cuda", {"rapl": ["processors", "memory"]}, "cover memory and processors only"),
        ("xpu", {"rapl": ["processors"]}, "the accelerators trained"),
        ("cpu", {"rapl": ["processors"]}, "processors"),
        ("cpu", {"rapl": ["processors"], "nvml": ["accelerators"]}, "accelerators + processors"),
        ("cuda", {"rapl": ["processors"], "nvml": ["accelerators"]}, "accelerators + processors"),
        ("cpu", {"ipmi": ["node"]}, "whole nodes"),
        ("cuda", {"ipmi": ["node"]}, "whole nodes"),
    ],
)
def test_the_parts_that_trained_are_metered_or_there_is_no_energy(
    device: str, covers: dict[str, list[str]], energy: str, tmp_path: Path
) -> None:
    """Idle accelerators beside a training on processors say nothing of it, nor the reverse."""
    columns = [(meter, "device", "energy_joules", None) for meter in covers]
    write_log(tmp_path, covers=covers, columns=columns, times=seconds(0, 10),
              values=lambda t: [10 * t] * len(covers))  # fmt: skip
    found = energy_of(tmp_path, 0, 10, device=device)
    if isinstance(found, Energy):
        assert found.coverage == energy
    else:
        assert energy in found.reason


def test_a_member_on_two_nodes_needs_meters_on_both(tmp_path: Path) -> None:
    write_log(tmp_path, covers=ACCELERATORS, columns=COUNTER, times=seconds(0, 10),
              values=lambda t: [10 * t])  # fmt: skip
    window = Window(0.0, 10.0, wall)
    energy = trial_energy(read_meters(tmp_path), window, nodes_of_members={0: 2}, device="cuda")
    assert isinstance(energy, NotMeasured)
    assert "trained on 2 node(s), meters were recorded on 1" in energy.reason


def test_recorders_that_overlap_and_take_over_count_once(tmp_path: Path) -> None:
    """Two samplers of one counter, some milliseconds apart and jittering, then one alone."""
    for member, times in enumerate(
        ([t + 0.003 for t in seconds(0, 60)], [t + 0.004 * (t % 2) for t in seconds(0, 100)])
    ):
        write_log(tmp_path, member=member, covers=ACCELERATORS, columns=COUNTER, times=times,
                  values=lambda t: [300 * round(t, 2)])  # fmt: skip
    assert joules(tmp_path, 0, 100, members=(0, 1)) == pytest.approx(300 * 100, rel=1e-3)


def test_containers_of_one_node_read_the_same_hardware(tmp_path: Path) -> None:
    """Two names, one kernel: the accelerator counts once, one wave after the other."""
    columns = [*COUNTER, ("network", "lo", "network_sent_bytes", None)]
    for member, (host, times) in enumerate((("x", seconds(0, 50)), ("y", seconds(55, 100)))):
        write_log(tmp_path, host=host, member=member, covers=ACCELERATORS, columns=columns,
                  times=times, values=lambda t, m=member: [300 * t, 10 * t * m])  # fmt: skip
    assert joules(tmp_path, 0, 100, members=(0, 1)) == pytest.approx(30_000)
    curves = meter_curves(read_meters(tmp_path), Window(0.0, 100.0, wall))
    assert curves["network inside"].points[-1].mean == pytest.approx(10)  # y's own interface


def test_the_widest_coverage_that_every_node_has_and_no_part_twice(tmp_path: Path) -> None:
    covers = {
        "nvml": ["accelerators"], "rapl": ["processors", "memory"], "slurm": ["processors"],
        "ipmi": ["node"],
    }  # fmt: skip
    columns = [(name, "x", "energy_joules", None) for name in covers]
    watts = [300.0, 200.0, 190.0, 900.0]
    for host, known in (("a", 4), ("b", 3)):
        write_log(
            tmp_path / "b lacks ipmi", host=host, boot=host, member=ord(host) - ord("a"),
            covers=dict(list(covers.items())[:known]), columns=columns[:known],
            times=seconds(0, 10), values=lambda t, known=known: [w * t for w in watts[:known]],
        )  # fmt: skip
    energy = energy_of(tmp_path / "b lacks ipmi", 0, 10, members=(0, 1))
    assert isinstance(energy, Energy)
    assert energy.coverage == "accelerators + processors + memory"
    assert energy.watts == pytest.approx(2 * 500)
    write_log(tmp_path / "one", covers=covers, columns=columns, times=seconds(0, 10),
              values=lambda t: [w * t for w in watts])  # fmt: skip
    whole = energy_of(tmp_path / "one", 0, 10)
    assert isinstance(whole, Energy)
    assert (whole.coverage, round(whole.watts)) == ("whole nodes", 900)
    write_log(tmp_path / "outside", covers={"mine": ["node"]},
              columns=[("mine", "x", "energy_joules", None)], times=seconds(0, 10),
              values=lambda t: [105 * t])  # fmt: skip
    outside = energy_of(tmp_path / "outside", 0, 10)
    assert isinstance(outside, Energy)
    assert outside.coverage == "whole nodes, measured by mine (not built in)"


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"event": "sample", "wall": 5, "monotonic": 5, "values": [1, 2, 3]}',
        '{"event": "sample", "wall": "x", "monotonic": 5, "values": [1]}',
        '{"event": "sample", "wall": 5, "monotonic": 5, "values": [true]}',
        '{"event": "columns", "columns": 7}',
        '{"event": "columns", "columns": [["nvml"]]}',
        '{"event": "meters", "member": "x"}',
    ],
)
def test_an_untrusted_log_may_hold_anything(tmp_path: Path, line: str) -> None:
    path = write_log(tmp_path, covers=ACCELERATORS, columns=COUNTER, times=seconds(0, 10),
                     values=lambda t: [10 * t])  # fmt: skip
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert joules(tmp_path, 0, 10) == pytest.approx(100)


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400])
def test_a_number_that_no_meter_records_is_an_error_with_its_line(
    tmp_path: Path, number: str
) -> None:
    path = write_log(tmp_path, covers=ACCELERATORS, columns=COUNTER, times=seconds(0, 10),
                     values=lambda t: [10 * t])  # fmt: skip
    line = len(path.read_text().splitlines()) + 1
    with path.open("a", encoding="utf-8") as file:
        file.write(f'{{"event": "sample", "wall": 5, "monotonic": 5, "values": [{number}]}}\n')
    with pytest.raises(RunFolderError, match=f"line {line}: "):
        joules(tmp_path, 0, 10)


def test_curves_are_rates_and_shares_with_a_band_over_devices(tmp_path: Path) -> None:
    for node in range(2):
        write_log(tmp_path, host=f"n{node}", boot=f"n{node}", member=node, covers=ACCELERATORS,
                  columns=GPU_NODE_COLUMNS, times=seconds(0, 1000),
                  values=lambda t, node=node: gpu_node(t, node=node))  # fmt: skip
    curves = meter_curves(read_meters(tmp_path), Window(0.0, 1000.0, wall))
    power, busy = curves["power of accelerators"], curves["host processors"]
    assert (power.sources, busy.sources) == (8, 2)
    assert len(power.points) == MAX_POINTS
    assert power.mean == pytest.approx(600 + 60 + 5, rel=0.01)
    assert all(point.low <= point.mean <= point.high for point in power.points)
    assert busy.mean == pytest.approx(16 / 64, rel=0.01)
    assert curves["network inside"].mean == pytest.approx(3e7, rel=0.01)
    assert curves["network received"].mean == pytest.approx(2.3e9, rel=0.01)
    assert curves["accelerator memory"].points[0].low == pytest.approx(0.4)
    assert curves["accelerator memory"].points[0].high == pytest.approx(0.7)


def test_curves_of_a_window_that_begins_later(tmp_path: Path) -> None:
    write_log(tmp_path, covers=ACCELERATORS, columns=GPU_NODE_COLUMNS, times=seconds(0, 1000),
              values=lambda t: gpu_node(t, node=0))  # fmt: skip
    curves = meter_curves(read_meters(tmp_path), Window(600.0, 900.0, wall))
    received = curves["network received"]
    assert received.mean == pytest.approx(2.3e9, rel=0.01)
    assert len(received.points) == MAX_POINTS


def test_curves_take_each_part_of_a_node_from_one_meter(tmp_path: Path) -> None:
    """A processor's own graphics idle beside the training card; node power is reported twice."""
    columns = [("drm", "0000:00:02.0", "utilization", None), ("drm", "0000:00:02.0", "watts", None),
               ("nvml", "GPU-0", "utilization", None), ("nvml", "GPU-0", "watts", None),
               ("slurm", "node", "watts", None), ("ipmi", "node", "watts", None)]  # fmt: skip
    covers = {"drm": ["accelerators"], "nvml": ["accelerators"], "slurm": ["node"],
              "ipmi": ["node"]}  # fmt: skip
    write_log(tmp_path, covers=covers, columns=columns, times=seconds(0, 100),
              values=lambda _: [0.0, 5.0, 0.9, 700.0, 990.0, 1000.0])  # fmt: skip
    write_log(tmp_path, host="b", boot="b", member=1, covers={"drm": ["accelerators"]},
              columns=columns[:2], times=seconds(0, 100),
              values=lambda _: [0.5, 300.0])  # fmt: skip
    curves = meter_curves(read_meters(tmp_path), Window(0.0, 100.0, wall))
    busy, power = curves["accelerator utilization"], curves["power of accelerators"]
    assert (busy.sources, power.sources) == (2, 2)
    assert (busy.points[0].low, busy.points[0].high) == (0.5, 0.9)
    assert (power.points[0].low, power.points[0].high) == (300, 700)
    assert curves["power of node"].mean == pytest.approx(1000)


def test_the_integral_of_a_gauge_ends_with_its_samples() -> None:
    assert integral([(0.0, 10.0), (10.0, 30.0)], -5, 5) == (pytest.approx(75.0), 5.0)
    assert integral([(0.0, 10.0)], 0, 10) == (0.0, 0.0)


def metered_run(path: Path, *, trials: int, metered: Sequence[int]) -> tuple[TrialScore, Score]:
    """A synthetic run whose trials in `metered` have a counter of 300 W: a trial, and the mean."""
    run = write_synthetic_run(path, Shape(trials=trials))
    plan = replace(run_folder.read(Plan, run.plan), device="cuda")
    recorded = list(events.read(run.events))
    for trial in metered:
        began = min(
            e["wall"] for e in recorded if e["event"] == "first_batch" and e["trial"] == trial
        )
        for member in range(plan.ensemble_size):
            write_log(
                run.trial(trial).meters, host="host", member=member, covers=ACCELERATORS,
                columns=COUNTER, times=[began - 1 + n for n in range(200)], monotonic_zero=BEGAN,
                values=lambda t: [300 * (t - BEGAN)],
            )  # fmt: skip
    scores = [
        score_trial(plan, recorded, trial=number, meters=read_meters(run.trial(number).meters))
        for number in range(1, trials + 1)
    ]
    return scores[0], mean_of_trials(scores, required_runs=plan.definition.required_runs)


def test_the_score_has_speed_per_watt_with_what_the_meters_cover(tmp_path: Path) -> None:
    trial, run = metered_run(tmp_path / "run", trials=2, metered=(1, 2))
    assert trial.watts == pytest.approx(300)
    assert trial.energy_joules == pytest.approx(300 * trial.seconds)
    assert trial.flops_per_watt == pytest.approx(trial.flops / 300)
    assert trial.vflops_per_watt == pytest.approx(trial.vflops / 300)
    assert run.power_coverage == "accelerators"
    assert run.flops_per_watt == pytest.approx(run.flops / 300)


def test_a_trial_without_energy_leaves_the_run_without(tmp_path: Path) -> None:
    trial, run = metered_run(tmp_path / "run", trials=2, metered=(1,))
    assert trial.watts == pytest.approx(300)
    assert (run.energy_joules, run.flops_per_watt, run.power_coverage) == (None, None, None)


def test_the_terminal_names_the_coverage_or_says_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, measured = metered_run(tmp_path / "measured", trials=1, metered=(1,))
    _, run = metered_run(tmp_path / "run", trials=2, metered=(1,))
    for score, words in (
        (measured, "300 W of accelerators; "),
        (run, "not measured (see the report"),
    ):
        narrow = Console(width=80, record=True, file=io.StringIO())
        monkeypatch.setattr(terminal, "console", narrow)
        score_view.show_score(score, [])
        text = narrow.export_text()
        assert words in text
        assert max(map(len, text.splitlines())) <= 80


def test_links_inside_a_node_have_curves_of_each_accelerator(tmp_path: Path) -> None:
    """V3 §3.7: NVLink's and PCIe's counters over time, in bytes per second."""
    columns = [("nvml", f"GPU-{n}", f"{link}_sent_bytes", None)
               for n in range(2) for link in ("nvlink", "pcie")]  # fmt: skip
    write_log(
        tmp_path, covers={"nvml": ("accelerators",)}, columns=columns, times=seconds(0, 100),
        values=lambda t: [2e9 * t, 1e8 * t, 4e9 * t, 1e8 * t],
    )  # fmt: skip
    curves = meter_curves(read_meters(tmp_path), Window(0.0, 100.0, wall))
    assert curves["NVLink sent"].sources == 2
    assert curves["NVLink sent"].mean == pytest.approx(3e9)
    assert curves["NVLink sent"].points[5].high == pytest.approx(4e9)
    assert curves["PCIe sent"].mean == pytest.approx(1e8)
