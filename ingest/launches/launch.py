"""Launches, the starts of training processes: progress, and foreign rows."""

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
"""Stamp of a row without one."""

MAX_STEP: Final = 2**63 - 1
"""The largest step; counting stops there."""
MAX_COUNTED_ROWS: Final = 2**20
"""Upper limit of rows that are counted together."""

MAX_ROWS_BEFORE_COUNTER: Final = 64
"""Maximum number of step lines, of all ranks, printed before the counter's line."""

MAX_RANK_SKEW: Final = timedelta(seconds=1)
"""Ranks in step stamp a step at most this far apart, also with whole seconds."""

MAX_COPY_DELAY: Final = timedelta(minutes=1)
"""Copies of one step further apart than this belong to two runs."""

MICROSECONDS_PER_SECOND: Final = 1_000_000
"""A second in microseconds, the unit of stamps."""

LOSS_PRINT_TOLERANCE: Final = 1e-3
"""Two prints of one loss differ by less, absolutely or relatively."""


@dataclass(slots=True)
class FormProgress:
    """Progress of the lines of one form within a launch.

    own_counter: True if the form counts something other than training steps
    low_step, top_step: lowest and highest step
    top_stamp, top_clock: stamp and time since the start [s] of the highest step
    last_counted_steps: last step by rank
    """

    own_counter: bool = False
    low_step: int = MAX_STEP
    top_step: int = -1
    top_stamp: datetime | None = None
    top_clock: float | None = None
    last_counted_steps: dict[str | None, int] = field(default_factory=dict)


