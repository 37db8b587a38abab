"""Energy of the GPUs per token, from a log or from power samples beside it.

    joules per token = joules of an iteration on one GPU x iterations / its tokens   (printed)
    joules per token = mean power of one GPU in steady windows [W] / TGS             (sampled)

Samples count only if their clock agrees with the log's stamps: they are high from the first step to
the last, and low right before and right after. The same holds if the clocks differ by a zone, a
multiple of a quarter of an hour, and no other shift fits. Only the GPUs count: no CPU, no network,
no cooling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..core.arrays import FloatArray
from ..core.messages import Message
from ..core.run_arrays import MICROSECONDS_PER_SECOND, RunArrays, total
from ..core.run_table import EnergyColumns
from ..throughput.windows import WindowSelection, choose_evidence, steady_windows
from .formula_inputs import integer_fact, text_fact
from .messages import ENERGY_UNKNOWN

FactsByName: TypeAlias = Mapping[str, Mapping[str, Any]]

JOULES_PER_KWH: Final = 3.6e6
BILLION: Final = 1e9
MIN_WATTS, MAX_WATTS = 10.0, 5_000.0
"""Possible mean power of one GPU in training."""
ZONE_STEP_S: Final = 900
MAX_ZONE_S: Final = 14 * 3600
"""Zones differ by multiples of a quarter of an hour, from -14 to 14 hours."""
EDGE_S: Final = 60.0
MAX_EDGE_S: Final = 300.0
"""Time before the first step, and after the last one, in which power is low: at least and at most;
below half of ZONE_STEP_S, so no zone passes for another."""
MIN_BUSY_SHARE: Final = 0.8
"""Least share of high samples from the first step to the last one."""
MIN_CONTRAST: Final = 1.5
"""Least ratio of high to low power that shows where training begins."""
MIN_COVERED: Final = 0.95
"""Least share of the steady windows that the samples cover."""
MAX_SOURCES_GAP: Final = 0.15
"""Largest relative gap between printed and sampled energy that needs no doubt."""

UNSTAMPED: Final = (
    "the power samples have no time stamps. Fix: dcgmi dmon -e 155 | ts '%Y-%m-%d %H:%M:%S'"
)
NO_LOG_STAMPS: Final = "the log has no time stamps to find the steady steps in the power samples"
NO_EDGES: Final = (
    "the clock of the power samples may differ from the log's: no shift by a zone makes power high "
    "in the steps, and low right before and after them. Fix: sample from before the start to after "
    "the end, or fairmfu set RUN power_clock=log if both have one clock"
)
SEVERAL_ZONES: Final = (
    "the power samples fit the log's steps by several shifts of the clock. Fix: fairmfu set RUN "
    "power_clock=log if both have one clock"
)
NOT_COVERED: Final = "the power samples cover only {share:.0%} of the steady steps"


class EnergyUnknownError(Exception):
    """Reason why energy data give no energy per token."""


@dataclass(frozen=True, slots=True)
class PowerSeries:
    """Power of all sampled GPUs together, by a local clock.

    seconds: since 1970, in the clock of the samples; the last sample lasts until `end`
    watts: from each second on
    """

    tool: str
    gpus: int
    seconds: FloatArray
    watts: FloatArray
    end: float

    def energy(self, starts: FloatArray, ends: FloatArray) -> tuple[float, float]:
        """Return the energy [J] within intervals, and their time within the samples [s]."""
        edges = np.append(self.seconds, self.end)
        whole = np.concatenate([[0.0], np.cumsum(np.diff(edges) * self.watts)])
        low, high = (np.clip(times, edges[0], edges[-1]) for times in (starts, ends))
        energy = np.interp(high, edges, whole) - np.interp(low, edges, whole)
        return total(energy), total(high - low)


NO_ENERGY: Final[EnergyColumns] = {
    "joules_per_token": None,
    "kwh_per_billion_tokens": None,
    "power_w": None,
    "energy_source": None,
}


def energy_of_run(
    windows: RunArrays, preferred: Sequence[str], facts: FactsByName
) -> tuple[EnergyColumns, Message | None]:
    """Return the energy of a run's tokens, and a warning if it is unknown or in doubt.

    windows: of the run, marked; preferred: kinds of time evidence, the best first; facts: resolved
    facts, by name
    """
    if not windows.has_any("energy_j") and "power_samples" not in facts:
        return NO_ENERGY, None
    evidence = choose_evidence(windows, preferred)
    if evidence is None:
        return NO_ENERGY, None
    steady = steady_windows(windows, evidence)
    printed, sampled, unknown = _printed(windows, steady, evidence), None, None
    try:
        sampled = _sampled(windows, steady, facts)
    except EnergyUnknownError as error:
        unknown = None if printed else str(error)
    if printed and sampled and abs(sampled.joules / printed.joules - 1) > MAX_SOURCES_GAP:
        unknown = f"{printed} is in the log, and {sampled}"
    energy = printed or sampled
    if energy is None:
        return NO_ENERGY, _doubt(unknown)
    watts = energy.joules * total(steady.tokens) / total(steady.seconds)
    if not MIN_WATTS <= watts <= MAX_WATTS:
        return NO_ENERGY, _doubt(f"{energy} would mean {watts:,.0f} W for one GPU")
    return _columns(energy, watts), _doubt(unknown)


def _doubt(why: str | None) -> Message | None:
    return ENERGY_UNKNOWN(why=why) if why else None


class Energy(NamedTuple):
    """Energy of one token [J], and its origin."""

    joules: float
    source: str

    def __str__(self) -> str:
        return f"{self.joules:.3g} J per token by {self.source}"


def _columns(energy: Energy, watts: float) -> EnergyColumns:
    return {
        "joules_per_token": energy.joules,
        "kwh_per_billion_tokens": energy.joules * BILLION / JOULES_PER_KWH,
        "power_w": watts,
        "energy_source": energy.source,
    }


def _printed(windows: RunArrays, steady: WindowSelection, evidence: str) -> Energy | None:
    """Return the energy of a token that the log prints."""
    joules = windows["energy_j"][steady.indices]
    steps = windows[f"{evidence}_span"][steady.indices]
    known = np.isfinite(joules) & (joules > 0) & np.isfinite(steps)
    tokens = total(steady.tokens[known])
    if not tokens:
        return None
    return Energy(total((joules * steps)[known]) / tokens, "the log's energy per GPU")


def _sampled(windows: RunArrays, steady: WindowSelection, facts: FactsByName) -> Energy | None:
    """Return the energy of a token by the samples beside the log.

    None without samples. Raises EnergyUnknownError.
    """
    fact = facts.get("power_samples")
    if fact is None:
        return None
    series = _series(str(fact["value"]))
    share = _shared(series.gpus, integer_fact(facts, "gpus"))
    ends = _stamps(windows)
    stamped = ends[steady.indices]
    if not np.isfinite(stamped).all() or not len(stamped):
        raise EnergyUnknownError(NO_LOG_STAMPS)
    shift, clock = 0.0, "by the clock that you gave"
    if text_fact(facts, "power_clock") != "log":
        shift = _zone(series, ends)
        clock = "by the log's clock" if not shift else f"with the clock {shift / 3600:+g} h apart"
    joules, seconds = series.energy(stamped - steady.seconds + shift, stamped + shift)
    needed = total(steady.seconds)
    if seconds < MIN_COVERED * needed:
        raise EnergyUnknownError(NOT_COVERED.format(share=seconds / needed))
    watts = joules / seconds / series.gpus
    file = str(fact["origin"]).removeprefix("companion:")
    source = f"samples of {series.tool} ({file}), {clock}{share}"
    return Energy(watts * needed / total(steady.tokens), source)


def _series(text: str) -> PowerSeries:
    """Return the samples of the fact `power_samples`. Raises EnergyUnknownError."""
    with suppress(ValueError, TypeError, KeyError):
        values = json.loads(text)
        if values["start"] is None:
            raise EnergyUnknownError(UNSTAMPED)
        start, seconds = float(values["start"]), np.asarray(values["seconds"], np.float64)
        watts = np.asarray(values["watts"], np.float64)
        if len(watts) == len(seconds) > 1 and int(values["gpus"]) > 0:
            return PowerSeries(
                str(values["tool"]),
                int(values["gpus"]),
                start + seconds,
                watts,
                start + float(values["end"]),
            )
    raise EnergyUnknownError("the power samples are damaged")


def _shared(sampled: int, gpus: int | None) -> str:
    """Return words for samples of some of the run's GPUs. Raises EnergyUnknownError."""
    if gpus is None:
        raise EnergyUnknownError(f"samples of {sampled} GPUs, and the run's GPUs are unknown")
    if gpus == sampled:
        return ""
    if gpus % sampled == 0 and gpus > sampled > 1:
        return f", of {sampled} of {gpus} GPUs"
    raise EnergyUnknownError(
        f"samples of {sampled} GPUs and a run of {gpus}: the run's own are not known"
    )


