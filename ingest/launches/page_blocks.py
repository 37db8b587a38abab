"""Code blocks of a Markdown page, assigned to runs.

A page shows experiments one after another, and their steps may rise by chance. A block continues a
run only if its time fits the pace. Blocks of ten 13 s steps are not 40 minutes apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..core.arrays import Floats, Ints, column_values
from .launch import Launch

FENCE: Final = re.compile(r"[ >]{0,8}(?:`{3,}|~{3,})")
"""Line that opens or closes a block."""
HEADING: Final = re.compile(r"[ >]{0,8}#{1,6} ")
SHARED: Final = -1
"""Owner of lines that belong to every run."""
PACE_RANGE: Final = (0.7, 1.5)
"""Time between two blocks of one run, relative to the same number of steps at its pace."""
STAMP_SLACK_S: Final = 2.0
MAX_MEMORY_CHANGE: Final = 0.1
"""Largest relative change of peak memory between blocks of one run."""
LOOKED_AT: Final = ("line", "step", "logged_at", "since_start_s", "elapsed_s", "peak_memory_bytes")


class Block(NamedTuple):
    """Lines from the opening to the closing fence, inclusive, counted from 1."""

    first: int
    last: int


def page_owners(texts: Sequence[str], launches: Sequence[Launch]) -> Ints | None:
    """Return the run number of each line; None where blocks split no launch.

    texts: lines of the file; all step lines are inside blocks. Lines before the first block are
    SHARED, except for the block's own heading. Lines before a later block belong to the block's
    run.
    """
    blocks = list(_blocks(texts))
    told = [(launch, its) for launch in launches if (its := _rows(launch)) is not None]
    if len(blocks) < 2 or not all(_inside(its, blocks) for _, its in told):  # noqa: PLR2004
        return None
    headings = [n for n in range(1, blocks[0].first) if HEADING.match(texts[n - 1])]
    begins = [headings[-1] if headings[1:] else blocks[0].first]
    parted, end = False, 0
    before: Launch | None = None
    rows: pl.DataFrame | None = None
    for launch, every in told:
        for block, its in _by_block(every, blocks):
            goes_on = rows is not None and launch is before and _goes_on(rows, its)
            if rows is not None and not goes_on:
                parted = parted or launch is before
                begins.append(end + 1)
            rows = pl.concat([rows, its]) if goes_on and rows is not None else its
            before, end = launch, block.last
    if not parted:
        return None
    owners = np.full(len(texts), SHARED, np.int64)
    for number, first in enumerate(begins):
        owners[first - 1 :] = number
    return owners


def _blocks(texts: Sequence[str]) -> Iterator[Block]:
    opened = None
    for number, text in enumerate(texts, 1):
        if FENCE.match(text) is None:
            continue
        if opened is not None:
            yield Block(opened, number)
        opened = number if opened is None else None
    if opened is not None:
        yield Block(opened, len(texts) + 1)


def _rows(launch: Launch) -> pl.DataFrame | None:
    frames = [frame for frame in launch.rows.frames(*LOOKED_AT) if frame.height]
    return pl.concat(frames) if frames else None


def _inside(rows: pl.DataFrame, blocks: Sequence[Block]) -> bool:
    return sum(its.height for _, its in _by_block(rows, blocks)) == rows.height


def _by_block(rows: pl.DataFrame, blocks: Sequence[Block]) -> Iterator[tuple[Block, pl.DataFrame]]:
    for block in blocks:
        its = rows.filter(pl.col("line").is_between(*block))
        if its.height:
            yield block, its


def _goes_on(rows: pl.DataFrame, more: pl.DataFrame) -> bool:
    """Return whether a block continues the run of the rows before, by time and memory."""
    last, first = rows.row(-1, named=True), more.row(0, named=True)
    memory = [row["peak_memory_bytes"] for row in (last, first)]
    if None not in memory and abs(memory[1] / (memory[0] or 1) - 1) > MAX_MEMORY_CHANGE:
        return False
    steps = first["step"] - last["step"]
    if steps <= 0:
        return False
    for name in ("logged_at", "since_start_s"):
        moments = np.concatenate([_seconds(part, name) for part in (rows, more)])
        between = moments[rows.height] - moments[rows.height - 1]
        if np.isnan(between):
            continue
        paces = (_pace(part, name) for part in (rows, more))
        usual = next((pace for pace in paces if pace), first["elapsed_s"] or last["elapsed_s"])
        low, high = (share * (usual or 0.0) * steps for share in PACE_RANGE)
        return bool(usual) and low - STAMP_SLACK_S <= between <= high + STAMP_SLACK_S
    times = [row["elapsed_s"] for row in (last, first)]
    return None not in times and PACE_RANGE[0] <= times[1] / (times[0] or 1) <= PACE_RANGE[1]


def _seconds(rows: pl.DataFrame, name: str) -> Floats:
    moments = (
        rows[name].cast(pl.Datetime("us")).cast(pl.Int64) / 1e6
        if name == "logged_at"
        else rows[name]
    )
    return column_values(moments.cast(pl.Float64), np.nan)


def _pace(rows: pl.DataFrame, name: str) -> float | None:
    """Return the median time of a step between two lines [s]."""
    apart, steps = np.diff(_seconds(rows, name)), np.diff(rows["step"].to_numpy())
    counted = np.isfinite(apart) & (apart > 0) & (steps > 0)
    return float(np.median(apart[counted] / steps[counted])) if counted.any() else None
