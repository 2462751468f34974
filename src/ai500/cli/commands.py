"""The commands: names, groups, summaries, and the functions that run them.

`ai500 --help` reads this table alone. A command's module is imported when it runs: numpy, h5py and
the rest would make every call, even `--version`, slow.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandEntry:
    """A command, or a group of commands, before its module is imported."""

    name: str
    target: str
    """`module:function`, or `module:app` of a group."""
    summary: str
    """First sentence of its help; a test holds it equal to the docstring's."""


GROUPS: dict[str, tuple[CommandEntry, ...]] = {
    "Run": (
        CommandEntry(
            "init",
            "ai500.cli.plan:init",
            "Write ai500.toml with every key, its meaning and its default.",
        ),
        CommandEntry(
            "plan",
            "ai500.cli.plan:plan",
            "Show the plan of a run: members, mapping, operations, time.",
        ),
        CommandEntry(
            "run",
            "ai500.cli.run:run",
            "Train the bagged ensemble, score it, and write the report.",
        ),
        CommandEntry(
            "status",
            "ai500.cli.status:status",
            "Show the progress of a run: state, epochs, loss, time left.",
        ),
        CommandEntry(
            "cancel",
            "ai500.cli.run:cancel",
            "Cancel a run; members write checkpoints, and `resume` continues.",
        ),
        CommandEntry(
            "finish",
            "ai500.cli.run:finish",
            "End a running search with a score, after its minimum time.",
        ),
        CommandEntry("resume", "ai500.cli.run:resume", "Resume a run that was stopped or failed."),
        CommandEntry(
            "clean",
            "ai500.cli.clean:clean",
            "List or remove (--yes) files that ended processes left behind.",
        ),
    ),
    "Results": (
        CommandEntry(
            "runs",
            "ai500.cli.runs:runs",
            "List the runs here, newest first, with verdict and score.",
        ),
        CommandEntry(
            "score", "ai500.cli.run:score", "Recompute the score of a run from its events."
        ),
        CommandEntry("report", "ai500.cli.run:report", "Write the HTML report of a run again."),
        CommandEntry("check", "ai500.cli.check:check", "Judge a run by the rules, layer by layer."),
        CommandEntry(
            "compare",
            "ai500.cli.check:compare",
            "Compare two runs, layer by layer, and their scores.",
        ),
        CommandEntry(
            "export",
            "ai500.cli.export:export",
            "Write a run's members, trials, events and meters as tables.",
        ),
    ),
    "The list": (
        CommandEntry(
            "submit",
            "ai500.cli.submit:submit",
            "Pack a run that follows the rules into one file for the list.",
        ),
        CommandEntry(
            "verify",
            "ai500.cli.submit:verify",
            "Recompute a submission's score from its raw events.",
        ),
        CommandEntry("keygen", "ai500.cli.submit:keygen", "Make a key to sign submissions with."),
        CommandEntry(
            "rank",
            "ai500.cli.rank:rank",
            "Rank submissions by VFLOPS, and write the list as a web site.",
        ),
    ),
    "The machine": (
        CommandEntry(
            "doctor", "ai500.cli.doctor:doctor", "Say what this machine lacks and how to get it."
        ),
        CommandEntry(
            "system",
            "ai500.cli.system:system",
            "Describe this node, the nodes of the cluster, or those of a run.",
        ),
        CommandEntry(
            "roofline",
            "ai500.cli.roofline:roofline",
            "Measure the roofline of this system, or place a run under it.",
        ),
        CommandEntry(
            "profile",
            "ai500.cli.profile:profile",
            "Profile training steps: kernels, communication, a timeline.",
        ),
        CommandEntry(
            "project",
            "ai500.cli.project:project",
            "Project a run's ensemble to a system that can't be measured.",
        ),
    ),
    "Models, data and experiments": (
        CommandEntry(
            "flops",
            "ai500.cli.flops:flops",
            "Count the operations of a training step, without running it.",
        ),
        CommandEntry("data", "ai500.cli.data:app", "Make, pack and check data."),
        CommandEntry(
            "study",
            "ai500.cli.study:app",
            "Run the papers' experiments on this machine and plot them.",
        ),
    ),
}
"""Heading in the help → its commands, in the order in which they are shown."""

COMMANDS = {entry.name: entry for entries in GROUPS.values() for entry in entries}
