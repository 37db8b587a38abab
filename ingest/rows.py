"""Step rows of a launch: those that were read line by line, and those of many lines at once.

Both stand in the order of their lines. Who asks for a row gets a mapping; who needs all of a column
gets it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final, overload

import polars as pl

from ingest.schema import frame_schema

SCHEMA: Final = {n: kind for n, kind in frame_schema("steps").items() if n != "run_id"}

Row = dict[str, Any]
FORM: Final = "form"
EMPTY: Final = {"rank": None, "logged_at": None, "extra": None}
"""What every row of a line has."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of many lines.

    frame: columns of `steps` that they fill, and FORM, which of `forms` (StepLines) each is of.
    """

    frame: pl.DataFrame
    forms: tuple[Any, ...]

    def rows(self, frame: pl.DataFrame | None = None) -> Iterator[Row]:
        """Each row (of `frame`, by default all) as the parser makes it of one line."""
        found = self.frame if frame is None else frame
        for row in found.iter_rows(named=True):
            form = {FORM: self.forms[row[FORM]]} if FORM in row else {}
            yield EMPTY | row | form


class Rows(Sequence[Row]):
    """Rows in their order; `append` one, or `extend` by a batch."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        first = list(rows)
        self._parts: list[list[Row] | Batch] = [first]
        self._count = len(first)

    def append(self, row: Row) -> None:
        """One more row."""
        last = self._parts[-1]
        if isinstance(last, Batch):
            self._parts.append([row])
        else:
            last.append(row)
        self._count += 1

    def extend(self, batch: Batch) -> None:
        """All rows of a batch."""
        self._parts.append(batch)
        self._count += batch.frame.height

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(p.rows() if isinstance(p, Batch) else p for p in self._parts)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return list(self)[index]
        if index in (0, -1) and self._count:
            filled = (p for p in self._parts[:: -1 if index else 1] if _length(p))
            part = next(filled)
            return part[index] if isinstance(part, list) else _one(part, index)
        return list(self)[index]

    def own(self) -> Iterator[Row]:
        """Rows that were read line by line; they may be changed in place."""
        return chain.from_iterable(part for part in self._parts if isinstance(part, list))

    def forms(self) -> Iterator[Any]:
        """The StepLines of the rows, some of them several times."""
        for part in self._parts:
            if isinstance(part, Batch):
                yield from (part.forms[index] for index in part.frame[FORM].unique())
            else:
                yield from (row[FORM] for row in part)

    def alter(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Change the rows that were read many at once."""
        self._parts = [
            Batch(change(part.frame), part.forms) if isinstance(part, Batch) else part
            for part in self._parts
        ]

    def select(self, *names: str) -> pl.DataFrame:
        """These columns of all rows, in their order."""
        self._merge()
        frames = [_whole(part, names) for part in self._parts if _length(part)]
        return pl.concat(frames or [pl.DataFrame(schema={n: SCHEMA[n] for n in names})])

    def _merge(self) -> None:
        """Batches that lie side by side become one: what is asked of each costs as much."""
        merged: list[list[Row] | Batch] = []
        for of_batches, parts in groupby(self._parts, lambda part: isinstance(part, Batch)):
            group = list(parts)
            batches = [part for part in group if isinstance(part, Batch)]
            if of_batches and len(batches) > 1:
                frame = pl.concat([batch.frame for batch in batches], how="diagonal")
                merged.append(Batch(frame, batches[0].forms))
            else:
                merged += group
        self._parts = merged

    def frame(self) -> pl.DataFrame:
        """All rows as a frame of `steps`, without run_id."""
        return self.select(*SCHEMA)


def _length(part: list[Row] | Batch) -> int:
    return part.frame.height if isinstance(part, Batch) else len(part)


def _one(batch: Batch, index: int) -> Row:
    return next(batch.rows(batch.frame[index : index + 1] if index >= 0 else batch.frame.tail(1)))


def _whole(part: list[Row] | Batch, names: Iterable[str]) -> pl.DataFrame:
    """Columns of a part; what it does not have is null."""
    if isinstance(part, Batch):
        found = part.frame
        return found.select(
            pl.col(name) if name in found.columns else pl.lit(None, SCHEMA[name]).alias(name)
            for name in names
        )
    return framed(part, {name: SCHEMA[name] for name in names})


def framed(
    rows: Sequence[Mapping[str, Any]],
    schema: Mapping[str, pl.DataType],
    *,
    said_only: bool = False,
) -> pl.DataFrame:
    """Rows as a frame of that schema; what they lack is null, or with `said_only` left out."""
    said = set[str]().union(*rows)
    wanted = {name: kind for name, kind in schema.items() if name in said or not said_only}
    values = {
        name: [row.get(name) for row in rows] if name in said else [None] * len(rows)
        for name in wanted
    }
    return pl.DataFrame(values, schema=wanted, strict=True)
