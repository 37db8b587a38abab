"""Lines with a counter of their own: brought to the steps of the training, or to none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core import spill
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.spec import MICRO_STEPS
from fairmfu.ingest.launches import step_alignment
from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.step_alignment import AlignedRows
from fairmfu.ingest.launches.step_rows import StepRows
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.vector.block_parser import BlockParser
from tests.support import plain_alignment
from tests.support.effort import sampled

Parse = Callable[..., ParsedSource]


def log(*lines: str) -> list[str]:
    """`S10` is the engine's line of step 10, `T1/20` the timer's in epoch 1 at count 20."""

    def written() -> Iterator[str]:
        for second, line in enumerate(lines):
            stamp = f"[2026-01-02 03:04:{second:02},000] [INFO] "
            if line.startswith("S"):
                yield f"{stamp}[Rank 0] step={line[1:]}, skipped=0, lr=[0.1], mom=[0.9]"
            elif line.startswith("T"):
                yield f"{stamp}{line[1:]}, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=4.0"
            else:
                yield line

    return list(written())


def accumulates(count: int) -> str:
    return f"[INFO] [config.py:9:print]   gradient_accumulation_steps .. {count}"


def only(parsed: ParsedSource) -> Launch:
    (launch,) = parsed.launches
    assert parsed.step_lines == len(launch.rows)
    assert parsed.lines == parsed.step_lines + parsed.known_lines
    return launch


def steps(parse: Parse, lines: Sequence[str]) -> list[int]:
    return [row["step"] for row in only(parse("deepspeed", lines)).rows]


def test_two_moments_tell_how_many_counts_a_step_has(parse: Parse) -> None:
    assert steps(parse, log("S10", "T0/40", "T0/60", "S20", "T0/80")) == [10, 10, 15, 20, 20]


def test_a_resumed_run_counts_on_where_the_engine_does(parse: Parse) -> None:
    lines = log(accumulates(2), "S510", "T0/20", "T0/30", "S520", "T0/40")
    assert steps(parse, lines) == [510, 510, 515, 520, 520]


def test_steps_of_any_size_are_found(parse: Parse) -> None:
    """Their product with the counts of a step needs more than 64 bits."""
    start = 2**60
    engine = [f"S{start + step}" for step in (10, 20)]
    lines = log(accumulates(16), engine[0], "T0/160", engine[1], "T0/320", "T0/480")
    assert steps(parse, lines) == [start + step for step in (10, 10, 20, 20, 30)]


def test_a_counter_that_starts_anew_with_the_epoch_stays_in_one_launch(parse: Parse) -> None:
    lines = log(accumulates(1), "S10", "T0/10", "S20", "T0/20", "S30", "T1/5", "S40", "T1/15")
    assert steps(parse, lines) == [10, 10, 20, 20, 30, 30, 40, 40]


@pytest.mark.parametrize("rate", ["nan", "inf", "-nan", "1e999"])
def test_a_moved_rate_that_is_no_number_leaves_the_extra_readable(parse: Parse, rate: str) -> None:
    """A NaN in the JSON of one line ended the analysis of its run."""
    lines = [line.replace("=4.0", f"={rate}") for line in log(accumulates(2), "T0/20")]

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    extras = [row["extra"] for row in only(parse("deepspeed", lines)).rows if row["extra"]]
    assert extras
    for extra in extras:
        json.loads(extra, parse_constant=refuse)


def test_a_count_in_the_middle_of_a_step_is_no_step(parse: Parse) -> None:
    launch = only(parse("deepspeed", log(accumulates(4), "T0/10", "T0/20")))
    assert [row["step"] for row in launch.rows] == [5]
    (event,) = launch.events
    assert (event["kind"], event["line"], event["step"]) == ("timers", 2, None)


def test_one_moment_alone_tells_nothing(parse: Parse) -> None:
    assert steps(parse, log("S10", "T0/40", "T0/50")) == [10]


def test_moments_that_contradict_each_other_tell_nothing(parse: Parse) -> None:
    lines = log("S75", "T0/100", "S150", "T0/150", "S225", "T0/250", "S300", "T0/300")
    assert steps(parse, lines) == [75, 150, 225, 300]


def test_without_anything_else_the_run_is_told_in_micro_steps(parse: Parse) -> None:
    launch = only(parse("deepspeed", log("T0/10", "T0/20", "T1/10")))
    assert [row["step"] for row in launch.rows] == [10, 20]
    assert launch.step_unit == "micro_step"
    assert [event["line"] for event in launch.events] == [3]


def test_the_rate_of_a_micro_step_is_not_that_of_a_step(parse: Parse) -> None:
    one, two = (only(parse("deepspeed", log(accumulates(n), "T0/20"))).rows[0] for n in (1, 2))
    assert (one["step"], one["logged_samples_per_second"]) == (20, 4.0)
    assert (two["step"], two["logged_samples_per_second"]) == (10, None)
    assert '"micro_step_samples_per_second": 4.0' in two["extra"]


@pytest.mark.parametrize("rows", [16, 32_768])
def test_two_forms_of_one_counter_count_together(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timers of DeepSpeed 0.6 and 0.7 in one launch: half of their lines had no step."""
    monkeypatch.setattr(spill, "CHUNK_ROWS", rows)
    timers = (
        "SamplesPerSec=48.73, MemAllocated=7.22GB, MaxMemAllocated=2.61GB",
        "RunningAvgSamplesPerSec=3.6, CurrSamplesPerSec=1.1, MemAllocated=9.48GB, "
        "MaxMemAllocated=41.45GB",
    )
    lines = []
    for count in range(10, 90, 10):
        lines += log(f"S{1000 + count}")
        lines.append(f"[2026-01-02 03:04:05,000] [INFO] 0/{count}, {timers[count % 20 > 0]}")
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, ""]))
    for fast in (True, False):
        found = read_log_tables(path, use_fast_path=fast)
        assert found["steps"]["step"].unique_counts().to_list() == [2] * 8
        assert found["events"].is_empty()


