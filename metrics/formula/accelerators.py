"""Dense peaks of accelerators, by printed or typed names.

accelerators.toml contains the table and defines a peak. Names match as a whole, never in part:
"A100" is not "A1000", "L4" is not "L40S", and "H20" is not "H200". Case, order, hyphens, form and
capacity may be spelt otherwise (metrics.formula.accelerator_spelling). A name that may mean several
accelerators, or none, is an error with the nearest names, never a fallback.

A user adds accelerators, or replaces rows of the table, with a TOML file with the same keys
(`load_overlay`):

    [[accelerator]]
    name = "ACME X1"
    unit = "GPU"
    source = "data sheet of 2026-03, dense"
    names = ["X1-80GB"]
    peaks = { fp32 = 60e12, bf16 = 800e12, fp8 = 1600e12 }

Errors:

    UnknownAcceleratorError (LookupError)
    AmbiguousAcceleratorError (UnknownAcceleratorError)
    OverlayError (ValueError)

`messages.py` has their kinds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, cast, get_args

from fairmfu.ingest.core.data_files import read_data_file
from fairmfu.ingest.core.toml_reader import parse_toml

from . import messages
from .accelerator_spelling import Spelling, includes, is_other_kind, matches, spelling
from .messages import AmbiguousAcceleratorError, OverlayError, UnknownAcceleratorError
from .terms import Dtype

__all__ = [
    "Accelerator",
    "AmbiguousAcceleratorError",
    "OverlayError",
    "UnknownAcceleratorError",
    "accelerator_names",
    "accelerator_note",
    "all_accelerators",
    "buildable_accelerators",
    "explain_missing_peak",
    "find_accelerator",
    "load_overlay",
    "normalise_name",
    "peak_source",
    "source_references",
]

Confidence = Literal["high", "medium", "low"]
"""high: data sheet or clock times units; medium: one source; low: sources differ or no source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Accelerator with its dense peaks.

    unit: the unit of the peaks: GPU, GCD, chip, core, …
    peaks: dense FLOP/s of one unit, by precision; a missing precision has no known peak
    source, confidence: origin of the numbers, and their reliability
    note: anything else to know about the numbers
    names: other names that `find_accelerator` accepts, as printed or typed
    """

    name: str
    unit: str
    peaks: Mapping[Dtype, float]
    source: str
    confidence: Confidence
    note: str = ""
    names: tuple[str, ...] = ()


def find_accelerator(name: str, overlay: Sequence[Accelerator] = ()) -> Accelerator:
    """Return the accelerator with this name, as a framework prints or a user types it.

    overlay: a user's rows (`load_overlay`), searched before the table

    Raises UnknownAcceleratorError, AmbiguousAcceleratorError.
    """
    wanted, typed = normalise_name(name), spelling(name)
    overlaid = dict(_named(overlay))
    if wanted in overlaid:
        return overlaid[wanted]
    own = [row for row in overlay if matches(typed, _spellings(row))]
    if own:
        return _only_one(name, own)
    if wanted in _row_indices():
        return _built(_row_indices()[wanted])
    alike = [index for index, names in enumerate(_table_spellings()) if matches(typed, names)]
    if not alike:
        raise _unresolved(name, overlay)
    return _only_one(name, [_built(index) for index in alike])


def _only_one(name: str, rows: Sequence[Accelerator]) -> Accelerator:
    if len(rows) > 1:
        raise _ambiguous(name, [row.name for row in rows])
    return rows[0]


def _unresolved(name: str, overlay: Sequence[Accelerator]) -> UnknownAcceleratorError:
    """Return the error of an unresolved name, with candidates."""
    rows = [(row.name, _spellings(row)) for row in overlay]
    rows += zip(accelerator_names(), _table_spellings(), strict=True)
    typed = spelling(name)
    if known := [row for row, names in rows if is_other_kind(typed, names)]:
        return _unknown(name, known[:MAX_CANDIDATES])
    if meant := [row for row, names in rows if includes(typed, names)]:
        return _ambiguous(name, meant[:MAX_CANDIDATES])
    table_names = accelerator_names()
    names = {key: table_names[row] for key, row in _row_indices().items()}
    names |= {key: accelerator.name for key, accelerator in _named(overlay)}
    near = difflib.get_close_matches(normalise_name(name), names, n=3)
    return _unknown(name, list(dict.fromkeys(names[key] for key in near)))


MAX_CANDIDATES: Final = 6
"""Most accelerators that the error of an unknown or ambiguous name lists."""


def _unknown(name: str, nearest: list[str]) -> UnknownAcceleratorError:
    hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
    error = messages.UNKNOWN_ACCELERATOR(name=name, hint=hint)
    error.name, error.nearest = name, nearest
    return error


def _ambiguous(name: str, nearest: list[str]) -> AmbiguousAcceleratorError:
    error = messages.AMBIGUOUS_ACCELERATOR(name=name, names=", ".join(nearest))
    error.name, error.nearest = name, nearest
    return error


def peak_source(accelerator: Accelerator, dtypes: Iterable[Dtype]) -> str | None:
    """Describe an accelerator's peaks for these precisions, with their source.

    `NVIDIA H20: dense bf16 148 TFLOP/s per GPU; confidence medium; source: …; note: …`. None if a
    precision has no peak.
    """
    peaks = [(name, accelerator.peaks.get(name)) for name in dict.fromkeys(dtypes)]
    said = [f"{name} {peak / 1e12:,g}" for name, peak in peaks if peak is not None]
    if not said or len(said) < len(peaks):
        return None
    note = f"; note: {accelerator.note.rstrip('.')}" if accelerator.note else ""
    return (
        f"{accelerator.name}: dense {' and '.join(said)} TFLOP/s per {accelerator.unit}; "
        f"confidence {accelerator.confidence}; source: {_spelt_out(accelerator)}{note}"
    )


def accelerator_note(name: str | None, overlay: Sequence[Accelerator] = ()) -> str:
    """Return an accelerator's note as a clause, empty without one."""
    try:
        device = find_accelerator(name or "", overlay)
    except UnknownAcceleratorError:
        return ""
    return f"{device.name}: {device.note.rstrip('.')}" if device.note else ""


