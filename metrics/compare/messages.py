"""Errors of comparisons."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class PriceError(FairmfuError, ValueError):
    """Text that is no price of a GPU-hour."""


NOT_A_PRICE: Final = ErrorKind(
    "not-a-price",
    "{text!r} is not a price per GPU-hour.",
    "A price is not a number above 0, with or without a currency.",
    PriceError,
    fix="write 2.50 or '2.50 EUR'",
)
