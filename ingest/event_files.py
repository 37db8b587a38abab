"""TensorBoard event files as lines of JSON, one for each value, in the order of the file.

    {"tag": "throughput(tps)", "step": 10, "wall_time": 1795188127.787, "value": 7034.0}

So an event file is a log like any other: its formats say which tag fills which column.

TensorBoard's own code reads the first value of each tag, and all that is no plain scalar. Records
of the same bytes but for time, step and value, as SummaryWriter makes them, are told from each
other and from damage (both CRCs of each) with numpy, a window of the file at once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ingest.errors import UnreadableSourceError

FIRST_RECORD: Final = b"brain.Event:"
"""Every event file begins with a record of its version."""

LONGEST_TEXT: Final = 64 * 1024
"""Characters kept of a text value: a trainer's arguments, the config of its model."""

WINDOW: Final = 1024 * 1024
"""Bytes of a file that are read at once; its lines take about twice as many."""

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def is_event_file(head: bytes) -> bool:
    """Whether `head` (the first bytes of a file) begins an event file."""
    return FIRST_RECORD in head[:64]


def event_lines(path: Path) -> Iterator[pl.Series]:
    """JSON objects for the values of an event file, many at once, floats in their shortest form.

    Values that are no number keep their kind and, where they are text, the text. Records behind one
    that is cut off or damaged are not read. Raises UnreadableSourceError where TensorBoard is not
    installed, or a record is none.
    """
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

        other = _others_reader()
    except ImportError as error:
        raise UnreadableSourceError(
            f"{path}: a TensorBoard event file; reading it needs an extra: "
            "pip install 'fairmfu[tensorboard]'."
        ) from error
    reader = _Reader(other)
    try:
        for window in _windows(path):
            yield reader.lines(window)
    except DecodeError as error:
        raise UnreadableSourceError(
            f"{path}: a damaged TensorBoard event file ({error}). Nothing of it was stored; copy "
            "it again."
        ) from error


# -- records of any kind, one by one ---------------------------------------------------------


def _others_reader() -> Any:  # noqa: ANN401 - of modules without types
    """What reads a record by TensorBoard's own code. Raises ImportError."""
    from tensorboard import data_compat, dataclass_compat  # noqa: PLC0415 - an extra
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.util import tensor_util  # noqa: PLC0415 - an extra

    first_of_tags: dict[str, Any] = {}

    def read(record: bytes) -> Iterator[str]:
        """As EventFileLoader.Load does it. Raises DecodeError."""
        now = data_compat.migrate_event(Event.FromString(record))
        for event in dataclass_compat.migrate_event(now, first_of_tags):
            for value in event.summary.value:
                array = None
                with suppress(ValueError, TypeError):  # a type or shape that numpy has not
                    array = tensor_util.make_ndarray(value.tensor)
                said = {"tag": value.tag, "step": event.step, "wall_time": event.wall_time}
                yield json.dumps(said | _value(array))

    return read


def _value(array: NDArray[Any] | None) -> dict[str, object]:
    if array is None or array.dtype.kind not in "OSUfiu":
        return {"kind": "other"}
    if array.dtype.kind in "OSU":
        first = array.ravel()[0] if array.size else b""
        text = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
        return {"kind": "text", "text": text[:LONGEST_TEXT]}
    if array.size != 1:
        return {"kind": "array", "shape": list(array.shape)}
    return {"value": float(str(array.ravel()[0]))}


# -- records of a file -----------------------------------------------------------------------

length_at = struct.Struct("<Q").unpack_from
LENGTH, CRC = 8, 4
HEAD: Final = LENGTH + CRC


class _Window(NamedTuple):
    """Whole records of a file: its bytes, and where the data of each begins and how long it is."""

    data: bytes
    begins: Ints
    sizes: Ints


