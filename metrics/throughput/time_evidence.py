"""Compare two kinds of time evidence: their gap, and its cause.

Every two kinds of metrics.throughput.windows in a log are compared over steps that both time, in
windows that are clean under both. If the windows of one kind divide a window of the other, the
parts are summed. If one kind times only the last of several steps, this step is a sample of the
others, and its scatter widens the tolerance. A gap beyond the tolerance and 1 % has a cause that
follows from the log, or none.

A rate without counted tokens is compared with itself: the rate times the time between two moments
gives the tokens of these steps, and all steps of a run have the same number of tokens.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray, median_of
from ..core.intervals import MAD_TO_SIGMA
from ..core.messages import Message
from ..core.print_precision import MAX_UNEXPLAINED_GAP, rounding_share
from ..core.quantities import StepSamples, StepTokens
from ..core.run_arrays import RunArrays, total
from ..core.run_words import EVIDENCE_LABELS
from .messages import (
    EVIDENCE_APART,
    EVIDENCE_MISCOUNTED,
    EVIDENCE_WITHOUT_FIT,
    TOKENS_ABOVE_RATE,
)
from .token_counts import MAX_RANK_TOKEN_RATIO, per_millisecond_cause
from .windows import (
    MAX_RESTARTED_SHARE,
    MOMENT_COLUMNS,
    PRINTED_TIME_COLUMNS,
    accumulation_steps,
    clock_unit,
    count_optimizer_steps,
    disturbed_windows,
    stamp_error,
)

RATE_IN_TOKENS: Final = "logged_tgs"
"""Column of rates in tokens of one GPU; all other rates are in samples over all GPUs."""

RATE_EVIDENCE: Final = frozenset({"rate", "timer"})
"""Kinds that divide by the same time: agreement between two of them proves nothing about this
time."""

CHECK_ORDER: Final = ("stamp", "engine", "clock", "elapsed", "rate", "runtime")
"""Kinds that check the evidence of a run's rates, the best first."""

TRUNCATED_STAMP_ERROR: Final = 1.22
"""Three standard deviations of the difference between two truncated stamps, in their unit."""

TOLERANCE_SIGMAS: Final = 3.0

MIN_SAMPLED_WINDOWS: Final = 3
"""Windows from which single steps can represent all steps."""

MAX_SAMPLED_RATIO: Final = 2.0
"""Largest ratio, either way, between a few single steps and all steps that may be chance. With
fewer than MIN_SAMPLED_WINDOWS windows, only a larger ratio is reported."""

MAX_WRITE_DELAY_S: Final = 0.25
"""Largest delay between the end of a line's rate and the writing of the line [s]; public logs:
0.17."""

OUTLIER_DEVIATIONS: Final = 8.0
"""Median deviations from which a window is an outlier."""


