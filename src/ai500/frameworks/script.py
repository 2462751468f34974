"""Framework `script`: a member is the user's own training command, in any language.

The command runs under `script_worker.py`, which gives it the contract's task file and turns what it
reports into the member's events and record. A run of a script is never an entry of the list.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

from ai500.config import CommunicationConfig, Config, TrainConfig
from ai500.core import schema
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.frameworks.protocol import Capabilities, NodePlace, WorkerCommand, refuse_unused
from ai500.records import FrameworkChoice, Operations, Task, list_operators
from ai500.records.run_folder import MemberFolder

USED_OF_TRAIN = ("epochs", "batch_size", "evaluate_every_epochs")
"""Keys of [train] that are part of a script's task."""


class Script:
    """Members trained by a command of the user's own."""

    name = "script"
    capabilities = Capabilities(parallel_modes=("data",))
    reads_staged_data = False

    def check(self, config: Config) -> None:
        """Refuse a configuration without a command or a class of its own, and keys without effect.

        The program itself is looked for where it will run on this machine.
        """
        if not config.framework.command:
            raise ConfigError(
                "framework.kind = 'script' needs framework.command.",
                key="framework.command",
                remedy='For example ["{python}", "train.py", "{task}"].',
            )
        if config.custom_class.name is None:
            raise ConfigError(
                "framework.kind = 'script' needs a class of its own: what a script does is "
                "comparable with no registered class.",
                key="custom_class.name",
                remedy="Name one in [custom_class].",
            )
        unused = {
            f"train.{field.name}": "the script decides it"
            for field in fields(TrainConfig)
            if field.name not in USED_OF_TRAIN
        }
        unused |= {
            f"communication.{field.name}": "the script communicates by itself"
            for field in fields(CommunicationConfig)
        }
        unused |= {
            f"parallel.{name}": "the script divides its own model"
            for name in ("sharded", "batch_norm")
        }
        if config.ensemble.sharing == "process":
            unused["ensemble.sharing"] = "every script is a process of its own"
        refuse_unused(config, unused)
        if config.scheduler.kind == "local" and config.scheduler.launcher == "bare":
            _find_program(config)

    def command(self, task: Task, *, folder: MemberFolder, place: NodePlace) -> WorkerCommand:
        """Build the supervising worker, which starts the script's ranks on this node."""
        words = (sys.executable, "-m", "ai500.frameworks.script_worker", str(folder.task))
        return WorkerCommand(words)


SCRIPT = Script()


def words_of(choice: FrameworkChoice, *, task_file: Path | str) -> list[str]:
    """Return the words of a script's command for one rank."""
    python = choice.python or sys.executable
    return [
        word.replace("{python}", python).replace("{task}", str(task_file))
        for word in choice.command
    ]


def stated_operations(path: str | None) -> Operations | None:
    """Read a count that `ai500 flops … --json` printed; None: none is stated."""
    if path is None:
        return None
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        count = {key: data[key] for key in ("convention", "forward_per_sample", "parameters")}
        count |= {"backward_per_sample": data["backward_per_sample"]}
        count |= {"update_per_step": data["update"], "uncounted": data["unknown"]}
        operations = schema.decode(Operations, count)
    except (OSError, ValueError, LookupError, TypeError, schema.SchemaError) as error:
        raise ConfigError(
            f"framework.operations = {path!r}: not a count of `ai500 flops … --json`: {error!r}.",
            key="framework.operations",
            value=path,
            path=path,
            remedy="Write it with `ai500 flops package.module:factory --input … --json > FILE`, "
            "or of StableHLO text with `ai500 flops model.mlir --json > FILE`.",
        ) from error
    if operations.uncounted:
        raise ConfigError(
            f"framework.operations = {path!r}: it leaves out "
            f"{list_operators(operations.uncounted)}, which no rule counts.",
            key="framework.operations",
            value=path,
            path=path,
            remedy="Leave it out: FLOPS are then not measured.",
        )
    return operations


def _find_program(config: Config) -> None:
    choice = FrameworkChoice("script", config.framework.command, config.framework.python)
    program = words_of(choice, task_file="")[0]
    folder = Path(config.framework.folder or ".")
    searched = str(folder / program) if "/" in program else program
    if shutil.which(searched) is None:
        raise EnvironmentLacksError(
            f"framework.command starts {program!r}, which is no program on this machine.",
            key="framework.command",
            value=program,
            path=folder,
            remedy="Install it, or name its path; {python} is the interpreter of the jobs.",
        )
