"""Files of DeepSpeed's monitors: TensorBoard, CSV, autotuning results.

The x axis is samples since the start of training, over all ranks, not steps; the engine writes
every optimizer step. So two neighbours give the batch size, and the batch size the step. Up to
0.18.2 the base engine writes the loss before it counts the step's samples (the first at 0), and the
learning rate after: the loss is moved to its own step. A CSV file of the loss that begins at a
resume does not show this, and is read as written.

An event file's times of forward, backward and step add up to a step without data loading; its
stamps include everything. CSV files have no stamps and one file per tag, so they give no rate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ..spec import (
    ENGINE_PRECEDENCE,
    JSON_PAIRS,
    MS,
    ColumnTarget,
    EventLine,
    FactLine,
    LogFormat,
    StepLine,
)
from .phases import MONITOR_TIMERS

MONITOR_ENGINE_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed/runtime/engine.py@v0.16.9"
MONITOR_PIPELINE_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed/runtime/pipe/engine.py@v0.16.9"
CSV_MONITOR_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed/monitor/csv_monitor.py@f33ad0a"

TAG_PREFIX: Final = "Train/Samples/"
TIMED_PARTS: Final = ("forward", "backward", "backward_inner", "backward_allreduce", "step")
STEP_TAGS: Final = frozenset(
    {"train_loss", "lr", "loss_scale", *(f"elapsed_time_ms_{part}" for part in TIMED_PARTS)}
)
STEP_TIME_TAGS: Final = tuple(f"elapsed_time_ms_{part}" for part in ("forward", "backward", "step"))
"""Parts that make up a step; the other two are parts of backward."""

MAX_TIME_RATIO: Final = 2.0
"""Sums of times above this multiple of the time between stamps are not in milliseconds: 0.6.2 to
0.7.1 write them 1000 times too large.
"""

MONITOR_COLUMNS: Final[Mapping[str, ColumnTarget]] = {
    "step": "step",
    "batch": "samples",
    "samples": "consumed_samples",
    "train_loss": "loss",
    "lr": "learning_rate",
    "loss_scale": "loss_scale",
}


# -- samples to steps --------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """Values of one optimizer step.

    `samples`: the x axis; `said`: printed values as text.
    """

    number: int
    lines: int
    samples: int
    said: dict[str, Any]


class _Steps:
    """Assign rows to steps; one instance per file."""

    def __init__(self) -> None:
        self.step_at: dict[int, int] = {}  # samples after a step: the step, of all launches so far
        self.counts_behind = True  # samples are counted after the step, not before

    def put(self, rows: Sequence[_Row]) -> None:
        """Add batch, samples and step, if known, to the values of a launch's rows."""
        self.counts_behind &= not any(row.samples == 0 for row in rows)
        for part in _rising(rows):
            self._put(part)

    def _put(self, rows: Sequence[_Row]) -> None:
        gaps = _gaps([row.samples for row in rows])
        if not gaps:
            self._put_alone(rows[0])
            return
        batches = [batch for batch, _ in gaps]
        of_rows = [batches[0], *batches] if self.counts_behind else [*batches, batches[-1]]
        step: int | None = None
        for index, (row, batch) in enumerate(zip(rows, of_rows, strict=True)):
            behind = row.samples if self.counts_behind else row.samples + batch
            row.said |= {"batch": batch, "samples": behind}
            if index == 0:
                step = self._first(behind, batch)
            elif step is not None:
                step += gaps[index - 1][1]
            if step is not None:
                row.said["step"] = self.step_at[behind] = step

    def _put_alone(self, row: _Row) -> None:
        """Add the step or samples of a single row, which gives no batch size.

        A row before the first samples is step 1.
        """
        if row.samples == 0:
            row.said["step"] = 1
        else:
            row.said["samples"] = row.samples

    def _first(self, behind: int, batch: int) -> int | None:
        """Return the first step of a launch, from an earlier launch or by division.

        None if the batch size must have changed before this file: rows are counted then.
        """
        if behind - batch in self.step_at:
            return self.step_at[behind - batch] + 1
        return behind // batch if behind % batch == 0 else None


