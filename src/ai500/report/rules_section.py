"""The report's tables of trials kept and layers judged."""

from __future__ import annotations

from ai500.records import Score
from ai500.records.findings import LayerVerdict
from ai500.report.run_data import Contents
from ai500.report.section import Table
from ai500.rules.layers import ASPECTS, LAYERS

VERDICTS = {"same": "same", "allowed": "changed, allowed", "forbidden": "changed, FORBIDDEN"}


def mean_of(score: Score) -> str:
    """Which trials the run's figures are the mean of, in words."""
    kept, all_of_them = list(score.kept_trials), len(score.trials)
    dropped = [one.trial for one in score.trials if one.trial not in kept]
    if not dropped:
        return f"Means of all {all_of_them} trials; each trial stands below, raw."
    named = ", ".join(map(str, kept))
    return (
        f"Means of {'trial' if len(kept) == 1 else 'trials'} {named} of {all_of_them}: the highest "
        "and the lowest by VFLOPS are dropped (V2 §5.3.2). Each trial stands below, raw."
    )


def layers_table(contents: Contents) -> Table:
    """Each of the nine layers against the reference, at the level it was judged at."""
    judgement = contents.judgement
    layers = judgement.layers if judgement else ()
    marked = [at for at, one in enumerate(layers) if one.verdict == "forbidden"]
    rows = [
        (
            f"{one.layer} {LAYERS[one.layer]}",
            _verdict(one),
            _facts(one),
            next(row.source for row in ASPECTS.values() if row.layer == one.layer),
        )
        for one in layers
    ]
    return Table(("layer", "verdict", "this run", "source"), rows, marked=marked)


def _verdict(one: LayerVerdict) -> str:
    stated = all(reference is None for _, reference, _ in one.facts)
    return "free to choose" if one.verdict == "allowed" and stated else VERDICTS[one.verdict]


def _facts(one: LayerVerdict) -> str:
    """What differs with both values, and what is free with the run's."""
    said = [
        f"{what} {_value(run)}" + (f" (reference {reference})" if reference is not None else "")
        for what, reference, run in one.facts
        if reference is None or run != reference
    ]
    return "; ".join(said) or "as the reference"


def _value(value: str | None) -> str:
    return "not recorded" if value is None else value
