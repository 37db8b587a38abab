"""A share of `make metamorphic`: a log of each framework, each way in which it may be damaged."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from tests.support.effort import sampled
from tests.support.folders import ROOT
from tests.support.transformations import TRANSFORMATIONS
from tests.tools import metamorphic

LOGS = (
    "h200/torchtitan-0.2.2/bf16/run.log",
    "h100/xtuner-0.2.0/bf16/run.log",
    "h100/deepspeed-0.19.8/bf16/run.log",
    "synthetic/xtuner-v1/llama3-8b-8xh100-xtuner-v1.log",
    "synthetic/megatron-deepspeed/llama3-8b-8xh100-megatron-deepspeed.log",
)


@cache
def read(name: str) -> metamorphic.Case:
    case = metamorphic.read_case(ROOT / "sample_logs" / name)
    assert case is not None
    return case


@sampled(3)
@pytest.mark.parametrize("what", TRANSFORMATIONS)
def test_no_damage_changes_a_figure_in_silence(what: str) -> None:
    """One of the logs for each, so that all are damaged in some way."""
    names = Random(what).sample(LOGS, len(LOGS))  # noqa: S311 - no secret
    damaged = (
        (name, metamorphic.transformed(read(name), what, name, read(name))) for name in names
    )
    name, rows = next((name, rows) for name, rows in damaged if rows is not None)
    case = read(name)
    assert not [str(one) for one in metamorphic.violations(name, what, rows, case.rows)]


def test_a_figure_of_another_is_found() -> None:
    """The rule can fail: the same run at twice its speed, with and without a word."""
    rows = read(LOGS[0]).rows
    twice = [row | {"tgs": row["tgs"] * 2} for row in rows]
    found = list(metamorphic.violations("log", "twice", twice, rows))
    assert [(one.figure, one.ranked) for one in found] == [("tgs", True)]
    doubted = [row | {"warnings": [*row["warnings"], "a clock that was set"]} for row in twice]
    assert not list(metamorphic.violations("log", "twice", doubted, rows))


@pytest.mark.parametrize("name", LOGS)
def test_one_log_alone_has_the_figures_of_a_store(name: str) -> None:
    text = (ROOT / "sample_logs" / name).read_text(encoding="utf-8")
    facts = {"seq_len": 1024}
    alone = metamorphic.figures_of({"run.log": text}, facts)
    stored = metamorphic.figures_of({"run.log": text, "copy.log": text}, facts)
    where = {"name": "", "sources": []}
    assert [row | where for row in alone] == [row | where for row in stored]
