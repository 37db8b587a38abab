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
- Without any of these signs, if the first dict has only a bar after it, the bar was drawn again,
  unless two dicts stand together.

In all other cases no dict gets a bar: no time is better than another dict's time. Dicts after bars
of fast steps get none, as tqdm skips some. Dicts printed together, late from a buffer of standard
output, get bars only if the whole file proves their steps: `place_late_dicts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Final

from .bar_matching import DICT_START, DictBars, EpochBounds, ProgressBar, drawn_bars, own_dict

MAX_FAST_STEP_S: Final = 0.2
"""A step shorter than this is fast: twice tqdm's delay between two drawings (`mininterval`)."""

MIN_LATE_DICTS: Final = 3
"""Dicts printed together whose epochs show that they are evenly apart."""
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


def _redrawn(dicts: Iterable[DictBars]) -> tuple[bool | None, bool]:
    """Return whether the bar after a dict is the dict's, None if unknown; and a sign.

    The sign counts without another: the first dict has only a bar after it. False needs the
    agreement of all dicts: bars before dicts may still turn out to be old.
    """
    launch, verdict, alone = _Launch(), None, None
    for beside in dicts:
        if (placed := launch.place(beside)) is None:
            continue
        launch, before, behind, redrawn = placed
        alone = not before if alone is None else alone
        if redrawn and verdict is None:
            return True, False
        if redrawn and beside.certain:
            return None, False
        if redrawn:
            continue  # the bar before is the dict's as well
        redraws = launch.redraws(before, behind, beside.epoch)
        if redraws or (launch.fast and verdict is False):
            return (redraws if verdict is None else None), False
        verdict = redraws if verdict is None else verdict
    return verdict, verdict is None and bool(alone)


class DictBarMatcher:
    """Add the bars of one file to its dicts, in order."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Decide the kind of the file. lines: of the file, read as far as needed."""
        order = _Order()
        scanned = islice(_dicts(order.of(_first(lines))), MAX_SCANNED_DICTS)
        self._redrawn, first_is_alone = _redrawn(scanned)
        if first_is_alone and not order.has_dicts_together:
            self._redrawn = True
        self._launch = _Launch()
        self.may_be_late = self._redrawn is None and order.has_dicts_together and order.has_bars
        """True if no dict has a bar beside it: they may have waited in a buffer."""

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


class _Order:
    """Signs of a buffer in the order of lines."""

    def __init__(self) -> None:
        self.has_bars = self.has_dicts_together = False

    def of(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines."""
        after_dict = False
        for text in lines:
            is_dict = own_dict(text) >= 0
            self.has_dicts_together |= is_dict and after_dict
            self.has_bars |= "%" in text and any(drawn_bars(text))
            after_dict = is_dict or (after_dict and not text.strip())
            yield text


def match_bars(lines: Iterable[str]) -> DictBarMatcher | None:
    """Return the matcher of a file; None if its dicts may be late."""
    matcher = DictBarMatcher(lines)
    return None if matcher.may_be_late else matcher


def place_late_dicts(lines: Sequence[str]) -> dict[int, str]:
    """Return the texts to add to late dicts, by the index of their line.

    Empty unless the steps of all dicts are proven: a bar runs to its total before the last dict,
    every other bar is drawn within it, only one interval gives as many dicts, and their epochs grow
    with these steps from 0. Without a bar at its step, a text has no time.
    """
    begins = ((index, text, own_dict(text)) for index, text in enumerate(lines))
    dicts = [(index, EpochBounds.of(text[begin:])) for index, text, begin in begins if begin >= 0]
    if len(dicts) < MIN_LATE_DICTS:
        return {}
    every = _runs_by_total(lines[: dicts[-1][0]]).values()
    for runs in every:
        others = (other for other in every if other is not runs)
        if len(runs) == 1 and all(_is_within(other, runs[0]) for other in others):
            return _placed_at([bar for _, bar in runs[0]], dicts)
    return {}


_Run = list[tuple[int, ProgressBar]]
"""States of a bar without a restart, each with its place among all states."""


def _runs_by_total(lines: Iterable[str]) -> dict[int, list[_Run]]:
    """Return the runs of each bar: from a restart to the next."""
    drawn = (bar for text in lines if "%" in text for bar in drawn_bars(text) if bar is not None)
    runs = dict[int, list[_Run]]()
    for place, bar in enumerate(drawn):
        mine = runs.setdefault(bar.total, [])
        last = mine[-1][-1][1] if mine else None
        if last is None or bar.step < last.step or bar.seconds < last.seconds:
            mine.append([])
        mine[-1].append((place, bar))
    return runs


def _is_within(runs: Sequence[_Run], whole: _Run) -> bool:
    """Return whether runs of an evaluation's bar lie within the run of another bar.

    The other bar begins before, and goes on between evaluations. The last of several may come
    after its end.
    """
    places = [place for place, _ in whole]
    ends = [(run[0][0], run[-1][0]) for run in runs]
    if len(ends) == 1:
        return places[0] < ends[0][0] and ends[0][1] < places[-1]
    between = ((end, begin) for (_, end), (begin, _) in pairwise(ends))
    return places[0] < ends[0][0] and all(
        any(low < place < high for place in places) for low, high in between
    )


def _intervals(total: int, dicts: int) -> range:
    """Return the numbers of steps between dicts that give so many dicts."""
    return range(total // (dicts + 1) + 1, total // dicts + 1)


def _placed_at(
    bars: Sequence[ProgressBar], dicts: Sequence[tuple[int, EpochBounds | None]]
) -> dict[int, str]:
    """Return the texts of evenly placed dicts; empty if this is not proven."""
    total = bars[-1].total
    intervals = _intervals(total, len(dicts))
    if len(intervals) != 1 or bars[-1].step != total:
        return {}
    drawn = {bar.step: bar for bar in reversed(bars)}  # the first state at a step
    side, texts = _Side(), dict[int, str]()
    for place, (index, epoch) in enumerate(dicts, 1):
        if epoch is None:
            return {}
        bar = ProgressBar(place * intervals[0], total, 0)
        side.add(bar, epoch)
        timed = drawn.get(bar.step)
        texts[index] = timed.told if timed else bar.told_untimed
    return texts if side.agrees else {}


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
