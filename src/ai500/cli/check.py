"""Apply the rules: `ai500 check` judges a run, `ai500 compare` compares two."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ai500.cli.arguments import AsJson, TrustedKeys
from ai500.cli.newest import newest_run
from ai500.cli.terminal import console, print_json, rows, show_problems
from ai500.core.errors import InputError, RuleError
from ai500.core.schema import check_known
from ai500.pipeline import scoring
from ai500.records import Plan, Score, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.report.formats import vflops
from ai500.rules import comparison as rules_comparison
from ai500.rules.comparison import Comparison, Difference
from ai500.rules.evidence import Evidence
from ai500.rules.layers import ASPECTS, LAYERS, LEVELS, Level

SubjectPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, or file of a submission.")
]
LevelName = Annotated[
    str | None,
    typer.Option("--level", help="hardware, system or free. Default: the submission's level."),
]
RulesVersion = Annotated[
    str | None, typer.Option("--rules", help="Version of the rule set. Default: the newest.")
]
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Subject:
    """A run folder, or an unpacked submission, to judge."""

    path: Path
    run: RunFolder
    level: Level | None
    """Level of a submission; None for a run folder."""
    signature: str | None
    """Statement on a submission's signature; None for a run folder."""
    problems: Sequence[str] = ()

    def evidence(self) -> Evidence:
        """Read the run's records; recompute its score from its events."""
        return scoring.run_evidence(self.run)


@contextlib.contextmanager
def open_subject(path: Path, *, trusted_keys: Path | None = None) -> Iterator[Subject]:
    """Open a run folder, or unpack a submission for the duration of the context."""
    from ai500.submission import manifest as submission
    from ai500.submission.verify import contradictions

    if path.is_dir():
        with submission.contradictions_as_errors(str(path)):
            yield Subject(path, RunFolder.open(path), level=None, signature=None)
        return
    if not path.exists():
        raise InputError(
            f"{path}: no such run folder or submission.",
            path=path,
            remedy="`ai500 run` makes a run folder, `ai500 submit` a submission.",
        )
    with submission.open_submission(path, trusted_keys=trusted_keys) as unpacked:
        unpacked.require_submission()
        level = unpacked.info.level if unpacked.info else None
        with submission.contradictions_as_errors(str(path)):
            problems = list(unpacked.problems)
            if not problems:
                problems += contradictions(unpacked.run, run_folder.read(Plan, unpacked.run.plan))
            yield Subject(path, unpacked.run, level, unpacked.signature, problems)


def check(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="Run folder, or file of a submission. Default: the newest run."
        ),
    ] = None,
    level: LevelName = None,
    rules: RulesVersion = None,
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Judge a run by the rules, layer by layer.

    Needs no torch.

    Example: ai500 check runs/first --level hardware
    """
    requested = _level(level)
    with open_subject(path or newest_run(), trusted_keys=trusted_keys) as subject:
        if subject.problems:
            _show_problems(subject, as_json=as_json)
            raise typer.Exit(1)
        evidence = subject.evidence()
        judgement = scoring.judge_evidence(
            evidence, level=requested or subject.level or "hardware", version=rules
        )
    if as_json:
        print_json(_judgement_json(subject, judgement))
    else:
        show_judgement(subject, evidence.score, judgement)
    if judgement.broken:
        raise typer.Exit(1)


def compare(
    first: SubjectPath,
    second: SubjectPath,
    level: LevelName = None,
    rules: RulesVersion = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs, layer by layer, and their scores.

    Example: ai500 compare runs/first runs/valid
    """
    requested = _level(level)
    with open_subject(first) as left, open_subject(second) as right:
        for subject in (left, right):
            if subject.problems:
                message = f"{subject.path}: " + "; ".join(subject.problems)
                raise RuleError(message, path=subject.path)
        both = left.evidence(), right.evidence()
        at = requested or left.level or right.level or "hardware"
        judgements = [scoring.judge_evidence(each, level=at, version=rules) for each in both]
        comparison = rules_comparison.compare(*both, level=at, judgements=judgements)
    paths, scores = (first, second), [evidence.score for evidence in both]
    if as_json:
        print_json(_comparison_json(paths, scores, comparison))
    else:
        _show_comparison(paths, scores, comparison)
    if not comparison.comparable:
        raise typer.Exit(1)


_SEVERITIES = (
    ("violation", "Broken rules"),
    ("unchecked", "Rules that could not be checked"),
    ("note", "Disclosed"),
)


