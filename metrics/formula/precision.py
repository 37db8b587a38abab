"""Number format of each operator, by the name of a run's precision.

Below 16 bits, only the linears of attention and FFN use the low format. Core attention, router,
gates, adapters and lm_head stay in BF16, as in Transformer Engine, DeepSeek-V3 (arXiv:2412.19437,
3.3.1) and the advice for torchao. Torchtitan's Float8 converts the lm_head too, unless filter_fqns
excludes it (torchtitan/components/quantization/float8.py@v0.2.2): `fp8+lm_head`. All three passes
of a linear run in its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from fairmfu.ingest.core.schema import FACT_NAMES

from . import messages
from .flops import Operator
from .terms import Dtype, Pass

DtypeOf = Callable[[Operator, Pass], Dtype]

BELOW_16_BITS: Final[Mapping[str, Dtype]] = {
    "fp8": "fp8",
    "fp8+lm_head": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}
"""Recipes with linears below 16 bits, and the format of these linears."""

SIXTEEN_BITS_OR_MORE: Final[Mapping[str, Dtype]] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
}

_FP8: Final = frozenset({"fp8", "fp8+lm_head", "mxfp8"})
QUANTIZATION_EVIDENCE: Final[tuple[tuple[str, str, frozenset[str]], ...]] = (
    ("quantization", r"(?i)nvfp4", frozenset({"nvfp4"})),
    ("quantization", r"(?i)float8|fp8|\bmx(?:fp8)?(?![a-z\d])", _FP8),
    ("quantization", "", frozenset(BELOW_16_BITS)),
    ("quantized", "", frozenset(BELOW_16_BITS)),
)
"""Logged facts that exclude precisions: fact, pattern of its value, precisions still possible.

The first matching pattern of a fact counts. With two facts, the precisions allowed by both
remain."""


def logged_quantization(facts: Mapping[str, str]) -> tuple[str, frozenset[str]] | None:
    """Return the logged facts on quantised weights, and the precisions still possible.

    None without such facts.

    facts: values by name
    """
    said, left = [], frozenset(BELOW_16_BITS)
    for fact in dict.fromkeys(name for name, _, _ in QUANTIZATION_EVIDENCE):
        if (value := facts.get(fact)) is not None:
            rows = (row for row in QUANTIZATION_EVIDENCE if row[0] == fact)
            left &= next(fits for _, pattern, fits in rows if re.search(pattern, value))
            said.append(" ".join(value.split())[:60])
    return (" and ".join(map(repr, said)), left) if said else None


LOW_PRECISION_OPERATORS: Final = frozenset(
    {
        "query/key/value/output projections",
        "linear attention projections",
        "ffn",
        "routed experts",
        "shared experts",
    }
)


def operator_formats(precision: str) -> tuple[DtypeOf, Dtype]:
    """Return the format of each operator and pass, and the fastest of these formats.

    Raises ValueError for a name that is no choice of the fact `precision`.
    """
    low = BELOW_16_BITS.get(precision)
    if low is not None:
        head = {"lm_head"} if precision.endswith("+lm_head") else set()
        linears = LOW_PRECISION_OPERATORS | head
        return (lambda op, _: low if op.name.removeprefix("mtp ") in linears else "bf16"), low
    dtype = SIXTEEN_BITS_OR_MORE.get(precision)
    if dtype is None:
        choices = ", ".join(FACT_NAMES["precision"].choices)
        raise messages.UNKNOWN_PRECISION(precision=precision, choices=choices)
    return (lambda *_: dtype), dtype
