"""Torchtitan's structured logs since 2026-05: JSON records of spans.

One record per begin and end of a span. `step_end` closes every step with its time in ms. The time
includes garbage collection, fetching of batches, forward and backward, optimizer, and also a
checkpoint and a validation. But it is the host's time. At first a step waited for the device once,
to sum its tokens over the ranks, so its span contains the device's work for the step before. Later
(`dist_sum_tensor`) only logged steps wait: other steps look shorter than they are, logged ones
longer. So rows are the logged steps, stamped to the microsecond at `collect_dist_metrics_end`, when
the loss has arrived from the device. The spans of single steps are events.

`global_valid_tokens` covers a step over all ranks, every token once, without tokens ignored by the
loss; printed for logged steps only. `local_valid_tokens` is the share of a data-parallel rank,
printed alike by all ranks of a tensor-, context- and pipeline-parallel group. It is in `extra`, as
it is nobody's tokens per GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..spec import (
    JSON_PAIRS,
    MS,
    EventLine,
    FactLine,
    LogFormat,
    PhaseTimer,
    StepLine,
    parse_json_object,
)

SPAN_TRAINER_SOURCE: Final = "pytorch/torchtitan/torchtitan/trainer.py@b5bcd76"
LOGGER_SOURCE: Final = (
    "pytorch/torchtitan/torchtitan/observability/structured_logger/structured_logging.py@11a4957"
)
SPAN_STEP: Final = r'(?:^|[{}])(?>[^{}]*?"step": )(?P<step>\d+), '
WITHIN_RECORD: Final = r"[^{}]*?"
"""From the start of a record, and within a record; a copy may have lost the newlines between
records. Atomic groups (`(?>`) keep each match, so a record is scanned once.
"""

SPAN_MILLISECONDS: Final = r'"value": (?P<seconds>[-+.\deE]+)'


def _logged_steps(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the records.

    The last one of a logged step also gets its spans and scalars. Spans of one name are added up,
    as every micro-step has its own.
    """
    spans, scalars = dict[str, float](), dict[str, float]()
    for number, text in lines:
        record = parse_json_object(text)
        name, value = str(record.get("log_type_name")), record.get("value")
        if name == "step_start":
            spans, scalars = {}, {}
        elif name == "metric_value" and isinstance(value, float):
            scalars[str(record.get("event_name"))] = value
        elif name.endswith("_end") and isinstance(value, float):
            span = name.removesuffix("_end")
            spans[span] = spans.get(span, 0.0) + value
        logged = name == "collect_dist_metrics_end" and "step" in record
        yield number, 1, _logged_step(record, spans, scalars) if logged else text


def _logged_step(record: dict[str, Any], spans: dict[str, float], scalars: dict[str, float]) -> str:
    kept = {name: record.get(name) for name in ("global_rank", "logger_name", "step", "time_us")}
    return json.dumps(kept | {"logged_step": {**scalars, "ms": spans}})


def _span_timer(span: str, phase: str) -> PhaseTimer:
    return PhaseTimer(
        timer=f"ms.{span}", phase=phase, group="Torchtitan, spans", caveat="host_time"
    )


