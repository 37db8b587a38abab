"""List of the eras of all frameworks."""

from __future__ import annotations

from functools import partial

from ..formula_era import Era
from . import deepspeed, torchtitan, xtuner


def era_rows() -> tuple[partial[Era], ...]:
    """Return every row, in order of framework and date."""
    return (*torchtitan.ERA_ROWS, *xtuner.ERA_ROWS, *deepspeed.ERA_ROWS)
