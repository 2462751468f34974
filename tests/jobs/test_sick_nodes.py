"""A node that is slower than the others is named while it trains, and in the result."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import Submit, member_log, run_events, wait_for_event, workers

MEMBERS, SLOW = 4, 2
STOPPED_SECONDS, RUNNING_SECONDS = 0.5, 0.05


def _slow_down(run: Path, member: int, ended: threading.Event) -> None:
    """Stop and continue a member's worker, so that it computes in a tenth of the time."""
    while not ended.is_set():
        for number, pause in (
            (signal.SIGSTOP, STOPPED_SECONDS),
            (signal.SIGCONT, RUNNING_SECONDS),
        ):
            for pid in workers(run, member):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(pause)


@pytest.mark.long
def test_a_slow_node_is_named_in_status_report_and_findings(
    cluster: Cluster, shared_folder: Path, run_ensemble: Submit, submit: Submit
) -> None:
    run, ended = shared_folder / "run", threading.Event()
    settings = {"ensemble.size": MEMBERS, "system.nodes": MEMBERS, "train.epochs": 16}
    command = run_ensemble(cluster, run, settings)
    wait_for_event(command, member_log(run, SLOW), "first_batch")
    thread = threading.Thread(target=_slow_down, args=(run, SLOW, ended))
    thread.start()
    try:
        wait_for_event(command, member_log(run, SLOW), "epoch", epoch=10)
        while_running = submit(cluster, "status", run, "--json")
        assert while_running.wait(120) == 0, while_running.err
    finally:
        ended.set()
        thread.join()
    assert command.wait(600) == 0, command.err
    (start,) = run_events(run, "first_batch", member=SLOW)
    checked = submit(cluster, "check", run, "--json")
    checked.wait(120)
    findings = json.loads(checked.out)["findings"]
    for named in (
        [sign["hosts"] for sign in json.loads(while_running.out)["signs"]],
        [[f["run"]] for f in findings if f["rule"] == "healthy nodes"],
    ):
        assert named == [[start["host"]]]
    assert f"{start['host']}" in (run / "report.html").read_text()
    assert "Nodes to test" in (run / "report.html").read_text()
