"""Models that are known by name, each by its publisher's config."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Final, ParamSpec

from .hugging_face import CONFIG_DIMENSIONS, from_hugging_face
from .shape import ModelShape, ShapeError


class UnknownModelError(ShapeError):
    """No known model has this name.

    name: as it was given
    nearest: known names that look like it, nearest first
    """

    def __init__(self, name: str, nearest: list[str]) -> None:
        self.name = name
        self.nearest = nearest
        hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
        super().__init__(
            f"No known model is called {name!r}, and a model's dimensions are never guessed from"
            f" its name.{hint} Give its config, model_config=PATH/config.json, or one of the names"
            " that `fairmfu models` lists, model=NAME."
        )


_SHAPELESS = re.compile(r"-(?:instruct|chat|base|hf|sft|it|pt|(?:flex|varlen)(?:-attn)?)(?=-|$)")
"""Words of a name that say nothing of the shape; `flex` and `varlen` are torchtitan's."""


def find_model(name: str) -> ModelShape:
    """Shape of a model that is known by name.

    Case, blanks and `_`, an organisation or folders before the name, `Meta-`, and words such as
    instruct, chat, hf do not matter; all the rest must be exact. Raises UnknownModelError, with
    the nearest names of the same series: `internlm2-7b` is no hint for an `internlm-8b`.
    """
    whole = _folded(name)
    wanted = whole if whole in _KNOWN else _SHAPELESS.sub("", whole)
    if wanted not in _KNOWN:
        alike = [known for known in _KNOWN if _is_same_series(known, wanted)]
        raise UnknownModelError(name, difflib.get_close_matches(wanted, alike, n=3))
    canonical, _ = _KNOWN[wanted]
    return _built(canonical)


@cache
def known_models() -> tuple[ModelShape, ...]:
    """Every known model once, by name."""
    return tuple(_built(name) for name in model_names())


def model_names() -> tuple[str, ...]:
    """Canonical names of all known models, sorted; builds no model."""
    return tuple(sorted(name for name, (canonical, _) in _KNOWN.items() if name == canonical))


@cache
def buildable_models() -> tuple[ModelShape, ...]:
    """Every known model that can be built, by name: a search among models skips a bad row."""
    shapes = []
    for name in model_names():
        with suppress(Exception):
            shapes.append(_built(name))
    return tuple(shapes)


@cache
def _built(canonical: str) -> ModelShape:
    """Build one known model, once."""
    _, config = _KNOWN[canonical]
    return replace(from_hugging_face(config()), name=canonical)


def _folded(name: str) -> str:
    cached = re.search(r"models--(?:.*--)?([^/\\]+)", name)  # Hugging Face's cache folder
    last = cached.group(1) if cached else re.split(r"[/\\]", name.strip().rstrip("/\\"))[-1]
    return re.sub(r"[\s_]+", "-", last.strip().lower()).removeprefix("meta-")


def _is_same_series(known: str, wanted: str) -> bool:
    """Whether the first words are one but for a slip: `lama` is llama, `internlm2` no internlm."""
    mine, other = known.partition("-")[0], wanted.partition("-")[0]
    same_version = re.findall(r"\d+", mine) == re.findall(r"\d+", other)
    return same_version and difflib.SequenceMatcher(None, mine, other).ratio() > MIN_ALIKE


MIN_ALIKE: Final = 0.8
"""Names of series that share more of their letters are one, mistyped."""

_P = ParamSpec("_P")
_Config = Callable[[], dict[str, object]]
"""A Hugging Face config that is written out when it is called."""


def _deferred(config: Callable[_P, dict[str, object]]) -> Callable[_P, _Config]:
    """Decorate a helper of the tables: a row whose arguments are bad fails when it is built."""

    def row(*args: _P.args, **kwargs: _P.kwargs) -> _Config:
        return partial(config, *args, **kwargs)

    return row


@_deferred
def _config(model_type: str, *dimensions: int, **more: object) -> dict[str, object]:
    """A Hugging Face config in one line: `DIMENSIONS` in the order in which people quote them."""
    return {
        "model_type": model_type,
        **dict(zip(CONFIG_DIMENSIONS, dimensions, strict=True)),
        **more,
    }


def _mla(
    q_rank: int | None, experts: int, per_token: int, width: int, **more: int
) -> dict[str, object]:
    """What DeepSeek-V2 and V3 have beyond `_config`."""
    return {
        "q_lora_rank": q_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": experts,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
        **more,
    }


def _qwen_moe(experts: int, per_token: int, width: int) -> dict[str, object]:
    return {
        "num_experts": experts,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
    }


