"""Torchtitan's TensorBoard scalars: the figures of its console line, unrounded.

All tags of a step are one record. `throughput(tps)` (`wps` until 2024-11) is tokens per second per
device over all token slots since the last logged or validated step, as on the console. Values that
look useful, and are not, stay in `extra`:

    time_metrics/end_to_end(s)    time since then over log_freq, for any number of steps: wrong at
                                  step 1, at the second line (nine steps of ten), on resuming and
                                  after a validation
    time_metrics/data_loading(s)  the mean of one fetch; a step has gradient_accumulation of them
    n_tokens_seen                 one rank's until 2025-08-01, then over all ranks, times
                                  context_parallel until 2026-04, and always a float of 24 bits:
                                  differences of two lines are no token counts

Until 2025 a resumed run wrote the losses of its checkpoint again, all at once: a loss without a
throughput is no step of this run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ..spec import (
    GIB,
    JSON_PAIRS,
    PERCENT,
    EventLine,
    FactLine,
    LogFormat,
    PhaseTimer,
    StepLine,
    rate_restart_fields,
)

EVENT_METRICS_SOURCE: Final = "pytorch/torchtitan/torchtitan/components/metrics.py@00fbaaf"
PREFIXED_TAG: Final = re.compile(
    r"(?:.*?/)??((?:loss_metrics|validation_metrics|time_metrics|memory|lr)/.*"
    r"|grad_norm|throughput\(tps\)|wps|tflops|mfu\(%\)|n_?tokens_seen|lr)"
)
"""A tag without the prefix that a MetricsProcessor may put before its tags."""
EVALUATION_TAG: Final = re.compile(r"(?:.*/)?(?:eval|evaluation|val|valid|validation|test)/.*")
"""Tags of forks' evaluations; their throughput is not that of training."""


class _Scalar(NamedTuple):
    """A value of an event file."""

    name: str
    step: int
    wall_time: float
    value: float

    @property
    def validates(self) -> bool:
        return self.name.startswith("validation_metrics/")


def _scalar(text: str) -> _Scalar | None:
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        event = json.loads(text)
        tag, step, value = event["tag"], event["step"], event["value"]
        if isinstance(tag, str) and isinstance(step, int) and isinstance(value, float):
            match = None if EVALUATION_TAG.fullmatch(tag) else PREFIXED_TAG.fullmatch(tag)
            return _Scalar(match[1] if match else tag, step, float(event["wall_time"]), value)
    return None


