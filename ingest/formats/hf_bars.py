"""Which progress bar of the Hugging Face Trainer's console is a dict's.

Step and time stand in the bar alone. tqdm takes it away, prints the dict, and draws the bar again,
at the dict's own step. Where a file has its carriage returns that bar is certain: it stands behind
the first one of the next line. Where somebody has made lines of the returns and tidied them, it may
be gone: the dict's bar is then the line before, and the line behind shows the next dict's, or a
step that came later. A file is taken to be of one kind; its first dicts tell which:

- A bar that says the same step before a dict and behind it was drawn again.
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
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple

DICT: Final = "{'loss': "
TWICE: Final = (
    "".join(rf"(?<!callbacks:{digits} >> )" for digits in (r"\d\d", r"\d{3}", r"\d{4}"))
    + r"(?<!callbacks - )"
)
"""Behind these LLaMA-Factory logs the values of a dict that the Trainer prints by itself."""
_OWN: Final = re.compile(TWICE + re.escape(DICT))

BAR: Final = re.compile(
    r" *\d{1,3}%(?:\|[^|]*\|)? *(?P<step>[1-9]\d{0,18})/(?P<total>\d{1,19}) "
    r"\[(?:(?P<hours>\d{1,9}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<"
)
"""A progress bar without a name, from its first step; bars of data sets have one.

tqdm leaves the bar itself out where the terminal has no width (tqdm/std.py, format_meter).
"""
LAST_STATE: Final = re.compile(r"\] *$")
"""How a bar ends that nothing stands behind."""
TIMED: Final = re.compile(
    BAR.pattern + r"[^\],]*, *(?P<rate>\d+(?:\.\d+)?)(?P<unit>it/s|s/it)\](?P<message>.*)"
)
FAST_S: Final = 0.2
"""Of a step: twice as long as tqdm waits between two drawings (`mininterval`)."""

EPOCH: Final = re.compile(r"'epoch': (?P<quote>'?)(?P<value>\d+\.?(?P<decimals>\d*)(?:e[-+]\d+)?)")
LOSS: Final = re.compile(r"'loss': '?(?P<value>\d+(?:\.\d+)?(?:e[-+]\d+)?)")
FIGURES: Final = 4
"""Of numbers that are printed as strings, since 5.0 (trainer_callback.py, ProgressCallback)."""
DECIMALS: Final = 2
"""Of an epoch that is printed as a number, at least; trailing zeros are not printed."""

DIGITS: Final = 15
"""Of a float that are sure."""
DICTS: Final = 200
CHARACTERS: Final = 4_000_000
"""That tell which bars are the dicts': of them, and of the lines behind the first one."""


def shown(text: str) -> Iterator[re.Match[str] | None]:
    """What stands behind each carriage return: a bar, or none where it is something else."""
    return (BAR.match(part) for part in text.split("\r") if part.strip())


def seconds(bar: re.Match[str]) -> int:
    """Since the training loop began."""
    return 3600 * int(bar["hours"] or 0) + 60 * int(bar["minutes"]) + int(bar["seconds"])


def said(bar: re.Match[str]) -> str:
    """What a line gets of a bar."""
    return f"(progress bar: step {bar['step']} of {bar['total']} after {seconds(bar)} s)"


Bar = re.Match[str] | None


class _Epoch(NamedTuple):
    """Between which the epoch of a dict lies that is printed rounded."""

    early: float
    late: float


def _epoch(text: str) -> _Epoch | None:
    match = EPOCH.search(text)
    value = float(match["value"]) if match else math.inf
    if match is None or value == math.inf:
        return None
    if match["quote"]:
        place = math.floor(math.log10(value)) + 1 - FIGURES if value else -FIGURES
    else:
        place = -min(max(DECIMALS, len(match["decimals"])), DIGITS)
    off = 0.5 * 10.0**place * (1 + 1e-6)  # halves are rounded either way
    return _Epoch(value - off, value + off)