def explain_missing_peak(
    error: ValueError, name: str | None, overlay: Sequence[Accelerator] = ()
) -> ValueError:
    """Return the error of a missing peak with the accelerator's note, if it has one."""
    note = accelerator_note(name, overlay)
    if not note or getattr(error, "kind", "") != messages.NO_PEAK.identifier:
        return error
    return messages.NO_PUBLISHED_PEAK(reason=str(error).partition(" Fix: ")[0], note=note)


def _spelt_out(accelerator: Accelerator) -> str:
    """Return the source of a row with its short names spelt out.

    A user's row keeps the user's words.
    """
    if accelerator not in buildable_accelerators():
        return accelerator.source
    spelt = source_references()
    short = re.compile(rf"\b({'|'.join(spelt)})\b")
    return short.sub(lambda name: f"{name[0]} ({spelt[name[0]]})", accelerator.source)


def all_accelerators() -> tuple[Accelerator, ...]:
    """Return every accelerator, in the order of the support table."""
    return tuple(map(_built, range(len(_table()))))


def accelerator_names() -> tuple[str, ...]:
    """Return the names of all accelerators in the order of the support table.

    Builds no row.
    """
    return tuple(row["name"] for row in _table())


@cache
def buildable_accelerators() -> tuple[Accelerator, ...]:
    """Return every accelerator whose row can be built.

    Invalid rows are skipped: no run could use a peak of theirs.
    """
    built = []
    for row_index in range(len(_table())):
        with suppress(Exception):
            built.append(_built(row_index))
    return tuple(built)


_VENDORS = re.compile(r"\b(?:nvidia|amd|intel|huawei|google|aws)\b")


def normalise_name(name: str) -> str:
    """Return the name in lower case, without vendor, (R), (TM) and blanks."""
    bare = re.sub(r"\((?:r|tm)\)|[®™]", " ", name.lower())
    return re.sub(r"\s+", "", _VENDORS.sub(" ", bare))


def _named(rows: Sequence[Accelerator]) -> Iterator[tuple[str, Accelerator]]:
    for accelerator in rows:
        for name in (accelerator.name, *accelerator.names):
            yield normalise_name(name), accelerator


# --- the table ------------------------------------------------------------------------------

_Row = Mapping[str, Any]
"""A row as read from TOML, unchecked."""


def source_references() -> Mapping[str, str]:
    """Return the short names of sources in the table, with their full names."""
    return cast("Mapping[str, str]", _data()["sources"])


def _data() -> Mapping[str, Any]:
    return read_data_file(__package__, "accelerators.toml")


def _table() -> Sequence[_Row]:
    """Return the table's rows; builds none."""
    return cast("Sequence[_Row]", _data()["accelerator"])


@cache
def _row_indices() -> Mapping[str, int]:
    """Index the table's rows by normalised name; builds no row."""
    return {
        normalise_name(name): index
        for index, row in enumerate(_table())
        for name in (row["name"], *row.get("names", ()))
    }


@cache
def _table_spellings() -> tuple[tuple[Spelling, ...], ...]:
    """Return the spellings of the names of each row; builds no row."""
    return tuple(tuple(map(spelling, (row["name"], *row.get("names", ())))) for row in _table())


