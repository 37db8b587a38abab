"""Kinds of faults of the program, apart from errors, which a command knows before Polars."""

from __future__ import annotations

from typing import Final

from polars.exceptions import PanicException

FAULTS: Final = (Exception, PanicException)
"""Whatever is raised: it is the answer of the file or the run that it arose at."""
