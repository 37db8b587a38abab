"""Version of the formula, and the words for its choices.

Apart from the formula (metrics.formula.flops), so that a table of kept metrics needs no model.
"""

from __future__ import annotations

from typing import Literal

FORMULA_VERSION = "fairmfu-1"
"""Version of this formula, stored with each computed row. Another formula gets another version."""

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
"""Precision of a matmul's computation (not the format that its result is stored in)."""

Pass = Literal["forward", "input_gradient", "weight_gradient"]
"""Products of a training step: forward and recomputed forward, dX, dW."""

AttentionConvention = Literal["exact", "full"]
"""`exact`: attended pairs as masked. `full`: A = T, windows and documents ignored (PaLM)."""

Recompute = Literal["none", "full", "selective"]
"""`full`: every layer is checkpointed. `selective`: core attention only (Megatron)."""

InferencePhase = Literal["prefill", "decode"]
"""`prefill`: a whole prompt at once. `decode`: one token after a cached context."""
