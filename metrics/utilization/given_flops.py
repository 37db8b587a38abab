"""FLOPs per token that a user gives: one figure, or the operators of a count.

They replace the formula's. Their origin is in `flops_source`, beside every figure that uses them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairmfu.ingest.core.operator_list import ListedOperator, OperatorList, operator_list

from ..formula import flops
from ..formula.flops import Operator
from ..formula.precision import LOW_PRECISION_OPERATORS
from . import messages
from .formula_inputs import (
    FormulaInputs,
    UtilizationResult,
    integer_fact,
    mean_length,
    number_fact,
    run_attention,
    text_fact,
)

__all__ = ["GivenFlops", "find_given_flops"]

MAX_FLOPS_DIFFERENCE: Final = 0.01
"""Largest relative difference of two counts of the same work, of rounded figures."""

GIVEN_NAME: Final = "given flops_per_token"


@dataclass(frozen=True, slots=True)
class GivenFlops:
    """FLOPs of one token, forward and backward, given for a run.

    full: with full attention; None if unknown
    source: fact and origin. fact: its name
    listed: the operator list; None for a single figure
    """

    exact: tuple[Operator, ...]
    full: tuple[Operator, ...] | None
    fact: str
    source: str
    listed: OperatorList | None = None

    @property
    def flops_per_token(self) -> float:
        """F of training [FLOP per token]."""
        return flops.flops_per_token(self.exact)

    @property
    def has_formats(self) -> bool:
        """True if the names of operators tell their precision below 16 bits."""
        return any(op.name in LOW_PRECISION_OPERATORS for op in self.exact)

    def columns(self, trainable: str | None) -> dict[str, Any]:
        """Return what is known of a run whose shape is unknown.

        trainable: the run's; adapters are not known by their kind alone
        """
        if self.listed is None:
            return {} if trainable == "lora" else {"trained": trainable}
        return {
            "model": self.listed.model,
            "params_total": self.listed.params_total,
            "work": _work_key(self.listed),
            "attention_pattern": "as in the operator list",
            "trained": self.listed.trainable,
        }


def find_given_flops(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], result: UtilizationResult
) -> GivenFlops | None:
    """Return the given FLOPs of a run; None without any.

    A list of other work is not used. flops_per_token goes before operators.
    """
    if (number := number_fact(facts, "flops_per_token")) is not None:
        op = Operator(name=GIVEN_NAME, layers=1, forward=number / 3, backward=number * 2 / 3)
        return GivenFlops((op,), None, "flops_per_token", _source(facts, "flops_per_token"))
    if "operators" not in facts:
        return None
    try:
        listed = operator_list(str(facts["operators"]["value"]))
    except ValueError as error:
        result.warnings.append(messages.OPERATORS_INVALID(why=error))
        return None
    if (why := _other_work(listed, facts, rates, result)) is not None:
        result.warnings.append(messages.OPERATORS_OF_OTHER_WORK(why=why))
        return None
    full = [op.full_attention for op in listed.operators]
    return GivenFlops(
        tuple(_operator(op, op.training) for op in listed.operators),
        None if None in full else tuple(_whole(op) for op in listed.operators),
        "operators",
        _source(facts, "operators"),
        listed,
    )


def _source(facts: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return f"given: {name} ({facts[name]['origin']})"


def _operator(op: ListedOperator, training: float) -> Operator:
    forward = op.forward
    return Operator(
        name=op.name,
        layers=op.layers or 0,
        forward=forward,
        backward=training - forward,
        estimate=op.estimate,
    )


def _whole(op: ListedOperator) -> Operator:
    """Return an operator over all pairs, its forward in proportion."""
    training = op.full_attention or 0.0
    share = op.forward / op.training if op.training else 1 / 3
    return Operator(
        name=op.name,
        layers=op.layers or 0,
        forward=training * share,
        backward=training * (1 - share),
        estimate=op.estimate,
    )


def _other_work(
    listed: OperatorList,
    facts: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Any],
    result: UtilizationResult,
) -> str | None:
    """Return why a list is not of a run's work; None if it may be."""
    trained = text_fact(facts, "trainable")
    if trained is not None and trained != listed.trainable:
        return f"the list is of trainable={listed.trainable}, and the run has {trained}"
    length = mean_length(integer_fact(facts, "seq_len"), rates, UtilizationResult())
    if length is None:
        result.missing.append("seq_len")
        return "the run's sequence length is unknown"
    if length != listed.seq_len:
        return f"the list is of {listed.seq_len:,} tokens, and the run has {length:,}"
    pairs, unknown = run_attention(facts, rates, length)
    whole = (length + 1) / 2
    if unknown is not None or (pairs is not None and _apart(pairs, whole)):
        return "the list is of whole sequences, and the run's documents or samples are shorter"
    return None


def _apart(first: float, second: float) -> bool:
    return abs(first / second - 1) > MAX_FLOPS_DIFFERENCE


def difference_from_formula(given: GivenFlops, run: FormulaInputs | None) -> float | None:
    """Return given FLOPs over the formula's, if known and different."""
    if run is None or not run.is_work_known:
        return None
    ratio = given.flops_per_token / flops.flops_per_token(run.operators())
    return ratio if _apart(ratio, 1) else None


def _work_key(listed: OperatorList) -> str:
    """Return a key of a counted model: equal lists are of equal work."""
    rows = [(op.name, op.layers, op.forward) for op in listed.operators]
    return hashlib.sha256(f"operators {rows}".encode()).hexdigest()[:12]
