"""Every command, option, key, rule and plugin point is documented."""

from __future__ import annotations

import importlib.util
import re
import typing
from types import ModuleType

import pytest

from ai500.automl.rules import SEARCH_RULES
from ai500.config import documented_keys
from ai500.core import plugins
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.workloads.protocol import load_workload
from tests.support.docs_examples import ROOT, examples_of


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py, which is no part of a package."""
    module_spec = importlib.util.spec_from_file_location(
        "docs_generate", ROOT / "docs" / "generate.py"
    )
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    for path, text in generate.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make docs"


def test_every_command_and_option_says_what_it_does(generate: ModuleType) -> None:
    """A sentence that fits its line in --help, an example, and help for all it takes."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    shown = "\n".join(example.text for example in examples_of(ROOT / "docs" / "commands.md"))
    for name, command in generate.commands():
        assert f"\n## {name}\n" in page
        first = (command.help or "").partition("\n")[0]
        assert first.endswith("."), f"{name}: its help begins with a sentence"
        assert len(first) <= 66, f"{name}: {first!r} is cut off in the list of commands"
        assert re.search(rf"{name}\s", f"{shown}\n"), f"{name}: no example"
        for parameter in generate.parameters(command):
            assert parameter.help, f"{name} {parameter.opts[0]}: no help"


def test_every_key_of_the_configuration_is_explained() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for key, declaration, _ in documented_keys():
        assert len(declaration.metadata["doc"].split()) > 1, f"{key}: say what it does"
        assert f"| `{key.rpartition('.')[2]}` |" in page


def test_every_rule_is_on_the_page_of_rules() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    for rule in (*ENSEMBLE_RULES, *SEARCH_RULES):
        assert rule.text, f"{rule.name}: no docstring"
        assert f"| {rule.name} |" in page


def test_every_plugin_point_has_a_section_with_code() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## .*?`ai500\.(\w+)`.*?\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    for kind in typing.get_args(plugins.Kind):
        assert kind in sections, f"plugins.md has no section on ai500.{kind}"
        assert "```" in sections[kind] or "](" in sections[kind], f"{kind}: no example, no link"


@pytest.mark.parametrize("name", ["CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"])
def test_the_files_a_new_reader_looks_for(name: str) -> None:
    assert (ROOT / name).stat().st_size > 500


def test_every_class_is_in_the_table_of_classes() -> None:
    """docs/first-run.md: target, least M and least trials as the class has them."""
    page = (ROOT / "docs" / "first-run.md").read_text(encoding="utf-8")
    errors_by_class: dict[tuple[str, str], list[str]] = {}
    workload = ""
    for name, problem_class, rest in re.findall(r"^\| (…|`\w+`) `(\w+)` \|(.*)\|$", page, re.M):
        workload = workload if name == "…" else name.strip("`")
        errors_by_class[workload, problem_class] = [cell.strip() for cell in rest.split("|")][-3:]
    for name in plugins.BUILT_IN["workload"]:
        for problem_class in load_workload(name).problem_classes.values():
            assert (name, problem_class.name) in errors_by_class, (
                f"{name} {problem_class.name} is missing"
            )
            target, members, trials = errors_by_class[name, problem_class.name]
            assert target.split()[-1] == f"{problem_class.target_quality:g}"
            assert members == str(problem_class.ensemble_size)
            assert trials == str(problem_class.required_runs)
