"""Reading of one log by one format, line by line, as told to who writes a format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from fairmfu.ingest.detect.format_check import FormatCheck, check_format
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat

BY_NAME: Final = {f.name: f for f in BUILT_IN_FORMATS}
TITAN: Final = BY_NAME["torchtitan"]
MESH: Final = "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]"
CHECKPOINT: Final = "Finished saving the checkpoint at step 30 in 12.5 seconds"
STEP: Final = (
    "2026-01-02 03:04:05,678 step: 30  loss:  8.1  memory: 1.50GiB(3.00%)  tps: 883  mfu: 1%"
)
LINES: Final = (MESH, STEP, "step: 31  loss: x", CHECKPOINT, "hello 3", "", "hello 4")


def checked(path: Path, *lines: str, base: LogFormat | None = None) -> FormatCheck:
    path.write_text("".join(f"{line}\n" for line in lines))
    return check_format(TITAN if base is None else extended(base), path, base)


def extended(base: LogFormat) -> LogFormat:
    """The format with a step line of its own before those of the base."""
    mine = replace(base.steps[0], anchor="mine: ", regex=r"mine: (?P<step>\d+)", example="mine: 3")
    return replace(base, name="mine", steps=(mine, *base.steps), looks_like_step=r"mine: \d|step: ")


def by_line(check: FormatCheck) -> dict[int, tuple[str, dict[str, Any]]]:
    return {row["line"]: (row["is"], row["says"]) for row in check.lines}


def test_each_line_is_told_with_what_it_says(tmp_path: Path) -> None:
    check = checked(tmp_path / "a.log", *LINES)
    assert check.matched
    assert check.counts == {
        "lines": 7,
        "step_lines": 1,
        "known_lines": 3,
        "unread_lines": 1,
        "other_lines": 2,
    }
    told = by_line(check)
    assert [*told] == [1, 2, 3, 4]
    assert told[1][0] == "fact"
    assert told[1][1].items() >= {"tensor_parallel": "2"}.items()
    assert told[2][0] == "step"
    step = {"step": 30, "loss": 8.1, "logged_tgs": 883, "logged_at": "2026-01-02 03:04:05.678000"}
    assert told[2][1].items() >= step.items()
    assert "rank" not in told[2][1]
    assert told[3][0] == "unread"
    assert told[4] == ("event", {"kind": "checkpoint", "step": 30, "seconds": 12.5})
    assert [kind["count"] for kind in check.other_kinds] == [2]
    texts = {row["line"]: row["text"] for row in check.lines}
    assert texts == dict(enumerate(LINES[:4], 1))


def test_lines_of_a_format_are_counted_by_what_took_them(tmp_path: Path) -> None:
    check = checked(tmp_path / "a.log", *LINES, CHECKPOINT)
    taken = {row["pattern"]: row["lines"] for row in check.patterns if row["lines"]}
    by = {row["line"]: row["by"] for row in check.lines}
    assert by[3] == ""
    assert sum(taken.values()) == 4
    assert taken[by[4]] == 2
    assert {by[1], by[2], by[4]} == set(taken)
    assert by[2].startswith("[[steps]] ")
    assert by[4].startswith("[[events]] ")
    assert len(check.patterns) == len(TITAN.steps) + len(TITAN.facts) + len(TITAN.events)
    fills = {row["pattern"]: row["fills"] for row in check.patterns}
    assert "tensor_parallel" in fills[by[1]]
    assert {"step", "loss", "logged_tgs"} <= set(fills[by[2]])
    assert fills[by[4]] == ["checkpoint"]


def test_lines_of_the_format_that_is_extended_are_called_by_its_name(tmp_path: Path) -> None:
    check = checked(tmp_path / "a.log", "mine: 29", *LINES, base=TITAN)
    by = {row["line"]: row["by"] for row in check.lines}
    assert by[1] == "[[steps]] 1"
    assert by[3].startswith("torchtitan steps ")
    assert by[5].startswith("torchtitan events ")
    patterns = [row["pattern"] for row in check.patterns]
    assert patterns[:2] == ["[[steps]] 1", "torchtitan steps 1"]
    assert f"torchtitan facts {len(TITAN.facts)}" in patterns


@pytest.mark.parametrize(
    ("lines", "matched"), [(["hello"], False), (["step: 31  loss: x"], False), ([CHECKPOINT], True)]
)
def test_a_format_that_takes_no_line_has_not_matched(
    lines: list[str], tmp_path: Path, *, matched: bool
) -> None:
    assert checked(tmp_path / "a.log", *lines).matched == matched
