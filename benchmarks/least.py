"""The least that a reader takes which is made of the same libraries, for the same log.

    python -m benchmarks.least LOG [parse]
    python -m benchmarks.least FOLDER

of a log that `python -m benchmarks.ingest_work write FORMAT LOG …` has written, or of all that
`… many FOLDER …` has.

It is told which lines are steps, where everything stands in them, and what is noise. What is left
is what nobody who stores this can leave out: the log is read and hashed, its newlines are found,
each step line's bytes are fetched once and compared, its digits made numbers, other lines looked up
among those already seen, and, without `parse`, the rows written as Parquet and hashed. One call of
a library for each block wherever one can do it; no Python for a line, no restarts, facts, events,
restored order.

Prints the processor seconds of each part as JSON, without imports.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.harness import ready_to_read
from benchmarks.plain import FORMATS, careful, logs

BLOCK_BYTES: Final = 4 * 1024 * 1024
AT_ONCE: Final = 1_000_000
"""Rows that are written together."""
OF_A_STAMP: Final = 3
"""Words of eight bytes: year to day, hours to seconds, milliseconds."""
MASKS: Final = [
    (10, 8, 0x00FF00FF00FF00FF),
    (100, 16, 0x0000FFFF0000FFFF),
    (10000, 32, 0xFFFFFFFF),
]
"""Eight digits become two of four, then one number: a factor, a shift, what is kept."""
NONE: Final = pa.array([], pa.large_binary())
"""Made with the imports: the first array imports pandas, where that is installed."""

seconds: Counter[str] = Counter()


@contextmanager
def timed(part: str) -> Iterator[None]:
    """Count the processor time of a part."""
    began = time.process_time()
    yield
    seconds[part] += time.process_time() - began


def read(log: Path, steps: NDArray[np.int64], numbers: int) -> None:
    """All blocks of the log; steps: the numbers of its step lines, from 0.

    numbers: that each of them prints for the columns that are stored; each fits eight bytes.
    """
    hashed, known, line, rest = hashlib.sha256(), NONE, 0, b""
    zeros = bytes(48 if 48 <= byte < 58 else byte for byte in range(256))  # noqa: PLR2004
    with log.open("rb") as file:
        while True:
            with timed("reading and hash"):
                block = file.read(BLOCK_BYTES)
                hashed.update(block)
            if not block:
                return
            with timed("newlines"):
                data = rest + block[: block.rfind(b"\n") + 1]
                rest = block[block.rfind(b"\n") + 1 :]
                array = np.frombuffer(data, np.uint8)
                ends = np.flatnonzero(array == ord("\n"))
                starts = np.concatenate([[0], ends[:-1] + 1])
                first, behind = np.searchsorted(steps, (line, line + len(ends)))
                own = np.zeros(len(ends), bool)
                own[steps[first:behind] - line] = True
                line += len(ends)
            with timed("steps: bytes fetched and compared"):
                at = starts[own]
                size = int((ends[own] - at).min(initial=256)) // 8 * 8
                rows = np.ndarray((len(data) - size,), f"V{size}", data, 0, (1,))[at]
                words = rows.view("<u8").reshape(len(at), -1)
                wrong = ((words ^ words[:1]) & np.uint64(0xFF)).any(axis=1)
            with timed("steps: digits to numbers"):
                for number in range(numbers):
                    digits(words[:, number % words.shape[1]], wrong)
            with timed("other lines"):
                buffers = [None, pa.py_buffer(np.append(starts, len(data))), pa.py_buffer(data)]
                lines = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)
                others = lines.filter(pa.array(~own))
                _, offsets, text = others.buffers()
                masked = [None, offsets, pa.py_buffer(bytes(text).translate(zeros))]
                alike = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(others), masked)
                found = pc.index_in(alike, known)
                if found.null_count:
                    known = pa.concat_arrays([known, alike.filter(pc.is_null(found)).unique()])


def digits(words: NDArray[np.uint64], wrong: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Eight digits of each row as a number with a decimal point."""
    word = words & np.uint64(0x0F0F0F0F0F0F0F0F)
    for factor, shift, kept in MASKS:
        word = (word * np.uint64(factor) + (word >> np.uint64(shift))) & np.uint64(kept)
    return np.where(wrong, np.nan, word.astype(np.float64) / 100.0)


def write(rows: pl.DataFrame, folder: Path) -> None:
    """The columns that some row fills, as the store writes its parts."""
    with timed("Parquet and its hash"):
        for place, some in enumerate(rows.iter_slices(AT_ONCE)):
            path = folder / f"{place}.parquet"
            some.write_parquet(path)
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]


class Told(NamedTuple):
    """A log, the numbers of its step lines, from 0, and how many numbers of each are stored."""

    log: Path
    steps: NDArray[np.int64]
    numbers: int


def written(log: Path) -> tuple[list[Told], pl.DataFrame]:
    """What is known beforehand of a log that has its rows beside it, and these."""
    rows = pl.read_parquet(log.with_suffix(".rows"))
    rows = rows[[column.name for column in rows if column.null_count() < len(column)]]
    numbers = _numbers(rows.drop("line"))
    return [Told(log, rows["line"].to_numpy() - 1, numbers)], rows


def found(folder: Path) -> tuple[list[Told], pl.DataFrame]:
    """The same of all logs in a folder, by the careful parser."""
    told, tables = list[Told](), list[pl.DataFrame]()
    for log, log_format in logs(folder):
        mine = [pl.DataFrame(table) for table in careful(log, log_format) if any(table.values())]
        anchors = [line.anchor.encode() for line in FORMATS[log_format]]
        lines = enumerate(log.read_bytes().split(b"\n"))
        steps = [at for at, line in lines if any(anchor in line for anchor in anchors)]
        told.append(Told(log, np.array(steps), max(map(_numbers, mine))))
        tables += mine
    return told, pl.concat(tables, how="diagonal_relaxed")


def _numbers(rows: pl.DataFrame) -> int:
    return sum(OF_A_STAMP if kind == pl.Datetime else 1 for kind in rows.schema.values())


def main() -> None:
    """Print the seconds of all parts."""
    ready_to_read()
    path = Path(sys.argv[1])
    told_before, rows = found(path) if path.is_dir() else written(path)
    began = time.perf_counter(), time.process_time()
    for one in told_before:
        read(*one)
    if "parse" not in sys.argv:
        with TemporaryDirectory() as folder:
            write(rows, Path(folder))
    told: dict[str, Any] = {"wall_s": time.perf_counter() - began[0]}
    told["cpu_s"] = time.process_time() - began[1]
    print(json.dumps(told | {"parts": {part: round(s, 3) for part, s in seconds.items()}}))


if __name__ == "__main__":
    main()
