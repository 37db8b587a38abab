"""Speed of a head run against its base: direction, size, and a gate for CI.

The 95 % interval of the ratio decides, never the ratio alone: a gate fails or passes only if the
whole interval is on one side of the allowed slow-down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairmfu.metrics.compare.comparability import compare_pair
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.repeated_runs import (
    MIN_REPEATS,
    TOO_FEW_WINDOWS,
    SpeedRatio,
    speed_ratio,
)
from fairmfu.metrics.core.run_table import not_null

from ..text.tabular import difference_text
from ..text.verdict import PLAIN_STYLE, Style, is_equally_fast
from .run_set import RunSet

GATE_PASSED, GATE_SLOWER, GATE_HEAD_FAILED, GATE_UNDECIDED = 0, 3, 5, 6
"""Exit codes of a gate; 1, 2 and 4 mean the same as for every command."""

SLOWER, FASTER, SAME, UNKNOWN = "slower", "faster", "same", "unknown"
"""Directions of a change: SAME is equally fast or within the noise."""

GATE_REMEDY: Final = "Fix: log more steps, or allow more."
GATE_REPEATS_REMEDY: Final = "Fix: add repeats, or allow more."
REPEATS_REMEDY: Final = (
    f"Fix: name one run each, or {MIN_REPEATS} repeats or more of one set-up on each side."
)


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """Change of speed from a base to a head: one run each, or repeats.

    gap: speed of the head over that of the base; None if they are not ranked with one another, or
        repeats are missing
    """

    base_runs: RunSet
    head_runs: RunSet
    gap: SpeedRatio | None

    @classmethod
    def between(cls, base: RunSet, head: RunSet) -> SpeedChange:
        """Return the change from a base to a head."""
        unknown = cls(base, head, None)
        groups = {row["group"] for runs in (base, head) for row in runs.counted}
        if len(groups) != 1 or None in groups or unknown.lacks_repeats:
            return unknown
        return cls(base, head, speed_ratio(not_null(head.side()), not_null(base.side())))

    @property
    def base(self) -> ComparisonRow:
        """Row of the base run, the first of repeats."""
        return self.base_runs.rows[0]

    @property
    def head(self) -> ComparisonRow:
        """Row of the head run, the first of repeats."""
        return self.head_runs.rows[0]

    @property
    def is_pair(self) -> bool:
        """True for one run on each side."""
        return self.base_runs.is_single and self.head_runs.is_single

    @property
    def lacks_repeats(self) -> bool:
        """True if a side has several runs, and one side lacks repeats."""
        return not self.is_pair and any(runs.obstacle() for runs in self.sides)

    @property
    def sides(self) -> tuple[RunSet, RunSet]:
        """Base and head."""
        return self.base_runs, self.head_runs

    @property
    def notes(self) -> str:
        """Sentences on failed runs of the base, and on settings that no log states."""
        if self.is_pair:
            return ""
        unstated = {name for runs in self.sides for name in runs.unstated}
        listed = ", ".join(sorted(unstated))
        assumed = f"Taken as equal, because no log states it: {listed}." if listed else ""
        return " ".join(filter(None, (self.base_runs.left_out, assumed)))

    @property
    def direction(self) -> str:
        """Direction: SLOWER, FASTER, SAME or UNKNOWN."""
        gap = self.gap
        if gap is None or gap.is_tied is None:
            return UNKNOWN
        if gap.is_tied or is_equally_fast(gap):
            return SAME
        return SLOWER if gap.ratio < 1 else FASTER

    @property
    def head_failed(self) -> bool:
        """True if a run of the head crashed, or ended in another bad way."""
        return bool(self.head_runs.failed)

    def sentence(self, style: Style = PLAIN_STYLE) -> str:
        """Return `head is 4.0 % slower than base (3.8 to 4.2)`; a failure comes first."""
        failed = ""
        if self.head_failed:
            outcome = self.head_runs.failure(style)
            failed = f"{self.head_runs.name(style)} failed ({outcome}): "
        return failed + self._speed(style)

    def _speed(self, style: Style) -> str:
        base, head = self.base_runs.name(style), self.head_runs.name(style)
        if self.gap is None:
            return f"{head} and {base} are {style.strong('not comparable')}"
        size, interval = difference_text(self.gap.ratio, self.gap.low, self.gap.high)
        size = f"{size} {'slower' if self.gap.ratio < 1 else 'faster'}"
        if self.gap.low is None or self.gap.high is None:
            why = style.plain(self.gap.no_interval_reason or TOO_FEW_WINDOWS)
            return f"{head} is {size} than {base}, {style.strong('without an interval')}: {why}"
        if is_equally_fast(self.gap):
            farthest = max(self.gap.low, self.gap.high, key=lambda end: abs(end - 1))
            within, _ = difference_text(farthest, None, None)
            return f"{head} is {style.strong('as fast as')} {base}, within {within}"
        sure = style.quiet(f"({interval})")
        if self.direction == SAME:
            same = style.strong("not measurably different")
            least = _detectable(self.gap)
            shown = f", and only {least} or more would be visible" if least else ""
            return f"{head} and {base} are {same}: {size} {sure}{shown}"
        return f"{head} is {style.strong(size)} than {base} {sure}"

    def obstacle(self, style: Style = PLAIN_STYLE) -> str:
        """Return why there is no ratio, in a sentence with a remedy for repeats."""
        if self.is_pair:
            return f"because the two are not comparable: {self._unlike(style)}."
        for runs in self.sides:
            if why := runs.obstacle():
                remedy = "" if "Fix:" in why else f" {REPEATS_REMEDY}"
                return f"because {style.plain(why).removesuffix('.')}.{remedy}"
        return f"because base and head are not comparable: {self._unlike(style)}."

    def _unlike(self, style: Style) -> str:
        base, head = ((runs.counted or runs.rows)[0] for runs in self.sides)
        found = compare_pair(base, head)
        differences = f"different {'; '.join(found.differences)}"
        return style.plain("; ".join(found.obstacles) or differences).removesuffix(".")


def named_change(
    sides: Mapping[str, Collection[str]], rows: Sequence[ComparisonRow]
) -> SpeedChange | None:
    """Return the change from the first to the second side; None without both.

    sides: ids of runs by the word that names them
    """
    placed = sorted(rows, key=lambda row: int(row["place"]))
    sets = [
        RunSet(of, word)
        for word, ids in sides.items()
        if (of := tuple(row for row in placed if row["run_id"] in ids))
    ]
    return SpeedChange.between(*sets) if len(sets) == 2 else None  # noqa: PLR2004 - two sides


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of a gate: its exit code, and a sentence."""

    code: int
    sentence: str


