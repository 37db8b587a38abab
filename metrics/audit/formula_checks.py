"""What a framework prints of its own speed, line by line, over what its formula gives.

    ratio = printed / predicted     an interval for each line; reproduced where it holds 1

A printed figure stands for half a unit of its last place on either side, and so does all that it is
computed from. Letters as in metrics/formula/flops.py; the formulas are data, in metrics/eras.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache, cached_property, lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import SHARING

from ..core.arrays import Array, Flags
from ..core.print_precision import Digits, digits_of
from ..formula.flops import Recompute
from ..formula.model_shapes import ModelShape, ShapeError, text_config
from ..formula.simplified_model import Seen
from ..utilization.formula_inputs import (
    adapters_of,
    integer_of,
    number_of,
    recompute_of,
    shape_of,
    text_of,
    truth_of,
)
from . import flops_profiler
from .eras import deepspeed, torchtitan, xtuner
from .formula_era import Era
from .logged_figures import DECIMALS, FIGURES


@cache
def _era_rows() -> Mapping[str, partial[Era]]:
    """Index the rows of every framework by name, in order of framework and date."""
    rows = (*torchtitan.ROWS, *xtuner.ROWS, *deepspeed.ROWS)
    return {row.keywords["name"]: row for row in rows}


@cache
def _era(name: str) -> Era:
    """Build one era, once."""
    return _era_rows()[name]()


class _ByName(Mapping[str, Era]):
    """Every era by name, each built when it is asked for."""

    def __getitem__(self, name: str) -> Era:
        return _era(name)

    def __contains__(self, name: object) -> bool:
        return name in _era_rows()

    def __iter__(self) -> Iterator[str]:
        return iter(_era_rows())

    def __len__(self) -> int:
        return len(_era_rows())


BY_NAME: Final[Mapping[str, Era]] = _ByName()


def eras() -> tuple[Era, ...]:
    """Every era of every framework, by framework and date."""
    return tuple(BY_NAME.values())


@cache
def eras_of_format(log_format: str) -> tuple[Era, ...]:
    """Eras of one log format, by framework and date; builds no other."""
    rows = _era_rows().items()
    return tuple(_era(name) for name, row in rows if log_format in row.keywords["log_formats"])


TFLOPS: Final = ("logged_tflops", "logged_lm_tflops")
MFUS: Final = ("logged_mfu", "logged_hfu")
BY_FLOPS: Final = (*TFLOPS, *MFUS, "logged_total_flops")
"""Columns of metrics.audit.logged_figures that a formula of FLOPs predicts."""

FULL_PRECISION: Final = 1.2e-7
"""A value of seven digits and more may have been a float32."""
MANY_DIGITS: Final = 7

PEAK_DIGITS: Final = 5e-4
"""Torchtitan prints its peak with four digits: half a unit of the last, as a fraction."""


class Known(NamedTuple):
    """What a run's facts say that own formulas read; None where nothing does.

    shape: of the model; T: sequence length [tokens]; gpus, batch [sequences of an optimizer step]
    peak: FLOP/s that the log says it divides by; device: its name as printed
    day: of the first stamp; era, version: as said
    micro_batch: sequences of a micro-step on one rank; sharing: ranks that share a sequence
    micro_steps: its lines and their times are of micro-steps
    own_time: a printed time is of the line's own step, no mean over several
    averaged: printed rates that are means over several steps; the others are of the last alone
    longest: T, where it only bounds the length of each line
    tensor_parallel: ranks that share each layer; pipeline_parallel: stages of layers
    log_interval: steps between two lines; lora_rank: of adapters, adapters: their parameters
    length: the T that every line prints, whatever the facts say
    params: parameters that the log counts; said: facts that the log itself states
    """

    log_format: str
    shape: ModelShape | None
    T: int | None
    recompute: Recompute | None
    intermediate_size: int | None
    padded_vocab: int | None
    gpus: int | None
    batch: int | None
    peak: float | None
    device: str | None
    day: date | None
    era: str | None
    version: str | None
    why_no_shape: str = ""
    micro_batch: int | None = None
    sharing: int = 1
    micro_steps: bool = False
    own_time: bool = True
    averaged: frozenset[str] = frozenset()
    longest: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    log_interval: int = 1
    length: int | None = None
    lora_rank: int | None = None
    adapters: int = 0
    params: int | None = None
    said: frozenset[str] = frozenset()

    def seen(self, T: int | None = None) -> Seen | None:  # noqa: N803
        """The model as own formulas read it; None without shape or length."""
        length = T or self.length or self.T
        if self.shape is None or length is None:
            return None
        return Seen(
            shape=self.shape,
            T=length,
            recompute=self.recompute,
            intermediate_size=self.intermediate_size,
            padded_vocab=self.padded_vocab,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            lora_rank=self.lora_rank,
            adapters=self.adapters,
        )


def known_of(run: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> Known:
    """What a row of ingest.core.schema's `runs` and its held facts (by name) say."""
    shape, why = shape_of(facts)
    started = run["started_at"]
    peak = number_of(facts, "logged_peak_flops")
    length = integer_of(facts, "seq_len")
    unpacked = truth_of(facts, "packed") is False and _batch_lengths(run["log_format"])
    averages = run["elapsed_covers"] == "last_10" and integer_of(facts, "average_window") != 1
    rates = text_of(facts, "averaged_rates") or ""
    return Known(
        log_format=run["log_format"],
        shape=shape,
        why_no_shape=why,
        T=None if unpacked else length,
        recompute=recompute_of(facts),
        intermediate_size=_intermediate_size(facts),
        padded_vocab=integer_of(facts, "padded_vocab_size") or _padded_vocab(facts, shape),
        gpus=integer_of(facts, "gpus"),
        batch=integer_of(facts, "global_batch_size"),
        peak=peak or None,
        device=text_of(facts, "accelerator"),
        day=None if started is None else started.date(),
        era=text_of(facts, "logged_formula"),
        version=text_of(facts, "framework_version"),
        micro_batch=integer_of(facts, "micro_batch_size"),
        sharing=prod(integer_of(facts, name) or 1 for name in SHARING),
        micro_steps=run["step_unit"] == "micro_step",
        own_time=not averages,
        averaged=frozenset(rates.split(",") if rates else ()),
        longest=length if unpacked else None,
        tensor_parallel=integer_of(facts, "tensor_parallel") or 1,
        pipeline_parallel=integer_of(facts, "pipeline_parallel") or 1,
        log_interval=integer_of(facts, "log_interval") or 1,
        lora_rank=integer_of(facts, "lora_rank"),
        adapters=0 if shape is None else adapters_of(facts, shape) or 0,
        params=integer_of(facts, "params_total"),
        said=frozenset(n for n, fact in facts.items() if str(fact["origin"]).startswith("log")),
    )