@dataclass(slots=True)
class _Side:
    """Bars on one side of a launch's dicts: how many steps an epoch has if they are the dicts'."""

    bars: int = 0
    fewest: float = 0.0
    most: float = math.inf

    def add(self, bar: Bar, epoch: _Epoch) -> None:
        if bar is None:
            return
        self.bars += 1
        step = int(bar["step"])
        off = min(epoch.late, 1.0)
        self.fewest = max(self.fewest, (step - off) / epoch.late)
        self.most = min(self.most, (step + off) / epoch.early if epoch.early > 0 else math.inf)

    @property
    def agrees(self) -> bool:
        return self.fewest <= self.most

    @property
    def proven(self) -> bool:
        """Whether several bars agree."""
        return self.bars > 1 and self.agrees


class _Beside(NamedTuple):
    """The bars beside a dict: which may be its own, and whether one is drawn again for certain."""

    before: Bar
    behind: Bar
    certain: bool
    epoch: _Epoch | None


class _Launch:
    """What a launch has shown of its bars."""

    def __init__(self, total: str) -> None:
        """total: its steps, as they are printed."""
        self.total, self.epoch = total, _Epoch(0, 0)
        self.before, self.behind = _Side(), _Side()
        self.step = 0
        """Of the last bar that was a dict's."""
        self.seen: Bar = None
        """The last one before a dict."""
        self.fast = False
        """Whether such bars have told of steps that are faster than FAST_S."""

    def of_training(self, before: Bar, behind: Bar) -> tuple[Bar, Bar]:
        """Two bars without that of an evaluation, which has another total."""
        if before and behind and before["total"] != behind["total"]:
            known = before["total"] == self.total, behind["total"] == self.total
            return before if known[0] else None, behind if known[1] else None
        if before and not behind and self.total not in ("", before["total"]):
            before = None
        return before, behind

    def then(self, total: str, epoch: _Epoch | None) -> _Launch:
        """The launch of the next dict, this one or another."""
        goes_on = total == self.total and not (epoch and epoch.late < self.epoch.early)
        launch = self if goes_on else _Launch(total)
        launch.epoch = epoch or launch.epoch
        return launch

    def is_drawn(self, bar: re.Match[str]) -> bool:
        """Whether a bar before a dict shows its last step: tqdm leaves out some of fast ones.

        Its rate is smoothed, so it holds a slow step for a while; its clock shows the rest.
        """
        seen, self.seen = self.seen, bar
        self.fast |= _step_s(bar) < FAST_S
        if seen:
            steps = int(bar["step"]) - int(seen["step"])
            self.fast |= seconds(bar) - seconds(seen) + 1 < FAST_S * steps
        return not self.fast

    def redraws(self, before: Bar, behind: Bar, epoch: _Epoch | None) -> bool | None:
        """Whether bars are drawn again, by a dict with different ones, or with one."""
        known = self.seen is not None
        if before and not (self.is_drawn(before) and (known or _is_even(before))):
            return None
        if epoch:
            self.before.add(before, epoch)
            self.behind.add(behind, epoch)
        several = min(self.before.bars, self.behind.bars) > 1
        if several and self.before.agrees != self.behind.agrees:
            return self.behind.agrees
        if before is None or behind is not None:
            return None
        alone = self.before.proven and not self.behind.bars
        return False if alone or before["message"].strip() else None


def _redrawn(beside: Iterable[_Beside]) -> bool | None:
    """Whether the bar behind a dict is the dict's; None where it is not known.

    Where it is not, all dicts have to agree: the bars before them may yet turn out to be old.
    """
    launch, told, alone = _Launch(""), None, None
    for before, behind, certain, epoch in beside:
        before, behind = launch.of_training(before, behind)  # noqa: PLW2901
        if not (bar := behind or before):
            continue
        launch = launch.then(bar["total"], epoch)
        alone = not before if alone is None else alone
        if certain or (before and behind and before["step"] == behind["step"]):
            return True if told is None else None
        says = launch.redraws(before, behind, epoch)
        if says or (launch.fast and told is False):
            return says if told is None else None
        told = says if told is None else told
    return alone or None if told is None else told


