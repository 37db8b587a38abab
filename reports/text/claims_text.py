"""Logged speed figures of several runs, their ratios, the gap to ours, and doubts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any, Final

from fairmfu.metrics.audit.audit_results import Factor
from fairmfu.metrics.audit.formula_era import cause_text
from fairmfu.metrics.audit.logged_figures import PER_GPU_FIGURES, SAMPLES_FIGURE
from fairmfu.metrics.compare.comparison_row import STATED_BY_SOME, ComparisonRow
from fairmfu.metrics.core.run_table import MetricsRow, not_null, value_of, worst_doubt
from fairmfu.metrics.core.run_words import steps_of
from fairmfu.metrics.utilization.messages import MFU_IMPLAUSIBLE

from .tabular import count, count_noun, percent

if TYPE_CHECKING:
    from fairmfu.metrics.compare.repeated_runs import ComparisonSide

MIN_CAUSE_EFFECT: Final = 0.01
"""Smallest effect of a cause on the ratio of two logs to name the cause."""

MAX_NAMED_CAUSES: Final = 3
MAX_NAMED_FIGURES: Final = 3


CLAIM_UNITS: Final[dict[str, tuple[str, str, Callable[[float], str]]]] = {
    "logged_tflops": ("tflops", " TFLOP/s per GPU", count),
    "logged_mfu": ("mfu", " MFU", percent),
    "logged_tgs": ("tgs", " tokens/s/GPU", count),
    SAMPLES_FIGURE: ("samples_per_second", " samples/s", count),
}
RATE_FIGURES: Final = ("logged_tgs", SAMPLES_FIGURE)
"""Figures that need no formula of FLOPs."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Logged speed figures of a group in the order of its runs, with ours."""

    figure: str
    rows: Sequence[ComparisonRow]
    values: list[float]
    ours: list[float | None]
    unit: str
    text: Callable[[float], str]

    @property
    def spread(self) -> float:
        """Highest over lowest figure, less 1."""
        return max(self.values) / min(self.values) - 1

    @property
    def extremes(self) -> tuple[ComparisonRow, ComparisonRow]:
        """Runs with the highest and the lowest figure."""
        first, last = (self.rows[self.values.index(end(self.values))] for end in (max, min))
        return first, last

    def text_of(self, values: Sequence[float]) -> str:
        """Return all of a few values; of many, the ends."""
        if len(values) <= 2 * MAX_NAMED_FIGURES:
            return join_words([self.text(value) for value in values])
        return f"from {self.text(min(values))} to {self.text(max(values))}"


def group_claims(group: Sequence[ComparisonRow]) -> Claims | None:
    """Return the figure that most logs of a group print; None if fewer than two do."""
    figure = next((row["logged_by"] for row in group if row["logged_by"]), None)
    rows = [row for row in group if figure and value_of(row, figure)]
    if figure is None or len(rows) < 2:  # noqa: PLR2004 - one is nothing to set it against
        return None
    ours, unit, text = CLAIM_UNITS[figure]
    values = [value_of(row, figure) for row in rows]
    return Claims(figure, rows, values, [value_of(row, ours) for row in rows], unit, text)


def logged_ratio(
    runs: Sequence[ComparisonRow], other_runs: Sequence[ComparisonRow]
) -> tuple[str, float | None]:
    """Return the first figure that all these logs print, with the ratio of the sides.

    The ratio is of geometric means. ("", None) without a common figure.
    """
    for figure in PER_GPU_FIGURES:
        if all(row[figure] for row in (*runs, *other_runs)):
            return figure, _mean(runs, figure) / _mean(other_runs, figure)
    return "", None


def _mean(rows: Sequence[ComparisonRow], figure: str) -> float:
    return exp(fsum(log(value_of(row, figure)) for row in rows) / len(rows))


# --- why ----------------------------------------------------------------------------------

