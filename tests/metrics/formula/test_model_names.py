"""Everyday names of models: each is found, or refused with candidates."""

from __future__ import annotations

import pytest

from fairmfu.metrics.formula.model_shapes import UnknownModelError, find_model
from tests.support.each_case import each_case

# 30 names as logs, paths and people spell them.
KNOWN = [
    ("Qwen2.5-7B-Instruct", "qwen2.5-7b"),
    ("Qwen/Qwen2.5-72B", "qwen2.5-72b"),
    ("qwen2.5 7b", "qwen2.5-7b"),
    ("/data/models/Qwen2.5-7B-Instruct/", "qwen2.5-7b"),
    ("Qwen3-8B-Base", "qwen3-8b"),
    ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ("Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
    ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
    ("models--meta-llama--Llama-3.1-8B", "llama-3.1-8b"),
    ("Meta-Llama-3-8B", "llama-3-8b"),
    ("llama3 8b", "llama-3-8b"),
    ("llama3.1-70b", "llama-3.1-70b"),
    ("Llama-2-7b-hf", "llama-2-7b"),
    ("llama2_7b", "llama-2-7b"),
    ("NousResearch/Llama-2-7b-chat-hf", "llama-2-7b"),
    ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ("DeepSeek-R1", "deepseek-v3"),
    ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
    ("Mixtral-8x7B", "mixtral-8x7b"),
    ("google/gemma-2-9b-it", "gemma-2-9b"),
    ("gemma-3-27b-pt", "gemma-3-27b"),
    ("internlm2-chat-7b", "internlm2-7b"),
    ("internlm2_5-7b", "internlm2.5-7b"),
    ("GPT-2", "gpt2"),
    ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ("facebook/opt-1.3b", "opt-1.3b"),
]
REFUSED = [
    ("qwen3", "qwen3-8b"),
    ("Qwen2.5-Coder-7B", "qwen2.5-7b"),
    ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama-3.1-8b"),
    ("deepseek v3.1", "deepseek-v3"),
]


@each_case(("name", "model"), KNOWN)
def test_an_everyday_name_of_a_model_is_found(name: str, model: str) -> None:
    assert find_model(name).name == model


@each_case(("name", "candidate"), REFUSED)
def test_a_name_of_no_single_model_is_refused_with_candidates(name: str, candidate: str) -> None:
    with pytest.raises(UnknownModelError) as error:
        find_model(name)
    assert candidate in error.value.nearest
    assert candidate in str(error.value)


def test_there_are_thirty_names() -> None:
    assert len(KNOWN) + len(REFUSED) == 30
