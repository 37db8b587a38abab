"""ms-swift's logging.jsonl: the Hugging Face Trainer's dicts as JSON.

A dict has its step and, in whole seconds, the time since the training loop began, which restarts on
resume. The last line is a summary that repeats all dicts in one list.
"""

from __future__ import annotations

import re
from typing import Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..spec import JSON_PAIRS, LIBRARY_PRECEDENCE, EventLine, FactLine, LogFormat, StepLine
from .swift_lines import SAMPLE_LENGTHS
from .trainer import (
    DICT_COLUMNS,
    GLOBAL_STEP_KEYS,
    MS_SWIFT_CLOCK,
    OBJECTIVE_KEYS,
    PADDED_IMPLIES,
    complete_row,
)

MS_SWIFT_SOURCE: Final = "modelscope/ms-swift/swift/trainers/callback.py@018a548 add_train_message"
_START: Final = r"(?<!\[)(?<!,)(?<!, )\{"
"""Start of a line's object, after at most a launcher's tag; in a list the summary repeats an
object.
"""
MS_SWIFT_MEGATRON_SOURCE: Final = (
    "modelscope/ms-swift/swift/megatron/callbacks/print.py@efd0a54 PrintCallback"
)
_STEPS: Final = rf"(?:{'|'.join(map(re.escape, GLOBAL_STEP_KEYS))})"
_OF: Final = rf'"(?:{_STEPS}|iteration)": "'
"""Before the step and the total; `iteration` is from the Megatron trainer
(MS_SWIFT_MEGATRON_SOURCE).
"""
_PLACE: Final = rf'{_OF}(?P<step>\d+)/\d+"'


def _step(key: str, example: str, printed_by: str) -> StepLine:
    """Return a line with a loss. key: regex of the key of step and total."""
    return StepLine(
        anchor='{"loss": ',
        regex=rf'(?P<pairs>{_START}"loss": .*"{key}": "\d+/(?P<total>\d+)".*)',
        pair=JSON_PAIRS,
        columns=DICT_COLUMNS,
        tells=OBJECTIVE_KEYS,
        facts={"total": "total_steps"},
        example=example,
        printed_by=printed_by,
        composed=True,
    )


MS_SWIFT: Final = LogFormat(
    name="ms-swift",
    quirks=("tokens_of_processes",),
    engine_below="deepspeed",
    phase_timers=(*engine_timers(), *micro_step_timers()),
    framework="transformers",
    versions="logging.jsonl of ms-swift 2 … 4, lines with global_step/max_steps or iteration",
    signature=rf'{_START}"loss": .*{_OF}\d+/',
    looks_like_step=rf'{_START}"loss": .*{_OF}',
    evidence=("clock",),
    precedence=LIBRARY_PRECEDENCE,
    complete=complete_row,
    finer_clock=MS_SWIFT_CLOCK,
    file_names=("logging.jsonl",),
    implies=PADDED_IMPLIES,
    steps=(
        _step(
            _STEPS,
            '{"loss": 1.41207712, "grad_norm": 9.8125, "learning_rate": 1e-05, '
            '"token_acc": 0.65210381, "epoch": 0.05, "global_step/max_steps": "5/94", "percentage": '
            '"5.32%", "elapsed_time": "10s", "remaining_time": "3m 12s", "memory(GiB)": 5.64, '
            '"train_speed(iter/s)": 0.461462}',
            MS_SWIFT_SOURCE,
        ),
        _step(
            "iteration",
            '{"loss": 1.7203125, "grad_norm": 2.3125, "learning_rate": 3e-08, '
            '"load_balancing_loss": 1.0171875, "iteration": "1/240", "elapsed_time": "1m 31s", '
            '"remaining_time": "6h 2m 29s", "memory(GiB)": 61.25, "train_speed(s/it)": 90.998412}',
            MS_SWIFT_MEGATRON_SOURCE,
        ),
    ),
    events=(
        EventLine(
            anchor='"train_runtime": ',
            regex=rf'{_START}"train_runtime": (?P<seconds>[\d.e+-]+)'
            r'(?:, "train_samples_per_second": (?P<train_samples_per_second>[\d.e+-]+))?'
            r'(?:, "train_steps_per_second": (?P<train_steps_per_second>[\d.e+-]+))?'
            r'(?:, "total_flos": (?P<total_flos>[\d.e+-]+))?'
            rf'(?:.*"train_loss": (?P<train_loss>[\w.+-]+))?(?:.*{_PLACE})?',
            kind="end",
            example='{"train_runtime": 201.3712, "train_samples_per_second": 7.451, '
            '"train_steps_per_second": 0.467, "train_loss": 1.38120114, "epoch": 1.0, '
            '"global_step/max_steps": "94/94", "percentage": "100.00%", "elapsed_time": "3m 21s", '
            '"remaining_time": "0s", "memory(GiB)": 5.9, "train_speed(iter/s)": 0.466803}',
            printed_by=MS_SWIFT_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor='"eval_runtime": ',
            regex=rf'{_START}"eval_loss": (?P<eval_loss>[\w.+-]+).*"eval_runtime": '
            rf"(?P<seconds>[\d.e+-]+)(?:.*{_PLACE})?",
            kind="evaluation",
            example='{"eval_loss": 1.40221, "eval_token_acc": 0.655, "eval_runtime": 4.2108, '
            '"eval_samples_per_second": 11.874, "eval_steps_per_second": 2.968, "epoch": 0.53, '
            '"global_step/max_steps": "50/94", "percentage": "53.19%", "elapsed_time": "1m 52s"}',
            printed_by=MS_SWIFT_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor='"iteration": "',
            regex=rf'{_START}"eval_loss": (?P<eval_loss>[\w.+-]+), .*"iteration": "(?P<step>\d+)/',
            kind="evaluation",
            example='{"eval_loss": 1.6640625, "iteration": "10/240", "elapsed_time": "6m 50s", '
            '"remaining_time": "2h 37m 9s", "memory(GiB)": 61.5, "train_speed(s/it)": 41.001022}',
            printed_by=MS_SWIFT_MEGATRON_SOURCE,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor='{"train_dataset": "',
            regex=rf'\{{"train_dataset": "{SAMPLE_LENGTHS}.*"last_model_checkpoint": ',
            example='{"train_dataset": "300.000000\\u00b150.000000, min=60.000000, max=900.000000, '
            'size=3200", "val_dataset": null, "last_model_checkpoint": "out/checkpoint-200"}',
            printed_by="modelscope/ms-swift/swift/llm/train/sft.py SwiftSft._save_trainer_state",
            composed=True,
        ),
        FactLine(
            anchor='"log_history": [',
            regex=r'"last_model_checkpoint": .*"log_history": \[',
            example='{"last_model_checkpoint": "out/checkpoint-94", "best_metric": null, '
            '"global_step": 94, "log_history": [], "memory": 5.9}',
            printed_by="modelscope/ms-swift/swift/llm/train/sft.py SwiftSft._save_trainer_state",
            composed=True,
        ),
    ),
)
