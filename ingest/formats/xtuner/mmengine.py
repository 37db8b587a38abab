"""XTuner 0.1 and 0.2 (the legacy engine): the text log of mmengine.

With or without ThroughputHook. One `Iter` is one micro-step. `time`, `data_time` and `loss` are
means over the last iterations (ten, unless log_processor.window_size differs). `tflops` and
`tokens_per_sec` cover the last iteration alone, so they are stored as claims and never averaged
into a rate of ours. The `gbs_tokens_per_sec` of DeepLink's hook is the rate of one GPU over the
last optimizer step. Lines between two optimizer steps repeat the value, so it is no time evidence
for them and stays in `extra`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from warnings import catch_warnings

from ..spec import (
    LAUNCHER_TAG,
    MIB,
    ColumnTarget,
    CompanionFile,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    StepLine,
)

LOG_PROCESSOR_SOURCE: Final = "open-mmlab/mmengine/mmengine/runner/log_processor.py@v0.10.7"
MMENGINE_RUNNER_SOURCE: Final = "open-mmlab/mmengine/mmengine/runner/runner.py@v0.10.7"
LEADING_TAGS: Final = re.compile(rf"^\s*{LAUNCHER_TAG}+")
"""A launcher's tags before the lines of a dump; other prefixes are part of the indentation."""
FOREIGN_LINE: Final = re.compile(
    r"\d%\|.*\[\d+:\d\d<|^\s*\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] \["
)
"""A progress bar, or a line of DeepSpeed, that other writers print between the lines of a dump."""


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Count the step of an `Epoch(train) [e][i/n]` line on over the epochs.

    If iterations are counted and only logged in this form, e stays 1 and i exceeds n.
    """
    if "per_epoch" in printed:
        row["step"] += (int(printed["epoch"]) - 1) * int(printed["per_epoch"])


def _environment(lines: Sequence[str]) -> dict[str, str]:
    """Return device, world size and versions of the `System environment` block."""
    facts: dict[str, str] = {}
    names = {"GPU number": "gpus", "PyTorch": "torch", "NVCC": "cuda"}
    for line in lines:
        key, _, value = LEADING_TAGS.sub("", line).strip().partition(": ")
        if re.fullmatch(r"GPU [\d,]+", key):
            facts["accelerator"] = value
        elif key in names and value:
            facts[names[key]] = value
    return facts


def _year(lines: Sequence[str]) -> dict[str, str]:
    """Return the year of a line of DeepSpeed's: stamps on stdout lack one."""
    return {"started_year": lines[0][1:5]}


def config_facts(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of the dumped config, from a log or a file: parsed, never executed."""
    config: dict[str, Any] = {}
    for statement in _statements(lines):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            config[statement.targets[0].id] = _literal(statement.value)
    values = {name: _first(config, paths) for name, paths in CONFIG_PATHS.items()}
    facts = {name: str(value) for name, value in values.items() if value is not None}
    if "model" in facts:  # more than a language model, or other training, makes another model
        kind = str(_get(config, "model.type") or SINGLE_MODEL_TYPES[0]).rpartition(".")[2]
        sees = _get(config, "model.visual_encoder") is not None
        facts["model"] += " with a visual encoder" * sees
        facts["model"] += f" in {kind}" * (kind not in SINGLE_MODEL_TYPES)
    return facts | _derived(config)


def _statements(lines: Sequence[str]) -> list[ast.stmt]:
    """Return the statements of the dump that parse.

    A cut dump loses only its last one.
    """
    text = [LEADING_TAGS.sub("", line) for line in lines if not FOREIGN_LINE.search(line)]
    while text:
        try:
            with catch_warnings(action="ignore"):  # about '\\d' and so on: not our source
                return ast.parse("\n".join(text)).body
        except SyntaxError as error:
            text = text[: min((error.lineno or len(text)) - 1, len(text) - 1)]
        except (ValueError, RecursionError, MemoryError):
            return []
    return []


def _literal(node: ast.expr) -> Any:  # noqa: ANN401 - a config has any values
    """Return Python literals, and `dict(a=1)` as a dict.

    None for any other expression.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return {k.arg: _literal(k.value) for k in keywords if k.arg}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_literal(k): _literal(v) for k, v in pairs if isinstance(k, ast.Constant)}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case _:
            return None


