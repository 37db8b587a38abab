"""Cost of training: GPU-hours, and with a price money, per 10^9 tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..core.quantities import SECONDS_PER_HOUR
from .messages import NOT_A_PRICE

BILLION: Final = 1e9


@dataclass(frozen=True, slots=True)
class Price:
    """Money per GPU-hour; `currency` as given, or empty."""

    amount: float
    currency: str = ""

    def __str__(self) -> str:
        return f"{self.amount:.2f} {self.currency}".strip()


_PRICE: Final = re.compile(
    r"(?P<before>[^\d.\s-]*)\s*(?P<amount>\d+(\.\d+)?|\.\d+)\s*(?P<after>.*)"
)


def price(text: str) -> Price:
    """Parse the price of a GPU-hour, as people write it: 2.50, 2.50 EUR, $2.50.

    amount is in that currency per hour of one GPU. Raises ValueError for any other text.

    >>> price("2.50 EUR").amount
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or re.search(r"\d", found["after"]) or not float(found["amount"]):
        raise NOT_A_PRICE(text=text)
    return Price(float(found["amount"]), (found["before"] or found["after"]).strip())


def gpu_hours(tgs: float | None) -> float | None:
    """Return GPU-hours per 10^9 tokens at `tgs` tokens/s/GPU."""
    return BILLION / tgs / SECONDS_PER_HOUR if tgs else None


def cost_of_gpu_hours(hours: float | None, hour_price: Price | None) -> float | None:
    """Return the cost of GPU-hours, in the price's currency."""
    return None if hours is None or hour_price is None else hours * hour_price.amount
