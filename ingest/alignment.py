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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

from ingest.log_format import MICRO_STEPS, last_place

Row = dict[str, Any]


@dataclass(slots=True)
class Aligned:
    """Rows with steps of the training, rows without, and the unit where it is not the format's."""

    rows: list[Row]
    unplaced: list[Row] = field(default_factory=list)
    step_unit: str | None = None


def align(rows: Sequence[Row], accumulation: int) -> Aligned:
    """The rows of a launch, those that count by themselves brought to the steps of the others.

    rows: each with the StepLine `form` it was read with; accumulation: micro-steps of an optimizer
    step as the log states them, 0 where it does not.
    """
    own = [row for row in rows if row["form"].counts]
    if not own:
        return Aligned(list(rows))
    alone = len(own) == len(rows)
    places: dict[int, tuple[int | None, int]] = {}
    met = _meetings(rows)
    for key, group in _groups(own).items():
        pairs = met.get(key, [])
        micro = key[1] == MICRO_STEPS
        factor = (accumulation or _factor(pairs)) if micro else 1
        offset = _offset(pairs, factor)
        if alone and not key[2] and not pairs:
            offset = 0
        for row in group:
            places[row["line"]] = _place(row["step"], factor, offset), factor
    if alone and all(place is None for place, _ in places.values()):
        return _micro_steps(own)
    out = Aligned([])
    for row in rows:
        if not row["form"].counts:
            out.rows.append(row)
            continue
        place, factor = places[row["line"]]
        if place is None:
            out.unplaced.append(row)
        else:
            alone_timed = factor > 1 or _one_stop(row, accumulation)
            out.rows.append(_placed(row, place, of_micro_step=alone_timed))
    return out


def stride(rows: Sequence[Row], events: Iterable[Mapping[str, Any]]) -> int | None:
    """Steps between two lines that print none and were counted one by one; null where unknown.

    The Trainer's console prints dicts at each `logging_steps`, and at the end how many steps there
    were: so many fit into it in one way only. rows: as in `align`, `counted` where the step is a
    mere count. The epoch has to grow with the count from the start, as it does not after a resume.
    """
    ends = {event["step"] for event in events if event["kind"] == "end" and event["step"]}
    if len(ends) != 1 or not rows or not all(row.get("counted") for row in rows):
        return None
    last, count = ends.pop(), max(row["step"] for row in rows)
    fitting = range(last // (count + 1) + 1, last // count + 1)
    return fitting[0] if len(fitting) == 1 and _grows_from_start(rows, count) else None


def _grows_from_start(rows: Sequence[Row], count: int) -> bool:
    epochs = [json.loads(row["extra"] or "{}").get("epoch") for row in (rows[0], rows[-1])]
    try:
        first, last = (Decimal(epoch) for epoch in epochs)
        return abs(last - count * first) <= (count * last_place(first) + last_place(last)) / 2
    except (TypeError, ArithmeticError, ValueError):
        return False


Key = tuple[str | None, str, int]
"""Rank, what is counted, and the epoch: the counter of micro-steps may start anew with it."""


def _key(row: Mapping[str, Any]) -> Key:
    counts = row["form"].counts
    return row["rank"], counts, (row.get("epoch") or 0) if counts == MICRO_STEPS else 0


def _groups(own: Iterable[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in own:
        groups.setdefault(_key(row), []).append(row)
    return groups


def _meetings(rows: Sequence[Row]) -> dict[Key, list[tuple[int, int]]]:
    """Both counts of a moment: (of the line, of the training), where one is behind the other."""
    found: dict[Key, list[tuple[int, int]]] = {}
    before: dict[str | None, Row] = {}
    for row in rows:
        last = before.get(row["rank"])
        if row["form"].counts and last is not None and not last["form"].counts:
            found.setdefault(_key(row), []).append((row["step"], last["step"]))
        before[row["rank"]] = row
    return found


def _factor(pairs: Sequence[tuple[int, int]]) -> int:
    """Counts per step of the training, as most moments next to each other tell; 0: not known."""
    grown = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(pairs)]
    ratios = [mine // whole for mine, whole in grown if whole > 0 and mine % whole == 0]
    return _most(ratios, len(grown)) or 0


def _offset(pairs: Sequence[tuple[int, int]], factor: int) -> int | None:
    return _most([mine - factor * whole for mine, whole in pairs], len(pairs))


def _most(values: Sequence[int], of: int) -> int | None:
    """The value of more than half."""
    ((value, count),) = Counter(values).most_common(1) or [(0, 0)]
    return value if 2 * count > of else None  # never of none


def _place(count: int, factor: int, offset: int | None) -> int | None:
    """The step of the training; null in the middle of one, or where the relation is not known."""
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


def _micro_steps(own: Sequence[Row]) -> Aligned:
    """Nothing but a counter of micro-steps: the run is told in those, of its first epoch."""
    first = [row for row in own if _key(row)[1:] == (MICRO_STEPS, 0)]
    rest = [row for row in own if _key(row)[1:] != (MICRO_STEPS, 0)]
    return Aligned(first, rest, "micro_step" if first else None)
