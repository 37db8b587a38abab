"""TensorBoard event files as lines of JSON, one per value, in file order.

    {"tag": "throughput(tps)", "step": 10, "wall_time": 1795188127.787, "value": 7034.0}

So an event file is a log like any other: formats map tags to columns. Most lines are never written:
ingest.vector.tfevents_columns reads plain scalars as columns.

TensorBoard's own code reads the first value of a tag, and everything except plain scalars.
SummaryWriter's records of a tag differ only in time, step and value. numpy separates them, and
checks both CRCs of every record, for a window of the file at once.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core.arrays import Bytes, Floats, Ints, view_at_every_byte
from .messages import DAMAGED_EVENT_FILE, TENSORBOARD_EXTRA_MISSING

VERSION_RECORD_MARK: Final = b"brain.Event:"
"""Every event file begins with a version record."""

MAX_TEXT_CHARS: Final = 64 * 1024
"""Characters kept of a text value: a trainer's arguments, the config of a model."""

MAX_ARRAY_VALUES: Final = 2**20
"""Values of an array: a small record may claim any number of repeats of one value."""

READ_WINDOW_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a file per read; its columns take half as many, its lines twice."""

NO_TAG: Final = -1
MAX_SINGLY_WRITTEN_VALUES: Final = 64
"""Up to this number, values are written as lines one by one."""


def is_event_file(head: bytes) -> bool:
    """Return whether `head` (the first bytes of a file) begins an event file."""
    return VERSION_RECORD_MARK in head[:64]


@dataclass
class EventValues:
    """Values in the order of their file; every value is a line.

    tags: names; `tag` has their indices, NO_TAG for a value other than a plain scalar. Arrays have
    equal length; value: in single precision. others: index to line, for the other values.
    """

    tags: list[str]
    tag: Ints
    step: Ints
    wall_time: Floats
    value: NDArray[np.float32]
    others: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tag)

    def __getitem__(self, part: slice) -> EventValues:
        begin, end, _ = part.indices(len(self))
        values = self.of(part)
        values.others = {i - begin: text for i, text in self.others.items() if begin <= i < end}
        return values

    def of(self, indices: Ints | slice) -> EventValues:
        """Return some of the values, without the lines of `others`."""
        return EventValues(
            tags=self.tags,
            tag=self.tag[indices],
            step=self.step[indices],
            wall_time=self.wall_time[indices],
            value=self.value[indices],
        )

    def before(self, next_values: EventValues) -> EventValues:
        """Return these values followed by more values of the same file."""
        return EventValues(
            tags=self.tags,
            tag=np.concatenate([self.tag, next_values.tag]),
            step=np.concatenate([self.step, next_values.step]),
            wall_time=np.concatenate([self.wall_time, next_values.wall_time]),
            value=np.concatenate([self.value, next_values.value]),
            others=self.others | {i + len(self): text for i, text in next_values.others.items()},
        )

    @property
    def bytes(self) -> int:
        """Memory of the values [bytes]."""
        columns = (self.tag, self.step, self.wall_time, self.value)
        return sum(column.nbytes for column in columns) + sum(map(len, self.others.values()))

    @cached_property
    def texts(self) -> pl.Series:
        """Lines of the values, as json.dumps writes them."""
        few = len(self) <= MAX_SINGLY_WRITTEN_VALUES or not self.tags
        lines = pl.Series(self._each(), dtype=pl.String) if few else self._of_scalars()
        return (
            lines.scatter(list(self.others), list(self.others.values())) if self.others else lines
        )

    def _each(self) -> list[str]:
        """Return the lines of a few scalars, one by one: faster than in bulk."""
        columns = (self.tag.tolist(), self.step.tolist(), self.wall_time.tolist(), self.value)
        return [
            json.dumps(
                {"tag": self.tags[tag], "step": step, "wall_time": at, "value": _short(value)}
            )
            if tag != NO_TAG
            else ""
            for tag, step, at, value in zip(*columns, strict=True)
        ]

    def _of_scalars(self) -> pl.Series:
        lines = pl.concat_str(
            pl.Series(map(_begin, self.tags)).gather(pl.Series(np.maximum(self.tag, 0))),
            pl.Series(self.step).cast(pl.String),
            pl.lit(', "wall_time": '),
            format_floats(self.wall_time),
            pl.lit(', "value": '),
            format_floats(shortest_floats(self.value)),
            pl.lit("}"),
        )
        return pl.select(lines).to_series()


class TagSampler:
    """Sample values to detect a format: the first per tag, and all but plain scalars."""

    def __init__(self) -> None:
        self._seen = np.zeros(0, np.int64)

    def of(self, values: EventValues) -> list[slice]:
        """Return slices of values to look at, always with the last one.

        Call it in file order.
        """
        here = np.bincount(values.tag + 1, minlength=len(values.tags) + 1)
        before = np.pad(self._seen, (0, len(here) - len(self._seen)))
        self._seen = before + here
        self._seen[0] = 0
        sampled = np.zeros(len(values), bool)
        sampled[-1:] = True
        for tag in np.flatnonzero((here > 0) & (before < MAX_SAMPLED_VALUES)).tolist():
            of_tag = np.flatnonzero(values.tag == tag - 1)
            sampled[of_tag if tag == 0 else of_tag[: MAX_SAMPLED_VALUES - before[tag]]] = True
        edges = np.flatnonzero(np.diff(sampled, prepend=False, append=False)).tolist()
        return [slice(*edge) for edge in zip(edges[::2], edges[1::2], strict=True)]


MAX_SAMPLED_VALUES: Final = 64
"""Sampled values per tag."""


def _begin(tag: str) -> str:
    """Return the line of a tag's value up to the step."""
    return json.dumps({"tag": tag, "step": 0}).removesuffix("0}")


