"""Speed of a head run against its base: direction, size, and a gate for CI.

The 95 % interval of the ratio decides, never the ratio alone: a gate fails or passes only if the
whole interval is on one side of the allowed slow-down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairmfu.metrics.compare.comparability import compare_pair
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.repeated_runs import (
    TOO_FEW_WINDOWS,
    SpeedRatio,
    comparison_sides,
    speed_ratio,
)

from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.tabular import difference_text
from ..text.verdict import PLAIN_STYLE, Style, is_equally_fast

GATE_PASSED, GATE_SLOWER, GATE_HEAD_FAILED, GATE_UNDECIDED = 0, 3, 5, 6
"""Exit codes of a gate; 1, 2 and 4 mean the same as for every command."""

SLOWER, FASTER, SAME, UNKNOWN = "slower", "faster", "same", "unknown"
"""Directions of a change: SAME is equally fast or within the noise."""

GATE_REMEDY: Final = "Fix: log more steps, or allow more."


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """Change of speed from a base run to a head run.

    gap: speed of the head over that of the base; None if they are not ranked with one another
    """

    base: ComparisonRow
    head: ComparisonRow
    gap: SpeedRatio | None

    @classmethod
    def of(cls, rows: Sequence[ComparisonRow]) -> SpeedChange | None:
        """Return the change from the first to the second of two runs; else None."""
        if len(rows) != 2:  # noqa: PLR2004 - a pair
            return None
        base, head = sorted(rows, key=lambda row: int(row["place"]))
        if base["group"] is None or base["group"] != head["group"]:
            return cls(base, head, None)
        sides = {side.rows[0]["run_id"]: side for side in comparison_sides([base, head])}
        return cls(base, head, speed_ratio(sides[head["run_id"]], sides[base["run_id"]]))

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
        """True if the head crashed, or ended in another bad way."""
        return self.head["outcome"] in BAD_OUTCOMES

    def sentence(self, style: Style = PLAIN_STYLE) -> str:
        """Return `head is 4.0 % slower than base (3.8 to 4.2)`; a failure comes first."""
        failed = ""
        if self.head_failed:
            outcome = OUTCOME_LABELS[self.head["outcome"] or ""]
            failed = f"{style.name(self.head)} failed ({outcome}): "
        return failed + self._speed(style)

    def _speed(self, style: Style) -> str:
        base, head = style.name(self.base), style.name(self.head)
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
            return f"{head} and {base} are {same}: {size} {sure}"
        return f"{head} is {style.strong(size)} than {base} {sure}"

    def obstacle(self, style: Style = PLAIN_STYLE) -> str:
        """Return why the two are not comparable, in a clause."""
        found = compare_pair(self.base, self.head)
        differences = f"different {'; '.join(found.differences)}"
        return style.plain("; ".join(found.obstacles) or differences).removesuffix(".")


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of a gate: its exit code, and a sentence."""

    code: int
    sentence: str


def gate(change: SpeedChange, allowed: float, style: Style = PLAIN_STYLE) -> GateResult:
    """Return whether a head is slower than its base by more than a share [fraction].

    GATE_SLOWER if the near end of the interval is beyond the share, GATE_PASSED if the far end is
    not, else GATE_UNDECIDED; also without a ranking or an interval. A failed head is
    GATE_HEAD_FAILED, at any speed.
    """
    head, base, limit = style.name(change.head), style.name(change.base), f"{100 * allowed:.3g} %"
    if change.head_failed:
        outcome = OUTCOME_LABELS[change.head["outcome"] or ""]
        return GateResult(GATE_HEAD_FAILED, f"{head} failed: {outcome}.")
    gap = change.gap
    if gap is None:
        why = f"because the two are not comparable: {change.obstacle(style)}"
        return GateResult(GATE_UNDECIDED, f"Not decided, {why}.")
    if gap.low is None or gap.high is None:
        why = style.plain(gap.no_interval_reason or TOO_FEW_WINDOWS)
        return GateResult(GATE_UNDECIDED, f"Not decided without an interval: {why}. {GATE_REMEDY}")
    near, far = (difference_text(end, None, None)[0] for end in (gap.high, gap.low))
    if gap.high < 1 - allowed:
        says = f"{head} is at least {near} slower than {base}; {limit} is allowed."
        return GateResult(GATE_SLOWER, says)
    if gap.low >= 1 - allowed:
        least = f"at most {far} slower" if gap.low < 1 else f"at least {far} faster"
        return GateResult(GATE_PASSED, f"{head} is {least} than {base}; {limit} is allowed.")
    slow = f"is {near} to {far} slower than {base}"
    says = slow if gap.high < 1 else f"may be {far} slower than {base} or {near} faster"
    return GateResult(
        GATE_UNDECIDED, f"Not decided: {head} {says}; {limit} is allowed. {GATE_REMEDY}"
    )
