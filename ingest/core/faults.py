"""Kinds of faults, apart from `errors`: commands import `errors` before Polars."""

from __future__ import annotations

from typing import Final

from polars.exceptions import PanicException

FAULTS: Final = (Exception, PanicException)
"""Any exception of reading a file or computing a run: the result of that file or run."""