CAUSE_CLAUSES: Final = {
    "unit": ("prints a different unit", "prints a different unit"),
    "recompute": ("counts activation checkpointing as work", "omits a forward pass"),
    "lm_head": ("counts lm_head more than once", "omits or halves lm_head"),
    "vocabulary": ("counts a padded vocabulary", "counts a smaller vocabulary"),
    "embedding": ("counts the embedding look-up as a matmul", "omits an embedding"),
    "norms": ("counts norms and biases as matmuls", "omits norms or biases"),
    "mtp": ("counts multi-token prediction differently", "omits multi-token prediction"),
    "experts": ("counts more experts than a token uses", "counts fewer experts than a token uses"),
    "ffn": ("assumes a larger feed-forward block", "assumes a smaller feed-forward block"),
    "kv_heads": ("ignores grouped-query attention", "omits key and value"),
    "head_size": ("assumes head width d / heads", "assumes head width d / heads"),
    "attention": ("counts masked-out attention as work", "counts too little attention"),
    "trained": ("counts frozen weights as trainable", "omits trainable weights"),
    "data": ("excludes data loading from its time", "includes data loading in its time"),
    "window": (
        "has a median rate above its mean rate",
        "has a median rate below its mean rate",
    ),
    "unexplained": (
        "is higher than its own formula explains",
        "is lower than its own formula explains",
    ),
}
"""Effects of a log's formula that make its figure too high, or too low."""


def ratio_reasons(
    run: ComparisonRow,
    other_run: ComparisonRow,
    figure: str,
    format_name: Callable[[ComparisonRow], str],
    format_text: Callable[[str], str],
) -> str:
    """Return the reasons for a difference of two ratios, as a sentence `. Reasons: …`.

    The largest cause comes first. Causes that the two logs share cancel.

    figure: of PER_GPU_FIGURES, printed by both
    """
    mine, theirs = _overstated(run, figure), _overstated(other_run, figure)
    if mine is None or theirs is None:
        unknown = format_name(run) if mine is None else format_name(other_run)
        return f". The reason is unknown: no factors lead from the figure of {unknown} to ours"
    moves = {
        cause: log(mine.get(cause, (1.0, ""))[0]) - log(theirs.get(cause, (1.0, ""))[0])
        for cause in (*mine, *theirs)
    }
    seen = sorted(
        (c for c in moves if abs(moves[c]) > MIN_CAUSE_EFFECT), key=lambda c: -abs(moves[c])
    )
    if not seen:
        return f". The reasons are below {MIN_CAUSE_EFFECT:.0%} each".replace("%", " %")
    runs = ((run, mine), (other_run, theirs))
    told = _by_run(seen[:MAX_NAMED_CAUSES], runs, format_name, format_text)
    rest = len(seen) - MAX_NAMED_CAUSES
    told += [f"{rest} more causes" if rest > 1 else "one more cause"] if rest > 0 else []
    return f". Reasons: {join_words(told)}"


def differences_text(differs: Sequence[str]) -> str:
    """Return sentences, `Differences: framework (torchtitan vs xtuner), …`.

    differs: texts such as `framework: torchtitan vs xtuner`, and one that begins with
        STATED_BY_SOME
    """
    apart = [f"{text}." for text in differs if text.startswith(STATED_BY_SOME)]
    parts = (text.partition(": ") for text in differs if not text.startswith(STATED_BY_SOME))
    named = [f"{name} ({values})" for name, _, values in parts]
    return " ".join([*([f"Differences: {', '.join(named)}."] if named else []), *apart])


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """Return "a, b and c"."""
    return f" {conjunction} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


Overstated = dict[str, tuple[float, str]]


def _overstated(row: ComparisonRow, figure: str) -> Overstated | None:
    """Return by cause the factor by which a log's figure is too high, with words.

    None if no bridge leads from the figure to ours.
    """
    bridges = row["bridges"]
    bridge = next((b for b in bridges if b.figure == figure), None)
    found = bridge or (bridges[0] if bridges and figure == "logged_tgs" else None)
    if found is None:
        return None
    causes = {f.cause: (1 / f.factor, _own_words(f)) for f in found.factors}
    if bridge is None:  # the same rate is behind the log's other figures
        return {cause: causes[cause] for cause in RATE_CAUSES if cause in causes}
    rounded = "is rounded" if found.explained else ""
    return causes | {"unexplained": (found.unexplained, rounded)}


def _own_words(factor: Factor) -> str:
    """Return words that name the peak, as a name is better than a description."""
    return f"divides by {factor.text}" if factor.cause == "peak" else ""


