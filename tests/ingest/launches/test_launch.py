"""Where one launch ends and the next begins, and what a launch counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest import read_logs
from fairmfu.ingest.formats.spec import LAUNCH_STEPS
from fairmfu.ingest.launches.duplicate_steps import EarlierRows
from fairmfu.ingest.launches.launch import (
    MAX_STEP,
    NO_STAMP,
    FormProgress,
    FormRows,
    Launch,
    advance_progress,
    begins_new_launch,
    count_rows_without_facts,
    count_same_process_rows,
)
from fairmfu.ingest.launches.row_chunks import frame_of_rows
from fairmfu.ingest.launches.step_rows import NO_STEP, PARSED_STEP_SCHEMA, StepRows


def launches(tmp_path: Path, *steps: tuple[int, int]) -> list[list[int]]:
    """The steps of each launch of an XTuner log, whose lines print a step and the last planned."""
    lines = [
        f"11/20 15:{32 + place:02}:33 - mmengine - INFO - Iter(train) [{step:3}/{total}]  lr: "
        f"1.0000e-04  eta: 0:00:02  time: 6.0  data_time: 0.0019  loss: {6 - place / 10:.4f}  "
        "tflops: 0.0338  tokens_per_sec: 5063.2"
        for place, (step, total) in enumerate(steps)
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n")
    tables = read_logs(log)
    by_run = tables["steps"].sort("line").group_by("run_id", maintain_order=True)
    return [group["step"].to_list() for _, group in by_run]


@pytest.mark.parametrize(
    ("total", "parts"),
    [
        (100, [[10, 20, 30, 40]]),
        (200, [[10, 20], [30, 40]]),  # another plan
        (40, [[10, 20], [30, 40]]),  # another plan, which the last line completes
        (3, [[10, 20, 30, 40]]),  # a step is beyond it: the number is damaged
    ],
)
def test_another_plan_is_another_launch(tmp_path: Path, total: int, parts: list[list[int]]) -> None:
    assert launches(tmp_path, (10, 100), (20, 100), (30, total), (40, total)) == parts


def test_a_plan_that_the_line_itself_completes_is_one(tmp_path: Path) -> None:
    assert launches(tmp_path, (10, 100), (20, 100), (30, 30)) == [[10, 20], [30]]


# -- whether a row is of another process -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Form:
    """Of a StepLine what a launch asks for."""

    counts: str | None = None
    every_step: bool = False


PLAIN, OTHER, TIMER, EACH = Form(), Form(), Form(LAUNCH_STEPS), Form(every_step=True)
FORMS = (PLAIN, OTHER, TIMER, EACH)
STARTED = datetime(2026, 1, 2)


def at(seconds: float) -> datetime:
    return STARTED + timedelta(seconds=seconds)


def row_of(step: int | None, **more: Any) -> dict[str, Any]:
    return {"line": 9, "rank": None, "step": step, "logged_at": None, "form": PLAIN, **more}


def launched(*rows: dict[str, Any], forms: Sequence[Form] = FORMS, **more: Any) -> Launch:
    """A launch that has these rows, as the parser has it behind them."""
    launch = Launch(1, rows=StepRows(None, forms), **more)
    for row in rows:
        launch.rows.append(dict(row))
        progress = launch.progress_of(row)
        progress.low_step = min(progress.low_step, row["step"])
        if row["step"] > progress.top_step:
            progress.top_step = row["step"]
            progress.top_stamp, progress.top_clock = row["logged_at"], row.get("since_start_s")
        launch.started_at = launch.started_at or row["logged_at"]
    return launch


def is_new(launch: Launch, row: dict[str, Any], *, single_writer: bool = False) -> bool:
    """What the rule of one row says, and the rule of many of that row alone, too."""
    placed = [row | {"form": FORMS.index(row["form"])}]
    frame = frame_of_rows(placed, PARSED_STEP_SCHEMA, filled_only=True)
    earlier = EarlierRows(launch.rows, frame, 0, single_writer=single_writer)
    stamp, clock = row["logged_at"], row.get("since_start_s")
    rows = FormRows(
        np.array([row["step"]]),
        np.array([NO_STAMP if stamp is None else np.datetime64(stamp, "us").astype(np.int64)]),
        np.array([np.nan if clock is None else clock]),
        lambda _: (row["rank"],),
        lambda count: earlier.of(np.arange(count)),
    )
    known = launch.known_progress(row["form"], row.get("epoch"))
    said = begins_new_launch(launch, row, single_writer=single_writer)
    if known is not None:
        assert count_same_process_rows(launch, known, rows) == (not said)
    return said


@pytest.mark.parametrize(
    ("step", "seconds", "new"),
    [
        (15, 101.0, False),  # an earlier step, stamped a second behind the last: ranks are so late
        (15, 101.000001, True),
        (15, -60.0, False),  # a minute before the first: a copy that came late
        (15, -60.000001, True),
        (20, 160.0, False),  # the last step once more, a minute later or earlier
        (20, 160.000001, True),
        (20, 40.0, False),
        (20, 39.999999, True),
        (21, 1e6, False),  # a later step is trained whenever it is
        (21, -1e6, False),
    ],
)
def test_a_stamp_tells_whether_a_process_has_printed_a_step(
    step: int, seconds: float, *, new: bool
) -> None:
    """Step 10 at 0 s, step 20 at 100 s."""
    launch = launched(row_of(10, logged_at=at(0)), row_of(20, logged_at=at(100)))
    assert is_new(launch, row_of(step, logged_at=at(seconds))) == new


@pytest.mark.parametrize(
    ("step", "clock", "new"),
    [
        (21, 99.0, False),  # a second early, of whole seconds
        (21, 98.9, True),
        (21, 1e6, False),
        (20, 160.0, False),  # a copy, a minute apart
        (20, 160.1, True),
        (20, 39.9, True),
        (20, 40.0, False),
        (10, 60.0, False),
        (10, 60.1, True),
    ],
)
def test_a_time_since_the_start_tells_it_too(step: int, clock: float, *, new: bool) -> None:
    """Step 10 at 0 s, step 20 at 100 s."""
    launch = launched(row_of(10, since_start_s=0.0), row_of(20, since_start_s=100.0))
    assert is_new(launch, row_of(step, since_start_s=clock)) == new


def test_a_line_without_a_step_tells_it_by_its_time() -> None:
    launch = launched(row_of(10, since_start_s=0.0), row_of(20, since_start_s=100.0))
    for clock, new in ((99.0, False), (98.9, True)):
        row = row_of(None, since_start_s=clock)
        assert begins_new_launch(launch, row, single_writer=False) == new
    assert not begins_new_launch(launch, row_of(None), single_writer=False)


@pytest.mark.parametrize(
    ("row", "single_writer", "new"),
    [
        (row_of(20, loss=3.0), False, False),  # a copy
        (row_of(20, loss=3.1), False, True),
        (row_of(20, loss=3.0), True, False),
        (row_of(10, loss=4.0), False, False),  # a node whose ranks have no names
        (row_of(10, loss=4.0), True, True),  # a writer does not go back
        (row_of(10, loss=4.0, rank="0"), False, False),  # of this rank it is the first
        (row_of(15, loss=3.5), True, False),  # a step that was not there
        (row_of(20, loss=None), False, True),
    ],
)
def test_without_stamps_the_losses_of_a_step_tell_it(
    row: dict[str, Any], *, single_writer: bool, new: bool
) -> None:
    """Step 10 with loss 4, step 20 with loss 3."""
    launch = launched(row_of(10, loss=4.0), row_of(20, loss=3.0))
    assert is_new(launch, row, single_writer=single_writer) == new


def test_a_named_rank_does_not_go_back() -> None:
    launch = launched(row_of(10, loss=4.0, rank="0"), row_of(20, loss=3.0, rank="0"))
    assert is_new(launch, row_of(10, loss=4.0, rank="0"))
    assert not is_new(launch, row_of(20, loss=3.0, rank="0"))


@pytest.mark.parametrize(
    ("loss", "new"),
    [(3.0, False), (3.0039, False), (3.0041, True), (-1.0, False), (None, False), (0.0, True)],
)
def test_lines_of_two_kinds_print_one_loss_of_a_step(loss: float | None, *, new: bool) -> None:
    """Within 0.001 x (1 + 3); a stage without the loss prints -1."""
    launch = launched(row_of(10, loss=4.0, form=OTHER), row_of(20, loss=3.0))
    assert is_new(launch, row_of(20, loss=loss, form=OTHER)) == new


@pytest.mark.parametrize(("step", "new"), [(10, True), (9, True), (11, False)])
def test_behind_its_end_a_process_does_not_begin_anew(step: int, *, new: bool) -> None:
    """Steps 10 and 20: a copy of the last may still come, one of the first is another's."""
    launch = launched(row_of(10, loss=4.0), row_of(20, loss=3.0), ends={None: 5})
    assert is_new(launch, row_of(step, loss=4.0)) == new
    of_another = row_of(step, loss=4.0, rank="1")  # which has not ended
    assert not begins_new_launch(launch, of_another, single_writer=False)