SINGLE_MODEL_TYPES: Final = ("SupervisedFinetune", "LLaVAModel")
"""Types of `model` that train only the language model, with or without its visual encoder. DPO adds
a reference model, a reward model another head.
"""

# Nested values come first: --cfg-options changes them, and not the top-level names.
CONFIG_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "model": (
        "model.llm.pretrained_model_name_or_path",
        "model.llm.model_path",
        "model.pretrained_model_name_or_path",
        "pretrained_model_name_or_path",
        "llm_name_or_path",
        "model_path",
        "path",
    ),
    "seq_len": ("train_dataloader.dataset.max_length", "train_dataset.max_length", "max_length"),
    "packed": (
        "train_dataloader.dataset.pack_to_max_length",
        "train_dataset.pack_to_max_length",
        "pack_to_max_length",
    ),
    "document_mask": (
        "model.use_varlen_attn",
        "train_dataloader.dataset.use_varlen_attn",
        "use_varlen_attn",
    ),
    "micro_batch_size": ("train_dataloader.batch_size", "batch_size"),
    "gradient_accumulation": (
        "strategy.gradient_accumulation_steps",
        "optim_wrapper.accumulative_counts",
        "accumulative_counts",
    ),
    "context_parallel": ("strategy.sequence_parallel_size", "sequence_parallel_size"),
    "zero_stage": ("strategy.config.zero_optimization.stage",),
    "log_interval": ("default_hooks.logger.interval",),
    "average_window": ("log_processor.window_size",),
    "total_steps": ("train_cfg.max_iters",),
    "optimizer": ("optim_wrapper.optimizer.type",),
}


def _get(config: Any, path: str) -> Any:  # noqa: ANN401 - a config has any values
    for key in path.split("."):
        if not isinstance(config, dict):
            return None
        config = config.get(key)
    return config


def _first(config: dict[str, Any], paths: Sequence[str]) -> Any:  # noqa: ANN401
    for path in paths:
        value = _get(config, path)
        if isinstance(value, (int, float, str)) and value != "auto":
            return value
    return None


def _derived(config: dict[str, Any]) -> dict[str, str]:
    """Return facts that XTuner's own rules derive from the config."""
    facts: dict[str, str] = {}
    if "model" in config:
        facts.update(_trainable(config["model"]))
        recompute = _get(config, "model.use_activation_checkpointing")
        facts["recompute"] = "none" if recompute is False else "full"
    if _get(config, "strategy.config.bf16.enabled"):
        facts["precision"] = "bf16"
    elif _get(config, "strategy.config.fp16.enabled"):
        facts["precision"] = "fp16"
    elif dtype := _get(config, "optim_wrapper.dtype"):
        facts["precision"] = {"bfloat16": "bf16", "float16": "fp16"}.get(str(dtype), str(dtype))
    elif str(_get(config, "optim_wrapper.type")).endswith(".OptimWrapper"):
        facts["precision"] = "fp32"
    facts.update(_averaged(config))
    return facts


DEFAULT_MEAN_WINDOW: Final = "10"
"""Iterations in the mean of a printed time by default (LogProcessor's window_size)."""
RATE_COLUMNS: Final = {"tflops": "logged_tflops", "tokens_per_sec": "logged_tgs"}


