"""Columns of a run's metrics, one row per run, and warnings from comparing rows.

Kept apart from the code that computes the metrics, so kept metrics are shown without its imports.
Annotations are evaluated here, not kept as texts: METRICS is built from them twice as fast.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, TypeVar, cast

import polars as pl

from fairmfu.ingest.core.schema import TEXT, row_dtypes

from .messages import NOT_RANKED, Message, as_sentence
from .run_messages import FORMULA_CHANGED

Value = TypeVar("Value")


class TimeLost(TypedDict):
    """Wall time lost to one cause: windows, seconds, and share of the run's wall time."""

    cause: str
    windows: int | None
    seconds: float
    share: float


class SlowStep(TypedDict):
    """Window that took longer than its steps usually do, and its cause.

    seconds: of the window; lost_s: those beyond the steady pace
    """

    from_step: int
    to_step: int
    seconds: float
    lost_s: float
    cause: str


class LevelPhase(TypedDict):
    """Seconds of a phase per step, at one level of speed."""

    phase: str
    seconds: float


class SpeedLevel(TypedDict):
    """Steps of a run at one lasting speed.

    ranked: TGS is of this speed. change: of speed from the level before, as a share, with its 95 %
    interval. gpu_hours_lost: GPU-hours beyond the fastest of the earlier levels and of TGS. events:
    logged events at its beginning. phases: of a step, if the log times any. Time, tokens and
    windows are of one GPU.
    """

    from_step: int
    to_step: int
    windows: int
    seconds: float | None
    seconds_per_step: float | None
    tgs: float | None
    tgs_low: float | None
    tgs_high: float | None
    ranked: bool
    change: float | None
    change_low: float | None
    change_high: float | None
    gpu_hours_lost: float | None
    events: list[str]
    phases: list[LevelPhase] | None


class PauseLevel(TypedDict):
    """Steps with about the same time outside of the step timer [s].

    share: of a step's time
    """

    from_step: int
    to_step: int
    seconds_per_step: float
    share: float


class MemoryChange(TypedDict):
    """Change of the logged peak memory inside a run [bytes].

    kind: `growth`, from its first step to the last of the run; or `jump`, at its first step
    """

    kind: str
    from_step: int
    to_step: int
    bytes_before: float
    bytes_after: float


class PhaseTime(TypedDict):
    """Time of one phase of a step (ingest.core.schema.PHASES).

    seconds: per step; null if unknown. share: of the step time, or of the wall time of the run
    (share_of: step or wall). windows: windows measured. source: timers, with `-` for parts
    """

    phase: str
    seconds: float | None
    share: float | None
    share_of: str
    windows: int
    source: str


class SlowRanks(TypedDict):
    """Ranks that the whole run waited for, together and in the same steps.

    ranks: as text, `8 to 11`. node: as text, null if unknown or a single one. kind: `data`, if they
    waited for their data; `compute`, if they computed longer; `tokens` or `documents`, if they had
    more tokens or longer documents. shared: most ranks were late at once, so none is the cause.
    lasting: late in most steps; then `steps` counts all. first_steps: the first of the steps.
    seconds: lost by each GPU; longest_s: in one step; share: of the time of all steps.
    """

    ranks: str
    rank_count: int
    node: str | None
    kind: str
    shared: bool
    lasting: bool
    steps: int
    first_steps: list[int]
    seconds: float
    longest_s: float
    gpu_hours_lost: float
    share: float


class ImageCounts(TypedDict):
    """Sums over the images of a run, per token of the language model.

    tokens: image tokens, in the log's unit. squares_low, squares_high: bounds of the sum of squared
    image tokens, null if the log has no ratio. squares_packed: another upper bound, after a
    multiplication by the image tokens that become one token of the language model. multiple:
    greatest common divisor of the steps' image tokens, 0 if unknown. contradictions: steps whose
    figures contradict each other.
    """

    tokens: float
    squares_low: float | None
    squares_high: float | None
    squares_packed: float | None
    multiple: int
    contradictions: int


