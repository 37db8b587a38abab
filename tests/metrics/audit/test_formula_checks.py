"""The table of eras: a row is built when it is asked for, and a bad one fails alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.metrics.audit.eras import deepspeed, torchtitan, xtuner
from fairmfu.metrics.audit.formula_checks import ERAS_BY_NAME, eras_of_format
from fairmfu.metrics.audit.formula_era import GAP_CAUSES, dated_era
from tests.support.bad_rows import assert_commands_work

NAMES = [
    (row.keywords["log_formats"][0], row.keywords["name"])
    for row in (*torchtitan.ERA_ROWS, *xtuner.ERA_ROWS, *deepspeed.ERA_ROWS)
]


@pytest.mark.parametrize(("log_format", "name"), NAMES)
def test_each_era_builds(log_format: str, name: str) -> None:
    era = ERAS_BY_NAME[name]
    assert era.name == name
    assert era.log_formats[0] == log_format
    assert era.formula
    assert era.repo
    assert era.path
    assert era.commit
    assert era.since is None or era.until is None or era.since < era.until
    stages = [*era.stages, *(stage for path in era.figure_stages.values() for stage in path)]
    assert {stage.cause for stage in stages} <= set(GAP_CAUSES)


def test_eras_keep_their_order_and_are_built_once() -> None:
    assert list(ERAS_BY_NAME) == [name for _, name in NAMES]
    neox = ["gpt-neox-2021", "gpt-neox-2023-09", "gpt-neox-2023-12"]
    for era, name in zip(eras_of_format("gpt-neox"), neox, strict=True):
        assert era is ERAS_BY_NAME[name]
    assert eras_of_format("no such format") == ()


@pytest.mark.usefixtures("unbuilt")
def test_a_bad_era_fails_only_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = ("deepspeed",)
    bad = partial(dated_era, name="bad", log_formats=formats, since="2024-13-01", until=None)
    monkeypatch.setattr(deepspeed, "ERA_ROWS", (bad, *deepspeed.ERA_ROWS))
    assert_commands_work(tmp_path)
    assert ERAS_BY_NAME["deepspeed-engine"].name == "deepspeed-engine"
    with pytest.raises(ValueError, match="month must be in"):
        eras_of_format("deepspeed")
    assert CliRunner().invoke(main, ["formats", "--eras"]).exit_code == 1
