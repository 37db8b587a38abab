"""Progress bars next to a dict on the Hugging Face Trainer's console, as printed.

ingest.formats.hugging_face.progress_bars finds the dict's own bar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

DICT_START: Final = "{'loss': "
COPY_PREFIX: Final = (
    "".join(rf"(?<!callbacks:{digits} >> )" for digits in (r"\d\d", r"\d{3}", r"\d{4}"))
    + r"(?<!callbacks - )"
)
"""Excludes LLaMA-Factory's copy of a dict, by the text before the copy."""
_OWN: Final = re.compile(COPY_PREFIX + re.escape(DICT_START))

BAR_REGEX: Final = re.compile(
    r" *\d{1,3}%(?:\|[^|]*\|)? *(?P<step>[1-9]\d{0,18})/(?P<total>\d{1,19}) "
    r"\[(?:(?P<hours>\d{1,9}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<"
)
"""A progress bar without a name, from its first step; bars of data sets have one.

tqdm omits the bar itself if the terminal has no width (tqdm/std.py, format_meter).
"""
BAR_END: Final = re.compile(r"\] *$")
"""End of a bar with nothing after."""
RATED_BAR_REGEX: Final = re.compile(
    BAR_REGEX.pattern + r"[^\],]*, *(?P<rate>\d+(?:\.\d+)?)(?P<unit>it/s|s/it)\](?P<message>.*)"
)

DICT_EPOCH: Final = re.compile(
    r"'epoch': (?P<quote>'?)(?P<value>\d+\.?(?P<decimals>\d*)(?:e[-+]\d+)?)"
)
DICT_LOSS: Final = re.compile(r"'loss': '?(?P<value>\d+(?:\.\d+)?(?:e[-+]\d+)?)")
STRING_DIGITS: Final = 4
"""Digits of numbers printed as strings, since 5.0 (trainer_callback.py, ProgressCallback)."""
MIN_EPOCH_DECIMALS: Final = 2
"""Decimals of an epoch printed as a number, at least; trailing zeros are not printed."""
MAX_EXACT_FLOAT_DIGITS: Final = 15
"""Exact digits of a float."""


class ProgressBar(NamedTuple):
    """A progress bar as drawn once.

    seconds: since the training loop began. step_s: seconds of a step, smoothed; nan if the bar is
    cut off before its rate. message: the text after the bar.
    """

    step: int
    total: int
    seconds: int
    step_s: float = math.nan
    message: str = ""

    @classmethod
    def of(cls, match: re.Match[str]) -> Self:
        """Return the bar of a match of BAR_REGEX or RATED_BAR_REGEX."""
        step, total, hours, minutes, seconds, *rated = match.groups()
        since = 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds)
        if not rated:
            return cls(int(step), int(total), since)
        rate, unit, message = float(rated[0]), rated[1], rated[2].strip()
        step_s = rate if unit == "s/it" else 1 / rate if rate else math.inf
        return cls(int(step), int(total), since, step_s, message)

    @property
    def is_within(self) -> bool:
        """True if the step is at most the total."""
        return self.step <= self.total

    @property
    def is_even(self) -> bool:
        """True if the rate explains the time: no slow start and no pause."""
        return self.seconds / 2 < self.step * self.step_s < 2 * self.seconds

    @property
    def told(self) -> str:
        """Text added to a line for this bar."""
        return f"(progress bar: step {self.step} of {self.total} after {self.seconds} s)"

    @property
    def told_untimed(self) -> str:
        """Text added to a line if the bar was not drawn at this step."""
        return f"(progress bar: step {self.step} of {self.total})"


def drawn_bars(text: str) -> Iterator[ProgressBar | None]:
    """Yield the text after every carriage return as a bar; None for other text."""
    for part in text.split("\r"):
        if part.strip():
            match = BAR_REGEX.match(part)
            yield ProgressBar.of(match) if match else None


class EpochBounds(NamedTuple):
    """Bounds of a dict's epoch, which is printed rounded."""

    early: float
    late: float

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the bounds. text: from the dict on; None without an epoch."""
        match = DICT_EPOCH.search(text)
        value = float(match["value"]) if match else math.inf
        if match is None or value == math.inf:
            return None
        if match["quote"]:
            place = math.floor(math.log10(value)) + 1 - STRING_DIGITS if value else -STRING_DIGITS
        else:
            place = -min(max(MIN_EPOCH_DECIMALS, len(match["decimals"])), MAX_EXACT_FLOAT_DIGITS)
        off = 0.5 * 10.0**place * (1 + 1e-6)  # halves are rounded either way
        return cls(value - off, value + off)


class DictBars(NamedTuple):
    """Bars next to a dict that may be its own. certain: one is surely drawn again."""

    before: ProgressBar | None
    behind: ProgressBar | None
    certain: bool
    epoch: EpochBounds | None

    @classmethod
    def of(cls, above: str, text: str, below: str) -> Self | None:
        """Return the bars of a line; None without its own dict.

        above, below: the lines around.
        """
        begin = own_dict(text)
        if begin < 0:
            return None
        behind = _bar_behind(below)
        if behind and below.lstrip(" ").startswith("\r"):
            return cls(None, behind, certain=True, epoch=None)
        first = "%" not in text[:begin]
        before = _bar_before(above, text[begin:]) if first and own_dict(below) < 0 else None
        together = first and own_dict(above) >= 0
        behind = None if together else behind
        return cls(before, behind, certain=False, epoch=EpochBounds.of(text[begin:]))


def own_dict(text: str) -> int:
    """Return the offset of a dict that is no copy of another; -1 if there is none."""
    begin = text.find(DICT_START)
    match = _OWN.search(text, begin) if begin >= 0 else None
    return match.start() if match else -1


def _bar_behind(below: str) -> ProgressBar | None:
    """Return the bar as drawn again, or a later one.

    In a copy of a terminal's screen, a bar followed by another message shows its last state, maybe
    some steps later.
    """
    drawn, _, _ = below.lstrip(" ").partition("\r")
    if drawn and not BAR_END.search(drawn):
        return None
    bar = next(drawn_bars(below), None)
    return bar if bar and bar.is_within else None


def _bar_before(above: str, text: str) -> ProgressBar | None:
    """Return the bar's last state on the line before a dict.

    A message after the bar must be LLaMA-Factory's copy of the dict; if not, the bar may be older.
    """
    last = next((part for part in reversed(above.split("\r")) if part.strip()), "")
    match = RATED_BAR_REGEX.match(last)
    bar = ProgressBar.of(match) if match else None
    if bar is None or not bar.is_within:
        return None
    return bar if not bar.message or _is_copy(bar.message, text) else None


def _is_copy(message: str, text: str) -> bool:
    """Return whether a message is LLaMA-Factory's copy of a dict, rounded differently."""
    if DICT_START not in message or own_dict(message) >= 0:
        return False
    losses, epochs = zip(
        *((DICT_LOSS.search(line), EpochBounds.of(line)) for line in (message, text)), strict=True
    )
    first, second = (float(loss["value"]) if loss else math.nan for loss in losses)
    early, late = zip(*(epoch or (math.inf, -math.inf) for epoch in epochs), strict=True)
    return max(early) <= min(late) and math.isclose(first, second, rel_tol=5.5e-4, abs_tol=6e-5)
