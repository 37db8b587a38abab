"""Step lines with a counter of their own, brought to the steps of the training.

DeepSpeed's throughput timer counts from the start of its process, and until 0.7 it counts
micro-steps, while the engine's `step=` goes on after a resume. Both print right after one another
at the end of a step, so a timer's line behind the engine's tells both counts of one moment:

    count of the timer = steps of the training x micro-steps per step + offset

Where too little is known to solve it, a line has no step: none is better than a wrong one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ..core.arrays import Bools, Ints, column_values, integers_of
from ..formats.spec import MICRO_STEPS, last_digit_unit
from .row_chunks import Row
from .step_rows import EMPTY_LINE_VALUES, FORM_COLUMN, StepRows

WholeNumbers = NDArray[Any]
"""Whole numbers: of 64 bits, or of Python where they are large."""


@dataclass(slots=True)
class AlignedRows:
    """Rows with steps of the training, rows without, and the unit where it is not the format's."""

    rows: StepRows
    unplaced: list[Row] = field(default_factory=list)
    step_unit: str | None = None


def align_steps(rows: StepRows, accumulation: int) -> AlignedRows:
    """The rows of a launch, those that count by themselves brought to the steps of the others.

    accumulation: micro-steps of an optimizer step as the log states them, 0 where it does not.
    """
    relations, alone = _relations(rows, accumulation)
    as_printed = all(relation.as_printed for relation in relations.values())
    if as_printed and not (accumulation > 1 and _timed_alone(rows)):
        return AlignedRows(rows)
    if alone and not any(told.placed(relations)[1].any() for told in _told(rows)):
        return _micro_steps(rows)
    out = AlignedRows(rows.empty_copy())
    for frame, said, told in zip(
        rows.frames(), rows.frames(RATE_COLUMN, "step", "extra"), _told(rows), strict=True
    ):
        steps, there = told.placed(relations)
        several = told.of_several(relations)
        if accumulation > 1:
            several |= told.mine & said.select(has_micro_steps(1)).to_series().to_numpy()
        lone = np.flatnonzero(several & said[RATE_COLUMN].is_not_null().to_numpy())
        moved = [pl.Series("step", steps, pl.Int64), *(_set_aside(said, lone) if len(lone) else ())]
        _take(out, frame, moved, there)
    return out


def _set_aside(said: pl.DataFrame, lone: Ints) -> list[pl.Series]:
    """The rates without those of these rows, and what the rows say beside their columns with it."""
    rates, extras = said[RATE_COLUMN], said["extra"]
    each = zip(rates.gather(lone), extras.gather(lone), strict=True)
    beside = pl.Series([_beside(rate, extra) for rate, extra in each], dtype=pl.String)
    return [rates.scatter(lone, None), extras.scatter(lone, beside)]


def _take(out: AlignedRows, frame: pl.DataFrame, moved: Iterable[pl.Series], there: Bools) -> None:
    """The rows that are there with what has become of them; the others stay without a step."""
    placed = frame.with_columns(moved)
    if not there.all():
        placed = placed.filter(pl.Series(there))
        without = frame.filter(pl.Series(~there))
        out.unplaced += (EMPTY_LINE_VALUES | row for row in without.iter_rows(named=True))
    if placed.height:
        out.rows.extend(placed)


