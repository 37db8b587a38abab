"""Step lines with a counter of their own, brought to the steps of the training.

DeepSpeed's throughput timer counts from the start of its process, and until 0.7 it counts
micro-steps, while the engine's `step=` goes on after a resume. Both print right after one another
at the end of a step, so a timer's line behind the engine's tells both counts of one moment:

    count of the timer = steps of the training x micro-steps per step + offset

Where too little is known to solve it, a line has no step: none is better than a wrong one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from ingest.log_format import MICRO_STEPS, last_place
from ingest.rows import FORM, Row, Rows


@dataclass(slots=True)
class Aligned:
    """Rows with steps of the training, rows without, and the unit where it is not the format's."""

    rows: Rows
    unplaced: list[Row] = field(default_factory=list)
    step_unit: str | None = None


def align(rows: Rows, accumulation: int) -> Aligned:
    """The rows of a launch, those that count by themselves brought to the steps of the others.

    accumulation: micro-steps of an optimizer step as the log states them, 0 where it does not.
    """
    relations, alone = _relations(rows, accumulation)
    if not relations:
        return Aligned(rows)
    if alone and not any(_placed_at(relations, *one) for one in _counted(rows)):
        return _micro_steps(rows)
    out = Aligned(rows.like())
    for row in rows:
        if not row[FORM].counts:
            out.rows.append(row)
            continue
        key = _key(row[FORM].counts, row["rank"], row.get("epoch"))
        place = _placed_at(relations, key, row["step"])
        if place is None:
            out.unplaced.append(row)
        else:
            alone_timed = relations[key].factor > 1 or _one_stop(row, accumulation)
            out.rows.append(_placed(row, place, of_micro_step=alone_timed))
    return out


def stride(rows: Rows, events: Iterable[Mapping[str, Any]]) -> int | None:
    """Steps between two lines that print none and were counted one by one; null where unknown.

    The Trainer's console prints dicts at each `logging_steps`, and at the end how many steps there
    were: so many fit into it in one way only. rows: as in `align`, `counted` where the step is a
    mere count. The epoch has to grow with the count from the start, as it does not after a resume.
    """
    ends = {event["step"] for event in events if event["kind"] == "end" and event["step"]}
    if len(ends) != 1 or not rows:
        return None
    last, count = ends.pop(), 0
    for frame in rows.frames("counted", "step"):
        if not frame["counted"].fill_null(value=False).all():
            return None
        count = max(count, *frame["step"])
    fitting = range(last // (count + 1) + 1, last // count + 1)
    return fitting[0] if len(fitting) == 1 and _grows_from_start(rows, count) else None


def _grows_from_start(rows: Rows, count: int) -> bool:
    epochs = [json.loads(row["extra"] or "{}").get("epoch") for row in (rows[0], rows[-1])]
    try:
        first, last = (Decimal(epoch) for epoch in epochs)
        return abs(last - count * first) <= (count * last_place(first) + last_place(last)) / 2
    except (TypeError, ArithmeticError, ValueError):
        return False


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


def _relations(rows: Rows, accumulation: int) -> tuple[dict[Key, _Relation], bool]:
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


def _moments(rows: Rows) -> Iterator[tuple[Key | None, int, int | None]]:
    """Of each row its counter, its count, and the step of the training right before it.

    The counter is none where the row has the training's step; that before it is of the same rank.
    """
    counts = [form.counts for form in rows.all_forms]
    before: dict[str | None, int | None] = {}
    for frame in rows.frames(FORM, "rank", "step", "epoch"):
        for form, rank, step, epoch in frame.iter_rows():
            if counts[form]:
                yield _key(counts[form], rank, epoch), step, before.get(rank)
                before[rank] = None
            else:
                yield None, step, None
                before[rank] = step


def _counted(rows: Rows) -> Iterator[tuple[Key, int]]:
    return ((key, step) for key, step, _ in _moments(rows) if key is not None)


def _key(counts: str, rank: str | None, epoch: int | None) -> Key:
    return rank, counts, (epoch or 0) if counts == MICRO_STEPS else 0


def _most(values: Counter[int], of: int) -> int | None:
    """The value of more than half."""
    ((value, count),) = values.most_common(1) or [(0, 0)]
    return value if 2 * count > of else None  # never of none


def _placed_at(relations: Mapping[Key, _Relation], key: Key, count: int) -> int | None:
    """The step of the training; null in the middle of one, or where the relation is not known."""
    factor, offset = relations[key]
    if offset is None or not factor or (count - offset) % factor:
        return None
    step = (count - offset) // factor
    return step if step > 0 else None


def _one_stop(row: Row, accumulation: int) -> bool:
    """Whether the timer stopped once a step although several micro-steps make it.

    So it does under Megatron without pipeline: its `micro_step` keeps step with `global_step`, and
    it has timed the last micro-step alone.
    """
    stops = json.loads(row["extra"] or "{}").get("micro_step")
    return accumulation > 1 and stops == str(row["step"])


def _placed(row: Row, place: int, *, of_micro_step: bool) -> Row:
    """The row at its step. A rate of one micro-step is not that of the step: it goes to `extra`."""
    rate = row.get("logged_samples_per_second")
    if rate is None or not of_micro_step:
        return row | {"step": place}
    extra = json.loads(row["extra"] or "{}") | {"micro_step_samples_per_second": rate}
    return row | {
        "step": place,
        "logged_samples_per_second": None,
        "extra": json.dumps(extra),
    }


def _micro_steps(rows: Rows) -> Aligned:
    """Nothing but a counter of micro-steps: the run is told in those, of its first epoch."""
    out = Aligned(rows.like())
    for row in rows:
        counts = row[FORM].counts
        if counts == MICRO_STEPS and not row.get("epoch"):
            out.rows.append(row)
        else:
            out.unplaced.append(row)
    out.step_unit = "micro_step" if out.rows else None
    return out
