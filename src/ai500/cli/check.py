"""The rules applied: `ai500 check` one run, `ai500 diff` two."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ai500.cli.options import AsJson, TrustedKeys
from ai500.cli.terminal import console, rows, show_problems
from ai500.core.errors import InputError, RuleError
from ai500.core.schema import nearest
from ai500.core.units import human_si
from ai500.pipeline import scoring
from ai500.records import Plan, Score, run_folder
from ai500.records.findings import Judgement, LayerVerdict
from ai500.records.run_folder import RunFolder
from ai500.rules.comparison import Comparison, Difference, compare
from ai500.rules.evidence import Evidence
from ai500.rules.layers import ASPECTS, LAYERS, LEVELS, Level

SubjectPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or a submission's file.")
]
LevelName = Annotated[
    str | None,
    typer.Option("--level", help="hardware, system or free. Default: the submission's own."),
]
RulesVersion = Annotated[
    str | None, typer.Option("--rules", help="Version of the rule set. Default: the newest.")
]
VERDICTS = {
    "same": "same as the reference",
    "allowed": "changed, allowed",
    "forbidden": "changed, FORBIDDEN",
}
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Subject:
    """What is judged."""

    path: Path
    run: RunFolder
    level: Level | None
    """A submission's own."""
    signature: str | None
    """What a submission's signature proves; None: it is a run folder."""
    problems: Sequence[str] = ()

    def evidence(self) -> Evidence:
        """All it recorded, with the score recomputed from its events."""
        return scoring.run_evidence(self.run)


@contextlib.contextmanager
def opened(path: Path, *, trusted_keys: Path | None = None) -> Iterator[Subject]:
    """A run folder as it is, or a submission unpacked for as long as it is looked at."""
    from ai500.submission import manifest as submission
    from ai500.submission.verify import contradictions

    if path.is_dir():
        with submission.explaining(str(path)):
            yield Subject(path, RunFolder.open(path), level=None, signature=None)
        return
    if not path.exists():
        raise InputError(
            f"{path}: no such run folder or submission. "
            "`ai500 run` makes a run folder, `ai500 submit` a submission of it."
        )
    with submission.opened(path, trusted_keys=trusted_keys) as found:
        found.refuse_foreign()
        level = found.info.level if found.info else None
        with submission.explaining(str(path)):
            problems = list(found.problems)
            if not problems:
                problems += contradictions(found.run, run_folder.read(Plan, found.run.plan))
            yield Subject(path, found.run, level, found.signature, problems)


def check(
    path: SubjectPath,
    level: LevelName = None,
    rules: RulesVersion = None,
    trusted_keys: TrustedKeys = None,
    as_json: AsJson = False,
) -> None:
    """Say for each of the nine layers whether a run keeps the rules.

    Needs no torch.

    Example: ai500 check runs/first --level hardware
    """
    wanted = _level(level)
    with opened(path, trusted_keys=trusted_keys) as subject:
        if subject.problems:
            _show_problems(subject, as_json=as_json)
            raise typer.Exit(1)
        evidence = subject.evidence()
        judgement = scoring.judge_evidence(
            evidence, level=wanted or subject.level or "hardware", version=rules
        )
    if as_json:
        print(json.dumps(_judgement_json(subject, judgement), indent=2))
    else:
        show_judgement(subject, evidence.score, judgement)
    if judgement.broken:
        raise typer.Exit(1)


def diff(
    first: SubjectPath,
    second: SubjectPath,
    level: LevelName = None,
    rules: RulesVersion = None,
    as_json: AsJson = False,
) -> None:
    """Show in which layers two runs differ, and if scores compare.

    Example: ai500 diff runs/first runs/valid
    """
    wanted = _level(level)
    with opened(first) as one, opened(second) as other:
        for subject in (one, other):
            if subject.problems:
                raise RuleError(f"{subject.path}: " + "; ".join(subject.problems))
        evidence = one.evidence(), other.evidence()
        at = wanted or one.level or other.level or "hardware"
        judged = [scoring.judge_evidence(each, level=at, version=rules) for each in evidence]
        found = compare(*evidence, level=at, judgements=judged)
    if as_json:
        told = _comparison_json((first, second), [each.score for each in evidence], found)
        print(json.dumps(told, indent=2))
    else:
        _show_comparison((first, second), [each.score for each in evidence], found)
    if not found.comparable:
        raise typer.Exit(1)


