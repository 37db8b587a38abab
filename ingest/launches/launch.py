"""One start of a training process: how far it has come, and which rows are of another one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core.arrays import Bools, Floats, Ints, distinct_integers
from ..core.numbers import parse_integer, parse_optional
from ..formats.spec import StepLine
from .duplicate_steps import EarlierValues
from .event_rows import EventRows
from .micro_steps import samples_per_step
from .step_rows import NO_STEP, StepRows

NO_STAMP: Final = -(2**63)
"""Stands for the stamp of a row without one."""

MAX_STEP: Final = 2**63 - 1
"""The largest step; counting on from it stays there."""
MAX_COUNTED_ROWS: Final = 2**20
"""Rows that are counted together are fewer than this."""

MAX_ROWS_BEFORE_COUNTER: Final = 64
"""Lines of steps, of all ranks, that stand before the counter's at most."""

MAX_RANK_SKEW: Final = timedelta(seconds=1)
"""Ranks that are in step stamp a step at most so far apart, also in whole seconds."""

MAX_COPY_DELAY: Final = timedelta(minutes=1)
"""Copies of one step further apart than this are of two runs."""

MICROSECONDS_PER_SECOND: Final = 1_000_000
"""A second in microseconds, the unit of stamps."""

LOSS_PRINT_TOLERANCE: Final = 1e-3
"""Two prints of one loss differ by less, absolutely or relatively."""


@dataclass(slots=True)
class FormProgress:
    """How far the lines of one form have come in a launch.

    own_counter: they are not those of the training.
    """

    own_counter: bool = False
    low_step: int = MAX_STEP
    top_step: int = -1
    top_stamp: datetime | None = None
    top_clock: float | None = None
    last_counted_steps: dict[str | None, int] = field(default_factory=dict)


