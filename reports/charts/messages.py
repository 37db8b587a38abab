"""Errors of drawing."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class DrawingEndedError(FairmfuError, RuntimeError):
    """The drawing library ended while drawing."""


DRAWING_ENDED: Final = ErrorKind(
    "drawing-ended",
    "vl_convert, which draws, ended with status {code}: it may have run out of memory, or its "
    "installation is broken.",
    "The process of the drawing library ends while it draws.",
    DrawingEndedError,
)