def _batch_lengths(log_format: str) -> bool:
    """Whether own formulas of a format read the length of each batch."""
    return any(era.batch_lengths for era in eras_of_format(log_format))


def _padded_vocab(facts: Mapping[str, Mapping[str, Any]], shape: ModelShape | None) -> int | None:
    """Megatron's: the next multiple of make_vocab_size_divisible_by times the ranks of a layer."""
    said = json.loads(text_of(facts, "megatron_arguments") or "{}")
    multiple = str(said.get("make_vocab_size_divisible_by", ""))
    ranks = integer_of(facts, "tensor_parallel")
    if shape is None or ranks is None or not re.fullmatch(r"[1-9][0-9]{0,8}", multiple):
        return None
    step = int(multiple) * ranks
    return -(-shape.vocab_size // step) * step


def _intermediate_size(facts: Mapping[str, Mapping[str, Any]]) -> int | None:
    config = text_of(facts, "model_config")
    width = text_config(json.loads(config)).get("intermediate_size") if config else None
    return width if isinstance(width, int) else None


@dataclass(frozen=True)
class Interval:
    """Lower and upper bound of each line."""

    low: Array
    high: Array

    def __truediv__(self, other: Interval) -> Interval:
        return Interval(self.low / other.high, self.high / other.low)

    def times(self, factor: float | Array) -> Interval:
        """Both bounds, by a positive factor."""
        return Interval(self.low * factor, self.high * factor)

    def holds(self, factor: float = 1.0) -> Flags:
        """Whether each line's interval holds a factor."""
        held: Flags = (self.low <= factor) & (factor <= self.high)
        return held

    def every_holds(self, factor: float) -> bool:
        """Whether the intervals of all lines hold a factor."""
        low, high = self.common
        return low <= factor <= high

    @cached_property
    def middle(self) -> float:
        """The median over the lines of their intervals' middles."""
        return float(np.median((self.low + self.high) / 2))

    @property
    def half(self) -> float:
        """The median over the lines of half of their intervals' widths."""
        return float(np.median((self.high - self.low) / 2))

    @cached_property
    def common(self) -> tuple[float, float]:
        """What every line's interval holds; empty where the first exceeds the second."""
        return float(self.low.max()), float(self.high.min())


@dataclass(frozen=True, slots=True)
class Identity:
    """One printed column against what its formula gives.

    ratio: printed over predicted, by line; depends: facts that the prediction reads
    """

    column: str
    ratio: Interval
    depends: frozenset[str]

    @property
    def lines(self) -> int:
        """Lines that print it and whatever it is computed from."""
        return len(self.ratio.low)

    @property
    def reproduced(self) -> int:
        """Lines whose interval holds 1."""
        return int(self.ratio.holds().sum())


# --- what is printed ------------------------------------------------------------------------


COLUMNS: Final = (
    *FIGURES,
    *("step", "elapsed_s", "samples", "sequence_length", "consumed_tokens", "rank_tokens"),
    *("device_samples", "profiler_low", "profiler_high"),
)
"""What figures are, and what they are computed from."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The figures of a run's lines and how finely each is printed.

    columns: name to the values, NaN where a line does not print it; digits: of the columns that
    any line prints, over all lines; decimals: as an era prints them
    """

    columns: Mapping[str, Array]
    digits: Mapping[str, Digits]
    decimals: Mapping[str, int]

    @property
    def height(self) -> int:
        """Number of lines."""
        return len(self.columns["logged_tgs"])

    def by(self, era: Era) -> Lines:
        """The lines, with as many decimals as an era prints."""
        return replace(self, decimals=era.decimals)

    def where(self, chosen: Flags) -> Lines:
        """Some of the lines."""
        if chosen.all():
            return self
        return replace(self, columns={c: values[chosen] for c, values in self.columns.items()})

    def of(self, *columns: str) -> Lines:
        """The lines that print all of these."""
        printed = np.ones(self.height, dtype=bool)
        for column in columns:
            printed &= np.isfinite(self.columns[column])
        return self.where(printed)

    def have(self, column: str) -> bool:
        """Whether every line prints it, and there is one."""
        return self.height > 0 and bool(np.isfinite(self.columns[column]).all())

    def some(self, column: str) -> Array:
        """The values of the lines that print it."""
        values = self.columns[column]
        found: Array = values[np.isfinite(values)]
        return found

    def with_tokens(self) -> Lines:
        """The lines but those of a rank that was given padding alone: 0 tokens tell nothing."""
        return self.where(self.columns["rank_tokens"] != 0)

    def interval(self, column: str) -> Interval:
        """What each line's print of a column stands for: half of its last place to either side.

        Of a float in full, a float32's rounding.
        """
        values, digits = self.columns[column], self.digits[column]
        declared = self.decimals.get(column, DECIMALS.get(column))
        if declared is not None and digits.decimals <= declared:
            half: Array = np.full(len(values), 0.5 * 10.0**-declared)
        else:
            half = 0.5 * digits.units(values)
            if int(digits.significant) >= MANY_DIGITS:
                half = np.fmax(half, FULL_PRECISION * np.abs(values))
        return Interval(values - half, values + half)


def read(frame: pl.DataFrame) -> Lines:
    """Lines of a run as arrays; columns of logged_figures, those that it lacks without a value."""
    nothing = np.full(frame.height, np.nan)
    columns = {
        c: frame[c].cast(pl.Float64).to_numpy() if c in frame.columns else nothing for c in COLUMNS
    }
    printed = {c: values for c, values in columns.items() if np.isfinite(values).any()}
    return Lines(columns, {c: digits_of(values) for c, values in printed.items()}, {})


def _tokens(lines: Lines, known: Known) -> tuple[Array, frozenset[str]] | None:
    """Tokens of a step on one device, and the facts that say so where the lines do not."""
    sequences, depends = _sequences(lines, known)
    length: Array | float | None = known.T
    if lines.have("sequence_length"):
        length = lines.columns["sequence_length"]
    elif length is not None:
        depends |= {"seq_len"}
    if sequences is None or length is None:
        return None
    return np.broadcast_to(sequences * length, lines.height).astype(float), depends


def _sequences(lines: Lines, known: Known) -> tuple[Array | float | None, frozenset[str]]:
    """Sequences of a step on one device, and the facts that say so."""
    if known.micro_steps and known.micro_batch is not None:
        facts = frozenset({"micro_batch_size", "context_parallel"})
        return known.micro_batch / known.sharing, facts
    if known.gpus is None:
        return None, frozenset()
    if lines.have("samples"):
        return lines.columns["samples"] / known.gpus, frozenset({"gpus"})
    if known.batch is None:
        return None, frozenset()
    return known.batch / known.gpus, frozenset({"gpus", "global_batch_size"})


def _by_elapsed(lines: Lines, known: Known) -> tuple[Interval, frozenset[str]] | None:
    """Tokens per second of one device from the step's time, and the facts it takes.

    None where the printed time is a mean over other steps, too.
    """
    if not lines.have("elapsed_s") or not known.own_time:
        return None
    elapsed = lines.interval("elapsed_s")
    if lines.have("rank_tokens"):
        return _over(lines.columns["rank_tokens"], elapsed), frozenset()
    tokens = _tokens(lines, known)
    return None if tokens is None else (_over(tokens[0], elapsed), tokens[1])


def _over(count: Array, seconds: Interval) -> Interval:
    return Interval(count / seconds.high, count / np.fmax(seconds.low, 1e-12))


def rate_of(lines: Lines, known: Known) -> tuple[Interval, frozenset[str]] | None:
    """Tokens per second of one device of each line: as printed, else from the step's time."""
    if lines.have("logged_tgs"):
        return lines.interval("logged_tgs"), frozenset()
    if lines.have("logged_device_samples_per_second"):
        return _by_samples(lines, known)
    return _by_elapsed(lines, known)


def rate_behind(column: str, lines: Lines, known: Known) -> tuple[Interval, frozenset[str]] | None:
    """`rate_of` that a printed rate of FLOPs stands beside; None where one alone is a mean."""
    beside = "logged_tgs" if lines.have("logged_tgs") else ""
    if (column in known.averaged) != (beside in known.averaged):
        return None
    return rate_of(lines, known)


def _by_samples(lines: Lines, known: Known) -> tuple[Interval, frozenset[str]] | None:
    """Tokens per second of one device, from its samples per second, and the facts it takes."""
    samples = lines.interval("logged_device_samples_per_second")
    if lines.have("sequence_length"):
        return samples.times(lines.columns["sequence_length"]), frozenset()
    return None if known.T is None else (samples.times(known.T), frozenset({"seq_len"}))


def identities(lines: Lines, era: Era, known: Known) -> list[Identity]:
    """What of a run's figures can be compared by one era's formulas."""
    lines = lines.by(era)
    if era.configured_length:
        unsaid = {"sequence_length": np.full(lines.height, np.nan)}
        lines = replace(lines, columns={**lines.columns, **unsaid})
        known = known._replace(length=None)
    found = []
    for column in (c for c in FIGURES if c in lines.digits):
        of = lines.of(column, *era.needs).with_tokens()
        said = PREDICTED[column](of, era, known, column) if of.height else None
        if said is not None:
            found.append(Identity(column, of.interval(column) / said[0], said[1]))
    return found


Predicted = tuple[Interval, frozenset[str]] | None


def _tflops(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    rate = rate_behind(column, lines, known)
    flops = _flops_of_lines(lines, era, known, column)
    if rate is None or flops is None or lacks_gpus(era, known):
        return None
    return rate[0].times(flops * unit_of(era, known) / 1e12), rate[1] | {"model"}


def _mfu(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    rate = rate_behind(column, lines, known)
    flops = _flops_of_lines(lines, era, known, column)
    peak = peak_of(era, known)
    if rate is None or flops is None or peak is None:
        return None
    return rate[0].times(flops) / _bounds(peak, era, known), rate[1] | {"model", "peak"}


def _total(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    """FLOPs since the start, from the tokens since then."""
    flops = flops_of(era, known.seen(known.T or 1), column)
    if flops is None or not lines.have("consumed_tokens"):
        return None
    total = flops * lines.columns["consumed_tokens"]
    return Interval(total, total), frozenset({"model"})


def _tgs(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    follows = column in era.identities and column not in known.averaged
    return _by_elapsed(lines, known) if follows else None


def lacks_gpus(era: Era, known: Known) -> bool:
    """Whether an era's TFLOP/s are over the GPUs once more, and their number is not known."""
    return known.gpus is None and era.unit(1) != era.unit(2)


def unit_of(era: Era, known: Known) -> float:
    """What an era multiplies its TFLOP/s by in one run."""
    return era.unit_of(known.gpus) / _steps(era, known)


def _steps(era: Era, known: Known) -> int:
    """Steps whose time an era takes for that of one."""
    return known.log_interval if era.whole_interval else 1


def _samples(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    if column not in era.identities:
        return None
    one = _per_second(lines, "samples", known.batch, "global_batch_size")
    scale = era.scales.get(column, 1.0) / _steps(era, known)
    return None if one is None else (one[0].times(scale), one[1])


def _device_samples(lines: Lines, era: Era, known: Known, column: str) -> Predicted:
    """Samples per second of one device, from its micro-step."""
    if column not in era.identities:
        return None
    return _per_second(lines, "device_samples", known.micro_batch, "micro_batch_size")


def _per_second(lines: Lines, column: str, given: int | None, fact: str) -> Predicted:
    """A count over the step's time: the lines' own, else that of a fact."""
    if not lines.have("elapsed_s"):
        return None
    elapsed = lines.interval("elapsed_s")
    if lines.have(column):
        return _over(lines.columns[column], elapsed), frozenset()
    if given is None:
        return None
    return _over(np.full(lines.height, float(given)), elapsed), frozenset({fact})


def _profiler_flops(lines: Lines, _era: Era, _known: Known, _column: str) -> Predicted:
    return Interval(lines.columns["profiler_low"], lines.columns["profiler_high"]), frozenset()


def _profiler_samples(lines: Lines, _era: Era, known: Known, _column: str) -> Predicted:
    if known.micro_batch is None or known.gpus is None:
        return None
    one = Interval(lines.columns["profiler_low"], lines.columns["profiler_high"])
    return one.times(known.micro_batch * known.gpus), frozenset({"micro_batch_size"})


PREDICTED: Final[Mapping[str, Callable[[Lines, Era, Known, str], Predicted]]] = {
    **dict.fromkeys(TFLOPS, _tflops),
    **dict.fromkeys(MFUS, _mfu),
    "logged_tgs": _tgs,
    "logged_samples_per_second": _samples,
    "logged_total_flops": _total,
    "logged_device_samples_per_second": _device_samples,
    flops_profiler.FLOPS: _profiler_flops,
    flops_profiler.SAMPLES: _profiler_samples,
}


def _flops_of_lines(lines: Lines, era: Era, known: Known, column: str) -> Array | None:
    """F of each line: its own length where it prints one."""
    if not lines.have("sequence_length"):
        whole = flops_of(era, known.seen(), column)
        return None if whole is None else np.full(lines.height, whole)
    lengths = lines.columns["sequence_length"]
    each = {T: flops_of(era, known.seen(int(T)), column) for T in np.unique(lengths)}
    if any(flops is None for flops in each.values()):
        return None
    return np.array([each[T] for T in lengths], dtype=float)


def flops_of(era: Era, seen: Seen | None, column: str = "logged_tflops") -> float | None:
    """F by an era's closed form; None where the era counts none, or lacks what it reads."""
    if seen is None or not era.stages_of(column):
        return None
    return _flops(era.name, seen, column)


@lru_cache(maxsize=65_536)
def _flops(era: str, seen: Seen, column: str) -> float | None:
    try:
        return float(BY_NAME[era].flops(seen, column))
    except ShapeError:
        return None


def peak_of(era: Era, known: Known) -> float | None:
    """The peak that the framework divided by: what it says, exact by its table where they agree."""
    if era.peaks is None:
        return known.peak
    table = None if known.device is None else era.peaks(known.device, known.day or _last_day(era))
    if known.peak is None:
        return table
    agree = table is not None and abs(table / known.peak - 1) <= PEAK_DIGITS
    return table if agree else known.peak


def _last_day(era: Era) -> date | None:
    """The last day of an era, for a run without a date: its table of peaks was longest then."""
    return None if era.until is None else era.until - timedelta(days=1)


def _bounds(peak: float, era: Era, known: Known) -> Interval:
    """The peak, as exactly as it is known."""
    exact = era.peaks is None or known.peak is None or peak != known.peak
    half = 0.0 if exact else _half_of_four_digits(peak)
    return Interval(np.array([peak - half]), np.array([peak + half]))


def _half_of_four_digits(value: float) -> float:
    return float(0.5 * 10.0 ** (np.floor(np.log10(value)) - 3))


def fingerprint(told: Lines, era: Era, known: Known) -> tuple[float, float] | tuple[None, None]:
    """FLOPs per token that the printed figures imply, without the model: the lowest and highest.

    Of all lines together; from TFLOP/s over tokens/s, or from MFU where the peak is known. The
    first exceeds the second where no single number of FLOPs explains every line.
    """
    peak = peak_of(era, known)
    for column, factor in (("logged_tflops", 1e12 / unit_of(era, known)), ("logged_mfu", peak)):
        lines = told.by(era).of(column)
        rate = rate_behind(column, lines, known) if lines.height else None
        if rate is not None and factor is not None:
            return (lines.interval(column).times(factor) / rate[0]).common
    return None, None
