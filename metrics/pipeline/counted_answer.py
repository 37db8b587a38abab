"""FLOPs of a config.json by FlopCounterMode, as rows of the calculator.

The answer is also the operator list that a run takes as its fact `operators`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..formula import flops
from ..formula.counted_models import count_model, training_operators

__all__ = ["count_answer"]


def count_answer(
    config: Mapping[str, Any], seq_len: int, trainable: Literal["full", "frozen"] = "full"
) -> dict[str, Any]:
    """Return the count of a model by name, like `metrics.pipeline.calculator.answer`.

    `operators` have `*flops_per_token` [FLOP/token] with exact attention and with full attention.
    `class` is the class of transformers; `tokens` are those of the sequence, of an encoder-decoder
    those of source and target; `idle` are parts of the model that no token reached.

    config: a Hugging Face config.json. Raises CountError.
    """
    counted = count_model(config, seq_len)
    frozen = trainable == "frozen"
    exact = training_operators(counted, frozen=frozen)
    full = training_operators(counted, frozen=frozen, full_attention=True)
    total = flops.flops_per_token(exact)
    return {
        "model": counted.model,
        "class": counted.class_name,
        "seq_len": counted.seq_len,
        "tokens": counted.tokens,
        "phase": "train",
        "trainable": trainable,
        "counted_by": counted.counted_by,
        "params_total": counted.params_total,
        "forward_flops_per_token": flops.forward_flops_per_token(exact),
        "flops_per_token": total,
        "flops_per_token_full_attention": flops.flops_per_token(full),
        "operators": [
            {
                "name": op.name,
                "layers": op.layers,
                "forward_flops_per_token": op.forward,
                "flops_per_token": op.training,
                "flops_per_token_full_attention": whole.training,
                "share": op.training / total if total else 0.0,
                "estimate": op.estimate,
            }
            for op, whole in zip(exact, full, strict=True)
        ],
        "idle": list(counted.idle),
    }