def _spellings(row: Accelerator) -> tuple[Spelling, ...]:
    return tuple(map(spelling, (row.name, *row.names)))


@cache
def _built(row_index: int) -> Accelerator:
    """Build one row of the table, once.

    A test builds all rows, so no row is invalid.
    """
    return _accelerator(_table()[row_index], row_index + 1)


# --- a user's own rows ----------------------------------------------------------------------

_DTYPES: tuple[Dtype, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
_KEYS = ("name", "unit", "peaks", "source", "confidence", "note", "names")
_LEAST_PEAK = 1e9
"""Least peak [FLOP/s]: every accelerator is faster, so a smaller number is TFLOP/s by mistake."""
_MOST_PEAK = 1e24
"""Largest peak [FLOP/s]: every accelerator is slower."""


def load_overlay(text: str) -> tuple[Accelerator, ...]:
    """Read a user's accelerators from the text of a TOML file; see this module's head.

    Required: name, unit, peaks (dense FLOP/s by precision), source. Optional: names, note, and
    confidence, `medium` (one source) by default.

    Raises OverlayError for text that is not TOML, unknown, missing or malformed keys, and a name
    given twice.
    """
    try:
        document = parse_toml(text)
        repr(document)  # raises on a number too long for any message
    except (ValueError, RecursionError) as error:
        raise messages.ACCELERATORS_NOT_TOML(error=error) from None
    _only(document, ("accelerator",), "the accelerators file")
    rows = document.get("accelerator")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise messages.NO_ACCELERATOR_TABLE()  # noqa: RSE102 - a kind
    overlay = tuple(_accelerator(row, number) for number, row in enumerate(rows, start=1))
    seen: dict[str, Accelerator] = {}
    for name, row in _named(overlay):
        if seen.setdefault(name, row) is not row:
            raise messages.ACCELERATOR_NAME_TAKEN(name=row.name, other=seen[name].name, shared=name)
    return overlay


def _accelerator(row: _Row, number: int) -> Accelerator:
    where = f"[[accelerator]] {row.get('name') or f'number {number}'}"
    _only(row, _KEYS, where)
    confidence = row.get("confidence", "medium")
    if confidence not in get_args(Confidence):
        raise messages.ACCELERATOR_KEY_MALFORMED(
            where=where, key="confidence", value=confidence, wanted="high, medium or low"
        )
    names = row.get("names", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise messages.ACCELERATOR_KEY_MALFORMED(
            where=where, key="names", value=names, wanted="a list of names"
        )
    return Accelerator(
        name=_text(row, "name", where),
        unit=_text(row, "unit", where),
        peaks=_peaks(row.get("peaks"), where),
        source=_text(row, "source", where),
        confidence=cast("Confidence", confidence),
        note=_text(row, "note", where) if "note" in row else "",
        names=tuple(names),
    )


def _peaks(peaks: object, where: str) -> Mapping[Dtype, float]:
    if not isinstance(peaks, dict) or not peaks:
        raise messages.ACCELERATOR_KEY_MISSING(
            where=where, key="peaks", example="peaks = { bf16 = 989.4e12 }, in dense FLOP/s"
        )
    _only(peaks, _DTYPES, f"peaks of {where}")
    for dtype, peak in peaks.items():
        if isinstance(peak, bool) or not isinstance(peak, int | float) or peak != peak:  # noqa: PLR0124
            raise messages.ACCELERATOR_KEY_MALFORMED(
                where=f"peaks of {where}", key=dtype, value=peak, wanted="a number"
            )
        said = float("inf") if peak > _MOST_PEAK else peak  # a larger integer may not fit a float
        if not _LEAST_PEAK <= peak <= _MOST_PEAK:
            raise messages.IMPOSSIBLE_PEAK(where=where, precision=dtype, peak=said)
    return {dtype: float(peaks[dtype]) for dtype in _DTYPES if dtype in peaks}


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if value is None:
        raise messages.ACCELERATOR_KEY_MISSING(where=where, key=key, example=f'{key} = "…"')
    if not isinstance(value, str) or not value.strip():
        raise messages.ACCELERATOR_KEY_MALFORMED(where=where, key=key, value=value, wanted="a text")
    return value


def _only(values: Mapping[str, object], allowed_keys: Sequence[str], where: str) -> None:
    for key in values:
        if key not in allowed_keys:
            near = difflib.get_close_matches(key, allowed_keys, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            keys = ", ".join(allowed_keys)
            raise messages.ACCELERATOR_KEY_UNKNOWN(where=where, key=key, hint=hint, keys=keys)