def shortest_floats(values: NDArray[np.float32]) -> Floats:
    """Return single-precision floats as float() reads their shortest digits."""
    return pl.Series(values).cast(pl.String).cast(pl.Float64).to_numpy()


def format_floats(floats: Floats) -> pl.Series:
    """Return floats as json.dumps writes them; Polars writes exponents differently."""
    texts = pl.Series(floats).cast(pl.String)
    size = np.abs(floats)
    odd = np.flatnonzero(~(((size >= 1e-4) & (size < 1e16)) | (size == 0.0)))  # noqa: PLR2004 - as repr does
    if not len(odd):
        return texts
    return texts.scatter(odd, [json.dumps(value) for value in floats[odd].tolist()])


def read_event_values(path: Path) -> Iterator[EventValues]:
    """Yield the values of an event file, many at once.

    Other values than numbers keep their kind and, for texts, the text. Reading stops at the first
    record that is cut off or damaged. Raises UnreadableSourceError if TensorBoard is not installed,
    or if a record is invalid.
    """
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

        other = _others_reader()
    except ImportError as error:
        raise TENSORBOARD_EXTRA_MISSING(path=path) from error
    reader = _Reader(other)
    try:
        for window in _windows(path):
            yield reader.values(window)
    except DecodeError as error:
        raise DAMAGED_EVENT_FILE(path=path, error=error) from error


# -- records of any kind, one by one ---------------------------------------------------------


def _others_reader() -> Any:  # noqa: ANN401 - of modules without types
    """Return a reader of single records by TensorBoard's own code. Raises ImportError."""
    from tensorboard import data_compat, dataclass_compat  # noqa: PLC0415 - an extra
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.util import tensor_util  # noqa: PLC0415 - an extra

    first_of_tags: dict[str, Any] = {}

    def read(record: bytes) -> Iterator[str]:
        """Yield the lines of a record, as EventFileLoader.Load does. Raises DecodeError."""
        now = data_compat.migrate_event(Event.FromString(record))
        for event in dataclass_compat.migrate_event(now, first_of_tags):
            for value in event.summary.value:
                line = {"tag": value.tag, "step": event.step, "wall_time": event.wall_time}
                shape = [dimension.size for dimension in value.tensor.tensor_shape.dim]
                array = None
                if math.prod(shape) <= MAX_ARRAY_VALUES:
                    with suppress(ValueError, TypeError):  # a type or shape unknown to numpy
                        array = tensor_util.make_ndarray(value.tensor)
                yield json.dumps(line | _value(array))

    return read


def _value(array: NDArray[Any] | None) -> dict[str, object]:
    if array is None or array.dtype.kind not in "OSUfiu":
        return {"kind": "other"}
    if array.dtype.kind in "OSU":
        first = array.ravel()[0] if array.size else b""
        text = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
        return {"kind": "text", "text": text[:MAX_TEXT_CHARS]}
    if array.size != 1:
        return {"kind": "array", "shape": list(array.shape)}
    return {"value": _short(array.ravel()[0])}


