"""The report of a search: summary, score, figures, models and workers (AIPerf §IV-D, §V)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ai500.automl.history import History, Model
from ai500.automl.score import Chunk, SearchTimeline, idle, spans, timed_search
from ai500.core.units import human_seconds, human_si, si_prefix
from ai500.records import (
    Score,
    ScoreFigures,
    SearchScore,
    TrialSearchScore,
    list_operators,
    require,
)
from ai500.report.charts import svg
from ai500.report.charts.line_chart import Level, LineChart, Mark, curve, staircase
from ai500.report.charts.tree import Node, Tree
from ai500.report.formats import NOT_MEASURED, counted, flop, flops, quality, variation_percent
from ai500.report.page import ROWS_SHOWN
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.report.run_sections import timeline_figure
from ai500.report.section import (
    Beside,
    Block,
    Card,
    Cards,
    Figure,
    Grid,
    Item,
    Items,
    Paragraph,
    Section,
    Table,
)
from ai500.report.summary import hardware, score_section, which_trials

MOVES_SHOWN = 60
"""Maximum length of a model's list of changes in the table, in characters."""
POINTS = 240
"""Number of points of a curve over time."""
RATE_WINDOWS = 40
"""Windows that the search is divided into for the momentary rate."""
SCORE_ROWS_SHOWN = 10
"""Rows of the score's table up to its operations; the rest explains them and is folded away."""
X_TITLE = "time since the first batch"
STATES = {
    "trained": "trained", "stopped_early": "stopped early", "out_of_time": "out of time",
    "lost": "LOST", "training": "not ended",
}  # fmt: skip


@dataclass(frozen=True)
class SearchData:
    """A run's records, with the shown trial's search and the figures of its score."""

    run: RunData
    search: SearchTimeline
    history: History
    score: SearchScore
    """Figures of the run."""
    trial: TrialSearchScore
    """Figures of the shown trial."""


def read_search_data(run: RunData) -> SearchData:
    """Read the workers' histories of the shown trial."""
    score, trial = run.score.search, run.shown.search
    assert score is not None and trial is not None  # records of a run whose plan is a search
    timed = timed_search(History(run.trial_folder.members), run.events)
    return SearchData(run, timed.search, timed.history, score, trial)


def search_report(run: RunData) -> ProgramReport:
    """Return the search's part of the report."""
    data = read_search_data(run)
    return ProgramReport(
        benchmark="AIPerf",
        headline=flops(run.score.vflops),
        subject="architecture search",
        summary=[
            Cards(cards(data)),
            Beside([Paragraph(text, "lead") for text in sentences(data)], score_figure(data)),
        ],
        sections=[
            score_section(run.score, score_table(data), trials_table(run.score)),
            search_section(data),
        ],
    )


def sentences(data: SearchData) -> list[str]:
    """Summarize the run in two paragraphs."""
    score, plan, figures = data.run.score, data.run.plan, data.score
    times = "" if len(score.trials) < 2 else f" {len(score.trials)} times"
    tried = counted(figures.architectures, "architecture")
    return [
        f"{counted(score.ensemble_size, 'worker').capitalize()} searched architectures{times} for "
        f"{human_seconds(score.seconds)}, problem class {plan.problem_class} of AIPerf, on "
        f"{hardware(plan, data.run.system)}, and trained {counted(figures.models, 'model')} of "
        f"{tried} for {flop(all_operations(score))}, counted by "
        f"convention {score.convention}.{which_trials(score)}",
        f"The score is {flops(score.flops)}: the highest mean speed from the first batch to a time "
        f"of at least {human_seconds(figures.min_seconds)}, reached at "
        f"{human_seconds(figures.at_seconds)}. The best model's {score.quality_name} is "
        f"{score.ensemble_quality:.4f} (target: at most {score.target_quality:g}); the regulated "
        f"score −ln(error) × FLOPS is {flops(figures.regulated_score)}.",
    ]


def all_operations(score: ScoreFigures) -> float:
    """Return the operations of training and validation."""
    operations = require(score.operations, "operations")
    return operations + require(score.validation_operations, "validation_operations")


def cards(data: SearchData) -> list[Card]:
    """Return the four figures to remember."""
    score, figures = data.run.score, data.score
    initial = figures.initial_error
    start = "" if initial is None else f"; the initial model's {initial:.4f}"
    return [
        Card("FLOPS", flops(score.flops), f"the score, at {human_seconds(figures.at_seconds)}"),
        Card("Regulated score", flops(figures.regulated_score), "−ln(error) × FLOPS"),
        Card(
            score.quality_name,
            quality(score.ensemble_quality),
            f"at most {score.target_quality:g}{start}",
        ),
        Card("Architectures", f"{figures.architectures:,}", counted(figures.models, "model")),
    ]


