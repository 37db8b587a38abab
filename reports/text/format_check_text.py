"""Check of a log format as text: the log lines that each pattern matched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import polars as pl

from .tabular import printable, render_frame

MAX_LINES_PER_PATTERN: Final = 8
"""Most lines of each kind and pattern in the terminal; JSON has all."""

MAX_LINE_TEXT: Final = 160


def show_check(check: Mapping[str, Any], output: str) -> str:
    """Return the check as `output`: table, markdown, json (all) or csv (its lines).

    check: log_format, log, and the fields of ingest.detect.format_check.FormatCheck
    """
    if output == "json":
        return json.dumps(check, indent=2, default=str)
    lines = _lines(check["lines"])
    if output == "csv":
        return render_frame(lines, output)
    blocks = [
        _heading(check),
        "Matches of each pattern:\n" + render_frame(_patterns(check["patterns"]), output),
    ]
    if check["lines"]:
        blocks.append("What was read:\n" + render_frame(_some(lines), output))
    if check["other_kinds"]:
        title = "Lines that no pattern matches, most frequent first:\n"
        blocks.append(title + render_frame(_others(check["other_kinds"]), output))
    return "\n\n".join(blocks)


def _heading(check: Mapping[str, Any]) -> str:
    counts = {name: f"{number:,}" for name, number in check["counts"].items()}
    return printable(
        f"{check['log']} as {check['log_format']}: {counts['lines']} lines = "
        f"{counts['step_lines']} steps + {counts['known_lines']} known (facts, events, blank) + "
        f"{counts['unread_lines']} unread + {counts['other_lines']} other"
    )


def _patterns(patterns: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return patterns of the file, and matching patterns of the extended format."""
    rows = [
        {**row, "fills": ", ".join(row["fills"]) or "nothing"}
        for row in patterns
        if row["lines"] or row["pattern"].startswith("[[")
    ]
    schema = {"pattern": pl.String, "lines": pl.Int64, "fills": pl.String}
    return pl.DataFrame(rows, schema=schema)


def _lines(lines: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    rows = [
        {
            "line": row["line"],
            "is": row["is"],
            "by": row["by"],
            "says": ", ".join(f"{k}={_said(v)}" for k, v in row["says"].items()),
            "text": row["text"],
        }
        for row in lines
    ]
    schema = {"line": pl.Int64, "is": pl.String, "by": pl.String, "says": pl.String}
    return pl.DataFrame(rows, schema=schema | {"text": pl.String})


def _said(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _some(lines: pl.DataFrame) -> pl.DataFrame:
    """Return the first lines of each kind and pattern, with the number of others."""
    ordered = lines.with_row_index("order").sort("is", "by", "order").to_dicts()
    kept: list[dict[str, Any]] = []
    for (what, by), group in groupby(ordered, lambda row: (row["is"], row["by"])):
        rows = list(group)
        kept += rows[:MAX_LINES_PER_PATTERN]
        if more := rows[MAX_LINES_PER_PATTERN:]:
            rest = {"says": f"and {len(more):,} more", "order": more[0]["order"]}
            kept.append({"line": None, "is": what, "by": by, **rest})
    schema = {name: lines.schema[name] for name in ("line", "is", "by", "says")}
    rows = sorted(kept, key=lambda row: int(row["order"]))
    return pl.DataFrame(rows, schema=schema).with_columns(
        pl.col("says").str.slice(0, MAX_LINE_TEXT)
    )


def _others(kinds: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    rows = [
        {"lines": kind["count"], "first": kind["line"], "example": kind["example"][:MAX_LINE_TEXT]}
        for kind in kinds
    ]
    return pl.DataFrame(rows)
