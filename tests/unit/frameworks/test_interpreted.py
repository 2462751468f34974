"""Frameworks in an interpreter of their own: what `ai500 plan` refuses of them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from ai500 import config as configuration
from ai500.core import plugins
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.frameworks.interpreted import START, Interpreted
from ai500.frameworks.jax import JAX
from ai500.frameworks.mindspore import MINDSPORE
from ai500.frameworks.protocol import OTHER_FRAMEWORKS, NodePlace
from ai500.frameworks.tensorflow import TENSORFLOW
from ai500.inventory import machine
from ai500.pipeline.planning import make_plan
from ai500.records import FrameworkChoice, Plan, Slot, run_folder
from ai500.records.run_folder import MemberFolder
from ai500.workloads.image_classification import CLASSES
from tests.support.small_search import task as small_task


def planned(python: Path, **changes: Any) -> Plan:
    settings = {"framework.kind": "jax", "framework.python": str(python), "system.device": "cpu"}
    return make_plan(configuration.load(overrides=settings | changes), machine.describe())


def interpreter(folder: Path, **versions: str) -> Path:
    """Make a real interpreter that has these distributions, as far as their metadata goes."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, version in versions.items():
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("jax") / "venv", jax="0.10.2", numpy="2.4.0")


def test_a_framework_of_another_interpreter_is_planned(python: Path) -> None:
    plan = planned(python)
    assert (plan.framework.kind, plan.framework.python) == ("jax", str(python))
    assert plan.sharing.mode != "process" and plan.stage
    assert plan.operations is not None


def test_jax_alone_has_the_language_model(python: Path) -> None:
    plan = planned(python, workload="language_model")
    assert (plan.framework.kind, plan.hyperparameters.optimizer) == ("jax", "adamw")
    with pytest.raises(ConfigError) as caught:
        planned(python, workload="language_model", **{"framework.kind": "tensorflow"})
    assert (caught.value.key, caught.value.value) == ("framework.kind", "tensorflow")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"workload": "extreme_weather"}, "framework.kind"),
        ({"workload": "automl"}, "framework.kind"),
        ({"parallel.mode": "tensor"}, "parallel.mode"),
        ({"parallel.sharded": True}, "parallel.sharded"),
        ({"parallel.batch_norm": "synchronized"}, "parallel.batch_norm"),
        ({"train.precision": "fp8"}, "train.precision"),
        ({"train.optimizer": "lars"}, "train.optimizer"),
        ({"train.accumulation": 2}, "train.accumulation"),
        ({"communication.precision": "int8"}, "communication.precision"),
        ({"framework.command": ["python", "train.py"]}, "framework.command"),
        ({"free_level.loss": "my.module:loss"}, "free_level.loss"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(
    python: Path, changes: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(python, **changes)
    assert caught.value.key == key


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    versions = {"jax": "0.4.9", "tensorflow-cpu": "2.9.1", "mindspore": "1.10.1"}
    return interpreter(tmp_path_factory.mktemp("old") / "venv", numpy="2.4.0", **versions)


@pytest.mark.parametrize("kind", ["jax", "tensorflow", "mindspore"])
def test_a_missing_framework_is_named_with_its_interpreter(tmp_path: Path, kind: str) -> None:
    empty = interpreter(tmp_path / "venv", numpy="2.4.0")
    with pytest.raises(EnvironmentLacksError) as caught:
        planned(empty, **{"framework.kind": kind})
    assert (caught.value.exit_code, caught.value.key) == (3, "framework.python")
    assert f"{empty} -m pip install '{kind}" in (caught.value.remedy or "")


def test_missing_numpy_is_named(tmp_path: Path) -> None:
    without = interpreter(tmp_path / "venv", jax="0.10.2")
    with pytest.raises(EnvironmentLacksError) as caught:
        planned(without)
    assert (caught.value.key, caught.value.value) == ("framework.python", str(without))
    assert "numpy" in str(caught.value)


@pytest.mark.parametrize("framework", [JAX, TENSORFLOW, MINDSPORE], ids=lambda each: each.name)
def test_an_old_version_is_refused(old: Path, framework: Interpreted) -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        planned(old, **{"framework.kind": framework.name})
    assert (caught.value.exit_code, caught.value.key) == (3, "framework.python")
    assert caught.value.value in {"0.4.9", "2.9.1", "1.10.1"}
    assert framework.oldest in str(caught.value)


@pytest.mark.parametrize("scheduler", ["slurm", "grid_engine"])
@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"setup": ("module load jax",)}, False),  # it may add the package
        ({"python": "python3"}, False),  # a program's name is looked up on the node
        ({"python": "/no/such/folder/of/this/machine/python"}, False),
    ],
)
def test_a_clusters_interpreter_is_checked_where_this_machine_has_it(
    old: Path, scheduler: str, changes: dict[str, Any], refused: bool
) -> None:
    settings = {
        "framework.kind": "jax",
        "framework.python": changes.get("python", str(old)),
        "scheduler.kind": scheduler,
        f"{scheduler}.setup": changes.get("setup", ()),
    }
    config = configuration.load(overrides=settings)
    if refused:
        with pytest.raises(EnvironmentLacksError) as caught:
            JAX.check(config)
        assert (caught.value.key, caught.value.value) == ("framework.python", "0.4.9")
    else:
        JAX.check(config)


def test_a_cluster_jobs_own_interpreter_is_checked(old: Path) -> None:
    settings = {"framework.kind": "jax", "scheduler.kind": "slurm", "slurm.python": str(old)}
    with pytest.raises(EnvironmentLacksError) as caught:
        JAX.check(configuration.load(overrides=settings))
    assert caught.value.value == "0.4.9"


@pytest.mark.parametrize("program", ["/no/such/python", "/bin/false"])
def test_a_program_that_is_no_interpreter_is_refused(program: str) -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        planned(Path(program))
    assert (caught.value.key, caught.value.value) == ("framework.python", program)


def test_this_interpreter_is_the_default() -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        make_plan(
            configuration.load(overrides={"framework.kind": "jax", "system.device": "cpu"}),
            machine.describe(),
        )
    assert caught.value.value == sys.executable


def test_a_node_without_the_framework_is_named_in_the_members_log(tmp_path: Path) -> None:
    task = dataclasses.replace(
        small_task(tmp_path),
        workload="image_classification",
        definition=CLASSES["smoke"],
        slots=(Slot(0, "cpu", ()),),
        framework=FrameworkChoice("jax"),
        search=None,
    )
    folder = MemberFolder(Path(task.folder))
    run_folder.write(folder.task, task)
    done = subprocess.run(
        [sys.executable, START, folder.task], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert done.stderr.startswith(f"error: {sys.executable} has no jax on ")


def test_ranks_of_a_member_that_straddles_nodes_are_numbered_node_by_node(tmp_path: Path) -> None:
    task = dataclasses.replace(small_task(tmp_path / "trial"), parallel_degree=8)
    folder = MemberFolder(tmp_path)
    starts = []
    for index in range(3):
        place = NodePlace(index=index, count=3, node=f"n{index}", job="1", ranks=(4, 2, 2))
        words = JAX.command(task, folder=folder, place=place).words
        starts.append([word for word in words if word.startswith(("--ranks", "--first"))])
    assert starts == [
        ["--ranks=4", "--first=0"],
        ["--ranks=2", "--first=4"],
        ["--ranks=2", "--first=6"],
    ]


def test_every_built_in_framework_has_a_place() -> None:
    names = set(plugins.BUILT_IN["framework"])
    assert names == {"pytorch", "script", *OTHER_FRAMEWORKS}