def score_table(data: SearchData) -> Table:
    """List every number of the score with how it is computed and its source."""
    score, figures = data.run.score, data.score
    target, initial = score.time_to_target_seconds, figures.initial_error
    rows = [
        ("FLOPS", flops(score.flops),
         f"highest of operations / time, from the first batch to ≥ "
         f"{human_seconds(figures.min_seconds)}", "AIPerf §IV-E"),
        ("Time of the score", human_seconds(figures.at_seconds), "the end of that time",
         "AIPerf Fig. 4"),
        ("Regulated score", flops(figures.regulated_score),
         f"−ln(error) × FLOPS, highest at {human_seconds(figures.regulated_at_seconds)}",
         "AIPerf Eq. 3"),
        ("Mean FLOPS", flops(figures.mean_flops), "over the whole search", "decision D6"),
        (f"Best {score.quality_name}", quality(score.ensemble_quality),
         f"of all models, on the validation set: {figures.best_model}", "AIPerf §IV-D"),
        ("Initial model's error", NOT_MEASURED if initial is None else f"{initial:.4f}",
         "the best of the workers' first rounds", "AIPerf Table IV"),
        ("Largest error", f"{score.target_quality:g}", "fixed by the problem class", "decision D7"),
        ("Time to largest error", _reached(target, human_seconds),
         "until the best error was at most the largest", "V3 Fig. 2"),
        ("Operations to largest error", _reached(figures.operations_to_target, flop),
         "of all workers until then", "V3 Fig. 2"),
        ("Variation of these operations", variation_percent(figures.operations_to_target_variation),
         "sample standard deviation / mean over the trials", "V3 Fig. 2"),
        ("Operations of training", flop(score.operations),
         f"forward, backward, update, convention {score.convention}", "AIPerf Tables I, II"),
        ("Operators not counted", list_operators(score.uncounted) or "none",
         "missing in the operations above, with their number in one step", "decision D23"),
        ("Operations of validation", flop(score.validation_operations),
         "forward; counted in FLOPS", "AIPerf §IV-D"),
        ("Idle between trainings", f"{figures.idle_between_trainings:.2%}",
         "of the workers' time, from a model's end to the next one's first batch",
         "AIPerf Fig. 5"),
        ("Without work", f"{figures.without_work:.2%}",
         "of the workers' time: between trainings, and restarts", "AIPerf Fig. 5"),
        ("Models", f"{figures.models:,}",
         f"{figures.tuned:,} tuned by TPE, {figures.lost:,} lost", "AIPerf §IV-B"),
        ("Unreadable lines", f"{figures.unreadable_lines:,}", "of histories, skipped", ""),
        ("Sum of the workers' rates", flops(score.members_flops_sum),
         "each worker's operations / its own time, summed", "decision D6"),
        ("Start skew", human_seconds(score.start_skew_seconds),
         "between the workers' first batches", "decision D6"),
        ("Clock", score.clock, "of one host, or of several with their offsets", "decision D6"),
    ]  # fmt: skip
    columns = ("quantity", "value", "how it is computed", "source")
    return Table(columns, rows, numbers=(1,), noun="figures", shown=SCORE_ROWS_SHOWN)


def _reached(value: float | None, text: Callable[[float], str]) -> str:
    return "not reached" if value is None else text(value)


def trials_table(score: Score) -> Table:
    """List every trial as it was measured, with what V3 Fig. 2 asks of a search."""
    rows = [
        (
            f"{trial.trial}" if trial.complete else f"{trial.trial}, INCOMPLETE",
            flops(trial.flops),
            flops(figures.regulated_score),
            quality(trial.ensemble_quality),
            human_seconds(trial.seconds),
            f"{figures.models:,}",
            _reached(trial.time_to_target_seconds, human_seconds),
            _reached(figures.operations_to_target, flop),
            NOT_MEASURED if trial.seed is None else f"{trial.seed}",
        )
        for trial in score.trials
        if (figures := trial.search) is not None
    ]
    columns = (
        "trial", "FLOPS", "regulated", "best error", "searched", "models", "time to largest error",
        "operations to it", "seed",
    )  # fmt: skip
    return Table(columns, rows, tuple(range(9)), title="Trials", noun="trials", style="trials")