class LossAtCount(TypedDict):
    """Median loss of the lines before a fixed count.

    unit: tokens (over all GPUs) or steps
    """

    unit: str
    count: int
    loss: float


class LossLine(TypedDict):
    """Line with a loss; tokens: over all GPUs up to the line, None if unknown."""

    step: int
    tokens: float | None
    loss: float


class SetupColumns(TypedDict):
    """Identity and settings of a run."""

    run_id: str
    name: str
    framework: str
    log_format: str
    framework_version: str | None
    synthetic: bool | None
    model: str | None
    accelerator: str | None
    device: str | None
    gpus: int | None
    seq_len: int | None
    global_batch_size: int | None
    micro_batch_size: int | None
    gradient_accumulation: int | None
    replicas: int | None
    replica_groups: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    context_parallel: int | None
    expert_parallel: int | None
    zero_stage: int | None
    offload: str | None
    compile: str | None
    torch: str | None
    cuda: str | None
    nccl: str | None
    driver: str | None
    commit: str | None
    packed: str | None
    attention: str | None
    quantization: str | None
    inferred: list[str]
    precision: str | None
    recompute: str | None
    trainable: str | None
    step_unit: str | None
    rate_excludes_data: bool | None
    steps: int
    tokens_per_second: float | None


class RateColumns(TypedDict):
    """Tokens per second per GPU: steady, with its interval and spread, and end to end."""

    tgs: float | None
    tgs_low: float | None
    tgs_high: float | None
    tgs_slots: float | None
    tgs_median: float | None
    tgs_p5: float | None
    tgs_p95: float | None
    tgs_mad: float | None
    tgs_trimmed: float | None
    tgs_with_spikes: float | None
    tgs_without_spikes: float | None
    tgs_end_to_end: float | None


class StepRateColumns(TypedDict):
    """Rates of steps that need no token count, and the peak memory of one GPU.

    memory_slope: bytes an hour; 0 if the peak memory does not grow
    """

    seconds_per_step: float | None
    seconds_per_step_low: float | None
    seconds_per_step_high: float | None
    samples_per_second: float | None
    samples_per_update: float | None
    tokens_per_update: float | None
    peak_memory_bytes: float | None
    memory_slope: float | None
    memory_changes: list[MemoryChange] | None


class EnergyColumns(TypedDict):
    """Energy of the GPUs in steady windows; None if unknown.

    power_w: mean of one GPU
    """

    joules_per_token: float | None
    kwh_per_billion_tokens: float | None
    power_w: float | None
    energy_source: str | None


class RunCourseColumns(TypedDict):
    """Start-up [s], growth of the peak memory inside the run as a share, and losses."""

    startup_s: float | None
    memory_growth: float | None
    losses: list[LossAtCount] | None


class UtilizationColumns(TypedDict):
    """MFU and HFU of a run, with their FLOPs and peaks."""

    mfu: float | None
    mfu_language_model: float | None
    mfu_full_attention: float | None
    mfu_conservative: float | None
    mfu_bf16: float | None
    mfu_bf16_full_attention: float | None
    hfu_low: float | None
    hfu_high: float | None
    hfu_language_model_low: float | None
    hfu_language_model_high: float | None
    implied: float | None
    params_total: int | None
    work: str | None
    attention_pattern: str | None
    attended_pairs: float | None
    trained: str | None
    flops_per_token: float | None
    flops_per_token_full_attention: float | None
    flops_source: str | None
    peak_flops: float | None
    peak_source: str | None


