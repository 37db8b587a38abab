"""FLOPs per token that a user gives: the MFU by them, its source, and work that they are not of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import FactError
from fairmfu.ingest.core.operator_list import operator_list, operator_list_text
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics import answer, ask
from fairmfu.metrics.utilization.messages import (
    FLOPS_GIVEN,
    FORMATS_UNKNOWN,
    OPERATORS_OF_OTHER_WORK,
    OTHER_FLOPS,
)
from fairmfu.metrics.utilization.utilization import operator_table, score_utilization
from tests.metrics.utilization.test_utilization import F, held, rate

ANY_FLOPS = st.floats(1e3, 1e12)
UNKNOWN: dict[str, str | None] = {"model": "own-7b", "recompute": None}


def listed(model: str = "llama3-8b", seq_len: int = 8192, **inputs: Any) -> str:
    return operator_list_text(json.dumps(answer(ask(model, seq_len, **inputs))))


def kinds(out: Any) -> set[str]:
    return {message.kind for message in out.warnings}


@given(ANY_FLOPS, st.floats(1, 1e6))
def test_given_flops_need_no_model_and_name_their_source(flops: float, tgs: float) -> None:
    facts = held(**{**UNKNOWN, "flops_per_token": repr(flops), "seq_len": None})
    out = score_utilization(facts, rate(tgs))
    figure = out.values.get("mfu", out.values.get("implied"))
    assert figure == pytest.approx(tgs * flops / 989.4e12)
    assert out.missing == []
    assert out.values["flops_source"] == "given: flops_per_token (flag)"
    assert FLOPS_GIVEN.identifier in kinds(out)
    assert not {"hfu_low", "mfu_full_attention", "work"} & set(out.values)


@pytest.mark.parametrize("times", [1.0, 1.005, 1.05, 0.5])
def test_given_flops_are_compared_with_the_formulas(times: float) -> None:
    out = score_utilization(held(flops_per_token=repr(F * times)), rate())
    assert out.values["mfu"] == pytest.approx(6400 * F * times / 989.4e12)
    assert (OTHER_FLOPS.identifier in kinds(out)) == (abs(times - 1) > 0.01)
    assert out.values["work"] == score_utilization(held(), rate()).values["work"]


MODELS = ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b"]


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp8+lm_head"])
@pytest.mark.parametrize("model", MODELS)
def test_the_formulas_own_list_gives_the_formulas_mfu(model: str, precision: str) -> None:
    facts = {"model": model, "precision": precision}
    by_formula = score_utilization(held(**facts), rate(100.0)).values
    by_list = score_utilization(held(**facts, operators=listed(model)), rate(100.0))
    for name in ("mfu", "flops_per_token", "peak_flops", "mfu_bf16"):
        assert by_list.values[name] == pytest.approx(by_formula[name])
    assert OTHER_FLOPS.identifier not in kinds(by_list)
    unknown = score_utilization(held(**{**facts, **UNKNOWN}, operators=listed(model)), rate(100.0))
    assert unknown.values["mfu"] == pytest.approx(by_formula["mfu"])
    assert unknown.values["work"] != by_formula["work"]


@pytest.mark.parametrize(
    ("of_list", "of_run"),
    [
        ({"seq_len": 4096}, {}),
        ({"trainable": "frozen"}, {}),
        ({}, {"trainable": "lora", "lora_rank": "8", "lora_targets": "all-linear"}),
        ({}, {"attended_pairs": "700"}),
        ({}, {"document_mask": "true"}),
    ],
    ids=str,
)
def test_a_list_of_other_work_is_not_used(of_list: Any, of_run: dict[str, str]) -> None:
    out = score_utilization(held(**of_run, operators=listed(**of_list)), rate())
    assert OPERATORS_OF_OTHER_WORK.identifier in kinds(out)
    assert out.values.get("flops_source") is None
    assert out.values.get("mfu") == score_utilization(held(**of_run), rate()).values.get("mfu")


def test_one_figure_has_no_mfu_in_mixed_precision() -> None:
    out = score_utilization(held(flops_per_token=repr(F), precision="fp8"), rate())
    assert "mfu" not in out.values
    assert out.missing == ["operators"]
    assert FORMATS_UNKNOWN.identifier in kinds(out)
    assert out.values["mfu_conservative"] == pytest.approx(6400 * F / 1978.9e12, rel=1e-3)


@pytest.mark.parametrize("other", [{"objective": "preference"}, {"token_dropping": "true"}])
def test_given_flops_count_work_that_the_formula_does_not(other: dict[str, str]) -> None:
    refused = score_utilization(held(**other), rate())
    assert "mfu" not in refused.values
    assert "flops_per_token=N" in refused.warnings[0]
    known = score_utilization(held(**other, flops_per_token=repr(7e10)), rate())
    assert known.values["mfu"] == pytest.approx(6400 * 7e10 / 989.4e12)


def test_the_table_of_operators_is_the_lists() -> None:
    table = operator_table(held(**UNKNOWN, operators=listed()), rate())
    formula = operator_table(held(), rate())
    assert table["operator"].to_list() == formula["operator"].to_list()
    assert table["flops_per_token"].sum() == pytest.approx(F)
    assert table["flops_per_token_full_attention"].null_count() == table.height


NAMES = st.text(min_size=1, max_size=20)
COUNTS = st.floats(0, 1e12)
ROWS = st.fixed_dictionaries(
    {"name": NAMES, "flops_per_token": COUNTS},
    optional={
        "forward_flops_per_token": COUNTS,
        "flops_per_token_full_attention": COUNTS,
        "layers": st.integers(0, 100),
        "estimate": st.booleans(),
        "unknown": st.none(),
    },
)


@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(1, 10**6))
def test_a_list_is_kept_as_it_is_read(rows: list[dict[str, Any]], seq_len: int) -> None:
    text = json.dumps({"operators": rows, "seq_len": seq_len})
    assert operator_list(operator_list_text(text)) == operator_list(text)
    (fact,) = facts_from_flags([f"operators={text}"])
    assert operator_list(str(fact["value"])) == operator_list(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"operators": [], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": 1}]}',
        '{"operators": [{"name": "x"}], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": -1}], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": "9"}], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": NaN}], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": 1e30}], "seq_len": 8}',
        '{"operators": [{"name": "x", "flops_per_token": 1}], "seq_len": 8, "phase": "decode"}',
    ],
)
def test_another_text_is_refused_as_a_list(text: str) -> None:
    with pytest.raises(FactError, match="no operator list"):
        facts_from_flags([f"operators={text}"])
