"""Reasons for a missing rate, and the facts that would give one."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ..core.messages import as_clause
from ..core.run_table import MetricsRow
from ..throughput import messages

NO_RATE_KINDS: Final = frozenset(
    kind.identifier
    for kind in (
        *(messages.NO_CLEAN_WINDOW, messages.SINGLE_STEP, messages.NO_TOKENS),
        *(messages.NO_OPTIMIZER_STEP, messages.NO_TIMES, messages.NO_TIMES_HERE),
        *(messages.ONLY_ENGINE_TIMES, messages.ONLY_TOTAL_TIME, messages.ONLY_LAST_LINE),
        *(messages.SEVERAL_LAST_LINES,),
        *(messages.PREFERENCE_STEPS, messages.REINFORCEMENT_STEPS),
    )
)
"""Kinds of messages that say why there is no rate, whatever facts are missing."""

RATE_FACTS: Final = (
    *("log_interval", "seq_len", "gpus", "global_batch_size", "micro_batch_size", "packed"),
    *("gradient_accumulation", "mean_sample_length"),
)
"""Facts that a rate may lack. A model or an accelerator is not among them, and comes later in the
list of missing facts."""


def explain_missing_rate(row: MetricsRow) -> tuple[str, list[str]]:
    """Return why a row of metrics has no TGS, and the facts that would give a rate."""
    warnings, missing = row["warnings"] or [], row["missing"] or []
    kinds = row["warning_kinds"] or []
    fatal = [w for w, kind in zip(warnings, kinds, strict=True) if kind in NO_RATE_KINDS]
    if fatal or row["steps"] == 0:
        return "; ".join(map(as_clause, fatal or warnings[:1])), []
    lacks = list(takewhile(lambda name: name in RATE_FACTS, missing))
    if lacks:
        return f"missing {', '.join(lacks)}", lacks
    return "; ".join(map(as_clause, warnings[:1])), []