def _stamps(windows: RunArrays) -> FloatArray:
    """Return the stamp of each window's end [s since 1970], NaN without."""
    stamps = windows.values("logged_at").dt.epoch("us").cast(float).fill_null(np.nan)
    return stamps.to_numpy() / MICROSECONDS_PER_SECOND


def _zone(series: PowerSeries, ends: FloatArray) -> float:
    """Return the seconds that the samples' clock is ahead. Raises EnergyUnknownError."""
    known = ends[np.isfinite(ends)]
    first, last = float(known.min()), float(known.max())
    line = float(np.median(np.diff(known))) if len(known) > 1 else 0.0
    grain = float(np.median(np.diff(series.seconds)))
    edge = min(MAX_EDGE_S, max(EDGE_S, 2 * line, 3 * grain))
    low, high = np.quantile(series.watts, [0.02, 0.98])
    if high < MIN_CONTRAST * max(low, 1.0):
        raise EnergyUnknownError(NO_EDGES)
    busy = series.watts > (low + high) / 2
    steps = range(-MAX_ZONE_S, MAX_ZONE_S + 1, ZONE_STEP_S)
    fits = [z for z in steps if _fits(series.seconds, busy, (first + z, last + z), edge)]
    if not fits:
        raise EnergyUnknownError(NO_EDGES)
    if len(fits) > 1:
        raise EnergyUnknownError(SEVERAL_ZONES)
    return float(fits[0])


def _fits(
    seconds: FloatArray, busy: np.typing.NDArray[np.bool_], span: tuple[float, float], edge: float
) -> bool:
    """Return whether samples are high in a span, and low around it.

    Power rises before the first line is printed, so the low sample may lie two edges before.
    """
    first, last = span
    inside = (seconds >= first) & (seconds <= last)
    before = (seconds < first) & (seconds >= first - 2 * edge)
    after = (seconds > last) & (seconds <= last + edge)
    if not inside.any() or not before.any() or not after.any():
        return False
    return bool(
        busy[inside].mean() >= MIN_BUSY_SHARE and (~busy[before]).any() and (~busy[after]).any()
    )
