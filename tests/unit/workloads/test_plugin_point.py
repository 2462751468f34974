"""Workloads beyond the papers' need no more than a plugin has: a short file on the public API."""

from __future__ import annotations

import ast
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
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ai500")
        for alias in node.names
        if not f"{node.module}.{alias.name}".startswith(own)
    }
    assert imported <= {(module, name) for module, names in api.EXPORTS.items() for name in names}
    assert imported
