"""Operator list of a model: the fact `operators`.

`fairmfu flops --format json` writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ListedOperator", "OperatorList", "operator_list", "operator_list_text"]

MAX_OPERATORS: Final = 10_000
MAX_OPERATOR_FLOPS: Final = 1e16
"""Most operators of a list, and most FLOPs of one operator per token."""

_NUMBERS: Final = ("forward_flops_per_token", "flops_per_token", "flops_per_token_full_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOperator:
    """Operator of a list [FLOP per token].

    forward, training: over the pairs of the mask; full_attention: training over all pairs
    """

    name: str
    layers: int | None
    forward: float
    training: float
    full_attention: float | None
    estimate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    """Operators of one forward and backward of a sequence of seq_len tokens.

    counted_by: programs that counted, with versions; empty for a list by formula or by hand
    """

    seq_len: int
    trainable: str
    operators: tuple[ListedOperator, ...]
    model: str | None
    params_total: int | None
    counted_by: str


def operator_list(text: str) -> OperatorList:
    """Return the operator list of a JSON text. Raises ValueError with the reason."""
    values = json.loads(text)
    rows = values.get("operators") if isinstance(values, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_OPERATORS:
        raise ValueError(f"it has no list 'operators' of 1 to {MAX_OPERATORS:,} operators")
    if values.get("phase", "train") != "train":
        raise ValueError("it is of inference, not of training")
    if values.get("documents"):
        raise ValueError("it is of packed documents, not of whole sequences")
    return OperatorList(
        seq_len=_whole(values, "seq_len"),
        trainable=str(values.get("trainable", "full")),
        operators=tuple(map(_operator, rows)),
        model=str(values["model"]) if isinstance(values.get("model"), str) else None,
        params_total=_whole(values, "params_total") if values.get("params_total") else None,
        counted_by=str(values.get("counted_by") or ""),
    )


def operator_list_text(text: str) -> str:
    """Return a list with the keys that fairmfu reads alone, as one JSON text."""
    found, values = operator_list(text), json.loads(text)
    kept = {
        "model": found.model,
        "seq_len": found.seq_len,
        "trainable": found.trainable,
        "params_total": found.params_total,
        "counted_by": found.counted_by or None,
    }
    names = ("name", "layers", "estimate", *_NUMBERS)
    rows = [{name: row[name] for name in names if name in row} for row in values["operators"]]
    known = {name: value for name, value in kept.items() if value is not None}
    return json.dumps(known | {"operators": rows})


def _operator(row: Any) -> ListedOperator:  # noqa: ANN401 - JSON
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        raise ValueError("an operator has no name")
    layers = row.get("layers")
    forward, training, full = (_flops(row, name) for name in _NUMBERS)
    if training is None:
        raise ValueError(f"the operator {row['name']!r} has no flops_per_token")
    return ListedOperator(
        name=row["name"],
        layers=layers if isinstance(layers, int) and 0 <= layers < MAX_OPERATOR_FLOPS else None,
        forward=training / 3 if forward is None else min(forward, training),
        training=training,
        full_attention=full,
        estimate=row.get("estimate") is True,
    )


def _flops(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 <= number <= MAX_OPERATOR_FLOPS:
        raise ValueError(f"{name} of the operator {row['name']!r} is no number of FLOPs")
    return float(number)


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ValueError(f"it has no {name} that is a positive whole number")
    return value
