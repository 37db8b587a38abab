"""A training's progress bar alone: what people post of a slow training.

tqdm draws the bar, and any program may: `10/500 [05:00<4:05:00, 30.00s/it]`. Its clock gives the
time of a step. Nothing shows that a step of the bar is an optimizer update, so such runs are never
ranked. Read only if no other format has a line in the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from .hugging_face.bar_matching import ProgressBar, drawn_bars
from .hugging_face.command_line import COMMAND_LINE
from .spec import ONLY_BARS_PRECEDENCE, LogFormat, StepLine

MIN_BARS: Final = 3
"""Steps of one bar that show a training's speed: the first may contain start-up."""
_NAME: Final = re.compile(r"(?<![^\r])[^\S\r]{0,64}(?:Train(?:ing)?|Steps?)(?: +\w+)?: *(?=\d)")
"""Name of a training's bar; other names are of data sets, downloads or epochs."""
_STATE: Final = r"\(bar: step (?P<step>\d+) of (?P<total>\d+) after (?P<since>\d+) s\)"


def _bars(text: str) -> Iterator[ProgressBar]:
    """Yield the states of bars in a line that may be a training's."""
    for bar in drawn_bars(_NAME.sub("", text)):
        if bar is not None and bar.is_within:
            yield bar


def _total(lines: Iterable[str]) -> int | None:
    """Return the total of the bar with most steps; None if a few steps show nothing."""
    steps = {(bar.total, bar.step) for text in lines for bar in _bars(text)}
    most = Counter(total for total, _ in steps).most_common(1)
    return most[0][0] if most and most[0][1] >= MIN_BARS else None


def has_only_bars(lines: Iterable[str]) -> bool:
    """Return whether lines without a known step have a training's progress bar."""
    return _total(lines) is not None


def _join(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the states of the bar with most steps, and other lines.

    A state drawn again at once is one step.
    """
    lines = [*lines]
    total, last = _total(text for _, text in lines), None
    for number, text in lines:
        records = list[str]()
        for bar in _bars(text):
            if bar.total == total and bar.step != last:
                records.append(f"(bar: step {bar.step} of {total} after {bar.seconds} s)")
                last = bar.step
        for index, record in enumerate(records or [text]):
            yield number, int(index == 0), record


TQDM: Final = LogFormat(
    name="tqdm",
    quirks=("steps_of_bar",),
    framework="tqdm",
    versions="a bar of tqdm alone, unnamed or named Train, Training or Steps",
    signature=_STATE,
    looks_like_step=_STATE,
    evidence=("clock",),
    precedence=ONLY_BARS_PRECEDENCE,
    join=_join,
    steps=(
        StepLine(
            anchor="(bar: step ",
            regex=rf"^{_STATE}",
            columns={"step": "step", "since": "since_start_s"},
            facts={"total": "total_steps"},
            example="(bar: step 4 of 40 after 120 s)",
            printed_by="tqdm/tqdm/tqdm/std.py@v4.67.1 tqdm.format_meter",
        ),
    ),
    facts=(COMMAND_LINE,),
)
