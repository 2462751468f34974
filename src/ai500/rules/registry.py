"""The rules of ensembles, in order. The rules of a search are in `ai500.automl.rules`."""

from __future__ import annotations

from ai500.rules.layer_rules import LAYER_RULES
from ai500.rules.plausibility_rules import PLAUSIBILITY_RULES
from ai500.rules.procedure_rules import PROCEDURE_RULES
from ai500.rules.record_rules import RECORD_RULES
from ai500.rules.window_rules import WINDOW_RULES

ENSEMBLE_RULES = (
    *RECORD_RULES, *PROCEDURE_RULES, *PLAUSIBILITY_RULES, *WINDOW_RULES, *LAYER_RULES
)  # fmt: skip
"""Every rule that applies to an ensemble."""
COMMON_RULES = tuple(rule for rule in ENSEMBLE_RULES if rule.program is None)
"""Rules that apply to every program."""