def steps_between_lines(rows: StepRows, end_events: Iterable[Mapping[str, Any]]) -> int | None:
    """Steps between two lines that print none and were counted one by one; null where unknown.

    The Trainer's console prints dicts at each `logging_steps`, and at the end how many steps there
    were: so many fit into it in one way only. rows: as in `align_steps`, `counted` where the step
    is a mere count; end_events: the events that tell of the end. The epoch has to grow with the
    count from the start, as it does not after a resume.
    """
    lasts = {event["step"] for event in end_events if event["step"]}
    if len(lasts) != 1 or not has_only_counted_steps(rows):
        return None
    last = lasts.pop()
    count = max(max(frame["step"]) for frame in rows.frames("step"))
    fitting = range(last // (count + 1) + 1, last // count + 1)
    return fitting[0] if len(fitting) == 1 and _grows_from_start(rows, count) else None


def steps_between_lines_by_epochs(
    rows: StepRows, dataset_samples: int, step_samples: int
) -> int | None:
    """Steps between two lines, by how far the epochs of a launch have come.

    As `steps_between_lines`, for a launch whose end does not show it. dataset_samples: of the data
    set, step_samples: of a step; null where they, or the epoch, leave several open. An epoch has as
    many steps as batches are in it, the last one left out or filled up.
    """
    if not has_only_counted_steps(rows) or dataset_samples < step_samples:
        return None
    last = rows[-1]
    epoch, count = json.loads(last["extra"] or "{}").get("epoch"), last["step"]
    if epoch is None or not _grows_from_start(rows, count):
        return None
    far, half = Decimal(epoch), last_digit_unit(Decimal(epoch)) / 2
    least = (far - half) * (dataset_samples // step_samples) / count
    most = (far + half) * (dataset_samples / Decimal(step_samples) + 1) / count
    fitting = range(math.ceil(least), math.floor(most) + 1)
    return fitting[0] if len(fitting) == 1 and fitting[0] > 0 else None


def place_counted_rows(rows: StepRows, step_interval: int | None) -> StepRows | None:
    """The rows of a launch of which some print their step, and some had to be counted.

    A dict of the Trainer has the step of its progress bar, where it has one: so the first one of an
    excerpt was counted as step 1, and the next one is of step 320. Counted rows stand as many
    intervals from the printed ones beside them as there are lines between: those behind one from
    it on, the first ones back from it. Where the interval does not lead from one to the next, a
    line counts as one step. interval: as the log states it, else that of most printed steps. None
    where rows stay as they are.
    """
    if not rows.has_columns("counted") or any(
        form.every_step or form.counts for form in rows.forms()
    ):
        return None
    printed = [frame["counted"].is_null() for frame in rows.frames("counted")]
    if all(each.all() for each in printed) or not any(each.any() for each in printed):
        return None
    counted = ~pl.concat(printed).to_numpy()
    frame = pl.concat(rows.frames("rank", "step"))
    before = frame["step"].to_numpy()
    steps, ranks = before.copy(), _numbered(frame["rank"], {})
    for mine in _alike(np.arange(len(steps)), ranks):
        steps[mine] = _placed_beside(steps[mine], counted[mine], step_interval)
    if (steps == before).all():
        return None
    out, done = rows.empty_copy(), 0
    for part in rows.frames():
        own = pl.Series("step", steps[done : done + part.height], pl.Int64)
        out.extend(part.with_columns(own))
        done += part.height
    return out


def _placed_beside(steps: Ints, counted: Bools, interval: int | None) -> Ints:
    """The steps of one rank's rows in their order, those that are counted placed anew."""
    known = np.flatnonzero(~counted)
    if not len(known):
        return steps
    apart, lines = np.diff(steps[known]), np.diff(known)
    even = Counter((apart[apart % lines == 0] // lines[apart % lines == 0]).tolist())
    each = interval or _most(even, len(lines)) or 1
    out = steps.copy()
    first, last = known[0], known[-1]
    if first < steps[first]:
        fits = first * each <= steps[first]
        out[:first] = steps[first] - (each if fits else 1) * np.arange(first, 0, -1)
        out[:first] = out[:first].clip(1)  # step 1 is printed whatever the interval is
    between = np.arange(first, last)
    at = known.searchsorted(between, "right") - 1
    strides = np.where(apart == each * lines, each, 1)
    out[first:last] = steps[known[at]] + strides[at] * (between - known[at])
    behind = np.arange(1, len(steps) - last)
    room = (STEP_LIMIT - 1 - int(steps[last])) // max(1, len(behind))
    out[last + 1 :] = steps[last] + min(each, room) * behind
    return out


def has_only_counted_steps(rows: StepRows) -> bool:
    """Whether no line prints its step, nor does the log say how many lie between two."""
    counts = (frame["counted"].fill_null(value=False).all() for frame in rows.frames("counted"))
    return len(rows) > 0 and rows.has_columns("counted") and all(counts)


def _grows_from_start(rows: StepRows, count: int) -> bool:
    epochs = [json.loads(row["extra"] or "{}").get("epoch") for row in (rows[0], rows[-1])]
    try:
        first, last = (Decimal(epoch) for epoch in epochs)
        return (
            abs(last - count * first)
            <= (count * last_digit_unit(first) + last_digit_unit(last)) / 2
        )
    except (TypeError, ArithmeticError, ValueError):
        return False


RATE_COLUMN: Final = "logged_samples_per_second"

CounterKey = tuple[str | None, str, int]
"""A counter: its rank, what it counts, and the epoch, with which one of micro-steps may start
anew."""
MAX_INT64_FACTOR: Final = 2**30
"""Counts below this, times each other, are 64 bits; larger ones are numbers of Python."""
STEP_LIMIT: Final = 2**63
"""Steps have to be below this, to fit into 64 bits."""
NO_NUMBERS: Final = np.empty(0, np.int64)


@dataclass(slots=True)
class _Relation:
    """How a counter relates to the steps of the training: step = (count - offset) / factor.

    It is found out by moments, rows that tell both a count and a step, in their order.

    factor: how many counts a step of the training has; 0 where that is not known
    offset: what is to be taken from a count first; None where that is not known
    least: the least of all counts
    moments: how many there were; last: count and step of the last one
    ratios, offsets: how often each factor, each offset was seen
    """

    factor: int
    least: int = STEP_LIMIT
    moments: int = 0
    ratios: Counter[int] = field(default_factory=Counter)
    last: tuple[WholeNumbers, WholeNumbers] = field(
        default_factory=lambda: (NO_NUMBERS, NO_NUMBERS)
    )
    offsets: Counter[int] = field(default_factory=Counter)
    offset: int | None = None

    @property
    def as_printed(self) -> bool:
        """Whether every count is the step of the training, as it mostly is from the start."""
        return self.factor == 1 and self.offset == 0 and self.least > 0

    def meet(self, counts: WholeNumbers, steps: WholeNumbers) -> None:
        """Count what moments say of the factor; counts: of the counter, steps: of the training."""
        self.moments += len(counts)
        counts, steps = np.concatenate([self.last, (counts, steps)], axis=1)
        self.last = counts[-1:], steps[-1:]
        more, grown = np.diff(counts), np.diff(steps)
        more, grown = more[grown > 0], grown[grown > 0]
        self.ratios.update(_often((more // grown)[more % grown == 0]))

    def compare(self, counts: WholeNumbers, steps: WholeNumbers) -> None:
        """Count what moments say of the offset, once the factor is known."""
        big = abs(self.factor) >= MAX_INT64_FACTOR
        self.offsets.update(_often(counts - self.factor * (steps.astype(object) if big else steps)))

    def placed(self, counts: WholeNumbers) -> tuple[Ints, Bools]:
        """Steps of the training, and where there is one.

        There is none in the middle of one, or where the relation is not known.
        """
        if self.offset is None or self.factor == 0:
            return np.zeros(len(counts), np.int64), np.zeros(len(counts), bool)
        if abs(self.factor) >= MAX_INT64_FACTOR or abs(self.offset) >= MAX_INT64_FACTOR**2:
            counts = counts.astype(object)
        ahead = counts - self.offset
        steps = ahead // self.factor
        there = (ahead % self.factor == 0) & (steps > 0) & (steps < STEP_LIMIT)
        return np.where(there, steps, 0).astype(np.int64), there


def _often(values: WholeNumbers) -> dict[int, int]:
    """How often each value is there."""
    found, times = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), times.tolist(), strict=True))


def _most(found: Counter[int], of: int) -> int | None:
    """The value of more than half; None where there is none."""
    value, times = next(iter(found.most_common(1)), (None, 0))
    return value if 2 * times > of else None


@dataclass(frozen=True, slots=True)
class _Told:
    """What rows tell of counters.

    mine: rows of a counter of their own; counters: these by their counter. steps: as printed;
    whole: the step of the training where `met`: where a row of the same rank has it right before.
    """

    mine: Bools
    counters: Mapping[CounterKey, Ints]
    steps: WholeNumbers
    whole: WholeNumbers
    met: Bools

    def moments(self) -> Iterator[tuple[CounterKey, WholeNumbers, WholeNumbers]]:
        """For each counter its counts and the steps of the training, of rows that tell both."""
        for key, rows in self.counters.items():
            both = rows[self.met[rows]]
            yield key, self.steps[both], self.whole[both]

    def placed(self, relations: Mapping[CounterKey, _Relation]) -> tuple[Ints, Bools]:
        """The steps of the training of all rows, and where there is one."""
        steps, there = self.steps.astype(np.int64), ~self.mine
        for key, rows in self.counters.items():
            steps[rows], there[rows] = relations[key].placed(self.steps[rows])
        return steps, there

    def of_several(self, relations: Mapping[CounterKey, _Relation]) -> Bools:
        """Rows of a counter of which a step of the training has several."""
        out = np.zeros(len(self.mine), bool)
        for key, rows in self.counters.items():
            out[rows] = relations[key].factor > 1
        return out


def _told(rows: StepRows) -> Iterator[_Told]:
    """`_Told` of all rows, piece by piece."""
    kinds = [form.counts or "" for form in rows.all_forms]
    first = np.array([kinds.index(name) for name in kinds])  # forms may share a counter
    ranks: dict[str | None, int] = {}
    last = np.empty((3, 0), np.int64)
    for frame in rows.frames(FORM_COLUMN, "rank", "step", "epoch"):
        kind = first[frame[FORM_COLUMN].to_numpy()]
        mine = np.array(list(map(bool, kinds)))[kind]
        micro = np.array([name == MICRO_STEPS for name in kinds])[kind]
        steps = frame["step"].to_numpy()
        rank = _numbered(frame["rank"], ranks)
        era = np.where(micro, column_values(frame["epoch"], 0), 0)
        both = np.concatenate([last, (rank, mine, steps)], axis=1)
        order = np.argsort(both[0], kind="stable")
        alike = both[0][order[1:]] == both[0][order[:-1]]
        before = np.full(len(order), -1)
        before[order[1:][alike]] = order[:-1][alike]
        before = before[last.shape[1] :]
        met, whole = (before >= 0) & (both[1][before] == 0), both[2][before]
        big = (
            len(steps)
            and max(abs(int(x)) for x in (both[2].min(), both[2].max())) >= MAX_INT64_FACTOR
        )
        names = list(ranks)
        counters = {
            (names[rank[at[0]]], kinds[kind[at[0]]], int(era[at[0]])): at
            for at in _alike(np.flatnonzero(mine), rank, kind, era)
        }
        if big:
            steps, whole = steps.astype(object), whole.astype(object)
        yield _Told(mine, counters, steps, whole, met)
        last = both[:, order[np.append(~alike, True)]]


def _numbered(names: pl.Series, numbers: dict[str | None, int]) -> Ints:
    """Each name as its number; new ones get the next."""
    if names.null_count() == len(names):  # as where no launcher tags the lines
        return np.full(len(names), numbers.setdefault(None, len(numbers)))
    found = names.to_arrow().cast(pa.large_string()).dictionary_encode()
    every = [*found.dictionary.to_pylist(), None]
    table = np.array([numbers.setdefault(name, len(numbers)) for name in every])
    return np.asarray(table[integers_of(found.indices, -1)])


def _alike(rows: Ints, *keys: Ints) -> Iterator[Ints]:
    """The rows of which all keys are alike, in their order."""
    code = np.zeros(len(rows), np.int64)
    for mine in (key[rows] for key in keys):
        if not (mine != mine[:1]).any():  # most logs have one rank, and one counter
            continue
        values, which = np.unique(mine, return_inverse=True)
        code = code * len(values) + which
    order = np.argsort(code, kind="stable")
    ends = np.flatnonzero(np.diff(code[order])) + 1
    yield from (rows[at] for at in np.split(order, ends) if len(at))


def _relations(rows: StepRows, accumulation: int) -> tuple[dict[CounterKey, _Relation], bool]:
    """How the counters of the rows relate to the training; whether all rows are of counters."""
    relations: dict[CounterKey, _Relation] = {}
    alone = True
    for told in _told(rows):
        alone = alone and bool(told.mine.all())
        for key, at in told.counters.items():
            factor = accumulation if key[1] == MICRO_STEPS else 1
            relation = relations.setdefault(key, _Relation(factor))
            relation.least = min(relation.least, int(told.steps[at].min()))
        for key, counts, steps in told.moments():
            relations[key].meet(counts, steps)
            if relations[key].factor:
                relations[key].compare(counts, steps)
    unknown = {key: relation for key, relation in relations.items() if not relation.factor}
    for relation in unknown.values():
        relation.factor = _most(relation.ratios, relation.moments - 1) or 0
    for told in _told(rows) if any(relation.factor for relation in unknown.values()) else ():
        for key, counts, steps in told.moments():
            if key in unknown:
                unknown[key].compare(counts, steps)
    for (_, _, era), relation in relations.items():
        from_start = era == 0 and not relation.moments and alone
        relation.offset = 0 if from_start else _most(relation.offsets, relation.moments)
    return relations, alone


def _timed_alone(rows: StepRows) -> bool:
    """Whether a rate is of the last micro-step alone; of rows whose steps are as printed."""
    counts = np.array([bool(form.counts) for form in rows.all_forms])
    for frame in rows.frames(FORM_COLUMN, "step", "extra", RATE_COLUMN):
        rated = counts[frame[FORM_COLUMN].to_numpy()] & frame[RATE_COLUMN].is_not_null().to_numpy()
        if (
            rated.any()
            and frame.select((pl.lit(pl.Series(rated)) & has_micro_steps(1)).any()).item()
        ):
            return True
    return False


def has_micro_steps(count: int) -> pl.Expr:
    """Whether the timer has counted so many micro-steps for each step since its process started.

    One, although several micro-steps make a step, where it stopped once a step. So it does under
    Megatron without pipeline: its `micro_step` keeps step with `global_step`, and it has timed the
    last micro-step alone.
    """
    # a regex takes four times as long
    said = pl.format('"micro_step": "{}"', pl.col("step") * count)
    return pl.col("extra").str.contains(said, literal=True).fill_null(value=False)


def _beside(rate: float, extra: str | None) -> str:
    """What a row says beside its columns: a rate of one micro-step is not that of the step."""
    return json.dumps(json.loads(extra or "{}") | {"micro_step_samples_per_second": rate})


def _micro_steps(rows: StepRows) -> AlignedRows:
    """Nothing but a counter of micro-steps: the run is told in those, of its first epoch."""
    out = AlignedRows(rows.empty_copy())
    for frame, told in zip(rows.frames(), _told(rows), strict=True):
        there = np.zeros(len(told.mine), bool)
        for (_, kind, era), mine in told.counters.items():
            there[mine] = kind == MICRO_STEPS and era == 0
        _take(out, frame, (), there)
    out.step_unit = "micro_step" if out.rows else None
    return out