def test_the_engine_and_the_pipeline_print_one_step_in_one_launch(parse: Parse) -> None:
    lines = log("S5", "steps: 5 loss: 7.0 iter time (s): 0.5 samples/sec: 8.0", "S10")
    assert steps(parse, lines) == [5, 5, 10]


@pytest.mark.parametrize(("ahead", "quoting"), [((0,), [False]), ((0, 1, 2), [False, True])])
def test_texts_of_counts_are_kept_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: Sequence[int], quoting: Sequence[bool]
) -> None:
    """Counts that no step is known of become events, for which all is read again."""
    lines = []
    for step in range(1, 400):
        count = step + ahead[step % len(ahead)]
        timed = f"Tepoch=0/micro_step={4 * count}/global_step={count}"
        lines += log(f"S{step}", timed)
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, ""]))
    expected = read_log_tables(path, use_fast_path=False)
    asked: list[bool] = []

    class Asked(BlockParser):
        def __init__(self, *args: Any, keep_texts: bool, **others: Any) -> None:
            asked.append(keep_texts)
            super().__init__(*args, keep_texts=keep_texts, **others)

    monkeypatch.setattr(log_tables, "BlockParser", Asked)
    found = read_log_tables(path)
    assert all(found[name].equals(table) for name, table in expected.items())
    timers = found["events"]["text"].to_list()
    assert timers == (lines[1::2] if True in quoting else [])
    assert asked == quoting


@dataclass(frozen=True, eq=False)
class Form:
    """Of a StepLine what alignment asks for."""

    counts: str | None
    every_step: bool = False


FORMS = [Form(None), Form(MICRO_STEPS), Form("global_step"), Form(MICRO_STEPS)]


def drawn(rng: Random) -> Iterator[dict[str, Any]]:
    """Rows of counters that mostly keep pace with the training, and of damaged ones."""
    step, factor, offset = 0, rng.choice((1, 2, 4)), rng.choice((0, 0, 5, -40, 100))
    forms = rng.choice(((0, 1), (0, 2), (1,), (2,), (0, 1, 2), (0, 1, 3), (0, 3, 2)))
    largest = 2**62 if rng.random() < 0.05 else 400
    ranks = rng.choice(((None,), (None, "0", "1")))
    for line in range(rng.randint(0, 40)):
        form = rng.choice(forms)
        step += rng.choice((1, 1, 1, 10, 0, -5)) if form == 0 else 0
        kept = form == 0 or rng.random() < 0.8
        count = step if form == 0 else step * factor + offset
        row = {"line": line + 1, "rank": rng.choice(ranks), "logged_at": None, "extra": None}
        row |= {"form": FORMS[form], "step": count if kept else rng.randint(-3, largest)}
        row |= {"epoch": rng.choice((None, 0, 0, 1)) if form else None}
        if form and rng.random() < 0.7:
            micro = str(row["step"] + rng.choice((0, 0, 1)))
            said = rng.choice(({}, {"q": 'a"\\b'}, {"q": '"micro_step": "7"'}))
            row["extra"] = rng.choice((None, json.dumps({"micro_step": micro} | said)))
            row[step_alignment.RATE_COLUMN] = rng.choice((4.0, 8.5, None))
        yield row