def show_judgement(subject: Subject, score: Score, judgement: Judgement) -> None:
    """The layers, what was found, and the verdict."""
    _title(f"{subject.path}: {score.workload}, class {score.problem_class}")
    if subject.signature is not None:
        console.print(f"  {subject.signature}", markup=False)
    _title(f"The nine layers at {judgement.level} level, by rule set {judgement.rule_set}")
    for one in judgement.layers:
        _layer(one.layer, _words(one))
        _grid(
            [
                (what, _value(run), f"reference {wanted}")
                for what, wanted, run in one.facts
                if wanted is not None and wanted != run
            ]
        )
        _grid([(what, _value(run)) for what, wanted, run in one.facts if wanted is None])
    # The worst first: who reads only one line reads that one.
    for severity, title in (("violation", "Broken rules"), ("note", "Disclosed")):
        mine = [one for one in judgement.findings if one.severity == severity]
        if mine:
            layers = ["procedure" if one.layer is None else f"layer {one.layer}" for one in mine]
            said = [f"{one.message} ({one.source})" for one in mine]
            rows(title, list(zip(layers, said, strict=True)))
    broken = sum(one.severity == "violation" for one in judgement.findings)
    _title(f"BROKEN: {broken} finding(s)" if broken else "clean: no rule is broken")


def _words(one: LayerVerdict) -> str:
    if one.verdict == "allowed" and all(wanted is None for _, wanted, _ in one.facts):
        return "free to choose"
    return VERDICTS[one.verdict]


def _layer(layer: int, words: str) -> None:
    source = next(row.source for row in ASPECTS.values() if row.layer == layer).split(",")[0]
    console.print(f"  {layer} {LAYERS[layer]}: {words} ({source})", markup=False)


def _grid(lines: Sequence[tuple[str, ...]]) -> None:
    """A name and one or two values beside each other, within 80 columns."""
    if not lines:
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=32)
    for _ in lines[0][1:]:
        table.add_column(width=46 // (len(lines[0]) - 1), overflow="fold")
    for what, *values in lines:
        table.add_row(Text("      " + what), *map(Text, values))
    console.print(table)


def _show_problems(subject: Subject, *, as_json: bool) -> None:
    if as_json:
        told = {"path": str(subject.path), "broken": True, "problems": list(subject.problems)}
        print(json.dumps(told | {"signature": subject.signature}, indent=2))
        return
    _title(f"{subject.path}: not whole or not consistent, so nothing in it was judged")
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
                "layer": one.layer,
                "name": LAYERS[one.layer],
                "verdict": one.verdict,
                "facts": [
                    dict(zip(("what", "reference", "run"), fact, strict=True)) for fact in one.facts
                ],
            }
            for one in judgement.layers
        ],
        "findings": [asdict(one) for one in judgement.findings],
    }


def _show_comparison(paths: Sequence[Path], scores: Sequence[Score], found: Comparison) -> None:
    rows(
        "Two runs",
        [
            (which, f"{path}: VFLOPS {human_si(score.vflops)}FLOPS, class {score.problem_class}")
            for which, path, score in zip(("first", "second"), paths, scores, strict=True)
        ],
    )
    _title(f"What differs at {found.level} level, by rule set {found.rule_set}")
    for layer in sorted(LAYERS, reverse=True):
        differences = found.of_layer(layer)
        _layer(layer, _words_of(differences))
        _grid([(one.what, _value(one.first), _value(one.second)) for one in differences])
    if found.reasons:
        rows("Why their scores may not be compared", [("", one) for one in found.reasons])
    _title("the scores may be compared" if found.comparable else "the scores may NOT be compared")


def _words_of(differences: Sequence[Difference]) -> str:
    forbidden = [one.what for one in differences if not one.allowed]
    if forbidden:
        return f"different, FORBIDDEN: {', '.join(forbidden)}"
    return "different, allowed" if differences else "same"


def _comparison_json(
    paths: Sequence[Path], scores: Sequence[Score], found: Comparison
) -> dict[str, Any]:
    return {
        "level": found.level,
        "rule_set": found.rule_set,
        "runs": [
            {"path": str(path), "vflops": score.vflops, "problem_class": score.problem_class}
            for path, score in zip(paths, scores, strict=True)
        ],
        "layers": [
            {
                "layer": layer,
                "name": LAYERS[layer],
                "differences": [asdict(one) for one in found.of_layer(layer)],
            }
            for layer in sorted(LAYERS, reverse=True)
        ],
        "comparable": found.comparable,
        "reasons": list(found.reasons),
    }


def _level(name: str | None) -> Level | None:
    if name is None:
        return None
    for level in LEVELS:
        if level == name:
            return level
    raise InputError(f"--level {name}: no such level; {nearest(name, list(LEVELS))}")


def _value(value: str | None) -> str:
    return NOT_RECORDED if value is None else value


def _title(text: str) -> None:
    console.print(text, style="bold", markup=False)
