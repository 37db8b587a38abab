"""Arguments of the Hugging Face Trainer and of tools around it, as facts.

The same names stand in printed arguments, in files next to the log and on command lines, so
`method_facts` reads them all. A program prints its arguments after its command, with the values
that it uses, so the printed ones win.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from ..deepspeed.config_file import offload_facts, zero_facts
from ..spec import PREFERENCE_OBJECTIVE, REINFORCEMENT_OBJECTIVE

COUNTS: Final = {
    "max_length": "seq_len",
    "cutoff_len": "seq_len",
    "block_size": "seq_len",
    "global_world_size": "gpus",
    "sequence_parallel_size": "context_parallel",
}
"""Whole numbers of ms-swift, LLaMA-Factory and run_clm.py."""

OBJECTIVES: Final = {
    **dict.fromkeys(("dpo", "orpo", "simpo", "kto", "cpo", "rm"), PREFERENCE_OBJECTIVE),
    **dict.fromkeys(("grpo", "ppo", "gkd"), REINFORCEMENT_OBJECTIVE),
}
"""Values of `rlhf_type` (ms-swift) and `stage` (LLaMA-Factory)."""

METHOD_KEYS: Final = ("tuner_type", "train_type", "sft_type", "finetuning_type")
"""Keys of the method: ms-swift 4, 3 and 2, LLaMA-Factory."""
LORA_SWITCHES: Final = ("lora_enable", "use_lora", "use_peft")
"""Keys of LLaVA and of scripts like it, and of TRL, which are true with LoRA."""
RANK_KEYS: Final = ("lora_rank", "lora_r")
TARGET_KEYS: Final = ("target_modules", "lora_target", "lora_target_modules")
MODEL_KEYS: Final = ("model_name_or_path", "model", "model_id_or_path")
FROZEN_PART_KEYS: Final = {
    **dict.fromkeys(("freeze_vit", "freeze_vision_tower"), "vision"),
    **dict.fromkeys(("freeze_aligner", "freeze_multi_modal_projector"), "projector"),
    **dict.fromkeys(("freeze_llm", "freeze_language_model"), "language"),
}
"""Keys of frozen parts of a model that sees images. ms-swift adds the names of their parameters to
`freeze_parameters`, which stays empty for other models.
"""
_PART_PARAMETERS: Final = re.compile(
    r"vi(?:sion|sual|t)|audio|merger|projector|aligner|connector|resampler|mlp1|language_model"
)
FREEZING_KEYS: Final = (
    *("freeze_parameters_ratio", "freeze_parameters_regex", "freeze_trainable_layers"),
    *("trainable_parameters", "trainable_parameters_regex"),
)
ATTENTION_KEYS: Final = ("attn_impl", "attn_implementation", "flash_attn")
"""Keys of the attention implementation: ms-swift, Transformers, LLaMA-Factory."""
UNNAMED_ATTENTION: Final = ("none", "auto", "true", "false", "disabled", "")
FSDP_SHARDINGS: Final = {"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"}
"""Values of `fsdp` that shard a model; with `offload` its weights and optimizer are on the CPU."""
SAVED_KEYS: Final = ("modules_to_save", "additional_target", "use_dora")
"""Keys of full training of some weights, and of adapters with more than low-rank matrices."""


def _whole_numbers(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        fact: str(values[key])
        for key, fact in COUNTS.items()
        if type(values.get(key)) is int and values[key] > 0
    }


def trainer_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of the keys of TrainingArguments, ms-swift and LLaMA-Factory."""
    facts = training_arguments(values) | _whole_numbers(values)
    kind = values.get("rlhf_type") or values.get("stage")
    return facts | dict([OBJECTIVES[str(kind)]] if str(kind) in OBJECTIVES else [])


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float))


def adapter_facts(kind: object, rank: object, targets: object, *, has_more: bool) -> dict[str, str]:
    """Return what adapters train; empty if the method is another.

    has_more: adapters are more than low-rank matrices
    targets: names of layers, as a list, with commas or with blanks; `all` or `all-linear` for every
        linear one
    """
    if str(kind).lower() not in ("lora", "qlora") or has_more:
        return {}
    facts = {"trainable": "lora"}
    if type(rank) is int and rank > 0:
        facts["lora_rank"] = str(rank)
    named = _names(targets)
    if named in (["all"], ["all-linear"]):
        return facts | {"lora_targets": "all-linear"}
    plain = named and all(name.replace("_", "").replace(".", "").isalnum() for name in named)
    return facts | ({"lora_targets": ",".join(named)} if plain else {})


def _names(value: object) -> list[str]:
    """Return the names in a list, or in a text with commas or blanks."""
    if isinstance(value, list):
        return [*map(str, value)]
    return [name for name in re.split(r"[,\s]+", str(value or "")) if name]