def of(rows: Sequence[dict[str, Any]]) -> StepRows:
    out = StepRows(None, FORMS)
    for row in rows:
        out.append(dict(row))
    return out


def told(aligned: AlignedRows) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str | None]:
    said = [
        [{n: v for n, v in row.items() if v is not None} for row in rows]
        for rows in (aligned.rows, aligned.unplaced)
    ]
    return said[0], said[1], aligned.step_unit


@sampled(8)
@pytest.mark.parametrize("seed", range(300))
def test_columns_are_aligned_as_rows_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)  # noqa: S311 - rows to try
    monkeypatch.setattr(spill, "CHUNK_ROWS", rng.choice((3, 7, 1000)))
    rows, accumulation = list(drawn(rng)), rng.choice((0, 0, 1, 2, 4))
    plain = plain_alignment.align(of(rows), accumulation)
    assert told(step_alignment.align_steps(of(rows), accumulation)) == told(plain)


# -- steps that no line prints -----------------------------------------------------------------


def counted(*epochs: str | None, first: int = 1) -> StepRows:
    """Lines that print no step, each with the epoch that it prints, counted one by one."""
    return of(
        [
            {"line": n, "rank": None, "form": FORMS[0], "step": n, "counted": True}
            | {"extra": None if epoch is None else json.dumps({"epoch": epoch})}
            for n, epoch in enumerate(epochs, first)
        ]
    )


def ends(*steps: int | None) -> list[dict[str, Any]]:
    return [{"step": step} for step in steps]


TENTHS = tuple(f"0.{n}" for n in range(1, 10))


@pytest.mark.parametrize(
    ("last", "interval"),
    [
        (90, 10),  # 9 lines: 10 x 9
        (99, None),  # 10 x 9 and 11 x 9 both fit
        (98, 10),  # and up to 8 steps behind the last line
        (9, 1),
        (8, None),  # fewer steps than lines
    ],
)
def test_the_end_tells_how_many_steps_lie_between_two_lines(
    last: int, interval: int | None
) -> None:
    """So many lines, and none more, were printed until then."""
    fitting = [n for n in range(1, 100) if 9 * n <= last < 10 * n]
    assert interval == (fitting[0] if len(fitting) == 1 else None)
    found = step_alignment.steps_between_lines(counted(*TENTHS), ends(last))
    assert found == interval


def test_ends_have_to_agree_and_to_be_there() -> None:
    rows = counted(*TENTHS)
    between = step_alignment.steps_between_lines
    assert between(rows, ends(90, None, 90)) == 10
    assert between(rows, ends(90, 80)) is None
    assert between(rows, ends()) is None
    assert between(of([]), ends(90)) is None


def test_a_step_that_is_printed_denies_that_lines_are_counted() -> None:
    rows = counted(*TENTHS)
    assert step_alignment.has_only_counted_steps(rows)
    rows.append({"line": 10, "rank": None, "form": FORMS[0], "step": 10, "extra": None})
    assert not step_alignment.has_only_counted_steps(rows)
    assert not step_alignment.has_only_counted_steps(of([]))
    assert step_alignment.steps_between_lines(rows, ends(100)) is None


@pytest.mark.parametrize(
    ("epochs", "grows"),
    [
        (("0.1", "0.2", "0.3"), True),
        (("0.1", "0.2", "0.5"), True),  # 0.15 x 3 is 0.45 to two digits
        (("0.1", "0.2", "0.51"), False),
        (("0.1", "0.2", "0.1"), True),
        (("0.1", "0.2", "0.09"), False),
        (("0.5", "0.6", "0.7"), False),  # resumed
        ((None, None, None), False),
        (("x", "y", "z"), False),
        (("0.1", "0.2", "nan"), False),
    ],
)
def test_the_epoch_grows_with_the_lines_from_the_start(
    epochs: Sequence[str | None], *, grows: bool
) -> None:
    """Within half a last digit of each."""
    found = step_alignment.steps_between_lines(counted(*epochs), ends(6))
    assert found == (2 if grows else None)