def _short(value: Any) -> float:  # noqa: ANN401 - a number of numpy
    """Return a number as float() reads its shortest digits."""
    return float(str(value))


# -- records of a file -----------------------------------------------------------------------

unpack_length = struct.Struct("<Q").unpack_from
LENGTH_BYTES, CRC_BYTES = 8, 4
RECORD_HEADER_BYTES: Final = LENGTH_BYTES + CRC_BYTES


class _Window(NamedTuple):
    """Whole records of a file: bytes, offsets of the records' data, and sizes [bytes]."""

    data: bytes
    begins: Ints
    sizes: Ints


def _windows(path: Path) -> Iterator[_Window]:
    """Yield the records up to the first that is cut off or damaged."""
    rest, before = b"", list[int]()
    with path.open("rb") as file:
        while block := file.read(max(READ_WINDOW_BYTES, len(rest))):  # a record may be larger
            rest += block
            begins, sizes, end, broken = _hop(rest, before)
            data = np.frombuffer(rest, np.uint8)
            good = _undamaged(data, begins, sizes)
            yield _Window(rest, begins[:good], sizes[:good])
            if broken or good < len(begins):
                return
            rest, before = rest[end:], sizes[-2 * MAX_PERIOD_RECORDS :].tolist()


MAX_PERIOD_RECORDS: Final = 256
"""Records after which sizes may repeat: every step writes the same tags."""


def _hop(data: bytes, before: list[int]) -> tuple[Ints, Ints, int, bool]:
    """Return offsets and sizes of the records, the end of the last, and `broken`.

    before: sizes of the records before `data`. broken: the next record is damaged. If sizes repeat,
    all records of the repeated sizes are skipped at once.
    """
    sizes, at, end = before.copy(), 0, len(data) - RECORD_HEADER_BYTES - CRC_BYTES
    enough = 2 * MAX_PERIOD_RECORDS
    while at <= end:
        if len(sizes) >= enough:
            alike = _periodic_sizes(data, at, _period(sizes[-2 * MAX_PERIOD_RECORDS :]))
            at += int((alike + RECORD_HEADER_BYTES + CRC_BYTES).sum())
            sizes += alike.tolist()
            enough = len(sizes) + 2 * MAX_PERIOD_RECORDS
            continue
        (size,) = unpack_length(data, at)
        if at + size > end:
            break
        sizes.append(size)
        at += RECORD_HEADER_BYTES + size + CRC_BYTES
    every = np.array(sizes[len(before) :], np.int64)
    begins = np.cumsum(every + RECORD_HEADER_BYTES + CRC_BYTES) - every - CRC_BYTES
    head = np.frombuffer(data, np.uint8, min(RECORD_HEADER_BYTES, len(data) - at), at)
    broken = (
        len(head) == RECORD_HEADER_BYTES
        and not _undamaged_part(head, np.zeros(1, np.int64), LENGTH_BYTES)[0]
    )
    return begins, every, at, broken


def _period(sizes: list[int]) -> list[int]:
    """Return the sizes of one period; empty if sizes do not repeat."""
    array = np.array(sizes)
    for count in range(1, MAX_PERIOD_RECORDS + 1):
        if array[count] == array[0] and (array[count:] == array[:-count]).all():
            return sizes[-count:]
    return []


