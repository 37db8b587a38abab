"""MLPerf's log of the Llama-2-70B LoRA reference (Hugging Face Trainer).

    :::MLLOG {"time_ms": 1715…, "key": "train_loss", "value": 1.3, "metadata": {"samples_count": 80}}

A step is `samples_count` over the global batch size. Stamps are in milliseconds since the epoch.
The reference packs its data set to 8,192 tokens a sample. Some evaluations are not logged: those
before the first one that may end the run are part of the time between two losses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..spec import (
    LIBRARY_PRECEDENCE,
    CompanionFile,
    EventLine,
    FactLine,
    LogFormat,
    StepLine,
)

MLPERF_SOURCE: Final = "mlcommons/training/llama2_70b_lora/scripts/mlperf_logging_utils.py@00baefa"
GLOBAL_BATCH_LINE: Final = re.compile(
    r':::MLLOG .*"key": "global_batch_size", "value": ([1-9]\d{0,17}), "'
)
TRAIN_LOSS_SAMPLES: Final = re.compile(
    r':::MLLOG .*"key": "train_loss", .*"samples_count": (\d{1,18})\b(?!\.)'
)


def _join(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield lines; add the step to a loss, from its samples and the last batch size."""
    batch = 0
    for number, text in lines:
        if match := GLOBAL_BATCH_LINE.search(text):
            batch = int(match[1])
        match = TRAIN_LOSS_SAMPLES.search(text)
        step, rest = divmod(int(match[1]), batch) if match and batch else (0, 0)
        yield number, 1, f"{text} (step {step})" if step and not rest else text


def _line(key: str, value: str = "", event: str = "POINT_IN_TIME", metadata: str = "") -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": 1715200000123, "event_type": "{event}", '
        f'"key": "{key}", "value": {value or chr(34) * 2}, "metadata": '
        f'{{"file": "mlperf_logging_utils.py", "lineno": 102{metadata}}}}}'
    )


def _key(key: str, fact: str) -> FactLine:
    return FactLine(
        anchor=f'"key": "{key}"',
        regex=rf':::MLLOG .*"key": "{key}", "value": (?P<{fact}>\d+), "metadata": ',
        example=_line(key, "16"),
        printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_train_begin",
        composed=True,
    )


def _system(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the accelerators of a submission's system description."""
    counts = [str(values.get(key, "")) for key in ("number_of_nodes", "accelerators_per_node")]
    name = values.get("accelerator_model_name")
    if not isinstance(name, str) or not name.strip():
        return {}
    whole = all(count.isdecimal() and int(count) for count in counts)
    facts = {"gpus": str(int(counts[0]) * int(counts[1]))} if whole else {}
    return facts | {"accelerator": name.strip()}


SYSTEM_FILES: Final = (
    CompanionFile(
        names=("*_system.json", "../../../systems/{parent}.json"),
        kind="JSON",
        read=_system,
        of_one_run=True,
    ),
)
"""Systems of a submission: the one whose name begins the log's, or that of its folder:
results/SYSTEM/BENCHMARK/result_0.txt belongs to systems/SYSTEM.json
(mlcommons/policies/submission_rules.adoc, directory structure).
"""

MLPERF: Final = LogFormat(
    name="mlperf",
    engine_below="deepspeed",
    phase_timers=(*engine_timers(), *micro_step_timers()),
    framework="transformers",
    versions="MLPerf Training 4.0 and later, llama2_70b_lora reference",
    signature=r':::MLLOG .*"key": "train_loss", .*"file": "(?:[^"]*/)?mlperf_logging_utils\.py"'
    r'.*"samples_count": \d',
    looks_like_step=r':::MLLOG .*"key": "train_loss", ',
    clock=r'"time_ms": (?P<stamp>\d{13})\b',
    utc=True,
    launch=r':::MLLOG .*"key": "(?:init_start|cache_clear)"',
    evidence=("stamp",),
    precedence=LIBRARY_PRECEDENCE,
    join=_join,
    steps=(
        StepLine(
            anchor='"key": "train_loss"',
            regex=r':::MLLOG \{[^{}]*"key": "train_loss", "value": (?P<loss>[\w.+-]+), "metadata": '
            r'\{[^{}]*"samples_count": (?P<samples_count>\d+)\b(?!\.)[^{}]*\}\}.*\(step (?P<step>\d+)\)$',
            columns={"loss": "loss", "samples_count": "consumed_samples", "step": "step"},
            example=_line("train_loss", "1.4283", metadata=', "samples_count": 320') + " (step 40)",
            printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_step_begin",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor='"key": "eval_accuracy"',
            regex=r':::MLLOG .*"key": "eval_accuracy", "value": (?P<eval_loss>[\d.e+-]+), .*'
            r'"samples_count": (?P<samples_count>\d+)\b(?!\.)',
            kind="evaluation",
            example=_line("eval_accuracy", "0.9428", metadata=', "samples_count": 1536'),
            printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_step_begin",
            composed=True,
        ),
        EventLine(
            anchor='"key": "run_stop"',
            regex=r':::MLLOG .*"key": "run_stop", .*"status": "(?P<status>\w+)"',
            kind="end",
            example=_line("run_stop", "0.9246", "INTERVAL_END", ', "status": "success"'),
            printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_step_begin",
            composed=True,
        ),
    ),
    facts=(
        _key("global_batch_size", "global_batch_size"),
        _key("gradient_accumulation_steps", "gradient_accumulation"),
        _key("train_samples", "total_samples"),
        _key("opt_learning_rate_training_steps", "total_steps"),
        FactLine(
            anchor='"key": "lora_rank"',
            regex=r':::MLLOG .*"key": "lora_rank", "value": (?P<lora_rank>\d+), "metadata": ',
            constants={"trainable": "lora"},
            example=_line("lora_rank", "16"),
            printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_train_begin",
            composed=True,
        ),
        FactLine(
            anchor='"llama2_70b_lora"',
            regex=r':::MLLOG .*"key": "submission_benchmark", "value": "llama2_70b_lora"',
            constants={"model": "llama2-70b", "seq_len": "8192", "packed": "true"},
            inferred="the rules of the llama2_70b_lora benchmark: 8,192 tokens, packed",
            example=_line("submission_benchmark", '"llama2_70b_lora"'),
            printed_by=f"{MLPERF_SOURCE} MLPerfCallback.on_train_begin",
            composed=True,
        ),
        FactLine(
            anchor=":::MLLOG ",
            regex=r':::MLLOG \{"namespace": ',
            example=_line("block_start", event="INTERVAL_START"),
            printed_by="mlcommons/logging/mlperf_logging/mllog/mllog.py@4.0",
            composed=True,
        ),
    ),
)
