"""What one line says by itself is what the parser takes of it among others."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

import pytest

from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.line_matcher import (
    MAX_PREFIX_CHARS,
    MAX_QUOTED_CHARS,
    LineMatcher,
    event_row,
    read_facts,
)

BY_NAME: Final = {f.name: f for f in BUILT_IN_FORMATS}
ENGINE: Final = BY_NAME["deepspeed"]


def matcher(name: str, *companions: str) -> LineMatcher:
    return LineMatcher(BY_NAME[name], tuple(BY_NAME[one] for one in companions))


# -- stamps --------------------------------------------------------------------------------


def test_the_stamp_of_a_record_is_the_last_before_it() -> None:
    mine, early, late = matcher("torchtitan"), "2026-01-02 03:04:05", "2026-01-02 03:04:06"
    text = f"{early} x {late} step: 1"
    assert mine.stamp(text, text.index("step")) == datetime(2026, 1, 2, 3, 4, 6)
    assert mine.stamp(text, 0) == datetime(2026, 1, 2, 3, 4, 6)  # both stand in the prefix
    far = "x" * (MAX_PREFIX_CHARS - len(early)) + late
    assert mine.stamp(far) == datetime(2026, 1, 2, 3, 4, 6)
    assert mine.stamp("x" + far) is None  # not whole within the prefix
    assert mine.stamp("x" + far, len(far) + 1) == datetime(2026, 1, 2, 3, 4, 6)
    assert mine.stamp("no time") is None
    primus = "[20260306 10:15:16][rank-7/8][INFO ] step: 1"
    assert mine.stamp(primus) == datetime(2026, 3, 6, 10, 15, 16)
    assert mine.stamp(f"{primus} {early}") == datetime(2026, 1, 2, 3, 4, 5)  # its own holds


# -- events --------------------------------------------------------------------------------


def test_the_seconds_of_an_event_are_in_seconds() -> None:
    mine = matcher("megatron-deepspeed")
    text = "    save-checkpoint ................................: (2365.42, 2366.17)"
    found = mine.event(text)
    assert found is not None
    row = mine.event_row(7, text, *found)
    assert (row["line"], row["kind"], row["text"]) == (7, "checkpoint", text)
    assert row["seconds"] in (pytest.approx(2.36542), pytest.approx(2.36617))


def test_a_companions_step_keeps_what_it_says() -> None:
    text = ENGINE.steps[0].example
    row = matcher("megatron-deepspeed", "deepspeed").companion_event(3, text)
    assert row is not None
    assert (row["line"], row["step"], row["kind"]) == (3, 5, "engine_step")
    assert row["logged_at"] == datetime(2026, 11, 20, 15, 1, 25, 144_000)
    assert json.loads(row["extra"])["skipped"] == "0"
    assert matcher("megatron-deepspeed").companion_event(3, text) is None


def test_a_row_of_an_event_quotes_the_beginning_of_its_line() -> None:
    row = event_row(3, "warning", "x" * (MAX_QUOTED_CHARS + 1), {})
    assert (row["text"], row["extra"], row["step"]) == ("x" * MAX_QUOTED_CHARS, None, None)
    assert event_row(3, "warning", "x", {"a": 1}, 5)["extra"] == '{"a": 1}'


def test_numbers_that_no_machine_holds_state_nothing() -> None:
    assert read_facts(lambda text: {"gpus": str(int(text))}, "8") == {"gpus": "8"}
    assert read_facts(lambda text: {"gpus": str(int(text))}, "x") == {}
    assert read_facts(lambda text: {"gpus": str(int(float(text)))}, "1e999") == {}


# -- lines that are damaged ------------------------------------------------------------------


MESH: Final = (
    "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=1, ep=1"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MESH, ""),
        (MESH[:60], 'cut off or damaged: understood up to "…'),
        ("hello", ""),
        ("**Results**: `memory: 63.54GiB (45%), tps: 25, mfu: 0.08%`", ""),  # of a Markdown page
        ("[rank0]: tps: 883  tflops: 183.59", "holds fields of a step of torchtitan"),
    ],
)
def test_a_line_that_is_not_whole_says_why(text: str, says: str) -> None:
    mine = matcher("torchtitan")
    why = mine.damage(text, mine.facts(text))
    assert why.startswith(says)
    assert bool(why) == bool(says)
    if says.startswith("cut"):
        assert "so it states nothing" in why
        assert "device mesh with parallelism" in why


def test_a_step_is_quoted_as_far_as_it_is_understood() -> None:
    mine = matcher("torchtitan")
    step = BY_NAME["torchtitan"].steps[0].example
    said = mine.furthest_match(step.replace("loss:", "lass:"))
    assert said.startswith('looks like a step of torchtitan; understood up to "…')
    assert "step: 10" in said
    assert "lass" not in said
    assert said.endswith('"…step: 10  l"')
    far = mine.furthest_match(step.replace("tps:", "tqs:"))
    assert len(far.partition('"…')[2]) == 40 + len('"')
    assert (
        mine.furthest_match("?") == "looks like a step of torchtitan; not understood from the start"
    )


@pytest.mark.parametrize(
    ("width", "stated"), [(MAX_PREFIX_CHARS, False), (MAX_PREFIX_CHARS + 1, True)]
)
def test_facts_before_a_record_are_those_of_another_record(width: int, *, stated: bool) -> None:
    """Where a newline is missing; what stands in the prefix is of the record itself."""
    mine, mesh = matcher("torchtitan"), "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]"
    text = mesh.ljust(width) + BY_NAME["torchtitan"].steps[0].example
    found = mine.step(text)
    assert found is not None
    assert bool(mine.facts_before(text, found[1])) == stated


def test_an_event_of_a_prefix_is_the_first_pattern_that_takes_it() -> None:
    mine = matcher("torchtitan")
    found = mine.event("Saving the checkpoint (or staging if async is enabled).")
    assert found is not None
    assert found[0].kind == "checkpoint"
    assert mine.event("hello") is None
    assert mine.begins_launch(MESH)
    assert not mine.begins_launch("hello")
    assert mine.may_be_late(MESH.replace("dp_shard=2", "dp_shard=1"))
    assert not mine.may_be_late(MESH)
