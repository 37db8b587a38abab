"""ds_config.json: the configuration that a user gives DeepSpeed, next to any log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..spec import CompanionFile

BATCH_SHARING_KEYS: Final = {
    "sequence_parallel_size": "context_parallel",
    "autotp_size": "tensor_parallel",  # in `tensor_parallel`, at first in `zero_optimization`
}
"""Keys of the user's config: ranks that share the tokens of a micro-batch."""


def engine_config(values: Mapping[str, Any]) -> dict[str, str]:
    """Return batch sizes, precision and ZeRO stage, unless "auto"."""
    names = {
        "train_batch_size": "global_batch_size",
        "train_micro_batch_size_per_gpu": "micro_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation",
    }
    facts = {fact: str(values[key]) for key, fact in names.items() if _is_int(values.get(key))}
    for key, precision in (("bf16", "bf16"), ("fp16", "fp16")):
        section = values.get(key)
        if isinstance(section, dict) and section.get("enabled") is True:
            facts["precision"] = precision
    zero = values.get("zero_optimization")
    facts |= zero_facts(zero)
    for section in (zero, values.get("tensor_parallel"), values):
        facts |= _sharing(section) if isinstance(section, dict) else {}
    return facts


def zero_facts(section: object) -> dict[str, str]:
    """Return the ZeRO stage of `zero_optimization`, and what it offloads."""
    if not isinstance(section, dict) or not _is_int(section.get("stage")):
        return {}
    devices = (_device(section.get(f"offload_{part}")) for part in ("param", "optimizer"))
    return {"zero_stage": str(section["stage"])} | offload_facts(*devices)


def offload_facts(parameters: str | None, optimizer: str | None) -> dict[str, str]:
    """Return what is kept outside the GPU, by the devices of both; None is the GPU."""
    devices = {"optimizer": optimizer, "parameters": parameters}
    moved = {part: str(name).lower() for part, name in devices.items()}
    said = [
        part if name == "cpu" else f"{part} ({name})"
        for part, name in moved.items()
        if name != "none"
    ]
    return {"offload": ", ".join(said) or "none"}


def _device(section: object) -> str | None:
    """Return the device of an offload section; None without one."""
    device = section.get("device") if isinstance(section, dict) else None
    return device if isinstance(device, str) else None


def _sharing(section: Mapping[str, Any]) -> dict[str, str]:
    """Return the ranks that share the tokens of a micro-batch; 0 means none."""
    return {
        fact: str(section[name])
        for name, fact in BATCH_SHARING_KEYS.items()
        if _is_int(section.get(name)) and section[name] > 0
    }


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


ENGINE_CONFIG: Final = CompanionFile(names=("ds_config.json",), kind="JSON", read=engine_config)
