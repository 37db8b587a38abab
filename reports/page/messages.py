"""Errors of charts by name, and of the files of a report."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class NotDrawnError(FairmfuError, ValueError):
    """There is no such chart, or nothing to draw; the message names the missing data."""


class UnknownKindError(FairmfuError, ValueError):
    """A report has no such format."""


UNKNOWN_CHART: Final = ErrorKind(
    "unknown-chart",
    "Unknown chart: {name!r}.{hint}",
    "A chart is named that does not exist.",
    NotDrawnError,
    fix="list all with: fairmfu chart --list",
)
STORE_WITHOUT_RUNS: Final = ErrorKind(
    "store-without-runs",
    "The store has no runs.",
    "A chart or an export is asked for, and the store is empty.",
    NotDrawnError,
    fix="read logs first: fairmfu ingest LOG…",
)
CHART_OF_ONE_RUN: Final = ErrorKind(
    "chart-of-one-run",
    "{chart} shows one run, and there are {count:,}.",
    "A chart of one run is asked for, and no run is named.",
    NotDrawnError,
    fix="give one as RUN: {labels}{more}",
)
NOTHING_TO_DRAW: Final = ErrorKind(
    "nothing-to-draw",
    "{chart}: nothing to draw. It needs {needs}{reason}",
    "The runs lack the data of a chart.",
    NotDrawnError,
    fix="{fix}",
)
UNKNOWN_CONVENTION: Final = ErrorKind(
    "unknown-convention",
    "{name}={value!r} is unknown.",
    "A Python call draws a chart with an unknown convention.",
    NotDrawnError,
    fix="give {choices}",
)
UNKNOWN_CHART_SUFFIX: Final = ErrorKind(
    "unknown-chart-suffix",
    "{out}: the suffix must be one of {suffixes}.",
    "The file of a chart has an unknown suffix.",
    NotDrawnError,
    fix="rename --out",
)
SUFFIX_CONTRADICTS: Final = ErrorKind(
    "suffix-contradicts",
    "{out}: suffix .{suffix} contradicts --format {format}.",
    "The suffix of a report's file is that of another format.",
    UnknownKindError,
    fix="omit --format",
)
UNKNOWN_REPORT_SUFFIX: Final = ErrorKind(
    "unknown-report-suffix",
    "{out}: the suffix must be one of {suffixes}.",
    "The file of a report has an unknown suffix, and no format is given.",
    UnknownKindError,
    fix="rename --out, or give --format",
)
FILE_NOT_WRITABLE: Final = ErrorKind(
    "file-not-writable",
    "{out}: {why}. An earlier file there is unchanged.",
    "A report or a chart cannot be written: a full disk, or no permission.",
    FairmfuError,
    fix="{remedy}",
)
