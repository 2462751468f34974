"""How far `ai500 project` is from steps and staging that were really made.

    sudo python benchmarks/projection.py [--repeats 5] [--json FILE] [--megabit 8]

Nodes are network namespaces whose links `tc tbf` limits (as in benchmarks/collectives.py). 2 to 16
ranks make steps: computation is a timed sleep, two buckets of gradients are averaged by the
project's own collectives over gloo while it goes on. Two points calibrate the goodput of the links
and the latency of a message; the model predicts all others. Then 1 to 7 members stage data from one
server, whose link and theirs are limited; one point calibrates the goodput.

Ranks run at a higher priority: what they wait for is the link, not other work on this machine. A
step in which a rank's threads waited for a core, all together, for more than a tenth of the time is
made again, at most three times as often as --repeats; the shares that count are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from collectives import LINK, namespaces, require_namespaces, run_command, run_ranks

from ai500.parallel import topology
from ai500.projection import simulator, traffic
from ai500.projection.platform import Platform, Topology
from ai500.projection.timeline import overlapped_step
from ai500.roofline.model import WIRE_BYTES

LAYOUTS = ((2, 1), (4, 1), (4, 2), (8, 2))
"""Nodes, ranks of each."""
MODES = ("all_reduce", "hierarchical", "torus_2d")
PRECISIONS = ("fp32", "fp16", "int8")
BUCKETS, VALUES = 2, 262_144
COMPUTE_SECONDS = 0.6
CALIBRATION = (("all_reduce", "fp32", 4, 2), ("all_reduce", "int8", 8, 2))
"""Few large messages for the goodput, many small ones for the latency."""
STAGED_BYTES, BLOCK_BYTES = 2_000_000, 20_000
STAGED_MEMBERS = (1, 2, 4, 7)
SERVER_RATIO = 3
"""Bandwidth of the file server over that of a member's node."""
NICENESS = "-10"
MOST_WAITING = 0.1
"""Share of a step that a rank's threads may wait for a core, all together."""
MEAN_GOAL, WORST_GOAL = 0.10, 0.25
PORT = 29517


def worker(repeats: int) -> None:
    """Run one rank: every mode and precision in turn."""
    import torch
    import torch.distributed as dist

    from ai500.parallel.collectives import make

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, size = int(os.environ["LOCAL_WORLD_SIZE"]), dist.get_world_size()
    pool = ThreadPoolExecutor(1)
    for mode in MODES:
        if mode == "torus_2d" and size < 4:
            continue
        for precision in PRECISIONS:
            collective = make(mode, precision, group=None, local_size=ranks)
            buckets = [torch.randn(VALUES) for _ in range(BUCKETS)]
            steps: list[tuple[float, float]] = []
            # The first opens connections.
            for repeat in range(3 * repeats + 1):
                if sum(share < MOST_WAITING for _, share in steps) == repeats:
                    break
                dist.barrier()
                waited, begin = core_wait_seconds(), time.perf_counter()
                pending = []
                for index, bucket in enumerate(buckets):
                    due = begin + COMPUTE_SECONDS * (index + 1) / BUCKETS
                    time.sleep(max(0.0, due - time.perf_counter()))
                    pending.append(
                        pool.submit(collective.all_reduce_mean, bucket, key=f"bucket {index}")
                    )
                for future in pending:
                    future.result()
                worst = torch.tensor([time.perf_counter() - begin, core_wait_seconds() - waited])
                dist.all_reduce(worst, op=dist.ReduceOp.MAX)
                if repeat:
                    seconds, waiting = worst.tolist()
                    steps.append((seconds, waiting / seconds))
            if dist.get_rank() == 0:
                steps = sorted(steps, key=lambda step: step[1])[:repeats]
                print(json.dumps({
                    "mode": mode, "precision": precision, "seconds": [step[0] for step in steps],
                    "waiting": max(share for _, share in steps),
                }), flush=True)  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()


def core_wait_seconds() -> float:
    """Return the time that this process's threads were ready to run, and waited for a core."""
    threads = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