def test_behind_its_end_a_stamp_tells_more() -> None:
    launch = launched(row_of(10, logged_at=at(0)), row_of(20, logged_at=at(100)), ends={None: 5})
    assert not is_new(launch, row_of(10, logged_at=at(1)))


def test_behind_its_end_nothing_is_counted_on() -> None:
    launch = launched(row_of(10), row_of(20))
    assert not begins_new_launch(launch, row_of(None), single_writer=False)
    launch.ends[None] = 5
    assert begins_new_launch(launch, row_of(None), single_writer=False)


@given(
    steps=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    moments=st.lists(st.integers(-130, 130), min_size=12, max_size=12),
    kind=st.sampled_from(["logged_at", "since_start_s"]),
)
def test_many_rows_are_held_against_a_launch_as_each_is(
    steps: list[int], moments: list[int], kind: str
) -> None:
    """By stamps and by clocks, each row behind those before it."""

    def told(step: int, moment: int) -> dict[str, Any]:
        return row_of(step, **{kind: at(moment) if kind == "logged_at" else float(moment)})

    launch, plain = (launched(told(2, 0), told(3, 60)) for _ in range(2))
    rows = [told(*each) for each in zip(steps, moments, strict=False)]
    placed = [row | {"form": 0} for row in rows]
    frame = frame_of_rows(placed, PARSED_STEP_SCHEMA, filled_only=True)
    earlier = EarlierRows(launch.rows, frame, 0, single_writer=False)
    stamps = frame["logged_at"].cast(pl.Int64).to_numpy() if kind == "logged_at" else None
    clocks = frame["since_start_s"].to_numpy() if kind == "since_start_s" else None
    many = FormRows(
        frame["step"].to_numpy(),
        np.full(len(rows), NO_STAMP) if stamps is None else stamps,
        np.full(len(rows), np.nan) if clocks is None else clocks,
        lambda count: (None,) * count,
        lambda count: earlier.of(np.arange(count)),
    )
    sure = count_same_process_rows(launch, launch.known_progress(PLAIN, None), many)
    for row in rows[:sure]:
        assert not begins_new_launch(plain, row, single_writer=False)
        plain.rows.append(row)
        progress = plain.progress_of(row)
        if row["step"] > progress.top_step:
            progress.top_step = row["step"]
            progress.top_stamp, progress.top_clock = row["logged_at"], row.get("since_start_s")
    if sure < len(rows):
        assert begins_new_launch(plain, rows[sure], single_writer=False)


