"""Scaling over GPUs: efficiency, what each doubling keeps, and the next doubling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log2
from typing import Final, Literal

from ..core.run_table import not_null
from .repeated_runs import SpeedRatio
from .studies import GPUS, Effect, Setting, Study, number, rate_of, ratio_of

MIN_POINTS_AHEAD: Final = 3
"""Fewest sizes from which a study tells the speed at twice the GPUs."""
STANDARD_ERRORS_90: Final = 1.645
STANDARD_ERRORS_95: Final = 1.96
MAX_GROWTH: Final = 2.0
"""Largest growth of the loss per doubling: a loss in proportion to the GPUs doubles each time."""
SAME_SIZE: Final = 0.01
"""Largest relative difference of batches that count as equal."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """Number of GPUs with its speed per GPU.

    efficiency: speed per GPU against the fewest GPUs; per_doubling: against the size before, as
    the share that is kept when the GPUs double; None for the first
    """

    gpus: int
    effect: Effect
    efficiency: SpeedRatio | None
    per_doubling: float | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """Speed per GPU at twice the most GPUs, relative to the fewest: 90 % interval."""

    gpus: int
    low: float
    high: float


def scale_points(study: Study) -> list[ScalePoint]:
    """Return the sizes of a study of scale that have a rate, fewest GPUs first.

    Of several settings with equal GPUs the fastest.
    """
    best: dict[int, Effect] = {}
    for effect in study.effects:
        gpus = effect.setting.values[GPUS]
        if effect.setting.side is None or not isinstance(gpus, int):
            continue
        if gpus not in best or rate_of(effect.setting) > rate_of(best[gpus].setting):
            best[gpus] = effect
    sizes = sorted(best)
    kept = {sizes[0]: None} | {
        after: _per_doubling(best[before].setting, best[after].setting, after / before)
        for before, after in pairwise(sizes)
    }
    first = best[sizes[0]].setting
    return [ScalePoint(n, best[n], ratio_of(best[n].setting, first), kept[n]) for n in sizes]


def _per_doubling(before: Setting, after: Setting, times: float) -> float:
    return exp(log(rate_of(after) / rate_of(before)) / log2(times))


def batch_growth(study: Study) -> Literal["weak", "strong", "mixed"] | None:
    """Return whether the batch grows with the GPUs (weak), stays (strong), or neither.

    None if a batch is unknown.
    """
    points = [point.effect.setting for point in scale_points(study)]
    batches = [setting.values["samples_per_update"] for setting in points]
    if any(batch is None for batch in batches):
        return None
    each = [
        number(batch) / number(s.values[GPUS]) for s, batch in zip(points, batches, strict=True)
    ]
    if _alike([number(batch) for batch in batches]):
        return "strong"
    return "weak" if _alike(each) else "mixed"


def _alike(values: Sequence[float]) -> bool:
    return max(values) <= min(values) * (1 + SAME_SIZE)


def one_doubling_ahead(study: Study) -> Ahead | None:
    """Return the speed at twice the most GPUs; None with too few sizes.

    The time per token grows between as much as in the last doubling (a cost in the logarithm of the
    GPUs) and twice as much (a cost in proportion to them). The noise of the last two sizes and of
    a new run is added.
    """
    points = scale_points(study)
    if len(points) < MIN_POINTS_AHEAD or not _can_double(study, points[-1]):
        return None
    (first, *_), (before, last) = points, points[-2:]
    times = [rate_of(first.effect.setting) / rate_of(p.effect.setting) for p in (before, last)]
    errors = [_relative_error(p.effect.setting) for p in (before, last)]
    if any(error is None for error in errors):
        return None
    loss = (times[1] - times[0]) / log2(last.gpus / before.gpus)
    ends = []
    for growth in (1.0, MAX_GROWTH):
        noise_before = growth * not_null(errors[0]) * times[0]
        noise_last = (2 + growth) * not_null(errors[1]) * times[1]
        noise = STANDARD_ERRORS_90 * (noise_before**2 + noise_last**2) ** 0.5
        middle = times[1] + growth * loss
        ends += [middle - noise, middle + noise]
    return Ahead(2 * last.gpus, 1 / max(ends), 1 / min(ends)) if min(ends) > 0 else None


def _can_double(study: Study, last: ScalePoint) -> bool:
    """Return whether twice the GPUs would each have a sample of the batch."""
    batch = last.effect.setting.values["samples_per_update"]
    return batch_growth(study) != "strong" or number(batch) >= 2 * last.gpus


def _relative_error(setting: Setting) -> float | None:
    """Return the relative standard error of a rate; None without an interval."""
    side = setting.side
    if side is None or side.estimate is None:
        return None
    estimate = side.estimate
    return (estimate.upper_log_distance + estimate.lower_log_distance) / (2 * STANDARD_ERRORS_95)
