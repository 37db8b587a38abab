"""Which number format each operator runs in, by the name of a training's precision.

Below 16 bits only the linears of attention and FFN run so; core attention, router, gates, adapters
and lm_head stay in BF16, as Transformer Engine, DeepSeek-V3 (arXiv:2412.19437, 3.3.1) and what is
advised for torchao keep them. Torchtitan's Float8 converts the lm_head too where nothing keeps it
from it (filter_fqns; torchtitan/components/quantization/float8.py@v0.2.2): `fp8+lm_head`. All three
passes of a linear run in its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from fairmfu.ingest.core.schema import FACT_NAMES

from .flops import Dtype, Operator, Pass

DtypeOf = Callable[[Operator, Pass], Dtype]

BELOW_16_BITS: Final[Mapping[str, Dtype]] = {
    "fp8": "fp8",
    "fp8+lm_head": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}
"""Recipes that run the linears below 16 bits, and in what."""

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
"""What a log says that excludes precisions: a fact, a pattern of its value, and what that leaves.

Of several patterns of one fact the first that is found counts; what two facts leave, both do.
"""


def logged_quantization(facts: Mapping[str, str]) -> tuple[str, frozenset[str]] | None:
    """What a log says of quantised weights, and the precisions that it leaves; None without.

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
    """The format of each operator and pass, and the fastest of them.

    Raises ValueError for a name that the fact `precision` does not take.
    """
    low = BELOW_16_BITS.get(precision)
    if low is not None:
        head = {"lm_head"} if precision.endswith("+lm_head") else set()
        linears = LOW_PRECISION_OPERATORS | head
        return (lambda op, _: low if op.name.removeprefix("mtp ") in linears else "bf16"), low
    one = SIXTEEN_BITS_OR_MORE.get(precision)
    if one is None:
        known = ", ".join(FACT_NAMES["precision"].choices)
        raise ValueError(f"{precision!r} is no precision: one of {known}.")
    return (lambda *_: one), one