# -- steps that no line prints -----------------------------------------------------------------


def interval_of(steps: int) -> dict[str, str]:
    return {"name": "log_interval", "value": str(steps)}


def test_a_line_without_a_step_is_one_interval_behind_the_ranks_last() -> None:
    launch = launched(row_of(20), row_of(30, rank="1"))
    assert launch.next_counted_step(PLAIN, None) == 21  # type: ignore[arg-type]
    launch.facts += [interval_of(5), interval_of(10)]
    assert launch.next_counted_step(PLAIN, None) == 30  # type: ignore[arg-type]
    assert launch.next_counted_step(PLAIN, "1") == 40  # type: ignore[arg-type]
    assert launch.next_counted_step(PLAIN, "2") == 10  # type: ignore[arg-type]
    assert launch.next_counted_step(EACH, None) == 1  # type: ignore[arg-type]


def test_a_form_of_every_step_counts_its_own_lines() -> None:
    launch = launched(row_of(20), row_of(3, form=EACH))
    launch.facts.append(interval_of(10))
    assert launch.next_counted_step(EACH, None) == 4  # type: ignore[arg-type]
    assert launch.next_counted_step(EACH, "1") == 1  # type: ignore[arg-type]


def test_the_largest_step_is_not_passed() -> None:
    launch = launched(row_of(MAX_STEP - 3))
    launch.facts.append(interval_of(10))
    assert launch.next_counted_step(PLAIN, None) == MAX_STEP  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "ranks", "counts"),
    [
        ([row_of(20)], [None], True),
        ([row_of(20)], ["0"], False),
        ([row_of(20)], [None, "0"], False),
        ([row_of(20), row_of(20, rank="0")], [None], False),
        ([row_of(20), row_of(20, form=OTHER)], [None], False),
        ([], [None], False),
        ([row_of(MAX_STEP - 2**20 - 1)], [None], True),
        ([row_of(MAX_STEP - 2**20)], [None], False),
    ],
)
def test_rows_are_counted_together_where_one_rank_prints_one_form(
    rows: list[dict[str, Any]], ranks: list[str | None], *, counts: bool
) -> None:
    """And where a block of them has room below the largest step."""
    assert launched(*rows).counts(ranks) == counts