def measure_steps(names: list[str], *, ranks: int, repeats: int) -> list[dict[str, Any]]:
    """Run one process per rank in the namespace of its node; return rank 0's results."""
    command = ["nice", "-n", NICENESS, sys.executable, __file__, "--worker", "--repeats",
               str(repeats)]  # fmt: skip
    return run_ranks(names, command, ranks=ranks, port=PORT, limit=900)


def tune(names: list[str]) -> None:
    """Let TCP fill a link at once: its slow start is no part of a model for RDMA fabrics."""
    settings = {
        "net.ipv4.tcp_slow_start_after_idle": "0",
        "net.ipv4.tcp_rmem": "4096 4194304 8388608",
        "net.ipv4.tcp_wmem": "4096 4194304 8388608",
    }
    for index, name in enumerate(names):
        enter = ("nsenter", f"--net=/run/netns/{name}")
        for key, value in settings.items():
            run_command(*enter, "sysctl", "-q", "-w", f"{key}={value}")
        run_command(*enter, "ip", "route", "replace", "10.99.0.0/24", "dev", LINK, "scope", "link",
                    "src", f"10.99.0.{index + 1}", "initcwnd", "1500", "initrwnd", "1500",
                    "rto_min", "10s")  # fmt: skip


def measure_staging(names: list[str], *, megabit: int, members: int, repeats: int) -> list[float]:
    """Return the seconds in which all members received their data from the server, node 0."""
    server, hub = names[0], names[0].removesuffix("n0") + "hub"
    shape_link(server, LINK, megabit=SERVER_RATIO * megabit)
    for index in range(1, members + 1):
        shape_link(hub, f"port{index}", megabit=megabit)
    seconds = []
    for _ in range(repeats):
        serving = start(server, "--serve", str(members))
        assert serving.stdout is not None
        serving.stdout.readline()  # it listens
        reading = [start(name, "--read") for name in names[1 : members + 1]]
        ends = [float(process.communicate(timeout=300)[0]) for process in reading]
        begin = float(serving.communicate(timeout=60)[0])
        seconds.append(max(ends) - begin)
    return seconds