def search_section(data: SearchData) -> Section:
    """Show the search over time, its tree, its models and its workers."""
    blocks: list[Block] = []
    if len(data.run.score.trials) > 1:
        number = data.run.shown.trial
        text = f"Curves, models, workers and placement are those of trial {number}."
        blocks.append(Paragraph(text))
    blocks += [
        Grid(
            [
                error_figure(data),
                operations_figure(data),
                tree_figure(data),
                timeline_figure(data.run, noun="worker"),
            ]
        ),
        models_table(data),
        workers_table(data),
    ]
    skipped = [Item(str(line)) for line in data.history.unreadable[:ROWS_SHOWN]]
    if skipped:
        blocks.append(Items(skipped, "Lines of histories that can't be read"))
    return Section("Search", blocks)


def score_figure(data: SearchData) -> Figure:
    """Show FLOPS(t), the regulated score, and the rate of the moment."""
    search, final = data.search, require(data.run.shown.flops, "flops")
    seconds = search.seconds
    window = max(1.0, seconds / RATE_WINDOWS)
    times = [seconds * (index + 1) / POINTS for index in range(POINTS)]
    score = [(t, search.curve.flops(t)) for t in times]
    regulated = [(t, value) for t in times if (value := search.regulated(t)) is not None]
    rate = [(t, search.curve.rate(t, window=window)) for t in times if t >= window]
    factor, prefix = si_prefix(max(value for _, value in (*score, *regulated, *rate)))
    score, regulated, rate = (
        [(t, value / factor) for t, value in points] for points in (score, regulated, rate)
    )
    last = regulated[-1][1] if regulated else 0.0
    least = data.trial.min_seconds
    chart = LineChart(
        [
            curve(rate, "member"),
            curve(regulated, "mean", name=f"regulated {last:.3g}", dots="some"),
            curve(score, "ensemble", name=f"score {final / factor:.3g}"),
        ],
        x_title=X_TITLE,
        y_title=f"{prefix}FLOPS",
        x_ticks=svg.time_ticks(seconds).up_to(seconds),
        x_end=seconds,
        verticals=[least] if least < seconds else [],
        marks=[Mark(data.trial.at_seconds, final / factor, "ensemble")],
    )
    return Figure(
        "Score and regulated score over time",
        chart,
        "AIPerf Fig. 4. Thick: operations from the first batch until then / time; its highest "
        "value right of the dashed line, with a dot, is the score. With dots: −ln(best error) "
        f"× it. Thin: the rate of the last {human_seconds(window)}.",
    )


def error_figure(data: SearchData) -> Figure:
    """Show the best error so far over time: it falls in steps."""
    search, target = data.search, data.run.shown.target_quality
    seconds = search.seconds
    steps = staircase(
        [(improvement.seconds, improvement.error) for improvement in search.improvements],
        end=seconds,
    )
    chart = LineChart(
        [curve(steps, "ensemble", name=f"best {steps[-1][1]:.3g}")],
        x_title=X_TITLE,
        y_title="best top-1 error so far",
        levels=[Level(f"largest {target:g}", target, "target")],
        x_ticks=svg.time_ticks(seconds).up_to(seconds),
        x_end=seconds,
    )
    return Figure(
        "Best error over time",
        chart,
        "Of all workers' models, at their validations. Dashed: the largest of a valid result.",
    )


def operations_figure(data: SearchData) -> Figure:
    """Show how much computation an error takes, and how it varies over trials (V3 Fig. 2)."""
    shown, trials = data.run.shown, data.run.score.trials
    total = max(map(all_operations, trials))
    factor, prefix = si_prefix(total)
    end = total / factor
    series = []
    # The shown trial is last, on top of the others.
    for trial in sorted(trials, key=lambda trial: trial.trial == shown.trial):
        if trial.search is None:
            continue
        points = [(i.operations / factor, i.error) for i in trial.search.improvements]
        if trial.trial == shown.trial:
            name = f"trial {trial.trial}"
            series.append(curve(staircase(points, end=end), "ensemble", name=name))
        else:
            series.append(curve(staircase(points, end=end), "member"))
    target = shown.target_quality
    chart = LineChart(
        series,
        x_title=f"operations of all workers, in {prefix}FLOP",
        y_title="best top-1 error so far",
        levels=[Level(f"largest {target:g}", target, "target")],
        x_ticks=svg.nice_ticks(0, end).up_to(end),
        x_end=end,
    )
    thin_lines = "" if len(series) == 1 else " Thin: the other trials."
    return Figure(
        "Best error over operations",
        chart,
        "Operations of training and validation until the best error was found (V3 Fig. 2 asks how "
        f"they vary). Thick: trial {shown.trial}.{thin_lines}",
    )


