"""Match progress bars to dicts on the Hugging Face Trainer's console.

Only the bar has step and time. tqdm removes the bar, prints the dict, and draws the bar again, at
the dict's own step. In a file with carriage returns the redrawn bar is certain: it follows the
first return of the next line. If somebody turned the returns into lines and tidied them, the
redrawn bar may be gone. The dict's bar is then the line before, and the line after shows the next
dict's bar, or a later step. All dicts of a file are assumed to be of one kind, shown by the first
dicts:

- A bar with the same step before and after a dict was drawn again, and the bar before is the dict's
  own as well. This applies to dicts whose second bar is followed by another message (DeepSpeed's,
  alone on its line except for the bar), if these bars agree.
- `epoch` grows evenly with the steps, up to less than one step if the last batches of an epoch do
  not fill an accumulation. So the bars of one side agree on the number of steps of an epoch, and the
  bars of the other side do not, as far as the digits show.
- LLaMA-Factory's copy of the dict follows the bar of its step.
- Without any of these signs, if the first dict has only a bar after it, the bar was drawn again.

In all other cases no dict gets a bar: no time is better than another dict's time. Dicts printed
together, late from a buffer, get none, nor do dicts after bars of fast steps, as tqdm skips some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from .bar_matching import DICT_START, DictBars, EpochBounds, ProgressBar

MAX_FAST_STEP_S: Final = 0.2
"""A step shorter than this is fast: twice tqdm's delay between two drawings (`mininterval`)."""

MAX_SCANNED_DICTS: Final = 200
MAX_SCANNED_CHARS: Final = 4_000_000
"""Dicts, and characters of the lines from the first dict on, that show the right bars."""


@dataclass(slots=True)
class _Side:
    """Bars on one side of a launch's dicts, and bounds of an epoch's steps by them."""

    bars: int = 0
    fewest: float = 0.0
    most: float = math.inf

    def add(self, bar: ProgressBar | None, epoch: EpochBounds | None) -> None:
        """Narrow the bounds by a bar and the epoch of its dict, if both are known."""
        if bar is None or epoch is None:
            return
        self.bars += 1
        off = min(epoch.late, 1.0)
        self.fewest = max(self.fewest, (bar.step - off) / epoch.late)
        most = (bar.step + off) / epoch.early if epoch.early > 0 else math.inf
        self.most = min(self.most, most)

    @property
    def agrees(self) -> bool:
        return self.fewest <= self.most

    @property
    def proven(self) -> bool:
        """True if several bars agree."""
        return self.bars > 1 and self.agrees


_Placed = tuple["_Launch", ProgressBar | None, ProgressBar | None, bool]
"""The launch of a dict, the bars before and after that may be its own, and whether the latter is
certain.
"""


class _Launch:
    """Evidence of a launch's bars."""

    def __init__(self, total: int | None = None) -> None:
        """Set up a launch. total: planned steps; None before the first launch."""
        self.total, self.epoch = total, EpochBounds(0, 0)
        self.before, self.behind = _Side(), _Side()
        self.step = 0
        """Step of the last bar matched to a dict."""
        self.seen: ProgressBar | None = None
        """The last bar before a dict."""
        self.fast = False
        """True once bars before dicts showed steps faster than MAX_FAST_STEP_S."""

    def place(self, beside: DictBars) -> _Placed | None:
        """Place the next dict, in this launch or another; None without a bar of training."""
        before, behind = self._of_training(beside.before, beside.behind)
        bar = behind or before
        if bar is None:
            return None
        same = before is not None and behind is not None and before.step == behind.step
        return self._then(bar.total, beside.epoch), before, behind, beside.certain or same

    def _of_training(
        self, before: ProgressBar | None, behind: ProgressBar | None
    ) -> tuple[ProgressBar | None, ProgressBar | None]:
        """Drop the bar of an evaluation, which has another total."""
        if before and behind and before.total != behind.total:
            right = before.total == self.total, behind.total == self.total
            return before if right[0] else None, behind if right[1] else None
        if before and not behind and self.total not in (None, before.total):
            before = None
        return before, behind

    def _then(self, total: int, epoch: EpochBounds | None) -> _Launch:
        """Return the launch of the next dict: this one or another."""
        goes_on = total == self.total and not (epoch and epoch.late < self.epoch.early)
        launch = self if goes_on else _Launch(total)
        launch.epoch = epoch or launch.epoch
        return launch

    def is_drawn(self, bar: ProgressBar) -> bool:
        """Return whether a bar before a dict shows the step just before the dict.

        tqdm skips some fast steps. The bar's rate does not show all of these, because the rate is
        smoothed and remembers a slow step for a while; the bar's clock shows the others.
        """
        seen, self.seen = self.seen, bar
        self.fast |= bar.step_s < MAX_FAST_STEP_S
        if seen:
            self.fast |= bar.seconds - seen.seconds + 1 < MAX_FAST_STEP_S * (bar.step - seen.step)
        return not self.fast

    def redraws(
        self, before: ProgressBar | None, behind: ProgressBar | None, epoch: EpochBounds | None
    ) -> bool | None:
        """Return whether dicts have the bar after them, by one more dict; None if unclear."""
        is_later = self.seen is not None
        if before and not (self.is_drawn(before) and (is_later or before.is_even)):
            return None
        self.before.add(before, epoch)
        self.behind.add(behind, epoch)
        several = min(self.before.bars, self.behind.bars) > 1
        if several and self.before.agrees != self.behind.agrees:
            return self.behind.agrees
        if before is None or behind is not None:
            return None
        alone = self.before.proven and not self.behind.bars
        return False if alone or before.message else None