def _mixtral_moe(experts: int, per_token: int) -> dict[str, object]:
    return {"num_local_experts": experts, "num_experts_per_tok": per_token}


@_deferred
def _gpt2_config(hidden: int, layers: int, heads: int, positions: int = 1024) -> dict[str, object]:
    return {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": positions,
        "vocab_size": 50257,
    }


@_deferred
def _opt_config(hidden: int, layers: int, heads: int, **more: object) -> dict[str, object]:
    return {
        "model_type": "opt",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "ffn_dim": 4 * hidden,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        **more,
    }


@_deferred
def _bloom_config(hidden: int, layers: int, heads: int) -> dict[str, object]:
    return {
        "model_type": "bloom",
        "hidden_size": hidden,
        "n_layer": layers,
        "n_head": heads,
        "vocab_size": 250880,
    }


# Names, the first is the canonical one -> config: hidden, layers, heads, key/value heads, FFN,
# vocabulary. Each is its publisher's config.json (torchtitan's debug models: its flavour at
# v0.2.2); tests/metrics/formula/test_model_shapes.py holds the parameter counts against the
# published ones.
_LLAMA_LIKE: Mapping[str, _Config] = {
    "llama-7b": _config("llama", 4096, 32, 32, 32, 11008, 32000),
    "llama-13b": _config("llama", 5120, 40, 40, 40, 13824, 32000),
    "llama-2-7b llama2-7b": _config("llama", 4096, 32, 32, 32, 11008, 32000),
    "llama-2-13b llama2-13b": _config("llama", 5120, 40, 40, 40, 13824, 32000),
    "llama-2-70b llama2-70b": _config("llama", 8192, 80, 64, 8, 28672, 32000),
    "llama-3-8b llama3-8b": _config("llama", 4096, 32, 32, 8, 14336, 128256),
    "llama-3-70b llama3-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama-3.1-8b llama3.1-8b": _config("llama", 4096, 32, 32, 8, 14336, 128256),
    "llama-3.1-70b llama3.1-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama-3.1-405b llama3.1-405b llama-3-405b llama3-405b": _config(
        "llama", 16384, 126, 128, 8, 53248, 128256
    ),
    "llama-3.2-1b llama3.2-1b llama3-1b": _config(
        "llama", 2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True
    ),
    "llama-3.2-3b llama3.2-3b llama3-3b": _config(
        "llama", 3072, 28, 24, 8, 8192, 128256, head_dim=128, tie_word_embeddings=True
    ),
    "llama-3.3-70b llama3.3-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama3-debugmodel": _config("llama", 256, 6, 16, 16, 768, 2048),
    "yi-6b": _config("llama", 4096, 32, 32, 4, 11008, 64000),
    "yi-34b": _config("llama", 7168, 60, 56, 8, 20480, 64000),
    "internlm-7b": _config("internlm", 4096, 32, 32, 32, 11008, 103168, bias=True),
    "internlm2-1.8b internlm2-1-8b internlm2-chat-1.8b internlm2-chat-1-8b": _config(
        "internlm2", 2048, 24, 16, 8, 8192, 92544, bias=False
    ),
    "internlm2-7b internlm2-chat-7b": _config(
        "internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False
    ),
    "internlm2-20b internlm2-chat-20b": _config(
        "internlm2", 6144, 48, 48, 8, 16384, 92544, bias=False
    ),
    "internlm2.5-7b internlm2-5-7b": _config(
        "internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False
    ),
    "internlm3-8b": _config("internlm3", 4096, 48, 32, 2, 10240, 128512, head_dim=128),
    "mistral-7b mistral-7b-v0.1 mistral-7b-instruct-v0.1": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=4096
    ),
    "mistral-7b-v0.2 mistral-7b-instruct-v0.2": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=None
    ),
    "mistral-7b-v0.3 mistral-7b-instruct-v0.3": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32768, sliding_window=None
    ),
    "qwen2-0.5b": _config("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2-1.5b": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2-7b": _config("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "qwen2-72b": _config("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "qwen2.5-0.5b": _config("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2.5-1.5b": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2.5-3b": _config("qwen2", 2048, 36, 16, 2, 11008, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": _config("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-14b": _config("qwen2", 5120, 48, 40, 8, 13824, 152064),
    "qwen2.5-32b": _config("qwen2", 5120, 64, 40, 8, 27648, 152064),
    "qwen2.5-72b": _config("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "qwen3-0.6b": _config("qwen3", 1024, 28, 16, 8, 3072, 151936, tie_word_embeddings=True),
    "qwen3-1.7b": _config("qwen3", 2048, 28, 16, 8, 6144, 151936, tie_word_embeddings=True),
    "qwen3-4b qwen3-4b-instruct-2507": _config(
        "qwen3", 2560, 36, 32, 8, 9728, 151936, tie_word_embeddings=True
    ),
    "qwen3-8b": _config("qwen3", 4096, 36, 32, 8, 12288, 151936),
    "qwen3-14b": _config("qwen3", 5120, 40, 40, 8, 17408, 151936),
    "qwen3-32b": _config("qwen3", 5120, 64, 64, 8, 25600, 151936),
    "qwen3-debugmodel": _config("qwen3", 256, 8, 16, 8, 3072, 2048, tie_word_embeddings=True),
    "olmo-2-1b olmo2-1b olmo-2-0425-1b": _config("olmo2", 2048, 16, 16, 16, 8192, 100352),
    "olmo-2-7b olmo2-7b olmo-2-1124-7b": _config("olmo2", 4096, 32, 32, 32, 11008, 100352),
    "olmo-2-13b olmo2-13b olmo-2-1124-13b": _config("olmo2", 5120, 40, 40, 40, 13824, 100352),
    "olmo-2-32b olmo2-32b olmo-2-0325-32b": _config("olmo2", 5120, 64, 40, 8, 27648, 100352),
    "olmo-3-7b olmo3-7b olmo-3-1025-7b": _config(
        "olmo3", 4096, 32, 32, 32, 11008, 100278, sliding_window=4096
    ),
    "smollm3-3b": _config("smollm3", 2048, 36, 16, 4, 11008, 128256, tie_word_embeddings=True),
    "seed-oss-36b": _config("seed_oss", 5120, 64, 80, 8, 27648, 155136, head_dim=128),
    "phi-3-mini-4k phi-3-mini": _config("phi3", 3072, 32, 32, 32, 8192, 32064, sliding_window=2047),
    "phi-3-mini-128k": _config("phi3", 3072, 32, 32, 32, 8192, 32064, sliding_window=262144),
}

_SPARSE: Mapping[str, _Config] = {
    "mixtral-8x7b mixtral-8x7b-v0.1 mixtral-8x7b-instruct-v0.1": _config(
        "mixtral", 4096, 32, 32, 8, 14336, 32000, **_mixtral_moe(8, 2)
    ),
    "mixtral-8x22b mixtral-8x22b-v0.1": _config(
        "mixtral", 6144, 56, 48, 8, 16384, 32000, **_mixtral_moe(8, 2)
    ),
    "mixtral-8x22b-instruct-v0.1": _config(
        "mixtral", 6144, 56, 48, 8, 16384, 32768, **_mixtral_moe(8, 2)
    ),
    "qwen1.5-moe-a2.7b": _config(
        "qwen2_moe", 2048, 24, 16, 16, 5632, 151936,
        shared_expert_intermediate_size=5632, **_qwen_moe(60, 4, 1408),
    ),
    "qwen3-30b-a3b qwen3-30b-a3b-instruct-2507": _config(
        "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128, **_qwen_moe(128, 8, 768)
    ),
    "qwen3-235b-a22b qwen3-235b-a22b-instruct-2507": _config(
        "qwen3_moe", 4096, 94, 64, 4, 12288, 151936, head_dim=128, **_qwen_moe(128, 8, 1536)
    ),
    "qwen3-debugmodel-moe": _config(
        "qwen3_moe", 256, 8, 16, 8, 3072, 2048, head_dim=128, **_qwen_moe(64, 8, 768)
    ),
    "olmoe-1b-7b olmoe-1b-7b-0924": _config(
        "olmoe", 2048, 16, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8
    ),
    "deepseek-v2-lite deepseek-v3-16b": _config(
        "deepseek_v2", 2048, 27, 16, 16, 10944, 102400,
        **_mla(None, 64, 6, 1408, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "deepseek-v2 deepseek-v3-236b": _config(
        "deepseek_v2", 5120, 60, 128, 128, 12288, 102400,
        **_mla(1536, 160, 6, 1536, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "deepseek-v3 deepseek-v3-671b deepseek-v3-0324 deepseek-r1": _config(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280,
        **_mla(1536, 256, 8, 2048, first_k_dense_replace=3, n_shared_experts=1),
    ),
    "deepseek-v3-debugmodel": _config(
        "deepseek_v3", 256, 6, 16, 16, 1024, 2048,
        **_mla(None, 8, 3, 256, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "kimi-k2 kimi-k2-0905": _config(
        "kimi_k2", 7168, 61, 64, 64, 18432, 163840,
        **_mla(1536, 384, 8, 2048, first_k_dense_replace=1, n_shared_experts=1),
    ),
    "llama-4-scout llama-4-scout-17b-16e llama4-17bx16e llama4-17bx16e-irope": _config(
        "llama4_text", 5120, 48, 40, 8, 8192, 202048,
        intermediate_size_mlp=16384, interleave_moe_layer_step=1, attention_chunk_size=8192,
        **_mixtral_moe(16, 1),
    ),
    "llama-4-maverick llama-4-maverick-17b-128e llama4-17bx128e llama4-17bx128e-irope": _config(
        "llama4_text", 5120, 48, 40, 8, 8192, 202048,
        intermediate_size_mlp=16384, interleave_moe_layer_step=2, attention_chunk_size=8192,
        **_mixtral_moe(128, 1),
    ),
    "qwen3-next-80b-a3b": _config(
        "qwen3_next", 2048, 48, 16, 2, 5120, 151936,
        shared_expert_intermediate_size=512, **_qwen_moe(512, 10, 512),
    ),
    "gpt-oss-20b": _config(
        "gpt_oss", 2880, 24, 64, 8, 2880, 201088,
        head_dim=64, sliding_window=128, **_mixtral_moe(32, 4),
    ),
    "gpt-oss-120b": _config(
        "gpt_oss", 2880, 36, 64, 8, 2880, 201088,
        head_dim=64, sliding_window=128, **_mixtral_moe(128, 4),
    ),
    "glm-4.5-air": _config(
        "glm4_moe", 4096, 46, 96, 8, 10944, 151552,
        head_dim=128, attention_bias=True, use_qk_norm=False, n_routed_experts=128,
        n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
}  # fmt: skip

_GEMMA: Mapping[str, _Config] = {
    "gemma-2-2b gemma2-2b": _config("gemma2", 2304, 26, 8, 4, 9216, 256000, sliding_window=4096),
    "gemma-2-9b gemma2-9b": _config("gemma2", 3584, 42, 16, 8, 14336, 256000, sliding_window=4096),
    "gemma-2-27b gemma2-27b": _config(
        "gemma2", 4608, 46, 32, 16, 36864, 256000, head_dim=128, sliding_window=4096
    ),
    "gemma-3-1b gemma3-1b": _config(
        "gemma3_text", 1152, 26, 4, 1, 6912, 262144, sliding_window=512
    ),
    "gemma-3-4b gemma3-4b": _config(
        "gemma3_text", 2560, 34, 8, 4, 10240, 262208, sliding_window=1024
    ),
    "gemma-3-12b gemma3-12b": _config(
        "gemma3_text", 3840, 48, 16, 8, 15360, 262208, sliding_window=1024
    ),
    "gemma-3-27b gemma3-27b": _config(
        "gemma3_text", 5376, 62, 32, 16, 21504, 262208, head_dim=128, sliding_window=1024
    ),
}

_GPT_LIKE: Mapping[str, _Config] = {
    "gpt2 gpt-2 gpt2-small": _gpt2_config(768, 12, 12),
    "gpt2-medium": _gpt2_config(1024, 24, 16),
    "gpt2-large": _gpt2_config(1280, 36, 20),
    "gpt2-xl": _gpt2_config(1600, 48, 25),
    "gpt3-175b gpt-3-175b": _gpt2_config(12288, 96, 96, positions=2048),
    "phi-2": _config("phi", 2560, 32, 32, 32, 10240, 51200),
    "gpt-neox-20b": _config("gpt_neox", 6144, 44, 64, 64, 24576, 50432),
    "opt-350m": _opt_config(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": _opt_config(2048, 24, 32),
    "opt-6.7b": _opt_config(4096, 32, 32),
    "opt-13b": _opt_config(5120, 40, 40),
    "bloom-560m": _bloom_config(1024, 24, 16),
    "bloom-176b bloom": _bloom_config(14336, 70, 112),
    "falcon-7b": lambda: {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "vocab_size": 65024,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
    },
}


def _rows() -> Iterator[tuple[str, tuple[str, _Config]]]:
    for table in (_LLAMA_LIKE, _SPARSE, _GEMMA, _GPT_LIKE):
        for names, config in table.items():
            canonical, *aliases = names.split()
            for name in (canonical, *aliases):
                yield name, (canonical, config)


_KNOWN: Mapping[str, tuple[str, _Config]] = dict(_rows())
"""Normalised name -> canonical name and config; no model is built here."""
