"""Which progress bar of the Hugging Face Trainer's console is a dict's.

Step and time stand in the bar alone. tqdm takes it away, prints the dict, and draws the bar again,
at the dict's own step. Where a file has its carriage returns that bar is certain: it stands behind
the first one of the next line. Where somebody has made lines of the returns and tidied them, it may
be gone: the dict's bar is then the line before, and the line behind shows the next dict's, or a
step that came later. A file is taken to be of one kind; its first dicts tell which:

- A bar that says the same step before a dict and behind it was drawn again, and the one before it
  is the dict's own as well: of the dicts whose second bar another message stands behind
  (DeepSpeed's, in a line of its own but for that bar), where these bars agree.
- `epoch` grows evenly with the steps, but for less than one step where the last batches of an epoch
  do not fill an accumulation. So the bars of one side agree on how many steps an epoch has, those
  of the other side do not, as far as the digits show.
- LLaMA-Factory's copy of the dict begins behind the bar of its step.
- Where none of these tells, and the first dict has a bar behind it alone, that was drawn again.

Else no dict has a bar: no time is better than that of another dict. Neither have dicts that stand
together, late from a buffer, nor those behind bars of fast steps, of which tqdm leaves out some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from .bar_matching import DICT_START, DictBars, EpochBounds, ProgressBar

MAX_FAST_STEP_S: Final = 0.2
"""A step shorter than this is fast: twice as long as tqdm waits between two drawings
(`mininterval`)."""

MAX_SCANNED_DICTS: Final = 200
MAX_SCANNED_CHARS: Final = 4_000_000
"""So many dicts, and so many characters of the lines from the first one on, tell which bars are the
dicts'."""


@dataclass(slots=True)
class _Side:
    """Bars on one side of a launch's dicts, and how many steps an epoch has by them, from and to."""

    bars: int = 0
    fewest: float = 0.0
    most: float = math.inf

    def add(self, bar: ProgressBar | None, epoch: EpochBounds | None) -> None:
        """Narrow it down by a bar and the epoch of its dict, if both are known."""
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
        """Whether several bars agree."""
        return self.bars > 1 and self.agrees


_Placed = tuple["_Launch", ProgressBar | None, ProgressBar | None, bool]
"""The launch that a dict is of, the bars before and behind the dict that may be its own, and whether
the latter is for certain."""


class _Launch:
    """What a launch has shown of its bars."""

    def __init__(self, total: int | None = None) -> None:
        """total: steps that it is to take; None before the first launch."""
        self.total, self.epoch = total, EpochBounds(0, 0)
        self.before, self.behind = _Side(), _Side()
        self.step = 0
        """The step of the last bar that was a dict's."""
        self.seen: ProgressBar | None = None
        """The last bar before a dict."""
        self.fast = False
        """Whether bars before dicts have shown steps faster than MAX_FAST_STEP_S."""

    def place(self, beside: DictBars) -> _Placed | None:
        """The next dict, of this launch or another; None where no bar of training is beside it."""
        before, behind = self._of_training(beside.before, beside.behind)
        bar = behind or before
        if bar is None:
            return None
        same = before is not None and behind is not None and before.step == behind.step
        return self._then(bar.total, beside.epoch), before, behind, beside.certain or same

    def _of_training(
        self, before: ProgressBar | None, behind: ProgressBar | None
    ) -> tuple[ProgressBar | None, ProgressBar | None]:
        """Two bars without that of an evaluation, which has another total."""
        if before and behind and before.total != behind.total:
            known = before.total == self.total, behind.total == self.total
            return before if known[0] else None, behind if known[1] else None
        if before and not behind and self.total not in (None, before.total):
            before = None
        return before, behind

    def _then(self, total: int, epoch: EpochBounds | None) -> _Launch:
        """The launch of the next dict, this one or another."""
        goes_on = total == self.total and not (epoch and epoch.late < self.epoch.early)
        launch = self if goes_on else _Launch(total)
        launch.epoch = epoch or launch.epoch
        return launch

    def is_drawn(self, bar: ProgressBar) -> bool:
        """Whether a bar before a dict shows the step before the dict.

        Of fast steps tqdm leaves out some. The bar's rate does not show each of these, for it is
        smoothed and holds a slow step for a while; the others show by its clock.
        """
        seen, self.seen = self.seen, bar
        self.fast |= bar.step_s < MAX_FAST_STEP_S
        if seen:
            self.fast |= bar.seconds - seen.seconds + 1 < MAX_FAST_STEP_S * (bar.step - seen.step)
        return not self.fast

    def redraws(
        self, before: ProgressBar | None, behind: ProgressBar | None, epoch: EpochBounds | None
    ) -> bool | None:
        """Whether dicts have the bar behind them, by one more dict; None where that does not tell."""
        known = self.seen is not None
        if before and not (self.is_drawn(before) and (known or before.is_even)):
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
    """Whether the bar behind a dict is the dict's; None where it is not known.

    Where it is not, all dicts have to agree: the bars before them may yet turn out to be old.
    """
    launch, told, alone = _Launch(), None, None
    for beside in dicts:
        if (placed := launch.place(beside)) is None:
            continue
        launch, before, behind, redrawn = placed
        alone = not before if alone is None else alone
        if redrawn and told is None:
            return True
        if redrawn and beside.certain:
            return None
        if redrawn:
            continue  # the bar before it is the dict's as well
        says = launch.redraws(before, behind, beside.epoch)
        if says or (launch.fast and told is False):
            return says if told is None else None
        told = says if told is None else told
    return alone or None if told is None else told


class DictBarMatcher:
    """What the bars of one file add to its dicts, one after the other."""

    def __init__(self, lines: Iterable[str]) -> None:
        """lines: of the file, so many as it takes to tell which bar is a dict's."""
        self._redrawn = _redrawn(islice(_dicts(_first(lines)), MAX_SCANNED_DICTS))
        self._launch = _Launch()

    def __call__(self, above: str, text: str, below: str) -> str:
        """What is added to a line with a dict, by the nearest lines that are not blank.

        Where neither holds a bar, nothing is added, and nothing is told of other dicts.
        """
        beside = DictBars.of(above, text, below)
        bar = self._of(beside) if beside else None
        if bar is None:
            return ""
        self._launch.step = bar.step
        return f" {bar.told}"

    def _of(self, beside: DictBars) -> ProgressBar | None:
        """The bar that is the dict's."""
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
    """The lines that are looked at before anything is added to the first dict."""
    size = 0
    for line in lines:
        yield line
        size += len(line) + 1 if size else DICT_START in line
        if size > MAX_SCANNED_CHARS:
            return


def _dicts(lines: Iterable[str]) -> Iterator[DictBars]:
    """The bars beside each dict."""
    above = text = ""
    for below in chain((line for line in lines if line.strip()), [""]):
        if beside := DictBars.of(above, text, below):
            yield beside
        above, text = text, below
