"""Launchers: the words each one starts a command with, and what it refuses."""

from __future__ import annotations

import csv
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.config import Config, ContainerConfig, load, to_toml
from ai500.core import plugins
from ai500.core.errors import ConfigError
from ai500.jobs.launchers import Container, apptainer, bare, docker, podman, pyxis
from ai500.jobs.trial_jobs import CONTAINER_VARIABLES, job_container
from ai500.records.run_folder import RunFolder

COMMAND = ["python3", "-m", "ai500.jobs.node_agent", "/runs/a run; rm -rf $HOME/trial"]
CONTAINER = Container(
    image="image.sif",
    mounts=("/runs/a run", "/data", "/opt/site:/site:ro"),
    accelerators=True,
    environment=("PYTHONPATH", "AI500_MEMBER"),
    working_directory="/runs/a run",
    flags=("--site-flag",),
)
CONTAINED = (apptainer, podman, docker, pyxis)

# Whatever a folder can be called, but for the two signs that no notation has room for.
names = st.text(st.characters(exclude_characters="/\0:\r", exclude_categories=["Cs"]), min_size=1)
folders = names.filter(lambda name: name not in (".", "..")).map(lambda name: f"/data/{name}")


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be an ordinary user of two groups."""
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 100)
    monkeypatch.setattr(os, "getgroups", lambda: [100, 2000])


def test_bare_leaves_the_command_alone() -> None:
    assert bare(None)(COMMAND) == COMMAND
    assert bare(None).srun_flags == ()


def test_apptainer() -> None:
    launcher = apptainer(CONTAINER)
    assert launcher(COMMAND) == [
        "apptainer", "exec", "--no-home",
        "--bind=/data:/data", "--bind=/runs/a run:/runs/a run", "--bind=/opt/site:/site:ro",
        "--pwd=/runs/a run", "--nv", "--site-flag", "image.sif",
        *COMMAND,
    ]  # fmt: skip
    assert launcher.srun_flags == ()


def test_singularity_and_another_vendor() -> None:
    container = replace(
        CONTAINER,
        mounts=(),
        flags=(),
        runtime=("singularity", "--quiet"),
        accelerator_flags=("--rocm",),
    )
    assert apptainer(container)(["true"]) == [
        "singularity", "--quiet", "exec", "--no-home", "--pwd=/runs/a run", "--rocm", "image.sif",
        "true",
    ]  # fmt: skip


ENGINE = [
    "run", "--rm", "--network=host", "--uts=host", "--ipc=host", "--pid=host",
    "--log-driver=none", "--security-opt=label=disable", "--entrypoint=",
]  # fmt: skip
PLACES = [
    "--mount=type=bind,source=/data,target=/data",
    "--mount=type=bind,source=/runs/a run,target=/runs/a run",
    "--mount=type=bind,source=/opt/site,target=/site,readonly",
    "--workdir=/runs/a run",
    "--env=AI500_LAUNCHER_PID", "--env=PYTHONPATH", "--env=AI500_MEMBER",
]  # fmt: skip
DEVICES = [
    "--env=CUDA_VISIBLE_DEVICES", "--env=HIP_VISIBLE_DEVICES", "--env=ROCR_VISIBLE_DEVICES",
    "--env=ZE_AFFINITY_MASK",
]  # fmt: skip
WATCH = (
    '({ while kill -0 $$ && read -r _ _ state _ <"/proc/$AI500_LAUNCHER_PID/stat" && '
    '[ "$state" != Z ]; do sleep 1; done; kill -KILL $$; } >/dev/null 2>&1 &); exec "$@"'
)
OUTSIDE = ["sh", "-c", 'AI500_LAUNCHER_PID=$$ exec "$@"', "sh"]
INSIDE = ["sh", "-c", WATCH, "sh"]


@pytest.mark.usefixtures("user")
def test_podman_without_root() -> None:
    launcher = podman(CONTAINER)
    assert launcher(COMMAND) == [
        *OUTSIDE, "podman", *ENGINE, "--userns=keep-id", "--device=nvidia.com/gpu=all",
        *PLACES, *DEVICES, "--site-flag", "image.sif", *INSIDE, *COMMAND,
    ]  # fmt: skip
    assert launcher.srun_flags == ()


def test_podman_as_root_without_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    container = replace(
        CONTAINER, accelerators=False, runtime=("podman", "--cgroup-manager=cgroupfs")
    )
    assert podman(container)(COMMAND) == [
        *OUTSIDE, "podman", "--cgroup-manager=cgroupfs", *ENGINE, "--user=0:0",
        *PLACES, "--site-flag", "image.sif", *INSIDE, *COMMAND,
    ]  # fmt: skip


@pytest.mark.usefixtures("user")
def test_docker() -> None:
    launcher = docker(CONTAINER)
    assert launcher(COMMAND) == [
        *OUTSIDE, "docker", *ENGINE,
        "--user=1234:100", "--group-add=2000", "--ulimit=memlock=-1", "--gpus=all",
        *PLACES, *DEVICES, "--site-flag", "image.sif", *INSIDE, *COMMAND,
    ]  # fmt: skip
    assert launcher.srun_flags == ()


def test_pyxis_leaves_the_command_to_srun() -> None:
    container = replace(CONTAINER, mounts=("/runs/7", "/data", "/opt/site:/site:ro"))
    launcher = pyxis(container)
    assert launcher(COMMAND) == COMMAND
    assert launcher.srun_flags == (
        "--container-image=image.sif",
        "--container-mounts=/data:/data,/runs/7:/runs/7,/opt/site:/site:ro",
        "--container-workdir=/runs/a run",
        "--container-env=PYTHONPATH,AI500_MEMBER",
        "--no-container-mount-home",
        "--no-container-entrypoint",
        "--site-flag",
    )


def test_of_two_mounts_at_one_place_the_later_counts() -> None:
    container = replace(CONTAINER, mounts=("/data/", "/data/inner", "/cache:/data:ro"))
    binds = [word for word in apptainer(container)(()) if word.startswith("--bind")]
    assert binds == ["--bind=/cache:/data:ro", "--bind=/data/inner:/data/inner"]


def test_bare_refuses_an_image() -> None:
    with pytest.raises(ConfigError) as caught:
        bare(CONTAINER)
    assert (caught.value.key, caught.value.value) == ("container.image", "image.sif")


@pytest.mark.parametrize("launcher", CONTAINED)
@pytest.mark.parametrize("container", [None, replace(CONTAINER, image="")])
def test_container_launchers_need_an_image(launcher: type, container: Container | None) -> None:
    with pytest.raises(ConfigError) as caught:
        launcher(container)
    assert caught.value.key == "container.image"


@pytest.mark.parametrize("launcher", CONTAINED)
@pytest.mark.parametrize(
    "mount", ["data", "", "data:/data", "/data:data", "/a:b", "/a:/b:/c", "/a:/b:rw:ro", "/a:"]
)
def test_a_mount_that_is_none(launcher: type, mount: str) -> None:
    with pytest.raises(ConfigError) as caught:
        launcher(replace(CONTAINER, mounts=(mount,)))
    assert (caught.value.key, caught.value.value) == ("container.mounts", mount)


@pytest.mark.parametrize(
    ("launcher", "sign"),
    [(apptainer, sign) for sign in ",^\\"]
    + [(pyxis, sign) for sign in ', \t\n"$`\\']
    + [(podman, "\r"), (docker, "\r")],
)
def test_a_name_that_the_runtime_cannot_write(launcher: type, sign: str) -> None:
    for mount in (f"/data/a{sign}b", f"/data:/a{sign}b"):
        with pytest.raises(ConfigError) as error:
            launcher(replace(CONTAINER, mounts=(mount,)))
        assert repr(sign) in str(error.value)


@pytest.mark.parametrize("launcher", CONTAINED)
@pytest.mark.parametrize("name", ["A=b", "A,B", "A*", "", "1A", "A B"])
def test_a_variable_that_has_no_name(launcher: type, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        launcher(replace(CONTAINER, environment=(name,)))
    assert (caught.value.key, caught.value.value) == ("container.environment", name)


def test_a_working_directory_is_absolute() -> None:
    with pytest.raises(ConfigError) as caught:
        podman(replace(CONTAINER, working_directory="here"))
    assert caught.value.value == "here"


def test_pyxis_has_no_program_of_its_own() -> None:
    with pytest.raises(ConfigError) as caught:
        pyxis(replace(CONTAINER, mounts=(), runtime=("enroot",)))
    assert caught.value.key == "container.runtime"


@given(folder=folders, words=st.lists(st.text()))
def test_hostile_names_reach_podman_and_docker_whole(folder: str, words: list[str]) -> None:
    container = replace(CONTAINER, mounts=(folder,), working_directory=folder)
    for launcher in (podman, docker):
        command = launcher(container)(words)
        assert command[len(command) - len(words) :] == words
        assert f"--workdir={folder}" in command
        [mount] = [word for word in command if word.startswith("--mount=")]
        [fields] = csv.reader([mount.removeprefix("--mount=")], strict=True)
        assert fields == ["type=bind", f"source={folder}", f"target={folder}"]


@given(folder=folders)
def test_hostile_names_reach_the_others_whole_or_are_refused(folder: str) -> None:
    container = replace(CONTAINER, mounts=(folder,))
    try:
        assert f"--bind={folder}:{folder}" in apptainer(container)(())
    except ConfigError:
        assert set(folder) & set(",^\\") or folder.strip() != folder
    try:
        assert f"--container-mounts={folder}:{folder}" in pyxis(container).srun_flags
    except ConfigError:
        assert set(folder) & set(',"$`\\') or len(folder.split()) != 1 or folder.strip() != folder


def test_all_are_plugins() -> None:
    assert plugins.names("launcher") == ["apptainer", "bare", "docker", "podman", "pyxis"]
    assert plugins.load("launcher", "podman") is podman


def test_a_container_as_configured() -> None:
    asked = {"mounts": ["/site:ro"], "environment": ["HOME", "TMPDIR"], "flags": ["-x"]}
    overrides = {f"container.{key}": value for key, value in asked.items()} | {"data.stage": False}
    run, store = RunFolder(Path("/run")), Path("/store")
    assert job_container(run, load(overrides=overrides), accelerators=True, store=store) is None
    config = load(overrides=overrides | {"container.image": "i"})
    assert job_container(run, config, accelerators=False, store=store) == Container(
        "i", ("/run", "/store", "/site:ro"), False, (*CONTAINER_VARIABLES, "HOME"), "/run", ("-x",)
    )


@given(mounts=st.lists(names), flags=st.none() | st.lists(names))
def test_lists_of_text_survive_toml(mounts: list[str], flags: list[str] | None) -> None:
    asked = None if flags is None else tuple(flags)
    config = Config(container=ContainerConfig(mounts=tuple(mounts), accelerator_flags=asked))
    data = tomllib.loads(to_toml(config))["container"]
    assert (data["mounts"], data.get("accelerator_flags")) == (mounts, flags)
