"""Examples of the facts that a user gives, for lists and completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairmfu.ingest.core.schema import FACT_NAMES

__all__ = ["fact_example", "fact_kind", "fact_values"]

_EXAMPLES: Final[Mapping[str, str]] = {
    "gpus": "64",
    "accelerator": '"H100 80GB"',
    "peak_flops": "989.4e12",
    "model": "llama-3-8b",
    "precision": "bf16",
    "objective": "preference",
    "model_config": "path/to/config.json",
    "operators": "path/to/operators.json",
    "flops_per_token": "4.9e10",
    "tokens_per_step": "3.9e6",
    "sequences_per_sample": "2",
    "seq_len": "8192",
    "vocab_size": "128256",
    "params_total": "8030261248",
    "global_batch_size": "512",
    "gradient_accumulation": "8",
    "attended_pairs": "4096.5",
    "mean_sample_length": "312.5",
    "sample_length_deviation": "90.5",
    "lora_rank": "16",
    "lora_targets": "all-linear",
    "frozen_parts": "vision,projector",
    "log_interval": "10",
    "framework_version": "0.2.2",
    "started_year": "2026",
}
"""Examples where no value of the fact's kind says enough."""

_EXAMPLES_BY_KIND: Final[Mapping[str, str]] = {
    "int": "1",
    "float": "1e12",
    "json": "path/to/file.json",
    "text": "TEXT",
}

_KIND_WORDS: Final[Mapping[str, str]] = {"int": "integer", "float": "number", "json": "JSON"}


def fact_values(name: str) -> tuple[str, ...]:
    """Return the words that a fact may be; empty for a number or any text."""
    fact = FACT_NAMES[name]
    return ("true", "false") if fact.kind == "bool" else fact.choices


def fact_kind(name: str) -> str:
    """Return the values of a fact in words: choices, or integer, number, text, JSON."""
    return ", ".join(fact_values(name)) or _KIND_WORDS.get(FACT_NAMES[name].kind, "text")


def fact_example(name: str) -> str:
    """Return `NAME=VALUE` as a user types it."""
    known = _EXAMPLES.get(name) or next(iter(fact_values(name)), None)
    return f"{name}={known or _EXAMPLES_BY_KIND[FACT_NAMES[name].kind]}"
