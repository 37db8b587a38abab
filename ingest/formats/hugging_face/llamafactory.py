"""LLaMA-Factory's trainer_log.jsonl, next to the Hugging Face Trainer's own logs.

`elapsed_time` is in whole seconds since the training loop began and restarts on resume.
`total_tokens` counts the tokens of all ranks since the start of training, padding included, and
only with `include_num_input_tokens_seen`. `throughput` is their sum over `elapsed_time` to two
decimals, so it is too high after a resume, and gives the time more finely. Keys until mid-2024:
`learning_rate`, nulls kept; then `throughput` and `total_tokens`; then `lr`, nulls dropped.
`accuracy` is `rewards/accuracies`, of DPO and similar; `reward` is PPO's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..spec import (
    GIB,
    JSON_PAIRS,
    LIBRARY_PRECEDENCE,
    PREFERENCE_OBJECTIVE,
    REINFORCEMENT_OBJECTIVE,
    EventLine,
    FactLine,
    FinerClock,
    LogFormat,
    StepLine,
    to_seconds,
)
from .trainer import PADDED_IMPLIES

CALLBACK_SOURCE: Final = "hiyouga/LLaMA-Factory/src/llamafactory/train/callbacks.py@ff6d4d1"
_START: Final = r'\{"current_steps": (?P<step>\d+), "total_steps": '
_CLOCK: Final = r"(?:(\d{1,9}) days?, )?(\d{1,9}):(\d\d):(\d\d)"


def _ended(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the end, with the clock as seconds of training."""
    match = re.fullmatch(_CLOCK, fields.get("clock", ""))
    rest = {name: value for name, value in fields.items() if name != "clock"}
    return rest | ({"seconds": str(to_seconds(*match.groups()))} if match else {})


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill since_start_s from `1 day, 2:03:04`.

    0 tokens means that they are not counted.
    """
    row["consumed_tokens"] = row.get("consumed_tokens") or None
    if match := re.fullmatch(_CLOCK, printed.get("elapsed_time", "")):
        row["since_start_s"] = to_seconds(*match.groups())


LLAMAFACTORY: Final = LogFormat(
    name="llamafactory",
    quirks=("tokens_of_processes",),
    engine_below="deepspeed",
    phase_timers=(*engine_timers(), *micro_step_timers()),
    framework="transformers",
    versions="trainer_log.jsonl of LLaMA-Factory 0.5 … 0.9",
    signature=r'"current_steps": \d+, "total_steps": \d+, "loss": ',
    looks_like_step=r'"current_steps": \d+, "total_steps": \d+, "loss": [^n]',
    evidence=("clock",),
    precedence=LIBRARY_PRECEDENCE,
    complete=_complete,
    finer_clock=FinerClock(clock="elapsed_time", tokens_per_s="throughput", early=0, late=1),
    file_names=("trainer_log.jsonl",),
    implies=PADDED_IMPLIES,
    steps=(
        StepLine(
            anchor='"current_steps": ',
            regex=r'(?P<pairs>\{"current_steps": \d+, "total_steps": \d+, "loss": (?!null).*)',
            pair=JSON_PAIRS,
            columns={
                "current_steps": "step",
                "loss": "loss",
                "learning_rate": "learning_rate",
                "lr": "learning_rate",
                "total_tokens": "consumed_tokens",
                "vram_allocated": ("peak_memory_bytes", GIB),
            },
            facts={"total_steps": "total_steps"},
            tells={"accuracy": PREFERENCE_OBJECTIVE, "reward": REINFORCEMENT_OBJECTIVE},
            example='{"current_steps": 10, "total_steps": 400, "loss": 1.5182, "lr": 4.5e-05, '
            '"epoch": 0.25, "percentage": 2.5, "elapsed_time": "0:01:07", "remaining_time": '
            '"0:43:33", "throughput": 9781.97, "total_tokens": 655392}',
            printed_by=f"{CALLBACK_SOURCE} LogCallback.on_log",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor='"eval_loss": ',
            regex=rf'{_START}.*"eval_loss": (?P<eval_loss>[\d.e+-]+)',
            kind="evaluation",
            example='{"current_steps": 100, "total_steps": 400, "eval_loss": 1.4127, "epoch": 2.5, '
            '"percentage": 25.0, "elapsed_time": "0:12:02", "remaining_time": "0:36:06"}',
            printed_by=f"{CALLBACK_SOURCE} LogCallback.on_log",
            composed=True,
        ),
        EventLine(
            anchor='"epoch": ',
            regex=r'\{"current_steps": (?P<step>\d+), "total_steps": (?P=step), '
            r'(?:"\w+": null, )*"epoch": (?:.*"elapsed_time": "(?P<clock>[^"]*)")?',
            kind="end",
            read=_ended,
            example='{"current_steps": 400, "total_steps": 400, "epoch": 10.0, "percentage": '
            '100.0, "elapsed_time": "0:45:10", "remaining_time": "0:00:00"}',
            printed_by=f"{CALLBACK_SOURCE} LogCallback.on_log",
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor='"current_steps": ',
            regex=r'\{"current_steps": \d+, "total_steps": \d+, (?:"\w+": null, )*'
            r'"(?:percentage|epoch|predict_loss)": ',
            example='{"current_steps": 5, "total_steps": 25, "percentage": 20.0, "elapsed_time": '
            '"0:00:12", "remaining_time": "0:00:48"}',
            printed_by=f"{CALLBACK_SOURCE} LogCallback.on_prediction_step",
            composed=True,
        ),
    ),
)
