"""Sizes and words that charts share."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 680
ROW: Final = 26
"""Height of a row that names a run."""

EXACT, FULL = "MFU (exact attention)", "MFU (full attention)"