@dataclass(frozen=True, slots=True)
class EvidenceComparison:
    """Comparison of two kinds of time evidence of one run.

    kind, other: of EVIDENCE_LABELS
    ratio: TGS by `other` over TGS by `kind`, over the same steps
    windows, seconds: number of compared windows, and their time by `kind`
    resolution: coarser unit of the time stamps or the clock [s]; None if neither kind is one
    tolerance: largest gap of the ratio to 1 that needs no cause
    cause: reason for a larger gap; None if the gap is small, or no cause is known
    miscounted: the cause is a wrong token count, so that no rate of these tokens is right
    has_exceptions: the cause is a few windows with work that one of the kinds does not time
    sampled: one kind times only single steps of the steps timed by the other
    fitted_tokens: tokens (or samples) of a step on which most windows agree, where the log does not
        state the number; only the other windows can differ then
    has_no_fit: every step must have the same number, and most windows agree on none
    """

    kind: str
    other: str
    ratio: float
    windows: int
    seconds: float
    resolution: float | None
    tolerance: float
    cause: str | None
    miscounted: bool = False
    has_exceptions: bool = False
    sampled: bool = False
    fitted_tokens: float | None = None
    has_no_fit: bool = False

    @property
    def gap(self) -> float:
        """TGS by `other` over TGS by `kind`, less 1."""
        return self.ratio - 1

    @property
    def disagrees(self) -> bool:
        """True if the gap exceeds print precision and the scatter of single steps."""
        far = self.sampled and not _near(self.ratio)
        return self.has_no_fit or far or abs(self.gap) > self.tolerance

    @property
    def kinds(self) -> tuple[str, str]:
        """Both kinds."""
        return self.kind, self.other

    @property
    def independent(self) -> bool:
        """True if either kind can check the other.

        False for a time and a rate of the same steps on the same line, and for a kind outside
        CHECK_ORDER.
        """
        same_line = {"elapsed", "rate"} <= set(self.kinds) and not self.sampled
        return not same_line and self.other in CHECK_ORDER

    @property
    def contradicts(self) -> bool:
        """True if the gap has no cause, or a wrong token count as its cause.

        Also true if the counted moments include pauses in a few windows that no step time includes:
        the pauses are unexplained, and a restart or an evaluation is not part of a steady rate. A
        number fitted to single steps agrees as far as possible, so only a failed fit contradicts.
        """
        if self.has_no_fit or (self.fitted_tokens is not None and self.sampled):
            return self.has_no_fit
        paused = self.has_exceptions and self.kind in MOMENT_COLUMNS and self.gap > 0
        return self.disagrees and (self.cause is None or self.miscounted or paused)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same steps timed by two kinds of evidence, window by window.

    step, span: last step of each window, and number of its steps
    a, b: seconds of each window by the first kind and by the second
    stretches: number of unbroken rows of windows
    sampled: single steps of one kind represent all steps of the other
    """

    kinds: tuple[str, str]
    step: FloatArray
    span: FloatArray
    a: FloatArray
    b: FloatArray
    stretches: int
    sampled: bool = False

    @property
    def ratio(self) -> float:
        """TGS by the second kind over TGS by the first."""
        return float(self.a.sum() / self.b.sum())

    def faster(self, kind: str) -> float:
        """Return TGS by this kind over TGS by the other."""
        return self.ratio if self.kinds[1] == kind else 1 / self.ratio

    def other(self, kind: str) -> str:
        """Return the kind paired with this one."""
        return self.kinds[1] if self.kinds[0] == kind else self.kinds[0]

    def seconds(self, kind: str) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of each window by this kind, and by the other."""
        return (self.a, self.b) if self.kinds[0] == kind else (self.b, self.a)

    @property
    def few(self) -> bool:
        """True if there are too few single steps to represent all steps."""
        return self.sampled and len(self.a) < MIN_SAMPLED_WINDOWS


def _near(ratio: float) -> bool:
    return 1 / MAX_SAMPLED_RATIO < ratio < MAX_SAMPLED_RATIO


def compare_evidence(windows: RunArrays, run: Mapping[str, Any]) -> list[EvidenceComparison]:
    """Compare every two kinds of time evidence of one run that time the same steps.

    In each comparison, the kind preferred by the run's format comes first.

    windows: of the run; run: the run's row of ingest.core.schema's runs
    """
    order = [*run["evidence"], *(k for k in EVIDENCE_LABELS if k not in run["evidence"])]
    timed = {kind: _timed(windows, kind) for kind in order if kind != "runtime"}
    fitted = {"rate"} if not windows.has_any("known_rate_time") else set()  # tried, may fail
    untimed = {kind for kind, lines in timed.items() if not lines.clean.any()} - fitted
    there = [kind for kind in order if kind not in untimed]
    pairs = [(a, b) for a, b in combinations(there, 2) if not {a, b} <= RATE_EVIDENCE]
    found = [_compared(windows, run, timed, a, b) for a, b in pairs]
    return [comparison for comparison in found if comparison is not None]


