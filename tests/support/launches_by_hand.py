"""Launches of a few rows that a test writes itself, without a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.step_rows import StepRows


def launch_of(rows: Iterable[Mapping[str, Any]], first_line: int | None = None) -> Launch:
    """A launch of rows of one form, each with its `line` and `step`; the rest may be missing.

    first_line: by default that of the first row, as of a launch that no line starts.
    """
    kept = StepRows(None, [None])
    for row in rows:
        kept.append({"rank": None, "form": None, "logged_at": None, **row})
    begins = (kept.first_line or 1) if first_line is None else first_line
    return Launch(begins, last_line=kept.last_line, rows=kept)
