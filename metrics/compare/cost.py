"""Cost of training: GPU-hours, and with a price money, per 10^9 tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..core.run_words import SECONDS_PER_HOUR
from .messages import NOT_A_PRICE

BILLION: Final = 1e9


@dataclass(frozen=True, slots=True)
class Price:
    """Money per GPU-hour; `currency` as given, or empty."""

    amount: float
    currency: str = ""

    def __str__(self) -> str:
        return f"{self.amount:.2f} {self.currency}".strip()


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a GPU-hour.

    every: of accelerators that by_name does not name
    """

    every: Price | None = None
    by_name: Mapping[str, Price] = field(default_factory=dict)

    def of(self, device: str | None) -> Price | None:
        """Return the price of an accelerator; of several names, the longest counts."""
        fit = [name for name in self.by_name if device is not None and names_device(name, device)]
        return self.by_name[max(fit, key=len)] if fit else self.every


def names_device(name: str, device: str) -> bool:
    """Return whether a short name, such as H100, is part of an accelerator's name.

    Whole words only: B200 is no GB200.
    """
    words = rf"(?<!\w){re.escape(name.strip())}(?!\w)"
    return re.search(words, device, re.IGNORECASE) is not None


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


def prices(texts: Sequence[str]) -> Prices | None:
    """Parse prices such as `2.50` or `H100=2.50`; None without any.

    Raises ValueError for a text without a price.

    >>> prices(["H100=2.50", "A100=1.20"]).of("NVIDIA H100 SXM").amount
    """
    if not texts:
        return None
    by_name: dict[str, Price] = {}
    every = None
    for text in texts:
        name, is_named, amount = text.rpartition("=")
        if is_named and name.strip():
            by_name[name.strip()] = price(amount)
        else:
            every = price(text)
    return Prices(every, by_name)


def gpu_hours(tgs: float | None) -> float | None:
    """Return GPU-hours per 10^9 tokens at `tgs` tokens/s/GPU."""
    return BILLION / tgs / SECONDS_PER_HOUR if tgs else None


def cost_of_gpu_hours(hours: float | None, hour_price: Price | None) -> float | None:
    """Return the cost of GPU-hours, in the price's currency."""
    return None if hours is None or hour_price is None else hours * hour_price.amount
