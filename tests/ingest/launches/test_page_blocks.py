"""Which code blocks of a page go on with the run of the block before: by time, steps and memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.page_blocks import SHARED, page_owners
from tests.support.launches_by_hand import launch_of

MIDNIGHT = datetime(2026, 1, 2)
STEP_S = 10.0

Row = dict[str, Any]


def block(first_step: int, at: float, count: int = 3, **same: Any) -> list[Row]:
    """Step lines of ten seconds a step; at: seconds of the first."""
    return [
        {"step": first_step + n, "since_start_s": at + STEP_S * n, **same} for n in range(count)
    ]


def page(*blocks: Sequence[Row], fence: str = "```") -> tuple[list[str], Launch]:
    """A page of blocks with a line of text before each, and their rows as one launch."""
    texts: list[str] = []
    rows: list[Row] = []
    for lines in blocks:
        texts += ["text", fence]
        for row in lines:
            texts.append("step")
            rows.append({"line": len(texts), **row})
        texts.append(fence)
    return texts, launch_of(rows)


def owners(*blocks: Sequence[Row], **how: Any) -> list[int] | None:
    texts, launch = page(*blocks, **how)
    found = page_owners(texts, [launch])
    return None if found is None else found.tolist()


FIRST = block(1, 10.0)
PARTED = [SHARED, *[0] * 5, *[1] * 6]
"""Text before the first block is of both; text before the second is the second's."""


def test_lines_of_every_run_are_of_none() -> None:
    assert SHARED < 0


@pytest.mark.parametrize(
    ("between", "found"), [(5.0, None), (4.9, PARTED), (17.0, None), (17.1, PARTED)]
)
@pytest.mark.parametrize("clock", ["since_start_s", "logged_at"])
def test_a_block_goes_on_where_its_time_fits_the_pace(
    between: float, found: list[int] | None, clock: str
) -> None:
    """One step of 10 s further on: 0.7 x 10 - 2 to 1.5 x 10 + 2 seconds later."""
    blocks = [FIRST, block(4, 30.0 + between)]
    if clock == "logged_at":
        blocks = [
            [
                {"step": row["step"], clock: MIDNIGHT + timedelta(seconds=row["since_start_s"])}
                for row in lines
            ]
            for lines in blocks
        ]
    assert owners(*blocks) == found


def test_a_pace_is_that_of_a_step_however_many_a_line_has() -> None:
    """Each tenth step of 10 s is printed."""
    first, second = (
        [
            {"step": 10 * row["step"], "since_start_s": 10 * row["since_start_s"]}
            for row in block(step, at)
        ]
        for step, at in ((1, 10.0), (4, 40.0))
    )
    assert owners(first, second) is None
    assert owners(
        first, [row | {"since_start_s": row["since_start_s"] + 60} for row in second]
    ) == (PARTED)


def test_the_pace_is_that_of_all_blocks_of_the_run() -> None:
    """One line tells none of its own."""
    assert owners(FIRST, block(4, 40.0, 1), block(5, 50.0, 1)) is None
    assert owners(FIRST, block(4, 40.0, 1), block(5, 500.0, 1)) == [SHARED, *[0] * 9, *[1] * 4]


@pytest.mark.parametrize(
    ("between", "found"), [(68.0, None), (67.9, PARTED), (152.0, None), (152.1, PARTED)]
)
def test_as_many_steps_take_as_much_time(between: float, found: list[int] | None) -> None:
    """Ten steps further on: 0.7 x 100 - 2 to 1.5 x 100 + 2 seconds."""
    assert owners(FIRST, block(13, 30.0 + between)) == found


@pytest.mark.parametrize("step", [1, 3])
def test_steps_that_do_not_rise_are_of_another_run(step: int) -> None:
    """Ten seconds later, as the next step would be."""
    assert owners(FIRST, block(step, 40.0)) == PARTED


def test_stamps_tell_as_clocks_do_and_win() -> None:
    def stamped(lines: list[Row], shift_s: float = 0.0) -> list[Row]:
        moments = (row["since_start_s"] + shift_s for row in lines)
        return [
            row | {"logged_at": MIDNIGHT + timedelta(seconds=at)}
            for row, at in zip(lines, moments, strict=True)
        ]

    assert owners(stamped(FIRST), stamped(block(4, 40.0))) is None
    assert owners(stamped(FIRST), stamped(block(4, 40.0), 3600.0)) == PARTED
    assert owners(stamped(FIRST), block(4, 40.0)) is None  # one side has no stamp


@pytest.mark.parametrize(
    ("memory", "found"),
    [((100, 109), None), ((100, 111), PARTED), ((100, 89), PARTED), ((0, 100), PARTED)],
)
def test_the_peak_memory_of_a_run_changes_by_a_tenth_at_most(
    memory: tuple[int, int], found: list[int] | None
) -> None:
    one, other = memory
    first = block(1, 10.0, peak_memory_bytes=one)
    assert owners(first, block(4, 40.0, peak_memory_bytes=other)) == found
    assert owners(first, block(4, 40.0)) is None  # which one block does not say


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ((10.0, 15.0), None),
        ((10.0, 15.1), PARTED),
        ((10.0, 7.0), None),
        ((10.0, 6.9), PARTED),
        ((10.0, None), PARTED),
        ((None, 10.0), PARTED),
        ((0.0, 10.0), PARTED),
    ],
)
def test_without_moments_the_times_of_the_lines_decide(
    times: tuple[float | None, float | None], found: list[int] | None
) -> None:
    first, second = (
        [{"step": step, "elapsed_s": own} for step in steps]
        for steps, own in zip(((1, 2, 3), (4, 5, 6)), times, strict=True)
    )
    assert owners(first, second) == found


