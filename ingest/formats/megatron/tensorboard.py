"""Event files of Megatron-LM and its descendants (`--tensorboard-dir`, one rank).

Every iteration writes its figures, whatever the console's log interval: loss, learning rate, batch
and norms of the iteration. Only the iteration of a log line has `iteration-time`, if
--log-timers-to-tensorboard is set: seconds, the mean over the iterations since the last log line,
with everything in the console's `elapsed time per iteration`. `throughput` is TFLOP/s per GPU by
Megatron's own formula over that time. So a row is the iteration of a log line, found by the
arguments (`log_interval`) or by `iteration-time`. Its loss is the mean printed by the console: over
all iterations since the last row, if none can have been skipped (fp16 skips some) and all are in the
file. If not, the loss is left out: the loss of a single iteration is another figure. Without an
interval and without times, every iteration is a row.

`… vs samples` and `… vs tokens` are the same values over another x axis: the consumed amount. The
arguments come before the first iteration, a text per argument, where training begins. GPT-NeoX has
neither, and other names for its values (`ingest.formats.megatron.gpt_neox`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ..spec import (
    JSON_PAIRS,
    ColumnTarget,
    EventLine,
    FactLine,
    LogFormat,
    StepLine,
    known_line,
    parse_json_object,
)
from .console import MEGATRON_DEEPSPEED, MEGATRON_LM, TRAINING_SOURCE, facts_of_arguments

MEGATRON_LM_SOURCE: Final = "NVIDIA/Megatron-LM/megatron/training/training.py"
INITIALIZE_SOURCE: Final = "NVIDIA/Megatron-LM/megatron/training/initialize.py"

LM_LOSS: Final = "lm loss"
ITERATION_TIME: Final = "iteration-time"
GRAD_NORM: Final = "grad-norm"
WHOLE_NUMBER_NAMES: Final = (
    "batch-size",
    "world-size",
    "seqlen/actual_seq_length",
    "seqlen/curriculum_seqlen",
)
"""Counts, stored as floats in an event file."""
MAX_EXACT_FLOAT: Final = 2.0**53
VALUE_NAMES: Final = frozenset(
    {
        LM_LOSS,
        ITERATION_TIME,
        GRAD_NORM,
        "learning-rate",
        "loss-scale",
        "params-norm",
        "num-zeros",
        "throughput",
    }
    | set(WHOLE_NUMBER_NAMES)
)
MEGATRON_TAGS: Final[Mapping[str, str]] = {
    **{name: name for name in VALUE_NAMES},
    **{f"{name}/{name}": name for name in VALUE_NAMES},
    f"lm-loss-training/{LM_LOSS}": LM_LOSS,
}
"""Tag to name. Tags of Megatron-DeepSpeed since 2021-08 are in groups; older tags, and NVIDIA's,
are bare.
"""
CONSUMED_SUFFIXES: Final = {" vs samples": "consumed samples", " vs tokens": "consumed tokens"}
"""Meaning of the x axis of such a tag."""

MEGATRON_EVENT_COLUMNS: Final[Mapping[str, ColumnTarget]] = {
    "step": "step",
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "mean loss": "loss",
    ITERATION_TIME: "elapsed_s",
    GRAD_NORM: "grad_norm",
    "learning-rate": "learning_rate",
    "loss-scale": "loss_scale",
    "batch-size": "samples",
    "seqlen/actual_seq_length": "sequence_length",
    "seqlen/curriculum_seqlen": "sequence_length",
    "throughput": "logged_tflops",
}

ARGUMENT_TAG_SUFFIX: Final = "/text_summary"
ARGUMENTS_RECORD: Final = "Megatron's arguments"
BETWEEN_LINES_RECORD: Final = "between log lines"
"""Start of records made here, apart from rows."""
EVALUATION_TAG_LINE: Final = re.compile(r'"tag": "(?:[^"]*(?:validation|lm loss test)|test/)')

JoinedRecord = tuple[int, int, str]


@dataclass(slots=True)
class _Iteration:
    """Values of one iteration; `at`: wall time of the last value [s]."""

    number: int
    step: int
    lines: int = 0
    at: float = 0.0
    values: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Value:
    """A value of an iteration. x: the step, or the amount named by `consumed`."""

    name: str
    x: int
    consumed: str
    at: float
    value: float


def _value(event: Mapping[str, Any], tags: Mapping[str, str]) -> _Value | None:
    """Return the value of a line, if it belongs to an iteration. tags: tag to name."""
    tag, x, at, value = (event.get(key) for key in ("tag", "step", "wall_time", "value"))
    if not (isinstance(tag, str) and isinstance(x, int) and isinstance(value, float)):
        return None
    ending = next((ending for ending in CONSUMED_SUFFIXES if tag.endswith(ending)), "")
    name = tags.get(tag.removesuffix(ending))
    if name is None or not isinstance(at, float) or not 0 < x < 2**63:
        return None
    return _Value(name, x, CONSUMED_SUFFIXES.get(ending, ""), at, value)


class _Rows:
    """Make rows of the values of one file, in order."""

    def __init__(self, head: str, tags: Mapping[str, str]) -> None:
        self.head, self.tags = head, tags
        self.open: _Iteration | None = None
        self.beside: list[JoinedRecord] = []  # lines between those of the open iteration
        self.held: list[_Iteration | JoinedRecord] = []  # until log lines are known
        self.arguments: dict[str, str] = {}
        self.texts: list[int] = []
        self.began_at = 0.0
        self.last: int | None = None  # iteration of the last log line, or start of training
        self.losses: list[float] = []
        self.normed: set[bool] = set()  # whether iterations since then have a gradient norm
        self.interval = 0
        self.timed = False

    def take(self, number: int, text: str) -> Iterator[JoinedRecord]:
        """Read a line; yield the records that end before it."""
        event = parse_json_object(text)
        tag = str(event.get("tag", ""))
        if event.get("kind") == "text" and tag.endswith(ARGUMENT_TAG_SUFFIX):
            yield from self._argument(number, tag.removesuffix(ARGUMENT_TAG_SUFFIX), event)
            return
        yield from self._begin()
        value = _value(event, self.tags)
        if value is None:
            if EVALUATION_TAG_LINE.search(text):
                yield from self._close()
            self.beside.append((number, 1, text))
            if self.open is None:
                yield from self._put()
            return
        if self.open is None or not (value.consumed or value.x == self.open.step):
            yield from self._close()
            if value.consumed:  # of a validation, or of a file that is cut off
                yield from self._put((number, 1, text))
                return
            self.open = _Iteration(number, value.x)
        self._add(self.open, value)

    def _add(self, to: _Iteration, value: _Value) -> None:
        to.lines, to.at = to.lines + 1, value.at
        if value.consumed:
            to.values[value.consumed] = value.x
        else:
            to.values[value.name] = value.value

    def end(self) -> Iterator[JoinedRecord]:
        """Yield the remaining records at the end of the file."""
        yield from self._begin()
        yield from self._close()
        held, self.held = self.held, []
        for item in held:
            yield item if isinstance(item, tuple) else self._row(item, item.values.get(LM_LOSS))

    # -- arguments -----------------------------------------------------------------------------

    def _argument(self, number: int, name: str, event: Mapping[str, Any]) -> Iterator[JoinedRecord]:
        """Read one of the adjacent texts of arguments."""
        if not self.texts:
            yield from self._close()
            self.arguments = {}
        self.texts.append(number)
        self.arguments[name] = str(event.get("text", "")).strip()
        at, step = event.get("wall_time"), event.get("step")
        self.began_at = at if isinstance(at, float) else 0.0
        self.last = step if isinstance(step, int) else None

    def _begin(self) -> Iterator[JoinedRecord]:
        """Yield all arguments as one record."""
        if not self.texts:
            return
        interval = self.arguments.get("log_interval", "")
        self.interval = int(interval) if re.fullmatch(r"[1-9]\d{0,8}", interval) else 0
        self.losses, self.normed = [], set()
        first = 1 if self.last is None else self.last + 1
        text = f'"wall_time": {self.began_at} "first step": {first} {json.dumps(self.arguments)}'
        record = (self.texts[0], len(self.texts), f"{ARGUMENTS_RECORD} {text}")
        self.texts = []
        yield from self._put(record)

    # -- iterations ----------------------------------------------------------------------------

    def _close(self) -> Iterator[JoinedRecord]:
        """End the open iteration, with the lines between its own."""
        if self.open is not None:
            iteration, self.open = self.open, None
            yield from self._put(iteration)

    def _put(self, *ended: _Iteration | JoinedRecord) -> Iterator[JoinedRecord]:
        """Yield ended items and the lines between, once logged iterations are known."""
        items = sorted([*ended, *self.beside], key=_number)
        self.beside = []
        self.timed |= any(
            isinstance(item, _Iteration) and ITERATION_TIME in item.values for item in ended
        )
        self.held += items
        if self.interval or self.timed or not self._waits():
            held, self.held = self.held, []
            for item in held:
                yield item if isinstance(item, tuple) else self._logged(item)

    def _waits(self) -> bool:
        return any(isinstance(item, _Iteration) for item in self.held)

    def _logged(self, iteration: _Iteration) -> JoinedRecord:
        """Return the row of a log line; or a record for an iteration between two."""
        step, values = iteration.step, iteration.values
        if self.last is None and step == 1:
            self.last = 0
        if LM_LOSS in values:
            self.losses.append(values[LM_LOSS])
            self.normed.add(GRAD_NORM in values)
        is_logged = step % self.interval == 0 if self.interval else ITERATION_TIME in values
        if not is_logged:
            text = f"{BETWEEN_LINES_RECORD} {json.dumps(values)}"
            return iteration.number, iteration.lines, text
        record = self._row(iteration, self._mean(iteration))
        self.last, self.losses, self.normed = step, [], set()
        return record

    def _mean(self, iteration: _Iteration) -> float | None:
        """Return the loss that the console prints, if known."""
        count = iteration.step - self.last if self.last is not None else 0
        if count != len(self.losses):
            return None
        kept = self.arguments.get("fp16") == "False" and len(self.normed) == 1
        return sum(self.losses) / count if count and (kept or count == 1) else None

    def _row(self, iteration: _Iteration, loss: float | None) -> JoinedRecord:
        values: dict[str, Any] = {"step": iteration.step} | {
            name: int(value)
            if name in WHOLE_NUMBER_NAMES and value % 1 == 0 and value < MAX_EXACT_FLOAT
            else value
            for name, value in iteration.values.items()
            if name != LM_LOSS
        }
        values |= {LM_LOSS: iteration.values.get(LM_LOSS)} if loss is None else {"mean loss": loss}
        values = {name: value for name, value in values.items() if value is not None}
        text = f'{self.head} "wall_time": {iteration.at} {json.dumps(values)}'
        return iteration.number, iteration.lines, text


def _number(item: _Iteration | JoinedRecord) -> int:
    return item[0] if isinstance(item, tuple) else item.number


def _rows(
    lines: Iterable[tuple[int, str]], *, head: str, tags: Mapping[str, str]
) -> Iterator[JoinedRecord]:
    """Yield the iterations of log lines as one record each, and all arguments as one."""
    rows = _Rows(head, tags)
    for number, text in lines:
        yield from rows.take(number, text)
    yield from rows.end()


def _facts(groups: Mapping[str, str]) -> Mapping[str, str]:
    return facts_of_arguments({k: str(v) for k, v in parse_json_object(groups["text"]).items()})


def make_event_format(
    console_format: LogFormat,
    versions: str,
    unique_tag: str,
    steps: StepLine,
    tags: Mapping[str, str] = MEGATRON_TAGS,
) -> LogFormat:
    """Return the format of event files with the values of every iteration.

    console_format: of the same framework. versions: as in LogFormat. unique_tag: regex of a tag
    that only this framework writes. steps: its rows, by `make_step_line`. tags: tag to the name in
    a row.
    """
    name = f"{console_format.name}-tensorboard"
    head = f"{name}:"
    return LogFormat(
        name=name,
        quirks=("first_step_stamped_at_end",),
        engine_below=console_format.engine_below,
        framework=console_format.framework,
        versions=versions,
        signature=rf'"tag": "{unique_tag}", "step": \d|^{head} "wall_time": ',
        looks_like_step=rf'^{head} "wall_time": ',
        clock=r'"wall_time": (?P<stamp>\d{10}(?:\.\d+)?)',
        utc=True,
        evidence=("elapsed", "stamp"),
        elapsed_covers="interval",
        rate_covers=console_format.rate_covers,
        implies=console_format.implies,
        join=partial(_rows, head=head, tags=tags),
        file_names=("*tfevents*",),
        steps=(steps,),
        events=(TRAIN_START_LINE, EVALUATION_LINE),
        facts=(ARGUMENTS_LINE, *_known_lines(steps.printed_by)),
    )


def _known_lines(printed_by: str) -> tuple[FactLine, ...]:
    """Return lines without facts: iterations between log lines, and other tags."""
    return (
        known_line(
            BETWEEN_LINES_RECORD,
            rf"^{BETWEEN_LINES_RECORD} ",
            f'{BETWEEN_LINES_RECORD} {{"learning-rate": 8.6e-06, "lm loss": 1.826}}',
            printed_by,
            composed=True,
        ),
        known_line(
            '"tag": "',
            r'^\{"tag": "',
            '{"tag": "mem-reserved-bytes", "step": 10, "wall_time": 1795188384.2, '
            '"value": 2147483648.0}',
            printed_by,
            composed=True,
        ),
    )


def make_step_line(
    console_format: LogFormat,
    columns: Mapping[str, ColumnTarget],
    example_fields: str,
    printed_by: str,
    facts: Mapping[str, str] | None = None,
) -> StepLine:
    """Return the line of an iteration with a log line.

    console_format: of the same framework; columns, printed_by, facts: as in StepLine;
    example_fields: JSON of values that a line may have
    """
    head = f"{console_format.name}-tensorboard:"
    return StepLine(
        anchor=f'{head} "wall_time": ',
        regex=rf'^{head} "wall_time": \S+ (?P<pairs>\{{.*\}})$',
        pair=JSON_PAIRS,
        columns=columns,
        facts=facts or {},
        example=f'{head} "wall_time": 1795188384.25 {example_fields}',
        printed_by=printed_by,
        composed=True,
    )


TRAIN_START_LINE: Final = EventLine(
    anchor=f'{ARGUMENTS_RECORD} "wall_time": ',
    regex=rf'^{ARGUMENTS_RECORD} "wall_time": \S+ "first step": (?P<step>\d+)',
    kind="train_start",
    with_facts=True,
    example=f'{ARGUMENTS_RECORD} "wall_time": 1795188324.5 "first step": 1 '
    '{"num_layers": "12", "seq_length": "2048", "world_size": "8"}',
    printed_by=f"{MEGATRON_LM_SOURCE} train",
    composed=True,
)
EVALUATION_LINE: Final = EventLine(
    anchor='"tag": "',
    regex=r'^\{"tag": "(?:(?:lm-loss-validation/(?:[^"/]{0,99}/)?)?lm loss (?:value-)?'
    r'(?:validation|test)|(?:validation|test)/lm_loss)", "step": (?P<step>\d+), '
    r'.*"value": (?P<loss>[^,}]+)',
    kind="evaluation",
    example='{"tag": "lm loss validation", "step": 1000, "wall_time": 1795193404.3, '
    '"value": 2.3125}',
    printed_by=f"{MEGATRON_LM_SOURCE} evaluate_and_print_results",
    composed=True,
)
ARGUMENTS_LINE: Final = FactLine(
    anchor=ARGUMENTS_RECORD,
    regex=rf"^{ARGUMENTS_RECORD} [^{{]*(?P<text>\{{.*\}})$",
    read=_facts,
    example=f'{ARGUMENTS_RECORD} "wall_time": 1795188324.5 "first step": 1 '
    '{"num_layers": "12", "seq_length": "2048", "world_size": "8"}',
    printed_by=f"{INITIALIZE_SOURCE} write_args_to_tensorboard",
    composed=True,
)


def _megatrons(like: LogFormat, versions: str, mark: str, source: str) -> LogFormat:
    example = (
        '{"step": 10, "consumed samples": 1280, "learning-rate": 8.6e-06, "batch-size": 128, '
        '"loss-scale": 1.0, "grad-norm": 1.426, "iteration-time": 5.4449, "mean loss": 1.825991}'
    )
    steps = make_step_line(
        like, MEGATRON_EVENT_COLUMNS, example, f"{source} training_log", {"world-size": "gpus"}
    )
    return make_event_format(like, versions, mark, steps)


MEGATRON_DEEPSPEED_TENSORBOARD: Final = _megatrons(
    MEGATRON_DEEPSPEED,
    "event files of Microsoft, bigscience and other forks since 2021-08",
    f"lm-loss-training/{LM_LOSS}",
    TRAINING_SOURCE,
)
MEGATRON_LM_TENSORBOARD: Final = _megatrons(
    MEGATRON_LM,
    "event files of NVIDIA Megatron-LM since 2021, of its forks, and of the first with DeepSpeed",
    LM_LOSS,
    MEGATRON_LM_SOURCE,
)
