"""Blocks planned by who has read nothing before them: the same tables, wherever the blocks end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest

from fairmfu.ingest.core.spill import Spool, collect_rows
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.line_reader import Chunk
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE
from fairmfu.ingest.extract.engine_api import PlannerKey, make_planner, planner_key
from fairmfu.ingest.extract.log_tables import read_log, read_log_tables
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.vector import block_parser, block_plan, fixed_layouts
from fairmfu.ingest.vector.block_plan import BlockPlan, BlockPlanner
from tests.ingest.vector.test_gate import BY_LINE, Reading, differences, reading
from tests.support.damaged_lines import damaged_log
from tests.support.effort import THOROUGH, sampled
from tests.support.folders import ROOT

pytestmark = sampled(5)

SYNTHETIC: Final = sorted((ROOT / "sample_logs" / "synthetic").iterdir())
FEW_STEPS: Final = 5
LOGS: Final = 4 if THOROUGH else 1
"""Damaged ones of a format."""
APART: Final = 1 if THOROUGH else 7
"""Lines between one seam that is tried and the next."""


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with many lines is done with few."""
    monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
    monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)
    monkeypatch.setattr(fixed_layouts, "MIN_LAYOUT_LINES", 2)
    monkeypatch.setattr(fixed_layouts, "LAYOUT_LINE_DIVISOR", 10**9)


class Other:
    """Who plans blocks, and has learned nothing by what is read here."""

    def __init__(self) -> None:
        self._planners: dict[PlannerKey, BlockPlanner] = {}

    def plan(self, planner: BlockPlanner, chunk: Chunk) -> BlockPlan:
        names = planner_key(planner)
        if names not in self._planners:
            line_matcher.cache_clear()
            self._planners[names] = make_planner(names, BUILT_IN_CHOICE)
            line_matcher.cache_clear()
        plan: BlockPlan = pickle.loads(pickle.dumps(self._planners[names].plan_chunk(chunk)))  # noqa: S301
        return plan


def read(
    path: Path,
    other: Other,
    is_theirs: Callable[[int], bool],
    cut: Callable[[Chunk], Iterable[Chunk]] = lambda chunk: (chunk,),
) -> Reading:
    """A log, each chunk cut into blocks; is_theirs: of the number of a block's first line."""

    def planned(
        planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        for chunk in chunks:
            if chunk.cut or not chunk.ended:
                yield chunk, None
                continue
            for block in cut(chunk):
                yield block, other.plan(planner, block) if is_theirs(block.number) else None

    spool = Spool()
    tables = read_log(path, spool, plan_chunks=planned).tables(spool)
    return Reading({name: collect_rows(table) for name, table in tables.items()})


def blocks(chunk: Chunk, begins: Sequence[int]) -> Iterator[Chunk]:
    """Its lines in blocks that begin with these lines."""
    lines = chunk.data.split(b"\n")[:-1]
    within = {begin - chunk.number for begin in begins} & set(range(len(lines)))
    for begin, end in pairwise(sorted({0, *within, len(lines)})):
        yield Chunk(chunk.number + begin, b"\n".join([*lines[begin:end], b""]))


def that_begins_again(path: Path) -> bytes:
    """The head of a log; damaged lines, the same steps without a header, then all of it again."""
    lines = path.read_bytes().split(b"\n")
    steps = read_log_tables(path)["steps"]["line"].to_list()[:FEW_STEPS]
    head, again = lines[: steps[-1]], lines[steps[0] - 1 : steps[-1]]
    step = lines[steps[1] - 1]
    damaged = [step[: len(step) // 2], b"\xff" + step, step + step, b"", step.replace(b"1", b"x")]
    ranks = [b"[rank1]:" + line for line in again]
    return b"\n".join([*head, *ranks, *damaged, *again, *head, *ranks, again[0]])


@pytest.mark.parametrize("folder", SYNTHETIC, ids=lambda path: path.name)
def test_a_block_may_begin_with_any_line(folder: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "run.log", Other()
    path.write_bytes(that_begins_again(min(folder.rglob("*.log"))))
    expected = Reading(read_log_tables(path, use_fast_path=False))
    assert expected.tables["runs"].height > 1
    for tried, seam in enumerate(range(2, expected.source["lines"] + 1, APART)):
        theirs = ({1}, {seam}, {1, seam})[tried % 3]
        found = read(path, other, theirs.__contains__, partial(blocks, begins=[seam]))
        assert list(differences(found, expected)) == [], (seam, theirs)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
@pytest.mark.parametrize("folder", SYNTHETIC, ids=lambda path: path.name)
def test_blocks_may_have_few_lines(folder: Path, most: int, tmp_path: Path) -> None:
    path, other, draw = tmp_path / "run.log", Other(), Random(most)  # noqa: S311
    path.write_bytes(that_begins_again(min(folder.rglob("*.log"))))
    expected = Reading(read_log_tables(path, use_fast_path=False))
    begins = range(1, expected.source["lines"] + 1, most)
    found = read(path, other, lambda _: draw.random() < 0.5, partial(blocks, begins=begins))
    assert list(differences(found, expected)) == []


@pytest.mark.parametrize("form", BY_LINE, ids=lambda form: form.name)
def test_damaged_logs_are_read_alike_by_plans_of_others(
    form: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, seed = 0, 0
    while compared < LOGS:
        path, draw = tmp_path / f"{seed}.log", Random(seed)  # noqa: S311
        path.write_bytes(damaged_log(form, seed, 300))
        monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", draw.choice((997, 3_001, 9_001)))
        slow = reading(path, fast=False)
        if not slow.refused:  # a line that is damaged may look like one of another format
            found = read(path, Other(), lambda _, draw=draw: draw.random() < 0.5)
            assert list(differences(found, slow)) == [], seed
            compared += 1
        seed += 1
