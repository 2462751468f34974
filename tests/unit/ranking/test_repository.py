"""The template of a list: its automation's commands run for real, beside an origin."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ai500.core.errors import InputError
from ai500.ranking.registry import load_decisions, load_registry
from ai500.ranking.repository import make_repository
from ai500.submission import signing
from tests.support.submitted import OPTIONS, packed, submittable_run

REPLACED = {"install"}
"""Steps that are not run: the package under test is installed already."""


def test_the_template_is_a_list_without_entries(tmp_path: Path) -> None:
    names = make_repository(tmp_path / "list")
    assert names == [
        "README.md", "confirmations/.gitkeep", "decisions.toml", ".github/workflows/list.yml",
        ".gitignore", "registry.toml", "submissions/.gitkeep",
    ]  # fmt: skip
    assert load_registry(tmp_path / "list" / "registry.toml").organizations == ()
    assert load_decisions(tmp_path / "list" / "decisions.toml").decisions == ()


def test_the_examples_in_the_template_are_valid(tmp_path: Path) -> None:
    """Each commented table is read once its marks are removed and its digests filled in."""
    make_repository(tmp_path)
    for name, load in (("registry.toml", load_registry), ("decisions.toml", load_decisions)):
        lines = (tmp_path / name).read_text().splitlines()
        example = [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]
        text = "\n".join(["format = 1", *example])
        for digit in "ab":
            text = text.replace('"…"', f'"{digit * 64}"', 1)
        text = text.replace('ranked = ["…"]', f'ranked = ["{"a" * 64}"]')
        (tmp_path / name).write_text(text)
        load(tmp_path / name)
        assert len(tomllib.loads(text)) == 2


@pytest.mark.parametrize("content", ["file", "folder"])
def test_an_existing_folder_is_not_overwritten(tmp_path: Path, content: str) -> None:
    target = tmp_path / "list"
    target.mkdir()
    (target / "README.md").write_text("mine")
    if content == "file":
        target = target / "README.md"
    with pytest.raises(InputError) as caught:
        make_repository(target)
    assert caught.value.path == target


@dataclasses.dataclass
class Hosted:
    """Clone of a list whose origin is a folder, with the environment of its automation."""

    folder: Path
    environment: dict[str, str]

    def run(self, job: str) -> tuple[int, str]:
        """Run a job's commands, each as the service does; stop at the first that fails."""
        workflow: dict[str, Any] = yaml.safe_load(
            (self.folder / ".github/workflows/list.yml").read_text()
        )
        printed = ""
        for step in workflow["jobs"][job]["steps"]:
            if "run" in step and step["name"] not in REPLACED:
                done = subprocess.run(
                    ["bash", "-e", "-c", step["run"]], cwd=self.folder, env=self.environment,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                )  # fmt: skip
                printed += done.stdout
                if done.returncode:
                    return done.returncode, f"{step['name']}: {printed}"
        return 0, printed

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, env=self.environment, check=True, text=True,
            capture_output=True,
        ).stdout  # fmt: skip

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "-m", message)


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "ai500"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ai500 "$@"\n')
    command.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "BASE": "origin/main",
        "RUNNER_TEMP": str(tmp_path / "temporary"), "AI500_CACHE": str(tmp_path / "cache"),
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "COLUMNS": "200",
    }  # fmt: skip
    origin = tmp_path / "origin.git"
    subprocess.run(
        ["git", "init", "-q", "--bare", "-b", "main", origin], env=environment, check=True
    )
    hosted = Hosted(tmp_path / "list", environment)
    make_repository(hosted.folder)
    hosted.git("init", "-q", "-b", "main")
    hosted.git("remote", "add", "origin", str(origin))
    hosted.commit("Template")
    hosted.git("push", "-q", "-u", "origin", "main")
    return hosted


@pytest.mark.slow
def test_a_submission_is_proposed_received_and_published(hosted: Hosted, tmp_path: Path) -> None:
    code, printed = hosted.run("publish")  # a list without entries has a site
    assert code == 0, printed
    assert (hosted.folder / "site" / "index.html").exists()
    key = tmp_path / "mine.pem"
    fingerprint = signing.make_key(key)
    with (hosted.folder / "registry.toml").open("a") as file:
        file.write(f'[[organizations]]\nname = "{OPTIONS.organization}"\n')
        file.write(f'[[organizations.keys]]\nsha256 = "{fingerprint}"\n')
    hosted.commit("An organization")
    hosted.git("push", "-q")

    run = submittable_run(tmp_path / "run")
    signed = packed(run, tmp_path / "signed.ai500", key=key)
    unsigned = packed(run, tmp_path / "unsigned.ai500")
    hosted.git("switch", "-q", "-c", "unsigned")
    shutil.copy(unsigned, hosted.folder / "submissions")
    hosted.commit("A proposal without a signature")
    code, printed = hosted.run("propose")
    assert code == 1
    assert "not signed" in printed

    hosted.git("switch", "-q", "-c", "own-registry", "main")
    shutil.copy(unsigned, hosted.folder / "submissions")
    with (hosted.folder / "registry.toml").open("a") as file:
        file.write("# a proposal that changes the registry\n")
    hosted.commit("A proposal that changes the registry")
    code, printed = hosted.run("propose")
    assert code == 1
    assert "changes nothing else" in printed

    hosted.git("switch", "-q", "-c", "link", "main")
    (hosted.folder / "submissions" / "link.ai500").symlink_to(signed)
    hosted.commit("A proposal of a link")
    code, printed = hosted.run("propose")
    assert code == 1
    assert "changes nothing else" in printed

    hosted.git("switch", "-q", "-c", "good", "main")
    (hosted.folder / "submissions" / "example").mkdir()
    shutil.copy(signed, hosted.folder / "submissions" / "example" / "one.ai500")
    hosted.commit("A proposal")
    code, printed = hosted.run("propose")
    assert code == 0, printed

    hosted.git("switch", "-q", "main")
    hosted.git("merge", "-q", "good")
    code, printed = hosted.run("publish")
    assert code == 0, printed
    assert len(list((hosted.folder / "site" / "entries").iterdir())) == 1
    assert len(load_registry(hosted.folder / "registry.toml").received) == 1
    assert hosted.git("log", "-1", "--format=%s", "origin/main").strip() == "Received submissions"
    head = hosted.git("rev-parse", "HEAD")
    assert hosted.run("publish")[0] == 0
    assert hosted.git("rev-parse", "HEAD") == head  # nothing new, no commit