def _redrawn(dicts: Iterable[DictBars]) -> bool | None:
    """Return whether the bar after a dict is the dict's; None if unknown.

    False needs the agreement of all dicts: bars before dicts may still turn out to be old.
    """
    launch, verdict, alone = _Launch(), None, None
    for beside in dicts:
        if (placed := launch.place(beside)) is None:
            continue
        launch, before, behind, redrawn = placed
        alone = not before if alone is None else alone
        if redrawn and verdict is None:
            return True
        if redrawn and beside.certain:
            return None
        if redrawn:
            continue  # the bar before is the dict's as well
        redraws = launch.redraws(before, behind, beside.epoch)
        if redraws or (launch.fast and verdict is False):
            return redraws if verdict is None else None
        verdict = redraws if verdict is None else verdict
    return alone or None if verdict is None else verdict


class DictBarMatcher:
    """Add the bars of one file to its dicts, in order."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Decide the kind of the file. lines: of the file, read as far as needed."""
        self._redrawn = _redrawn(islice(_dicts(_first(lines)), MAX_SCANNED_DICTS))
        self._launch = _Launch()

    def __call__(self, above: str, text: str, below: str) -> str:
        """Return the text to add to a dict's line.

        above, below: the nearest lines that are not blank. Without a bar on either line, the text
        is empty and nothing is learned about other dicts.
        """
        bar = self.bar_of(above, text, below)
        return f" {bar.told}" if bar else ""

    def bar_of(self, above: str, text: str, below: str) -> ProgressBar | None:
        """Return the bar of the next dict; None if unknown."""
        beside = DictBars.of(above, text, below)
        bar = self._of(beside) if beside else None
        if bar is not None:
            self._launch.step = bar.step
        return bar

    def _of(self, beside: DictBars) -> ProgressBar | None:
        """Return the dict's own bar."""
        if (placed := self._launch.place(beside)) is None:
            return None
        self._launch, before, behind, redrawn = placed
        launch = self._launch
        if behind and (redrawn or self._redrawn):
            launch.before.add(before, beside.epoch)
            return behind
        if before is None or self._redrawn is None or not launch.is_drawn(before):
            return None
        launch.before.add(before, beside.epoch)
        sure = launch.before.proven if self._redrawn else launch.before.agrees
        return before if sure and before.step > launch.step else None


def _first(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines scanned before anything is added to the first dict."""
    size = 0
    for line in lines:
        yield line
        size += len(line) + 1 if size else DICT_START in line
        if size > MAX_SCANNED_CHARS:
            return


def _dicts(lines: Iterable[str]) -> Iterator[DictBars]:
    """Yield the bars next to every dict."""
    above = text = ""
    for below in chain((line for line in lines if line.strip()), [""]):
        if beside := DictBars.of(above, text, below):
            yield beside
        above, text = text, below