def gate(change: SpeedChange, allowed: float, style: Style = PLAIN_STYLE) -> GateResult:
    """Return whether a head is slower than its base by more than a share [fraction].

    GATE_SLOWER if the near end of the interval is beyond the share, GATE_PASSED if the far end is
    not, else GATE_UNDECIDED; also without a ranking, an interval or repeats. A head with a failed
    run is GATE_HEAD_FAILED, at any speed.
    """
    head, base = change.head_runs.name(style), change.base_runs.name(style)
    if change.head_failed:
        failure = change.head_runs.failure(style)
        return GateResult(GATE_HEAD_FAILED, f"{head} failed: {failure}.")
    gap, limit = change.gap, f"{100 * allowed:.3g} %"
    if gap is None:
        return GateResult(GATE_UNDECIDED, f"Not decided, {change.obstacle(style)}")
    if gap.low is None or gap.high is None:
        why = style.plain(gap.no_interval_reason or TOO_FEW_WINDOWS)
        return GateResult(GATE_UNDECIDED, f"Not decided without an interval: {why}. {GATE_REMEDY}")
    notes = style.plain(change.notes)
    near, far = (difference_text(end, None, None)[0] for end in (gap.high, gap.low))
    if gap.high < 1 - allowed:
        says = f"{head} is at least {near} slower than {base}; {limit} is allowed."
        return GateResult(GATE_SLOWER, f"{says} {notes}".rstrip())
    if gap.low >= 1 - allowed:
        least = f"at most {far} slower" if gap.low < 1 else f"at least {far} faster"
        says = f"{head} is {least} than {base}; {limit} is allowed."
        return GateResult(GATE_PASSED, f"{says} {notes}".rstrip())
    slow = f"is {near} to {far} slower than {base}"
    says = slow if gap.high < 1 else f"may be {far} slower than {base} or {near} faster"
    remedy = GATE_REMEDY if change.is_pair else f"{notes} {GATE_REPEATS_REMEDY}".lstrip()
    least = _detectable(gap)
    tied = f" No clear difference: only {least} or more would be visible." if least else ""
    says = f"Not decided: {head} {says}; {limit} is allowed.{tied} {remedy}"
    return GateResult(GATE_UNDECIDED, says)


def _detectable(gap: SpeedRatio) -> str:
    """Return the least difference that would have shown, if none did."""
    if not gap.is_tied or gap.smallest_difference is None:
        return ""
    return difference_text(1 + gap.smallest_difference, None, None)[0]
