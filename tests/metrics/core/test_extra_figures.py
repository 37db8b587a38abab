"""metrics.core.extra_figures: what is no number under a key is none, however it is read."""

from __future__ import annotations

import json
import math

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.extra_figures import extra_figure, figure_of
from tests.support.effort import costly

PRINTED = st.one_of(
    st.text(max_size=12), st.booleans(), st.none(), st.integers(-(10**9), 10**9), st.floats(),
    st.sampled_from(["true", "nan", "1e999", "1e308", "6.839", " 2.5", "-0", "[]"]),
)  # fmt: skip


@costly
@given(PRINTED)
def test_both_readings_say_the_same_of_any_print(printed: object) -> None:
    read = figure_of({"train_loss": printed}, "train_loss")
    if isinstance(printed, str):
        row = pl.DataFrame({"extra": [json.dumps({"train_loss": printed})]})
        (other,) = row.select(extra_figure("train_loss")).row(0)
        assert other is None or other == read  # Python's own also reads ` 2.5` and `1_000`
    assert math.isfinite(read) or math.isnan(read)


def test_a_number_is_read_and_a_word_is_none() -> None:
    assert figure_of({"train_loss": "6.839"}, "train_loss") == 6.839
    assert figure_of({"train_loss": 2}, "train_loss") == 2.0
    for said in (
        {"train_loss": "1e31"},
        {"train_loss": "1e-308"},
        {"train_loss": "true"},
        {"train_loss": True},
        {"train_loss": [1]},
        {},
    ):
        assert math.isnan(figure_of(said, "train_loss"))
    assert figure_of({"train_loss": "0"}, "train_loss") == 0
    damaged = ['{"rate": "fast"}', '{"rate": "inf"}', '{"rate": "1e-308"}', None]
    extra = ['{"rate": "12.5"}', *damaged, "{}", '{"rate": "0"}']
    told = pl.DataFrame({"extra": extra}).select(rate=extra_figure("rate"))["rate"]
    assert told.to_list() == [12.5, None, None, None, None, None, 0.0]
