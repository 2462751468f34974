"""The image of `packaging/Containerfile`: built by Podman from Debian's packages, and run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from tests.support.docs_examples import ROOT
from tests.support.slurm.image import Image, image

__all__ = ["image"]

PIP = """
[install]
no-index = true
no-build-isolation = false
"""
"""False turns isolation off: torch and all else is mounted, and nothing is downloaded."""
PACKAGES = "/usr/local/lib/python3.11/dist-packages"  # those of Debian 12's Python


def mounts(folder: Path) -> list[str]:
    """Mount the tests' packages where Debian's Python looks for them, and pip's configuration."""
    (folder / "pip.conf").write_text(PIP)
    packages = Path(torch.__file__).parents[1]
    pairs = {packages: PACKAGES, folder / "pip.conf": "/etc/pip.conf"}
    return [f"--volume={path}:{place}:ro" for path, place in pairs.items()]


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_it_is_built_and_runs(image: Image, tiny_store: Path, tmp_path: Path) -> None:
    podman, given = [*image.runtime], mounts(tmp_path)
    system = tmp_path / "debian"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", system], check=True)
    with subprocess.Popen(["tar", "-C", system, "-c", "."], stdout=subprocess.PIPE) as tar:
        base = "localhost/debian:12"
        subprocess.run([*podman, "import", "-", base], stdin=tar.stdout, check=True)
    subprocess.run(
        [*podman, "build", "--network=host", *image.flags, *given, f"--build-arg=BASE={base}",
         "--tag=localhost/ai500", "--file=packaging/Containerfile", ROOT],
        check=True, cwd=ROOT,
    )  # fmt: skip
    ended = subprocess.run(
        [*podman, "run", "--rm", "--network=none", *image.flags, *given,
         f"--volume={tmp_path}:/runs", f"--volume={tiny_store}:/data:ro", "localhost/ai500",
         "run", "--out", "/runs/first", "--data", "/data", "--set", "train.epochs=1",
         "--set", "ensemble.size=2"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (trial,) = json.loads((tmp_path / "first" / "score.json").read_text())["trials"]
    assert trial["flops"] > 0
    assert (tmp_path / "first" / "report.html").stat().st_size > 10_000


def test_recipes_that_were_not_run_say_so_in_their_first_line() -> None:
    for name in ("ai500.def", "ai500.lua"):
        first, *_ = (ROOT / "packaging" / name).read_text().splitlines()
        assert "Not run by the project" in first
