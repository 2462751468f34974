"""A score in the terminal: figures of an ensemble or of a search, and the findings."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.automl.program import SEARCH
from ai500.automl.sections import all_operations
from ai500.bagging.program import ENSEMBLE
from ai500.cli.terminal import rows
from ai500.core.units import human_seconds, human_si
from ai500.pipeline.programs import program_of
from ai500.records import Score, SearchScore, list_operators
from ai500.records.findings import Finding
from ai500.report.formats import flop, flops, known, quality
from ai500.report.summary import range_over_trials


def show_score(score: Score, findings: Sequence[Finding]) -> None:
    """Print the score: the official figure first, then its parts."""
    program = program_of(score)
    title = f"Score: {score.workload}, {_class(score)}, {len(score.trials)} trial(s)"
    if not score.complete:
        title += f"  — INCOMPLETE: a {program.member_noun} failed"
    size = (
        f"M = {score.ensemble_size}, P_degree = {score.parallel_degree}, "
        f"Sys_scale = {score.system_scale}, {score.waves} wave(s)"
    )
    common = [
        ("power", _power(score)),
        ("start skew", _skew(score)),
        (f"{program.member_noun}s", size),
    ]
    rows(title, [*FIGURES[program.name](score), *_uncounted(score), *common])
    if findings:
        rows("Findings", [(finding.severity, finding.cited) for finding in findings])


def _ensemble_figures(score: Score) -> list[tuple[str, str]]:
    target = score.time_to_target_seconds
    reached = "not reached" if target is None else human_seconds(target)
    return [
        ("VFLOPS", f"{_vflops(score)} (valid: quality factor × FLOPS, V3 Eq. 7)"),
        *([("", spread)] if (spread := range_over_trials(score)) else []),
        ("FLOPS", f"{flops(score.flops)} {_convention(score)}"),
        ("quality factor", f"{score.penalty_coefficient:.4f} {_quality_factor(score)}"),
        ("quality", f"{quality(score.ensemble_quality)} ensemble, target {score.target_quality:g}"),
        (
            "",
            f"{score.members_mean_quality:.4f} members' mean, out of bag "
            f"{quality(score.out_of_bag_quality)}",
        ),
        ("time to quality", human_seconds(score.time_to_quality_seconds)),
        ("time to target", f"{reached}, by the members' mean"),
        *([("trials", _trials(score))] if len(score.trials) > 1 else []),
        ("operations", f"{flop(score.operations)}, APC {flop(score.apc)}"),
        (
            "members' sum",
            f"{flops(score.members_flops_sum)} of the members' own rates; "
            f"{human_seconds(score.idle_seconds)} without training",
        ),
    ]


def _search_figures(score: Score) -> list[tuple[str, str]]:
    search, target = score.search, score.time_to_target_seconds
    assert isinstance(search, SearchScore)
    reached = "not reached"
    if target is not None and search.operations_to_target is not None:
        reached = f"{human_seconds(target)}, {flop(search.operations_to_target)}"
    return [
        (
            "FLOPS",
            f"{flops(score.flops)} (highest since the first batch, at "
            f"{human_seconds(search.at_seconds)}; counted by {score.convention})",
        ),
        ("regulated", f"{flops(search.regulated_score)} (−ln(error) × FLOPS)"),
        (
            "error",
            f"{quality(score.ensemble_quality)} best, at most {score.target_quality:g} is valid",
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


def _uncounted(score: Score) -> list[tuple[str, str]]:
    return [("not counted", list_operators(score.uncounted))] if score.uncounted else []


def _class(score: Score) -> str:
    own = " (your own: not comparable)" if score.custom_class else ""
    return f"class {score.problem_class}{own}"


def _convention(score: Score) -> str:
    counted = score.convention is not None
    return f"(counted by convention {score.convention})" if counted else "(no count was given)"


def _vflops(score: Score) -> str:
    return known(score.vflops, lambda rate: f"{human_si(rate)}VFLOPS")


def _quality_factor(score: Score) -> str:
    """State what the factor compares, with the papers' name of it [D19]."""
    mean = " by the members' mean" if score.ensemble_quality is None else ""
    return f"(penalty coefficient, Eq. 8: quality{mean} against target)"


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
        f"{name} varies by {100 * value:.2g} %"
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
    valid, plain = human_si(score.vflops_per_watt), human_si(score.flops_per_watt)
    drawn = f"{human_si(score.watts)}W of {score.power_coverage}"
    return f"{drawn}; {valid}VFLOPS and {plain}FLOPS per watt"
