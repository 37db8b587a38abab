"""Torchtitan's job config: printed, saved, or given on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.schema import TOKEN_SHARING_DEGREES
from ..spec import WANDB_CONFIG_NAMES, CompanionFile

NUMBER_FACT_PATHS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "log_interval": (("metrics", "log_freq"),),
    "seq_len": (("training", "seq_len"),),
    "micro_batch_size": (("training", "local_batch_size"), ("training", "batch_size")),
    "global_batch_size": (("training", "global_batch_size"),),
    "total_steps": (("training", "steps"),),
    "tensor_parallel": (
        ("parallelism", "tensor_parallel_degree"),
        ("training", "tensor_parallel_degree"),
    ),
    "pipeline_parallel": (
        ("parallelism", "pipeline_parallel_degree"),
        ("experimental", "pipeline_parallel_degree"),
    ),
    "context_parallel": (
        ("parallelism", "context_parallel_degree"),
        ("experimental", "context_parallel_degree"),
    ),
    "expert_parallel": (("parallelism", "expert_parallel_degree"),),
}
"""Fact to its paths in the job config, newer name first."""

FP32: Final = "fp32"
DTYPE_PRECISIONS: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": FP32}
QUANTIZING_CONVERTERS: Final = re.compile(r"float8|fp8|mx|nvfp4|quantize|torchao", re.IGNORECASE)


def job_config_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of the job config, by the names of 2024-12 to 0.3.0."""
    facts = _description(_section(config, "job"))
    for fact, places in NUMBER_FACT_PATHS.items():
        numbers = (_section(config, section).get(key) for section, key in places)
        given = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n > 0]
        if given:
            facts[fact] = str(given[0])
    if quantized := _converters(config):
        facts["quantization"] = quantized
    elif dtype := DTYPE_PRECISIONS.get(
        str(_section(config, "training").get("mixed_precision_param"))
    ):
        facts["precision"] = dtype
    if (
        weights := DTYPE_PRECISIONS.get(str(_section(config, "training").get("dtype")), FP32)
    ) != FP32:
        facts["weights_precision"] = weights
    recompute = _section(config, "activation_checkpoint").get("mode")
    if recompute in ("none", "full", "selective"):
        facts["recompute"] = str(recompute)
    elif "activation_checkpoint" in config and config["activation_checkpoint"] is None:
        facts["recompute"] = "none"
    places = (("compile", "enable"), ("training", "compile"))
    compiled = [_section(config, section).get(key) for section, key in places]
    if given := [value for value in compiled if isinstance(value, bool)]:
        facts["compile"] = str(given[0]).lower()
    facts |= _profiled_steps(_section(config, "profiler") or _section(config, "profiling"))
    return facts | _replica_group(_section(config, "fault_tolerance")) | attention_facts(config)


DEFAULT_DESCRIPTION: Final = "default job"


def _description(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the job's description as its name; the default says nothing."""
    text = job.get("description")
    named = isinstance(text, str) and text.strip() and text.strip() != DEFAULT_DESCRIPTION
    return {"name": str(text).strip()} if named else {}


def _profiled_steps(profiler: Mapping[str, Any]) -> dict[str, str]:
    """Return the steps of a profiler's cycle: warm-up, then recording."""
    if profiler.get("enable_profiling") is not True:
        return {}
    numbers = [profiler.get(key) for key in ("profiler_warmup", "profiler_active")]
    steps = [n for n in numbers if type(n) is int and n >= 0]
    return {"profiled_steps": str(sum(steps))} if len(steps) == len(numbers) and any(steps) else {}


def _replica_group(fault_tolerance: Mapping[str, Any]) -> dict[str, str]:
    """Return the number of TorchFT's replica groups, and a job's own.

    0 groups is unset.
    """
    if fault_tolerance.get("enable") is not True:
        return {}
    keys = {"replica_groups": ("group_size", 1), "replica_group": ("replica_id", 0)}
    values = {fact: fault_tolerance.get(key) for fact, (key, _) in keys.items()}
    return {fact: str(n) for fact, n in values.items() if type(n) is int and n >= keys[fact][1]}


LORA_KEYS: Final = {"rank", "alpha", "target_modules", "merge_adapter", "save_format"}
"""Keys of LoRA in the config; LoRA quantizes nothing."""


def _converters(config: Mapping[str, Any]) -> str:
    """Return the quantization in the config: then the matmuls have no common dtype."""
    if _section(config, "float8").get("enable_float8_linear") is True:
        return "float8.enable_float8_linear"
    if converters := _section(config, "model_converters").get("converters"):  # 2026-02 to -04
        set_ = {key for key, value in _items(converters) if value is not False}
        if kinds := sorted(set_ - LORA_KEYS):
            return f"model_converters: {', '.join(kinds)[:60]}"
    listed = _section(config, "model").get("converters")
    names = listed if isinstance(listed, list) else str(listed or "").split(",")
    built = (k for k, v in _items(_section(config, "model_spec").get("model")) if v)
    return ", ".join(
        sorted({str(n) for n in (*names, *built) if QUANTIZING_CONVERTERS.search(str(n))})
    )


def attention_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of attention in a printed config, if all of its layers agree.

    `block_causal` stops at document borders; `varlen` allows no other mask.
    """
    items = list(_items(values))
    backends = {str(v) for k, v in items if k in ("attn_backend", "attn_type") and v}
    if any(k == "inner_attention" and "kernel_options" in dict(_items(v)) for k, v in items):
        backends.add("flex")
    if flex := {str(v) for k, v in items if k == "use_flex_attn"}:
        backends.add("flex" if flex == {"True"} else "sdpa")
    masks = {str(v) for k, v in items if k in ("attn_mask_type", "mask_type")}
    facts = {"attention": backends.pop()} if len(backends) == 1 else {}
    if masks <= {"causal", "block_causal"} and len(masks) == 1:
        facts["document_mask"] = "true" if "block_causal" in masks else "false"
    elif not masks and facts.get("attention") == "varlen":
        facts["document_mask"] = "true"
    return facts


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Yield all keys with their values, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key), inner
            yield from _items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _items(inner)


def _section(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def partial_config_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a config that may leave out keys.

    A local batch covers a data-parallel rank and one micro-step. It gives no tokens per GPU if the
    degrees that share it, or the number of micro-steps, are unknown.
    """
    facts = job_config_facts(config)
    if "global_batch_size" in facts or not facts.keys() >= {*TOKEN_SHARING_DEGREES}:
        facts.pop("micro_batch_size", None)
    return facts


def _file_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of a job config of Torchtitan; empty for another framework's."""
    if not all(isinstance(config.get(section), dict) for section in ("training", "optimizer")):
        return {}
    return partial_config_facts(config)


JOB_CONFIGS: Final = (
    CompanionFile(names=("config.json",), kind="JSON", read=_file_facts),
    CompanionFile(names=WANDB_CONFIG_NAMES, kind="W&B", read=_file_facts),
    CompanionFile(names=("job.toml",), kind="TOML", read=_file_facts),
)
"""The saved config, the whole config in W&B, and the TOML file of a job, until 2026-02."""