def tree_figure(data: SearchData) -> Figure:
    """Show each model by its operations and error, joined to its parent."""
    models = [model for model in data.history.models.values() if model.accuracy is not None]
    left_out = len(data.history.models) - len(models)
    note = "" if not left_out else f" {counted(left_out, 'model')} without a validation not drawn."
    factor, prefix = si_prefix(max(model.candidate.operations.per_sample for model in models))
    best = data.trial.best_model
    chart = Tree(
        [_node(model, factor) for model in models],
        best,
        x_title=f"operations per image, in {prefix}FLOP",
        y_title="top-1 error",
    )
    return Figure(
        "Search tree",
        chart,
        f"{counted(len(models), 'model').capitalize()} by their operations per image (forward and "
        "backward) and their best error, each joined to its parent. Leftmost: the initial model, "
        f"trained by every worker. Thick: the path to the best one, {best}.{note}",
    )


def _node(model: Model, factor: float) -> Node:
    candidate = model.candidate
    # No error among N images is known as less than one; a logarithmic axis has no zero.
    error = max(1 - (model.accuracy or 0.0), 1 / candidate.validation_samples)
    per_sample = candidate.operations.per_sample
    changes = "; ".join(candidate.moves) or "the initial model"
    tip = f"{model.id}: error {error:.4f}, {flop(per_sample)} per image, {changes}"
    return Node(model.id, candidate.parent, per_sample / factor, error, tip)


def models_table(data: SearchData) -> Table:
    """List every model, the best first."""
    operations = _operations_by_model(data.search.chunks)
    models = data.history.models.values()
    ranked = sorted(models, key=lambda model: (-(model.accuracy or 0.0), model.id))
    columns = (
        "model", "parent", "error", "predicted", "epochs", "FLOP/image", "parameters", "batch",
        "FLOP", "became", "change",
    )  # fmt: skip
    return Table(
        columns,
        [_model_row(model, operations.get(model.id, 0)) for model in ranked],
        (2, 3, 4, 5, 6, 7, 8),
        title="Models",
        note="The best first. Batch: images of a step over all accelerators of a worker; TPE: "
        "chosen by Bayesian optimization. Predicted: the final error by the learning curve. "
        "FLOP: training and validation, until the model stopped.",
        noun="models",
    )


def _model_row(model: Model, operations: int) -> tuple[str, ...]:
    candidate, count = model.candidate, model.candidate.operations
    change = "; ".join(candidate.moves) or "the initial model"
    if len(change) > MOVES_SHOWN:
        change = change[: MOVES_SHOWN - 1] + "…"
    predicted = model.predicted
    return (
        model.id,
        candidate.parent or "none",
        NOT_MEASURED if model.accuracy is None else f"{1 - model.accuracy:.4f}",
        NOT_MEASURED if predicted is None else f"{1 - predicted:.4f}",
        f"{len(model.epochs)}/{candidate.epochs}",
        human_si(count.per_sample).strip(),
        human_si(count.parameters).strip(),
        f"{candidate.batch_size:,}" + (" TPE" if candidate.tuned else ""),
        human_si(operations).strip(),
        STATES[model.state],
        change,
    )


def _operations_by_model(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Sum the operations of training and validation of each model."""
    operations: dict[str, int] = {}
    for chunk in chunks:
        operations[chunk.model] = operations.get(chunk.model, 0) + chunk.operations
    return operations


def workers_table(data: SearchData) -> Table:
    """List each worker's rounds, models, operations and idle time."""
    rows = []
    for worker, (start, end) in sorted(spans(data.search.chunks).items()):
        models = [model for model in data.history.models.values() if model.worker == worker]
        chunks = [chunk for chunk in data.search.chunks if chunk.worker == worker]
        operations = sum(chunk.operations for chunk in chunks)
        errors = [1 - model.accuracy for model in models if model.accuracy is not None]
        rows.append(
            (
                f"{worker}",
                f"{max((model.candidate.round for model in models), default=0)}",
                f"{len(models)}",
                quality(min(errors, default=None)),
                flop(operations),
                flops(operations / (end - start)),
                f"{idle(chunks).between_trainings:.2%}",
                f"{len({chunk.attempt for chunk in chunks})}",
            )
        )
    columns = (
        "worker", "rounds", "models", "best error", "operations", "own FLOPS",
        "idle between trainings", "attempts",
    )  # fmt: skip
    return Table(columns, rows, tuple(range(8)), title="Workers", noun="workers")