class Bars:
    """What the bars of one file add to its dicts, one after the other."""

    def __init__(self, lines: Iterable[str]) -> None:
        """lines: of the file, so many as it takes to tell which bar is a dict's."""
        self._redrawn = _redrawn(islice(_dicts(_first(lines)), DICTS))
        self._launch = _Launch("")

    def __call__(self, above: str, text: str, below: str) -> str:
        """What is added to a line with a dict, by the nearest lines that are not blank.

        Where neither holds a bar, nothing is added, and nothing is told of other dicts.
        """
        beside = _beside(above, text, below)
        bar = self._of(beside) if beside else None
        if bar is None:
            return ""
        self._launch.step = int(bar["step"])
        return f" {said(bar)}"

    def _of(self, beside: _Beside) -> Bar:
        """The bar that is the dict's."""
        before, behind = beside.before, beside.behind
        if not beside.certain:
            before, behind = self._launch.of_training(before, behind)
        if not (bar := behind or before):
            return None
        self._launch = launch = self._launch.then(bar["total"], beside.epoch)
        same = before and behind and before["step"] == behind["step"]
        if beside.certain or same or self._redrawn:
            return behind
        if before is None or self._redrawn is None or not launch.is_drawn(before):
            return None
        if beside.epoch:
            launch.before.add(before, beside.epoch)
        return before if launch.before.agrees and int(before["step"]) > launch.step else None


def _first(lines: Iterable[str]) -> Iterator[str]:
    """Those that are looked at before the first dict is told of: few behind it."""
    size = 0
    for line in lines:
        yield line
        size += len(line) + 1 if size else DICT in line
        if size > CHARACTERS:
            return


def _dicts(lines: Iterable[str]) -> Iterator[_Beside]:
    """The bars beside each dict."""
    above = text = ""
    for below in chain((line for line in lines if line.strip()), [""]):
        if beside := _beside(above, text, below):
            yield beside
        above, text = text, below


def _beside(above: str, text: str, below: str) -> _Beside | None:
    """None where the line has no dict of its own."""
    begin = _own(text)
    if begin < 0:
        return None
    behind = _bar_behind(below)
    if behind and below.lstrip(" ").startswith("\r"):
        return _Beside(None, behind, certain=True, epoch=None)
    first = "%" not in text[:begin]
    before = _bar_before(above, text[begin:]) if first and _own(below) < 0 else None
    together = first and _own(above) >= 0
    behind = None if together else behind
    return _Beside(before, behind, certain=False, epoch=_epoch(text[begin:]))


def _own(text: str) -> int:
    """Where a dict begins that is not another one's copy; -1 where there is none."""
    begin = text.find(DICT)
    match = _OWN.search(text, begin) if begin >= 0 else None
    return match.start() if match else -1


def _bar_behind(below: str) -> Bar:
    """The bar as it is drawn again, or one that came later.

    In a copy of a terminal's screen what another message stands behind is the bar's last state,
    which may be some steps on.
    """
    drawn, _, _ = below.lstrip(" ").partition("\r")
    if drawn and not LAST_STATE.search(drawn):
        return None
    bar = next(shown(below), None)
    return bar if bar and _is_within(bar) else None


def _bar_before(above: str, text: str) -> Bar:
    """The bar's last state on the line before a dict.

    A message behind the bar is LLaMA-Factory's copy of the dict, or the bar may be older.
    """
    last = next((part for part in reversed(above.split("\r")) if part.strip()), "")
    bar = TIMED.match(last)
    if bar is None or not _is_within(bar):
        return None
    return bar if not bar["message"].strip() or _is_copy(bar["message"], text) else None


def _is_within(bar: re.Match[str]) -> bool:
    return int(bar["step"]) <= int(bar["total"])


def _step_s(bar: re.Match[str]) -> float:
    """Seconds of a step, smoothed."""
    rate = float(bar["rate"])
    return rate if bar["unit"] == "s/it" else 1 / rate if rate else math.inf


def _is_even(bar: re.Match[str]) -> bool:
    """Whether a run goes as it has gone, so no slow beginning or pause stands behind its rate."""
    return seconds(bar) / 2 < int(bar["step"]) * _step_s(bar) < 2 * seconds(bar)


def _is_copy(message: str, text: str) -> bool:
    """Whether a message is LLaMA-Factory's of a dict: the same loss and epoch, rounded otherwise."""
    if DICT not in message or _own(message) >= 0:
        return False
    losses, epochs = zip(*((LOSS.search(one), _epoch(one)) for one in (message, text)), strict=True)
    first, second = (float(loss["value"]) if loss else math.nan for loss in losses)
    early, late = zip(*(epoch or (math.inf, -math.inf) for epoch in epochs), strict=True)
    return max(early) <= min(late) and math.isclose(first, second, rel_tol=5.5e-4, abs_tol=6e-5)
