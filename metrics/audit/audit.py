"""What a log prints of its own speed, reproduced by the framework's own formula of that version.

A run is reproduced where every line's figures are, to their last printed digit. Its facts are then
proven as far as another value of one would not have reproduced them. Where a run is not, what else
would reproduce it is named, if anything, and both figures stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

import numpy as np
import polars as pl

from ..core.arrays import Array
from ..core.run_table import NOT_RANKED
from . import solved_lengths
from .explanations import (
    alternatives,
    hypotheses,
    hypothesis_of,
    mean_of_rates,
    pairs_of,
    proven,
    sees_length_otherwise,
    what_would,
)
from .formula_checks import (
    BY_FLOPS,
    MFUS,
    TFLOPS,
    Identity,
    Known,
    Lines,
    eras_of_format,
    fingerprint,
    flops_of,
    identities,
    lacks_gpus,
    peak_of,
    rate_of,
    read,
    unit_of,
)
from .formula_era import Era
from .logged_figures import FIGURES, by_run, claims


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of reproducing one run.

    reproduced: None where nothing was compared; why says so
    lines: of the column that most lines print; reproduced_lines: less the most that one fails
    by_column: column to (lines, reproduced)
    proven: facts that any other usual value of would not have reproduced
    flops_per_token: by the framework's own formula; low, high: as the printed figures imply it
    peak_flops: by which it divides
    unexplained: printed over predicted, the median; with the bounds that the print allows
    hypothesis: what would reproduce all lines, if anything; suspect: the fact that it changes
    rate: tokens/s of one device behind the figures, the median; rate_rounding: half of its last
        place, as a fraction; rounding: half of the last place of each column, in its unit
    lengths: of each line, where they differ [tokens]; solved: of each line in turn, where they
        follow from its figures alone
    """

    era: Era | None = None
    reproduced: bool | None = None
    by_column: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    proven: tuple[str, ...] = ()
    flops_per_token: float | None = None
    low: float | None = None
    high: float | None = None
    peak_flops: float | None = None
    unit: float = 1.0
    unexplained: float | None = None
    unexplained_low: float | None = None
    unexplained_high: float | None = None
    hypothesis: str | None = None
    suspect: str | None = None
    why: str = ""
    rate: float | None = None
    rate_rounding: float = 0.0
    rounding: Mapping[str, float] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    solved: tuple[int, ...] = ()

    @property
    def lines(self) -> int:
        """Lines compared."""
        return max((lines for lines, _ in self.by_column.values()), default=0)

    @property
    def reproduced_lines(self) -> int:
        """Lines of which no column failed, by the column that fared worst."""
        return self.lines - max((n - ok for n, ok in self.by_column.values()), default=0)


def eras_of(known: Known, lines: Lines | None = None) -> list[Era]:
    """Eras that a run may have printed by, the likeliest first; the one that is given, if one is.

    By the figures that only they print, the release that it names, how finely its lines are
    printed, then by the date of its first stamp. None is certain: a checkout of the main line
    names the last release, and an old one prints a new date. Forks, which nothing but figures
    tells, come last.

    lines: one of `printed`; without them, what they print decides nothing
    """
    mine = list(eras_of_format(known.log_format))
    if known.era is not None:
        mine = [era for era in mine if known.era == era.name]
    if lines is not None:
        mine = [era for era in mine if lines.of(*era.needs).height]
    return sorted(mine, key=lambda era: (-len(era.needs), *_unlikely(era, known, lines)))


def _whatever_is_given(known: Known, lines: Lines) -> list[Era]:
    """The eras as if none were given, the likeliest first."""
    return eras_of(known._replace(era=None), lines)


def _unlikely(era: Era, known: Known, lines: Lines | None) -> tuple[bool, bool, int, bool, int]:
    released, dated = known.version in era.versions, _dated(era, known)
    misfit = 0 if lines is None else _misfit(era, lines)
    return era.fork, not released, misfit, not dated, _days_off(era, known.day)


def _misfit(era: Era, lines: Lines) -> int:
    """How many decimals a run's columns have more or fewer than an era prints, in all."""
    there = {c: n for c, n in era.decimals.items() if c in lines.digits}
    return sum(abs(int(lines.digits[column].decimals) - n) for column, n in there.items())


def _released(era: Era, known: Known) -> bool:
    return known.era == era.name or known.version in era.versions


def _dated(era: Era, known: Known) -> bool:
    return known.day is not None and era.spans(known.day)


