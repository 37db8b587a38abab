"""Step lines with their own counter, converted to training steps.

DeepSpeed's throughput timer counts from the start of its process, and until 0.7 it counts
micro-steps, while the engine's `step=` continues after a resume. Both print at the end of a step,
one right after the other. So a timer's line after the engine's gives both counts of one moment:

    count of the timer = training steps x micro-steps per step + offset

Where the factor or offset is unknown, a line gets no step: a missing step is better than a wrong
step.
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
from ..core.numbers import parse_integer, parse_optional
from ..formats.spec import MICRO_STEPS, last_digit_unit
from .row_chunks import Row
from .step_rows import EMPTY_LINE_VALUES, FORM_COLUMN, StepRows

WholeNumbers = NDArray[Any]
"""Integers: 64-bit, or Python's where they are large."""


@dataclass(slots=True)
class AlignedRows:
    """Rows with training steps, and rows without.

    step_unit: unit of the steps, if not the format's
    """

    rows: StepRows
    unplaced: list[Row] = field(default_factory=list)
    step_unit: str | None = None


def align_steps(rows: StepRows, accumulation: int) -> AlignedRows:
    """Return the rows of a launch with counters converted to training steps.

    accumulation: micro-steps per optimizer step as the log states, 0 where the log is silent
    """
    relations, alone = _relations(rows, accumulation)
    as_printed = all(relation.as_printed for relation in relations.values())
    if as_printed and not (accumulation > 1 and _timed_alone(rows)):
        return AlignedRows(rows)
    if alone and not any(piece.placed(relations)[1].any() for piece in _counter_rows(rows)):
        return _micro_steps(rows)
    out = AlignedRows(rows.empty_copy())
    for frame, columns, piece in zip(
        rows.frames(), rows.frames(RATE_COLUMN, "step", "extra"), _counter_rows(rows), strict=True
    ):
        steps, has_step = piece.placed(relations)
        several = piece.of_several(relations)
        if accumulation > 1:
            several |= piece.mine & columns.select(has_micro_steps(1)).to_series().to_numpy()
        lone = np.flatnonzero(several & columns[RATE_COLUMN].is_not_null().to_numpy())
        moved = [
            pl.Series("step", steps, pl.Int64),
            *(_move_rates_to_extra(columns, lone) if len(lone) else ()),
        ]
        _append_aligned(out, frame, moved, has_step)
    return out


def _move_rates_to_extra(columns: pl.DataFrame, lone: Ints) -> list[pl.Series]:
    """Return the rate column without the rates of `lone`, and `extra` with them.

    columns: rates, steps and extras of all rows
    """
    rates, extras = columns[RATE_COLUMN], columns["extra"]
    pairs = zip(rates.gather(lone), extras.gather(lone), strict=True)
    beside = pl.Series([_extra_with_rate(rate, extra) for rate, extra in pairs], dtype=pl.String)
    return [rates.scatter(lone, None), extras.scatter(lone, beside)]


def _append_aligned(
    out: AlignedRows, frame: pl.DataFrame, moved: Iterable[pl.Series], has_step: Bools
) -> None:
    """Append rows with a step, with the changed columns; the others become unplaced."""
    placed = frame.with_columns(moved)
    if not has_step.all():
        placed = placed.filter(pl.Series(has_step))
        without = frame.filter(pl.Series(~has_step))
        out.unplaced += (EMPTY_LINE_VALUES | row for row in without.iter_rows(named=True))
    if placed.height:
        out.rows.extend(placed)