def _rising(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield stretches of rising samples.

    They fall in a file whose headings were removed.
    """
    part: list[_Row] = []
    for row in rows:
        if part and row.samples <= part[-1].samples:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _gaps(samples: Sequence[int]) -> list[tuple[int, int]]:
    """Return batch size and number of steps between neighbours.

    A single gap of several batches means missing rows; if the distance stays wider, the batch size
    has changed.
    """
    wide = [b - a for a, b in pairwise(samples)]
    gaps: list[tuple[int, int]] = []
    for index, distance in enumerate(wide):
        after = wide[index + 1] if index + 1 < len(wide) else None
        usual = gaps[-1][0] if gaps else after or distance
        missing = distance > usual and distance % usual == 0 and after in (None, usual)
        gaps.append((usual, distance // usual) if missing else (distance, 1))
    return gaps


# -- event files -------------------------------------------------------------------------------


def _events(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Join all tags of a step into one record; yield other lines as they are."""
    rows: list[_Row] = []
    others: list[tuple[int, int, str]] = []
    for number, text in lines:
        event = _event(text)
        if event is None:
            others.append((number, 1, text))
            continue
        tag, samples, wall_time, value = event
        if not rows or _begins_another(rows[-1], tag, samples):
            rows.append(_Row(number, 0, samples, {}))
        row = rows[-1]
        row.lines += 1
        row.samples = max(row.samples, samples)
        row.said[tag] = value
        if "wall_time" not in row.said or tag == "lr":  # written when the step is done
            row.said["wall_time"] = wall_time
    _Steps().put(rows)
    _add_times(rows)
    records = [(row.number, row.lines, _event_record(row.said)) for row in rows]
    yield from sorted([*others, *records])


def _event(text: str) -> tuple[str, int, str, str] | None:
    """Return tag, samples, wall time and value of a step's line in an event file."""
    if not text.startswith('{"tag": "' + TAG_PREFIX):
        return None
    try:
        event = json.loads(text, parse_float=str, parse_constant=str)
        tag = event["tag"].removeprefix(TAG_PREFIX)
        wall_time, value = (str(float(event[key])) for key in ("wall_time", "value"))
        samples = int(event["step"])
    except (ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    of_step = tag in STEP_TAGS and abs(samples) < 2**63
    return (tag, samples, wall_time, value) if of_step else None


def _begins_another(row: _Row, tag: str, samples: int) -> bool:
    """Return whether a value belongs to the next step.

    A step writes a tag once; only a loss may have fewer samples than the rest.
    """
    if tag in row.said:
        return True
    alone = set(row.said) <= {"train_loss", "wall_time"}
    return samples < row.samples if alone else samples != row.samples


def _add_times(rows: Sequence[_Row]) -> None:
    """Add `elapsed_ms` to rows with all three parts, if they fit between the stamps."""
    whole = [row for row in rows if all(tag in row.said for tag in STEP_TIME_TAGS)]
    times = [sum(float(row.said[tag]) for tag in STEP_TIME_TAGS) for row in whole]
    if len(whole) > 1:
        between = float(whole[-1].said["wall_time"]) - float(whole[0].said["wall_time"])
        if sum(times[1:]) * MS > MAX_TIME_RATIO * between:
            return
    for row, elapsed in zip(whole, times, strict=True):
        row.said["elapsed_ms"] = repr(elapsed)


def _event_record(values: Mapping[str, Any]) -> str:
    fields = {key: value for key, value in values.items() if key != "wall_time"}
    return f'{TAG_PREFIX}* "wall_time": {values["wall_time"]} {json.dumps(fields)}'


# -- CSV files ---------------------------------------------------------------------------------

CSV_HEADING: Final = re.compile(r"^step,(train_loss|lr|loss_scale|elapsed_time_ms_\w+)$")
CSV_VALUE: Final = re.compile(r'^(\d{1,18}),"?(?:tensor\()?([^,")]+)')
"""Rows of 0.10.1 to 0.13.2 print the loss as `"tensor(7.12, device='cuda:0')"`."""


def _values(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the values of a CSV file with tag and step; a heading begins a launch."""
    steps, tag = _Steps(), ""
    rows: list[_Row] = []
    for number, text in lines:
        heading, value = CSV_HEADING.match(text), CSV_VALUE.match(text)
        if tag and value:
            rows.append(_Row(number, 1, int(value[1]), {tag: value[2]}))
            continue
        if heading:
            yield from _value_records(steps, tag, rows)
            rows, tag = [], heading[1]
        yield number, 1, text
    yield from _value_records(steps, tag, rows)


def _value_records(steps: _Steps, tag: str, rows: Sequence[_Row]) -> Iterator[tuple[int, int, str]]:
    steps.put(rows)
    for row in rows:
        yield row.number, 1, f"Train_Samples_{tag}.csv {json.dumps(row.said)}"


DEEPSPEED_TENSORBOARD: Final = LogFormat(
    name="deepspeed-tensorboard",
    quirks=("first_step_stamped_at_end",),
    phase_timers=MONITOR_TIMERS,
    framework="deepspeed",
    versions="engine 0.3 … 0.19, pipeline engine (monitor tensorboard)",
    signature=r'^\{"tag": "Train/Samples/(?:lr|train_loss|loss_scale|elapsed_time_ms_)'
    r'|^Train/Samples/\* "wall_time": ',
    looks_like_step=r"^Train/Samples/\* ",
    clock=r'"wall_time": (?P<stamp>\d{10}(?:\.\d+)?)',
    utc=True,
    evidence=("stamp", "elapsed"),
    precedence=ENGINE_PRECEDENCE,
    elapsed_covers="step",
    elapsed_excludes_data=True,
    join=_events,
    steps=(
        StepLine(
            anchor="Train/Samples/*",
            regex=r'^Train/Samples/\* "wall_time": [\d.]+ (?P<pairs>\{.*\})$',
            pair=JSON_PAIRS,
            columns={**MONITOR_COLUMNS, "elapsed_ms": ("elapsed_s", MS)},
            facts={"batch": "global_batch_size"},
            numbered=True,  # if the batch size has changed before the file
            example='Train/Samples/* "wall_time": 1795186859.230059 {"lr": "0.00023137822", '
            '"elapsed_time_ms_forward": "35.470245", "elapsed_time_ms_backward": "142.15564", '
            '"elapsed_time_ms_backward_inner": "31.21519", '
            '"elapsed_time_ms_backward_allreduce": "110.89253", '
            '"elapsed_time_ms_step": "24.884224", "batch": 8, "samples": 16, "step": 2, '
            '"elapsed_ms": "202.51010900000003"}',
            printed_by=f"{MONITOR_ENGINE_SOURCE} DeepSpeedEngine._write_monitor",
        ),
    ),
    events=(
        EventLine(
            anchor='"tag": "Train/Samples/eval_loss"',
            regex=r'"tag": "Train/Samples/eval_loss", "step": (?P<samples>\d+), .*'
            r'"value": (?P<loss>[^,}]+)',
            kind="evaluation",
            example='{"tag": "Train/Samples/eval_loss", "step": 800, "wall_time": '
            '1795187206.934084, "value": 6.9312}',
            printed_by=f"{MONITOR_PIPELINE_SOURCE} PipelineEngine.eval_batch",
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor='"tag": "Train/Eigenvalues/',
            regex=r'"tag": "Train/Eigenvalues/ModelBlockParam_\d+"',
            example='{"tag": "Train/Eigenvalues/ModelBlockParam_0", "step": 800, "wall_time": '
            '1795187206.934084, "value": 1.0}',
            printed_by=f"{MONITOR_ENGINE_SOURCE} DeepSpeedEngine.step",
            composed=True,
        ),
    ),
)

DEEPSPEED_CSV: Final = LogFormat(
    name="deepspeed-csv",
    framework="deepspeed",
    versions="engine 0.7 … 0.19, pipeline engine (csv_monitor)",
    signature=r"^step,(?:train_loss|lr|loss_scale|elapsed_time_ms_\w+)$|^Train_Samples_\w+\.csv \{",
    looks_like_step=r"^\d+,|^Train_Samples_\w+\.csv \{",
    launch=r"^step,\w+$",
    evidence=(),
    precedence=ENGINE_PRECEDENCE,
    file_names=("Train_Samples_train_loss.csv",),
    join=_values,
    steps=(
        StepLine(
            anchor="Train_Samples_",
            regex=r"^Train_Samples_\w+\.csv (?P<pairs>\{.*\})$",
            pair=JSON_PAIRS,
            columns=MONITOR_COLUMNS,
            facts={"batch": "global_batch_size"},
            numbered=True,
            example='Train_Samples_train_loss.csv {"train_loss": "7.093006134033203", "batch": 8, '
            '"samples": 16, "step": 2}',
            printed_by=f"{CSV_MONITOR_SOURCE} csvMonitor.write_events",
        ),
    ),
)

STEPLESS_OUTPUTS: Final[tuple[tuple[str, str], ...]] = (
    (
        r'\{.*"FLOPS_per_gpu": .*"throughput": ',
        "the result of a DeepSpeed autotuning experiment: means over a few steps, without step "
        "lines. Read the experiment's stdout.log, beside it.",
    ),
    (
        r'\{.*"num_params": .*"activation_mem_per_gpu": ',
        "DeepSpeed autotuning's measurements of the model, without step lines. Read the stdout.log "
        "of an experiment.",
    ),
    (
        r"\W*tuning_space\W+num_experiments",
        "the summary of DeepSpeed's autotuning, without step lines. Read the stdout.log of its "
        "best experiment.",
    ),
    (
        r'\{.*"train_micro_batch_size_per_gpu": ',
        "a DeepSpeed config. Named ds_config.json, beside a log, it gives facts to that log.",
    ),
)
"""DeepSpeed's files without steps: first bytes, and advice on what to read instead."""