RATE_CAUSES: Final = ("data", "window")


def _by_run(
    causes: Sequence[str],
    runs: Sequence[tuple[ComparisonRow, Overstated]],
    name: Callable[[ComparisonRow], str],
    plain: Callable[[str], str],
) -> list[str]:
    """Return the effects of each log, and effects of both with different factors."""
    alone: dict[str, list[str]] = {}
    both = []
    for cause in causes:
        do = [(run, *found[cause]) for run, found in runs if _does(found, cause)]
        if len(do) > 1:
            factors = " and ".join(f"x{times:.2f}" for _, times, _ in do)
            both.append(f"both differ from ours: {plain(_shared(cause, do))} ({factors})")
        else:
            ((run, times, text),) = do
            said = text or CAUSE_CLAUSES[cause][0 if times > 1 else 1]
            alone.setdefault(name(run), []).append(f"{plain(said)} (x{times:.2f})")
    return [f"the log of {run} {join_words(said)}" for run, said in alone.items()] + both


def _shared(cause: str, do: Sequence[tuple[ComparisonRow, float, str]]) -> str:
    if cause != "unexplained":
        return cause_text(cause, *(1 / times for _, times, _ in do))
    return "rounding" if all(text for *_, text in do) else "an unexplained part"


def _does(overstated: Overstated, cause: str) -> bool:
    return cause in overstated and abs(log(overstated[cause][0])) > MIN_CAUSE_EFFECT / 2


# --- doubts --------------------------------------------------------------------------------

MAX_DOUBTS: Final = 2
"""Most doubts that a sentence names; the tables have all."""

MAX_DOUBTED_RUNS: Final = 3
"""Most runs named with one doubt."""


def rate_doubts(
    sides: Sequence[ComparisonSide],
    ratio: float | None,
    name: Callable[[Mapping[str, Any]], str],
    plain: Callable[[str], str] = str,
) -> str:
    """Return the doubts about rates that have an interval, as a sentence.

    Empty without any: a rate without an interval is no claim.

    sides: what is compared. ratio: of two sides, the second over the first; else None
    name, plain: writers of a run's name and of other text
    """
    told: dict[str, list[ComparisonRow]] = {}
    for place, side in enumerate(sides):
        for row in side.rows if side.estimate is not None else ():
            clause = worst_doubt(row.get("doubts") or ())
            if clause is not None:
                other = (
                    _by_other_speed(row, ratio, is_base=place == 0) if len(side.rows) == 1 else ""
                )
                told.setdefault(f"{clause}{other}", []).append(row)
    shown = [f"{_names(rows, name)}: {plain(words)}" for words, rows in told.items()][:MAX_DOUBTS]
    if not shown:
        return ""
    rest = len(told) - len(shown)
    more = f"; {count_noun(rest, 'more doubt')} in the tables" if rest else ""
    return f"Doubt about {'; '.join(shown)}{more}."


def _names(rows: Sequence[ComparisonRow], name: Callable[[Mapping[str, Any]], str]) -> str:
    if len(rows) > MAX_DOUBTED_RUNS:
        return count_noun(len(rows), "run")
    return join_words([name(row) for row in rows])


def _by_other_speed(row: ComparisonRow, ratio: float | None, *, is_base: bool) -> str:
    """Return the ratio by the speed farthest from the TGS of a run, or nothing."""
    levels = [level for level in row.get("levels") or () if level["tgs"] and not level["ranked"]]
    if ratio is None or not levels or row["tgs"] is None:
        return ""
    tgs = row["tgs"]
    times = [not_null(level["tgs"]) / tgs for level in levels]
    farthest = max(range(len(levels)), key=lambda place: abs(times[place] - 1))
    other = ratio / times[farthest] if is_base else ratio * times[farthest]
    return f"; by its speed at steps {steps_of(levels[farthest])} the ratio is {other:.2f}x"


def implausible(rows: Sequence[MetricsRow]) -> str:
    """Return the words after an MFU above that of any training, or nothing."""
    kind = MFU_IMPLAUSIBLE.identifier
    return ", not plausible" if any(kind in (row["warning_kinds"] or ()) for row in rows) else ""