def _records(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Join the scalars written by one call into one record; other lines stay alone.

    A repeated tag belongs to another call.
    """
    first, held = 0, list[_Scalar]()
    for number, text in lines:
        scalar = _scalar(text)
        if held and (scalar is None or not _belongs(scalar, held)):
            yield first, len(held), _record(held)
            held = []
        if scalar is None:
            yield number, 1, text
        else:
            first = first if held else number
            held.append(scalar)
    if held:
        yield first, len(held), _record(held)


def _belongs(scalar: _Scalar, held: list[_Scalar]) -> bool:
    alike = (scalar.step, scalar.validates) == (held[0].step, held[0].validates)
    return alike and scalar.name not in {other.name for other in held}


def _record(held: list[_Scalar]) -> str:
    scalars = {scalar.name: scalar.value for scalar in held}
    return json.dumps({"step": held[0].step, "wall_time": held[0].wall_time, "scalars": scalars})


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill learning_rate from the first group of the optimizer.

    One tag per group since 2026-06. TFLOP/s without an MFU mean quantised weights, since
    2026-02-28.
    """
    if "tflops" in printed and "mfu(%)" not in printed:
        row["says"]["quantized"] = "tflops without mfu(%)"
    rates = [value for name, value in printed.items() if name.startswith("lr/")]
    if rates:
        row["learning_rate"] = float(rates[0])


TORCHTITAN_EVENTS: Final = LogFormat(
    name="torchtitan-tensorboard",
    quirks=(
        *("rates_rounded", "accumulation_stated", "first_step_stamped_at_end"),
        "claims_follow_rate",
    ),
    phase_timers=(
        PhaseTimer(
            timer="time_metrics/data_loading(s)",
            phase="data",
            group="Torchtitan, event files",
            factor=1.0,
            covers="micro_step",
        ),
    ),
    framework="torchtitan",
    versions="2024-02 … 0.3.0",
    signature=r'"(?:tag": ")?(?:[^"]*/)?(?:loss_metrics/global_avg_loss|throughput\(tps\))"',
    looks_like_step=r'"(?:throughput\(tps\)|wps)": ',
    clock=r'"wall_time": (?P<stamp>\d{10}\.\d+)',
    utc=True,
    evidence=("rate", "stamp"),
    rate_covers="interval",
    implies={"trainable": ("full", "Torchtitan trains every weight unless a fork freezes some")},
    join=_records,
    join_by_step=True,
    complete=_complete,
    rank_in_path=r"rank_(\d+)[/\\][^/\\]*$",
    file_names=("*tfevents*",),
    steps=(
        StepLine(
            anchor='"scalars": ',
            regex=r'"step": (?P<step>\d+), "wall_time": \S+, "scalars": '
            r'(?P<pairs>\{.*"(?:throughput\(tps\)|wps)": .*\})\}',
            pair=JSON_PAIRS,
            columns={
                "step": "step",
                "loss_metrics/global_avg_loss": "loss",
                "grad_norm": "grad_norm",
                "lr": "learning_rate",
                "throughput(tps)": "logged_tgs",
                "wps": "logged_tgs",
                "tflops": "logged_tflops",
                "mfu(%)": ("logged_mfu", PERCENT),
                "memory/max_reserved(GiB)": ("peak_memory_bytes", GIB),
            },
            example='{"step": 5, "wall_time": 1795188384.1537342, "scalars": '
            '{"loss_metrics/global_avg_loss": 7.2378683, "grad_norm": 1.347514, '
            '"throughput(tps)": 347.10184, "tflops": 0.013382559, "mfu(%)": 0.0042892816, '
            '"memory/max_reserved(GiB)": 0.7289314, "n_tokens_seen": 2560.0, "lr/AdamW": 0.0008}}',
            printed_by=f"{EVENT_METRICS_SOURCE} MetricsProcessor.log",
        ),
    ),
    events=(
        EventLine(
            anchor='"validation_metrics/',
            regex=r'"step": (?P<step>\d+), .*"validation_metrics/loss": (?P<loss>[^,}]+)'
            r'(?:.*"validation_metrics/throughput\(tps\)": (?P<tps>[^,}]+))?'
            r'(?:.*"validation_metrics/memory/max_reserved\(GiB\)": (?P<max_reserved_gib>[^,}]+))?',
            kind="evaluation",
            read=rate_restart_fields,
            example='{"step": 10, "wall_time": 1795188404.3442, "scalars": '
            '{"validation_metrics/loss": 5.891912, "validation_metrics/throughput(tps)": 248.3, '
            '"validation_metrics/memory/max_reserved(GiB)": 0.73}}',
            printed_by=f"{EVENT_METRICS_SOURCE} MetricsProcessor.log_validation",
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor='"scalars": ',
            regex=r'"scalars": \{"loss_metrics/global_avg_loss": \S+ "\S+": [^,{}]+\}',
            example='{"step": 10, "wall_time": 1729500001.25, "scalars": '
            '{"loss_metrics/global_avg_loss": 8.25, "loss_metrics/global_max_loss": 8.5}}',
            printed_by="pytorch/torchtitan/train.py@9515a14 main",
            composed=True,
        ),
        FactLine(
            anchor='"scalars": ',
            regex=r'"scalars": \{',  # of a fork, without figures of training
            example='{"step": 10, "wall_time": 1795188404.3442, "scalars": {"eval/accuracy": 0.5}}',
            printed_by="pytorch/torchtitan/torchtitan/components/metrics.py@00fbaaf TensorBoardLogger",
            composed=True,
        ),
        FactLine(
            anchor='"tag": ',
            regex=r'"tag": ".*"kind": "',
            example='{"tag": "config", "step": 0, "wall_time": 1795188377.1, "kind": "text", '
            '"text": "llama3"}',
            printed_by="pytorch/pytorch/torch/utils/tensorboard/writer.py@v2.9.0",
            composed=True,
        ),
    ),
)