def _days_off(era: Era, day: date | None) -> int:
    if day is None:  # the newest is the likeliest
        return (date.max - (era.since or date.min)).days
    ends = [abs((day - end).days) for end in (era.since, era.until) if end is not None]
    return min(ends, default=0)


def printed(steps: pl.DataFrame, events: pl.DataFrame | None = None) -> dict[str, Lines]:
    """By run_id the lines, of all ranks, that print a figure of the framework's own.

    steps, events: as in ingest.core.schema, of each source by itself: the figures of one source do
    not follow from the times of another, though both tell of one launch
    """
    return {run_id: read(frame) for run_id, frame in by_run(claims(steps, events)).items()}


def finest(printed_by: Sequence[tuple[str, Lines]]) -> tuple[str, Lines] | None:
    """The source of a launch, of several, whose main figure is printed most finely.

    printed_by: (log format, lines) of each; of equals the one that comes first, so the lead
    """
    return max(printed_by, key=lambda told: _fineness(told[1]), default=None)


def _fineness(lines: Lines) -> tuple[int, int]:
    """To compare by: figures of FLOPs before others, then those with more digits."""
    if (main := main_figure(lines)) is None:  # of infinite values alone
        return -len(FIGURES), 0
    return -FIGURES.index(main), int(lines.digits[main].significant)


def with_length(known: Known, lines: Lines | None) -> Known:
    """What is known, with the length of a sequence where all lines print one and the same."""
    if lines is None:
        return known
    lengths = np.unique(lines.some("sequence_length"))
    return known._replace(length=int(lengths[0])) if len(lengths) == 1 else known


def audit(lines: Lines | None, known: Known) -> Audit:
    """A run's printed figures against its framework's own formulas.

    lines: one of `printed`; None for a run that prints none
    """
    if lines is None:
        return Audit()
    eras = eras_of(known, lines)
    if not eras:
        return Audit(why=_no_era(known))
    tried = [_tried(lines, era, known) for era in eras]
    best = _best(tried)
    if either := _either_lengths(best, tried):
        return Audit(era=best.era, why=either)
    first, length = tried[0], _rather_a_length(best, tried[0], known)
    released = _released(first.era, known)
    stated = "seq_len" in known.said  # an old checkout prints a new date; its log knows its length
    if length is None or (stated and not released):
        return _settled(lines, best, known)
    if released or _dated(first.era, known):
        return _settled(lines, first, known)
    why = f"either {length}, or the formula of {best.era.name}: the log tells no release, no date"
    return Audit(era=best.era, why=f"{' and '.join(_flops_columns(best))} not compared: {why}")


def _no_era(known: Known) -> str:
    names = [era.name for era in eras_of_format(known.log_format)]
    if known.era is None or not names:
        return f"no own formula is known of {known.log_format}"
    return f"{known.era} is no formula of {known.log_format}, which has: {', '.join(names)}"


def _best(tried: Sequence[_Tried]) -> _Tried:
    """The first that reproduces every line, of most columns; else the first that compares any."""
    compared = [t for t in tried if t.found]
    whole = [t for t in compared if _all(t.found)]
    if whole:
        return max(whole, key=lambda t: len(t.found))
    return next(iter(compared), tried[0])


def _settled(lines: Lines, best: _Tried, known: Known) -> Audit:
    """What came of it by the era that is taken to have printed it."""
    era, found = best.era, best.found
    low, high = fingerprint(lines, era, known)
    out = Audit(
        era=era,
        by_column={i.column: (i.lines, i.reproduced) for i in found},
        flops_per_token=flops_of(era, known.seen()),
        low=low,
        high=high,
        peak_flops=peak_of(era, known),
        unit=unit_of(era, known),
        why=_why(lines, era, known, found),
    )
    if not found:
        return out
    out = replace(out, **rounding_of(best.lines.by(era), known))
    main = found[0].ratio
    out = replace(
        out,
        reproduced=_all(found) if main_figure(lines) == found[0].column else None,
        unexplained=_within(main.middle, main.common),
        unexplained_low=main.common[0],
        unexplained_high=main.common[1],
        solved=best.solved,
    )
    if best.solved:
        return replace(out, proven=_proven_by_lengths(lines, era, known) if _all(found) else ())
    others = hypotheses(era, known, found, _whatever_is_given(known, lines))
    if _all(found):
        return replace(out, proven=_proven(proven(others, found), era, known, (low, high)))
    text, fact = what_would(others, found, mean_of_rates(lines.by(era), known))
    return replace(out, hypothesis=text, suspect=fact)