def window_ratios(windows: RunArrays, kind: str, other: str) -> FloatArray:
    """Return TGS by `other` over TGS by `kind`, for each window timed by both.

    Windows too short for clocks of whole seconds are merged with the following windows.

    windows: of one run; kind, other: of EVIDENCE_LABELS without `runtime`
    """
    pair = _paired(_timed(windows, kind), _timed(windows, other))
    if pair is None or pair.few:
        return np.empty(0)
    a, b = pair.a, pair.b
    if unit := _resolution(windows, pair.kinds):
        together = np.unique(np.cumsum(b) // (unit / MAX_CLOCK_SHIFT), return_index=True)[1]
        a, b = np.add.reduceat(a, together), np.add.reduceat(b, together)
    timed = (a > 0) & (b > 0)
    return np.asarray(a[timed] / b[timed])


MAX_CLOCK_SHIFT: Final = 0.1
"""Largest shift of a ratio by clocks of whole seconds: little compared with the 2 of a wrong
degree."""


def select_check(comparisons: Iterable[EvidenceComparison], kind: str) -> EvidenceComparison | None:
    """Return the comparison that checks rates of `kind`: with time stamps, if any.

    A rate and a time on the same line are no check of each other's time (they check tokens, in
    metrics.throughput.token_counts). Nor is a rate whose tokens were fitted to the time.
    """
    oriented = [
        pair if pair.kind == kind else _turned(pair) for pair in comparisons if kind in pair.kinds
    ]
    checks = (pair for pair in oriented if pair.independent and pair.fitted_tokens is None)
    return min(checks, key=lambda pair: CHECK_ORDER.index(pair.other), default=None)


def _turned(comparison: EvidenceComparison) -> EvidenceComparison:
    return replace(
        comparison,
        kind=comparison.other,
        other=comparison.kind,
        ratio=1 / comparison.ratio,
        seconds=comparison.seconds / comparison.ratio,
    )


def evidence_warning(comparison: EvidenceComparison) -> Message | None:
    """Return the warning of a run where two kinds disagree; None if they agree."""
    if not comparison.disagrees:
        return None
    if comparison.has_no_fit:
        return EVIDENCE_WITHOUT_FIT(cause=comparison.cause)
    kind = EVIDENCE_MISCOUNTED if comparison.miscounted else EVIDENCE_APART
    return kind(
        "unranked" if comparison.contradicts else None,
        other=EVIDENCE_LABELS[comparison.other],
        gap=_gap_text(abs(comparison.gap)),
        side="higher" if comparison.gap > 0 else "lower",
        kind=EVIDENCE_LABELS[comparison.kind],
        cause=comparison.cause or "no known cause",
    )


def _gap_text(gap: float) -> str:
    return f"{gap:.1%}" if gap < MAX_GAP_IN_PERCENT else f"{gap:,.0f}x"


MAX_GAP_IN_PERCENT: Final = 10
"""Largest gap, as a share, that is told in percent."""


# --- the same steps -------------------------------------------------------------------------


def _compared(
    windows: RunArrays, run: Mapping[str, Any], timed: Mapping[str, _Timed], a: str, b: str
) -> EvidenceComparison | None:
    """Compare two kinds of evidence; None if they time no steps in common.

    timed: the windows of each kind but `runtime`
    """
    if "runtime" in (a, b):
        return _whole_run(windows, a, b)
    pair, fitted = _paired(timed[a], timed[b]), None
    if pair is None and "rate" in (a, b) and not windows.has_any("known_rate_time"):
        pair, fitted = _fitted(windows, a, b)
    if pair is None or not pair.a.sum() or not pair.b.sum():
        return None
    if pair.few and _near(pair.ratio):
        return None
    tolerance = float(MAX_UNEXPLAINED_GAP + _rounding(windows, pair))
    if fitted is not None:
        tolerance += _scatter(pair, pair.b - pair.a)
    comparison = EvidenceComparison(
        kind=a,
        other=b,
        ratio=pair.ratio,
        windows=len(pair.a),
        seconds=float(pair.a.sum()),
        resolution=_resolution(windows, pair.kinds),
        tolerance=tolerance,
        cause=None,
        sampled=pair.sampled,
        fitted_tokens=fitted,
    )
    return _with_cause(windows, run, pair, comparison)


def _with_cause(
    windows: RunArrays, run: Mapping[str, Any], pair: _Pair, comparison: EvidenceComparison
) -> EvidenceComparison:
    """Return a comparison with the cause of its gap, if wider than allowed."""
    fitted = comparison.fitted_tokens
    unlike = None if fitted is None else _unlike(windows, run, pair, fitted)
    if unlike is not None:
        return replace(comparison, cause=unlike, has_no_fit=True)
    if not comparison.disagrees:
        return comparison
    tokens = _tokens(pair) if fitted is None else None
    few = _exceptions(pair, comparison.tolerance)
    cause = _cause(windows, run, pair, comparison.tolerance, few) or tokens
    return replace(
        comparison,
        cause=cause,
        miscounted=cause is not None and cause == tokens,
        has_exceptions=cause is not None and cause == few,
    )


def _rate_column(windows: RunArrays) -> str:
    """Return the column of the logged rate: tokens of one GPU, else samples of all."""
    return next(filter(windows.has_any, PRINTED_TIME_COLUMNS["rate"]), RATE_IN_TOKENS)


def _fitted(windows: RunArrays, a: str, b: str) -> tuple[_Pair | None, float | None]:
    """Return a pair with a rate of unknown batch, and the batch of a step that fits.

    The fitted batch gives the median window the same time by both kinds, in the unit of
    `_rate_column`.
    """
    rate = windows[_rate_column(windows)]
    usable = np.isfinite(rate) & (rate > 0)
    unit = np.divide(windows["rate_span"], rate, out=np.full(len(rate), np.nan), where=usable)
    unknown = windows.with_values(known_rate_time=unit)
    pair = _paired(_timed(unknown, a), _timed(unknown, b))
    if pair is None or len(pair.a) == 1:  # any number fits a single window
        return None, None
    printed, timed = pair.seconds("rate")
    per_step = median_of(timed / printed)
    scale = (per_step, 1.0) if a == "rate" else (1.0, per_step)
    return replace(pair, a=pair.a * scale[0], b=pair.b * scale[1]), per_step


def fit_step_batch(windows: RunArrays, run: Mapping[str, Any]) -> StepTokens | StepSamples | None:
    """Fit the batch of a step: the logged rate times the time between stamps.

    In the unit of the rate. None if most windows do not agree on one number, with a single window,
    or if windows are too short for stamps of whole seconds.
    """
    pair, fitted = _fitted(windows, "rate", "stamp")
    if pair is None or not fitted or pair.sampled:
        return None
    if stamp_error(windows, "stamp") > MAX_UNEXPLAINED_GAP * median_of(pair.b):
        return None
    if _unlike(windows, run, pair, fitted):
        return None
    each = np.full(windows.height, fitted)
    return StepTokens(each) if _rate_column(windows) == RATE_IN_TOKENS else StepSamples(each)


def _unlike(windows: RunArrays, run: Mapping[str, Any], pair: _Pair, fitted: float) -> str | None:
    """Describe that no number of tokens of a step fits the windows; None if one may.

    Every step of a run trains the same number of tokens. So a rate averaged over all time and steps
    between two moments, times the time between them, gives the same number in most windows. Windows
    with time that the rate leaves out give more, and none can give less.

    pair: of a rate and another kind; fitted: tokens of a step on which most windows agree
    """
    moment = pair.other("rate")
    of_all = windows.value("rate_covers") == "interval" and not run["rate_excludes_data"]
    batches = windows["samples"][~np.isnan(windows["samples"])]
    if moment not in MOMENT_COLUMNS or not of_all or pair.sampled or (batches != batches[:1]).any():
        return None
    rated, timed = pair.seconds("rate")
    column = _rate_column(windows)
    off = (
        (MAX_UNEXPLAINED_GAP + rounding_share(windows[column])) * timed
        + clock_unit(windows, moment)
        + MAX_WRITE_DELAY_S
    )
    apart = _disagreeing(rated, timed, off)
    if apart is None:
        return None
    held = fitted * timed / rated
    counted = "tokens on one GPU" if column == RATE_IN_TOKENS else "samples"
    return (
        f"{EVIDENCE_LABELS['rate']} and {EVIDENCE_LABELS[moment]} imply {held.min():,.0f} to "
        f"{held.max():,.0f} {counted} per step, and {apart} (lines missing from the log, a changed "
        "log interval, or pauses without a line?)"
    )


def _disagreeing(rated: FloatArray, timed: FloatArray, off: FloatArray) -> str | None:
    """Return why no multiple of `rated` is right; None if one is.

    A right multiple matches `timed` within `off` in most windows, and is longer in none. Only the
    smallest multiple that most windows agree with is tried: it is longer in the fewest windows.
    """
    least, most = np.sort((timed - off) / rated), np.sort((timed + off) / rated)
    agreeing = np.arange(1, len(least) + 1) - np.searchsorted(most, least)
    of_most = least[2 * agreeing > len(timed)]
    if not len(of_most):
        which = "no two" if agreeing.max() == 1 else f"at most {agreeing.max()}"
        return f"{which} of {len(timed)} windows agree"
    longer = np.maximum(of_most[0] * rated - timed - off, 0.0)
    if longer.sum() <= MAX_UNEXPLAINED_GAP * timed.sum():
        return None
    return (
        f"in {np.count_nonzero(longer)} of {len(timed)} windows less time passes than at this rate"
    )


def _scatter(pair: _Pair, off: FloatArray) -> float:
    """Return three standard errors of the ratio, from the median deviation.

    The median ignores a few far outliers, as where a clock was set.

    off: deviation of each window [s]
    """
    n = len(off)
    share = np.abs(off) / float(np.mean(pair.a))
    return float(_sigmas(n) * MAD_TO_SIGMA * median_of(share) / np.sqrt(n))


def _paired(first: _Timed, second: _Timed) -> _Pair | None:
    whole = max((_tiled(first, second), _swapped(_tiled(second, first))), key=_steps_of)
    if whole is not None:
        return whole
    return _sampled(first, second)


def _steps_of(pair: _Pair | None) -> float:
    return 0.0 if pair is None else float(pair.span.sum())


def _swapped(pair: _Pair | None) -> _Pair | None:
    if pair is None:
        return None
    return replace(pair, kinds=pair.kinds[::-1], a=pair.b, b=pair.a)


@dataclass(frozen=True, slots=True)
class _Timed:
    """Lines of one run by one kind of evidence: step, span and time; clean: mask."""

    kind: str
    step: FloatArray
    span: FloatArray
    time: FloatArray
    clean: BoolArray


def _timed(windows: RunArrays, kind: str) -> _Timed:
    seconds = windows["known_rate_time" if kind == "rate" else f"{kind}_time"]
    step, spans = windows["step"], windows[f"{kind}_span"]
    known = np.isfinite(seconds) & np.isfinite(spans) & (spans > 0)
    return _Timed(kind, step, spans, seconds, known & ~disturbed_windows(windows, kind))


def _tiled(wide: _Timed, parts: _Timed) -> _Pair | None:
    """Pair windows of one kind with equal windows, or sums of windows, of the other."""
    step = wide.step
    before = np.concatenate([[np.nan], step[:-1]])
    joined = parts.clean & (parts.step - parts.span == before)
    times = np.concatenate([[0.0], np.cumsum(np.where(joined, parts.time, 0.0))])
    bad = np.concatenate([[0], np.cumsum(~joined)])
    lines = np.arange(len(step))
    start = np.minimum(np.searchsorted(step, step - wide.span), lines)  # begins after this line
    whole = (start < lines) & (step[start] == step - wide.span) & (bad[1:] == bad[start + 1])
    ends = _apart(np.flatnonzero(wide.clean & whole), start)
    if not len(ends):
        return None
    stretches = 1 + int((start[ends[1:]] != ends[:-1]).sum())
    part_times = times[ends + 1] - times[start[ends] + 1]
    kinds = (wide.kind, parts.kind)
    return _Pair(
        kinds=kinds,
        step=step[ends],
        span=wide.span[ends],
        a=wide.time[ends],
        b=part_times,
        stretches=stretches,
    )


def _apart(lines: IntArray, start: IntArray) -> IntArray:
    """Return the lines whose windows share no step with an earlier window.

    start: for each line, the line after which its window begins
    """
    if (start[lines[1:]] >= lines[:-1]).all():
        return lines
    kept = list(lines[:1])
    for line in lines[1:]:
        if start[line] >= kept[-1]:
            kept.append(line)
    return np.array(kept)


def _sampled(first: _Timed, second: _Timed) -> _Pair | None:
    """Pair windows of unequal length that end at the same step, scaled to the longer."""
    both = first.clean & second.clean & (first.span != second.span)
    if not both.any():
        return None
    span = np.maximum(first.span, second.span)[both]
    a, b = (k.time[both] / k.span[both] * span for k in (first, second))
    joined = np.concatenate([[True], np.diff(np.flatnonzero(both)) != 1])
    kinds = (first.kind, second.kind)
    return _Pair(
        kinds=kinds,
        step=first.step[both],
        span=span,
        a=a,
        b=b,
        stretches=int(joined.sum()),
        sampled=True,
    )


# --- tolerance of a comparison --------------------------------------------------------------


def _rounding(windows: RunArrays, pair: _Pair) -> float:
    """Return the error of truncated stamps, rounded prints and single steps (share)."""
    slack = 0.0
    for kind, seconds in zip(pair.kinds, (pair.a, pair.b), strict=True):
        column = next((c for c in PRINTED_TIME_COLUMNS.get(kind, ()) if windows.has_any(c)), None)
        slack += rounding_share(windows[column]) if column else 0.0
        if kind in MOMENT_COLUMNS:
            n = pair.stretches
            slack += (
                clock_unit(windows, kind)
                * min(n, TRUNCATED_STAMP_ERROR * np.sqrt(n))
                / float(seconds.sum())
            )
    if pair.sampled and not pair.few:
        there = pair.b > 0
        off = pair.a - median_of(pair.a[there] / pair.b[there]) * pair.b
        slack += _scatter(pair, off - median_of(off))
    return slack


def _sigmas(n: int) -> float:
    """Return Student's quantile of three standard deviations.

    Cornish and Fisher's expansion.
    """
    return TOLERANCE_SIGMAS + 7.5 / (n - 1) + 17.25 / (n - 1) ** 2


def _resolution(windows: RunArrays, kinds: Iterable[str]) -> float | None:
    """Return the coarser unit of the moments among these kinds [s]."""
    units = [clock_unit(windows, kind) for kind in kinds if kind in MOMENT_COLUMNS]
    return max(units, default=None)


# --- causes of a gap ------------------------------------------------------------------------


def _cause(
    windows: RunArrays, run: Mapping[str, Any], pair: _Pair, tolerance: float, few: str | None
) -> str | None:
    """Return the first cause confirmed by the log, except a wrong token count.

    For token counts, see `_tokens`.

    few: result of `_exceptions`
    """
    causes = (
        _one_micro_batch(windows, pair),
        _single_micro_steps(windows, pair, tolerance),
        _other_updates(windows, pair, tolerance),
        few,
        _without_data(windows, run, pair, tolerance),
        _other_unit(pair, tolerance),
    )
    return next((cause for cause in causes if cause is not None), None)


def _tokens(pair: _Pair) -> str | None:
    """Return a whole factor between a rate and a time, as from a wrong degree.

    A degree of parallelism that is not known multiplies the counted tokens.
    """
    if "rate" not in pair.kinds:
        return None
    held = pair.faster(pair.other("rate"))
    for times, word in ((held, "high"), (1 / held, "low")):
        whole = round(times)
        if whole > 1 and abs(times / whole - 1) < MAX_UNEXPLAINED_GAP:
            return (
                f"tokens per step seem {whole}x too {word} "
                "(tensor_parallel, pipeline_parallel, context_parallel or gradient_accumulation?)"
            )
    return None


def _one_micro_batch(windows: RunArrays, pair: _Pair) -> str | None:
    """Explain a gap by DeepSpeed's timer under Megatron, which times one micro-batch.

    The timer restarts at each forward and stops in `step`, called by Megatron once for all
    micro-batches. So it times the last micro-batch and counts one call a step, even if a step
    accumulates gradients over several.
    """
    if "timer" not in pair.kinds:
        return None
    faster = pair.faster("timer")
    each, whole = windows["timer_micro_step"], windows["timer_step"]
    calls, steps = np.diff(np.where(np.isnan(each), whole, each)), np.diff(windows["step"])
    counted = ~np.isnan(calls)
    once = counted.any() and (calls[counted] == steps[counted]).all()
    batches = windows.value("gradient_accumulation")
    if not once or batches == 1 or (batches is not None and faster > batches):
        return None
    many = "the micro-batches" if batches is None else f"the {batches} micro-batches"
    return f"the timer is read once a step: it times the last of {many} with the optimizer"


def _single_micro_steps(windows: RunArrays, pair: _Pair, tolerance: float) -> str | None:
    """Explain a gap by the share of optimizer steps among single timed micro-steps.

    Of all micro-steps, one per accumulation contains the optimizer step. The cause is confirmed if
    the mean times with and without the optimizer step, weighted by their true numbers, give the
    total time.
    """
    every = accumulation_steps(windows)
    later = ~windows.flags("first")
    singles = [kind for kind in pair.kinds if (windows[f"{kind}_span"][later] == 1).all()]
    if every == 1 or len(singles) != 1:
        return None
    single, whole = pair.seconds(singles[0])
    update, each = pair.step % every == 0, single / pair.span
    if update.all() or not update.any():
        return None
    updates = count_optimizer_steps(pair.step, pair.span, every)
    with_them = updates * each[update].mean() + (pair.span - updates) * each[~update].mean()
    if abs(with_them.sum() / whole.sum() - 1) > tolerance:
        return None
    return (
        f"the optimizer step is in {update.sum():,} of the {len(update):,} logged micro-steps, "
        f"and in 1 of {every} of all"
    )


def _other_updates(windows: RunArrays, pair: _Pair, tolerance: float) -> str | None:
    """Explain a gap by different shares of optimizer steps under the two kinds.

    As with means over the last ten of every 20 micro-steps, or single ones of every 4. Without the
    optimizer step, a micro-step takes at least no time, so the times differ at most as the shares
    do.
    """
    every = accumulation_steps(windows)
    if every == 1 or not pair.sampled:
        return None
    at = np.isin(windows["step"], pair.step)
    spans = [windows[f"{kind}_span"][at] for kind in pair.kinds]
    found = [int(count_optimizer_steps(windows["step"][at], span, every).sum()) for span in spans]
    mine, theirs = (many / span.sum() for many, span in zip(found, spans, strict=True))
    slower, more = float(pair.a.sum() / pair.b.sum()), mine / theirs if theirs else np.inf
    if not 1 / MAX_RANK_TOKEN_RATIO < slower < MAX_RANK_TOKEN_RATIO:
        return None
    if not min(1.0, more) - tolerance <= slower <= max(1.0, more) + tolerance:
        return None
    held = " and ".join(
        f"{many:,} of {span.sum():,.0f} micro-steps by {EVIDENCE_LABELS[kind]}"
        for kind, many, span in zip(pair.kinds, found, spans, strict=True)
    )
    return f"the optimizer step is in {held}, and in 1 of {every} of all"


def _without_data(
    windows: RunArrays, run: Mapping[str, Any], pair: _Pair, tolerance: float
) -> str | None:
    """Explain a gap by data loading that one kind leaves out.

    If the log states the loading time, the kind must be faster by just this time. If not, it must
    be less fast than with a wrong degree, since a wrong degree could pass for loading.
    """
    kinds = set(pair.kinds)
    short = RATE_EVIDENCE & kinds if run["rate_excludes_data"] or "timer" in kinds else set()
    waits = windows["data_s"]
    loading = not np.isnan(waits[~windows.flags("first")]).all()
    if not short and run["elapsed_excludes_data"] and not loading:
        short = {"elapsed"} & kinds
    if not short:
        return None
    (kind,) = short
    faster = pair.faster(kind)
    if not loading:
        left_out = f"{EVIDENCE_LABELS[kind]} leaves out data loading and other work between steps"
        return left_out if 1 < faster < MAX_RANK_TOKEN_RATIO else None
    mine = waits[np.isin(windows["step"], pair.step) & ~np.isnan(waits)]
    share = float(mine.mean()) if len(mine) else 0.0
    _, timed = pair.seconds(kind)
    left = faster * (1 - share * float(pair.span.sum()) / float(timed.sum()))
    return "the logged rate leaves out data loading" if abs(left - 1) <= tolerance else None


def _other_unit(pair: _Pair, tolerance: float) -> str | None:
    if "rate" not in pair.kinds:
        return None
    return per_millisecond_cause(pair.faster(pair.other("rate")), tolerance)


def _exceptions(pair: _Pair, tolerance: float) -> str | None:
    """Explain a gap by a few windows with untimed work; the other windows agree."""
    off = pair.b / pair.span - pair.a / pair.span
    middle = median_of(off)
    spread = max(median_of(np.abs(off - middle)), 1e-3 * median_of(pair.a / pair.span))
    odd = np.abs(off - middle) > OUTLIER_DEVIATIONS * spread
    rest = ~odd
    if (
        not odd.any()
        or odd.mean() > MAX_RESTARTED_SHARE
        or not rest.any()
        or not pair.b[rest].sum()
    ):
        return None
    if abs(float(pair.a[rest].sum() / pair.b[rest].sum()) - 1) > tolerance:
        return None
    more = float((pair.b - pair.a)[odd].sum())
    name, holds = (pair.kinds[1], more) if more > 0 else (pair.kinds[0], -more)
    if (
        name not in MOMENT_COLUMNS
        and not pair.sampled
        and not MOMENT_COLUMNS.keys().isdisjoint(pair.kinds)
    ):
        return None  # no step can take longer than the wall clock
    gaps = np.diff(pair.step[odd])
    clock = ", or a clock change" if name in MOMENT_COLUMNS else ""
    often = f" every {gaps[0]:.0f} steps" if len(gaps) > 1 and (gaps == gaps[0]).all() else ""
    return (
        f"{holds:,.1f} s more by {EVIDENCE_LABELS[name]} in {int(odd.sum())} of {len(odd)} "
        f"windows{often} (a restart, evaluation or checkpoint without a line{clock}?); the others "
        "agree"
    )


# --- the whole run --------------------------------------------------------------------------


def _whole_run(windows: RunArrays, a: str, b: str) -> EvidenceComparison | None:
    """Compare the printed run time with a clock or the sum of all steps."""
    kind = a if b == "runtime" else b
    runtime = windows.value("runtime_s")
    timed = _total(windows, kind)
    if runtime is None or not timed:
        return None
    ratio = timed / runtime
    unit = clock_unit(windows, kind) if kind in MOMENT_COLUMNS else 0.0
    tolerance = MAX_UNEXPLAINED_GAP + unit / timed
    outside = f"{runtime - timed:,.1f} s of it are before the first or after the last step"
    cause = outside if ratio < 1 - tolerance else None
    comparison = EvidenceComparison(
        kind=kind,
        other="runtime",
        ratio=ratio,
        windows=windows.height,
        seconds=timed,
        resolution=unit or None,
        tolerance=tolerance,
        cause=cause,
    )
    return comparison if b == "runtime" else _turned(comparison)


def _total(windows: RunArrays, kind: str) -> float | None:
    """Return the seconds from the start to the last step, if every step is timed."""
    if kind == "clock":
        last: float | None = windows.value("since_start_s", -1)
        return last
    if kind != "elapsed":
        return None
    spans = np.diff(windows["step"], prepend=0.0)
    every = (windows["elapsed_span"] == spans).all() and windows.has_all("elapsed_time")
    return total(windows["elapsed_time"]) if every else None


def summarise_evidence(windows: RunArrays, run: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return evidence_gap, _windows, _cause and _warnings of a run's rates.

    `borne_out`: true if moments, which skip no step, confirm the rate to 1 %.
    """
    found = compare_evidence(windows, run)
    best = select_check(found, kind)
    excess = None if any(each.contradicts for each in found) else _excess_tokens(windows)
    return {
        "borne_out": best is not None
        and best.other in MOMENT_COLUMNS
        and abs(best.gap) <= MAX_UNEXPLAINED_GAP,
        "evidence_gap": None if best is None else best.gap,
        "evidence_windows": None if best is None else best.windows,
        "evidence_cause": None if best is None else best.cause,
        "evidence_warnings": [*_told(found, best, kind), *([] if excess is None else [excess])],
    }


MIN_RATED_WINDOWS: Final = 20
"""Fewest windows that can show few tokens too many."""
MIN_TOKEN_EXCESS: Final = 0.002
"""Least excess of tokens; in public logs, the median window of a right count has none."""
SURE_QUANTILE: Final = 0.05
"""Quantile of the windows that must have an excess."""


def _excess_tokens(windows: RunArrays) -> Message | None:
    """Warn where the tokens of a step take longer at the logged rate than by stamps.

    A rate leaves time out, and never counts more than passes. So the excess is of tokens, however
    small it is, if nearly all windows have it. Only stamps with fractions of a second show it.
    """
    pair = _paired(_timed(windows, "rate"), _timed(windows, "stamp"))
    is_whole = windows.value("rate_covers") == "interval" and not windows.flags("smeared").any()
    if pair is None or pair.sampled or not is_whole or stamp_error(windows, "stamp"):
        return None
    rated, timed = pair.seconds("rate")
    ratios = rated[timed > 0] / timed[timed > 0]
    rates, tokens = windows[RATE_IN_TOKENS], windows["tokens_per_gpu"]
    if len(ratios) < MIN_RATED_WINDOWS or np.isnan(rates).all() or np.isnan(tokens).all():
        return None
    excess = median_of(ratios) - 1
    least = float(np.quantile(ratios, SURE_QUANTILE)) - 1
    if excess < MIN_TOKEN_EXCESS + rounding_share(rates) or least <= 0:
        return None
    counted = float(np.nanmedian(tokens))
    return TOKENS_ABOVE_RATE(
        excess=excess, counted=counted, rated=counted / (1 + excess), windows=len(ratios)
    )


def _told(
    comparisons: list[EvidenceComparison], best: EvidenceComparison | None, kind: str
) -> Iterator[Message]:
    """Yield warnings about the evidence in use: of the best check, and contradictions.

    Also of kinds whose tokens were fitted to the evidence.
    """
    for comparison in comparisons:
        oriented = comparison if comparison.kind == kind else _turned(comparison)
        checks_kind = kind in comparison.kinds and oriented.independent
        is_fitted = oriented.fitted_tokens is not None and not oriented.sampled
        if oriented == best or (checks_kind and (oriented.contradicts or is_fitted)):
            text = evidence_warning(oriented)
            if text is not None:
                yield text
