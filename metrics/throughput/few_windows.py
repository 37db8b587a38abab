"""Doubts about a rate of few windows: their scatter, and steps without a time.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..core.intervals import MIN_INTERVAL_WINDOWS, UPPER_PROBABILITY
from ..core.messages import Effect, Message
from ..core.print_precision import MAX_STAMP_ERROR_S
from ..core.quantiles import student_t_quantile
from ..core.run_arrays import RunArrays, total
from .messages import FEW_WINDOWS, MORE_WINDOWS_FIX, ORIGINAL_LOG_FIX, QUOTED_LINE
from .windows import WindowSelection, steps_covered

MAX_UNSURE: Final = 0.05
"""Largest relative uncertainty of a rate without an interval that needs no warning."""
MAX_UNSURE_SAMPLE: Final = 0.02
"""The same, where lines time only a part of the steps."""
MIN_TIMED_SHARE: Final = 0.8
"""Least timed share of the steps between lines; below, the untimed steps raise a doubt."""
MIN_SCATTER_WINDOWS: Final = 3
"""Windows needed for a scatter: two may agree by chance, a single window has no scatter."""


def few_windows_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> Message | None:
    """Return the doubt about a rate of too few windows; None if the windows agree.

    Too few windows for an interval. A printed time or rate may cover fewer steps than lie between
    two lines: the mean of ten is not the mean of seventy. Time stamps skip no step, so they are a
    second witness.

    steady: the windows of the rate, with `evidence`
    """
    number = len(steady.indices)
    if windows.height == 1:
        return QUOTED_LINE()
    if number >= MIN_INTERVAL_WINDOWS or not total(steady.tokens):
        return None
    timed = float(np.nansum(windows[f"{evidence}_span"][steady.indices]))
    passed = steps_covered(windows, evidence, steady.indices)
    partial = timed < MIN_TIMED_SHARE * passed
    apart = _apart_from_stamps(windows, steady) if partial else None
    unsure, most = _half_width(steady), MAX_UNSURE_SAMPLE if partial else MAX_UNSURE
    too_few = number < MIN_SCATTER_WINDOWS
    if not too_few and unsure is not None and unsure <= most and apart is None:
        return None
    count = "a single window" if number == 1 else f"only {number} windows"
    steps = f"{timed:,.0f} of {passed:,.0f} steps" if partial else f"{timed:,.0f} steps"
    windows_text = f"{count} ({'1 step' if steps == '1 steps' else steps})"
    off = apart_text = ""
    if unsure is not None and unsure > most:
        off = f" and may be off by {unsure:.0%}, as they differ"
    if apart is not None:
        apart_text = f"; by time stamps, all of these steps ran at {apart:+.1%}"
    remedy = ORIGINAL_LOG_FIX if partial else MORE_WINDOWS_FIX
    effect: Effect = "doubt" if number == 1 or (unsure is not None and unsure > most) else "note"
    if partial and (apart is not None or too_few):
        effect = "unranked"
    return FEW_WINDOWS(effect, windows=windows_text, off=off, apart=apart_text, remedy=remedy)


def _half_width(steady: WindowSelection) -> float | None:
    """Return half of the rate's 95 % interval from its windows' scatter, as a share.

    None with fewer than MIN_SCATTER_WINDOWS windows.
    """
    number = len(steady.indices)
    if number < MIN_SCATTER_WINDOWS:
        return None
    pace = total(steady.seconds) / total(steady.tokens)
    off = steady.seconds - pace * steady.tokens
    sigma = float(np.sqrt((off**2).sum() / (number - 1)))
    factor = student_t_quantile(number - 1, UPPER_PROBABILITY)
    return factor * sigma * float(np.sqrt(number)) / total(steady.seconds)


def _apart_from_stamps(windows: RunArrays, steady: WindowSelection) -> float | None:
    """Return the rate by stamps over the windows' rate, less 1; None if they agree.

    The stamps cover all steps up to these lines. Only windows with a stamp at both ends count.
    """
    indices = steady.indices
    seconds, tokens = windows["stamp_time"][indices], windows["tokens_per_gpu"][indices]
    stamped_tokens = windows["stamp_span"][indices] * tokens
    known = ~np.isnan(seconds) & ~np.isnan(stamped_tokens)
    whole = total(seconds[known])
    if not whole or not total(steady.tokens[known]):
        return None
    pace = total(steady.seconds[known]) / total(steady.tokens[known])
    ratio = pace * total(stamped_tokens[known]) / whole
    allowed = MAX_UNSURE_SAMPLE + MAX_STAMP_ERROR_S / whole
    return ratio - 1 if abs(ratio - 1) > allowed else None
