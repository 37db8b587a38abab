"""Decoders of transformers as data, by model_type (transformers 5.24)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from .decoder import Decoder, Experts
from .state_mixers import gated_delta_net, lightning, mamba, mamba2, short_convolution

_LLAMA: Final = Decoder(ffn_bias="mlp_bias")

_DEEPSEEK_EXPERTS: Final = Experts(count="n_routed_experts", shared_count="n_shared_experts")
_GRANITE_EXPERTS: Final = Experts(
    count="num_local_experts", width="intermediate_size", shared_width="shared_intermediate_size"
)
_GPT_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
}
_GPT_J: Final = Decoder(
    names=_GPT_NAMES,
    qkv_bias=False,
    output_bias=False,
    gated=False,
    ffn_bias=True,
    ffn_times=4,
    norm="layer",
    norms_per_layer=1,
    head_bias=True,
)
_MAMBA2_NAMES: Final = {
    "mamba_n_heads": "mamba_num_heads",
    "mamba_d_head": "mamba_head_dim",
    "mamba_n_groups": "n_groups",
    "mamba_d_state": "state_size",
    "mamba_d_conv": "conv_kernel",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_proj_bias": "use_bias",
}
_MAMBA: Final = Decoder(
    names={"intermediate_size": "mamba_intermediate_size"},
    mixers={"full_attention": mamba},
    feed_forward=False,
    norms_per_layer=1,
    tied=True,
)

DECODERS: Final[Mapping[str, Decoder]] = {
    "afmoe": Decoder(
        names={"num_dense_layers": "first_k_dense_replace"},
        qk_norm="head",
        gate="width",
        windowed=True,
        full_every=("global_attn_every_n_layers", 4),
        experts=Experts(shared_count="num_shared_experts", vectors=("num_experts",)),
        norms_per_layer=4,
    ),
    "apertus": Decoder(qk_norm="head", gated=False, layer_vectors=(2,)),
    "apertus1p5_text": Decoder(qk_norm="head", gated=False, layer_vectors=(2,)),
    "arcee": Decoder(gated=False, ffn_bias="mlp_bias"),
    "aria_text": Decoder(
        ffn_bias="mlp_bias",
        experts=Experts(
            count="moe_num_experts",
            per_token="moe_topk",  # noqa: S106 (a key of the config)
            width="intermediate_size",
            shared_count="moe_num_shared_experts",
        ),
    ),
    "axk1": Decoder(
        latent=True,
        experts=Experts(
            count="n_routed_experts", shared_count="n_shared_experts", vectors=("hidden_size",)
        ),
    ),
    "beam": Decoder(
        qk_norm="head",
        gate="width",
        windowed=True,
        attention_vectors=("num_attention_heads",),
        experts=Experts(),
        norms_per_layer=4,
    ),
    "bitnet": Decoder(activations=("relu2",), layer_vectors=("hidden_size", "intermediate_size")),
    "cohere2": Decoder(
        windowed=True, full_every=("sliding_window_pattern", 4), norms_per_layer=1, tied=True
    ),
    "cohere2_moe": Decoder(
        windowed=True,
        full_every=("sliding_window_pattern", 4),
        norms_per_layer=1,
        tied=True,
        experts=Experts(width="intermediate_size", shared_count="num_shared_experts"),
    ),
    "cwm": Decoder(windowed=True, ffn_bias="mlp_bias"),
    "diffllama": Decoder(attention_vectors=("head_dim",) * 4),
    "emu3_text_model": Decoder(ffn_bias="mlp_bias"),
    "ernie4_5": Decoder(
        qkv_bias="use_bias", output_bias="use_bias", ffn_bias="use_bias", tied=True
    ),
    "exaone": _LLAMA,
    "exaone4": Decoder(qk_norm="head", windowed=True),
    "exaone_moe": Decoder(
        qk_norm="head", windowed=True, experts=Experts(shared_count="num_shared_experts")
    ),
    "flex_olmo": Decoder(qk_norm="all", experts=Experts(width="intermediate_size")),
    "flint": Decoder(
        qk_norm="head",
        sinks=True,
        windowed=True,
        experts=Experts(shared_width="shared_expert_intermediate_size"),
    ),
    "glm": Decoder(output_bias=False, ffn_fused=True),
    "glm4_moe_lite": Decoder(latent=True, experts=_DEEPSEEK_EXPERTS),
    "glm_moe_dsa": Decoder(
        latent=True,
        indexer=True,
        per_layer={"indexer_types": "indexer_type"},
        experts=_DEEPSEEK_EXPERTS,
    ),
    "deepseek_v32": Decoder(latent=True, indexer=True, experts=_DEEPSEEK_EXPERTS),
    "gpt_neox_japanese": Decoder(
        qkv_bias=False,
        output_bias=False,
        fused=True,
        gated=False,
        norm="layer",
        tied=True,
        ffn_times="intermediate_multiple_size",
        model_vectors=("hidden_size",),
    ),
    "gptj": _GPT_J,
    "codegen": replace(_GPT_J, fused=True),
    "ctrl": Decoder(
        names={**_GPT_NAMES, "dff": "intermediate_size"},
        qkv_bias=True,
        output_bias=True,
        gated=False,
        ffn_bias=True,
        norm="layer",
        tied=True,
        head_bias=True,
    ),
    "biogpt": Decoder(
        qkv_bias=True,
        output_bias=True,
        gated=False,
        ffn_bias=True,
        norm="layer",
        tied=True,
        position_offset=2,
    ),
    "granitemoe": Decoder(experts=_GRANITE_EXPERTS),
    "granitemoeshared": Decoder(experts=_GRANITE_EXPERTS),
    "granitemoe_swa": Decoder(windowed=True, sinks=True, experts=_GRANITE_EXPERTS),
    "granite_swa": Decoder(windowed=True, sinks=True, ffn_bias="mlp_bias", tied=True),
    "granitemoehybrid": Decoder(
        names={**_MAMBA2_NAMES, "layers_block_type": "layer_types"},
        mixers={"linear_attention": mamba2, "mamba": mamba2},
        experts=_GRANITE_EXPERTS,
    ),
    "helium": _LLAMA,
    "hunyuan_v1_dense": Decoder(qk_norm="head"),
    "hunyuan_v1_moe": Decoder(
        qk_norm="head",
        experts=Experts(
            per_token="moe_topk", width="intermediate_size", shared_width="intermediate_size"
        ),
    ),
    "hy_v3": Decoder(
        qk_norm="head", ffn_bias="mlp_bias", experts=Experts(shared_count="num_shared_experts")
    ),
    "iquestcoder": _LLAMA,
    "jais2": Decoder(gated=False, ffn_bias="mlp_bias", norm="layer"),
    "kolibri1": Decoder(
        qk_norm="head",
        windowed=True,
        norms_per_layer=4,
        experts=Experts(count="num_local_experts", shared_width="shared_expert_intermediate_size"),
    ),
    "laguna": Decoder(
        qk_norm="head",
        gate="head",
        windowed=True,
        per_layer={"num_attention_heads_per_layer": "num_attention_heads"},
        experts=Experts(shared_width="shared_expert_intermediate_size", vectors=("num_experts",)),
    ),
    "lara_mini": Decoder(
        qk_norm="head",
        windowed=True,
        mixers={"linear_attention": gated_delta_net},
        experts=Experts(shared_width="shared_expert_intermediate_size"),
        tied=True,
    ),
    "lfm2_moe": Decoder(
        names={"num_dense_layers": "first_k_dense_replace"},
        qk_norm="head",
        mixers={"conv": short_convolution},
        experts=Experts(),
        tied=True,
    ),
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba2": Decoder(
        names={"num_heads": "mamba_num_heads", "head_dim": "mamba_head_dim"},
        mixers={"full_attention": mamba2},
        feed_forward=False,
        norms_per_layer=1,
    ),
    "mellum": Decoder(qk_norm="head", windowed=True, experts=Experts(count="num_local_experts")),
    "mimo_v2_flash": Decoder(
        windowed=True, sinks="sliding", window_kv_times=2, experts=Experts(count="n_routed_experts")
    ),
    "minicpm3": Decoder(latent=True, ffn_bias="mlp_bias", tied=True),
    "minimax": Decoder(
        mixers={"linear_attention": lightning},
        experts=Experts(count="num_local_experts", width="intermediate_size"),
    ),
    "minimax_m2": Decoder(
        qk_norm="all", experts=Experts(count="num_local_experts", width="intermediate_size")
    ),
    "ministral": Decoder(windowed=True),
    "ministral3": Decoder(windowed="all"),
}