def _periodic_sizes(data: bytes, offset: int, period: list[int]) -> Ints:
    """Return the sizes of records from `offset` on, as long as they repeat `period`."""
    whole = sum(period) + len(period) * (RECORD_HEADER_BYTES + CRC_BYTES)
    sizes = np.tile(np.array(period, np.int64), (len(data) - offset) // whole if whole else 0)
    begins = (
        offset
        + np.cumsum(sizes + RECORD_HEADER_BYTES + CRC_BYTES)
        - sizes
        - RECORD_HEADER_BYTES
        - CRC_BYTES
    )
    same = view_at_every_byte(data, np.dtype("<u8"))[begins] == sizes.astype(np.uint64)
    return sizes if same.all() else sizes[: int(np.argmin(same))]


def _undamaged(data: Bytes, begins: Ints, sizes: Ints) -> int:
    """Count the first records whose CRCs of length and data are right."""
    good = _undamaged_part(data, begins - RECORD_HEADER_BYTES, LENGTH_BYTES)
    for size in _different(sizes):
        alike = np.flatnonzero(sizes == size)
        good[alike] &= _undamaged_part(data, begins[alike], size)
    return int(np.argmin(good)) if not good.all() else len(good)


def _different(sizes: Ints) -> list[int]:
    """Return the distinct sizes."""
    if sizes.max(initial=0) > READ_WINDOW_BYTES:
        return list(np.unique(sizes).tolist())
    return list(np.flatnonzero(np.bincount(sizes)).tolist())


def _undamaged_part(data: Bytes, offsets: Ints, size: int) -> NDArray[np.bool_]:
    """Return whether the masked CRC-32C after `size` bytes at the offsets is right."""
    if size <= MAX_TABLED_BYTES:
        records = view_at_every_byte(data, np.dtype(f"V{size + CRC_BYTES}"))[offsets]
        columns = np.ascontiguousarray(
            records.view(np.uint8).reshape(len(offsets), size + CRC_BYTES).T
        )
        crc = np.full(len(offsets), _crc_of_zeros(size), np.uint32)
        for column in range(size):
            crc ^= _crc_before(size - 1 - column)[columns[column]]
    else:
        crc = np.full(len(offsets), _OF_NOTHING, np.uint32)
        table = _crc_before(0)
        for column in range(size):
            crc = table[(crc ^ data[offsets + column]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    return np.asarray(masked == view_at_every_byte(data, np.dtype("<u4"))[offsets + size])


_OF_NOTHING: Final = 0xFFFFFFFF
_POLYNOMIAL: Final = 0x82F63B78
MAX_TABLED_BYTES: Final = 512
"""Bytes of a record up to which every position has a table."""


@cache
def _crc_before(zeros: int) -> NDArray[np.uint32]:
    """Return the part of a CRC-32C that a byte value adds, if `zeros` bytes follow."""
    if not zeros:
        table = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
        return table.astype(np.uint32)
    before, first = _crc_before(zeros - 1), _crc_before(0)
    return np.asarray(first[before & 0xFF] ^ (before >> np.uint32(8)), np.uint32)


@cache
def _crc_of_zeros(size: int) -> int:
    """Return the CRC-32C of `size` zero bytes, before the final inversion."""
    crc = _OF_NOTHING
    for _ in range(size):
        crc = int(_crc_before(0)[crc & 0xFF]) ^ crc >> 8
    return crc


# -- plain scalars, many at once -------------------------------------------------------------

WALL_TIME_FIELD, STEP_FIELD, SUMMARY_FIELD, VALUE_FIELD, TAG_FIELD, SIMPLE_VALUE_FIELD = (
    0x09,
    0x10,
    0x2A,
    0x0A,
    0x0A,
    0x15,
)
"""Fields of an event and its parts, as protobuf numbers them: with the kind of what follows."""
STEP_DIGITS_OFFSET: Final = 1 + 8 + 1
"""Bytes before the digits of a step: wall time and the keys of both fields."""
MAX_STEP_DIGITS: Final = 8
"""Digits of a step that are read here; TensorBoard reads longer ones."""
MAX_LEARNED_TAGS: Final = 2_000
"""Tags recognized by their bytes."""


class _Scalars(NamedTuple):
    """Records of one tag and length: step, `middle`, value.

    digits: bytes of the step. tag: index of the tag.
    """

    digits: int
    middle: bytes
    tag: int


@dataclass
class _Reader:
    """Reader of one file's windows, in order. other: reads a record of any kind."""

    other: Any
    known: dict[int, list[_Scalars]] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)

    def values(self, window: _Window) -> EventValues:
        """Return the values of all records of a window."""
        data = np.frombuffer(window.data, np.uint8)
        count = len(window.sizes)
        values = EventValues(
            self.tags,
            np.full(count, NO_TAG),
            np.zeros(count, np.int64),
            np.zeros(count),
            np.zeros(count, np.float32),
        )
        others: dict[int, list[str]] = {}
        for size in _different(window.sizes):
            known = self.known.setdefault(size, [])
            left = np.flatnonzero(window.sizes == size)
            for scalars in known:
                left = _read_scalars(scalars, data, window, left, values)
            while len(left):
                first, left = int(left[0]), left[1:]
                begin = int(window.begins[first])
                record = window.data[begin : begin + size]
                others[first] = lines = list(self.other(record))
                new = self._learned(record, lines)
                if new is not None:
                    known.append(new)
                    left = _read_scalars(new, data, window, left, values)
        return _with_others(values, others)

    def _learned(self, record: bytes, lines: list[str]) -> _Scalars | None:
        """Return the layout of records with this record's tag; None if not a plain scalar."""
        tag = _tag_of_scalar(record)
        if tag is None or len(lines) != 1:
            return None
        if not lines[0].startswith(_begin(tag)):
            return None
        if tag not in self.tags:
            if len(self.tags) >= MAX_LEARNED_TAGS:
                return None
            self.tags.append(tag)
        digits = _length_of_varint(record, STEP_DIGITS_OFFSET)
        return _Scalars(digits, record[STEP_DIGITS_OFFSET + digits : -4], self.tags.index(tag))


def _with_others(values: EventValues, others: dict[int, list[str]]) -> EventValues:
    """Return one value per record.

    A record in `others` has any number of lines instead.
    """
    if not others:
        return values
    counts = np.ones(len(values), np.int64)
    records = sorted(others)
    counts[records] = [len(others[record]) for record in records]
    begins = np.cumsum(counts) - counts
    every = values.of(np.repeat(np.arange(len(values)), counts))
    for record in records:
        for index, text in enumerate(others[record], int(begins[record])):
            every.others[index] = text
            every.step[index] = json.loads(text)["step"]
    return every


def _tag_of_scalar(record: bytes) -> str | None:
    """Return the tag of an event with just a time, a step and a plain value, in order."""
    if (
        len(record) < STEP_DIGITS_OFFSET + 8
        or record[0] != WALL_TIME_FIELD
        or record[STEP_DIGITS_OFFSET - 1] != STEP_FIELD
    ):
        return None
    offset = STEP_DIGITS_OFFSET + _length_of_varint(record, STEP_DIGITS_OFFSET)
    for number, behind in ((SUMMARY_FIELD, 0), (VALUE_FIELD, 0), (TAG_FIELD, 5)):
        if record[offset : offset + 1] != bytes([number]):
            return None
        size, after = _varint(record, offset + 1)
        if after + size + behind != len(record):
            return None
        offset = after
    if record[-5] != SIMPLE_VALUE_FIELD:
        return None
    with suppress(UnicodeDecodeError):
        return record[offset:-5].decode()
    return None


def _varint(record: bytes, offset: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and the offset of its end."""
    size = _length_of_varint(record, offset)
    digits = record[offset : offset + size]
    return sum((byte & 0x7F) << 7 * digit for digit, byte in enumerate(digits)), offset + size


def _length_of_varint(record: bytes, offset: int) -> int:
    return next((n for n, byte in enumerate(record[offset:], 1) if byte < 0x80), 1)  # noqa: PLR2004


def _read_scalars(
    scalars: _Scalars, data: Bytes, window: _Window, left: Ints, values: EventValues
) -> Ints:
    """Fill `values` from the records in `left` with this layout; return the others."""
    if scalars.digits > MAX_STEP_DIGITS:
        return left
    begins = window.begins[left]
    kind = np.dtype(f"V{len(scalars.middle)}")
    good = (data[begins] == WALL_TIME_FIELD) & (data[begins + STEP_DIGITS_OFFSET - 1] == STEP_FIELD)
    middle = begins + STEP_DIGITS_OFFSET + scalars.digits
    good &= view_at_every_byte(window.data, kind)[middle] == np.frombuffer(scalars.middle, kind)
    step = np.zeros(len(left), np.int64)
    for digit in range(scalars.digits):
        byte = data[begins + STEP_DIGITS_OFFSET + digit]
        is_last = digit == scalars.digits - 1
        good &= (byte < 0x80) == is_last  # noqa: PLR2004 - the last has no 8th bit
        step |= (byte & 0x7F).astype(np.int64) << 7 * digit
    matching = np.flatnonzero(good)
    records = left[matching]
    values.tag[records] = scalars.tag
    values.step[records] = step[matching]
    values.wall_time[records] = view_at_every_byte(window.data, np.dtype("<f8"))[
        begins[matching] + 1
    ]
    values.value[records] = view_at_every_byte(window.data, np.dtype("<f4"))[
        middle[matching] + len(scalars.middle)
    ]
    return np.asarray(left[~good], np.int64)
