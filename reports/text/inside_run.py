"""Tables of what happened inside a run: speeds, slowest steps, and late ranks."""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.metrics.core.run_table import MetricsRow, SlowStep, SpeedLevel
from fairmfu.metrics.core.run_words import place_word, steps_of

from .diagnosis import deeds, level_rate
from .run_narrative import seconds_text
from .runs_table import Columns
from .tabular import count, percent, render_frame

LEVEL_COLUMNS: Final[Columns] = {
    "steps": ("steps", str),
    "rate": ("speed", str),
    "change": ("change", str),
    "hours": ("GPU-hours lost", str),
    "events": ("logged there", str),
    "ranked": ("in TGS", str),
}
SLOW_STEP_COLUMNS: Final[Columns] = {
    "steps": ("slowest steps", str),
    "took": ("took", str),
    "more": ("too long by", str),
    "cause": ("cause", str),
    "ranks": ("ranks", str),
}
RANK_COLUMNS: Final[Columns] = {
    "ranks": ("ranks", str),
    "node": ("node", str),
    "did": ("what they did", str),
    "steps": ("steps", str),
    "a_step": ("lost per step", str),
    "hours": ("GPU-hours lost", str),
}


def levels_table(row: MetricsRow) -> str:
    """Return a table of the speeds inside a run; empty if there is only one."""
    levels = row["levels"] or []
    word = place_word(row)
    unit = "tokens/s/GPU" if levels and levels[0]["tgs"] is not None else f"time per {word}"
    columns = LEVEL_COLUMNS | {"steps": (f"{word}s", str), "rate": (f"speed ({unit})", str)}
    return _table([_level(level, word) for level in levels], columns)


def _level(level: SpeedLevel, word: str) -> dict[str, str]:
    change, hours = level["change"], level["gpu_hours_lost"]
    low, high = level["change_low"], level["change_high"]
    between = "" if low is None or high is None else f" ({low:+.1%} to {high:+.1%})"
    return {
        "steps": steps_of(level),
        "rate": level_rate(level, word),
        "change": "" if change is None else f"{change:+.1%}{between}",
        "hours": "" if hours is None else f"{hours:.2g}",
        "events": ", ".join(level["events"]),
        "ranked": "yes" if level["ranked"] else "no",
    }


def slowest_table(row: MetricsRow) -> str:
    """Return a table of the windows that lost most time, with cause and ranks."""
    columns = SLOW_STEP_COLUMNS | {"steps": (f"slowest {place_word(row)}s", str)}
    return _table([_slow(step, row) for step in row["slowest_steps"] or []], columns)


def _slow(step: SlowStep, row: MetricsRow) -> dict[str, str]:
    first, last = step["from_step"], step["to_step"]
    late = [
        ranks["ranks"]
        for ranks in row["slow_ranks"] or []
        if any(first <= at <= last for at in ranks["first_steps"])
    ]
    return {
        "steps": steps_of(step),
        "took": seconds_text(step["seconds"]),
        "more": seconds_text(step["lost_s"]),
        "cause": step["cause"],
        "ranks": ", ".join(late),
    }


def ranks_table(row: MetricsRow) -> str:
    """Return a table of the ranks that the others waited for."""
    rows = [
        {
            "ranks": late["ranks"],
            "node": late["node"] or "",
            "did": deeds(late),
            "steps": count(late["steps"]),
            "a_step": seconds_text(late["seconds"] / late["steps"]),
            "hours": f"{late['gpu_hours_lost']:.2g} ({percent(late['share'])} of the time)",
        }
        for late in row["slow_ranks"] or []
    ]
    return _table(rows, RANK_COLUMNS)


def _table(rows: list[dict[str, str]], columns: Columns) -> str:
    """Return a table without empty columns; nothing without rows."""
    used = {name: how for name, how in columns.items() if any(row[name] for row in rows)}
    return render_frame(pl.DataFrame(rows), "table", used) if rows else ""
