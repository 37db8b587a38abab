"""Charts, as functions of frames or rows that return a Figure.

Data is aggregated first, so a chart of a long run or of many runs is as light as a chart of a short
run or a few; the notes name the aggregation. A null is absent; NaN and infinities become null.
"""

from fairmfu.metrics.runs.step_bins import bin_windows, event_marks

from .chart_style import MFU_EXACT_TITLE, MFU_FULL_TITLE, WIDTH
from .comparison_charts import (
    comparison,
    mfu_by_length,
    mfu_by_precision,
    mfu_by_recompute,
    mfu_by_run,
    other_tools_chart,
    scaling,
)
from .figure import VIEW, Figure, Spec, drawable
from .overlay import overlay
from .run_charts import course, operators, phases, ranks, step_times, time_lost
from .run_series import step_time_histogram
from .tooltips import TGS, chart_cards, run_cards
from .waterfall import waterfall

__all__ = [
    "MFU_EXACT_TITLE",
    "MFU_FULL_TITLE",
    "TGS",
    "VIEW",
    "WIDTH",
    "Figure",
    "Spec",
    "bin_windows",
    "chart_cards",
    "comparison",
    "course",
    "drawable",
    "event_marks",
    "mfu_by_length",
    "mfu_by_precision",
    "mfu_by_recompute",
    "mfu_by_run",
    "operators",
    "other_tools_chart",
    "overlay",
    "phases",
    "ranks",
    "run_cards",
    "scaling",
    "step_time_histogram",
    "step_times",
    "time_lost",
    "waterfall",
]
