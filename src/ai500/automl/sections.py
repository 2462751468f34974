"""What a report says of a search: words, cards, figures and tables (AIPerf §IV-D, §V)."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from ai500.automl import figures as search_figures
from ai500.automl.figures import Node
from ai500.automl.history import History, Model
from ai500.automl.search_score import Chunk, Search, idle
from ai500.automl.trial_score import spans
from ai500.core.units import human_seconds, human_si
from ai500.records import Score, TrialSearchScore
from ai500.report.run_data import Contents
from ai500.report.section import Card, Figure, Table
from ai500.report.sections import NOT_MEASURED, flop, share
from ai500.report.summary import counted, flops, hardware, mean_of_which, quality

MOVES_SHOWN = 60
STATES = {
    "trained": "trained", "stopped_early": "stopped early", "out_of_time": "out of time",
    "lost": "LOST", "training": "not ended",
}  # fmt: skip


def of(contents: Contents) -> tuple[Search, History, TrialSearchScore]:
    """The shown trial's search, its models and its figures."""
    view, figures = contents.search, contents.shown.search
    assert view is not None and figures is not None  # the template asks before
    return view.search, view.history, figures


def sentences(contents: Contents) -> list[str]:
    """The paragraph at the top."""
    score, plan = contents.score, contents.plan
    found = score.search
    assert found is not None
    times = "" if len(score.trials) < 2 else f" {len(score.trials)} times"
    tried = counted(found.architectures, "architecture")
    return [
        f"{counted(score.ensemble_size, 'worker').capitalize()} searched architectures{times} for "
        f"{human_seconds(score.seconds)}, problem class {plan.problem_class} of AIPerf, on "
        f"{hardware(contents)}, and trained {counted(found.models, 'model')} of {tried} for "
        f"{human_si(score.operations + score.validation_operations)}FLOP, counted by convention "
        f"{score.convention}.{mean_of_which(score)}",
        f"The score is {flops(score.flops)}: the highest mean speed from the first batch to a time "
        f"of at least {human_seconds(found.least_seconds)}, reached at "
        f"{human_seconds(found.at_seconds)}. The best model's {score.quality_name} is "
        f"{score.ensemble_quality:.4f} (at most {score.target_quality:g} is valid); the regulated "
        f"score −ln(error) × FLOPS is {flops(found.regulated_score)}.",
    ]


def cards(score: Score) -> list[Card]:
    """The four figures to remember."""
    found = score.search
    assert found is not None
    initial = found.initial_error
    began = "" if initial is None else f"; the initial model's {initial:.4f}"
    return [
        Card("FLOPS", flops(score.flops), f"the score, at {human_seconds(found.at_seconds)}"),
        Card("Regulated score", flops(found.regulated_score), "−ln(error) × FLOPS"),
        Card(
            score.quality_name,
            quality(score.ensemble_quality),
            f"at most {score.target_quality:g}{began}",
        ),
        Card("Architectures", f"{found.architectures:,}", counted(found.models, "model")),
    ]


