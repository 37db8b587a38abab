"""The fields of a step line: cut out as printed, made numbers of columns, or refused as damaged."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import JSON_PAIRS, StepLine
from fairmfu.ingest.launches.launch import MAX_STEP
from fairmfu.ingest.parse.step_fields import (
    RejectedLineError,
    ends_like,
    pair_cutter,
    reject_cut_number,
    reject_second_record,
    step_columns,
)

FORMAT = replace(next(f for f in BUILT_IN_FORMATS if f.name == "torchtitan"), complete=None)
LINE = StepLine(
    anchor="step",
    regex="step",
    columns={"step": "step", "loss": "loss", "ms": ("elapsed_s", 1e-3), "tgs": "logged_tgs"},
    facts={"batch": "global_batch_size"},
    tells={"critic": ("objective", "reinforcement")},
    example="",
    printed_by="",
)
PAIRS = pair_cutter(r"(?P<key>[a-z][a-z ]*): (?P<value>\S+)")


def columns(**printed: str) -> dict[str, object]:
    return step_columns(FORMAT, LINE, printed)


# -- pairs -------------------------------------------------------------------------------------


def test_a_key_that_comes_twice_keeps_its_first_value() -> None:
    assert PAIRS("loss: 1 | loss: 2 | lr: 3 | loss: 4") == {
        "loss": "1",
        "loss#2": "2",
        "lr": "3",
        "loss#3": "4",
    }


def test_values_of_json_are_as_printed() -> None:
    cut = pair_cutter(JSON_PAIRS)
    text = '{"a": 1.50, "b": 10, "c": NaN, "d": "x", "e": null, "f": true, '
    text += '"g": {"h": 1e-05, "i": {"j": 2}}}'
    assert cut(text) == {
        "a": "1.50",
        "b": "10",
        "c": "NaN",
        "d": "x",
        "e": "null",
        "f": "true",
        "g.h": "1e-05",
        "g.i.j": "2",
    }
    for damaged in ('{"a": 1', "[1, 2]", "5", '{"a":' * 9999):
        with pytest.raises(RejectedLineError, match="no JSON object"):
            cut(damaged)


@pytest.mark.parametrize(
    "text", ["loss: 1.5e-05x", "loss: 1.5", "loss: 1,000", "loss: 1.5, lr: 2", "loss: 7. lr: 2"]
)
def test_a_value_is_cut_as_a_whole(text: str) -> None:
    assert PAIRS(text)["loss"] == text.split()[1]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("loss: 1e-05", True),
        ("loss: 1.5.2", True),
        ("loss: 1,000", True),
        ("loss: 1_000", True),
        ("loss: 1.5 x", False),
        ("loss: 1.5, lr", False),
        ("loss: 1.5s", False),
        ("loss: 1.5e", False),
    ],
)
def test_a_number_that_goes_on_behind_its_pattern_is_refused(text: str, *, refused: bool) -> None:
    cut = pair_cutter(r"(?P<key>loss): (?P<value>\d+(?:\.\d)?)")
    if refused:
        with pytest.raises(RejectedLineError, match="a number goes on"):
            cut(text)
    else:
        assert cut(text) == {"loss": "1.5"}


def test_a_number_that_goes_on_is_shown_with_what_follows() -> None:
    cut = pair_cutter(r"(?P<key>loss): (?P<value>\d)")
    with pytest.raises(RejectedLineError, match=r"behind 'loss: 1': 'e-05 x'"):
        cut("loss: 1e-05 x")


def test_of_a_long_line_twenty_characters_are_shown_on_both_sides() -> None:
    cut = pair_cutter(r"(?P<key>loss): (?P<value>\d)")
    with pytest.raises(RejectedLineError) as error:
        cut(f"{'a' * 30}loss: 1e-05{'b' * 30}")
    assert str(error.value).endswith(f"behind '{'a' * 13}loss: 1': 'e-05{'b' * 16}'")


def test_a_pair_without_its_value_is_none() -> None:
    cut = pair_cutter(r"(?P<key>\w+):(?: (?P<value>\d+))?")
    assert cut("loss: | lr: 3") == {"lr": "3"}


# -- columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "column", "value"),
    [
        ({"loss": "1.5"}, "loss", 1.5),
        ({"tgs": "1,234.5"}, "logged_tgs", 1234.5),
        ({"ms": "250"}, "elapsed_s", 0.25),
        ({"step": "1,000"}, "step", 1000),
        ({"tgs": "50%"}, "logged_tgs", 50.0),
        ({"loss": "N/A"}, "loss", None),
        ({"loss": "None"}, "loss", None),
        ({"loss": "null"}, "loss", None),
        ({"loss": ""}, "loss", None),
        ({"loss": "inf"}, "loss", float("inf")),
        ({"step": str(MAX_STEP)}, "step", MAX_STEP),
    ],
)
def test_a_value_is_that_of_its_column_in_its_unit(
    printed: dict[str, str], column: str, value: object
) -> None:
    row = columns(**printed)
    assert row[column] == value
    assert row["extra"] is None


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ({"loss": "1.5x"}, "loss is '1.5x': not a number"),
        ({"step": "1.5"}, "step is '1.5': not a number"),
        ({"step": str(MAX_STEP + 1)}, "not a number"),
        ({"loss": "1,23"}, "not a number"),
    ],
)
def test_what_is_no_number_is_refused(printed: dict[str, str], why: str) -> None:
    with pytest.raises(RejectedLineError, match=re.escape(why)):
        columns(**printed)


def test_what_has_no_column_is_kept_and_facts_are_said() -> None:
    row = columns(loss="1.5", lr="1e-4", batch="64", critic="0.1")
    assert json.loads(str(row["extra"])) == {"lr": "1e-4", "critic": "0.1"}
    assert row["says"] == {"global_batch_size": "64", "objective": "reinforcement"}
    assert columns(critic="null")["says"] == {}


def test_what_completes_a_row_may_find_damage() -> None:
    """A value that is no number, or a count that makes a step beyond 64 bits."""

    def fails(*_: object) -> None:
        raise ValueError("of no use")

    def counts(row: dict[str, Any], _: object) -> None:
        row["step"] *= 2

    with pytest.raises(RejectedLineError, match=r"a value is not a number \(of no use\)"):
        step_columns(replace(FORMAT, complete=fails), LINE, {"loss": "1.5"})
    half = MAX_STEP // 2
    doubled = replace(FORMAT, complete=counts)
    assert step_columns(doubled, LINE, {"step": str(half)})["step"] == MAX_STEP - 1
    with pytest.raises(RejectedLineError, match="beyond 64 bits"):
        step_columns(doubled, LINE, {"step": str(half + 1)})


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reference", "like"),
    [
        ("tps: 4749.02", "tps: 1.25", True),
        ("tps: 4749.0", "tps: 1.25", False),
        ("tps: 4749.", "tps: 1.25", False),
        ("tps: 4749", "tps: 1.25", False),
        ("tps: 4749.125", "tps: 1.25", True),
        ("n: 120", "n: 999", True),
        ("n: 12", "n: 999", False),
        ("n: 1200", "n: 999", True),
        ("n: 120 |", "n: 5 |", True),
        ("n: 120", "n: 5 |", False),
        ("n: 120 |", "n: 5", False),
        ("", "", True),
        ("", "n: x", False),
    ],
)
def test_a_line_that_was_cut_ends_otherwise(text: str, reference: str, *, like: bool) -> None:
    assert ends_like(text, reference) == like


@given(number=st.decimals(0, 10**6, places=3), cut=st.integers(1, 3))
def test_a_line_whose_last_decimals_are_cut_off_is_noticed(number: object, cut: int) -> None:
    whole = f"tps: {number}"
    assert ends_like(whole, "tps: 1.500")
    assert not ends_like(whole[:-cut], "tps: 1.500")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("step 5 loss 1.5", False),
        ("step 5 loss 1.5 x", False),
        ("step 5 loss 1.5e-05", True),
        ("step 5 loss 1.5.2", True),
        ("step 5 loss 1.5,345", True),
        ("step 5 loss 1.5, x", False),
    ],
)
def test_a_number_that_ends_a_pattern_and_goes_on_is_refused(text: str, *, refused: bool) -> None:
    match = re.search(r"step (\d+) loss (\d+\.\d+)", text)
    assert match is not None
    if refused:
        with pytest.raises(RejectedLineError, match="a number goes on"):
            reject_cut_number(text, match)
    else:
        reject_cut_number(text, match)


def test_a_number_within_a_pattern_may_have_a_comma_behind_it() -> None:
    match = re.search(r"step (\d+),(\d+)", "step 5,345")
    assert match is not None
    reject_cut_number("step 5,345", match)
    match = re.search(r"at (\d+)e-5", "at 1e-5")
    assert match is not None
    with pytest.raises(RejectedLineError):
        reject_cut_number("at 1e-5", match)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("step 5 loss 1.5", False),
        ("step 5 loss 1.5step 6 loss 1.4", True),
        ("step 5 loss step 6 loss 1.4", True),
        ("step 5 loss 1.5 step", False),
    ],
)
def test_two_records_in_one_line_are_refused(text: str, *, refused: bool) -> None:
    match = re.search(r"step (\d+) loss (.*)", text)
    assert match is not None
    short = re.search(r"step (\d+)", text)
    assert short is not None
    if refused:
        with pytest.raises(RejectedLineError, match="two records"):
            reject_second_record(text, short)
    else:
        reject_second_record(text, short)


def test_a_field_of_one_digit_at_the_start_of_a_line_is_one() -> None:
    exponent = re.search(r"(\d)e\d loss", "1e5 loss")
    assert exponent is not None
    with pytest.raises(RejectedLineError, match="a number goes on behind '1': 'e5 loss'"):
        reject_cut_number("1e5 loss", exponent)
    match = re.search(r"(\d) loss", "5 loss 1.5 6 loss 1.4")
    assert match is not None
    with pytest.raises(RejectedLineError, match="two records"):
        reject_second_record("5 loss 1.5 6 loss 1.4", match)


@pytest.mark.parametrize(
    ("text", "refused"), [("at 5.2", True), ("at 5 x", False), ("at 5", False)]
)
def test_a_digit_that_no_group_holds_may_not_go_on_either(text: str, *, refused: bool) -> None:
    match = re.search(r"at \d", text)
    assert match is not None
    if refused:
        with pytest.raises(RejectedLineError, match=r"a number goes on behind 'at 5': '\.2'"):
            reject_cut_number(text, match)
    else:
        reject_cut_number(text, match)