TORCHTITAN_SPANS: Final = LogFormat(
    name="torchtitan-spans",
    quirks=("rates_rounded", "accumulation_stated", "tokens_of_labels"),
    phase_timers=(
        _span_timer("fwd_bwd", "forward_backward"),
        _span_timer("optim", "optimizer"),
    ),
    framework="torchtitan",
    versions="2026-05 … 0.3.0",
    signature=r'"global_rank": \d+, .*"logger_name": "torchtitan\.',
    looks_like_step=r'"logged_step": |"log_type_name": "collect_dist_metrics_end"',
    clock=r'"time_us": (?P<stamp>\d{16})\b',
    utc=True,
    evidence=("stamp",),
    implies={"trainable": ("full", "Torchtitan trains every weight unless a fork freezes some")},
    join=_logged_steps,
    file_names=("*.global_rank_*.jsonl",),
    steps=(
        StepLine(
            anchor='"logged_step": ',
            regex=r'"global_rank": (?P<rank>\d+), .*"step": (?P<step>\d+), "time_us": \d+, '
            r'"logged_step": (?P<pairs>\{.*\})\}',
            pair=JSON_PAIRS,
            columns={
                "rank": "rank",
                "step": "step",
                "global_valid_tokens": "step_tokens",
                "ms.fetching_batch": ("data_s", MS),
            },
            example='{"global_rank": 0, "logger_name": "torchtitan.structured_logger", "step": 5, '
            '"time_us": 1795189951724102, "logged_step": {"local_valid_tokens": 1024.0, '
            '"global_valid_tokens": 2048.0, "ms": {"gc_collect": 0.045, "fetching_batch": 6.611, '
            '"fwd_bwd": 1326.517, "optim": 30.491, "collect_dist_metrics": 23.197}}}',
            printed_by=f"{SPAN_TRAINER_SOURCE} Trainer.train_step",
        ),
    ),
    events=(
        EventLine(
            anchor="gc_collect_end",
            regex=rf'{SPAN_STEP}(?>{WITHIN_RECORD}"step_tags": \[)(?>[^]{{}}]*?"gc")'
            rf'(?>{WITHIN_RECORD}"log_type_name": "gc_collect_end"){WITHIN_RECORD}{SPAN_MILLISECONDS}',
            kind="gc",
            factors={"seconds": MS},
            example='{"global_rank": 0, "step": 50, "relative_step": 50, "step_tags": ["gc"], '
            '"log_type_name": "gc_collect_end", "event_name": null, "value": 41.51, '
            '"logger_name": "torchtitan.structured_logger"}',
            printed_by="pytorch/torchtitan/torchtitan/tools/utils.py@b5bcd76 GarbageCollection.run",
        ),
        EventLine(
            anchor="checkpoint_save_end",
            regex=rf'{SPAN_STEP}(?>{WITHIN_RECORD}"step_tags": \[)(?>[^]{{}}]*?"checkpoint_save")'
            rf'(?>{WITHIN_RECORD}"log_type_name": "checkpoint_save_end"){WITHIN_RECORD}'
            rf"{SPAN_MILLISECONDS}",
            kind="checkpoint",
            factors={"seconds": MS},
            example='{"global_rank": 0, "step": 500, "relative_step": 500, "step_tags": '
            '["checkpoint_save"], "log_type_name": "checkpoint_save_end", "event_name": null, '
            '"value": 8123.4, "logger_name": "torchtitan.structured_logger"}',
            printed_by="pytorch/torchtitan/torchtitan/components/checkpoint.py@b5bcd76 "
            "CheckpointManager.save",
            composed=True,
        ),
        EventLine(
            anchor='"eval_end"',
            regex=rf'{SPAN_STEP}(?>{WITHIN_RECORD}"log_type_name": "eval_end")'
            rf"{WITHIN_RECORD}{SPAN_MILLISECONDS}",
            kind="evaluation",
            factors={"seconds": MS},
            example='{"global_rank": 0, "step": 10, "relative_step": 10, "step_tags": ["eval"], '
            '"log_type_name": "eval_end", "event_name": null, "value": 6184.79, '
            '"logger_name": "torchtitan.structured_logger"}',
            printed_by="pytorch/torchtitan/torchtitan/components/validate.py@b5bcd76 "
            "Validator.validate",
        ),
        EventLine(
            anchor='"step_end"',
            regex=rf'{SPAN_STEP}(?>{WITHIN_RECORD}"log_type_name": "step_end")'
            rf"{WITHIN_RECORD}{SPAN_MILLISECONDS}",
            kind="timers",
            factors={"seconds": MS},
            example='{"global_rank": 0, "step": 3, "relative_step": 3, "log_type_name": "step_end", '
            '"event_name": null, "value": 1333.2597, '
            '"logger_name": "torchtitan.structured_logger"}',
            printed_by=f"{SPAN_TRAINER_SOURCE} Trainer.train",
        ),
        EventLine(
            anchor='_error"',
            regex=r'"log_type_name": "\w+_error"(?!.*(?:out of memory|OutOfMemoryError'
            r'|DataloaderExhaustedError)).*"message": "(?:\[step \S+\] )?(?P<error>.*)"',
            kind="error",
            example='{"global_rank": 0, "step": 1, "log_type_name": "fwd_bwd_error", "event_name": '
            'null, "logger_name": "torchtitan.structured_logger", "message": "[step 1] '
            'fwd_bwd_error: RuntimeError: NCCL communicator was aborted"}',
            printed_by=f"{LOGGER_SOURCE} log_trace_span.__exit__",
            composed=True,
        ),
        EventLine(
            anchor="torch_distributed_teardown_end",
            regex=r'"log_type_name": "torch_distributed_teardown_end"',
            kind="end",
            example='{"global_rank": 0, "log_type_name": "torch_distributed_teardown_end", '
            '"event_name": null, "value": 0.38, "logger_name": "torchtitan.structured_logger"}',
            printed_by="pytorch/torchtitan/torchtitan/train.py@b5bcd76",
        ),
    ),
    facts=(
        FactLine(
            anchor='"log_type_name": ',
            regex=r'"log_type_name": "(?!collect_dist_metrics_end")',
            example='{"global_rank": 0, "step": 3, "log_type_name": "optim_start", '
            '"event_name": null, "logger_name": "torchtitan.structured_logger"}',
            printed_by=LOGGER_SOURCE,
        ),
    ),
)