def score_table(contents: Contents) -> Table:
    """Every number of the score with how it is computed and its source."""
    score = contents.score
    found = score.search
    assert found is not None
    target, initial = score.time_to_target_seconds, found.initial_error
    reached = "not reached" if target is None else human_seconds(target)
    spent = found.operations_to_target
    rows = [
        ("FLOPS", flops(score.flops),
         f"highest of operations / time, from the first batch to ≥ "
         f"{human_seconds(found.least_seconds)}", "AIPerf §IV-E"),
        ("at", human_seconds(found.at_seconds), "the end of that time", "AIPerf Fig. 4"),
        ("Regulated score", flops(found.regulated_score),
         f"−ln(error) × FLOPS, highest at {human_seconds(found.regulated_at_seconds)}",
         "AIPerf Eq. 3"),
        ("Mean FLOPS", flops(found.mean_flops), "over the whole search", "decision D6"),
        (f"Best {score.quality_name}", quality(score.ensemble_quality),
         f"of all models, on the validation set: {found.best_model}", "AIPerf §IV-D"),
        ("Initial model's", NOT_MEASURED if initial is None else f"{initial:.4f}",
         "the best of the workers' first rounds", "AIPerf Table IV"),
        ("Largest error", f"{score.target_quality:g}", "fixed by the problem class", "decision D7"),
        ("Time to it", reached, "until the best error was at most that", "V3 Fig. 2"),
        ("Operations to it", "not reached" if spent is None else flop(spent),
         "of all workers until then", "V3 Fig. 2"),
        ("Variation of these", share(found.operations_to_target_variation),
         "sample standard deviation / mean over the trials", "V3 Fig. 2"),
        ("Operations of training", flop(score.operations),
         f"forward, backward, update, convention {score.convention}", "AIPerf Tables I, II"),
        ("Operations of validation", flop(score.validation_operations),
         "forward; counted in FLOPS", "AIPerf §IV-D"),
        ("Idle between trainings", f"{found.idle_between_trainings:.2%}",
         "of the workers' time, from a model's end to the next one's first batch",
         "AIPerf Fig. 5"),
        ("Without work", f"{found.without_work:.2%}",
         "of the workers' time: between trainings, and restarts", "AIPerf Fig. 5"),
        ("Models", f"{found.models:,}",
         f"{found.tuned:,} tuned by TPE, {found.lost:,} lost", "AIPerf §IV-B"),
        ("Unreadable lines", f"{found.unreadable_lines:,}", "of histories, passed over", ""),
        ("Sum of the workers' rates", flops(score.members_flops_sum),
         "each worker's operations / its own time, summed", "decision D6"),
        ("Start skew", human_seconds(score.start_skew_seconds),
         "between the workers' first batches", "decision D6"),
        ("Clock", score.clock, "of one host, or of several with their offsets", "decision D6"),
    ]  # fmt: skip
    return Table(("quantity", "value", "how it is computed", "source"), rows, numbers=(1,))


def trials_table(score: Score) -> Table:
    """Every trial, raw: what V3 Fig. 2 asks of a search."""
    rows = []
    for one in score.trials:
        found = one.search
        assert found is not None
        spent, target = found.operations_to_target, one.time_to_target_seconds
        rows.append(
            (
                f"{one.trial}" if one.complete else f"{one.trial}, INCOMPLETE",
                flops(one.flops),
                flops(found.regulated_score),
                quality(one.ensemble_quality),
                human_seconds(one.seconds),
                f"{found.models:,}",
                "not reached" if target is None else human_seconds(target),
                "not reached" if spent is None else flop(spent),
                NOT_MEASURED if one.seed is None else f"{one.seed}",
            )
        )
    columns = (
        "trial", "FLOPS", "regulated", "best error", "searched", "models", "time to largest error",
        "operations to it", "seed",
    )  # fmt: skip
    return Table(columns, rows, numbers=tuple(range(9)))


def figures(contents: Contents) -> list[Figure]:
    """Score over time, error over time."""
    search, _, found = of(contents)
    window = max(1.0, search.seconds / 40)
    title = "Score and regulated score over time"
    drawn = search_figures.score_figure(
        search,
        least=found.least_seconds,
        final=(found.at_seconds, contents.shown.flops),
        window=window,
        title=title,
    )
    error = "Best error over time"
    return [
        Figure(
            title,
            Markup(drawn),
            "AIPerf Fig. 4. Thick: operations from the first batch until then / time; its highest "
            "value right of the dashed line, with a dot, is the score. With dots: −ln(best error) "
            f"× it. Thin: the rate of the last {human_seconds(window)}.",
        ),
        Figure(
            error,
            Markup(
                search_figures.error_figure(
                    search, target=contents.shown.target_quality, title=error
                )
            ),
            "Of all workers' models, at their validations. Dashed: the largest of a valid result.",
        ),
        _operations(contents),
    ]


def _operations(contents: Contents) -> Figure:
    """V3 Fig. 2's question: how much computation does a search take, and does it vary?"""
    title = "Best error over operations"
    trials = {
        one.trial: [(i.operations, i.error) for i in one.search.improvements]
        for one in contents.score.trials
        if one.search is not None
    }
    shown = contents.shown
    drawn = search_figures.operations_figure(
        trials,
        shown=shown.trial,
        total=max(t.operations + t.validation_operations for t in contents.score.trials),
        target=shown.target_quality,
        title=title,
    )
    others = "" if len(trials) == 1 else " Thin: the other trials."
    return Figure(
        title,
        Markup(drawn),
        "Operations of training and validation until the best error was found (V3 Fig. 2 asks how "
        f"they vary). Thick: trial {shown.trial}.{others}",
    )