@dataclass(slots=True)
class Launch:
    """One start of a training process, as far as the log tells."""

    first_line: int
    last_line: int = 0
    first_text: str = ""
    first_step_text: str = ""
    last_step_text: str = ""
    rows: StepRows = field(default_factory=StepRows)
    facts: list[dict[str, Any]] = field(default_factory=list)
    companion_facts: list[dict[str, Any]] = field(default_factory=list)
    events: EventRows = field(default_factory=EventRows)
    first_stamp: datetime | None = None  # of its lines before the first step
    started_at: datetime | None = None  # of its first step, in `_close` of its first line
    step_unit: str | None = None  # where it is not the format's
    writer: str | None = None  # the name before its lines, where others have other names
    progress: dict[Any, FormProgress] = field(default_factory=dict)
    settled: int = 0
    last_steps: dict[str | None, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    ends: dict[str | None, int] = field(default_factory=dict)
    """The line by which each rank has said that its training is over."""

    @property
    def stated(self) -> list[dict[str, Any]]:
        """Facts of the primary format; those of a companion only where it says nothing.

        DeepSpeed's dump under Megatron holds the batch size of the start of a ramp-up.
        """
        said = {fact["name"] for fact in self.facts}
        return [*self.facts, *(f for f in self.companion_facts if f["name"] not in said)]

    def last_value(self, name: str) -> str | None:
        """The value of a fact that holds so far."""
        return next((f["value"] for f in reversed(self.stated) if f["name"] == name), None)

    def samples_per_step(self, accumulation: int) -> float | None:
        """Samples of a step by the engine's timer, where each step has so many micro-steps."""
        return samples_per_step(self.rows, accumulation)

    def next_counted_step(self, step_line: StepLine, rank: str | None) -> int:
        """The step of a line that prints none: one log interval behind the rank's last.

        Forms of each step are counted one by one. The interval of a companion is that of its own
        lines.
        """
        self.settle()
        if step_line.every_step:
            return self.progress_of({"form": step_line}).last_counted_steps.get(rank, 0) + 1
        return min(self.last_steps.get(rank, 0) + (self.interval or 1), MAX_STEP)

    def counts(self, ranks: Sequence[str | None]) -> bool:
        """Whether rows of these ranks, and all before them, are of one form and one rank.

        And count on from a step that leaves room for more rows than a block has.
        """
        self.settle()
        room = (
            max(self.last_steps.values(), default=0) + MAX_COUNTED_ROWS * (self.interval or 1)
            < MAX_STEP
        )
        return self.has_one_form and len(ranks) == 1 and [*self.last_steps] == [*ranks] and room

    def add_counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add rows without a step, of which `counts` holds; the rows with their steps."""
        rank, interval = next(iter(self.last_steps)), self.interval
        steps = self.last_steps[rank] + (interval or 1) * np.arange(1, frame.height + 1)
        frame = frame.with_columns(step=steps, counted=pl.lit(not interval))
        self.rows.extend(frame)
        self.last_steps[rank], self.settled = int(steps[-1]), len(self.rows)
        return frame

    @property
    def interval(self) -> int | None:
        """Steps between two lines of the primary, as the log states them so far."""
        said = [fact["value"] for fact in self.facts if fact["name"] == "log_interval"]
        return parse_optional(parse_integer, said[-1]) or None if said else None

    def progress_of(self, row: Mapping[str, Any]) -> FormProgress:
        """How far the row's form has come; a counter of its own may start anew with an epoch."""
        key = _series(row)
        if key not in self.progress:
            self.progress[key] = FormProgress(own_counter=row["form"].counts is not None)
        return self.progress[key]

    def known_progress(self, step_line: StepLine, epoch: int | None) -> FormProgress | None:
        """As `progress_of`, of a form in that epoch; None where it has printed no step."""
        found = self.progress.get((id(step_line), epoch if step_line.counts else None))
        return found if found is not None and found.top_step >= 0 else None

    @property
    def has_one_form(self) -> bool:
        """Whether all rows so far are of one form."""
        return sum(progress.top_step >= 0 for progress in self.progress.values()) == 1

    @property
    def low_step(self) -> int:
        """The lowest step of the training so far, by whichever form."""
        plain = (one.low_step for one in self.progress.values() if not one.own_counter)
        return min(plain, default=-1)

    def settle(self) -> None:
        """Bring each rank's last step up to the last row; it is seldom asked for."""
        before, self.settled = self.settled, len(self.rows)
        for row in self.rows.behind(before):
            rank, progress = row["rank"], self.progress_of(row)
            self.last_steps[rank] = progress.last_counted_steps[rank] = row["step"]

    def remove_foreign_rows(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The last rows, none of this launch then, where another process has printed them.

        row: with which it starts again. A counter of its own, as the engine's timer has, is printed
        with the line of the step, or some steps behind it. So where that starts again, the lines
        before it are of its process too, though the step goes on, as it does behind a checkpoint:
        those that stand nearer to it in time than to the counter's last line.
        """
        if not row["form"].counts:
            return []
        last = list(self.rows.behind(max(0, len(self.rows) - MAX_ROWS_BEFORE_COUNTER)))
        counted = (at for at, one in reversed([*enumerate(last)]) if one["form"].counts)
        at = next(counted, None)
        if at is None or None in (row["logged_at"], *(one["logged_at"] for one in last[at:])):
            return []
        before, now = last[at]["logged_at"], row["logged_at"]
        nearer = (now - one["logged_at"] < one["logged_at"] - before for one in last[at + 1 :])
        mine = last[at + 1 + next((n for n, is_it in enumerate(nearer) if is_it), len(last)) :]
        if mine:
            self.rows, self.last_line = self.rows.without_last(len(mine)), mine[0]["line"] - 1
        return mine

    def forget(self) -> None:
        """The launch is over: what tells whether a line is still of it is not needed any more."""
        self.progress, self.last_steps = {}, {}

    @property
    def run_id(self) -> str:
        """The run's id. It stays when the file grows or moves: only its beginning counts."""
        start = f"{self.first_text}\n{self.first_step_text}"
        return hashlib.sha256(start.encode()).hexdigest()[:12]


def begins_new_launch(launch: Launch, row: dict[str, Any], *, single_writer: bool) -> bool:
    """Whether the row is of another process than those before.

    Ranks print copies of one step, perhaps late and out of order, but each stamps them when it
    ran: so a step stamped after a later step, or well before the launch began, was trained by
    another process. So was a later step at an earlier time since the start, or one step at two such
    times. Without stamps, one rank does not go back to a step, nor print one with another loss; the
    last one may come again, of a tee or of another node whose ranks are called alike. Lines of
    another kind, such as the engine's step and its timer, speak of one step side by side, but not
    of another loss. A process prints one number of steps that it is to train. Behind its end it
    trains none, though others' last ones may still come: its first step there is another one's.
    single_writer: all rows are of one rank, which its file's name says.
    """
    progress, step = launch.progress_of(row), row.get("step")
    stamp, top = row["logged_at"], progress.top_stamp
    if any(rule(launch, row) for rule in (_clock_went_back, _planned_otherwise, _behind_its_end)):
        return True
    if step is None:
        return False
    if stamp is None or top is None or launch.started_at is None:
        there = list(launch.rows.at(row["rank"], step))
        before = next((one for one in there if _series(one) == _series(row)), None)
        if before is None:
            losses = (one["loss"] for one in there if one.get("loss") is not None)
            return _unlike(next(losses, None), row.get("loss"))
        back = step < progress.top_step and (single_writer or row["rank"] is not None)
        return back or _loss(before) != _loss(row)
    if step < progress.top_step:
        return bool(stamp > top + MAX_RANK_SKEW or stamp < launch.started_at - MAX_COPY_DELAY)
    return bool(step == progress.top_step and abs(stamp - top) > MAX_COPY_DELAY)


def _series(row: Mapping[str, Any]) -> tuple[int, int | None]:
    """The rows whose steps go up together: of one form, with a counter of its own of one epoch."""
    form = row["form"]
    return id(form), row.get("epoch") if form.counts else None


def _clock_went_back(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Whether the time since the start is not of the process that printed the steps before."""
    progress, clock, step = launch.progress_of(row), row.get("since_start_s"), row.get("step")
    if clock is None:
        return False
    if progress.top_clock is not None and (step is None or step > progress.top_step):
        return bool(clock < progress.top_clock - MAX_RANK_SKEW.total_seconds())
    there = () if step is None else launch.rows.at(row["rank"], step)
    clocks = (one.get("since_start_s") for one in there if _series(one) == _series(row))
    first = next((first for first in clocks if first is not None), None)
    return first is not None and abs(clock - first) > MAX_COPY_DELAY.total_seconds()


def _planned_otherwise(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Whether another number of steps is to be trained; one that is passed already is damaged."""
    planned = row.get("says", {}).get("total_steps")
    if planned is None or launch.said.get("total_steps", planned) == planned:
        return False
    total, step = parse_optional(parse_integer, planned), row.get("step")
    return total is not None and (step is None or step <= total)


def _behind_its_end(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Whether the row's process has ended: none of its steps is to be counted on, or comes first.

    A stamp tells more.
    """
    if row["rank"] not in launch.ends:
        return False
    step = row.get("step")
    first = row["logged_at"] is None and not row["form"].counts
    return step is None or (first and step <= launch.low_step)


def _unlike(one: float | None, other: float | None) -> bool:
    """Whether two lines of different kinds print losses of two trainings; stages print -1."""
    if one is None or other is None or min(one, other) < 0:
        return False
    return abs(one - other) > LOSS_PRINT_TOLERANCE * (1 + abs(one))


def _loss(row: Mapping[str, Any]) -> str:
    return str(row.get("loss"))


class FormRows(NamedTuple):
    """Rows of one form, in their order.

    steps: of each row, or NO_STEP
    stamps: microseconds since 1970, or NO_STAMP
    clocks: seconds since the start, or nan
    ranks: which ranks the first rows are of, so many
    earlier: what was printed before the first rows, so many; None where that is not looked up
    """

    steps: Ints
    stamps: Ints
    clocks: Floats
    ranks: Callable[[int], Sequence[str | None]]
    earlier: Callable[[int], EarlierValues] | None = None


def count_same_process_rows(launch: Launch, progress: FormProgress | None, rows: FormRows) -> int:
    """How many of the first rows are of the launch's process for certain.

    The same as `begins_new_launch` says of each row: by its stamp, else by what was printed of its
    step before (looked up where a step is not beyond all others), and by its time since the start.
    Only rows like the first one are looked at, up to one that has a stamp where that has none, or a
    printed step where that one's is counted, or the other way round.
    """
    if progress is None:
        return 0
    bare, counted = rows.stamps == NO_STAMP, rows.steps == NO_STEP
    others = (bare != bare[0]) | (counted != counted[0])
    count = int(np.argmax(others)) or len(others)
    rows = rows._replace(
        steps=rows.steps[:count], stamps=rows.stamps[:count], clocks=rows.clocks[:count]
    )
    if counted[0]:
        if launch.ends or not launch.counts(rows.ranks(count)):
            return 0
        return _before_first(_late(progress, rows))
    tops = np.maximum.accumulate(np.concatenate([[progress.top_step], rows.steps]))[:-1]
    if bare[0]:
        odd = _printed_by_others(launch, rows, tops)
        odd = odd | (rows.steps <= launch.low_step) if launch.ends else odd
    elif progress.top_stamp is None or launch.started_at is None:
        return 0
    else:
        odd = _stamped_by_others(progress.top_stamp, launch.started_at, rows, tops)
    if progress.top_clock is not None or not np.isnan(rows.clocks).all():
        odd = odd | _clocked_by_others(progress, rows, rows.steps > tops)
    return _before_first(odd)


def _printed_by_others(launch: Launch, rows: FormRows, tops: Ints) -> Bools:
    """Whether rows without stamps are of another process, or may be as nothing is looked up."""
    higher = rows.steps > tops
    if (
        higher.all() and launch.has_one_form
    ):  # as in most logs: none is an earlier step, or comes twice
        return ~higher
    if rows.earlier is None:
        return ~higher if launch.has_one_form else np.ones(len(higher), bool)
    earlier = rows.earlier(len(higher))
    one, other = earlier.first_loss, earlier.loss
    with np.errstate(invalid="ignore"):  # of infinite losses
        unlike = np.abs(one - other) > LOSS_PRINT_TOLERANCE * (1 + np.abs(one))
    unlike &= np.minimum(one, other) >= 0
    back = earlier.has_known_rank & (rows.steps < tops)
    return np.where(earlier.has_earlier_row, back | ~earlier.has_same_first_loss, unlike)


def _stamped_by_others(
    top_stamp: datetime, started_at: datetime, rows: FormRows, tops: Ints
) -> Bools:
    """Whether rows with stamps are of another process."""
    steps, stamps = rows.steps, rows.stamps
    higher = steps > tops
    if higher.all():
        return ~higher
    top = _at_top(higher, _microseconds(top_stamp), stamps)
    skew, copies = (
        MAX_RANK_SKEW.total_seconds() * MICROSECONDS_PER_SECOND,
        MAX_COPY_DELAY.total_seconds() * MICROSECONDS_PER_SECOND,
    )
    behind = (stamps > top + skew) | (stamps < _microseconds(started_at) - copies)
    twice = (steps == tops) & (np.abs(stamps - top) > copies)
    return np.asarray(((steps < tops) & behind) | twice)


def _clocked_by_others(progress: FormProgress, rows: FormRows, higher: Bools) -> Bools:
    """Whether the rows' times since the start are of another process; see _printed_by_others.

    Behind a step without such a time there is none to hold a later step against.
    """
    if higher.all():
        return _late(progress, rows)
    if rows.earlier is None:
        return ~higher | _late(progress, rows)
    top_clock = np.nan if progress.top_clock is None else progress.top_clock
    late = rows.clocks < _at_top(higher, top_clock, rows.clocks) - MAX_RANK_SKEW.total_seconds()
    apart = (
        np.abs(rows.clocks - rows.earlier(len(higher)).first_clock) > MAX_COPY_DELAY.total_seconds()
    )
    return np.where(higher, late, apart)


def _late(progress: FormProgress, rows: FormRows) -> Bools:
    """Whether rows whose steps go up have a time since the start that goes back."""
    top_clock = np.nan if progress.top_clock is None else progress.top_clock
    return np.asarray(
        rows.clocks < np.append(top_clock, rows.clocks)[:-1] - MAX_RANK_SKEW.total_seconds()
    )


def _at_top(higher: Bools, first: float, values: NDArray[Any]) -> NDArray[Any]:
    """For each row the value at the highest step before it; first: that before all rows."""
    at = np.maximum.accumulate(np.where(higher, np.arange(len(higher)), -1))
    before = np.concatenate([[-1], at[:-1]])
    return np.where(before < 0, first, values[before])


def _before_first(odd: Bools) -> int:
    return int(np.argmax(odd)) if odd.any() else len(odd)


def count_rows_without_facts(
    launch: Launch, kinds: Ints, facts_of_kind: Callable[[int], Iterable[tuple[str, str]]]
) -> int:
    """How many rows, each of a kind, state no fact anew; facts_of_kind: the facts of a kind."""
    count = len(kinds)
    for kind in distinct_integers(kinds).tolist():
        if any(launch.said.get(name) != value for name, value in facts_of_kind(kind)):
            count = min(count, int(np.argmax(kinds == kind)))
    return count


def advance_progress(progress: FormProgress | None, rows: FormRows) -> None:
    """Go on to the highest step of the rows, and when that was first printed."""
    assert progress is not None  # noqa: S101 - of a form that has rows
    progress.low_step = min(progress.low_step, int(rows.steps.min()))
    place = int(np.argmax(rows.steps))
    if rows.steps[place] > progress.top_step:
        stamp, clock = rows.stamps[place], rows.clocks[place]
        progress.top_step = int(rows.steps[place])
        progress.top_stamp = None if stamp == NO_STAMP else np.datetime64(int(stamp), "us").item()
        progress.top_clock = None if np.isnan(clock) else float(clock)


def _microseconds(stamp: datetime) -> int:
    return int(np.datetime64(stamp, "us").astype(np.int64))
