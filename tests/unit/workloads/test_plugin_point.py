"""Workloads beyond the papers' need no more than a plugin has: a short file on the public API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ai500 import api

OWN_MODULES = {
    "language_model": ("learnable_text", "models.transformer", "text_illustrations"),
    "cosmology": ("learnable_volumes", "models.cosmoflow", "volume_inputs", "volume_pictures"),
    "climate_segmentation": ("climate", "models.deepcam", "intersection_over_union"),
}
"""Generator, model, inputs, quality and pictures of each."""


@pytest.mark.parametrize("name", OWN_MODULES)
def test_a_workload_is_short_and_built_on_the_public_api_alone(name: str) -> None:
    file = import_module(f"ai500.workloads.{name}").__file__
    assert file is not None
    source = Path(file).read_text(encoding="utf-8")
    assert len(source.splitlines()) < 150
    own = tuple(f"ai500.workloads.{module}" for module in OWN_MODULES[name])
    imported = {
        (module, imported_name)
        for module, imported_name in imports(source)
        if not f"{module}.{imported_name}".startswith(own)
    }
    assert imported <= {(module, name) for module, names in api.EXPORTS.items() for name in names}
    assert imported


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import from this package, in any form."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module.startswith((".", "ai500")):
                yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("ai500"))


def test_every_form_of_import_is_seen() -> None:
    source = "import ai500.jobs\nfrom . import data\nfrom ai500.core import events\nimport numpy"
    expected = {("ai500.jobs", ""), (".", "data"), ("ai500.core", "events")}
    assert set(imports(source)) == expected