def steps_between_lines(rows: StepRows, end_events: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the steps between lines that were counted one by one; None if unknown.

    The Trainer's console prints dicts at every `logging_steps`, and at the end the number of steps.
    The result is known if only a single interval fits that number. The epoch has to grow with the
    count from the start, as happens only without a resume.

    rows: as in `align_steps`, `counted` where the step is a mere count
    end_events: events with the number of steps at the end
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
    """Return the steps between two lines, from the progress of a launch's epochs.

    Like `steps_between_lines`, for a launch whose end gives no number. None where the numbers, or
    the epoch, allow several intervals. An epoch has as many steps as batches, with the last batch
    dropped or filled up.

    dataset_samples: samples of the data set
    step_samples: samples of a step
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
    """Return rows with corrected steps if only some rows print their step; else None.

    A dict of the Trainer gets the step of its progress bar, where there is a bar. So the first dict
    of an excerpt may be counted as step 1, and the next have step 320. Counted rows are placed by
    the lines between them and printed rows, times the interval: forward from the row before, or
    back from the first printed row. A line counts as one step where the interval does not fit the
    printed rows on both sides.

    step_interval: as the log states; by default the most common interval of printed steps
    """
    if not rows.has_columns("counted") or any(
        form.every_step or form.counts for form in rows.forms()
    ):
        return None
    printed = [frame["counted"].is_null() for frame in rows.frames("counted")]
    if all(is_printed.all() for is_printed in printed) or not any(
        is_printed.any() for is_printed in printed
    ):
        return None
    counted = ~pl.concat(printed).to_numpy()
    frame = pl.concat(rows.frames("rank", "step"))
    before = frame["step"].to_numpy()
    steps, ranks = before.copy(), _numbered(frame["rank"], {})
    for of_rank in _alike(np.arange(len(steps)), ranks):
        steps[of_rank] = _placed_beside(steps[of_rank], counted[of_rank], step_interval)
    if (steps == before).all():
        return None
    out, done = rows.empty_copy(), 0
    for part in rows.frames():
        steps_of_part = pl.Series("step", steps[done : done + part.height], pl.Int64)
        out.extend(part.with_columns(steps_of_part))
        done += part.height
    return out


def _placed_beside(steps: Ints, counted: Bools, interval: int | None) -> Ints:
    """Return the steps of one rank's rows, with counted rows next to printed rows."""
    printed = np.flatnonzero(~counted)
    if not len(printed):
        return steps
    apart, lines = np.diff(steps[printed]), np.diff(printed)
    even = Counter((apart[apart % lines == 0] // lines[apart % lines == 0]).tolist())
    stride = interval or _majority(even, len(lines)) or 1
    out = steps.copy()
    first, last = printed[0], printed[-1]
    if first < steps[first]:
        fits = first * stride <= steps[first]
        out[:first] = steps[first] - (stride if fits else 1) * np.arange(first, 0, -1)
        out[:first] = out[:first].clip(1)  # step 1 is printed with any interval
    between = np.arange(first, last)
    before = printed.searchsorted(between, "right") - 1
    strides = np.where(apart == stride * lines, stride, 1)
    out[first:last] = steps[printed[before]] + strides[before] * (between - printed[before])
    behind = np.arange(1, len(steps) - last)
    room = (STEP_LIMIT - 1 - int(steps[last])) // max(1, len(behind))
    out[last + 1 :] = steps[last] + min(stride, room) * behind
    return out


def steps_before_first_line(rows: StepRows) -> int | None:
    """Return the difference of printed and counted steps in the first epoch.

    0 if the first line is of step 0, so that the log is counted from its start. Counting starts at
    the first line of the log, which may be from the middle of a training. None if no line prints
    such a step, if the first is after an epoch of unknown length, or if lines are missing between.
    """
    keys = {place: form.step_of_epoch for place, form in enumerate(rows.all_forms)}
    known: int | None = None
    for frame in rows.frames("step", "epoch", "extra", FORM_COLUMN):
        for step, epoch, extra, place in frame.iter_rows():
            key = keys[place]
            if key is None or (epoch and known is not None):
                continue
            printed = parse_optional(parse_integer, json.loads(extra or "{}").get(key))
            before = -1 if printed is None or epoch else printed + 1 - step
            known = before if known is None else known
            if before < 0 or before != known:
                return None
    return None if known is None else max(0, known - 1)


def has_only_counted_steps(rows: StepRows) -> bool:
    """Return whether no line prints its step and the log states no interval."""
    counts = (frame["counted"].fill_null(value=False).all() for frame in rows.frames("counted"))
    return len(rows) > 0 and rows.has_columns("counted") and all(counts)


def has_only_unprinted_steps(rows: StepRows) -> bool:
    """Return whether no line prints its step, so that all steps are counted."""
    counts = (frame["counted"].is_not_null().all() for frame in rows.frames("counted"))
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
"""A counter: its rank, its kind, and the epoch, where a micro-step counter may restart."""
MAX_INT64_FACTOR: Final = 2**30
"""Products of two counts below this fit into 64 bits; larger counts become Python integers."""
STEP_LIMIT: Final = 2**63
"""Steps have to be below this, to fit into 64 bits."""
NO_NUMBERS: Final = np.empty(0, np.int64)


@dataclass(slots=True)
class _Relation:
    """Relation of a counter to training steps: step = (count - offset) / factor.

    Derived from moments: rows with both a count and a step, in their order.

    factor: counts per training step; 0 where unknown
    offset: subtracted from a count first; None where unknown
    least: the lowest count
    moments: their number; last: count and step of the last moment
    ratios, offsets: how often every factor and offset was seen
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
        """True if every count is the training step, as usual from the start."""
        return self.factor == 1 and self.offset == 0 and self.least > 0

    def meet(self, counts: WholeNumbers, steps: WholeNumbers) -> None:
        """Count the factors that moments suggest.

        counts: of the counter
        steps: of training
        """
        self.moments += len(counts)
        counts, steps = np.concatenate([self.last, (counts, steps)], axis=1)
        self.last = counts[-1:], steps[-1:]
        more, grown = np.diff(counts), np.diff(steps)
        more, grown = more[grown > 0], grown[grown > 0]
        self.ratios.update(_frequencies((more // grown)[more % grown == 0]))

    def compare(self, counts: WholeNumbers, steps: WholeNumbers) -> None:
        """Count the offsets that moments suggest, once the factor is known."""
        big = abs(self.factor) >= MAX_INT64_FACTOR
        self.offsets.update(
            _frequencies(counts - self.factor * (steps.astype(object) if big else steps))
        )

    def placed(self, counts: WholeNumbers) -> tuple[Ints, Bools]:
        """Return training steps, and a mask of counts that have one.

        Counts within a step have none, nor do counts of an unknown relation.
        """
        if self.offset is None or self.factor == 0:
            return np.zeros(len(counts), np.int64), np.zeros(len(counts), bool)
        if abs(self.factor) >= MAX_INT64_FACTOR or abs(self.offset) >= MAX_INT64_FACTOR**2:
            counts = counts.astype(object)
        ahead = counts - self.offset
        steps = ahead // self.factor
        has_step = (ahead % self.factor == 0) & (steps > 0) & (steps < STEP_LIMIT)
        return np.where(has_step, steps, 0).astype(np.int64), has_step


def _frequencies(values: WholeNumbers) -> dict[int, int]:
    """Return the frequency of every value."""
    values_seen, times = np.unique(values, return_counts=True)
    return dict(zip(values_seen.tolist(), times.tolist(), strict=True))


def _majority(counts: Counter[int], total: int) -> int | None:
    """Return the value with more than half of `total`; None without one."""
    value, times = next(iter(counts.most_common(1)), (None, 0))
    return value if 2 * times > total else None


@dataclass(frozen=True, slots=True)
class _CounterRows:
    """Counter rows of a piece, with the training steps next to them.

    mine: True for rows with their own counter
    counters: indices of these rows by counter
    steps: as printed
    whole: training step from the row of the same rank right before
    met: True where that row has a training step
    """

    mine: Bools
    counters: Mapping[CounterKey, Ints]
    steps: WholeNumbers
    whole: WholeNumbers
    met: Bools

    def moments(self) -> Iterator[tuple[CounterKey, WholeNumbers, WholeNumbers]]:
        """Yield every counter with its counts and training steps, of rows with both."""
        for key, rows in self.counters.items():
            both = rows[self.met[rows]]
            yield key, self.steps[both], self.whole[both]

    def placed(self, relations: Mapping[CounterKey, _Relation]) -> tuple[Ints, Bools]:
        """Return the training steps of all rows, and a mask of rows that have one."""
        steps, has_step = self.steps.astype(np.int64), ~self.mine
        for key, rows in self.counters.items():
            steps[rows], has_step[rows] = relations[key].placed(self.steps[rows])
        return steps, has_step

    def of_several(self, relations: Mapping[CounterKey, _Relation]) -> Bools:
        """Return True for rows whose counter counts several times per training step."""
        out = np.zeros(len(self.mine), bool)
        for key, rows in self.counters.items():
            out[rows] = relations[key].factor > 1
        return out


def _counter_rows(rows: StepRows) -> Iterator[_CounterRows]:
    """Yield `_CounterRows` of all rows, piece by piece."""
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
        yield _CounterRows(mine, counters, steps, whole, met)
        last = both[:, order[np.append(~alike, True)]]


def _numbered(names: pl.Series, numbers: dict[str | None, int]) -> Ints:
    """Return the number of every name; new names get the next number."""
    if names.null_count() == len(names):  # no launcher tags the lines
        return np.full(len(names), numbers.setdefault(None, len(numbers)))
    encoded = names.to_arrow().cast(pa.large_string()).dictionary_encode()
    every = [*encoded.dictionary.to_pylist(), None]
    table = np.array([numbers.setdefault(name, len(numbers)) for name in every])
    return np.asarray(table[integers_of(encoded.indices, -1)])


def _alike(rows: Ints, *keys: Ints) -> Iterator[Ints]:
    """Yield the rows with equal keys, in their order."""
    code = np.zeros(len(rows), np.int64)
    for values in (key[rows] for key in keys):
        if not (values != values[:1]).any():  # most logs have one rank and one counter
            continue
        distinct, which = np.unique(values, return_inverse=True)
        code = code * len(distinct) + which
    order = np.argsort(code, kind="stable")
    ends = np.flatnonzero(np.diff(code[order])) + 1
    yield from (rows[group] for group in np.split(order, ends) if len(group))


def _relations(rows: StepRows, accumulation: int) -> tuple[dict[CounterKey, _Relation], bool]:
    """Return the relation of every counter, and True if all rows have counters."""
    relations: dict[CounterKey, _Relation] = {}
    alone = True
    for piece in _counter_rows(rows):
        alone = alone and bool(piece.mine.all())
        for key, indices in piece.counters.items():
            factor = accumulation if key[1] == MICRO_STEPS else 1
            relation = relations.setdefault(key, _Relation(factor))
            relation.least = min(relation.least, int(piece.steps[indices].min()))
        for key, counts, steps in piece.moments():
            relations[key].meet(counts, steps)
            if relations[key].factor:
                relations[key].compare(counts, steps)
    unknown = {key: relation for key, relation in relations.items() if not relation.factor}
    for relation in unknown.values():
        relation.factor = _majority(relation.ratios, relation.moments - 1) or 0
    for piece in (
        _counter_rows(rows) if any(relation.factor for relation in unknown.values()) else ()
    ):
        for key, counts, steps in piece.moments():
            if key in unknown:
                unknown[key].compare(counts, steps)
    for (_, _, era), relation in relations.items():
        from_start = era == 0 and not relation.moments and alone
        relation.offset = 0 if from_start else _majority(relation.offsets, relation.moments)
    return relations, alone


def _timed_alone(rows: StepRows) -> bool:
    """Return whether a rate covers the last micro-step alone.

    rows: with steps as printed
    """
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
    """Return an expression: True where the timer counts `count` micro-steps per step.

    The count starts with the process. With a count of 1, several micro-steps may make a step if the
    timer stops once a step. Under Megatron without pipeline, the timer's `micro_step` equals
    `global_step`, and only the last micro-step was timed.
    """
    # four times as fast as a regex
    printed = pl.format('"micro_step": "{}"', pl.col("step") * count)
    return pl.col("extra").str.contains(printed, literal=True).fill_null(value=False)


def _extra_with_rate(rate: float | None, extra: str | None) -> str | None:
    """Return `extra` with the rate of a micro-step, which is not the step's rate.

    A rate that is no finite number is left out: JSON has no NaN, and no reader uses it.
    """
    if rate is None or not math.isfinite(rate):
        return extra
    return json.dumps(json.loads(extra or "{}") | {"micro_step_samples_per_second": rate})


def _micro_steps(rows: StepRows) -> AlignedRows:
    """Return rows of the first epoch with micro-steps as steps.

    For logs whose only counters count micro-steps.
    """
    out = AlignedRows(rows.empty_copy())
    for frame, piece in zip(rows.frames(), _counter_rows(rows), strict=True):
        has_step = np.zeros(len(piece.mine), bool)
        for (_, kind, era), indices in piece.counters.items():
            has_step[indices] = kind == MICRO_STEPS and era == 0
        _append_aligned(out, frame, (), has_step)
    out.step_unit = "micro_step" if out.rows else None
    return out
