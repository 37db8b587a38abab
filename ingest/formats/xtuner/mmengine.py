"""XTuner 0.1 and 0.2 (the legacy engine): the text log of mmengine, with or without ThroughputHook.

One `Iter` is one micro-step. `time`, `data_time` and `loss` are means over the last iterations
(ten, unless log_processor.window_size says otherwise); `tflops` and `tokens_per_sec` are the last
iteration's alone, so they are kept as claims and never averaged into a rate of ours. The
`gbs_tokens_per_sec` of DeepLink's hook is the rate of one GPU over the last optimizer step; lines
between two optimizer steps repeat it, so it is no time evidence of theirs and stays in `extra`.
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
"""Of a launcher, which stand before each line of a dump; others keep how they are indented."""
FOREIGN_LINE: Final = re.compile(
    r"\d%\|.*\[\d+:\d\d<|^\s*\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] \["
)
"""A progress bar, or a line of DeepSpeed's, that others print between the lines of a dump."""


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """The step of an `Epoch(train) [e][i/n]` line counts on over the epochs.

    Where iterations are counted and only logged so, e stays 1 and i goes beyond n.
    """
    if "per_epoch" in printed:
        row["step"] += (int(printed["epoch"]) - 1) * int(printed["per_epoch"])


def _environment(lines: Sequence[str]) -> dict[str, str]:
    """Device, world size and versions of the `System environment` block."""
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
    """The year, which stamps on stdout lack, of a line of DeepSpeed's that has one."""
    return {"started_year": lines[0][1:5]}


def config_facts(lines: Sequence[str]) -> dict[str, str]:
    """Facts of the dumped config, in the log or in a file: parsed as text, never executed."""
    config: dict[str, Any] = {}
    for statement in _statements(lines):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            config[statement.targets[0].id] = _literal(statement.value)
    found = {name: _first(config, paths) for name, paths in CONFIG_PATHS.items()}
    facts = {name: str(value) for name, value in found.items() if value is not None}
    if "model" in facts:  # with more than its language model, or otherwise trained, it is another
        kind = str(_get(config, "model.type") or SINGLE_MODEL_TYPES[0]).rpartition(".")[2]
        sees = _get(config, "model.visual_encoder") is not None
        facts["model"] += " with a visual encoder" * sees
        facts["model"] += f" in {kind}" * (kind not in SINGLE_MODEL_TYPES)
    return facts | _derived(config)


def _statements(lines: Sequence[str]) -> list[ast.stmt]:
    """What parses of the dump; a dump that is cut off loses its last statement only."""
    text = [LEADING_TAGS.sub("", line) for line in lines if not FOREIGN_LINE.search(line)]
    while text:
        try:
            with catch_warnings(action="ignore"):  # of '\\d' and the like: not our source
                return ast.parse("\n".join(text)).body
        except SyntaxError as error:
            text = text[: min((error.lineno or len(text)) - 1, len(text) - 1)]
        except (ValueError, RecursionError, MemoryError):
            return []
    return []


def _literal(node: ast.expr) -> Any:  # noqa: ANN401 - a config holds anything
    """Python literals, `dict(a=1)` as a dict; any other expression as None."""
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
"""Kinds of `model` that train the language model alone, or with what it sees; DPO has a reference
model beside it, a reward model another head."""

# Nested values come first: --cfg-options changes them and leaves the top-level names behind.
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


def _get(config: Any, path: str) -> Any:  # noqa: ANN401 - a config holds anything
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
    """What follows from the config by XTuner's own rules."""
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
"""Iterations that a printed time is a mean of by default (LogProcessor's window_size)."""
RATE_COLUMNS: Final = {"tflops": "logged_tflops", "tokens_per_sec": "logged_tgs"}


def _averaged(config: Mapping[str, Any]) -> dict[str, str]:
    """What is a mean over the window; keys that the pattern passes over are the last iteration's.

    Without a pattern of its own it averages the times, and no rate; without a window, ten.
    """
    log_processor = config.get("log_processor")
    of_default = log_processor is None and "default_hooks" in config  # the config is not a part
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
"""Keys of peft's LoraConfig by which some layers differ: no list of targets says what is trained."""


def _trainable(model: Any) -> dict[str, str]:  # noqa: ANN401 - as dumped
    """LoRA on the language model, frozen, or all of it."""
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
"""Others follow the times in each version: a line that ends with one is cut, maybe within it."""
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
    "num_tokens": "sequence_length",  # labels.shape[1]: of each row, however many
}


VISION_FIELDS: Final = r"\b(?:decode\.|loss_cls|loss_bbox|loss_obj|loss_mask|acc_seg)"
"""What MMSegmentation, MMDetection and MMYOLO print, which log by mmengine too."""

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
            kind="warning",  # its workers start again, behind a sleep of 2 s
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
        FactBlock(  # no FactLine: those tell of XTuner, and every program with DeepSpeed prints this
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
"""The config that is dumped for each launch, as it stands in the launch's own text log.

Beside the scalars, within the folder that mmengine names so; elsewhere it is anyone's module.
"""

PYTHON_FILE_HINT: Final = (
    "  A Python file is no log. XTuner's dump of a config is read as a companion of its log: "
    "beside the log\n  as vis_data/config.py, or beside the scalars in the folder vis_data.\n"
)