class RateBasisColumns(TypedDict):
    """Basis of the rates: tokens, times, windows, and the evidence against them."""

    token_basis: str | None
    time_basis: str | None
    end_to_end_basis: str | None
    excluded_share: float | None
    excluded_causes: list[str] | None
    data_share: float | None
    windows: int | None
    effective_windows: float | None
    interval_freedom: float | None
    no_interval: str | None
    steady_from: int | None
    wall_s: float | None
    wall_basis: str | None
    time_lost: list[TimeLost] | None
    slowest_steps: list[SlowStep] | None
    levels: list[SpeedLevel] | None
    drift: float | None
    drift_low: float | None
    drift_high: float | None
    pauses: list[PauseLevel] | None
    evidence_gap: float | None
    evidence_windows: int | None
    evidence_cause: str | None
    token_gap: float | None
    token_counts: list[str] | None


class CourseColumns(TypedDict):
    """Logged figures, the course of the run, and missing or doubtful facts."""

    tokens_per_gpu_step: float | None
    attention_ratio: float | None
    image_counts: ImageCounts | None
    sequence_length: float | None
    formula: str
    logged_tgs: float | None
    logged_tflops: float | None
    logged_mfu: float | None
    logged_tgs_total: float | None
    logged_samples_per_second: float | None
    logged_samples_running: float | None
    logged_formula: str | None
    logged_reproduced: bool | None
    logged_lines: int | None
    logged_lines_reproduced: int | None
    logged_unexplained: float | None
    logged_flops_per_token: float | None
    logged_peak: float | None
    logged_unit: float | None
    logged_flops_low: float | None
    logged_flops_high: float | None
    logged_hypothesis: str | None
    logged_not_compared: str | None
    logged_lengths: list[int] | None
    proven: list[str]
    error: str | None
    missing: list[str]
    warnings: list[str]
    warning_kinds: list[str]
    doubts: list[str]
    sources: list[str]
    members: list[str]
    launch: int
    started_at: datetime | None
    outcome: str | None
    outcome_text: str | None
    last_step: int | None
    total_steps: int | None
    continues: str | None
    repeated_steps: int | None
    goodput: float | None
    goodput_share: float | None
    goodput_launches: int | None
    lost_to_restarts_s: float | None
    ranks: int | None
    rank_steps: int | None
    rank_spread: float | None
    slowest_rank: str | None
    slowest_share: float | None
    slow_ranks: list[SlowRanks] | None
    bound: str | None
    phases: list[PhaseTime] | None
    phase_step_s: float | None
    phase_notes: list[str] | None
    phase_note_kinds: list[str] | None


class MetricsRow(
    SetupColumns,
    RateColumns,
    StepRateColumns,
    EnergyColumns,
    RunCourseColumns,
    UtilizationColumns,
    RateBasisColumns,
    CourseColumns,
):
    """Row of METRICS. The order of the base classes is the order of the columns."""


METRICS: Final = pl.Schema(row_dtypes(MetricsRow))
TIME_LOST_STRUCT: Final = pl.Struct(row_dtypes(TimeLost))
LOSS_LINE_FIELDS: Final = row_dtypes(LossLine)


def metrics_rows(metrics: pl.DataFrame) -> list[MetricsRow]:
    """Return the rows of a frame with the columns of METRICS, or with all used ones."""
    return cast(list[MetricsRow], metrics.to_dicts())


def metrics_row(metrics: pl.DataFrame, run_id: str) -> MetricsRow:
    """Return the row of one run; the frame has the columns of METRICS."""
    return cast(MetricsRow, metrics.row(by_predicate=pl.col("run_id") == run_id, named=True))


def value_of(row: Mapping[str, object], column: str) -> Any:  # noqa: ANN401 - of any column
    """Return the value of a column whose name is only known at run time."""
    return row[column]


def not_null(value: Value | None) -> Value:
    """Return a value that is never null here, such as the TGS of a ranked run.

    Raises ValueError.
    """
    if value is None:
        raise ValueError("null where a value is certain")
    return value


