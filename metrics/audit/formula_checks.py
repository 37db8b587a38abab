"""Compare every figure that a framework prints with its formula, line by line.

    ratio = printed / predicted     an interval per line; reproduced if it contains 1

A printed figure may be off by half a unit of its last digit, and so may all its inputs. Letters as
in metrics/formula/flops.py; the formulas are data, in metrics/audit/eras.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import TOKEN_SHARING_DEGREES, RunRow

from ..core.arrays import BoolArray, FloatArray, median_of
from ..core.print_precision import Digits, digits_of
from ..formula.accelerators import UnknownAcceleratorError, find_accelerator
from ..formula.model_shapes import ModelShape, ShapeError, text_config
from ..formula.simplified_model import SimplifiedModel
from ..formula.terms import Recompute
from ..throughput.resolved_facts import USER_ORIGIN_PATTERN
from ..utilization.formula_inputs import (
    bool_fact,
    count_adapter_params,
    find_shape,
    integer_fact,
    number_fact,
    recompute_fact,
    text_fact,
)
from . import flops_profiler
from .era_lookup import ERAS_BY_NAME, eras_of_format
from .formula_era import Era
from .logged_figures import FIXED_DECIMALS, LOGGED_FIGURES

TFLOPS_FIGURES: Final = ("logged_tflops", "logged_lm_tflops")
MFU_FIGURES: Final = ("logged_mfu", "logged_hfu")
FLOPS_FIGURES: Final = (*TFLOPS_FIGURES, *MFU_FIGURES, "logged_total_flops")
"""Columns of metrics.audit.logged_figures that a formula of FLOPs predicts."""

FLOAT32_ROUNDING: Final = 1.2e-7
"""Relative rounding of a float32: a value of seven or more digits may have been one."""
MIN_FLOAT32_DIGITS: Final = 7

PEAK_ROUNDING: Final = 5e-4
"""Half a unit of the last digit, as a fraction: Torchtitan prints its peak with four digits."""


class FormulaFacts(NamedTuple):
    """Inputs of frameworks' formulas, from a run's facts; None if unknown.

    shape: of the model; T: sequence length [tokens]; gpus, batch [sequences of an optimizer step]
    peak: divisor that the log states [FLOP/s]; device: name as printed, or the resolved name
    day: of the first stamp; era, version: as stated
    micro_batch: sequences of a micro-step on one rank; sharing: ranks that share a sequence
    micro_steps: the run's lines and times are of micro-steps
    own_time: a printed time is of the line's step alone, no mean over several
    averaged: printed rates that are means over several steps; the others are of the last step alone
    max_length: T, if T only bounds the length of every line
    tensor_parallel: ranks that share a layer; pipeline_parallel: stages of layers
    log_interval: steps between two lines; lora_rank: of adapters; adapters: their parameters
    line_length: the T that every line prints, whatever the facts say
    params: parameters that the log counts; stated_facts: facts that the log states
    logged_values: names and values that the log states, also if another value was given
    padded_vocabs: possible values of padded_vocab if the facts leave it open
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
    max_length: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    log_interval: int = 1
    line_length: int | None = None
    lora_rank: int | None = None
    adapters: int = 0
    params: int | None = None
    stated_facts: frozenset[str] = frozenset()
    logged_values: frozenset[tuple[str, str]] = frozenset()
    padded_vocabs: tuple[int, ...] = ()

    def simplified_model(self, T: int | None = None) -> SimplifiedModel | None:  # noqa: N803
        """Return the model as frameworks' formulas read it; None without shape or length."""
        length = T or self.line_length or self.T
        if self.shape is None or length is None:
            return None
        return SimplifiedModel(
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


def formula_facts_of(
    run: RunRow,
    facts: Mapping[str, Mapping[str, Any]],
    logged_values: Iterable[tuple[str, str]] = (),
) -> FormulaFacts:
    """Return the formula's inputs from a row of ingest.core.schema's `runs` and facts.

    facts: accepted facts by name
    logged_values: (name, value) of every fact that the log states, accepted or not
    """
    shape, why = find_shape(facts)
    padded_vocab, padded_vocabs = _padded_vocabs(facts, shape)
    length, bounded = integer_fact(facts, "seq_len"), _has_batch_lengths(run, facts)
    started = run["started_at"]
    return FormulaFacts(
        log_format=run["log_format"],
        shape=shape,
        why_no_shape=why,
        T=None if bounded else length,
        max_length=length if bounded else None,
        recompute=recompute_fact(facts),
        intermediate_size=_intermediate_size(facts),
        padded_vocab=padded_vocab,
        padded_vocabs=padded_vocabs,
        peak=number_fact(facts, "logged_peak_flops") or None,
        device=_device_as_printed(facts),
        day=None if started is None else started.date(),
        micro_steps=run["step_unit"] == "micro_step",
        own_time=not _averages_times(run, facts),
        averaged=frozenset(filter(None, (text_fact(facts, "averaged_rates") or "").split(","))),
        adapters=0 if shape is None else count_adapter_params(facts, shape) or 0,
        stated_facts=frozenset(
            n for n, fact in facts.items() if str(fact["origin"]).startswith("log")
        ),
        logged_values=frozenset(logged_values),
        **_as_stated(facts),
    )


def _as_stated(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of FormulaFacts that are single facts; factors default to 1."""

    def factor(name: str) -> int:
        return integer_fact(facts, name) or 1

    return {
        "gpus": integer_fact(facts, "gpus"),
        "batch": integer_fact(facts, "global_batch_size"),
        "micro_batch": integer_fact(facts, "micro_batch_size"),
        "era": text_fact(facts, "logged_formula"),
        "version": text_fact(facts, "framework_version"),
        "sharing": prod(factor(name) for name in TOKEN_SHARING_DEGREES),
        "tensor_parallel": factor("tensor_parallel"),
        "pipeline_parallel": factor("pipeline_parallel"),
        "log_interval": factor("log_interval"),
        "lora_rank": integer_fact(facts, "lora_rank"),
        "params": integer_fact(facts, "params_total"),
    }


def _has_batch_lengths(run: RunRow, facts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether lengths vary by batch and a formula of the format reads them."""
    reads_lengths = any(era.batch_lengths for era in eras_of_format(run["log_format"]))
    return reads_lengths and bool_fact(facts, "packed") is False


def _averages_times(run: RunRow, facts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a printed time is a mean over the last steps."""
    return run["elapsed_covers"] == "last_10" and integer_fact(facts, "average_window") != 1


def _device_as_printed(facts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the device name to look up in the framework's table of peaks.

    A logged name stays as printed; a name given by a user may be spelled differently, so it is
    resolved.
    """
    name = text_fact(facts, "accelerator")
    if name is None or not re.match(USER_ORIGIN_PATTERN, str(facts["accelerator"]["origin"])):
        return name
    try:
        return find_accelerator(name).name
    except UnknownAcceleratorError:
        return name


def _padded_vocabs(
    facts: Mapping[str, Mapping[str, Any]], shape: ModelShape | None
) -> tuple[int | None, tuple[int, ...]]:
    """Return (padded vocabulary, ()), or (None, possible values).

    Megatron pads to the next multiple of make_vocab_size_divisible_by times the ranks of a layer.
    """
    if (padded_vocab := integer_fact(facts, "padded_vocab_size")) or shape is None:
        return padded_vocab or None, ()
    arguments = json.loads(text_fact(facts, "megatron_arguments") or "{}")
    multiple = str(arguments.get("make_vocab_size_divisible_by", ""))
    ranks, stated = (
        integer_fact(facts, "tensor_parallel"),
        re.fullmatch(r"[1-9][0-9]{0,8}", multiple),
    )
    step = int(multiple) if stated else VOCAB_MULTIPLE
    padded = [
        -(-shape.vocab_size // (step * n)) * step * n
        for n in ((ranks,) if ranks and ranks > 0 else USUAL_TENSOR_PARALLEL)
    ]
    if stated and ranks:
        return padded[0], ()
    return None, tuple(n for n in dict.fromkeys(padded) if n != shape.vocab_size)


VOCAB_MULTIPLE: Final = 128
"""Default of Megatron's make_vocab_size_divisible_by."""
USUAL_TENSOR_PARALLEL: Final = (1, 2, 4, 8)
"""Ranks that may share a layer, for a log without tensor_parallel."""


def _intermediate_size(facts: Mapping[str, Mapping[str, Any]]) -> int | None:
    config = text_fact(facts, "model_config")
    width = text_config(json.loads(config)).get("intermediate_size") if config else None
    return width if isinstance(width, int) else None


@dataclass(frozen=True)
class LineBounds:
    """Lower and upper bound per line."""

    low: FloatArray
    high: FloatArray

    def __truediv__(self, other: LineBounds) -> LineBounds:
        return LineBounds(self.low / other.high, self.high / other.low)

    def scaled(self, factor: float | FloatArray) -> LineBounds:
        """Return both bounds times a positive factor."""
        return LineBounds(self.low * factor, self.high * factor)

    def contains(self, factor: float = 1.0) -> BoolArray:
        """Return per line whether the interval contains a factor."""
        held: BoolArray = (self.low <= factor) & (factor <= self.high)
        return held

    def all_contain(self, factor: float) -> bool:
        """Return whether the intervals of all lines contain a factor."""
        low, high = self.intersection
        return low <= factor <= high

    @cached_property
    def middle(self) -> float:
        """Median over the lines of the intervals' middles."""
        return median_of((self.low + self.high) / 2)

    @property
    def half_width(self) -> float:
        """Median over the lines of half of the intervals' widths."""
        return median_of((self.high - self.low) / 2)

    @cached_property
    def intersection(self) -> tuple[float, float]:
        """Intersection of all lines' intervals; empty if the first exceeds the second."""
        return float(self.low.max()), float(self.high.min())


@dataclass(frozen=True, slots=True)
class FormulaCheck:
    """Printed column compared with its formula.

    ratio: printed over predicted, by line; depends_on: facts that the prediction reads
    """

    column: str
    ratio: LineBounds
    depends_on: frozenset[str]

    @property
    def lines(self) -> int:
        """Number of lines that print the column and its inputs."""
        return len(self.ratio.low)

    @property
    def reproduced(self) -> int:
        """Number of lines whose interval contains 1."""
        return int(self.ratio.contains().sum())


# --- what is printed ------------------------------------------------------------------------


FIGURE_COLUMNS: Final = (
    *LOGGED_FIGURES,
    *("step", "elapsed_s", "samples", "sequence_length", "consumed_tokens", "rank_tokens"),
    *("device_samples", "profiler_low", "profiler_high"),
)
"""Figures and the columns that they are computed from."""


@dataclass(frozen=True, slots=True)
class FigureLines:
    """Figures of a run's lines and the number of digits of every column.

    columns: name to the values, NaN where a line does not print the column
    digits: of the columns that any line prints, over all lines
    decimals: as an era prints them
    """

    columns: Mapping[str, FloatArray]
    digits: Mapping[str, Digits]
    decimals: Mapping[str, int]

    @property
    def height(self) -> int:
        """Number of lines."""
        return len(self.columns["logged_tgs"])

    def with_decimals_of(self, era: Era) -> FigureLines:
        """Return the lines with the decimals that an era prints."""
        return replace(self, decimals=era.decimals)

    def select(self, chosen: BoolArray) -> FigureLines:
        """Return some of the lines."""
        if chosen.all():
            return self
        return replace(self, columns={c: values[chosen] for c, values in self.columns.items()})

    def printing(self, *columns: str) -> FigureLines:
        """Return the lines that print all of these columns."""
        printed = np.ones(self.height, dtype=bool)
        for column in columns:
            printed &= np.isfinite(self.columns[column])
        return self.select(printed)

    def all_print(self, column: str) -> bool:
        """Return whether there are lines and all print a column."""
        return self.height > 0 and bool(np.isfinite(self.columns[column]).all())

    def printed_values(self, column: str) -> FloatArray:
        """Return the finite values of a column."""
        values = self.columns[column]
        found: FloatArray = values[np.isfinite(values)]
        return found

    def with_tokens(self) -> FigureLines:
        """Return the lines without those of ranks with padding alone, whose tokens are 0."""
        return self.select(self.columns["rank_tokens"] != 0)

    def interval(self, column: str) -> LineBounds:
        """Return the bounds of a column per line: half of the last digit to either side.

        At least the rounding of a float32 for values of seven or more digits, unless the era prints
        fixed decimals.
        """
        values, digits = self.columns[column], self.digits[column]
        declared = self.decimals.get(column, FIXED_DECIMALS.get(column))
        if declared is not None and digits.decimals <= declared:
            half: FloatArray = np.full(len(values), 0.5 * 10.0**-declared)
        else:
            half = 0.5 * digits.last_places(values)
            if int(digits.significant) >= MIN_FLOAT32_DIGITS:
                half = np.fmax(half, FLOAT32_ROUNDING * np.abs(values))
        return LineBounds(values - half, values + half)


def read_figures(frame: pl.DataFrame) -> FigureLines:
    """Return the lines of a run as arrays; missing columns are NaN."""
    nothing = np.full(frame.height, np.nan)
    columns = {
        c: frame[c].cast(pl.Float64).to_numpy() if c in frame.columns else nothing
        for c in FIGURE_COLUMNS
    }
    printed = {c: values for c, values in columns.items() if np.isfinite(values).any()}
    return FigureLines(columns, {c: digits_of(values) for c, values in printed.items()}, {})


def _tokens(
    lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[FloatArray, frozenset[str]] | None:
    """Return tokens of a step on one device, and the facts used in addition to lines."""
    sequences, depends = _sequences(lines, formula_facts)
    length: FloatArray | float | None = formula_facts.T
    if lines.all_print("sequence_length"):
        length = lines.columns["sequence_length"]
    elif length is not None:
        depends |= {"seq_len"}
    if sequences is None or length is None:
        return None
    return np.broadcast_to(sequences * length, lines.height).astype(float), depends


def _sequences(
    lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[FloatArray | float | None, frozenset[str]]:
    """Return sequences of a step on one device, and the facts used."""
    if formula_facts.micro_steps and formula_facts.micro_batch is not None:
        facts = frozenset({"micro_batch_size", "context_parallel"})
        return formula_facts.micro_batch / formula_facts.sharing, facts
    if formula_facts.gpus is None:
        return None, frozenset()
    if lines.all_print("samples"):
        return lines.columns["samples"] / formula_facts.gpus, frozenset({"gpus"})
    if formula_facts.batch is None:
        return None, frozenset()
    return formula_facts.batch / formula_facts.gpus, frozenset({"gpus", "global_batch_size"})


def _by_elapsed(
    lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[LineBounds, frozenset[str]] | None:
    """Return tokens/s of one device from the step's time, and the facts used.

    None if the printed time is a mean that includes other steps.
    """
    if not lines.all_print("elapsed_s") or not formula_facts.own_time:
        return None
    elapsed = lines.interval("elapsed_s")
    if lines.all_print("rank_tokens"):
        return _over(lines.columns["rank_tokens"], elapsed), frozenset()
    tokens = _tokens(lines, formula_facts)
    return None if tokens is None else (_over(tokens[0], elapsed), tokens[1])


def _over(count: FloatArray, seconds: LineBounds) -> LineBounds:
    return LineBounds(count / seconds.high, count / np.fmax(seconds.low, 1e-12))


def device_rate(
    lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[LineBounds, frozenset[str]] | None:
    """Return tokens/s of one device per line: as printed, else from the step's time."""
    if lines.all_print("logged_tgs"):
        return lines.interval("logged_tgs"), frozenset()
    if lines.all_print("logged_device_samples_per_second"):
        return _by_samples(lines, formula_facts)
    return _by_elapsed(lines, formula_facts)


def device_rate_behind(
    column: str, lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[LineBounds, frozenset[str]] | None:
    """Return the `device_rate` that matches a printed rate of FLOPs.

    None if exactly one of the two is a mean over several steps.
    """
    beside = "logged_tgs" if lines.all_print("logged_tgs") else ""
    if (column in formula_facts.averaged) != (beside in formula_facts.averaged):
        return None
    return device_rate(lines, formula_facts)


def _by_samples(
    lines: FigureLines, formula_facts: FormulaFacts
) -> tuple[LineBounds, frozenset[str]] | None:
    """Return tokens/s of one device from its samples/s, and the facts used."""
    samples = lines.interval("logged_device_samples_per_second")
    if lines.all_print("sequence_length"):
        return samples.scaled(lines.columns["sequence_length"]), frozenset()
    return (
        None
        if formula_facts.T is None
        else (samples.scaled(formula_facts.T), frozenset({"seq_len"}))
    )


def check_formulas(lines: FigureLines, era: Era, formula_facts: FormulaFacts) -> list[FormulaCheck]:
    """Compare the figures of a run with one era's formulas.

    Figures with unknown inputs are left out.
    """
    lines = lines.with_decimals_of(era)
    if era.configured_length:
        unsaid = {"sequence_length": np.full(lines.height, np.nan)}
        lines = replace(lines, columns={**lines.columns, **unsaid})
        formula_facts = formula_facts._replace(line_length=None)
    checks = []
    for column in (c for c in LOGGED_FIGURES if c in lines.digits):
        of = lines.printing(column, *era.required_columns).with_tokens()
        prediction = PREDICTORS[column](of, era, formula_facts, column) if of.height else None
        if prediction is not None:
            checks.append(FormulaCheck(column, of.interval(column) / prediction[0], prediction[1]))
    return checks


Prediction = tuple[LineBounds, frozenset[str]] | None


def _tflops(lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str) -> Prediction:
    rate = device_rate_behind(column, lines, formula_facts)
    flops = _flops_of_lines(lines, era, formula_facts, column)
    if rate is None or flops is None or needs_gpu_count(era, formula_facts):
        return None
    return rate[0].scaled(flops * tflops_factor(era, formula_facts) / 1e12), rate[1] | {"model"}


def _mfu(lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str) -> Prediction:
    rate = device_rate_behind(column, lines, formula_facts)
    flops = _flops_of_lines(lines, era, formula_facts, column)
    peak = era_peak(era, formula_facts)
    if rate is None or flops is None or peak is None:
        return None
    return rate[0].scaled(flops) / _bounds(peak, era, formula_facts), rate[1] | {"model", "peak"}


def _total(lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str) -> Prediction:
    """Predict FLOPs since the start, from the tokens since then."""
    flops = era_flops(era, formula_facts.simplified_model(formula_facts.T or 1), column)
    if flops is None or not lines.all_print("consumed_tokens"):
        return None
    total = flops * lines.columns["consumed_tokens"]
    return LineBounds(total, total), frozenset({"model"})


def _tgs(lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str) -> Prediction:
    follows = column in era.derived_columns and column not in formula_facts.averaged
    return _by_elapsed(lines, formula_facts) if follows else None


def needs_gpu_count(era: Era, formula_facts: FormulaFacts) -> bool:
    """Return whether an era's TFLOP/s depend on the number of GPUs, which is unknown."""
    return formula_facts.gpus is None and era.unit(1) != era.unit(2)


def tflops_factor(era: Era, formula_facts: FormulaFacts) -> float:
    """Return the extra factor that an era applies to its TFLOP/s in one run."""
    return era.unit_of(formula_facts.gpus) / _steps(era, formula_facts)


def _steps(era: Era, formula_facts: FormulaFacts) -> int:
    """Return how many steps' time an era divides by as if they were one."""
    return formula_facts.log_interval if era.whole_interval else 1


def _samples(lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str) -> Prediction:
    if column not in era.derived_columns:
        return None
    rate = _per_second(lines, "samples", formula_facts.batch, "global_batch_size")
    scale = era.sample_scales.get(column, 1.0) / _steps(era, formula_facts)
    return None if rate is None else (rate[0].scaled(scale), rate[1])


def _device_samples(
    lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str
) -> Prediction:
    """Predict samples/s of one device, from its micro-step."""
    if column not in era.derived_columns:
        return None
    return _per_second(lines, "device_samples", formula_facts.micro_batch, "micro_batch_size")


def _per_second(lines: FigureLines, column: str, given: int | None, fact: str) -> Prediction:
    """Return a count over the step's time: the lines' count, else that of a fact."""
    if not lines.all_print("elapsed_s"):
        return None
    elapsed = lines.interval("elapsed_s")
    if lines.all_print(column):
        return _over(lines.columns[column], elapsed), frozenset()
    if given is None:
        return None
    return _over(np.full(lines.height, float(given)), elapsed), frozenset({fact})


def _profiler_flops(
    lines: FigureLines, _era: Era, _known: FormulaFacts, _column: str
) -> Prediction:
    return LineBounds(lines.columns["profiler_low"], lines.columns["profiler_high"]), frozenset()


def _profiler_samples(
    lines: FigureLines, _era: Era, formula_facts: FormulaFacts, _column: str
) -> Prediction:
    if formula_facts.micro_batch is None or formula_facts.gpus is None:
        return None
    bounds = LineBounds(lines.columns["profiler_low"], lines.columns["profiler_high"])
    return bounds.scaled(formula_facts.micro_batch * formula_facts.gpus), frozenset(
        {"micro_batch_size"}
    )


PREDICTORS: Final[Mapping[str, Callable[[FigureLines, Era, FormulaFacts, str], Prediction]]] = {
    **dict.fromkeys(TFLOPS_FIGURES, _tflops),
    **dict.fromkeys(MFU_FIGURES, _mfu),
    "logged_tgs": _tgs,
    "logged_samples_per_second": _samples,
    "logged_total_flops": _total,
    "logged_device_samples_per_second": _device_samples,
    flops_profiler.FLOPS_FIGURE: _profiler_flops,
    flops_profiler.SAMPLES_FIGURE: _profiler_samples,
}


def _flops_of_lines(
    lines: FigureLines, era: Era, formula_facts: FormulaFacts, column: str
) -> FloatArray | None:
    """Return F per line, with the line's sequence length if printed."""
    if not lines.all_print("sequence_length"):
        whole = era_flops(era, formula_facts.simplified_model(), column)
        return None if whole is None else np.full(lines.height, whole)
    lengths = lines.columns["sequence_length"]
    each = {
        T: era_flops(era, formula_facts.simplified_model(int(T)), column)
        for T in np.unique(lengths)
    }
    if any(flops is None for flops in each.values()):
        return None
    return np.array([each[T] for T in lengths], dtype=float)


def era_flops(
    era: Era, model: SimplifiedModel | None, column: str = "logged_tflops"
) -> float | None:
    """Return F by an era's closed form; None if the era counts none or lacks an input."""
    if model is None or not era.stages_of(column):
        return None
    return _flops(era.name, model, column)


@lru_cache(maxsize=65_536)
def _flops(era: str, model: SimplifiedModel, column: str) -> float | None:
    try:
        return float(ERAS_BY_NAME[era].flops(model, column))
    except ShapeError:
        return None


def era_peak(era: Era, formula_facts: FormulaFacts) -> float | None:
    """Return the framework's divisor [FLOP/s]: the table's value if the log agrees.

    Else the logged peak, which has four digits; the table's value if the log states none.
    """
    if era.peaks is None:
        return formula_facts.peak
    table = (
        None
        if formula_facts.device is None
        else era.peaks(formula_facts.device, formula_facts.day or _last_day(era))
    )
    if formula_facts.peak is None:
        return table
    agree = table is not None and abs(table / formula_facts.peak - 1) <= PEAK_ROUNDING
    return table if agree else formula_facts.peak


def _last_day(era: Era) -> date | None:
    """Return the last day of an era, as the day of a run without a date.

    The era's table of peaks was longest then.
    """
    return None if era.until is None else era.until - timedelta(days=1)


def _bounds(peak: float, era: Era, formula_facts: FormulaFacts) -> LineBounds:
    """Return the bounds of the peak: exact, or half of the last of four digits."""
    exact = era.peaks is None or formula_facts.peak is None or peak != formula_facts.peak
    half = 0.0 if exact else _half_of_four_digits(peak)
    return LineBounds(np.array([peak - half]), np.array([peak + half]))


def _half_of_four_digits(value: float) -> float:
    return float(0.5 * 10.0 ** (np.floor(np.log10(value)) - 3))


def implied_flops(
    figures: FigureLines, era: Era, formula_facts: FormulaFacts
) -> tuple[float, float] | tuple[None, None]:
    """Return lowest and highest FLOPs per token that the figures imply.

    Without the model, over all lines together: from TFLOP/s over tokens/s, or from MFU if the peak
    is known. The first exceeds the second if no single number of FLOPs explains every line.
    """
    peak = era_peak(era, formula_facts)
    for column, factor in (
        ("logged_tflops", 1e12 / tflops_factor(era, formula_facts)),
        ("logged_mfu", peak),
    ):
        lines = figures.with_decimals_of(era).printing(column)
        rate = device_rate_behind(column, lines, formula_facts) if lines.height else None
        if rate is not None and factor is not None:
            return (lines.interval(column).scaled(factor) / rate[0]).intersection
    return None, None