@pytest.mark.parametrize(("own", "found"), [(10.0, None), (50.0, [SHARED, 0, 0, 0, 1, 1, 1, 1])])
def test_blocks_of_one_line_tell_their_pace_by_the_time_of_the_line(
    own: float, found: list[int] | None
) -> None:
    """The lines are 10 s apart, one step."""
    lines = [block(step, 10.0 * step, 1, elapsed_s=own) for step in (1, 2)]
    assert owners(*lines) == found


def test_the_pace_is_that_of_the_block_before() -> None:
    """A second block of 1 s a step: 10 s behind the first fit the first one's pace."""
    quick = [{"step": 4 + n, "since_start_s": 40.0 + n} for n in range(3)]
    assert owners(FIRST, quick) is None
    assert owners(quick, [row | {"step": row["step"] + 3} for row in block(4, 52.0)]) == PARTED


def test_a_third_block_is_held_against_the_one_before_it() -> None:
    """It goes on with the second, which is a run of its own."""
    third = block(7, 3630.0)
    assert owners(FIRST, block(4, 3600.0), third) == [*PARTED, *[1] * 6]
    assert owners(FIRST, block(4, 3600.0), block(7, 9000.0)) == [*PARTED, *[2] * 6]
    assert owners(FIRST, block(4, 40.0), block(7, 9000.0)) == [SHARED, *[0] * 11, *[1] * 6]


@pytest.mark.parametrize("fence", ["```", "~~~", "    ```text", "> ````", " " * 8 + "```"])
def test_fences_of_markdown_bound_a_block(fence: str) -> None:
    assert owners(FIRST, block(4, 3600.0), fence=fence) == PARTED


@pytest.mark.parametrize("fence", ["``", "---", " " * 9 + "```", "x ```"])
def test_other_lines_bound_none(fence: str) -> None:
    assert owners(FIRST, block(4, 3600.0), fence=fence) is None


def test_a_line_of_a_step_beside_the_blocks_is_no_page() -> None:
    """Then blocks say nothing of whose a line is."""
    texts, launch = page(FIRST, block(4, 3600.0))
    launch.rows.append({"line": len(texts) + 1, "step": 7, "form": None, "rank": None})
    assert page_owners([*texts, "step"], [launch]) is None


def test_a_last_block_may_be_open() -> None:
    """As of a page that was cut."""
    texts, launch = page(FIRST, block(4, 3600.0))
    found = page_owners(texts[:-1], [launch])
    assert found is not None
    assert found.tolist() == PARTED[:-1]


def test_one_block_is_no_page() -> None:
    assert owners(block(1, 10.0) + block(4, 3600.0)) is None


@pytest.mark.parametrize(
    ("before", "shared"),
    [
        (["# Title", "intro", "## Run A", "note"], 2),  # the last heading is the run's
        (["# Title", "intro", "note"], 4),  # one heading is the page's; so is the text behind it
        (["intro", "#no heading", "# Title"], 4),
        (["# Title", "> ## Quoted"], 1),
    ],
)
def test_the_heading_before_the_first_block_is_of_its_run(before: list[str], shared: int) -> None:
    texts, launch = page(FIRST, block(4, 3600.0))
    moved = launch_of(
        {
            "line": row["line"] + len(before),
            "step": row["step"],
            "since_start_s": row["since_start_s"],
        }
        for row in launch.rows
    )
    found = page_owners([*before, *texts], [moved])
    assert found is not None
    own = len(before) + 1 - shared
    assert found.tolist() == [*[SHARED] * shared, *[0] * (own + 5), *[1] * 6]


def test_a_heading_behind_the_first_block_is_not_the_first_runs() -> None:
    texts, launch = page(FIRST, block(4, 3600.0))
    found = page_owners(
        ["# Title", *["## Run B" if text == "text" else text for text in texts[1:]]], [launch]
    )
    assert found is not None
    assert found.tolist() == PARTED


def test_starts_that_part_all_runs_need_no_blocks() -> None:
    """Each block is a launch already; where one launch is two runs, all of them are told."""
    texts, launch = page(FIRST, block(4, 3600.0), block(1, 10.0))
    every = list(launch.rows)
    whole = [launch_of(every[n : n + 3]) for n in (0, 3, 6)]
    assert page_owners(texts, whole) is None
    found = page_owners(texts, [launch_of(every[:6]), whole[2]])
    assert found is not None
    assert found.tolist() == [*PARTED, *[2] * 6]
    assert page_owners(texts, [launch_of([], 1), launch_of(every[:6]), whole[2]]) is not None
