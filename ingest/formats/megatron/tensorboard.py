"""What Megatron-LM and what came of it write to TensorBoard (`--tensorboard-dir`, one rank).

Each iteration writes its figures, whatever the console's log interval: its own loss, and its learning
rate, batch and norms. Only the iteration of a log line has `iteration-time`, where
--log-timers-to-tensorboard asks for it: seconds, the mean over the iterations since the last log
line, with all that the console's `elapsed time per iteration` holds. `throughput` is TFLOP/s per
GPU by Megatron's own formula over that time. So a row is that of a log line, told by the arguments
(`log_interval`) or by `iteration-time`, and its loss the mean that the console prints: of all
iterations since the last one, where none can have been skipped (fp16 skips some) and each is there.
Else the loss is left out: that of one iteration is another figure. Where neither tells, each
iteration is a row.

`… vs samples` and `… vs tokens` are the same values over another x axis, which is what is consumed.
The arguments stand before the first iteration, each a text of its own, and where training begins.
GPT-NeoX, which has neither, calls its values otherwise (`ingest.formats.megatron.gpt_neox`).
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
"""Counts, which an event file holds as floats."""
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
"""Tags of Megatron-DeepSpeed since 2021-08 are in groups; the old ones are bare, as NVIDIA's are."""
CONSUMED_SUFFIXES: Final = {" vs samples": "consumed samples", " vs tokens": "consumed tokens"}
"""What the x axis of such a tag is."""

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
"""How the records begin that are made here, beside rows."""
EVALUATION_TAG_LINE: Final = re.compile(r'"tag": "(?:[^"]*(?:validation|lm loss test)|test/)')

JoinedRecord = tuple[int, int, str]


@dataclass(slots=True)
class _Iteration:
    """What one iteration wrote; `at` is the wall time of its last value [s]."""

    number: int
    step: int
    lines: int = 0
    at: float = 0.0
    said: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Value:
    """A value of an event file that is an iteration's. x: consumed, where the name says what."""

    name: str
    x: int
    consumed: str
    at: float
    value: float


def _value(event: Mapping[str, Any], tags: Mapping[str, str]) -> _Value | None:
    """The value of a line, if it is one of an iteration's. tags: to names."""
    tag, x, at, value = (event.get(key) for key in ("tag", "step", "wall_time", "value"))
    if not (isinstance(tag, str) and isinstance(x, int) and isinstance(value, float)):
        return None
    ending = next((ending for ending in CONSUMED_SUFFIXES if tag.endswith(ending)), "")
    name = tags.get(tag.removesuffix(ending))
    if name is None or not isinstance(at, float) or not 0 < x < 2**63:
        return None
    return _Value(name, x, CONSUMED_SUFFIXES.get(ending, ""), at, value)


