"""A stranger's text in the terminal is text: no markup, nothing that steers it."""

from __future__ import annotations

import pytest

from ai500.cli.system import show
from ai500.cli.terminal import rows
from ai500.inventory.description import NodeDescription, Processors, Software, State

EVIL = "[red]X[/oops]\x1b]0;mine\x07\x9b2J\u202e"
SHOWN = r"[red]X[/oops]\x1b]0;mine\x07\x9b2J\x202e"


def test_names_and_values_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows(EVIL, [(EVIL, "value"), ("name", EVIL), ("two", "lines\nhere")])
    printed = "".join(capsys.readouterr().out.split())  # long ones go on in the next line
    assert printed.count(SHOWN) == 3
    assert "lineshere" in printed
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


def test_host_names_and_differences_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [
        NodeDescription(
            hostname=f"{EVIL}{number}", machine=machine, virtual=None, processors=Processors(),
            memory_bytes=None, accelerators=(), accelerator_links=(), disks=(), interfaces=(),
            software=Software(), before=State(wall=0.0),
        )
        for number, machine in enumerate(("plain", "plain", EVIL))
    ]  # fmt: skip
    show(nodes, {EVIL: EVIL})
    printed = capsys.readouterr().out
    assert f"machine: {SHOWN}, elsewhere plain" in printed
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