@pytest.mark.parametrize("stated", [None, 10])
def test_rows_that_are_counted_together_go_on_by_the_interval(stated: int | None) -> None:
    launch = launched(row_of(20))
    launch.facts += [interval_of(stated)] if stated else []
    assert launch.counts([None])
    added = launch.add_counted(pl.DataFrame({"line": [5, 6, 7], "form": [0, 0, 0]}))
    each = stated or 1
    assert added["step"].to_list() == [20 + each, 20 + 2 * each, 20 + 3 * each]
    assert added["counted"].to_list() == [not stated] * 3
    assert launch.next_counted_step(PLAIN, None) == 20 + 4 * each  # type: ignore[arg-type]


def test_an_interval_is_the_last_that_is_stated() -> None:
    launch = launched()
    assert launch.interval is None
    launch.facts += [interval_of(5), interval_of(0)]
    assert launch.interval is None
    launch.facts.append(interval_of(20))
    launch.companion_facts.append(interval_of(7))
    assert launch.interval == 20


# -- facts, ids, and rows of another process ---------------------------------------------------


def test_a_companion_speaks_where_the_primary_says_nothing() -> None:
    launch = launched()
    launch.facts += [{"name": "seq_len", "value": "512"}, {"name": "seq_len", "value": "1024"}]
    launch.companion_facts += [{"name": "seq_len", "value": "1"}, {"name": "gpus", "value": "8"}]
    values = [launch.last_value(name) for name in ("seq_len", "gpus", "vocab_size")]
    assert values == ["1024", "8", None]
    assert [fact["value"] for fact in launch.stated] == ["512", "1024", "8"]


def test_a_run_is_known_by_its_first_lines() -> None:
    one = Launch(1, first_text="start", first_step_text="step 1")
    same = Launch(70, first_text="start", first_step_text="step 1", last_line=99)
    assert one.run_id == same.run_id
    assert len(one.run_id) == 12
    assert one.run_id != Launch(1, first_text="start", first_step_text="step 2").run_id
    assert one.run_id != Launch(1, first_text="restart", first_step_text="step 1").run_id


