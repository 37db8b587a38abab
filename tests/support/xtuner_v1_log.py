"""A log of XTuner v1, composed as its trainer prints it.

Source: xtuner/v1/train/trainer.py@b934f46 Trainer._log_step.

The figures of the images are computed as in pre_micro_batch_forward
(xtuner/v1/model/base.py@b934f46), in its number formats: whole numbers, and float32 where torch
divides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

START: Final = datetime(2026, 8, 3, 10)

QWEN3_4B: Final = {
    "vocab_size": 151936,
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "attention": {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "qkv_bias": False,
        "qk_norm": True,
        "o_bias": False,
        "sliding_window": -1,
        "with_sink": False,
        "with_gate": False,
        "attn_impl": "flash_attention",
    },
    "linear_attention": None,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "model_type": None,
    "use_sliding_window": False,
    "max_window_layers": 36,
}
QWEN3_VL_TOWER: Final = {
    "in_channels": 3,
    "depth": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "hidden_act": "gelu_pytorch_tanh",
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [5, 11, 17],
    "attn_impl": "flash_attention",
}
INTERNVL_TOWER: Final = {
    "num_channels": 3,
    "patch_size": [14, 14],
    "image_size": [448, 448],
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "use_qk_norm": False,
    "num_hidden_layers": 24,
    "hidden_act": "gelu",
    "norm_type": "layer_norm",
    "attention_bias": True,
    "use_mean_pooling": True,
    "attn_impl": "flash_attention",
}
FREEZES: Final = {"freeze_vision": False, "freeze_projector": False, "freeze_language": False}
QWEN3_VL_4B: Final[dict[str, Any]] = {
    "vision_config": QWEN3_VL_TOWER,
    "projector_config": {"vision_hidden_size": 1024, "text_hidden_size": 2560},
    "text_config": QWEN3_4B,
    "image_token_id": 151655,
    **FREEZES,
}
INTERNVL3_5_4B: Final[dict[str, Any]] = {
    "vision_config": INTERNVL_TOWER,
    "projector_config": {"vision_hidden_size": 1024, "text_hidden_size": 2560},
    "text_config": QWEN3_4B,
    "vision_feature_layer": -1,
    "downsample_ratio": 0.5,
    **FREEZES,
}
"""Fields of XTuner's configs (Qwen3VLDense4BConfig, InternVLBaseConfig) that the readers need, and
some besides."""


@dataclass(frozen=True)
class Pack:
    """One pack: image tokens of each image by sample, and tokens of each sample."""

    images: Sequence[Sequence[int]]
    tokens: Sequence[int]


def image_figures(packs: Sequence[Pack], sharing: int = 1) -> tuple[float, float]:
    """Return step_consumed_img_tokens and img_efficient_attn_ratio of a rank's step."""
    consumed = np.float32(0.0)
    squares = whole = 0
    for pack in packs:
        of_pack = 0
        for sample in pack.images or [[0]]:
            consumed = np.float32(consumed + np.float32(sum(sample)))
            of_pack += sum(sample)
            squares += sum(n * n for n in sample)
        whole += of_pack**2
    ratio = np.float32(squares) / np.float32(np.float32(whole) + np.float32(1e-8))
    return float(consumed / np.float32(sharing)), float(np.float32(ratio))


def attention_ratio(packs: Sequence[Pack], length: int) -> float:
    """Return efficient_attn_ratio, with the padding cut into pieces of 256."""
    squares = 0
    for pack in packs:
        whole, rest = divmod(length - sum(pack.tokens), 256)
        squares += sum(n * n for n in pack.tokens) + whole * 256**2 + rest**2
    return float(np.float32(squares) / np.float32(len(packs) * length**2))


def step_line(  # noqa: PLR0913 - each changes the line
    step: int,
    packs: Sequence[Pack],
    length: int,
    *,
    sharing: int = 1,
    rank: int | None = None,
    variant: str = "Q",
) -> str:
    """Return the line of one step; `variant` P has no seqlen_tokens."""
    images, image_ratio = image_figures(packs, sharing)
    tokens = sum(sum(pack.tokens) for pack in packs) // sharing
    slots = len(packs) * length // sharing
    stamp = START + timedelta(seconds=2 * step)
    of_slots = variant == "Q"
    info = {"step_consumed_tokens": tokens}
    info |= {"step_seqlen_tokens": slots} if of_slots else {}
    info |= {
        "step_consumed_img_tokens": images,
        "efficient_attn_ratio": attention_ratio(packs, length),
        "img_efficient_attn_ratio": image_ratio,
    }
    return (
        f"[XTuner]{'' if rank is None else f'[RANK {rank}]'}[{stamp}][INFO] "
        f"Epoch 1 Step {step}/100 data_time: 0.0100 lr: 1.000000e-05 time: 1.9900 "
        f"text_tokens: {tokens} {f'seqlen_tokens: {slots} ' if of_slots else ''}"
        f"img_tokens: {images} approximate_total_consumed_tokens: {8 * tokens * step} "
        "reduced_llm_loss: 1.50000000, local_loss: 1.50000000 "
        f"{', '.join(f'{key}: {value:.8f}' for key, value in info.items())}  "
        f"grad_norm: 1.00000000 max_memory: 40.00 GB reserved_memory: 42.00 GB "
        f"tgs: {tokens / 1.99:.1f} {f'seqlen_tgs: {slots / 1.99:.1f} ' if of_slots else ''}"
        f"exp_tgs: {tokens / 2:.1f} eta: 0:03:00 "
    )


def config_lines(model: Mapping[str, Any], sharing: int = 1) -> list[str]:
    """Return the lines of the TrainerConfig that rank 0 dumps."""
    config = {
        "model_cfg": model,
        "load_from": "models/mine",
        "fsdp_cfg": {
            "tp_size": 1,
            "ep_size": 1,
            "recompute_ratio": 1.0,
            "vision_recompute_ratio": 1.0,
            "param_dtype": "torch.bfloat16",
            "lm_head_fp32": False,
        },
        "sp_size": sharing,
        "total_step": 100,
        "intra_layer_micro_batch": 1,
    }
    first, *rest = json.dumps(config, indent=2).splitlines()
    return [f"[XTuner][{START}][INFO] Training config: {first}", *rest]


def write_log(  # noqa: PLR0913 - each changes the log
    path: Path,
    steps: Sequence[Sequence[Pack]],
    length: int,
    *,
    model: Mapping[str, Any] | None = None,
    sharing: int = 1,
    variant: str = "Q",
) -> Path:
    """Write the log of one rank: a step per element of `steps`, each of some packs."""
    lines = [] if model is None else config_lines(model, sharing)
    lines += [
        step_line(n, packs, length, sharing=sharing, variant=variant)
        for n, packs in enumerate(steps, start=1)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