def _windows(path: Path) -> Iterator[_Window]:
    """The records up to the first that is cut off, or whose bytes have changed since."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(max(WINDOW, len(rest))):  # a record may be larger
            rest += block
            begins, sizes, end, broken = _hop(rest)
            data = np.frombuffer(rest, np.uint8)
            good = _undamaged(data, begins, sizes)
            yield _Window(rest, begins[:good], sizes[:good])
            if broken or good < len(begins):
                return
            rest = rest[end:]


def _hop(data: bytes) -> tuple[Ints, Ints, int, bool]:
    """From record to record by their lengths; where the rest begins, and whether it is damaged."""
    begins, at, end = [], 0, len(data) - HEAD - CRC
    while at <= end:
        (size,) = length_at(data, at)
        if at + size > end:
            break
        begins.append(at)
        at += HEAD + size + CRC
    first = np.array(begins, np.int64)
    sizes = np.diff(np.append(first, at)) - HEAD - CRC
    head = np.frombuffer(data, np.uint8, min(HEAD, len(data) - at), at)
    broken = len(head) == HEAD and not _undamaged_part(head, np.zeros(1, np.int64), LENGTH)[0]
    return first + HEAD, sizes, at, broken


def _undamaged(data: Bytes, begins: Ints, sizes: Ints) -> int:
    """How many records, from the first on, have the CRCs of their length and of their data."""
    good = _undamaged_part(data, begins - HEAD, LENGTH)
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        good[alike] &= _undamaged_part(data, begins[alike], size)
    return int(np.argmin(good)) if not good.all() else len(good)


def _undamaged_part(data: Bytes, at: Ints, size: int) -> NDArray[np.bool_]:
    """Whether the masked CRC-32C behind `size` bytes at each place is theirs."""
    crc = np.full(len(at), _OF_NOTHING, np.uint32)
    if size <= TABLES:
        crc[:] = _crc_of_zeros(size)
        for place in range(size):
            crc ^= _crc_before(size - 1 - place)[data[at + place]]
    else:
        table = _crc_before(0)
        for place in range(size):
            crc = table[(crc ^ data[at + place]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    said = np.zeros(len(at), np.uint32)
    for place in range(CRC):
        said |= data[at + size + place].astype(np.uint32) << np.uint32(8 * place)
    return np.asarray(masked == said)


_OF_NOTHING: Final = 0xFFFFFFFF
_POLYNOMIAL: Final = 0x82F63B78
TABLES: Final = 512
"""Bytes of a record up to which there are tables for each place."""


@cache
def _crc_before(zeros: int) -> NDArray[np.uint32]:
    """What each byte adds to a CRC-32C of a text in which so many bytes stand behind it."""
    if not zeros:
        table = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
        return table.astype(np.uint32)
    before, first = _crc_before(zeros - 1), _crc_before(0)
    return np.asarray(first[before & 0xFF] ^ (before >> np.uint32(8)), np.uint32)


@cache
def _crc_of_zeros(size: int) -> int:
    """The CRC-32C, not yet inverted, of so many zero bytes."""
    crc = _OF_NOTHING
    for _ in range(size):
        crc = int(_crc_before(0)[crc & 0xFF]) ^ crc >> 8
    return crc


# -- plain scalars, many at once -------------------------------------------------------------

WALL_TIME, STEP, SUMMARY, VALUE, TAG, SIMPLE = 0x09, 0x10, 0x2A, 0x0A, 0x0A, 0x15
"""Fields of an event and its parts, as protobuf numbers them: with the kind of what follows."""
AT_STEP: Final = 1 + 8 + 1
"""Bytes before the digits of a step: wall time and both fields' numbers."""
MOST_DIGITS: Final = 8
"""Of a step; more are left to TensorBoard."""
MOST_TAGS: Final = 2_000
"""Of which one is told from the others by its bytes."""


class _Scalars(NamedTuple):
    """Records of one tag and length: `digits` bytes of the step, `middle`, and the value.

    tag: its number.
    """

    digits: int
    middle: bytes
    tag: int


@dataclass
class _Reader:
    """Reads the windows of one file in their order. other: reads a record of any kind."""

    other: Any
    known: dict[int, list[_Scalars]] = field(default_factory=dict)
    begins: list[str] = field(default_factory=list)

    def lines(self, window: _Window) -> pl.Series:
        """The lines of all records of a window."""
        data = np.frombuffer(window.data, np.uint8)
        parts: list[tuple[Ints, pl.DataFrame]] = []
        others: list[tuple[int, str]] = []
        for size in np.unique(window.sizes).tolist():
            known = self.known.setdefault(size, [])
            left = np.flatnonzero(window.sizes == size)
            for scalars in known:
                left = _taken(scalars, data, window, left, parts)
            while len(left):
                first, left = int(left[0]), left[1:]
                begin = int(window.begins[first])
                record = window.data[begin : begin + size]
                said = list(self.other(record))
                others += [(first, text) for text in said]
                new = self._learned(record, said)
                if new is not None:
                    known.append(new)
                    left = _taken(new, data, window, left, parts)
        frames = [frame for _, frame in parts]
        texts = [_texts(pl.concat(frames), self.begins)] if frames else []
        texts.append(pl.Series([text for _, text in others], dtype=pl.String))
        alone = np.array([place for place, _ in others], np.int64)
        order = np.argsort(np.concatenate([*(places for places, _ in parts), alone]), kind="stable")
        return pl.concat(texts)[order]

    def _learned(self, record: bytes, said: list[str]) -> _Scalars | None:
        """What records of the same tag look like, if this one is a plain scalar."""
        tag = _tag_of_scalar(record)
        if tag is None or len(said) != 1 or len(self.begins) >= MOST_TAGS:
            return None
        begin = json.dumps({"tag": tag, "step": 0}).removesuffix("0}")
        if not said[0].startswith(begin):
            return None
        self.begins.append(begin)
        digits = _length_of_varint(record, AT_STEP)
        return _Scalars(digits, record[AT_STEP + digits : -4], len(self.begins) - 1)


