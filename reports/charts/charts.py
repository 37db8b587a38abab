"""The charts, each a function of frames or rows that gives a Figure.

What is drawn is aggregated first, so a chart of a long run or of many runs is as light as that of
a short one or a few; the notes say what was. A null is absent; NaN and infinities become null.
"""

from .chart_style import EXACT, FULL, WIDTH
from .comparison_charts import (
    comparison,
    mfu_by_length,
    mfu_by_precision,
    mfu_by_recompute,
    mfu_by_run,
    others,
    scaling,
)
from .figure import VIEW, Figure, Spec, drawable
from .run_charts import course, operators, ranks, step_times, time_lost
from .run_series import binned, marks, step_time_histogram
from .tooltips import TGS, cards
from .waterfall import waterfall

__all__ = [
    "EXACT",
    "FULL",
    "TGS",
    "VIEW",
    "WIDTH",
    "Figure",
    "Spec",
    "binned",
    "cards",
    "comparison",
    "course",
    "drawable",
    "marks",
    "mfu_by_length",
    "mfu_by_precision",
    "mfu_by_recompute",
    "mfu_by_run",
    "operators",
    "others",
    "ranks",
    "scaling",
    "step_time_histogram",
    "step_times",
    "time_lost",
    "waterfall",
]
