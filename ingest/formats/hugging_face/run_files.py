"""Files next to the logs of tools that train with the Hugging Face Trainer.

args.json               ms-swift's arguments, with their defaults
adapter_config.json     PEFT's adapter, saved with every checkpoint
all_results.json        the figures of the Trainer's last dict, and train_results.json
trainer_state.json      the Trainer's state, saved with every checkpoint; a log as well
wandb-summary.json      the same figures, where the Trainer reports to Weights & Biases
config.yaml             its arguments and the model's config, as Weights & Biases keeps them
*.yaml                  a user's config for LLaMA-Factory, axolotl or accelerate
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..spec import WANDB_CONFIG_NAMES, WANDB_SUMMARY_NAMES, CompanionFile
from .arguments import (
    SAVED_KEYS,
    adapter_facts,
    method_facts,
    training_arguments,
)
from .closing_dict import results_facts
from .preamble import axolotl_facts

YAML_NAMES: Final = ("*.yaml", "*.yml")


def _swift_file(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of ms-swift's arguments; empty for another program's args.json."""
    known = "swift_version" in values or {"train_type", "tuner_type"} & values.keys()
    return method_facts(values) if known else {}


# -- the Trainer's state -------------------------------------------------------------------

STATE_FACTS: Final = {
    "logging_steps": "log_interval",
    "max_steps": "total_steps",
    "train_batch_size": "micro_batch_size",
}


def _trainer_state(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the plan of a training; counters may be of an early checkpoint."""
    if not isinstance(values.get("log_history"), list):
        return {}
    numbers = {fact: values.get(key) for key, fact in STATE_FACTS.items()}
    return {fact: str(n) for fact, n in numbers.items() if type(n) is int and n > 0}


# -- PEFT ----------------------------------------------------------------------------------


def _adapter_config(values: Mapping[str, Any]) -> dict[str, str]:
    """Return adapters with one rank in all layers, and the model below them."""
    if values.get("peft_type") != "LORA":
        return {}
    uneven = ("rank_pattern", "layers_to_transform", "target_parameters", *SAVED_KEYS)
    extra = any(values.get(key) for key in uneven)
    facts = adapter_facts("lora", values.get("r"), values.get("target_modules"), has_more=extra)
    name = values.get("base_model_name_or_path")
    return facts | ({"model": name} if isinstance(name, str) and name else {})


# -- Weights & Biases ----------------------------------------------------------------------

WANDB_MARKS: Final = {"per_device_train_batch_size", "output_dir", "model_type"}
"""Keys of the Trainer's run: of its arguments, and of the model's config."""


def _wandb_config(values: Mapping[Any, Any]) -> dict[str, str]:
    """Return facts of the Trainer's arguments and of the model's config.

    Both have their keys at one level.

    `max_length` is not read: it may be of the model's generation.
    """
    if not values.keys() >= WANDB_MARKS:
        return {}
    facts = training_arguments(values)
    adapters = values.get("peft_config")
    named = adapters if isinstance(adapters, dict) else {}
    adapter = next(iter(named.values())) if len(named) == 1 else None
    facts |= _adapter_config(adapter) if isinstance(adapter, dict) else {}
    return facts | {"model_config": json.dumps(dict(values), default=str)}


# -- a user's YAML -------------------------------------------------------------------------


def _llama_factory(values: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of a config of LLaMA-Factory; omitted defaults give none."""
    if not {"model_name_or_path", "finetuning_type"} <= values.keys():
        return {}
    return method_facts(values)


def _axolotl(values: Mapping[str, Any]) -> dict[str, str]:
    keys = values.keys()
    known = "base_model" in keys and bool({"sequence_len", "micro_batch_size"} & keys)
    return axolotl_facts(values) if known else {}


def _accelerate(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the processes of accelerate's config, one GPU each, and the precision."""
    if not {"compute_environment", "num_processes"} <= values.keys() or values.get("use_cpu"):
        return {}
    count, cast = values["num_processes"], values.get("mixed_precision")
    facts = {"gpus": str(count)} if type(count) is int and count > 0 else {}
    return facts | ({"precision": str(cast)} if cast in ("bf16", "fp16") else {})


RUN_FILES: Final = (
    CompanionFile(
        names=("adapter_config.json",), kind="JSON", read=_adapter_config, of_one_run=True
    ),
    *(
        CompanionFile(names=names, kind="JSON", read=results_facts, of_one_run=True)
        for names in (WANDB_SUMMARY_NAMES, ("train_results.json",), ("all_results.json",))
    ),
    CompanionFile(names=("trainer_state.json",), kind="JSON", read=_trainer_state, of_one_run=True),
    CompanionFile(names=WANDB_CONFIG_NAMES, kind="W&B", read=_wandb_config, of_one_run=True),
    CompanionFile(names=("args.json",), kind="JSON", read=_swift_file, of_one_run=True),
    *(
        CompanionFile(names=YAML_NAMES, kind="YAML", read=read, of_one_run=True)
        for read in (_accelerate, _axolotl, _llama_factory)
    ),
)