@pytest.mark.parametrize(
    ("samples", "batch", "epochs", "interval"),
    [
        (1000, 10, ("0.10", "0.20", "0.30"), 10),  # 100 steps an epoch, 30 in three lines
        (1000, 10, ("0.1", "0.2", "0.3"), None),  # 9 to 11 fit
        (1000, 1, ("0.1", "0.2", "0.3"), None),  # 0.25 to 0.35 of 1000 steps: several fit
        (1000, 1, ("0.100", "0.200", "0.300"), 100),
        (9, 10, ("0.1", "0.2", "0.3"), None),  # no batch in an epoch
        (10, 10, ("1.0", "2.0", "3.0"), None),  # one batch, or two of which one is not full
        (1000, 10, ("0.5", "0.6", "0.7"), None),
        (1000, 10, ("0.0", "0.0", "0.0"), None),
        (1000, 10, (None, None, None), None),
    ],
)
def test_epochs_tell_how_many_steps_lie_between_two_lines(
    samples: int, batch: int, epochs: Sequence[str | None], interval: int | None
) -> None:
    found = step_alignment.steps_between_lines_by_epochs(counted(*epochs), samples, batch)
    assert found == interval


@given(
    interval=st.integers(1, 50),
    steps_an_epoch=st.integers(2, 5000),
    lines=st.integers(2, 30),
    digits=st.integers(2, 6),
)
def test_an_interval_by_epochs_is_the_true_one_or_none(
    interval: int, steps_an_epoch: int, lines: int, digits: int
) -> None:
    """Of a batch of 4 samples; the epoch is printed rounded."""
    epochs = [f"{interval * n / steps_an_epoch:.{digits}f}" for n in range(1, lines + 1)]
    rows = counted(*epochs)
    found = step_alignment.steps_between_lines_by_epochs(rows, 4 * steps_an_epoch, 4)
    assert found in (interval, None)


def mixed(*steps: tuple[int, bool], rank: str | None = None) -> StepRows:
    """Lines of a step, printed or counted."""
    return of(
        [
            {"line": n, "rank": rank, "form": FORMS[0], "step": step, "extra": None}
            | ({"counted": True} if is_counted else {})
            for n, (step, is_counted) in enumerate(steps, 1)
        ]
    )


def placed(rows: StepRows, interval: int | None = None) -> list[int] | None:
    found = step_alignment.place_counted_rows(rows, interval)
    return None if found is None else [row["step"] for row in found]


@pytest.mark.parametrize(
    ("steps", "interval", "found"),
    [
        ([(1, True), (320, False)], 10, [310, 320]),  # of an excerpt
        ([(1, True), (2, True), (30, False)], 10, [10, 20, 30]),
        ([(1, True), (2, True), (20, False)], 10, [1, 10, 20]),  # step 1 is always printed
        ([(1, True), (2, True), (19, False)], 10, [17, 18, 19]),  # ten do not lead there
        ([(1, True), (5, False)], 10, [4, 5]),
        ([(1, True), (2, True), (3, True), (3, False)], 10, None),  # no room before it
        ([(10, False), (11, True), (30, False)], 10, [10, 20, 30]),
        ([(10, False), (11, True), (25, False)], 10, None),  # each line is one step, as counted
        ([(10, False), (20, False), (21, True), (22, True)], None, [10, 20, 30, 40]),
        ([(10, False), (20, False), (21, True), (22, True)], 5, [10, 20, 25, 30]),
        ([(10, False), (11, True)], None, None),
        ([(10, False), (11, True), (12, True)], 5, [10, 15, 20]),
        ([(10, False), (11, True), (30, False), (31, True)], None, [10, 20, 30, 40]),
        ([(10, False), (20, False), (25, False), (26, True)], None, None),  # no interval of most
        ([(1, True), (2, True)], 10, None),
        ([(10, False), (20, False)], 10, None),
    ],
)
def test_counted_steps_stand_whole_intervals_from_printed_ones(
    steps: Sequence[tuple[int, bool]], interval: int | None, found: list[int] | None
) -> None:
    assert placed(mixed(*steps), interval) == found


def test_counted_steps_of_each_rank_stand_beside_its_own() -> None:
    rows = mixed((1, True), (30, False), rank="0")
    for row in mixed((1, True), (50, False), rank="1"):
        rows.append(row | {"form": FORMS[0]})
    assert placed(rows, 10) == [20, 30, 40, 50]


def test_counted_steps_stay_below_the_limit() -> None:
    top = step_alignment.STEP_LIMIT - 5
    assert placed(mixed((top, False), (1, True), (2, True)), 10) == [top, top + 2, top + 4]


@pytest.mark.parametrize("form", [Form(MICRO_STEPS), Form(None, every_step=True)])
def test_a_counter_of_its_own_is_not_placed_so(form: Form) -> None:
    rows = StepRows(None, [form])
    for step, is_counted in ((1, True), (320, None)):
        said = {"line": step, "rank": None, "step": step, "extra": None, "counted": is_counted}
        rows.append({**said, "form": form})
    assert placed(rows, 10) is None