def tree(contents: Contents) -> Figure:
    """The search tree."""
    _, history, found = of(contents)
    title = "Search tree"
    nodes = [_node(model) for model in history.models.values() if model.accuracy is not None]
    left_out = len(history.models) - len(nodes)
    note = "" if not left_out else f" {counted(left_out, 'model')} without a validation not drawn."
    drawn = search_figures.tree_figure(nodes, best=found.best_model, title=title)
    return Figure(
        title,
        Markup(drawn),
        f"{counted(len(nodes), 'model').capitalize()} by their operations per image (forward and "
        "backward) and their best error, each joined to its parent. Leftmost: the initial model, "
        f"trained by every worker. Thick: the way to the best one, {found.best_model}.{note}",
    )


def _node(model: Model) -> Node:
    made, count = model.candidate, model.candidate.operations
    # No error among N images is known as less than one; a logarithmic axis has no zero.
    error = max(1 - (model.accuracy or 0.0), 1 / made.validation_images)
    per_image = count.per_image
    what = "; ".join(made.moves) or "the initial model"
    return Node(
        model.id,
        made.parent,
        per_image,
        error,
        f"{model.id}: error {error:.4f}, {flop(per_image)} per image, {what}",
    )


def models_table(contents: Contents) -> Table:
    """Every model, the best first."""
    search, history, _ = of(contents)
    spent = _spent(search.chunks)
    ranked = sorted(history.models.values(), key=lambda one: (-(one.accuracy or 0.0), one.id))
    rows = [_row(model, spent.get(model.id, 0)) for model in ranked]
    columns = (
        "model", "parent", "error", "predicted", "epochs", "FLOP/image", "parameters", "batch",
        "FLOP", "became", "change",
    )  # fmt: skip
    return Table(columns, rows, numbers=(2, 3, 4, 5, 6, 7, 8))


def _row(model: Model, operations: int) -> tuple[str, ...]:
    made, count = model.candidate, model.candidate.operations
    change = "; ".join(made.moves) or "the initial model"
    if len(change) > MOVES_SHOWN:
        change = change[: MOVES_SHOWN - 1] + "…"
    predicted = model.predicted
    return (
        model.id,
        made.parent or "none",
        NOT_MEASURED if model.accuracy is None else f"{1 - model.accuracy:.4f}",
        NOT_MEASURED if predicted is None else f"{1 - predicted:.4f}",
        f"{len(model.epochs)}/{made.epochs}",
        human_si(count.per_image).strip(),
        human_si(count.parameters).strip(),
        f"{made.batch_size:,}" + (" TPE" if made.tuned else ""),
        human_si(operations).strip(),
        STATES[model.state],
        change,
    )


def _spent(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Model → operations of training and validation."""
    found: dict[str, int] = {}
    for one in chunks:
        found[one.model] = found.get(one.model, 0) + one.operations
    return found


def workers_table(contents: Contents) -> Table:
    """What each worker did."""
    search, history, _ = of(contents)
    rows = []
    for worker, (first, last) in sorted(spans(search.chunks).items()):
        mine = [one for one in history.models.values() if one.worker == worker]
        done = [one for one in search.chunks if one.worker == worker]
        lost = idle(done)
        best = min((1 - m.accuracy for m in mine if m.accuracy is not None), default=None)
        rows.append(
            (
                f"{worker}",
                f"{max((m.candidate.round for m in mine), default=0)}",
                f"{len(mine)}",
                quality(best),
                flop(sum(one.operations for one in done)),
                flops(sum(one.operations for one in done) / (last - first)),
                f"{lost.between_trainings:.2%}",
                f"{len({one.attempt for one in done})}",
            )
        )
    columns = (
        "worker", "rounds", "models", "best error", "operations", "own FLOPS",
        "idle between trainings", "attempts",
    )  # fmt: skip
    return Table(columns, rows, numbers=tuple(range(8)))


def skipped_lines(contents: Contents) -> list[str]:
    """Lines of histories that were passed over, in words."""
    _, history, _ = of(contents)
    return [str(one) for one in history.unreadable]
