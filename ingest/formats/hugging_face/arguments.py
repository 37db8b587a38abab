"""Arguments of the Hugging Face Trainer and of tools around it, as facts.

The same names stand in printed arguments, in files next to the log and on command lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..spec import PREFERENCE_OBJECTIVE, REINFORCEMENT_OBJECTIVE

COUNTS: Final = {
    "max_length": "seq_len",
    "cutoff_len": "seq_len",
    "global_world_size": "gpus",
    "sequence_parallel_size": "context_parallel",
}
"""Whole numbers of ms-swift and LLaMA-Factory."""

OBJECTIVES: Final = {
    **dict.fromkeys(("dpo", "orpo", "simpo", "kto", "cpo", "rm"), PREFERENCE_OBJECTIVE),
    **dict.fromkeys(("grpo", "ppo", "gkd"), REINFORCEMENT_OBJECTIVE),
}
"""Values of `rlhf_type` (ms-swift) and `stage` (LLaMA-Factory)."""

FREEZING_KEYS: Final = ("freeze_parameters", "freeze_parameters_ratio", "freeze_trainable_layers")
SAVED_KEYS: Final = ("modules_to_save", "additional_target", "use_dora")
"""Keys of full training with frozen parts, and of adapters with more than low-rank matrices."""


def _whole_numbers(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        fact: str(values[key])
        for key, fact in COUNTS.items()
        if type(values.get(key)) is int and values[key] > 0
    }


def trainer_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of the keys of TrainingArguments, ms-swift and LLaMA-Factory."""
    texts = {key: str(value) for key, value in values.items() if _is_plain(value)}
    facts = training_arguments(texts) | _whole_numbers(values)
    kind = values.get("rlhf_type") or values.get("stage")
    return facts | dict([OBJECTIVES[str(kind)]] if str(kind) in OBJECTIVES else [])


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float))


def adapter_facts(kind: object, rank: object, targets: object, *, has_more: bool) -> dict[str, str]:
    """Return what adapters train; empty if the method is another.

    has_more: adapters are more than low-rank matrices
    targets: names of layers, as a list or with commas; `all` or `all-linear` for every linear one
    """
    if str(kind).lower() not in ("lora", "qlora") or has_more:
        return {}
    facts = {"trainable": "lora"}
    if type(rank) is int and rank > 0:
        facts["lora_rank"] = str(rank)
    named = [*map(str, targets)] if isinstance(targets, list) else str(targets or "").split(",")
    named = [name.strip() for name in named if name.strip()]
    if named in (["all"], ["all-linear"]):
        return facts | {"lora_targets": "all-linear"}
    plain = named and all(name.replace("_", "").replace(".", "").isalnum() for name in named)
    return facts | ({"lora_targets": ",".join(named)} if plain else {})


def swift_facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of ms-swift's arguments.

    They are printed, and saved beside the run's logging.jsonl. Packing stops attention at document borders. Packs are not full, so it fills no sequence.
    """
    facts = trainer_facts(values)
    kind = values.get("tuner_type") or values.get("train_type") or values.get("sft_type")
    extra = any(values.get(key) for key in SAVED_KEYS)
    facts |= adapter_facts(
        kind, values.get("lora_rank"), values.get("target_modules"), has_more=extra
    )
    if kind == "full" and not any(values.get(key) for key in FREEZING_KEYS):
        facts["trainable"] = "full"
    if values.get("packing") is True:
        facts["document_mask"] = "true"
    name = values.get("model") or values.get("model_id_or_path")
    return facts | ({"model": name} if isinstance(name, str) else {}) | batch_facts(facts)


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


def training_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return facts of TrainingArguments, with values as Python or JSON writes them.

    `gradient_checkpointing` set to false states nothing: the model's config may enable it.
    """
    values = {
        key: value.strip("'\" ").rpartition(".")[2].lower() for key, value in arguments.items()
    }
    names = {
        "per_device_train_batch_size": "micro_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation",
        "max_steps": "total_steps",  # -1 if epochs are given
    }
    facts = {fact: values[key] for key, fact in names.items() if values.get(key, "").isdigit()}
    every = arguments.get("logging_steps", "")
    if re.fullmatch(r"[1-9]\d*", every) and values.get("logging_strategy", "steps") == "steps":
        facts["log_interval"] = every
    # tf32 affects fp32 matmuls only, and nothing states the dtype of the weights
    precisions = [name for name in ("bf16", "fp16") if values.get(name) == "true"]
    facts.update({"precision": precisions[0]} if precisions else {})
    checkpointing = ("gradient_checkpointing", "activation_checkpointing")
    facts.update({"recompute": "full"} if "true" in map(values.get, checkpointing) else {})
    facts.update({"compile": "true"} if values.get("torch_compile") == "true" else {})
    return facts | ({"optimizer": values["optim"]} if values.get("optim") else {})
