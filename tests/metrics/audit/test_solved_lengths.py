"""Lengths that TFLOP/s and tokens/s of a line imply, and where they may be an accident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.audit.formula_checks import FormulaFacts
from fairmfu.metrics.audit.solved_lengths import solve_lengths
from fairmfu.metrics.formula.model_shapes import find_model
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from tests.support.figures import known, lines

ERA = ERAS_BY_NAME["xtuner-0.1.16"]
OPEN = known(log_format="xtuner", T=None, max_length=32_768)
RATE = 6000.123456789
LENGTHS = [1201, 1777, 2304, 2999, 3511]


def flops(length: int, facts: FormulaFacts = OPEN) -> float:
    """FLOPs per token, a straight line that goes on to no token at all."""
    if not length:
        return 2 * flops(1) - flops(2)
    return ERA.flops(cast(SimplifiedModel, facts.simplified_model(length)))


def printed(lengths: list[int], decimals: int = 4, times: float = 1.0, **more: Any) -> Any:
    """Lines of TFLOP/s and tokens/s with so many decimals."""
    rates = [RATE + i for i, _ in enumerate(lengths)]
    return lines(
        logged_tgs=[round(rate, decimals) for rate in rates],
        logged_tflops=[
            round(rate * flops(length) * times / 1e12, decimals)
            for rate, length in zip(rates, lengths, strict=True)
        ],
        **more,
    )


def solved(told: Any, facts: FormulaFacts = OPEN) -> list[float] | None:
    found = solve_lengths(told, ERA, facts)
    return None if found is None else found.columns["sequence_length"].tolist()


def test_each_line_tells_its_length() -> None:
    """Half of 1e-4 of 300 TFLOP/s is 1.6e-7; a token more is 1.5e-5 of the FLOPs."""
    assert solved(printed(LENGTHS)) == LENGTHS
    assert solved(printed(LENGTHS, 3)) is None  # a tenth of that leaves 0.2 tokens open


def test_a_length_that_is_known_is_not_solved() -> None:
    assert solved(printed(LENGTHS), OPEN._replace(T=4096)) is None
    assert solved(printed(LENGTHS, sequence_length=[2048.0] * 5)) is None


def test_lengths_may_be_an_accident_of_two_lines() -> None:
    """A line leaves about 0.02 tokens open: twice is a chance of 4e-4, three times of 1e-5."""
    assert solved(printed(LENGTHS[:3])) == LENGTHS[:3]
    assert solved(printed(LENGTHS[:2])) is None
    assert solved(printed([2304] * 5)) is None  # the same length tells as much as once
    assert solved(printed([*LENGTHS[:3], 1201, 1201])) == [*LENGTHS[:3], 1201, 1201]


def test_another_formula_leaves_no_whole_numbers() -> None:
    assert solved(printed(LENGTHS, times=1.0001)) is None
    assert solved(printed(LENGTHS, times=0.5)) is None  # of less than no token


def test_a_length_beyond_the_longest_is_none() -> None:
    told = printed(LENGTHS)
    assert solved(told, OPEN._replace(max_length=3511)) == LENGTHS
    assert solved(told, OPEN._replace(max_length=3510)) is None
    assert solved(told, OPEN._replace(max_length=None)) == LENGTHS


def test_a_length_is_one_token_at_least() -> None:
    assert solved(printed([1, *LENGTHS])) == [1, *LENGTHS]
    assert solved(printed([0, *LENGTHS])) is None


def test_lines_without_figures_have_no_length() -> None:
    """Each line that prints TFLOP/s has to print tokens/s; others tell nothing."""
    told = printed(LENGTHS)
    columns = {name: np.append(values, np.nan) for name, values in told.columns.items()}
    found = solved(replace(told, columns=columns))
    assert found is not None
    assert found[:5] == LENGTHS
    assert np.isnan(found[5])
    columns["logged_tflops"][5] = 300.0
    assert solved(replace(told, columns=columns)) is None
    nothing = {name: values[:0] for name, values in told.columns.items()}
    assert solved(replace(told, columns=nothing)) is None


def test_a_mean_beside_a_last_value_tells_no_length() -> None:
    assert solved(printed(LENGTHS), OPEN._replace(averaged=frozenset({"logged_tgs"}))) is None


def test_a_formula_without_a_shape_or_without_attention_tells_none() -> None:
    assert solved(printed(LENGTHS), OPEN._replace(shape=None)) is None
    flat = ERAS_BY_NAME["xtuner-2023-11"]  # 2 r N, of whatever length
    assert solve_lengths(printed(LENGTHS), flat, OPEN) is None
    short = find_model("gpt-oss-20b")  # windows of 128: torchtitan's form of 2026 is bent
    bent = ERAS_BY_NAME["torchtitan-2026-08"]
    assert solve_lengths(printed(LENGTHS), bent, OPEN._replace(shape=short)) is None


@given(st.lists(st.integers(64, 16_384), min_size=4, max_size=6, unique=True))
@settings(max_examples=30)
def test_any_lengths_come_out(lengths: list[int]) -> None:
    assert solved(printed(lengths)) == lengths