def method_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of arguments of the Trainer, ms-swift or LLaMA-Factory.

    Packing of ms-swift, and neat packing of LLaMA-Factory, stops attention at document borders.
    Packs are not full, so it fills no sequence.

    values: Python or JSON values, as `command_values` returns them for a command
    """
    keys = (METHOD_KEYS, RANK_KEYS, TARGET_KEYS, MODEL_KEYS)
    kind, rank, targets, name = (_first(values, names) for names in keys)
    switched = any(values.get(key) is True for key in LORA_SWITCHES)
    kind = kind or ("lora" if switched else None)
    extra = any(values.get(key) for key in SAVED_KEYS)
    facts = trainer_facts(values)
    facts |= adapter_facts(kind, rank, targets, has_more=extra)
    facts |= _full_training(values) if kind == "full" else {}
    packing = "neat_packing" if "finetuning_type" in values else "packing"
    if values.get(packing) is True and values.keys() & {*METHOD_KEYS}:
        facts["document_mask"] = "true"
    known = isinstance(name, str) and "$" not in name
    return facts | ({"model": str(name)} if known else {}) | batch_facts(facts)


def _first(values: Mapping[str, Any], keys: Iterable[str]) -> Any:  # noqa: ANN401 - of any argument
    return next((values[key] for key in keys if values.get(key)), None)


def _full_training(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what full training trains; empty if some weights of a part are frozen."""
    names = _names(values.get("freeze_parameters"))
    of_parts = all(map(_PART_PARAMETERS.search, names))
    if any(values.get(key) for key in FREEZING_KEYS) or not of_parts:
        return {}
    frozen = [part for key, part in FROZEN_PART_KEYS.items() if values.get(key) is True]
    if values.get("freeze_parameters") == [] or not frozen:
        return {} if names else {"trainable": "full"}
    trainable = "frozen" if "language" in frozen else "full"
    return {"trainable": trainable, "frozen_parts": ",".join(frozen)}


def command_values(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a command with numbers and truth values read."""
    return {name: _command_value(text) for name, text in options.items()}


def _command_value(text: str) -> bool | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isdecimal():
        return int(text)
    return float(text) if re.fullmatch(r"\d{1,9}\.\d{1,9}", text) else text


def python_literal(text: str) -> Any:  # noqa: ANN401 - of any argument
    """Return a Python literal; a name or a path stays text."""
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(text)
    return text


def batch_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the batch of a step over all ranks, if their number is known."""
    names = ("gpus", "micro_batch_size", "gradient_accumulation")
    if not set(names) <= facts.keys():
        return {}
    gpus, micro, accumulation = (int(facts[name]) for name in names)
    ranks, rest = divmod(gpus, int(facts.get("context_parallel", 1)))
    if rest or "tensor_parallel" in facts:
        return {}
    return {"data_parallel": str(ranks), "global_batch_size": str(ranks * micro * accumulation)}


def training_arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of TrainingArguments, with values as Python or JSON writes them.

    `gradient_checkpointing` set to false states nothing: the model's config may enable it.

    arguments: by name; a text of a Python or JSON value means the same as the value
    """
    fsdp = arguments.get("fsdp_config")
    flat = {**(fsdp if isinstance(fsdp, dict) else {}), **arguments}
    texts = {key: str(value) for key, value in flat.items() if _is_plain(value)}
    values = {key: text.strip("'\" ").rpartition(".")[2].lower() for key, text in texts.items()}
    names = {
        "per_device_train_batch_size": "micro_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation",
        "max_steps": "total_steps",  # -1 if epochs are given
    }
    facts = {fact: values[key] for key, fact in names.items() if values.get(key, "").isdigit()}
    every = texts.get("logging_steps", "")
    if re.fullmatch(r"[1-9]\d*", every) and values.get("logging_strategy", "steps") == "steps":
        facts["log_interval"] = every
    # tf32 affects fp32 matmuls only, and nothing states the dtype of the weights
    precisions = [name for name in ("bf16", "fp16") if values.get(name) == "true"]
    facts.update({"precision": precisions[0]} if precisions else {})
    checkpointing = ("gradient_checkpointing", "activation_checkpointing")
    facts.update({"recompute": "full"} if "true" in map(values.get, checkpointing) else {})
    facts.update({"compile": "true"} if values.get("torch_compile") == "true" else {})
    facts.update({"optimizer": values["optim"]} if values.get("optim") else {})
    return facts | sharding_facts(arguments) | attention_facts(values)


def sharding_facts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of a DeepSpeed config, or of options of FSDP."""
    engine = arguments.get("deepspeed")
    if isinstance(engine, dict):
        return zero_facts(engine.get("zero_optimization"))
    options = {*re.findall(r"\w+", str(arguments.get("fsdp")))}
    device = "cpu" if "offload" in options else None
    return offload_facts(device, device) if options & FSDP_SHARDINGS else {}


def attention_facts(values: Mapping[str, str]) -> dict[str, str]:
    """Return the attention implementation, if an argument names one."""
    named = (values.get(key, "none") for key in ATTENTION_KEYS)
    return next(({"attention": name} for name in named if name not in UNNAMED_ATTENTION), {})