def show_judgement(subject: Subject, score: Score, judgement: Judgement) -> None:
    """Print the layers, the findings and the verdict."""
    _title(f"{subject.path}: {score.workload}, class {score.problem_class}")
    if subject.signature is not None:
        console.print(f"  {subject.signature}", markup=False)
    _title(f"The nine layers at {judgement.level} level, by rule set {judgement.rule_set}")
    for layer in judgement.layers:
        _layer(layer.layer, layer.text)
        _grid(
            [
                (aspect, _value(run), f"reference {reference}")
                for aspect, reference, run in layer.facts
                if reference is not None and reference != run
            ]
        )
        _grid([(aspect, _value(run)) for aspect, ref, run in layer.facts if ref is None])
    for severity, title in _SEVERITIES:
        pairs = [
            (
                "procedure" if finding.layer is None else f"layer {finding.layer}",
                finding.cited,
            )
            for finding in judgement.findings
            if finding.severity == severity
        ]
        if pairs:
            rows(title, pairs)
    broken = len(judgement.violations)
    _title(f"BROKEN: {broken} finding(s)" if broken else "clean: no rule is broken")


def _layer(layer: int, verdict: str) -> None:
    source = next(row.source for row in ASPECTS.values() if row.layer == layer).split(",")[0]
    console.print(f"  {layer} {LAYERS[layer]}: {verdict} ({source})", markup=False)


def _grid(lines: Sequence[tuple[str, ...]]) -> None:
    """Print names with one or two values each, within 80 columns."""
    if not lines:
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=32)
    for _ in lines[0][1:]:
        table.add_column(width=46 // (len(lines[0]) - 1), overflow="fold")
    for name, *values in lines:
        table.add_row(Text("      " + name), *map(Text, values))
    console.print(table)


def _show_problems(subject: Subject, *, as_json: bool) -> None:
    if as_json:
        summary = {"path": str(subject.path), "broken": True, "problems": subject.problems}
        print_json(summary | {"signature": subject.signature})
        return
    _title(f"{subject.path}: incomplete or inconsistent; not judged")
    show_problems(subject.problems)
    console.print(f"  {subject.signature}", markup=False)


def _judgement_json(subject: Subject, judgement: Judgement) -> dict[str, Any]:
    return {
        "path": str(subject.path),
        "level": judgement.level,
        "rule_set": judgement.rule_set,
        "broken": judgement.broken,
        "problems": [],
        "signature": subject.signature,
        "layers": [
            {
                "layer": layer.layer,
                "name": LAYERS[layer.layer],
                "verdict": layer.verdict,
                "facts": [
                    {"aspect": aspect, "reference": reference, "run": run}
                    for aspect, reference, run in layer.facts
                ],
            }
            for layer in judgement.layers
        ],
        "findings": judgement.findings,
    }


def _show_comparison(
    paths: Sequence[Path], scores: Sequence[Score], comparison: Comparison
) -> None:
    rows(
        "Two runs",
        [
            (order, f"{path}: {vflops(score.vflops)}, class {score.problem_class}")
            for order, path, score in zip(("first", "second"), paths, scores, strict=True)
        ],
    )
    _title(f"Differences at {comparison.level} level, by rule set {comparison.rule_set}")
    for layer in sorted(LAYERS, reverse=True):
        differences = comparison.of_layer(layer)
        _layer(layer, _differences_verdict(differences))
        _grid([(each.aspect, _value(each.first), _value(each.second)) for each in differences])
    if comparison.reasons:
        rows("Why the scores may not be compared", [("", text) for text in comparison.reasons])
    may = "may" if comparison.comparable else "may NOT"
    _title(f"the scores {may} be compared")


def _differences_verdict(differences: Sequence[Difference]) -> str:
    forbidden = [difference.aspect for difference in differences if not difference.allowed]
    if forbidden:
        return f"different, FORBIDDEN: {', '.join(forbidden)}"
    return "different, allowed" if differences else "same"


def _comparison_json(
    paths: Sequence[Path], scores: Sequence[Score], comparison: Comparison
) -> dict[str, Any]:
    return {
        "level": comparison.level,
        "rule_set": comparison.rule_set,
        "runs": [
            {"path": str(path), "vflops": score.vflops, "problem_class": score.problem_class}
            for path, score in zip(paths, scores, strict=True)
        ],
        "layers": [
            {
                "layer": layer,
                "name": LAYERS[layer],
                "differences": comparison.of_layer(layer),
            }
            for layer in sorted(LAYERS, reverse=True)
        ],
        "comparable": comparison.comparable,
        "reasons": comparison.reasons,
    }


def _level(name: str | None) -> Level | None:
    if name is not None:
        check_known(name, LEVELS, key="--level")
    return next((level for level in LEVELS if level == name), None)


def _value(value: str | None) -> str:
    return NOT_RECORDED if value is None else value


def _title(text: str) -> None:
    console.print(text, style="bold", markup=False)
