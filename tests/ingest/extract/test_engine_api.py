"""Blocks and files that others read come back in their order, whoever has read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest

from fairmfu.ingest.decode.line_reader import Chunk
from fairmfu.ingest.detect.detection import FormatChoice
from fairmfu.ingest.extract import engine_api
from fairmfu.ingest.extract.discovery import COMPRESSED_SUFFIXES, LogFile
from fairmfu.ingest.extract.engine_api import (
    BLOCKS_AHEAD_PER_PROCESS,
    EXPANSION_FACTOR,
    MAX_BLOCKS_PER_PROCESS,
    TaskResult,
    chunks_with_plans,
    expanded_size,
    make_planner,
    planner_key,
)
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.vector.block_plan import BlockPlanner

BY_NAME = {f.name: f for f in BUILT_IN_FORMATS}


def test_a_compressed_log_is_counted_as_it_is_read() -> None:
    assert expanded_size(LogFile("a.log", "/a.log", size=7)) == 7
    for suffix in COMPRESSED_SUFFIXES:
        assert expanded_size(LogFile(f"a.log{suffix}", "/a", size=7)) == 7 * EXPANSION_FACTOR


@pytest.mark.parametrize("wrong", [(), (0,), (1, 3), (0, 1, 2, 3)])
def test_errors_stand_at_the_places_of_their_files(wrong: tuple[int, ...]) -> None:
    outcomes: list[Any] = [ValueError(n) if n in wrong else f"log {n}" for n in range(4)]

    def group_of(logs: Any) -> Any:
        return SimpleNamespace(heights=[{} for _ in logs], logs=lambda _: list(logs))

    result = TaskResult.of(outcomes, group_of)
    assert set(result.errors) == set(wrong)
    assert result.each(None) == outcomes  # type: ignore[arg-type]


@pytest.mark.parametrize("companions", [[], ["deepspeed"]])
@pytest.mark.parametrize("keep_texts", [True, False])
def test_another_process_makes_a_like_planner(companions: list[str], *, keep_texts: bool) -> None:
    formats = tuple(BY_NAME[name] for name in companions)
    matcher = line_matcher(BY_NAME["megatron-deepspeed"], formats)
    again = make_planner(planner_key(BlockPlanner(matcher, keep_texts=keep_texts)), FormatChoice())
    assert again.matcher.primary is matcher.primary
    assert again.matcher.companions == matcher.companions
    assert again.keep_texts is keep_texts
    assert again.watch is None


# -- blocks that others plan --------------------------------------------------------------------


@dataclass
class Plan:
    """A plan that another process makes, done once it is let."""

    name: str
    is_done: bool = False

    def done(self) -> bool:
        return self.is_done

    def result(self) -> Any:
        return f"plan of {self.name}"


@dataclass
class Others:
    """Other processes: what they were given, and when blocks are drawn."""

    plans: list[Plan] = field(default_factory=list)
    drawn: int = 0
    are_quick: bool = False

    def submit(self, chunk: Chunk) -> Any:
        self.plans.append(Plan(chunk.data.decode(), self.are_quick))
        return self.plans[-1]

    def chunks(self, count: int) -> Iterator[Chunk]:
        for number in range(1, count + 1):
            self.drawn += 1
            yield Chunk(number, b"%d" % number)


@pytest.fixture(autouse=True)
def plans_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_api, "BlockPlan", Here)


@dataclass(frozen=True)
class Here:
    """A plan that this process has made."""

    name: str


class Planner:
    """Plans blocks in this process."""

    def plan_chunk(self, chunk: Chunk) -> Here:
        return Here(chunk.data.decode())


PLANNER: Final[Any] = Planner()


def test_blocks_come_in_their_order_each_with_its_plan() -> None:
    others = Others(are_quick=True)
    found = [*chunks_with_plans(PLANNER, others.chunks(9), others.submit, 1)]
    assert [chunk.number for chunk, _ in found] == [*range(1, 10)]
    assert [plan for _, plan in found] == [f"plan of {n}" for n in range(1, 10)]


@pytest.mark.parametrize("processes", [1, 2])
def test_where_all_others_are_busy_blocks_are_planned_here(processes: int) -> None:
    """And no more of them wait than others may soon ask for."""
    others = Others()
    found = chunks_with_plans(PLANNER, others.chunks(30), others.submit, processes)
    first, plan = next(found)
    assert (first.number, plan) == (1, "plan of 1")
    busy = BLOCKS_AHEAD_PER_PROCESS * processes
    assert len(others.plans) == busy
    assert others.drawn == MAX_BLOCKS_PER_PROCESS * processes + 1
    assert [plan for _, plan in found][busy - 1 : busy + 1] == [
        Here(str(busy + 1)),
        Here(str(busy + 2)),
    ]


def test_a_block_whose_plan_is_there_is_not_held_back() -> None:
    others = Others()
    found = chunks_with_plans(PLANNER, others.chunks(30), lambda _: None, 4)
    assert next(found)[1] is None
    assert others.drawn == 1


def test_a_line_that_was_cut_is_planned_by_nobody() -> None:
    others = Others()
    chunks = [Chunk(1, b"1"), Chunk(2, b"2", cut=True), Chunk(3, b"3")]
    found = [*chunks_with_plans(PLANNER, chunks, others.submit, 4)]
    assert [plan for _, plan in found] == ["plan of 1", None, "plan of 3"]