def test_the_lowest_step_is_that_of_the_training() -> None:
    """A counter of its own counts something else."""
    assert launched().low_step == -1
    rows = (row_of(30), row_of(20, form=OTHER), row_of(1, form=TIMER))
    assert launched(*rows).low_step == 20
    assert not launched(*rows).has_one_form
    assert launched(row_of(30), row_of(40)).has_one_form


def timed(step: int, seconds: float, line: int, form: Form = PLAIN) -> dict[str, Any]:
    return row_of(step, logged_at=at(seconds), line=line, form=form)


@pytest.mark.parametrize(("second", "taken"), [(55, [3]), (54, []), (5, []), (59, [3])])
def test_lines_before_a_counter_that_starts_anew_are_of_its_process(
    second: float, taken: list[int]
) -> None:
    """The old counter at 10 s, the new one at 100 s: a line nearer to the new one is its own."""
    launch = launched(
        timed(500, 9, 1), timed(500, 10, 2, TIMER), timed(501, second, 3), last_line=3
    )
    mine = launch.remove_foreign_rows(timed(1, 100, 4, TIMER))
    assert [row["line"] for row in mine] == ([] if second <= 55 else taken)
    assert [row["line"] for row in launch.rows] == ([1, 2] if mine else [1, 2, 3])
    assert launch.last_line == (2 if mine else 3)


def test_all_lines_behind_the_first_near_one_are_of_the_new_process() -> None:
    launch = launched(
        *(timed(500, 10, 1, TIMER), timed(501, 12, 2), timed(502, 90, 3), timed(503, 11, 4))
    )
    mine = launch.remove_foreign_rows(timed(1, 100, 5, TIMER))
    assert [row["line"] for row in mine] == [3, 4]
    assert launch.last_line == 2


def test_without_stamps_or_a_counter_no_line_is_of_another_process() -> None:
    counter, near = timed(500, 10, 1, TIMER), timed(501, 90, 2)
    assert launched(counter, near).remove_foreign_rows(timed(1, 100, 3)) == []
    bare = timed(1, 100, 3, TIMER) | {"logged_at": None}
    assert launched(counter, near).remove_foreign_rows(bare) == []
    timer = timed(1, 100, 3, TIMER)
    assert launched(counter, near | {"logged_at": None}).remove_foreign_rows(timer) == []
    assert launched(timed(500, 10, 1), near).remove_foreign_rows(timer) == []
    assert len(launched(counter, near).remove_foreign_rows(timer)) == 1


def test_a_counter_is_looked_for_among_the_last_64_lines() -> None:
    timer = timed(1, 100, 99, TIMER)
    for between, taken in ((63, 63), (64, 0)):
        rows = [timed(501 + n, 90, 2 + n) for n in range(between)]
        launch = launched(timed(500, 10, 1, TIMER), *rows)
        assert len(launch.remove_foreign_rows(timer)) == taken


# -- many rows at once -------------------------------------------------------------------------


def test_rows_that_state_a_fact_anew_are_left_to_the_parser() -> None:
    launch = launched(said={"seq_len": "512"})
    facts = {0: [], 1: [("seq_len", "512")], 2: [("seq_len", "1024")], 3: [("gpus", "8")]}
    for kinds, count in (
        ([0, 1, 0, 1], 4),
        ([0, 1, 2, 1], 2),
        ([3, 2], 0),
        ([0, 3, 2, 3], 1),
        ([1, 2, 3], 1),
    ):
        assert count_rows_without_facts(launch, np.array(kinds), facts.__getitem__) == count


def of_rows(steps: list[int], stamps: list[int], clocks: list[float]) -> FormRows:
    return FormRows(np.array(steps), np.array(stamps), np.array(clocks), lambda _: ())