def _proven(
    facts: Sequence[str], era: Era, known: Known, flops: tuple[float | None, float | None]
) -> tuple[str, ...]:
    """The facts that are proven even if model and length may both be wrong."""
    doubted = set()
    if known.length not in (None, known.T):  # the lines prove theirs, not the fact's
        doubted.add("seq_len")
    low, high = flops
    if {"model", "seq_len"} & set(facts) and low is not None and high is not None:
        pairs = pairs_of(era, known, low, high)
        doubted |= {"model"} if len({shape for shape, _ in pairs}) > 1 else set()
        doubted |= {"seq_len"} if len({length for _, length in pairs}) > 1 else set()
    return tuple(fact for fact in facts if fact not in doubted)


@dataclass(frozen=True, slots=True)
class _Tried:
    """What one era makes of a run; lines: with their lengths where those are solved."""

    era: Era
    lines: Lines
    found: list[Identity]
    solved: tuple[int, ...] = ()


def _tried(lines: Lines, era: Era, known: Known) -> _Tried:
    told = solved_lengths.solved(lines, era, known)
    each = () if told is None else tuple(int(n) for n in told.some("sequence_length"))
    taken = told or lines
    return _Tried(era, taken, identities(taken, era, known), each)


def _rather_a_length(best: _Tried, first: _Tried, known: Known) -> str | None:
    """In words the length with which the likeliest formula would reproduce a run, if any.

    Asked where only a less likely one reproduces it with the length that is known: a formula that
    counts half of the pairs gives for one length what another gives for half of that length.
    """
    if not first.found or not sees_length_otherwise(first.era, best.era, known):
        return None
    cases = (c for c in alternatives(first.era, known, ()) if c.fact == "seq_len")
    for case in (c for c in cases if c.era is first.era and c.known.T != known.T):
        other = hypothesis_of(case, first.era, known, first.found)
        if other is not None and other.reproduces(first.found):
            return case.text
    return None


def _either_lengths(best: _Tried, tried: Sequence[_Tried]) -> str:
    """In words, that eras of the main line solve different lengths; empty where they do not."""
    told = {t.solved: t.era.name for t in tried if t.solved and _all(t.found) and not t.era.fork}
    if not best.solved or len(told) < 2:  # noqa: PLR2004 - one and another
        return ""
    cases = [f"{_some(each)} by {era}" for each, era in told.items()]
    columns = " and ".join(_flops_columns(best))
    return f"{columns} not compared: lines have lengths of their own, " + " or ".join(cases)


def _flops_columns(tried: _Tried) -> list[str]:
    return [identity.column for identity in tried.found if identity.column in BY_FLOPS]


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"{n:,}" for n in numbers[:SHOWN])
    return shown if len(numbers) <= SHOWN else f"{shown}, ..."


SHOWN: Final = 3


def _proven_by_lengths(lines: Lines, era: Era, known: Known) -> tuple[str, ...]:
    """Facts of which no other value leaves whole lengths."""
    every = alternatives(era, known, _whatever_is_given(known, lines))
    cases = [c for c in every if c.fact in BY_LENGTHS]
    mine = flops_of(era, known.seen(1))
    others = [c for c in cases if flops_of(c.era, c.known.seen(1)) != mine or c.era is not era]
    still = {c.fact for c in others if solved_lengths.solved(lines, c.era, c.known) is not None}
    return tuple(fact for fact in dict.fromkeys(c.fact for c in others) if fact not in still)


BY_LENGTHS: Final = ("recompute", "logged_formula", "model")
"""Facts that change what lengths the lines imply."""


UNSOUND: Final = ("model", "seq_len", "gpus", "global_batch_size")
"""Facts that our figures stand on: a run whose print speaks against one that was given is not
ranked."""


def doubt(audit: Audit, known: Known) -> list[str]:
    """A warning where the log's own figures are not reproduced.

    The run is not ranked where another value of a fact that was given by hand would reproduce all
    lines. What the log itself states is believed: then a fork may print by another formula.
    """
    if audit.reproduced is not False or audit.era is None:
        return []
    text = (
        "the log's own figures do not follow from these facts "
        f"({audit.reproduced_lines:,} of {audit.lines:,} lines by {audit.era.name})"
    )
    if audit.suspect is None:
        return [f"{text}; nearest: {audit.hypothesis}" if audit.hypothesis else text]
    text = f"{text}, with {audit.hypothesis} all do"
    given = audit.suspect in UNSOUND and audit.suspect not in known.said
    return [f"{text}{NOT_RANKED}" if given else text]


