"""Cases that are one test: each is checked, and those that fail are named."""

from __future__ import annotations

import inspect

import pytest

from tests.support.each_case import each_case


def test_every_failing_case_is_named_with_its_reason() -> None:
    seen = []

    @each_case("letter", ["a", "b", "c"])
    @each_case(("number", "other"), [pytest.param(1, 2, id="first"), (3, 3)])
    def check(number: int, other: int, letter: str, given: str) -> None:
        seen.append((number, letter, given))
        if letter == "c":
            raise ValueError(number)
        assert number != other, letter

    assert list(inspect.signature(check).parameters) == ["given"]
    with pytest.raises(pytest.fail.Exception) as failed:
        check(given="fixture")
    assert seen == [(n, letter, "fixture") for letter in "abc" for n in (1, 3)]
    said = str(failed.value)
    assert said.startswith("3 of 3 cases")
    for part in ("['a'] Failed: 1 of 2 cases", "[3-3] AssertionError: b", "[first] ValueError: 1"):
        assert part in said


def test_cases_that_all_hold_are_one_test() -> None:
    @each_case("number", range(3), ids=["x", "y", "z"])
    def check(number: int) -> None:
        assert number < 3

    check()


def test_a_test_that_does_not_take_its_cases_is_no_test() -> None:
    with pytest.raises(TypeError, match="does not take"):

        @each_case("number", [1])
        def check(other: int) -> None:
            assert other