def with_cross_run_warnings(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return rows of METRICS with warnings that compare runs.

    These warnings are `formula_change_warnings`. All else in a row depends only on its own launch
    and on the launches that it continues.
    """
    dated = metrics.filter(pl.col("logged_flops_low").is_not_null()).select(FORMULA_CHANGE_COLUMNS)
    found = formula_change_warnings(metrics_rows(dated))
    if not found:
        return metrics
    is_found = pl.col("run_id").is_in(list(found))
    text = pl.col("run_id").replace_strict(found, default=None, return_dtype=TEXT)
    more = {"warnings": text, "warning_kinds": pl.lit(FORMULA_CHANGED.identifier)}
    return metrics.with_columns(
        pl.when(is_found).then(pl.concat_list(name, value)).otherwise(name).alias(name)
        for name, value in more.items()
    )


def short_doubt(doubts: Sequence[str]) -> str | None:
    """Return the worst of a run's doubts in a few words; None without doubts."""
    clause = worst_doubt(doubts, CLAUSE_ENDS)
    if clause is None or len(clause) <= MAX_CLAUSE:
        return clause
    return f"{clause[: MAX_CLAUSE - 1].rstrip()}…"


def worst_doubt(doubts: Sequence[str], ends: Sequence[str] = (". ", ": ")) -> str | None:
    """Return the worst of a run's doubts up to one of `ends`; None without doubts."""
    if not doubts:
        return None
    worst = next((doubt for doubt in doubts if doubt.startswith(NOT_RANKED)), doubts[0])
    clause = as_sentence(worst)
    found = (at for mark in ends if (at := clause.find(mark, MIN_CLAUSE)) > 0)
    return clause[: min(found, default=len(clause))].removesuffix(".")


CLAUSE_ENDS: Final = (". ", ": ", "; ", " (", ", ")
"""Marks that may end a doubt beside a figure."""
MIN_CLAUSE: Final = 24
MAX_CLAUSE: Final = 44
"""Characters of a doubt shown beside a figure; the warnings show the whole sentence."""


FORMULA_CHANGE_COLUMNS: Final = (
    *("run_id", "name", "started_at", "framework", "model", "seq_len", "recompute"),
    *("logged_flops_low", "logged_flops_high", "logged_reproduced", "logged_formula"),
)


def formula_change_warnings(rows: Sequence[MetricsRow]) -> dict[str, Message]:
    """Warn where logged figures imply other FLOPs than an earlier run of equal work.

    Equal work: the same framework, model, sequence length and recompute. So the framework's formula
    has changed between the two runs, or one of the logs states a wrong fact.

    rows: of METRICS, with the columns of FORMULA_CHANGE_COLUMNS, in any order

    Returns the warnings by run_id.
    """
    found: dict[str, Message] = {}
    before: dict[tuple[Any, ...], MetricsRow] = {}
    dated = [row for row in rows if row["started_at"] is not None]
    for row in sorted(dated, key=lambda row: (row["started_at"], row["name"], row["run_id"])):
        key = (row["framework"], row["model"], row["seq_len"], row["recompute"])
        low, high = row["logged_flops_low"], row["logged_flops_high"]
        if None in key[:3] or low is None or high is None or low > high:
            continue
        other, before[key] = before.get(key), row
        if other is None or _one_formula(row, other):
            continue
        other_low, other_high = (
            not_null(other["logged_flops_low"]),
            not_null(other["logged_flops_high"]),
        )
        if high < other_low or low > other_high:
            found[row["run_id"]] = FORMULA_CHANGED(
                mean=(low + high) / 2,
                other=other["name"],
                other_mean=(other_low + other_high) / 2,
            )
    return found


def _one_formula(row: MetricsRow, other: MetricsRow) -> bool:
    """Return whether one formula reproduces both prints.

    Then their facts explain the difference.
    """
    both = row["logged_reproduced"] and other["logged_reproduced"]
    return bool(both) and row["logged_formula"] == other["logged_formula"]
