"""The schema of the tables of a store: dtype, unit and meaning of every column.

Seconds and FLOPs are Float64, token and line counts Int64. Times are naive, as printed: the time
zone is unknown if the log lacks one. `logged_*` columns are a framework's own claims: stored,
shown, and never used in the formula.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import UnionType
from typing import (
    Annotated,
    Final,
    Literal,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import polars as pl

SCHEMA_VERSION: Final = "3"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Range of a quantity: `lowest` to `highest`; if not 0, at least `smallest`."""

    lowest: float
    highest: float
    smallest: float = 0.0

    def why_not(self, value: float) -> str:
        """Return the range in words."""
        if 0 < abs(value) < self.smallest:
            return f"it is at least {self.smallest:g}"
        least = "up" if self.lowest == -self.highest else _plain(self.lowest)
        return f"it is {least} to {_plain(self.highest)}"

    def __contains__(self, value: float) -> bool:
        return self.lowest <= value <= self.highest and (not value or abs(value) >= self.smallest)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e10 else f"{value:g}"  # noqa: PLR2004 - as people read


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `unit`: empty for names, texts and plain counts."""

    dtype: pl.DataType
    unit: str
    meaning: str


TEXT, INT, FLOAT, BOOL = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
TEXT_LIST = pl.List(pl.String)
TIMESTAMP = pl.Datetime("us")
UNMATCHED_KIND = pl.Struct({"count": pl.Int64, "line": pl.Int64, "example": pl.String})

SCALAR_DTYPES: Final[Mapping[object, pl.DataType]] = {
    str: TEXT,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    datetime: TIMESTAMP,
}
"""Polars dtype of a column, by the Python type of its values."""


def row_dtypes(row_type: type) -> dict[str, pl.DataType]:
    """Return the Polars dtypes of the keys of a TypedDict, in order.

    Raises KeyError for a type that no column has.
    """
    return {name: _dtype(hint) for name, hint in get_type_hints(row_type).items()}


def _dtype(hint: object) -> pl.DataType:
    """Return the Polars dtype of a type hint.

    `X | None` is X, as every column may be null.
    """
    if isinstance(hint, UnionType):
        (hint,) = (member for member in get_args(hint) if member is not type(None))
    if get_origin(hint) is list:
        return pl.List(_dtype(get_args(hint)[0]))
    if isinstance(hint, type) and is_typeddict(hint):
        return pl.Struct(row_dtypes(hint))
    return SCALAR_DTYPES[hint]


SOURCE_COLUMNS: Final[dict[str, Column]] = {
    "sha256": Column(TEXT, "", "content hash; the identity of a source"),
    "path": Column(TEXT, "", "path of the file when it was read"),
    "bytes": Column(INT, "bytes", "size as read (compressed size of a compressed file)"),
    "log_format": Column(TEXT, "", "the primary format"),
    "companions": Column(TEXT_LIST, "", "further formats with lines in the file"),
    "lines": Column(INT, "lines", "all lines; the sum of the five counts below"),
    "step_lines": Column(INT, "lines", "read as steps, before ranks are folded"),
    "known_lines": Column(INT, "lines", "read as facts or events, or blank"),
    "other_lines": Column(INT, "lines", "match no pattern"),
    "unread_lines": Column(INT, "lines", "look like steps or facts, and could not be read"),
    "companion_lines": Column(INT, "lines", "step lines of a companion format, kept as events"),
    "other_kinds": Column(
        pl.List(UNMATCHED_KIND), "", "the commonest other lines, one example each"
    ),
    "read_at": Column(TIMESTAMP, "", "UTC, when it was first read; stays while the file grows"),
    "reading": Column(
        INT,
        "",
        "number of changes in parsing that its reader had (READING_CHANGES); null: none",
    ),
    "forced": Column(
        TEXT_LIST, "", "formats given with --log-format; null: detected from its lines"
    ),
    "read_s": Column(FLOAT, "s", "time to read it; small files read together share it by bytes"),
    "read_mb_per_s": Column(FLOAT, "MB/s", "`bytes` over `read_s`"),
    "block_lines": Column(INT, "lines", "read many at once, the fastest way"),
    "regex_lines": Column(INT, "lines", "read one by one, the slowest way"),
    "cached_lines": Column(
        INT, "lines", "match no pattern, by prefilter or by a like earlier line"
    ),
}

READING_COSTS: Final = ("read_s", "read_mb_per_s", "block_lines", "regex_lines", "cached_lines")
"""Columns of `sources` with the cost of reading: they differ every time a source is read."""


@dataclass(frozen=True, slots=True)
class Described:
    """Unit and meaning of a key of a row: `Annotated[X, Described(…)]`."""

    meaning: str
    unit: str = ""


class RunRow(TypedDict):
    """A row of the table `runs`: one launch of one source."""

    run_id: Annotated[str, Described("hash of the launch's first lines; stays when the file moves")]
    sha256: Annotated[str, Described("the source")]
    name: Annotated[str, Described("short name for people")]
    launch: Annotated[int, Described("number of the launch within its source, from 1")]
    framework: Annotated[
        str,
        Described(
            "xtuner, torchtitan, deepspeed, transformers without it, megatron-lm, or megatron: "
            "Megatron-LM or a fork of it"
        ),
    ]
    log_format: Annotated[str, Described("the format that its steps were read with")]
    first_line: Annotated[int | None, Described("first line of the launch", "line")]
    last_line: Annotated[int | None, Described("last line of the launch", "line")]
    started_at: Annotated[
        datetime | None,
        Described("first time stamp of the launch as printed; null if the log has no year"),
    ]
    utc: Annotated[bool | None, Described("time stamps are UTC; otherwise their zone is unknown")]
    outcome: Annotated[str | None, Described("how the launch ended: one of OUTCOMES")]
    outcome_line: Annotated[
        int | None, Described("the line that shows the outcome; null if none does", "line")
    ]
    outcome_text: Annotated[
        str | None, Described("text of that line, and of what failed after training had ended")
    ]
    step_unit: Annotated[
        str | None, Described("what one `step` counts: optimizer_step or micro_step")
    ]
    elapsed_covers: Annotated[
        str | None, Described("what elapsed_s averages: step, interval, last_10, or null")
    ]
    elapsed_excludes_data: Annotated[
        bool | None, Described("elapsed_s excludes data loading (data_s has it)")
    ]
    rate_covers: Annotated[
        str | None, Described("what a logged rate covers: interval, step, or null")
    ]
    rate_excludes_data: Annotated[bool | None, Described("the logged rate excludes data loading")]
    evidence: Annotated[
        list[str] | None, Described("time evidence by preference: elapsed, rate, clock, stamp")
    ]
    synthetic: Annotated[bool | None, Described("the log says that it is synthetic")]
    quirks: Annotated[list[str] | None, Described("special meanings of its figures, of QUIRKS")]
    engine_below: Annotated[
        str | None, Described("framework below the trainer, which may print step lines too")
    ]
    times_elsewhere: Annotated[
        str | None, Described("for lines without times: where to find times, or why there are none")
    ]
    phase_timers: Annotated[
        str | None,
        Described("JSON: its printed timers, and the phase of a step that each measures"),
    ]


PHASES: Final[Mapping[str, str]] = {
    "data": "fetching the batch, as far as the step waits for it",
    "forward": "forward pass",
    "backward": "backward pass, with collectives that overlap with it",
    "forward_backward": "forward and backward pass, where the log times them together",
    "collectives": "communication between ranks that the log times apart, with its waits",
    "pipeline": "sends and receives between pipeline stages, with waiting for the other stage",
    "optimizer": "optimizer step, without collectives that the log times apart",
    "rest": "step time outside all of these",
    "checkpoint": "saving checkpoints, beside steady steps",
    "evaluation": "evaluation, beside steady steps",
}
"""Phases of a training step, in the order of tables. The last two lie beside steady steps."""

TIMED_PHASES: Final = (
    "data",
    "forward",
    "backward",
    "forward_backward",
    "collectives",
    "pipeline",
    "optimizer",
)
"""Phases that timers of a step can measure."""

TIMER_SPANS: Final[Mapping[str, str]] = {
    "step": "one step, or the mean of the steps since the last print",
    "interval": "the sum of the steps since the last step line",
    "micro_step": "one micro-step of the gradient accumulation",
}
"""Time spans that one printed value of a timer can cover."""

TIMER_CAVEATS: Final[Mapping[str, str]] = {
    "host_time": "a time of the host, which runs ahead of the GPU",
    "max_over_ranks": "the longest time over the ranks, each timer from another rank",
    "overlapped": "collectives that overlap with another phase count as that phase",
    "waits": "includes waiting for other ranks",
}
"""Properties of a timer that its reader must know."""


QUIRKS: Final[Mapping[str, str]] = {
    "rates_rounded": "printed rates are rounded to whole numbers",
    "accumulation_stated": "a log that states no gradient accumulation has none",
    "tokens_of_processes": "printed tokens are summed over processes, including those that get "
    "the same tokens",
    "tokens_of_ranks": "printed tokens are summed over ranks; ranks that share a sequence each "
    "count all of it, and their number is not logged",
    "tokens_of_labels": "printed tokens are those in the loss: padding and prompts that the loss "
    "ignores are left out",
    "first_step_stamped_at_end": "the stamp of the first step is its end, so the start of the run "
    "is unknown",
    "step_unsaid": "lines with figures print no step, so a copy may appear at another step",
    "single_writer": "one process of a job prints the steps, usually without a loss",
    "timer_of_steps": "the engine's timer covers exactly the steps of these lines",
    "steps_of_bar": "steps are those of a progress bar, which may count other things than "
    "optimizer updates",
    "wait_has_pauses": "the wait for data of a step has all that runs since the step before: an "
    "evaluation, which prints no line, or a checkpoint",
    "claims_follow_rate": "TFLOP/s and MFU of a line are its rate times the FLOPs per token, which "
    "a run computes once",
}
"""Habits of single formats that change the meaning of their figures."""


RUN_COLUMNS: Final[dict[str, Column]] = {
    name: Column(_dtype(get_args(hint)[0]), hint.__metadata__[0].unit, hint.__metadata__[0].meaning)
    for name, hint in get_type_hints(RunRow, include_extras=True).items()
}

FACT_COLUMNS: Final[dict[str, Column]] = {
    "run_id": Column(TEXT, "", "the run"),
    "name": Column(TEXT, "", "one of FACT_NAMES"),
    "value": Column(TEXT, "", "as given, in the unit of FACT_NAMES"),
    "origin": Column(TEXT, "", "flag, sidecar:…, log:LINE, companion:… or inferred:…"),
    "line": Column(INT, "line", "line in the log, if it is from there"),
    "sequence": Column(
        INT, "", "order within the run: of two with the same kind of origin, the later applies"
    ),
    "text": Column(
        TEXT, "", "first 500 characters of that line; in a block, the line with the value"
    ),
}

STEP_COLUMNS: Final[dict[str, Column]] = {
    "run_id": Column(TEXT, "", "the run"),
    "line": Column(INT, "line", "in the source, from 1"),
    "rank": Column(
        TEXT,
        "",
        "the launcher's or framework's rank tag as printed, after the number of the log's replica "
        "group; null without",
    ),
    "step": Column(
        INT, "steps", "in the unit `runs.step_unit`, counted from the start of training"
    ),
    "epoch": Column(INT, "epochs", "as printed"),
    "logged_at": Column(TIMESTAMP, "", "time stamp of the line as printed"),
    "since_start_s": Column(FLOAT, "s", "wall time since the training loop began, as printed"),
    "elapsed_s": Column(FLOAT, "s", "time per step as printed; see runs.elapsed_covers"),
    "data_s": Column(FLOAT, "s", "data loading per step as printed"),
    "samples": Column(INT, "sequences", "of one optimizer step over all ranks (global batch size)"),
    "sequence_length": Column(INT, "tokens", "of one sample in this step"),
    "rank_tokens": Column(FLOAT, "tokens", "non-padding tokens of this step on this rank"),
    "rank_slots": Column(FLOAT, "tokens", "the same with padding"),
    "step_tokens": Column(FLOAT, "tokens", "non-padding tokens of this step over all ranks"),
    "consumed_samples": Column(INT, "sequences", "since the start of training, over all ranks"),
    "consumed_tokens": Column(FLOAT, "tokens", "since the start of training, over all ranks"),
    "consumed_non_padding": Column(
        FLOAT, "tokens", "non-padding, since the process started, over all ranks"
    ),
    "attention_ratio": Column(FLOAT, "", "sum of n_i^2 over documents / sum of pack^2"),
    "image_tokens": Column(
        FLOAT,
        "tokens",
        "of the images of this step on this rank: patches where images keep their size, tokens of "
        "the language model where they are cut into tiles of one size",
    ),
    "image_attention_ratio": Column(
        FLOAT, "", "sum of n_i^2 over images / sum over packs of their images' tokens, squared"
    ),
    "loss": Column(FLOAT, "", "as printed"),
    "grad_norm": Column(FLOAT, "", "as printed"),
    "learning_rate": Column(FLOAT, "", "of the first parameter group"),
    "loss_scale": Column(FLOAT, "", "fp16 loss scale"),
    "skipped_steps": Column(INT, "steps", "optimizer steps skipped for overflow, as printed"),
    "peak_memory_bytes": Column(FLOAT, "bytes", "peak of the GPU allocator, as printed"),
    "logged_tgs": Column(FLOAT, "tokens/s/GPU", "as printed by the framework"),
    "logged_samples_per_second": Column(FLOAT, "sequences/s", "as printed, over all ranks"),
    "logged_tflops": Column(FLOAT, "TFLOP/s/GPU", "as printed, by the framework's formula"),
    "logged_mfu": Column(
        FLOAT, "", "as printed, as a fraction, by the framework's formula and peak"
    ),
    "extra": Column(TEXT, "", "JSON of printed fields that have no column"),
}

EVENT_COLUMNS: Final[dict[str, Column]] = {
    "run_id": Column(TEXT, "", "the run"),
    "line": Column(INT, "line", "in the source, from 1"),
    "kind": Column(TEXT, "", "one of EVENT_KINDS"),
    "step": Column(INT, "steps", "as printed; null if the line has none"),
    "logged_at": Column(TIMESTAMP, "", "time stamp of the line as printed"),
    "seconds": Column(FLOAT, "s", "duration as printed"),
    "extra": Column(TEXT, "", "JSON of printed fields that have no column"),
    "text": Column(TEXT, "", "the line"),
}

UNREAD_COLUMNS: Final[dict[str, Column]] = {
    "sha256": Column(TEXT, "", "the source"),
    "line": Column(INT, "line", "in the source, from 1"),
    "reason": Column(TEXT, "", "why it could not be read, and how much of it matched"),
    "text": Column(TEXT, "", "its first 500 characters"),
}

TABLES: Final[dict[str, dict[str, Column]]] = {
    "sources": SOURCE_COLUMNS,
    "runs": RUN_COLUMNS,
    "facts": FACT_COLUMNS,
    "steps": STEP_COLUMNS,
    "events": EVENT_COLUMNS,
    "unread": UNREAD_COLUMNS,
}


LATER_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "runs": ("quirks", "engine_below", "times_elsewhere", "phase_timers"),
    "sources": ("reading", "forced", *READING_COSTS),
    "facts": ("text",),
    "steps": ("consumed_non_padding", "image_tokens", "image_attention_ratio"),
}
"""Columns added to this schema later. Older files lack them and read as null."""


@dataclass(frozen=True, slots=True)
class ReadingChange:
    """A change in parsing that may change our figures.

    what: as in "since it was read …". formats: primary formats and companions of the logs that
    change; empty for all logs.
    """

    what: str
    formats: tuple[str, ...] = ()


READING_CHANGES: Final[tuple[ReadingChange, ...]] = (
    ReadingChange(
        "parsing changed in every format (for example, preference and reinforcement training are "
        "distinguished from language modelling)"
    ),
    ReadingChange("`mfu: N/A` and more lines of quantisation are read", ("torchtitan",)),
    ReadingChange("several runs in one log are separated by names, code blocks or clocks"),
    ReadingChange("the lines of a pipeline's engine are distinguished from others", ("deepspeed",)),
    ReadingChange(
        "image tokens, frozen parts and models with a vision tower are read",
        ("xtuner-v1",),
    ),
    ReadingChange(
        "launch commands, nested model configs and start lines of more tools give facts",
        ("torchtitan", "xtuner-v1", "hf-trainer", "ms-swift", "deepspeed-chat", "deepspeed"),
    ),
    ReadingChange(
        "dicts that waited in a buffer have the steps and times of their progress bar",
        ("hf-trainer",),
    ),
    ReadingChange(
        "the outcome shows gradients that are not finite, and facts follow one set of rules for "
        "printed arguments and for commands"
    ),
    ReadingChange(
        "launches that failed before their first step, or follow a command, are launches of their "
        "own"
    ),
    ReadingChange(
        "a mean speed of few digits gives no time of a step",
        ("hf-trainer", "hf-trainer-state", "ms-swift", "llamafactory"),
    ),
    ReadingChange(
        "lines of the launcher and the engine give the time of the launch, and the wait for data "
        "is in E2E latency",
        ("deepspeed-chat", "deepspeed-chat-rlhf"),
    ),
    ReadingChange(
        "an error of a job script begins no launch, only SIGINT, SIGKILL and SIGTERM are kills, "
        "and `Training done` is an end"
    ),
    ReadingChange(
        "the stamps of a log file of the trainer's own time its dicts, and more dicts have the "
        "planned steps",
        ("hf-trainer",),
    ),
    ReadingChange("more printed arguments and launch commands give facts"),
    ReadingChange("a timeout that the watchdog of collectives reports is an error"),
    ReadingChange(
        "an excerpt of lines without a step has no made-up steps, and losses that are not finite, "
        "cut-off tracebacks and failed exits after a normal end give the outcome"
    ),
    ReadingChange(
        "options of a script in a launch command give the sequence length, and more lines on "
        "processes the precision",
    ),
    ReadingChange(
        "a failure after the end of training leaves the run completed, and `Aborted!` is a kill"
    ),
    ReadingChange("step lines with the planned steps, `step: 640/644`, are read", ("torchtitan",)),
)
"""In order of time; never remove an entry. Sources read before the last one need another reading.
"""


def reading_changes_since(
    reading_number: int | None, log_format: str, companions: Collection[str] | None
) -> list[str]:
    """Return the changes in parsing since a source was read.

    Arguments: columns of `sources`.
    """
    since, formats = READING_CHANGES[reading_number or 0 :], (log_format, *(companions or ()))
    return [c.what for c in since if not c.formats or set(c.formats) & set(formats)]


def run_rows(runs: pl.DataFrame) -> list[RunRow]:
    """Return the rows of a frame that has the columns of `runs`, and may have more."""
    return cast(list[RunRow], runs.to_dicts())


def frame_schema(table: str) -> pl.Schema:
    """Return the Polars schema of a table of `TABLES`."""
    return pl.Schema({name: column.dtype for name, column in TABLES[table].items()})


OUTCOMES: Final[dict[str, str]] = {
    "completed": "the log says that training ended, or has its last planned step",
    "out_of_memory": "a GPU or the host ran out of memory",
    "crashed": "an error ended it",
    "killed": "a signal, the scheduler or a time limit ended it",
    "nan_loss": "the loss or the gradients are not finite at the end, and no error ended it",
    "incomplete": "the log stops without a reason: it may still be running",
}

THEN_FAILED: Final = "; then failed: "
"""Stands in `outcome_text` between the end of training and a failure after it."""

EVENT_KINDS: Final[dict[str, str]] = {
    "checkpoint": "saving or staging a checkpoint",
    "load": "loading a checkpoint",
    "evaluation": "validation or evaluation",
    "profiler": "a profiler ran or wrote its traces",
    "gc": "garbage collection",
    "compile": "compilation or recompilation",
    "overflow": "an fp16 step was skipped",
    "timers": "a breakdown of a step's time",
    "memory": "memory in use, as printed",
    "setup": "a stage of the start-up is done",
    "engine_start": "an engine was built",
    "train_start": "training begins; the first step follows",
    "output": "a file that the launch writes, by its name",
    "engine_step": "a step line of a companion format",
    "restart": "the launcher started workers again",
    "end": "training ended as planned",
    "error": "an error, with its message",
    "out_of_memory": "an allocation failed",
    "killed": "a signal, the scheduler or a time limit",
    "warning": "a warning that affects the figures",
}

RESTART_EVENT_KINDS: Final = ("error", "out_of_memory", "killed", "restart")
"""Events after which processes start again."""

NO_BATCH_CHANGES: Final = "none"
"""Value of `batch_changes` for a log whose steps keep the batch that the log, or its reader, gives.
"""

COUNTED_RANKS_SUFFIX: Final = "ranks print step lines"
"""End of the origin of a `gpus` counted in one log: other logs of the launch may have more ranks.
"""

TOKEN_SHARING_DEGREES: Final = ("tensor_parallel", "pipeline_parallel", "context_parallel")
"""Degrees whose ranks share the tokens of a local batch."""

FactKind = Literal["int", "float", "bool", "text", "json"]


@dataclass(frozen=True, slots=True)
class FactName:
    """An input that a run may have. `choices`: the allowed words; empty for any text."""

    kind: FactKind
    unit: str
    meaning: str
    choices: tuple[str, ...] = ()


# Inputs of the formula, and facts that check them. `--set NAME=VALUE` accepts these names.
FACT_NAMES: Final[dict[str, FactName]] = {
    "name": FactName(
        "text",
        "",
        "name of the run, or of all runs of a folder if its facts.toml gives it; without dates and "
        "numbers, of the job",
    ),
    "gpus": FactName("int", "accelerators", "GPUs as the framework counts them (world size)"),
    "accelerator": FactName("text", "", "name of the GPU as the framework prints it"),
    "peak_flops": FactName("float", "FLOP/s", "dense peak of one GPU for the run's precision"),
    "model": FactName("text", "", "a known model, or the framework's flavor"),
    "model_config": FactName("json", "", "a Hugging Face config.json (a path with --set)"),
    "flops_per_token": FactName(
        "float", "FLOP/token", "forward and backward of one token, where no formula gives them"
    ),
    "operators": FactName(
        "json", "", "operator list of fairmfu flops --format json (a path with --set)"
    ),
    "megatron_arguments": FactName("json", "", "the arguments header of Megatron-DeepSpeed"),
    "torchtitan_arguments": FactName("json", "", "ModelArgs as Torchtitan prints them"),
    "vocab_size": FactName("int", "tokens", "unpadded vocabulary"),
    "padded_vocab_size": FactName("int", "tokens", "rows of an lm_head padded for its ranks"),
    "params_total": FactName("int", "parameters", "as the log prints it; checks the model"),
    "rank_params": FactName(
        "text", "", "(tensor, pipeline) rank: parameters on it, as printed; checks the model"
    ),
    "seq_len": FactName("int", "tokens", "length of one training sequence (of the whole pack)"),
    "document_mask": FactName("bool", "", "attention stops at document borders inside a pack"),
    "token_dropping": FactName(
        "bool", "", "some layers skip tokens (random-LTD), so the formula does not apply"
    ),
    "objective": FactName(
        "text",
        "",
        "training objective; others than language_modeling need more work than one model's step",
        ("language_modeling", "preference", "reinforcement"),
    ),
    "mtp_modules": FactName("int", "", "modules of multi-token prediction that are trained; or 0"),
    "mtp_trained": FactName("bool", "", "the log prints a loss of multi-token prediction"),
    "mean_sample_length": FactName("float", "tokens", "mean of all samples, without padding"),
    "sample_length_deviation": FactName(
        "float", "tokens", "standard deviation of the lengths of all samples, without padding"
    ),
    "attended_pairs": FactName("float", "pairs/token", "attended pairs per token, if known"),
    "packed": FactName("bool", "", "samples fill the sequence length: no padding"),
    "tokens_per_step": FactName(
        "float", "tokens", "mean per optimizer step over all ranks, without padding"
    ),
    "sequences_per_sample": FactName(
        "int", "sequences", "sequences in one sample of a batch; 2 for preference pairs"
    ),
    "micro_batch_size": FactName("int", "sequences", "per data-parallel rank and micro-step"),
    "global_batch_size": FactName("int", "sequences", "per optimizer step over all ranks"),
    "gradient_accumulation": FactName("int", "micro-steps", "per optimizer step"),
    "batch_changes": FactName(
        "text",
        "",
        "how a log shows that steps have batches other than the stated one; "
        f"{NO_BATCH_CHANGES}: they do not",
    ),
    "data_parallel": FactName("int", "ranks", "replicas times shards"),
    "replicas": FactName("int", "", "of the sharded model; 1: shards on all data-parallel ranks"),
    "replica_groups": FactName(
        "int", "", "jobs that train one model together, each with its GPUs and its log (TorchFT)"
    ),
    "replica_group": FactName("int", "", "the log's own group, from 0"),
    "tensor_parallel": FactName("int", "ranks", "share the same tokens"),
    "pipeline_parallel": FactName("int", "ranks", "share the same tokens"),
    "context_parallel": FactName("int", "ranks", "share one sequence (also sequence parallel)"),
    "expert_parallel": FactName("int", "ranks", "experts' shards; overlap the data-parallel ranks"),
    "precision": FactName(
        "text",
        "",
        "number format of the matmuls; with fp8, mxfp8, nvfp4, lm_head and attention are in bf16",
        ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8+lm_head", "mxfp8", "nvfp4"),
    ),
    "mixed_precision": FactName(
        "text",
        "",
        "what casts to `precision`; none: it is `weights_precision`, whatever the config says",
    ),
    "weights_precision": FactName("text", "", "number format of the weights, if not fp32"),
    "recompute": FactName(
        "text",
        "",
        "activation checkpointing; selective_attention: only core attention (Megatron)",
        ("none", "full", "selective_attention", "selective"),
    ),
    "trainable": FactName("text", "", "what is trained", ("full", "lora", "frozen")),
    "frozen_parts": FactName(
        "text",
        "",
        "parts of a model with a vision tower that are not trained: vision, projector or language, "
        "separated by commas; or none",
    ),
    "videos": FactName(
        "bool", "", "images of a vision tower are videos, whose frames do not attend to each other"
    ),
    "lora_rank": FactName("int", "", "rank r of the adapters"),
    "lora_targets": FactName("text", "", "all-linear, every-linear (and lm_head), or names"),
    "pipelined": FactName(
        "bool", "", "a pipeline engine prints the steps: its stages share each micro-batch"
    ),
    "zero_stage": FactName("int", "", "ZeRO stage"),
    "offload": FactName(
        "text",
        "",
        "what ZeRO or FSDP keeps outside the GPU: optimizer, parameters, both with a comma, or "
        "none",
    ),
    "log_interval": FactName("int", "steps", "steps between two step lines"),
    "steps_counted": FactName(
        "bool", "", "lines print no step: each counts as one, however many lie between"
    ),
    "start_missing": FactName(
        "bool", "", "lines print no step, and the log may begin in the middle: steps are unknown"
    ),
    "average_window": FactName("int", "steps", "steps that a printed time averages over"),
    "profiled_steps": FactName(
        "int", "steps", "profiled steps per trace, including the profiler's warm-up"
    ),
    "averaged_rates": FactName(
        "text", "", "printed rates that are means over several steps: columns of `steps`"
    ),
    "engine": FactName(
        "text", "", "framework below lines that several frameworks print: deepspeed or megatron-lm"
    ),
    "framework_version": FactName("text", "", "as printed"),
    "started_year": FactName("int", "", "year of a log whose time stamps have none"),
    "logged_peak_flops": FactName("float", "FLOP/s", "the peak that the framework divides by"),
    "logged_formula": FactName("text", "", "the framework's formula behind the logged figures"),
    "total_steps": FactName("int", "steps", "planned"),
    "total_samples": FactName("int", "sequences", "of the data set"),
    "closing_figures": FactName(
        "text", "", "JSON of the Trainer's last dict, from a file beside the log; checks the batch"
    ),
    "power_samples": FactName(
        "text", "", "JSON of the GPUs' power, sampled beside the log by nvidia-smi or DCGM"
    ),
    "power_clock": FactName(
        "text",
        "",
        "clock of the power samples; log: that of the log's time stamps, so no match is needed",
        ("log",),
    ),
    "uncounted_tokens": FactName(
        "text", "", "why the printed token count is not that of the training"
    ),
    "mixed_writers": FactName(
        "text", "", "lines of several runs that cannot be separated: there is no rate"
    ),
    "attention": FactName("text", "", "attention implementation as printed"),
    "quantization": FactName("text", "", "quantization line as printed"),
    "quantized": FactName("text", "", "other sign of quantized weights, as printed"),
    "optimizer": FactName("text", "", "as printed"),
    "compile": FactName("bool", "", "torch.compile"),
    "cuda": FactName("text", "", "CUDA or other GPU runtime as printed"),
    "torch": FactName("text", "", "PyTorch version as printed"),
    "nccl": FactName("text", "", "NCCL version as printed"),
    "driver": FactName("text", "", "version of the GPU driver as printed"),
    "commit": FactName("text", "", "commit of the code, as printed or as W&B stored it"),
}


CHOICE_SYNONYMS: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
}
"""Other words for choices of facts."""


def as_choice(fact: FactName, text: str) -> str:
    """Return the choice of a fact that a text means: in capitals, or by another word.

    Returns the text itself if it means none.
    """
    word = text.strip().lower()
    word = CHOICE_SYNONYMS.get(word, word)
    return word if word in fact.choices else text


# --- bounds -----------------------------------------------------------------------------------

MAX_FLOAT32: Final = 3.5e38

FACT_BOUNDS: Final[Mapping[str, Bounds]] = {
    "accelerators": Bounds(1, 1e7),
    "ranks": Bounds(1, 1e7),
    "FLOP/s": Bounds(1e9, 1e18),
    "FLOP/token": Bounds(1e3, 1e16),
    "tokens": Bounds(1, 1e9),
    "pairs/token": Bounds(1, 1e9),
    "sequences": Bounds(1, 1e12),
    "micro-steps": Bounds(1, 1e6),
    "steps": Bounds(1, 1e12),
    "parameters": Bounds(1, 1e15),
    "": Bounds(1, 1e7),
    # facts that differ from others of their unit
    "zero_stage": Bounds(0, 3),
    "mtp_modules": Bounds(0, 1000),
    "sample_length_deviation": Bounds(0, 1e9),
    "tokens_per_step": Bounds(1, 1e12),
    "sequences_per_sample": Bounds(1, 1e6),
    "replica_group": Bounds(0, 1e7),
    "started_year": Bounds(1970, 9999),
}
"""Bounds of the numbers of FACT_NAMES, by name or else by unit. They are far beyond any run's
values: a number outside is a damaged log, or in another unit.
"""

STEP_BOUNDS: Final[Mapping[str, Bounds]] = {
    "step": Bounds(-1, 1e12),
    "epoch": Bounds(-1e9, 1e9),
    "since_start_s": Bounds(-1e10, 1e10, 1e-9),
    "elapsed_s": Bounds(-1e8, 1e8, 1e-9),
    "data_s": Bounds(-1e8, 1e8, 1e-12),
    "samples": Bounds(1, 1e9),
    "sequence_length": Bounds(1, 1e9),
    "rank_tokens": Bounds(0, 1e12, 1e-3),
    "rank_slots": Bounds(0, 1e12, 1e-3),
    "step_tokens": Bounds(0, 1e12, 1e-3),
    "consumed_samples": Bounds(0, 1e15),
    "consumed_tokens": Bounds(0, 1e18, 1e-3),
    "consumed_non_padding": Bounds(0, 1e18, 1e-3),
    "attention_ratio": Bounds(0, 1e3, 1e-12),
    "image_tokens": Bounds(0, 1e12, 1e-3),
    "image_attention_ratio": Bounds(0, 1e3, 1e-12),
    "loss": Bounds(-MAX_FLOAT32, MAX_FLOAT32, 1e-45),
    "grad_norm": Bounds(-MAX_FLOAT32, MAX_FLOAT32, 1e-45),
    "learning_rate": Bounds(-1e6, 1e6, 1e-45),
    "loss_scale": Bounds(-MAX_FLOAT32, MAX_FLOAT32, 1e-45),
    "skipped_steps": Bounds(0, 1e12),
    "peak_memory_bytes": Bounds(0, 1e15, 1e-3),
    "logged_tgs": Bounds(-1e12, 1e12, 1e-9),
    "logged_samples_per_second": Bounds(-1e12, 1e12, 1e-12),
    "logged_tflops": Bounds(-1e9, 1e9, 1e-12),
    "logged_mfu": Bounds(-1e6, 1e6, 1e-15),
}
"""Bounds of the numbers of a step line. Times and rates are negative in good logs too, after a
clock that went back or without a timer. NaN is treated apart, and so is an infinity in columns of
INFINITE_COLUMNS.
"""

INFINITE_COLUMNS: Final = frozenset(
    {"loss", "grad_norm", "learning_rate", "loss_scale"}
    | {"logged_tgs", "logged_samples_per_second", "logged_tflops", "logged_mfu"}
)
"""Columns of a step line that good logs print as infinite: a run that diverged, a time of zero."""

EVENT_BOUNDS: Final[Mapping[str, Bounds]] = {
    "step": Bounds(-1, 1e12),
    "seconds": Bounds(-1e8, 1e8, 1e-12),
}


def fact_bounds(name: str) -> Bounds:
    """Return the bounds of a fact that is a number."""
    return FACT_BOUNDS.get(name) or FACT_BOUNDS[FACT_NAMES[name].unit]


def fact_problem(name: str, text: str) -> str | None:
    """Return the reason why no run can have this value of a fact; None if a run can."""
    fact, shown = FACT_NAMES[name], text[:60]
    if fact.kind in ("int", "float"):
        return _number_problem(name, fact, text)
    if fact.kind == "bool" and text.lower() not in ("true", "false"):
        return f"{name}={shown!r}: write true or false"
    if not text:
        return f"{name} has no value: omit it"
    if fact.choices and text not in fact.choices:
        return f"{name}={shown!r}: write one of {', '.join(fact.choices)}"
    return None


def _number_problem(name: str, fact: FactName, text: str) -> str | None:
    unit, shown = f" [{fact.unit}]" if fact.unit else "", text[:60]
    try:
        value = float(text)
    except ValueError:
        return f"{name}={shown!r} is not a number{unit}"
    if value not in fact_bounds(name):
        return f"{name}={shown} is impossible{unit}: {fact_bounds(name).why_not(value)}"
    if fact.kind == "int" and value != int(value):
        return f"{name}={shown} is not a whole number{unit}"
    return None