@dataclass(slots=True)
class Launch:
    """Start of a training process, as the log describes it."""

    first_line: int
    last_line: int = 0
    first_text: str = ""
    first_step_text: str = ""
    last_step_text: str = ""
    rows: StepRows = field(default_factory=StepRows)
    facts: list[dict[str, Any]] = field(default_factory=list)
    companion_facts: list[dict[str, Any]] = field(default_factory=list)
    events: EventRows = field(default_factory=EventRows)
    first_stamp: datetime | None = None  # of the lines before the first step
    started_at: datetime | None = None  # of the first step; after closing, of the first line
    step_unit: str | None = None  # if not the format's
    begun: bool = False  # a line that begins a launch precedes the first step
    writer: str | None = None  # the name before lines, if a log has several
    progress: dict[Any, FormProgress] = field(default_factory=dict)
    settled: int = 0
    last_steps: dict[str | None, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    ends: dict[str | None, int] = field(default_factory=dict)
    """Line by which each rank said that its training is over."""

    @property
    def stated(self) -> list[dict[str, Any]]:
        """Facts of the primary format, plus companions' facts that the primary omits.

        DeepSpeed's dump under Megatron contains the batch size at the start of a ramp-up.
        """
        stated_names = {fact["name"] for fact in self.facts}
        return [*self.facts, *(f for f in self.companion_facts if f["name"] not in stated_names)]

    def last_value(self, name: str) -> str | None:
        """Return the current value of a fact."""
        return next((f["value"] for f in reversed(self.stated) if f["name"] == name), None)

    def samples_per_step(self, accumulation: int) -> float | None:
        """Return the samples of a step by the engine's timer.

        accumulation: micro-steps per step
        """
        return samples_per_step(self.rows, accumulation)

    def next_counted_step(self, step_line: StepLine, rank: str | None) -> int:
        """Return the step of a line that prints none.

        Normally one log interval after the rank's last step. Forms printed at every step are
        counted one by one. The interval of a companion counts its own lines only.
        """
        self.settle()
        if step_line.every_step:
            return self.progress_of({"form": step_line}).last_counted_steps.get(rank, 0) + 1
        return min(self.last_steps.get(rank, 0) + (self.interval or 1), MAX_STEP)

    def counts(self, ranks: Sequence[str | None]) -> bool:
        """Return whether rows of these ranks, and all before, have one form and one rank.

        Also required: counting from the last step leaves room for more rows than a block has.
        """
        self.settle()
        room = (
            max(self.last_steps.values(), default=0) + MAX_COUNTED_ROWS * (self.interval or 1)
            < MAX_STEP
        )
        return self.has_one_form and len(ranks) == 1 and [*self.last_steps] == [*ranks] and room

    def add_counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add rows without steps, for which `counts` is true; return the rows with steps."""
        rank, interval = next(iter(self.last_steps)), self.interval
        steps = self.last_steps[rank] + (interval or 1) * np.arange(1, frame.height + 1)
        frame = frame.with_columns(step=steps, counted=pl.lit(not interval))
        self.rows.extend(frame)
        self.last_steps[rank], self.settled = int(steps[-1]), len(self.rows)
        return frame

    @property
    def interval(self) -> int | None:
        """Steps between two lines of the primary, as the log has stated so far."""
        intervals = [fact["value"] for fact in self.facts if fact["name"] == "log_interval"]
        return parse_optional(parse_integer, intervals[-1]) or None if intervals else None

    def progress_of(self, row: Mapping[str, Any]) -> FormProgress:
        """Return the progress of the row's form; a counter may restart with each epoch."""
        key = _series(row)
        if key not in self.progress:
            self.progress[key] = FormProgress(own_counter=row["form"].counts is not None)
        return self.progress[key]

    def known_progress(self, step_line: StepLine, epoch: int | None) -> FormProgress | None:
        """Return the progress of a form in an epoch, or None before its first step."""
        progress = self.progress.get((id(step_line), epoch if step_line.counts else None))
        return progress if progress is not None and progress.top_step >= 0 else None

    @property
    def has_one_form(self) -> bool:
        """True if all rows so far have one form."""
        return sum(progress.top_step >= 0 for progress in self.progress.values()) == 1

    @property
    def low_step(self) -> int:
        """The lowest training step so far, of any form."""
        plain = (
            progress.low_step for progress in self.progress.values() if not progress.own_counter
        )
        return min(plain, default=-1)

    def settle(self) -> None:
        """Update each rank's last step from the rows since the last call; called rarely."""
        before, self.settled = self.settled, len(self.rows)
        for row in self.rows.behind(before):
            rank, progress = row["rank"], self.progress_of(row)
            self.last_steps[rank] = progress.last_counted_steps[rank] = row["step"]

    def remove_foreign_rows(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Remove and return the last rows if another process printed them.

        row: the counter's row that restarts. The line of a counter, such as the engine's timer,
        follows the line of its step, or comes some steps later. So where a counter restarts, lines
        before it belong to the new process too, though their steps go on as they do after a
        checkpoint. Those lines are closer in time to the restarted row than to the counter's last
        line.
        """
        if not row["form"].counts:
            return []
        last = list(self.rows.behind(max(0, len(self.rows) - MAX_ROWS_BEFORE_COUNTER)))
        counted = (n for n, earlier in reversed([*enumerate(last)]) if earlier["form"].counts)
        counter = next(counted, None)
        if counter is None or None in (row["logged_at"], *(x["logged_at"] for x in last[counter:])):
            return []
        before, now = last[counter]["logged_at"], row["logged_at"]
        nearer = (now - x["logged_at"] < x["logged_at"] - before for x in last[counter + 1 :])
        foreign = last[
            counter + 1 + next((n for n, is_it in enumerate(nearer) if is_it), len(last)) :
        ]
        if foreign:
            self.rows, self.last_line = self.rows.without_last(len(foreign)), foreign[0]["line"] - 1
        return foreign

    def forget(self) -> None:
        """Drop the state that assigns lines to the launch, once the launch is over."""
        self.progress, self.last_steps = {}, {}

    @property
    def run_id(self) -> str:
        """Id of the run, computed from its beginning.

        The id stays when the file grows or moves.
        """
        start = f"{self.first_text}\n{self.first_step_text}"
        return hashlib.sha256(start.encode()).hexdigest()[:12]


def begins_new_launch(launch: Launch, row: dict[str, Any], *, single_writer: bool) -> bool:
    """Return whether the row belongs to another process than the rows before.

    Ranks print copies of one step, perhaps late and out of order, but with the stamp of the step.
    So another process trained a step that is stamped after a later step, or well before the launch
    began. The same applies to a later step at an earlier time since the start, and to one step at
    two such times. Without stamps, one rank neither goes back to a step nor prints a step with
    another loss. Only the last step may be repeated: by a tee, or by another node with the same
    rank names. Lines of different kinds, such as the engine's step and its timer, may share a step,
    but never with different losses. A process prints a single number of planned steps. After its
    end it trains no step, though others' last steps may still follow: a first step there belongs to
    another process.

    single_writer: all rows have one rank, named by the file
    """
    progress, step = launch.progress_of(row), row.get("step")
    stamp, top = row["logged_at"], progress.top_stamp
    if any(rule(launch, row) for rule in (_clock_went_back, _planned_otherwise, _behind_its_end)):
        return True
    if step is None:
        return False
    if stamp is None or top is None or launch.started_at is None:
        same_step = list(launch.rows.at(row["rank"], step))
        before = next((other for other in same_step if _series(other) == _series(row)), None)
        if before is None:
            losses = (other["loss"] for other in same_step if other.get("loss") is not None)
            return _unlike(next(losses, None), row.get("loss"))
        back = step < progress.top_step and (single_writer or row["rank"] is not None)
        return back or _loss(before) != _loss(row)
    if step < progress.top_step:
        return bool(stamp > top + MAX_RANK_SKEW or stamp < launch.started_at - MAX_COPY_DELAY)
    return bool(step == progress.top_step and abs(stamp - top) > MAX_COPY_DELAY)


def _series(row: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the key of rows with rising steps: the form, plus the epoch for counters."""
    form = row["form"]
    return id(form), row.get("epoch") if form.counts else None


def _clock_went_back(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Return whether the time since the start belongs to another process."""
    progress, clock, step = launch.progress_of(row), row.get("since_start_s"), row.get("step")
    if clock is None:
        return False
    if progress.top_clock is not None and (step is None or step > progress.top_step):
        return bool(clock < progress.top_clock - MAX_RANK_SKEW.total_seconds())
    same_step = () if step is None else launch.rows.at(row["rank"], step)
    clocks = (other.get("since_start_s") for other in same_step if _series(other) == _series(row))
    first = next((first for first in clocks if first is not None), None)
    return first is not None and abs(clock - first) > MAX_COPY_DELAY.total_seconds()


def _planned_otherwise(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Return whether the number of planned steps changed.

    A number that the step has passed is damaged, and changes nothing.
    """
    planned = row.get("says", {}).get("total_steps")
    if planned is None or launch.said.get("total_steps", planned) == planned:
        return False
    total, step = parse_optional(parse_integer, planned), row.get("step")
    return total is not None and (step is None or step <= total)


def _behind_its_end(launch: Launch, row: Mapping[str, Any]) -> bool:
    """Return whether the row follows its rank's end.

    Applies to rows without a step, and to first steps without a stamp: a stamp is better evidence.
    """
    if row["rank"] not in launch.ends:
        return False
    step = row.get("step")
    first = row["logged_at"] is None and not row["form"].counts
    return step is None or (first and step <= launch.low_step)


def _unlike(first_loss: float | None, second_loss: float | None) -> bool:
    """Return whether two losses cannot come from one training; stages print -1."""
    if first_loss is None or second_loss is None or min(first_loss, second_loss) < 0:
        return False
    return abs(first_loss - second_loss) > LOSS_PRINT_TOLERANCE * (1 + abs(first_loss))


def _loss(row: Mapping[str, Any]) -> str:
    return str(row.get("loss"))


class FormRows(NamedTuple):
    """Rows of one form, in their order.

    steps: of each row, or NO_STEP
    stamps: microseconds since 1970, or NO_STAMP
    clocks: seconds since the start, or nan
    ranks: returns the ranks of the first n rows
    earlier: returns the earlier values of the first n rows; None disables the lookup
    """

    steps: Ints
    stamps: Ints
    clocks: Floats
    ranks: Callable[[int], Sequence[str | None]]
    earlier: Callable[[int], EarlierValues] | None = None


def count_same_process_rows(launch: Launch, progress: FormProgress | None, rows: FormRows) -> int:
    """Return how many of the first rows certainly belong to the launch's process.

    The rules are those of `begins_new_launch`: stamps or, without stamps, earlier prints of the
    step (looked up for steps that are not beyond all others), and the time since the start.
    Counting ends at the first row unlike the first one: with a stamp where the first has none, or
    with a printed step where the first one's step is counted, or vice versa.
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
    """Return True for rows without stamps that another process printed.

    Without a lookup, also for rows that another process may have printed.
    """
    higher = rows.steps > tops
    if higher.all() and launch.has_one_form:  # as in most logs: no step is repeated or goes back
        return ~higher
    if rows.earlier is None:
        return ~higher if launch.has_one_form else np.ones(len(higher), bool)
    earlier = rows.earlier(len(higher))
    first_loss, loss = earlier.first_loss, earlier.loss
    with np.errstate(invalid="ignore"):  # for infinite losses
        unlike = np.abs(first_loss - loss) > LOSS_PRINT_TOLERANCE * (1 + np.abs(first_loss))
    unlike &= np.minimum(first_loss, loss) >= 0
    back = earlier.has_known_rank & (rows.steps < tops)
    return np.where(earlier.has_earlier_row, back | ~earlier.has_same_first_loss, unlike)


def _stamped_by_others(
    top_stamp: datetime, started_at: datetime, rows: FormRows, tops: Ints
) -> Bools:
    """Return True for rows with stamps of another process."""
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
    """Return True for rows with another process's time since the start.

    Same rules as _printed_by_others. After a step without such a time, a later step cannot be
    compared.
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
    """Return True for rows whose time since the start goes back although steps rise."""
    top_clock = np.nan if progress.top_clock is None else progress.top_clock
    return np.asarray(
        rows.clocks < np.append(top_clock, rows.clocks)[:-1] - MAX_RANK_SKEW.total_seconds()
    )


def _at_top(higher: Bools, first: float, values: NDArray[Any]) -> NDArray[Any]:
    """Return for each row the value at the highest step before it.

    first: the value before all rows
    """
    top_index = np.maximum.accumulate(np.where(higher, np.arange(len(higher)), -1))
    before = np.concatenate([[-1], top_index[:-1]])
    return np.where(before < 0, first, values[before])


def _before_first(odd: Bools) -> int:
    return int(np.argmax(odd)) if odd.any() else len(odd)


def count_rows_without_facts(
    launch: Launch, kinds: Ints, facts_of_kind: Callable[[int], Iterable[tuple[str, str]]]
) -> int:
    """Return how many of the first rows state no new fact.

    kinds: of each row
    facts_of_kind: returns the facts of a kind, as names and values
    """
    count = len(kinds)
    for kind in distinct_integers(kinds).tolist():
        if any(launch.said.get(name) != value for name, value in facts_of_kind(kind)):
            count = min(count, int(np.argmax(kinds == kind)))
    return count


def advance_progress(progress: FormProgress | None, rows: FormRows) -> None:
    """Advance to the highest step of the rows, with its first stamp and clock."""
    assert progress is not None  # noqa: S101 - of a form that has rows
    progress.low_step = min(progress.low_step, int(rows.steps.min()))
    index = int(np.argmax(rows.steps))
    if rows.steps[index] > progress.top_step:
        stamp, clock = rows.stamps[index], rows.clocks[index]
        progress.top_step = int(rows.steps[index])
        progress.top_stamp = None if stamp == NO_STAMP else np.datetime64(int(stamp), "us").item()
        progress.top_clock = None if np.isnan(clock) else float(clock)


def _microseconds(stamp: datetime) -> int:
    return int(np.datetime64(stamp, "us").astype(np.int64))
