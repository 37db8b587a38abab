"""Vocabulary of eras: figures of a framework's version and their formulas.

An era is data: the closed form as in the framework's code, between two dates, with the commit that
introduced the form, and the path from our count to the form, a named cause at a time. The last
stage of the path is the closed form itself.

    printed TFLOP/s = F x rate x unit / 1e12        F: FLOPs per token; rate: tokens/s on one device
    printed MFU     = F x rate / peak
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..formula.simplified_model import SimplifiedModel

__all__ = ["GAP_CAUSES", "Era", "FormulaStage", "PeakRow", "cause_text", "dated_era"]

GAP_CAUSES: Final[dict[str, str]] = {
    "unit": "unit, or a division by the world size",
    "recompute": "activation checkpointing counted as work",
    "lm_head": "lm_head checkpointed with the layers",
    "vocabulary": "padded vocabulary counted",
    "embedding": "embedding look-up counted as a matmul",
    "norms": "norms and biases counted as matmuls",
    "mtp": "multi-token prediction",
    "experts": "experts: all counted, or in every layer, or as one dense block, or no router",
    "ffn": "feed-forward block of another kind or width",
    "kv_heads": "grouped-query attention ignored (GQA, MLA)",
    "head_size": "head width assumed as d / heads",
    "attention": "masked-out attention counted as work",
    "trained": "frozen weights counted as trainable (LoRA)",
    "peak": "another peak as divisor",
    "data": "data loading left out of the framework's time",
    "window": "the logged value is a median of rates, ours is total tokens / total time",
    "unexplained": "unexplained",
}
"""Causes why a printed figure is not ours."""

LEFT_OUT_CAUSES: Final[dict[str, str]] = {
    "lm_head": "lm_head counted too little",
    "kv_heads": "key and value left out (GQA, MLA)",
    "attention": "attention left out",
}
"""Texts of causes that count too little rather than too much."""


def cause_text(cause: str, *factors: float) -> str:
    """Return the text of a cause in one or more logs.

    factors: multiply the logged figures towards ours
    """
    too_much, too_little = GAP_CAUSES[cause], LEFT_OUT_CAUSES.get(cause, GAP_CAUSES[cause])
    return " or ".join(dict.fromkeys(too_little if f > 1 else too_much for f in factors))


@dataclass(frozen=True, slots=True)
class FormulaStage:
    """Stage of the path from our count to a framework's.

    cause: of GAP_CAUSES
    flops: FLOPs per token of full training once this cause, and all before, are adopted
    text: what the framework does, if more exact than the text of the cause
    """

    cause: str
    flops: Callable[[SimplifiedModel], float]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """Row of a framework's table of peaks: devices with `name_part` in their name.

    flops: peak [FLOP/s]; since, until: dates of the commits; `until` is the first day without the
        row, None if the row is still there
    """

    name_part: str
    flops: float
    since: date
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """Figures that the versions of a framework between two commits print.

    name: framework and month or release, as accepted by `--set logged_formula=`
    log_formats: names of the formats with these figures
    since, until: dates of the commits that started and ended the era; None: not ended, or unknown
    versions: releases with this formula, as the log prints them
    repo, path, commit: of the code
    formula: the closed form, letters as in metrics/formula/flops.py, r for 3 or, recomputing, 4
        forwards
    stages: from our count (full training, one causal sequence of T) to that form; empty if the era
        counts no FLOPs
    decimals: digits after the point of printed columns of ingest.core.schema's steps
    derived_columns: columns that follow from others of the same line: `logged_tgs` and
        `logged_samples_per_second` from the step's time
    figure_stages: paths to separate closed forms, by column
    required_columns: columns that a line must print for its figures to be compared
    sample_scales: factor by which a figure of samples is off, by column
    configured_length: counts the configured T, whatever the length of the step
    whole_interval: divides by the time of the whole log interval, as if the interval were one step
    not_compared: columns whose figure cannot be recomputed from the log, with the reason
    unit: factor on TFLOP/s in addition to 1e-12, from the number of GPUs
    batch_lengths: T is the length of the current batch, not of the configuration
    counts_recompute: counts recomputed forwards as work
    fork: not of the framework's main line; only figures reveal that a run used the fork
    peaks: function from device and day to a peak; None if the era prints no MFU, or is given the
        peak
    peak_values: every peak that this framework ever divided by [FLOP/s]
    """

    name: str
    log_formats: tuple[str, ...]
    since: date | None
    until: date | None
    repo: str
    path: str
    commit: str
    formula: str
    stages: tuple[FormulaStage, ...] = ()
    versions: tuple[str, ...] = ()
    decimals: Mapping[str, int] = field(default_factory=dict)
    derived_columns: tuple[str, ...] = ()
    figure_stages: Mapping[str, tuple[FormulaStage, ...]] = field(default_factory=dict)
    required_columns: tuple[str, ...] = ()
    sample_scales: Mapping[str, float] = field(default_factory=dict)
    configured_length: bool = False
    whole_interval: bool = False
    not_compared: Mapping[str, str] = field(default_factory=dict)
    unit: Callable[[int], float] = lambda _: 1.0
    batch_lengths: bool = False
    counts_recompute: bool = False
    fork: bool = False
    peaks: Callable[[str, date | None], float] | None = None
    peak_values: tuple[float, ...] = ()

    def stages_of(self, column: str) -> tuple[FormulaStage, ...]:
        """Return the path to the closed form of one figure; empty if not of this era."""
        usual = self.stages if column in ("logged_tflops", "logged_mfu") else ()
        return self.figure_stages.get(column, usual)

    def flops(self, model: SimplifiedModel, column: str = "logged_tflops") -> float:
        """Return F: FLOPs per token by the closed form of a column.

        Raises ShapeError if the model lacks an input.
        """
        return self.stages_of(column)[-1].flops(model)

    def unit_of(self, gpus: int | None) -> float:
        """Return `unit` of a run; for an unknown number of GPUs, as if 1."""
        return self.unit(gpus or 1)

    def covers(self, day: date) -> bool:
        """Return whether this was the main line's formula on a day."""
        after = self.since is None or self.since <= day
        return after and (self.until is None or day < self.until) and not self.fork


def dated_era(since: str | None, until: str | None, **fields: object) -> Era:
    """Build an era from dates as text; raise ValueError for a malformed date.

    since, until: ISO dates; fields: the other fields of Era
    """
    first, last = (None if day is None else date.fromisoformat(day) for day in (since, until))
    return Era(since=first, until=last, **fields)  # type: ignore[arg-type]
