"""Counters brought to the steps of the training row by row: what step_alignment does in columns.

The plain way, which tests hold it to (tests/ingest/launches/test_step_alignment.py).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import polars as pl

from fairmfu.ingest.formats.spec import MICRO_STEPS
from fairmfu.ingest.launches.step_alignment import AlignedRows
from fairmfu.ingest.launches.step_rows import EMPTY_LINE_VALUES, FORM_COLUMN, StepRows


def align(rows: StepRows, accumulation: int) -> AlignedRows:
    """The rows of a launch, those that count by themselves brought to the steps of the others.

    accumulation: micro-steps of an optimizer step as the log states them, 0 where it does not.
    """
    relations, alone = _relations(rows, accumulation)
    if not relations:
        return AlignedRows(rows)
    if alone and not any(_place(relations[key], count) for key, count in _counted(rows)):
        return _micro_steps(rows)
    out = AlignedRows(rows.empty_copy())
    for frame, said in _with_counts(rows, RATE, "extra"):
        placed = []
        for counts, rank, step, epoch, rate, extra in said:
            if not counts:
                placed.append((step, rate, extra))
                continue
            relation = relations[_key(counts, rank, epoch)]
            place, own = _place(relation, step), (rate, extra)
            if rate is not None and (relation.factor > 1 or _one_stop(extra, step, accumulation)):
                own = None, _beside(rate, extra)
            placed.append((place, *own))
        steps, rates, extras = zip(*placed, strict=True)
        columns = (
            pl.Series("step", steps, pl.Int64),
            pl.Series(RATE, rates, pl.Float64),
            pl.Series("extra", extras, pl.String),
        )
        there = columns[0].is_not_null()
        _take(out, frame.with_columns(columns).filter(there), frame.filter(~there))
    return out


def _with_counts(
    rows: StepRows, *names: str
) -> Iterator[tuple[pl.DataFrame, Iterator[tuple[Any, ...]]]]:
    """All rows piece by piece; of each row what it counts, rank, step, epoch and these columns."""
    counts = [form.counts for form in rows.all_forms]
    told = rows.frames(FORM_COLUMN, "rank", "step", "epoch", *names)
    for frame, columns in zip(rows.frames(), told, strict=True):
        yield frame, ((counts[form], *row) for form, *row in columns.iter_rows())


def _take(out: AlignedRows, placed: pl.DataFrame, unplaced: pl.DataFrame) -> None:
    """Rows with a step of the training, and without."""
    if placed.height:
        out.rows.extend(placed)
    out.unplaced += (EMPTY_LINE_VALUES | row for row in unplaced.iter_rows(named=True))


RATE: Final = "logged_samples_per_second"

Key = tuple[str | None, str, int]
"""Rank, what is counted, and the epoch: the counter of micro-steps may start anew with it."""


class _Relation(NamedTuple):
    """Counts per step of the training (0: not known), and what is to be taken from them first."""

    factor: int
    offset: int | None


@dataclass(slots=True)
class _Met:
    """Moments of one counter, of which both counts are known: of the line and of the training.

    ratios: by how much more one has grown than the other, from one moment to the next.
    """

    moments: int = 0
    last: tuple[int, int] = (0, 0)
    ratios: Counter[int] = field(default_factory=Counter)
    offsets: Counter[int] = field(default_factory=Counter)

    def grow(self, mine: int, whole: int) -> None:
        """One more moment."""
        more, steps = mine - self.last[0], whole - self.last[1]
        if self.moments and steps > 0 and more % steps == 0:
            self.ratios[more // steps] += 1
        self.moments, self.last = self.moments + 1, (mine, whole)


def _relations(rows: StepRows, accumulation: int) -> tuple[dict[Key, _Relation], bool]:
    """How the counters of the rows relate to the training; whether all rows are of counters."""
    met: dict[Key, _Met] = {}
    alone = True
    for key, step, whole in _moments(rows):
        alone = alone and key is not None
        one = met.setdefault(key, _Met()) if key is not None else None
        if one is not None and whole is not None:
            one.grow(step, whole)
    factors = {
        key: (accumulation or _most(one.ratios, one.moments - 1) or 0)
        if key[1] == MICRO_STEPS
        else 1
        for key, one in met.items()
    }
    for key, step, whole in _moments(rows) if met else ():
        if key is not None and whole is not None:
            met[key].offsets[step - factors[key] * whole] += 1
    relations = {}
    for key, one in met.items():
        offset = _most(one.offsets, one.moments)
        if alone and not key[2] and not one.moments:
            offset = 0
        relations[key] = _Relation(factors[key], offset)
    return relations, alone


def _moments(rows: StepRows) -> Iterator[tuple[Key | None, int, int | None]]:
    """Of each row its counter, its count, and the step of the training right before it.

    The counter is none where the row has the training's step; that before it is of the same rank.
    """
    counts = [form.counts for form in rows.all_forms]
    before: dict[str | None, int | None] = {}
    for frame in rows.frames(FORM_COLUMN, "rank", "step", "epoch"):
        for form, rank, step, epoch in frame.iter_rows():
            if counts[form]:
                yield _key(counts[form], rank, epoch), step, before.get(rank)
                before[rank] = None
            else:
                yield None, step, None
                before[rank] = step


def _counted(rows: StepRows) -> Iterator[tuple[Key, int]]:
    return ((key, step) for key, step, _ in _moments(rows) if key is not None)


def _key(counts: str, rank: str | None, epoch: int | None) -> Key:
    return rank, counts, (epoch or 0) if counts == MICRO_STEPS else 0


def _most(values: Counter[int], of: int) -> int | None:
    """The value of more than half."""
    ((value, count),) = values.most_common(1) or [(0, 0)]
    return value if 2 * count > of else None  # never of none


def _place(relation: _Relation, count: int) -> int | None:
    """The step of the training; null in the middle of one, or where the relation is not known."""
    factor, offset = relation
    if offset is None or not factor or (count - offset) % factor:
        return None
    step = (count - offset) // factor
    return step if step > 0 else None


def _one_stop(extra: str | None, step: int, accumulation: int) -> bool:
    """Whether the timer stopped once a step although several micro-steps make it.

    So it does under Megatron without pipeline: its `micro_step` keeps step with `global_step`, and
    it has timed the last micro-step alone.
    """
    return accumulation > 1 and json.loads(extra or "{}").get("micro_step") == str(step)


def _beside(rate: float | None, extra: str | None) -> str | None:
    """What a row says beside its columns: a rate of one micro-step is not that of the step."""
    if rate is None or not math.isfinite(rate):
        return extra
    return json.dumps(json.loads(extra or "{}") | {"micro_step_samples_per_second": rate})


def _micro_steps(rows: StepRows) -> AlignedRows:
    """Nothing but a counter of micro-steps: the run is told in those, of its first epoch."""
    out = AlignedRows(rows.empty_copy())
    for frame, said in _with_counts(rows):
        mine = [counts == MICRO_STEPS and not epoch for counts, _, _, epoch in said]
        there = pl.Series(mine, dtype=pl.Boolean)
        _take(out, frame.filter(there), frame.filter(~there))
    out.step_unit = "micro_step" if out.rows else None
    return out
