"""Ways in which a log reaches a person other than whole: each gives the same figures, or a doubt.

A transformation makes files of the lines of one log. What it may not do is change a figure in
silence: `tests/tools/metamorphic.py` holds the figures of the log against those of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

Lines = Sequence[str]
Files = Mapping[str, str]
"""Texts by file name."""


@dataclass(frozen=True)
class Log:
    """Lines of a log, which of them are of steps, what they tell, another log of this format."""

    lines: Lines
    steps: frozenset[int]
    told: Mapping[str, object]
    other: Lines | None = None


Transformation = Callable[[Log, Random], Files | None]
"""Files of a log; None where it cannot be done to it."""


def _one(lines: Lines) -> Files:
    return {"run.log": "".join(f"{line}\n" for line in lines)}


# --- lines that are gone ------------------------------------------------------------------


def grep(log: Log, _: Random) -> Files:
    """The lines of steps alone."""
    return _one([line for at, line in enumerate(log.lines) if at in log.steps])


def every(n: int) -> Transformation:
    """Each n-th line of a step, and all that are of none."""

    def transform(log: Log, _: Random) -> Files:
        dropped = {at for place, at in enumerate(sorted(log.steps)) if place % n != n - 1}
        return _one([line for at, line in enumerate(log.lines) if at not in dropped])

    return transform


def drop(share: float, *, only_steps: bool) -> Transformation:
    """Lines dropped at random."""

    def transform(log: Log, draw: Random) -> Files:
        gone = {
            at
            for at in range(len(log.lines))
            if (at in log.steps or not only_steps) and draw.random() < share
        }
        return _one([line for at, line in enumerate(log.lines) if at not in gone])

    return transform


def cut_head(log: Log, _: Random) -> Files:
    """The last 60 % of the lines."""
    return _one(log.lines[len(log.lines) * 2 // 5 :])


def cut_tail(log: Log, _: Random) -> Files:
    """The first 60 % of the bytes, through a line."""
    text = "\n".join(log.lines)
    return {"run.log": text[: len(text) * 3 // 5]}


# --- lines that look otherwise ------------------------------------------------------------


def wrap(width: int) -> Transformation:
    """Lines broken at blanks, as a mail program or a pull request breaks them."""

    def transform(log: Log, _: Random) -> Files:
        return _one([part for line in log.lines for part in _wrapped(line, width)])

    return transform


def _wrapped(line: str, width: int) -> Iterator[str]:
    while len(line) > width and (at := line.rfind(" ", 1, width + 1)) > 0:
        yield line[:at]
        line = line[at + 1 :]
    yield line


def fold(width: int) -> Transformation:
    """Lines broken at a column, as a terminal shows them."""

    def transform(log: Log, _: Random) -> Files:
        return _one(
            [
                line[at : at + width]
                for line in log.lines
                for at in range(0, max(len(line), 1), width)
            ]
        )

    return transform


def before(*prefixes: str) -> Transformation:
    """A text before each line; of several by turns none, the same for all lines."""

    def transform(log: Log, draw: Random) -> Files:
        prefix = draw.choice(prefixes)
        return _one([prefix + line for line in log.lines])

    return transform


def stamped(log: Log, _: Random) -> Files:
    """As `docker logs --timestamps`."""
    return _one(
        [
            f"2026-03-01T10:{at // 60 % 60:02}:{at % 60:02}.123456789Z {line}"
            for at, line in enumerate(log.lines)
        ]
    )


def swapped(old: str, new: str) -> Transformation:
    """Another blank for each run of `old`."""

    def transform(log: Log, _: Random) -> Files:
        return _one([line.replace(old, new) for line in log.lines])

    return transform


def fenced(log: Log, _: Random) -> Files:
    """A Markdown page with the log in a code block."""
    page = ["# Slow training", "", "This is what I get:", "", "```", *log.lines, "```", "", "Why?"]
    return {"issue.md": "\n".join(page) + "\n"}


def in_json(log: Log, _: Random) -> Files:
    """The body of an issue, as an API gives it."""
    body = "```\n" + "\n".join(log.lines) + "\n```"
    return {"issue.json": json.dumps({"title": "Slow training", "body": body})}


def in_csv(log: Log, _: Random) -> Files:
    """A cell of a table for each line."""
    rows = ['"{}","{}"'.format(at, line.replace('"', '""')) for at, line in enumerate(log.lines)]
    return {"export.csv": "\n".join(['"line","message"', *rows]) + "\n"}


# --- several runs -------------------------------------------------------------------------


def interleave(tags: tuple[str, str]) -> Transformation:
    """Two runs that wrote at the same time."""

    def transform(log: Log, draw: Random) -> Files | None:
        if log.other is None:
            return None
        ours, theirs = list(log.lines)[::-1], list(log.other)[::-1]
        out = []
        while ours or theirs:
            which = bool(theirs) and (not ours or draw.random() < 0.5)
            out.append(tags[which] + (theirs if which else ours).pop())
        return _one(out)

    return transform


def behind_another(log: Log, _: Random) -> Files | None:
    """Two logs in one file."""
    return None if log.other is None else _one([*log.other, *log.lines])


def twice(log: Log, _: Random) -> Files:
    """The same log, appended to itself."""
    return _one([*log.lines, *log.lines])


def overlapping(log: Log, _: Random) -> Files:
    """Two excerpts of one log that share a fifth of it."""
    count = len(log.lines)
    return _one([*log.lines[: count * 3 // 5], *log.lines[count * 2 // 5 :]])


def split(log: Log, _: Random) -> Files:
    """One run in two files, as a rotation leaves it."""
    half = len(log.lines) // 2
    return {
        "run.log.1": "".join(f"{line}\n" for line in log.lines[:half]),
        "run.log": "".join(f"{line}\n" for line in log.lines[half:]),
    }


def shuffled(log: Log, draw: Random) -> Files:
    """One run in three files, whose names are in another order than its lines."""
    names, third = ["a.log", "b.log", "c.log"], len(log.lines) // 3 + 1
    draw.shuffle(names)
    parts = [log.lines[at : at + third] for at in range(0, len(log.lines), third)]
    return {
        name: "".join(f"{line}\n" for line in part)
        for name, part in zip(names, parts, strict=False)
    }


# --- clocks and facts ---------------------------------------------------------------------


def clock_set(hours: int) -> Transformation:
    """A clock that is set between two lines, as summer time sets it."""

    def transform(log: Log, _: Random) -> Files | None:
        half = len(log.lines) // 2
        moved = [_moved(line, hours) for line in log.lines[half:]]
        return None if moved == list(log.lines[half:]) else _one([*log.lines[:half], *moved])

    return transform


def _moved(line: str, hours: int) -> str:
    return re.sub(
        r"(\d{4}[-/]\d\d[-/]\d\d[ T])(\d\d)(?=:\d\d:\d\d)",
        lambda found: f"{found[1]}{(int(found[2]) + hours) % 24:02}",
        line,
    )


def shouted(log: Log, _: Random) -> Files:
    """True facts beside the log, their texts in capitals."""
    words = {name: value.upper() for name, value in log.told.items() if isinstance(value, str)}
    return {**_one(log.lines), "facts.toml": _toml({**log.told, **words})}


def near_fact(name: str) -> Transformation:
    """A fact beside the log that is half of what its lines tell."""

    def transform(log: Log, _: Random) -> Files | None:
        value = log.told.get(name)
        if not isinstance(value, int) or value < 2:
            return None
        return {**_one(log.lines), "facts.toml": _toml({name: value // 2})}

    return transform


def _toml(facts: Mapping[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items())


TRANSFORMATIONS: Final[Mapping[str, Transformation]] = {
    "grep": grep,
    "every 2nd step line": every(2),
    "every 7th step line": every(7),
    "30 % of step lines dropped": drop(0.3, only_steps=True),
    "70 % of step lines dropped": drop(0.7, only_steps=True),
    "20 % of all lines dropped": drop(0.2, only_steps=False),
    "head cut": cut_head,
    "tail cut": cut_tail,
    "wrapped at 72": wrap(72),
    "wrapped at 100": wrap(100),
    "wrapped at 120": wrap(120),
    "wrapped at 160": wrap(160),
    "folded at 80": fold(80),
    "folded at 120": fold(120),
    "quoted": before("> ", "| "),
    "indented": before("    ", "\t"),
    "docker stamps": stamped,
    "kubectl": before("[pod/train-0/pytorch] ", "train-0 "),
    "compose": before("trainer-1  | "),
    "srun": before("0: "),
    "host": before("node-07: "),
    "tabs": swapped("  ", "\t"),
    "no-break blanks": swapped(" ", "\u00a0"),
    "HTML blanks": swapped("  ", "&nbsp; "),
    "zero-width blanks": swapped(": ", ":\u200b "),
    "in a code block": fenced,
    "in a JSON string": in_json,
    "in CSV cells": in_csv,
    "interleaved with another run, tagged": interleave(("a-0 | ", "b-0 | ")),
    "interleaved with another run, untagged": interleave(("", "")),
    "behind another log": behind_another,
    "twice": twice,
    "overlapping excerpts": overlapping,
    "split over two files": split,
    "three files, names out of order": shuffled,
    "clock set an hour ahead": clock_set(1),
    "clock set an hour back": clock_set(-1),
    "facts in capitals": shouted,
    "half of gpus given": near_fact("gpus"),
    "half of seq_len given": near_fact("seq_len"),
    "half of global_batch_size given": near_fact("global_batch_size"),
}