def _tag_of_scalar(record: bytes) -> str | None:
    """The tag of an event of a time, a step and one plain value, in this order and nothing else."""
    if len(record) < AT_STEP + 8 or record[0] != WALL_TIME or record[AT_STEP - 1] != STEP:
        return None
    at = AT_STEP + _length_of_varint(record, AT_STEP)
    for number, behind in ((SUMMARY, 0), (VALUE, 0), (TAG, 5)):
        if record[at : at + 1] != bytes([number]):
            return None
        size, after = _varint(record, at + 1)
        if after + size + behind != len(record):
            return None
        at = after
    if record[-5] != SIMPLE:
        return None
    with suppress(UnicodeDecodeError):
        return record[at:-5].decode()
    return None


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    size = _length_of_varint(record, at)
    digits = record[at : at + size]
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(digits)), at + size


def _length_of_varint(record: bytes, at: int) -> int:
    return next((n for n, byte in enumerate(record[at:], 1) if byte < 0x80), 1)  # noqa: PLR2004


def _taken(
    one: _Scalars, data: Bytes, window: _Window, left: Ints, parts: list[tuple[Ints, pl.DataFrame]]
) -> Ints:
    """Adds to `parts` those of the records `left` that are of a tag; which are left then."""
    if one.digits > MOST_DIGITS:
        return left
    begins = window.begins[left]
    kind = np.dtype(f"V{len(one.middle)}")
    good = (data[begins] == WALL_TIME) & (data[begins + AT_STEP - 1] == STEP)
    at = begins + AT_STEP + one.digits
    good &= _items(window.data, kind)[at] == np.frombuffer(one.middle, kind)
    step = np.zeros(len(left), np.int64)
    for place in range(one.digits):
        byte = data[begins + AT_STEP + place]
        good &= (byte < 0x80) == (place == one.digits - 1)  # noqa: PLR2004 - the last has no 8th bit
        step |= (byte & 0x7F).astype(np.int64) << 7 * place
    mine = np.flatnonzero(good)
    frame = pl.DataFrame(
        {
            "tag": np.full(len(mine), one.tag, np.int64),
            "step": step[mine],
            "wall_time": _items(window.data, np.dtype("<f8"))[begins[mine] + 1],
            "value": _items(window.data, np.dtype("<f4"))[at[mine] + len(one.middle)],
        }
    )
    parts.append((left[mine], frame))
    return np.asarray(left[~good], np.int64)


def _items(data: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """Items of that kind at every byte; they overlap."""
    return np.ndarray((max(0, len(data) - kind.itemsize + 1),), kind, data, 0, (1,))


def _texts(scalars: pl.DataFrame, begins: list[str]) -> pl.Series:
    """Lines as json.dumps writes them: of a float in single precision its shortest digits."""
    values = scalars["value"].cast(pl.String).cast(pl.Float64)
    said = pl.concat_str(
        pl.Series(begins).gather(scalars["tag"]),
        scalars["step"].cast(pl.String),
        pl.lit(', "wall_time": '),
        _as_json(scalars["wall_time"]),
        pl.lit(', "value": '),
        _as_json(values),
        pl.lit("}"),
    )
    return pl.select(said).to_series()


def _as_json(floats: pl.Series) -> pl.Series:
    """As json.dumps writes them; Polars differs in those with an exponent."""
    texts = floats.cast(pl.String)
    size = floats.abs()
    plain = ((size >= 1e-4) & (size < 1e16)) | (size == 0.0)  # noqa: PLR2004 - as repr does
    odd = np.flatnonzero(~plain.to_numpy())
    if not len(odd):
        return texts
    return texts.scatter(odd, [json.dumps(value) for value in floats.gather(odd).to_list()])