def start(name: str, *options: str) -> subprocess.Popen[str]:
    """Start this file in a namespace."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    command = ["nice", "-n", NICENESS, "nsenter", f"--net=/run/netns/{name}", sys.executable,
               __file__, *options]  # fmt: skip
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def shape_link(name: str, device: str, *, megabit: int) -> None:
    run_command("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf",
                "rate", f"{megabit}mbit", "burst", "16kb", "latency", "30s")  # fmt: skip


def serve(members: int) -> None:
    """Send each member its data once all are connected; print when that began."""
    with socket.create_server(("10.99.0.1", PORT)) as listener:
        print("listening", flush=True)
        connections = [listener.accept()[0] for _ in range(members)]
        begin = time.monotonic()
        # In turns, as a file server reads blocks for its clients: a whole file of one at once would
        # stand before the others' in the queue of the link.
        for begin_of_block in range(0, STAGED_BYTES, BLOCK_BYTES):
            block = bytes(min(BLOCK_BYTES, STAGED_BYTES - begin_of_block))
            for connection in connections:
                connection.sendall(block)
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # the member has all of it
    print(begin)


def receive() -> None:
    """Read until the server ends; print when that was."""
    with socket.create_connection(("10.99.0.1", PORT)) as connection:
        size = 0
        while part := connection.recv(65536):
            size += len(part)
        end = time.monotonic()
        assert size == STAGED_BYTES
    print(end)


def testbed(megabit: float, *, goodput: float, latency: float) -> Platform:
    """Describe the namespaces: one switch, links of the shaped rate, memory inside a node."""
    rate = megabit * 1e6 / 8 * goodput
    return Platform(
        name="namespaces", source="this machine", nodes=8, accelerator="sleep",
        accelerators_per_node=2, flops={"fp32": 1.0}, flops_measured=True,
        link_bytes_per_second=1e9, link_latency_seconds=latency, rails=1,
        rail_bytes_per_second=rate, rail_latency_seconds=latency,
        switch_latency_seconds=latency / 2,
        topology=Topology("fat_tree", leaf=8, uplinks=8), file_system_bytes_per_second=None,
        node_read_bytes_per_second=rate, watts_per_node=None,
    )  # fmt: skip


def predict(platform: Platform, points: list[dict[str, Any]]) -> list[float]:
    """Return the seconds of a step at each point."""
    seconds = {}
    for nodes, ranks in {(point["nodes"], point["ranks"]) for point in points}:
        alike = [(point["mode"], point["precision"]) for point in points
                 if (point["nodes"], point["ranks"]) == (nodes, ranks)]  # fmt: skip
        places = topology.node_of_rank([ranks] * nodes)
        jobs = [
            traffic.rounds(mode, places, buffer=VALUES * WIRE_BYTES[precision],
                           library=precision == "fp32")
            for mode, precision in alike
        ]  # fmt: skip
        averaging = simulator.collective_seconds(platform, places, jobs)
        for (mode, precision), reduce in zip(alike, averaging, strict=True):
            seconds[mode, precision, nodes, ranks] = overlapped_step(
                compute=COMPUTE_SECONDS,
                ready=[COMPUTE_SECONDS * (index + 1) / BUCKETS for index in range(BUCKETS)],
                reduce=[reduce] * BUCKETS,
            )
    return [seconds[key_of(point)] for point in points]


def key_of(point: dict[str, Any]) -> tuple[str, str, int, int]:
    return point["mode"], point["precision"], point["nodes"], point["ranks"]


def calibrate(points: list[dict[str, Any]], *, megabit: int) -> Platform:
    """Fit goodput and latency to two points, in turn until both fit."""
    first, second = (next(p for p in points if key_of(p) == key) for key in CALIBRATION)

    def seconds(slowness: float, latency: float, *, point: dict[str, Any]) -> float:
        return predict(testbed(megabit, goodput=1 / slowness, latency=latency), [point])[0]

    slowness, latency = 1.05, 1e-3
    for _ in range(3):
        slowness = _solve(partial(seconds, latency=latency, point=first), first["median"], 1.0, 2.0)
        latency = _solve(partial(seconds, slowness, point=second), second["median"], 1e-6, 0.1)
    goodput = 1 / slowness
    print(f"calibrated: goodput {goodput:.3f} of the shaped rate, latency {latency * 1e3:.2f} ms")
    return testbed(megabit, goodput=goodput, latency=latency)


def predict_staging(members: int, *, megabit: int, goodput: float) -> float:
    rate = megabit * 1e6 / 8 * goodput
    return simulator.staging_seconds(
        nodes=members, bytes_per_node=STAGED_BYTES, file_system=SERVER_RATIO * rate, node=rate
    )


def _solve(seconds: Callable[[float], float], measured: float, least: float, most: float) -> float:
    """Return the value from `least` to `most` at which the model, a line, takes `measured`."""
    fast, slow = seconds(least), seconds(most)
    value = least + (measured - fast) * (most - least) / (slow - fast)
    return min(most, max(least, value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--megabit", type=int, default=8, help="per second, of a node's link")
    parser.add_argument("--json", type=Path, help="write the points to this file")
    parser.add_argument("--again", type=Path, help="predict the points of such a file again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.repeats)
        return
    if options.serve:
        serve(options.serve)
        return
    if options.read:
        receive()
        return
    if options.again:
        made = json.loads(options.again.read_text())
        report(made["points"], made["staging"], megabit=made["megabit"], path=options.json)
        return
    require_namespaces()
    simulator.require_simgrid()
    points: list[dict[str, Any]] = []
    staging: list[dict[str, Any]] = []
    # A small burst: the shaper must not let a whole message pass at once after a pause. A long
    # queue: nothing is dropped, so TCP's recovery does not decide.
    for members in STAGED_MEMBERS:
        with namespaces(members + 1, megabit=options.megabit, burst="16kb", queue="4s") as names:
            tune(names)
            times = measure_staging(
                names, megabit=options.megabit, members=members, repeats=options.repeats
            )
            staging.append({"members": members, "seconds": times, "median": median(times)})
            print(f"staging {members}: {_span(times)}", flush=True)
    for nodes, ranks in LAYOUTS:
        with namespaces(nodes, megabit=options.megabit, burst="16kb", queue="4s") as names:
            tune(names)
            for result in measure_steps(names, ranks=ranks, repeats=options.repeats):
                times = result["seconds"]
                points.append({**result, "nodes": nodes, "ranks": ranks, "median": median(times)})
                print(f"{nodes} × {ranks} {result['mode']} {result['precision']}: {_span(times)}, "
                      f"waiting {result['waiting']:.0%}", flush=True)  # fmt: skip
    if options.json is not None:
        options.json.write_text(
            json.dumps({"megabit": options.megabit, "points": points, "staging": staging})
        )
    report(points, staging, megabit=options.megabit, path=options.json)


def _span(times: list[float]) -> str:
    return f"{median(times):.3f} s ({min(times):.3f} to {max(times):.3f})"


def report(
    points: list[dict[str, Any]], staging: list[dict[str, Any]], *, megabit: int, path: Path | None
) -> None:
    platform = calibrate(points, megabit=megabit)
    errors = []
    for point, predicted in zip(points, predict(platform, points), strict=True):
        point["predicted"], point["calibration"] = predicted, key_of(point) in CALIBRATION
        if not point["calibration"]:
            errors.append(predicted / point["median"] - 1)
    print("\n".join(rows(points)))
    mean, worst = fmean(map(abs, errors)), max(map(abs, errors))
    print(f"{len(errors)} steps: mean error {mean:.1%}, worst {worst:.1%}")
    stage_errors = report_staging(staging, megabit=megabit)
    staging_mean, staging_worst = fmean(map(abs, stage_errors)), max(map(abs, stage_errors))
    print(f"{len(stage_errors)} stagings: mean error {staging_mean:.1%}, worst {staging_worst:.1%}")
    if path is not None:
        made = {"megabit": megabit, "points": points, "mean": mean, "worst": worst,
                "staging": staging, "staging_mean": staging_mean,
                "staging_worst": staging_worst}  # fmt: skip
        path.write_text(json.dumps(made, indent=1) + "\n")
    if max(mean, staging_mean) > MEAN_GOAL or max(worst, staging_worst) > WORST_GOAL:
        raise SystemExit(f"goal missed: mean at most {MEAN_GOAL:.0%}, worst {WORST_GOAL:.0%}")
    print("goal met")


def rows(points: list[dict[str, Any]]) -> list[str]:
    """Return the rows of docs/projection.md: measured / predicted, error; c: calibration."""
    lines: dict[str, list[str]] = {}
    for point in points:
        error = f"{point['predicted'] / point['median'] - 1:+.0%}".replace("-", "−")
        cell = f"{point['median']:.2f} / {point['predicted']:.2f}, "
        cell += "*c*" if point["calibration"] else error
        line = f"| {point['nodes']} × {point['ranks']} | `{point['mode']}` |"
        lines.setdefault(line, []).append(f" {cell} |")
    return [line + "".join(cells) for line, cells in lines.items()]


def report_staging(staging: list[dict[str, Any]], *, megabit: int) -> list[float]:
    """Print the members' stagings beside the model, calibrated on one member; return the errors."""
    rate = megabit * 1e6 / 8
    goodput = STAGED_BYTES / staging[0]["median"] / rate
    errors = []
    for point in staging:
        predicted = predict_staging(point["members"], megabit=megabit, goodput=goodput)
        point["predicted"] = predicted
        error = predicted / point["median"] - 1
        calibration = point is staging[0]
        if not calibration:
            errors.append(error)
        print(f"staging of {point['members']} members {point['median']:>27.3f}{predicted:>11.3f}"
              f"{error:>8.1%}{'  calibration' if calibration else ''}")  # fmt: skip
    return errors


if __name__ == "__main__":
    main()