class _Rows:
    """Makes rows of the values of one file, in their order."""

    def __init__(self, head: str, tags: Mapping[str, str]) -> None:
        self.head, self.tags = head, tags
        self.open: _Iteration | None = None
        self.beside: list[JoinedRecord] = []  # lines between those of the open iteration
        self.held: list[_Iteration | JoinedRecord] = []  # until it is known which are logged
        self.arguments: dict[str, str] = {}
        self.texts: list[int] = []
        self.began_at = 0.0
        self.last: int | None = None  # of the iterations of log lines, or where training begins
        self.losses: list[float] = []
        self.normed: set[bool] = set()  # whether those since then have a norm of the gradient
        self.interval = 0
        self.timed = False

    def take(self, number: int, text: str) -> Iterator[JoinedRecord]:
        """A line, and the records that end before it."""
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
            if value.consumed:  # of a validation, or of what is cut off
                yield from self._put((number, 1, text))
                return
            self.open = _Iteration(number, value.x)
        self._add(self.open, value)

    def _add(self, to: _Iteration, value: _Value) -> None:
        to.lines, to.at = to.lines + 1, value.at
        if value.consumed:
            to.said[value.consumed] = value.x
        else:
            to.said[value.name] = value.value

    def end(self) -> Iterator[JoinedRecord]:
        """What is left of the file."""
        yield from self._begin()
        yield from self._close()
        held, self.held = self.held, []
        for one in held:
            yield one if isinstance(one, tuple) else self._row(one, one.said.get(LM_LOSS))

    # -- arguments -----------------------------------------------------------------------------

    def _argument(self, number: int, name: str, event: Mapping[str, Any]) -> Iterator[JoinedRecord]:
        """One of the texts that stand together."""
        if not self.texts:
            yield from self._close()
            self.arguments = {}
        self.texts.append(number)
        self.arguments[name] = str(event.get("text", "")).strip()
        at, step = event.get("wall_time"), event.get("step")
        self.began_at = at if isinstance(at, float) else 0.0
        self.last = step if isinstance(step, int) else None

    def _begin(self) -> Iterator[JoinedRecord]:
        """All arguments as one record."""
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
        """The open iteration ends, with the lines beside it."""
        if self.open is not None:
            one, self.open = self.open, None
            yield from self._put(one)

    def _put(self, *ended: _Iteration | JoinedRecord) -> Iterator[JoinedRecord]:
        """What has ended and the lines beside it, once it is known which iterations are logged."""
        items = sorted([*ended, *self.beside], key=_number)
        self.beside = []
        self.timed |= any(
            isinstance(one, _Iteration) and ITERATION_TIME in one.said for one in ended
        )
        self.held += items
        if self.interval or self.timed or not self._waits():
            held, self.held = self.held, []
            for one in held:
                yield one if isinstance(one, tuple) else self._logged(one)

    def _waits(self) -> bool:
        return any(isinstance(one, _Iteration) for one in self.held)

    def _logged(self, one: _Iteration) -> JoinedRecord:
        """The row of a log line; or an iteration between two, which is none."""
        if self.last is None and one.step == 1:
            self.last = 0
        if LM_LOSS in one.said:
            self.losses.append(one.said[LM_LOSS])
            self.normed.add(GRAD_NORM in one.said)
        is_logged = one.step % self.interval == 0 if self.interval else ITERATION_TIME in one.said
        if not is_logged:
            return one.number, one.lines, f"{BETWEEN_LINES_RECORD} {json.dumps(one.said)}"
        record = self._row(one, self._mean(one))
        self.last, self.losses, self.normed = one.step, [], set()
        return record

    def _mean(self, one: _Iteration) -> float | None:
        """What the console prints as the loss, if that is known."""
        count = one.step - self.last if self.last is not None else 0
        if count != len(self.losses):
            return None
        kept = self.arguments.get("fp16") == "False" and len(self.normed) == 1
        return sum(self.losses) / count if count and (kept or count == 1) else None

    def _row(self, one: _Iteration, loss: float | None) -> JoinedRecord:
        said: dict[str, Any] = {"step": one.step} | {
            name: int(value)
            if name in WHOLE_NUMBER_NAMES and value % 1 == 0 and value < MAX_EXACT_FLOAT
            else value
            for name, value in one.said.items()
            if name != LM_LOSS
        }
        said |= {LM_LOSS: one.said.get(LM_LOSS)} if loss is None else {"mean loss": loss}
        said = {name: value for name, value in said.items() if value is not None}
        return one.number, one.lines, f'{self.head} "wall_time": {one.at} {json.dumps(said)}'


def _number(item: _Iteration | JoinedRecord) -> int:
    return item[0] if isinstance(item, tuple) else item.number


def _rows(
    lines: Iterable[tuple[int, str]], *, head: str, tags: Mapping[str, str]
) -> Iterator[JoinedRecord]:
    """The iterations of log lines as one record each, and all arguments as one."""
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
    """Return the format of event files that hold the values of each iteration.

    console_format: of the same framework. versions: as in LogFormat. unique_tag: regex of a tag
    that only this framework writes. steps: its rows, by `make_step_line`. tags: names of tags to
    those that a row has.
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
    """Return lines that state nothing of use: of iterations between log lines, of other tags."""
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
    """Return the line that an iteration with a log line becomes.

    console_format: of the same framework; columns, printed_by, facts: as in StepLine;
    example_fields: JSON of values that it may hold
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
    said = (
        '{"step": 10, "consumed samples": 1280, "learning-rate": 8.6e-06, "batch-size": 128, '
        '"loss-scale": 1.0, "grad-norm": 1.426, "iteration-time": 5.4449, "mean loss": 1.825991}'
    )
    steps = make_step_line(
        like, MEGATRON_EVENT_COLUMNS, said, f"{source} training_log", {"world-size": "gpus"}
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
