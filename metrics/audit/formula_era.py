"""The vocabulary of eras: what one version of a framework prints of its own speed, and by what.

An era is data: the closed form as the framework's code has it, between two dates, with the commit
that brought it, and the path that leads from our count to it, one named cause at a time. The last
stage of the path is the closed form itself.

    printed TFLOP/s = F x rate x unit / 1e12        F: FLOPs per token; rate: tokens/s on one device
    printed MFU     = F x rate / peak
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from ..formula.simplified_model import SimplifiedModel

__all__ = ["GAP_CAUSES", "Era", "FormulaStage", "PeakRow", "dated_era"]

GAP_CAUSES: Final[dict[str, str]] = {
    "unit": "unit, or a division by the world size",
    "recompute": "recomputed forwards counted as work",
    "lm_head": "lm_head left out, halved, or recomputed with the layers",
    "vocabulary": "vocabulary padded",
    "embedding": "embedding look-up counted as a product",
    "norms": "norms and biases counted as products",
    "mtp": "multi-token prediction",
    "experts": "experts: all of them, in every layer, or one dense block, or no router",
    "ffn": "feed-forward block taken as another",
    "kv_heads": "key and value as wide as the query, or dropped (GQA, MLA)",
    "head_size": "head width taken as d / heads",
    "attention": "attended pairs: mask, windows or documents ignored",
    "trained": "frozen weights counted as trained (LoRA)",
    "peak": "the peak that it divides by",
    "data": "data loading left out of its time",
    "window": "tokens over time of all steady steps, not the median of printed rates",
    "unexplained": "unexplained",
}
"""Why a printed figure is not ours; in the order of a bridge from the log's figure to ours."""


@dataclass(frozen=True, slots=True)
class FormulaStage:
    """One step of the path from our count to a framework's.

    cause: of GAP_CAUSES
    flops: FLOPs per token of full training once this cause, and all before it, are taken over
    """

    cause: str
    flops: Callable[[SimplifiedModel], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """One row of a framework's table of peaks: a device whose name holds `name_part` has `flops`.

    since, until: dates of the commits; `until` is the first day without it, None where it stands
    """

    name_part: str
    flops: float
    since: date
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """What the versions of a framework between two commits print.

    name: framework and month or release, as `--set logged_formula=` takes it
    log_formats: names of the formats whose figures it speaks of
    since, until: dates of the commits that brought and ended it; None: not ended, or not known
    versions: releases that hold it, as the log prints them
    repo, path, commit: of the code
    formula: the closed form, letters as in metrics/formula/flops.py, r for 3 or, recomputing, 4
    forwards stages: from our count (full training, one causal sequence of T) to that form; empty
    where it
        counts no FLOPs
    decimals: digits behind the point that a column of ingest.core.schema's steps is printed with
    derived_columns: columns that follow from others of the same line: `logged_tgs` and
        `logged_samples_per_second` from the step's time
    figure_stages: paths to the closed forms of figures that have one of their own, by column
    required_columns: columns that a line must print for its figures to be compared
    sample_scales: by how many times a figure of samples is off, by column
    configured_length: it counts the configured T, whatever the length of the step
    whole_interval: it divides by the time of the whole log interval, as if that were one step
    not_compared: columns whose figure cannot be recomputed from what is printed, and why
    unit: what it multiplies its TFLOP/s by besides 1e-12, from the number of GPUs
    batch_lengths: its T is that of the batch at hand, not of the configuration
    fork: not of the framework's main line; only figures tell that a run used it
    peaks: how it finds a peak for a device; None where it prints no MFU, or is given the peak
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
        """The path to the closed form of one figure; empty where it is none of this era's."""
        usual = self.stages if column in ("logged_tflops", "logged_mfu") else ()
        return self.figure_stages.get(column, usual)

    def flops(self, model: SimplifiedModel, column: str = "logged_tflops") -> float:
        """F: FLOPs per token by its closed form; ShapeError where the model lacks what it reads."""
        return self.stages_of(column)[-1].flops(model)

    def unit_of(self, gpus: int | None) -> float:
        """`unit` of a run; of one whose GPUs are not known, as if of one."""
        return self.unit(gpus or 1)

    def covers(self, day: date) -> bool:
        """Whether this was the main line's formula on a day."""
        after = self.since is None or self.since <= day
        return after and (self.until is None or day < self.until) and not self.fork


def dated_era(since: str | None, until: str | None, **fields: object) -> Era:
    """Build an era from dates as text; raises ValueError for a malformed one.

    since, until: ISO dates; fields: the other fields of Era
    """
    first, last = (None if day is None else date.fromisoformat(day) for day in (since, until))
    return Era(since=first, until=last, **fields)  # type: ignore[arg-type]