def test_progress_is_that_of_the_first_row_of_the_highest_step() -> None:
    progress = FormProgress()
    advance_progress(progress, of_rows([5, 9, 9, 7], [1, 2_000_000, 3, 4], [0.1, 0.2, 0.3, 0.4]))
    assert (progress.low_step, progress.top_step, progress.top_clock) == (5, 9, 0.2)
    assert progress.top_stamp == datetime(1970, 1, 1, 0, 0, 2)
    advance_progress(progress, of_rows([9, 3], [5, 6], [0.5, 0.6]))
    assert (progress.low_step, progress.top_step, progress.top_clock) == (3, 9, 0.2)
    advance_progress(progress, of_rows([10], [NO_STAMP], [np.nan]))
    assert (progress.top_step, progress.top_stamp, progress.top_clock) == (10, None, None)


def test_only_rows_like_the_first_are_sure_at_once() -> None:
    """Up to one that has a stamp where the first has none, or no step where it has one."""
    launch = launched(row_of(1))
    known = launch.known_progress(PLAIN, None)  # type: ignore[arg-type]
    clocks = [np.nan] * 4
    for steps, stamps, count in (
        ([2, 3, 4, 5], [NO_STAMP] * 4, 4),
        ([2, 3, 4, 5], [NO_STAMP, NO_STAMP, 7, 8], 2),
        ([2, 3, 4, NO_STEP], [NO_STAMP] * 4, 3),
        ([2, 3, 3, 5], [NO_STAMP] * 4, 2),
    ):
        assert count_same_process_rows(launch, known, of_rows(steps, stamps, clocks)) == count
    assert count_same_process_rows(launch, None, of_rows([2], [NO_STAMP], [np.nan])) == 0


def test_step_0_is_a_step() -> None:
    """Some frameworks print it: its stamp is the first of the launch's top step."""
    progress = FormProgress()
    advance_progress(progress, of_rows([0], [2_000_000], [0.5]))
    assert (progress.low_step, progress.top_step, progress.top_clock) == (0, 0, 0.5)
    assert progress.top_stamp == datetime(1970, 1, 1, 0, 0, 2)


def test_a_form_that_has_printed_no_step_is_none_of_the_launchs() -> None:
    launch = launched(row_of(5))
    launch.progress_of(row_of(None, form=OTHER))
    assert launch.has_one_form
    assert launch.known_progress(OTHER, None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "sure"), [(501.0, 2), (501.5, 1)])
def test_a_row_is_held_against_the_highest_step_right_before_it(seconds: float, sure: int) -> None:
    """Step 20 at 100 s; then step 21 at 500 s, and step 15 a second later."""
    launch = launched(row_of(10, logged_at=at(0)), row_of(20, logged_at=at(100)))
    stamps = [np.datetime64(at(moment), "us").astype(int) for moment in (500, seconds)]
    rows = of_rows([21, 15], stamps, [np.nan, np.nan])
    known = launch.known_progress(PLAIN, None)  # type: ignore[arg-type]
    assert count_same_process_rows(launch, known, rows) == sure


@pytest.mark.parametrize(
    ("clocks", "sure"),
    [
        ([101.0, 100.0, 99.0], 3),  # each a second early, of whole seconds
        ([101.0, 99.9, 99.9], 1),
        ([200.0, 300.0, 150.0], 2),  # back behind step 23, though not behind step 20
        ([98.9, 300.0, 400.0], 0),
    ],
)
@pytest.mark.parametrize("without_step", [False, True])
def test_a_time_since_the_start_goes_on_from_row_to_row(
    clocks: list[float], sure: int, *, without_step: bool
) -> None:
    """Step 20 at 100 s, then three rows that go on."""
    launch = launched(row_of(20, since_start_s=100.0))
    steps = [NO_STEP] * 3 if without_step else [21, 22, 23]
    rows = of_rows(steps, [NO_STAMP] * 3, clocks)._replace(ranks=lambda _: (None,))
    known = launch.known_progress(PLAIN, None)  # type: ignore[arg-type]
    assert count_same_process_rows(launch, known, rows) == sure


def test_a_row_without_a_stamp_has_the_one_that_numpy_calls_none() -> None:
    assert np.datetime64("NaT", "us").astype(np.int64) == NO_STAMP
