"""Habits of some formats alone: asked of a run, never by a format's name."""

from __future__ import annotations

import polars as pl


def has_quirk(name: str) -> pl.Expr:
    """Tell whether a run has a quirk of ingest.core.schema.QUIRKS, by its column `quirks`."""
    return pl.col("quirks").list.contains(name).fill_null(value=False)
