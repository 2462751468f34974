"""A score in the terminal: figures of an ensemble or of a search, and the findings."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.automl.program import SEARCH
from ai500.automl.sections import all_operations
from ai500.bagging.program import ENSEMBLE
from ai500.cli.terminal import Row, console, rows
from ai500.cli.verbosity import is_verbose
from ai500.core.units import human_seconds, human_si
from ai500.pipeline.programs import program_of
from ai500.records import OFFICIAL_CONVENTION, Score, SearchScore, list_operators
from ai500.records.findings import Finding
from ai500.report.formats import counted, flop, flops, known, quality
from ai500.report.summary import range_over_trials


def show_score(score: Score, findings: Sequence[Finding]) -> None:
    """Print whether the result is valid, then the official figure and its parts."""
    reasons = [finding for finding in findings if finding.severity != "note"]
    if reasons:
        verdict = f"NOT A VALID RESULT ({counted(len(reasons), 'reason')})"
        console.print(verdict, style="bold red")
    elif not score.complete:
        console.print("NOT A VALID RESULT: incomplete", style="bold red")
    else:
        console.print("VALID RESULT: complete, and no rule is broken", style="bold green")
    program = program_of(score)
    title = f"Score: {score.workload}, {_class(score)}, {counted(len(score.trials), 'trial')}"
    if not score.complete:
        title += f"  — INCOMPLETE: a {program.member_noun} failed"
    size = (
        f"{score.ensemble_size} × {counted(score.parallel_degree, 'slot')} of "
        f"{score.system_scale:,}, {counted(score.waves, 'wave')}"
    )
    symbols = "M × P_degree of Sys_scale, V3 Eq. 5"
    common: list[Row] = [
        ("power", _power(score)),
        ("start skew", _skew(score)),
        (f"{program.member_noun}s", size, symbols),
    ]
    rows(title, [*FIGURES[program.name](score), *_uncounted(score), *common])
    if findings:
        rows("Findings", [_finding(finding) for finding in sorted(findings, key=_rank)])


def _rank(finding: Finding) -> int:
    """Order findings: broken rules, rules that could not be checked, then notes."""
    return ("violation", "unchecked", "note").index(finding.severity)


def _finding(finding: Finding) -> Row:
    return finding.severity, finding.message, finding.source


def _ensemble_figures(score: Score) -> list[Row]:
    target = score.time_to_target_seconds
    reached = "not reached" if target is None else human_seconds(target)
    return [
        ("VFLOPS", _vflops(score), "V3 Eq. 7"),
        *([("", spread)] if (spread := range_over_trials(score)) else []),
        ("FLOPS", f"{flops(score.flops)}{_other_convention(score)}", _convention(score)),
        ("quality factor", *_quality_factor(score)),
        ("quality", f"{quality(score.ensemble_quality)} ensemble, target {score.target_quality:g}"),
        (
            "",
            f"{score.members_mean_quality:.4f} members' mean, out of bag "
            f"{quality(score.out_of_bag_quality)}",
        ),
        ("time to quality", human_seconds(score.time_to_quality_seconds)),
        ("time to target", f"{reached}, by the members' mean"),
        *([("trials", _trials(score))] if len(score.trials) > 1 else []),
        ("operations", f"{flop(score.operations)}, {flop(score.apc)} per step", "APC, V3 Eq. 4"),
        (
            "members' sum",
            f"{flops(score.members_flops_sum)} of the members' own rates; "
            f"{human_seconds(score.idle_seconds)} without training",
        ),
    ]


def _search_figures(score: Score) -> list[Row]:
    search, target = score.search, score.time_to_target_seconds
    assert isinstance(search, SearchScore)
    reached = "not reached"
    if target is not None and search.operations_to_target is not None:
        reached = f"{human_seconds(target)}, {flop(search.operations_to_target)}"
    return [
        (
            "FLOPS",
            f"{flops(score.flops)} (highest since the first batch, at "
            f"{human_seconds(search.at_seconds)})",
            _convention(score),
        ),
        ("regulated", f"{flops(search.regulated_score)} (−ln(error) × FLOPS)"),
        (
            "error",
            f"{quality(score.ensemble_quality)} best, target at most {score.target_quality:g}",
        ),
        (
            "",
            f"{quality(search.initial_error)} of the initial model; best model {search.best_model}",
        ),
        (f"time to {score.target_quality:g}", reached),
        (
            "tried",
            f"{search.models} models of {search.architectures} architectures, {search.tuned} "
            f"tuned by TPE, {search.lost} lost",
        ),
        (
            "idle",
            f"{100 * search.idle_between_trainings:.2f} % of the workers' time between trainings, "
            f"{100 * search.without_work:.2f} % without work in all",
        ),
        ("searched", human_seconds(score.seconds)),
        ("operations", f"{flop(all_operations(score))} of training and validation"),
    ]


FIGURES = {ENSEMBLE.name: _ensemble_figures, SEARCH.name: _search_figures}
"""Program → function that lists its figures."""


def _uncounted(score: Score) -> list[Row]:
    return [("not counted", list_operators(score.uncounted))] if score.uncounted else []


def _class(score: Score) -> str:
    own = " (your own: not comparable)" if score.custom_class else ""
    return f"class {score.problem_class}{own}"


def _convention(score: Score) -> str:
    """Name the convention; empty: the user's script gave no count."""
    return f"counted by convention {score.convention}" if score.convention else ""


def _other_convention(score: Score) -> str:
    """Name a convention that is not the official one, or say that there is no count."""
    if score.convention is None:
        return " (no count was given)"
    official = score.convention == OFFICIAL_CONVENTION
    return "" if official or is_verbose() else f" ({_convention(score)})"


def _vflops(score: Score) -> str:
    return known(score.vflops, lambda rate: f"{human_si(rate)}VFLOPS = FLOPS × quality factor")


def _quality_factor(score: Score) -> tuple[str, str]:
    """State what the factor compares, with the papers' name of it [D19]."""
    mean = " by the members' mean" if score.ensemble_quality is None else ""
    text = f"{score.penalty_coefficient:.4f} (quality{mean} against target)"
    return text, "penalty coefficient, V3 Eq. 8"


def _skew(score: Score) -> str:
    skew = human_seconds(score.start_skew_seconds)
    if score.clock == "monotonic":
        return skew
    uncertainty = score.clock_uncertainty_seconds
    window = "not measured" if uncertainty is None else f"± {human_seconds(uncertainty)}"
    return f"{skew} across nodes; clock uncertainty {window}"


def _trials(score: Score) -> str:
    """Describe which trials are kept and how much they vary."""
    kept = ", ".join(map(str, score.kept_trials))
    dropped = [str(trial.trial) for trial in score.trials if trial.trial not in score.kept_trials]
    varies = [
        f"{name} varies by {100 * value:.2g}%"
        for name, value in (
            ("the score", score.score_variation),
            ("epochs to target", score.epochs_to_target_variation),
        )
        if value is not None
    ]
    out = f", dropped {', '.join(dropped)}" if dropped else ""
    mean = (
        f"mean of trials {kept}" if len(score.kept_trials) > 1 else f"the figures of trial {kept}"
    )
    return "; ".join([f"{mean}{out}", *varies])


def _power(score: Score) -> str:
    if score.watts is None or score.flops_per_watt is None or score.vflops_per_watt is None:
        return "not measured (see the report)"
    with_quality, plain = human_si(score.vflops_per_watt), human_si(score.flops_per_watt)
    drawn = f"{human_si(score.watts)}W of {score.power_coverage}"
    return f"{drawn}; {with_quality}VFLOPS and {plain}FLOPS per watt"
