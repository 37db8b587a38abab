"""Attended pairs of documents, from sums of squares that hold padding, against packs made here."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput.document_pairs import PADDING_PIECE, document_pairs

LENGTH = 4096

documents = st.lists(st.integers(1, LENGTH), max_size=12)
packs = st.lists(documents.filter(any), min_size=1, max_size=4)


def pieces(padding: int) -> list[int]:
    """As XTuner v1 cuts the padding of a pack."""
    whole, rest = divmod(padding, PADDING_PIECE)
    return [PADDING_PIECE] * whole + ([rest] if rest else [])


def fitting(lengths: list[int]) -> list[int]:
    """The first documents that one pack holds."""
    return [n for at, n in enumerate(lengths) if sum(lengths[: at + 1]) <= LENGTH]


def step(of: list[list[int]]) -> dict[str, float]:
    """What XTuner v1 prints of a step of these packs."""
    parts = [[*pack, *pieces(LENGTH - sum(pack))] for pack in of]
    squares = sum(n * n for pack in parts for n in pack)
    return {
        "attention_ratio": squares / (len(of) * LENGTH**2),
        "tokens_per_gpu": float(sum(map(sum, of))),
        "slots_per_gpu": float(len(of) * LENGTH),
    }


def bounds(steps: list[list[list[int]]], **facts: int) -> list[float] | None:
    rows = [step(of) | {"first": False, "printing": 1.0} for of in steps]
    return document_pairs(RunArrays(pl.DataFrame(rows)), {"seq_len": LENGTH} | facts)


def truth(steps: list[list[list[int]]]) -> float:
    lengths = [n for of in steps for pack in of for n in pack]
    return sum(n * (n + 1) / 2 for n in lengths) / sum(lengths)


@given(st.lists(documents.filter(any), min_size=1, max_size=5))
def test_of_one_pack_a_step_the_pairs_are_exact(steps: list[list[int]]) -> None:
    made = [[fitting(pack)] for pack in steps]
    assert bounds(made) == pytest.approx([truth(made)] * 2)


@given(st.lists(packs, min_size=1, max_size=5))
def test_of_several_packs_the_pairs_lie_between_the_bounds(steps: list[list[list[int]]]) -> None:
    made = [[fitting(pack) for pack in of] for of in steps]
    low, high = bounds(made) or (0.0, 0.0)
    assert low - 1e-6 <= truth(made) <= high + 1e-6


def test_a_short_document_in_a_long_pack_buys_no_pairs() -> None:
    made = [[[400]]] * 3
    assert bounds(made) == pytest.approx([200.5, 200.5])


def test_packs_without_padding_need_no_split() -> None:
    made = [[[LENGTH], [96, LENGTH - 96]]]
    assert bounds(made) == pytest.approx([truth(made)] * 2)


def test_without_the_length_of_a_pack_nothing_is_known() -> None:
    rows = RunArrays(pl.DataFrame([step([[400]]) | {"first": False, "printing": 1.0}]))
    assert document_pairs(rows, {}) is None


def test_parts_of_a_pack_on_two_ranks_are_added() -> None:
    """Two ranks share each pack: each prints its half of the tokens, and the ratio of the whole."""
    whole = step([[3000, 1096]])
    half = whole | {name: whole[name] / 2 for name in ("tokens_per_gpu", "slots_per_gpu")}
    rows = RunArrays(pl.DataFrame([half | {"first": False, "printing": 2.0}]))
    found = document_pairs(rows, {"seq_len": LENGTH, "context_parallel": 2})
    assert found == pytest.approx([truth([[[3000, 1096]]])] * 2)
