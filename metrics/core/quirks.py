"""Quirks of single formats: read from a run's column, never from a format's name."""

from __future__ import annotations

import polars as pl


def has_quirk(name: str) -> pl.Expr:
    """Return whether `quirks` contains a quirk of ingest.core.schema.QUIRKS."""
    return pl.col("quirks").list.contains(name).fill_null(value=False)