def _within(middle: float, bounds: tuple[float, float]) -> float:
    """The median, kept within the bounds of all lines together, if these leave anything."""
    low, high = bounds
    return min(max(middle, low), high) if low <= high else middle


def out_of_time(audit: Audit, known: Known) -> list[str]:
    """A warning where the formula that reproduces a run is of another time than its log."""
    era, day = audit.era, known.day
    if not audit.reproduced or era is None or day is None or known.era is not None:
        return []
    if replace(era, fork=False).spans(day) or known.version in era.versions:
        return []
    span = " to ".join("?" if end is None else str(end) for end in (era.since, era.until))
    return [f"prints by the formula of {era.name} ({span}), its log is of {day}"]


def rounding_of(lines: Lines, known: Known) -> dict[str, Any]:
    """`rate`, `rate_rounding`, `rounding` and `lengths` of an Audit."""
    printed_by = {c: lines.of(c) for c in FIGURES}
    halves = {c: of.interval(c).half for c, of in printed_by.items() if of.height}
    main = printed_by[next(iter(halves))]
    rate = rate_of(main, known)
    each = tuple(int(n) for n in np.unique(main.some("sequence_length")))
    found: dict[str, Any] = {"rounding": halves, "lengths": each if len(each) > 1 else ()}
    if rate is not None and rate[0].middle > 0:
        found |= {"rate": rate[0].middle, "rate_rounding": rate[0].half / rate[0].middle}
    return found


def rate_over(lines: Lines, known: Known, audit: Audit, steps: Array) -> float | None:
    """tokens/s of one device, the median over those lines of these steps that print TFLOP/s.

    Where no step line prints any, over all lines that do.
    """
    told = lines.of("logged_tflops")
    told = told.where(np.isin(told.columns["step"], steps))
    rate = rate_of(told, known) if told.height else None
    return audit.rate if rate is None else rate[0].middle


def main_figure(lines: Lines) -> str | None:
    """The column that a run's audit stands and falls with: the first of FIGURES that it prints."""
    return next((c for c in FIGURES if c in lines.digits), None)


def _all(found: Sequence[Identity]) -> bool:
    return all(identity.reproduced == identity.lines for identity in found)


def _why(lines: Lines, era: Era, known: Known, found: Sequence[Identity]) -> str:
    """Which printed columns could not be compared, and what they lack."""
    compared = {identity.column for identity in found}
    printed = [c for c in FIGURES if c in lines.digits and c not in compared]
    if len(known.averaged) == 1:
        by_flops = [c for c in printed if c in BY_FLOPS]
        return f"{' and '.join(by_flops)} not compared: {MEAN_AND_LAST}" if by_flops else ""
    reasons = [f"{c} not compared: {era.not_compared[c]}" for c in printed if c in era.not_compared]
    by_flops = [c for c in printed if c in BY_FLOPS and c not in era.not_compared]
    if by_flops:
        said = known.why_no_shape or f"{era.name} does not know this model"
        lacks = ", ".join(_lacking(by_flops, lines, era, known)) or said
        reasons.insert(0, f"{' and '.join(by_flops)} not compared: {lacks}")
    return "; ".join(reasons)


MEAN_AND_LAST: Final = "of two rates one is a mean over several steps, the other the last one's"
OWN_LENGTHS: Final = "the length of each line (samples are not packed)"


def _lacking(columns: Sequence[str], lines: Lines, era: Era, known: Known) -> list[str]:
    """Names of the facts that figures of FLOPs lack."""
    length = OWN_LENGTHS if known.longest else "seq_len"
    unneeded = columns == ["logged_total_flops"] or lines.of(columns[0]).have("sequence_length")
    lacks = [
        name
        for name, value in (
            ("model", known.shape),
            (length, 0 if unneeded else known.T),
            ("recompute", known.recompute if era.counts_recompute else ""),
            ("accelerator", peak_of(era, known) if set(columns) <= set(MFUS) else 0.0),
        )
        if value is None
    ]
    of = lines.by(era).of(columns[0])
    if columns == ["logged_total_flops"]:
        return lacks if of.have("consumed_tokens") else [*lacks, "tokens since the start"]
    if lacks_gpus(era, known) and set(columns) & set(TFLOPS):
        lacks.append("gpus")
    if rate_of(of, known) is None:
        lacks += [n for n, v in (("gpus", known.gpus), ("global_batch_size", known.batch)) if not v]
    return lacks
