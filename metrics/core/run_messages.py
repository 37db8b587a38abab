"""Messages about whole runs, and errors of their names."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError

from .messages import MessageKind


class RunNameError(FairmfuError, LookupError):
    """No run has this name, or several runs do where one is needed."""


class RunFilterError(FairmfuError, ValueError):
    """The condition or the column of --where or --sort cannot be used."""


UNKNOWN_RUN: Final = ErrorKind(
    "unknown-run",
    "No {noun} is called {name!r}.{hint}",
    "A run or a baseline is named that does not exist.",
    RunNameError,
    fix="see {command}",
)
RUN_NAME_SHARED: Final = ErrorKind(
    "run-name-shared",
    "{name!r} means {count} runs, and one is needed.",
    "A name is given where one run is needed, and several runs have it.",
    RunNameError,
    fix="give an id: {ids}",
)
UNKNOWN_COLUMN: Final = ErrorKind(
    "unknown-column",
    "No column is called {name!r}.{hint}",
    "A column of --where or --sort does not exist.",
    RunFilterError,
    fix="list the columns with: fairmfu query 'describe metrics'",
)
FILTER_FAILED: Final = ErrorKind(
    "filter-failed",
    "{condition!r} is not a valid filter: {error}.",
    "The condition of --where is not valid SQL, or compares values of different types.",
    RunFilterError,
    fix="write it like outcome = 'completed' and gpus >= 8, or started_at >= DATE '2026-11-01'",
)
SUBQUERY_IN_FILTER: Final = ErrorKind(
    "subquery-in-filter",
    "A filter sees only the columns of each run, so the word {word!r} is not accepted.",
    "The condition of --where has a subquery or UNNEST.",
    RunFilterError,
    fix="for subqueries: fairmfu query",
)
FAULT: Final = "fairmfu failed to analyse this run"
"""Beginning of ANALYSIS_FAILED."""

ANALYSIS_FAILED: Final = MessageKind(
    "analysis-failed",
    f"{FAULT}, so it has no figures; other runs are unaffected: {{error}}",
    "unranked",
    when="The analysis of a run failed: a fault of fairmfu.",
    fix="report this fault of fairmfu, with the log",
)
OUTDATED_READING: Final = MessageKind(
    "outdated-reading",
    "An earlier fairmfu read this log, and its parsing has changed since: {changes}",
    "unranked",
    when="An earlier fairmfu read the log, and today's parsing differs.",
    fix="fairmfu ingest --again",
)
IMPOSSIBLE_VALUE: Final = MessageKind(
    "impossible-value",
    "{why} ({where}). No figure uses it",
    when="A fact or a logged value is impossible for any run.",
)
FORMULA_CHANGED: Final = MessageKind(
    "formula-changed",
    "Logged figures imply {mean:,.0f} FLOPs per token, and those of {other}, same model and "
    "sequence length, {other_mean:,.0f}: the framework's formula changed, or one fact is wrong",
    when="A later log of the same model and length implies other FLOPs per token.",
)