def _averaged(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the window of printed times, and the rates that are means over it.

    mean_pattern selects the keys that are means; other keys cover the last iteration. Without a
    pattern the times are means, and no rate is; without a window the mean covers ten.
    """
    log_processor = config.get("log_processor")
    of_default = log_processor is None and "default_hooks" in config  # a whole config
    usual = isinstance(log_processor, dict) and _get(log_processor, "window_size") is None
    window = {"average_window": DEFAULT_MEAN_WINDOW} if usual or of_default else {}
    mean_pattern = _get(log_processor, "mean_pattern")
    if not isinstance(mean_pattern, str):
        return window
    with suppress(re.error, RecursionError, OverflowError):
        several = _get(log_processor, "window_size") != 1
        means = [
            RATE_COLUMNS[key] for key in RATE_COLUMNS if several and re.search(mean_pattern, key)
        ]
        facts = {"averaged_rates": ",".join(means)} if means else {}
        return facts | (window if re.search(mean_pattern, "time") else {"average_window": "1"})
    return window


PARTIAL_LORA_KEYS: Final = ("layers_to_transform", "modules_to_save", "rank_pattern")
"""Keys of peft's LoraConfig that treat some layers differently: the targets are no full
description.
"""


def _trainable(model: Any) -> dict[str, str]:  # noqa: ANN401 - as dumped
    """Return lora (on the language model), frozen, or full."""
    lora = _get(model, "lora") or _get(model, "llm_lora")
    if isinstance(lora, dict):
        targets = lora.get("target_modules") or ["all-linear"]
        names = targets if isinstance(targets, list) else [targets]
        facts = {"trainable": "lora"} | ({"lora_rank": str(lora["r"])} if "r" in lora else {})
        if any(lora.get(key) for key in PARTIAL_LORA_KEYS):
            return facts
        return facts | {"lora_targets": ",".join(map(str, names))}
    return {"trainable": "frozen" if _get(model, "freeze_llm") else "full"}


LOOPS_SOURCE: Final = "open-mmlab/mmengine/mmengine/runner/loops.py@v0.10.7"
CHECKPOINTS_SOURCE: Final = "open-mmlab/mmengine/mmengine/hooks/checkpoint_hook.py@v0.10.7"
CHAT_HOOK_SOURCE: Final = "InternLM/xtuner/xtuner/engine/hooks/evaluate_chat_hook.py@v0.2.0"
DATASET_HOOK_SOURCE: Final = "InternLM/xtuner/xtuner/engine/hooks/dataset_info_hook.py@v0.2.0"

XTUNER_PAIR: Final = (
    r"(?<![\w./-])(?!(?:data_)?time: {1,9}\S{0,40}$)(?P<key>[A-Za-z_][\w./-]*): +(?P<value>(?:\d+ days?, )?\d+:\d\d:\d\d"
    r"|[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|-inf)(?=\s|$)"
)
"""The times never end a line in any version: a line that ends with one is cut, maybe in its number.
"""
XTUNER_COLUMNS: Final[Mapping[str, ColumnTarget]] = {
    "epoch": "epoch",
    "step": "step",
    "lr": "learning_rate",
    "time": "elapsed_s",
    "data_time": "data_s",
    "memory": ("peak_memory_bytes", MIB),
    "loss": "loss",
    "grad_norm": "grad_norm",
    "tflops": "logged_tflops",
    "tokens_per_sec": "logged_tgs",
    "num_tokens": "sequence_length",  # labels.shape[1]: tokens of a row, for any number of rows
}


VISION_FIELDS: Final = r"\b(?:decode\.|loss_cls|loss_bbox|loss_obj|loss_mask|acc_seg)"
"""Fields of MMSegmentation, MMDetection and MMYOLO, which also log by mmengine."""

XTUNER: Final = LogFormat(
    name="xtuner",
    framework="xtuner",
    versions="0.1.0 … 0.2.0 (mmengine)",
    signature=r"(?:Iter|Epoch)\(train\) +(?:\[ *\d+\])?\[ *\d+/\d+\] ++"
    rf"(?!.*{VISION_FIELDS}).*\btime: ",
    looks_like_step=r"(?:Iter|Epoch)\(train\)",
    step_pieces=r"\b(?:data_time|tokens_per_sec):\W{0,9}\d",
    clock=r"(?P<stamp>(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d)(?= - mmengine)",
    launch=r"System environment:|mmengine - INFO - Config:",
    evidence=("elapsed", "stamp", "rate"),
    step_unit="micro_step",
    elapsed_covers="last_10",
    quirks=("wait_has_pauses",),
    rate_covers="step",
    complete=_complete,
    rank_in_path=r"_device\d+_rank(\d+)\.log",
    steps=(
        StepLine(
            anchor="Iter(train)",
            regex=r"Iter\(train\) +\[ *(?P<step>\d+)/(?P<total>\d+)\] +(?P<pairs>\S.*)",
            pair=XTUNER_PAIR,
            columns=XTUNER_COLUMNS,
            facts={"total": "total_steps"},
            example="2026/11/20 15:28:43 - mmengine - INFO - Iter(train) [10/60]  lr: 1.0000e-03  "
            "eta: 0:00:03  time: 0.0664  data_time: 0.0018  grad_norm: 2.6897  loss: 6.6737  "
            "tflops: 0.0556  tokens_per_sec: 8313.8805",
            printed_by=LOG_PROCESSOR_SOURCE,
        ),
        StepLine(
            anchor="Epoch(train)",
            regex=r"Epoch\(train\) +\[ *(?P<epoch>\d+)\]\[ *(?P<step>\d+)/(?P<per_epoch>\d+)\] +"
            r"(?P<pairs>\S.*)",
            pair=XTUNER_PAIR,
            columns=XTUNER_COLUMNS,
            example="2026/11/20 15:28:43 - mmengine - INFO - Epoch(train) [2][ 20/412]  "
            "lr: 1.9642e-04  eta: 0:25:13  time: 1.3127  data_time: 0.0031  memory: 10716  "
            "loss: 1.2048  grad_norm: 0.4217",
            printed_by=LOG_PROCESSOR_SOURCE,
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="Checkpoints will be saved to",
            regex=r"mmengine - INFO - Checkpoints will be saved to",
            kind="train_start",  # the last hook before the loop: its priority is VERY_LOW
            example="2026/11/20 15:32:08 - mmengine - INFO - Checkpoints will be saved to "
            "work_dirs/cfg.",
            printed_by=f"{CHECKPOINTS_SOURCE} CheckpointHook.before_train",
        ),
        EventLine(
            anchor="Saving checkpoint at",
            regex=r"Saving checkpoint at +(?P<step>\d+) iterations",
            kind="checkpoint",
            example="2026/11/20 15:28:47 - mmengine - INFO - Saving checkpoint at 60 iterations",
            printed_by=CHECKPOINTS_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Saving checkpoint at",
            regex=r"Saving checkpoint at +(?P<epochs>\d+) epochs",
            kind="checkpoint",
            example="2026/11/20 15:28:47 - mmengine - INFO - Saving checkpoint at 3 epochs",
            printed_by=CHECKPOINTS_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="in EvaluateChatHook",
            regex=r"(?P<when>before_train|after_train_iter|after_val) in EvaluateChatHook",
            kind="evaluation",
            example="2026/11/20 15:28:47 - mmengine - INFO - after_train_iter in EvaluateChatHook.",
            printed_by=CHAT_HOOK_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="after_train in EvaluateChatHook",
            regex=r"after_train in EvaluateChatHook",
            kind="end",
            example="2026/11/20 15:28:47 - mmengine - INFO - after_train in EvaluateChatHook.",
            printed_by=CHAT_HOOK_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="(val)",
            regex=r"(?:Iter|Epoch)\(val\)",
            kind="evaluation",
            example="2026/11/20 15:28:47 - mmengine - INFO - Iter(val) [10/10]  time: 0.1",
            printed_by=LOG_PROCESSOR_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="resumed epoch: ",
            regex=r"resumed epoch: (?P<epoch>\d+), iter: (?P<step>\d+)",
            kind="load",
            example="2026/11/20 15:28:43 - mmengine - INFO - resumed epoch: 0, iter: 500",
            printed_by=MMENGINE_RUNNER_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="checkpoint ",
            regex=r"mmengine - INFO - (?:Load checkpoint|Resume checkpoint|Auto resumed) from "
            r"(?:the latest checkpoint )?(?!None\b)(?P<path>\S+?)\.?\s*$",
            kind="load",
            example="2026/11/20 15:28:43 - mmengine - INFO - Auto resumed from the latest "
            "checkpoint work_dirs/cfg/iter_500.pth.",
            printed_by=MMENGINE_RUNNER_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Advance dataloader ",
            regex=r"Advance dataloader (?P<step>\d+) steps to skip data",
            kind="load",
            example="2026/11/20 15:28:43 - mmengine - WARNING - Advance dataloader 500 steps to "
            "skip data that has already been trained",
            printed_by=LOOPS_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Reach the end of the dataloader",
            regex=r"Reach the end of the dataloader, it will be restarted",
            kind="warning",  # its workers start again, after a sleep of 2 s
            example="2026/11/20 15:28:45 - mmengine - WARNING - Reach the end of the dataloader, "
            "it will be restarted and continue to iterate. It is recommended to use "
            "`mmengine.dataset.InfiniteSampler` to enable the dataloader to iterate infinitely.",
            printed_by=LOOPS_SOURCE,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor="Exp name: ",
            regex=r"Exp name: \S+_(?P<started_year>20\d\d)\d{4}_\d{6}\b",
            example="2026/11/20 15:28:47 - mmengine - INFO - Exp name: cfg_20261120_152842",
            printed_by="open-mmlab/mmengine/mmengine/hooks/logger_hook.py@v0.10.7",
            composed=True,
        ),
        FactLine(
            anchor="variable-length Flash Attention",
            regex=r"Using variable-length Flash Attention causes an inflation in the FLOPs",
            constants={"document_mask": "true"},
            example="2026/11/20 15:28:43 - mmengine - WARNING - Using variable-length Flash "
            "Attention causes an inflation in the FLOPs calculation.",
            printed_by="InternLM/xtuner/xtuner/engine/hooks/throughput_hook.py@v0.2.0",
            composed=True,
        ),
        FactLine(
            anchor="Num train samples",
            regex=r"Num train samples (?P<total_samples>\d+)",
            example="2026/11/20 15:32:07 - mmengine - INFO - Num train samples 443",
            printed_by=DATASET_HOOK_SOURCE,
        ),
        FactLine(
            anchor=" example:",
            regex=r"mmengine - INFO - (?:train|eval|test) example:",
            example="2026/11/20 15:32:07 - mmengine - INFO - train example:",
            printed_by=DATASET_HOOK_SOURCE,
        ),
        FactLine(
            anchor="Sample output:",
            regex=r"mmengine - INFO - Sample output:",
            example="2026/11/20 15:28:47 - mmengine - INFO - Sample output:",
            printed_by=CHAT_HOOK_SOURCE,
            composed=True,
        ),
    ),
    blocks=(
        FactBlock(  # no FactLine, which would prove XTuner: every program with DeepSpeed prints this
            start=r"^\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] \[INFO\] \[real_accelerator\.py:",
            end=r"",
            read=_year,
            include_start=True,
            example=(
                "[2026-11-20 15:28:39,778] [INFO] [real_accelerator.py:222:get_accelerator] "
                "Setting ds_accelerator to cpu (override)",
            ),
            printed_by="deepspeedai/DeepSpeed/accelerator/real_accelerator.py@v0.16.2",
        ),
        FactBlock(
            start=rf"^(?:\s*{LAUNCHER_TAG}+)?System environment:",
            end=rf"^(?:\s*{LAUNCHER_TAG}+)?-{{20,}}\s*$",
            read=_environment,
            example=(
                "System environment:",
                "    sys.platform: linux",
                "    GPU 0,1: NVIDIA A100-SXM4-80GB",
                "    GPU number: 2",
                "-" * 60,
            ),
            printed_by=MMENGINE_RUNNER_SOURCE,
        ),
        FactBlock(
            start=r"mmengine - INFO - Config:\s*$",
            end=r" - mmengine - (?:\S*)(?:INFO|WARNING|ERROR)",
            read=config_facts,
            example=(
                "2026/11/20 15:28:42 - mmengine - INFO - Config:",
                "max_length = 256",
                "model = dict(use_activation_checkpointing=False, use_varlen_attn=False)",
                "2026/11/20 15:28:42 - mmengine - WARNING - Failed to search registry",
            ),
            printed_by=MMENGINE_RUNNER_SOURCE,
        ),
    ),
)

DUMPED_CONFIGS: Final = (
    CompanionFile(names=("vis_data/config.py",), kind="lines", read=config_facts),
    CompanionFile(names=("config.py",), kind="lines", read=config_facts, within="vis_data"),
)
"""The config dumped for a launch, as in the launch's own text log.

Only next to the scalars, in the folder named by mmengine; elsewhere config.py is any module.
"""

PYTHON_FILE_HINT: Final = (
    "  A Python file is not a log. XTuner's dumped config gives facts to a log: put it beside the "
    "log\n  as vis_data/config.py, or beside the scalars in the folder vis_data.\n"
)
