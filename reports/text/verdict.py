"""Sentences on who is faster, by how much, with what confidence, against the logs.

The terminal and the page share the wording: a `Style` defines how each writes a run's name,
emphasis and quiet text. Rows come from `join_comparison`: metrics, comparison and bridges of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import polars as pl

from fairmfu.metrics.audit.audit_results import Bridge
from fairmfu.metrics.compare.comparability import (
    COLUMN_LABELS,
    REPEAT_KEY_COLUMNS,
    TOKEN_UNIT,
    PairVerdict,
    compare_pair,
)
from fairmfu.metrics.compare.comparison_row import STATED_BY_SOME, ComparisonRow
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.compare.repeated_runs import (
    MIN_REPEATS,
    ComparisonSide,
    SpeedRatio,
    comparison_sides,
    speed_ratio,
)
from fairmfu.metrics.core.run_table import not_null, value_of
from fairmfu.metrics.core.run_words import SECONDS_PER_HOUR
from fairmfu.metrics.diagnosis.phase_gap import REST, phase_gap, work_per_gpu

from .claims_text import (
    MIN_CAUSE_EFFECT,
    RATE_FIGURES,
    Claims,
    differences_text,
    group_claims,
    implausible,
    join_words,
    logged_ratio,
    rate_doubts,
    ratio_reasons,
)
from .run_narrative import phase_label, step_seconds
from .runs_table import NO_RUN_CHOSEN, NO_RUN_REMEDY, unique_names
from .tabular import count, count_noun, percent
from .unranked_rates import facts_of_pair, has_step_ratio, rate_unit, rate_words, step_ratio

MAX_EQUAL_DIFFERENCE: Final = 0.005
"""Largest distance from 1 of a whole interval to call sides equally fast."""

MAX_THREE_DECIMAL_RATIO: Final = 1.02
"""Ratios below this need a third decimal."""

MAX_RATIO_DECIMALS: Final = 4

MAX_NAMED_RUNS: Final = 3
"""Most runs named in a sentence; the table has the rest."""

SET_COMMAND: Final = "fairmfu set RUN NAME=VALUE"

FACT_WORDS: Final = {
    "seq_len": "no sequence length",
    "gpus": "no number of GPUs",
    "packed": "no packing of samples",
}
"""Missing facts of a token count, in words, the most telling first."""

ASSUMED_EQUAL: Final = {
    "model": "model",
    "seq_len": "sequence length",
    "packed": "packing",
    "gpus": "GPUs",
    "device": "accelerator",
    "precision": "precision",
}
"""Columns that a rank by samples/s assumes to be equal where they are unknown, with labels."""

MIN_LOGGED_SPREAD: Final = 0.02
"""Smallest difference of logged figures to mention."""


@dataclass(frozen=True, slots=True)
class Style:
    """Functions that write parts of a text.

    name: of a run; strong: emphasis; quiet: confidence of a figure; aside: a clause after the
        sentence; plain: any other text
    """

    name: Callable[[Mapping[str, Any]], str]
    strong: Callable[[str], str]
    quiet: Callable[[str], str]
    aside: Callable[[str], str]
    plain: Callable[[str], str]


PLAIN_STYLE: Final = Style(lambda row: str(row["label"]), str, str, str, str)
"""Style of a terminal."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a group: its label, the sentence, notes beneath, and the differences."""

    label: str
    says: str
    notes: tuple[str, ...]
    differs: str = ""

    @property
    def sentence(self) -> str:
        """Sentence with a capital "All" at the start; a run's name is not capitalised."""
        return f"All {self.says[4:]}" if self.says.startswith("all ") else self.says


def no_ranking_reason(rows: Sequence[ComparisonRow]) -> tuple[str, str]:
    """Return why no run can be ranked, and the remedy: facts, if a run lacks any."""
    if not rows:
        return NO_RUN_CHOSEN, NO_RUN_REMEDY
    if any(row["missing"] for row in rows):
        says = "No run can be ranked yet: facts are missing from the logs."
        return says, f"Missing facts are listed below. Fix: {SET_COMMAND}."
    return "No run can be ranked.", "The reasons are below."


def join_comparison(
    metrics: pl.DataFrame,
    comparison: pl.DataFrame,
    bridges: Mapping[str, Sequence[Bridge]],
    stored: pl.DataFrame | None = None,
) -> list[ComparisonRow]:
    """Return rows of `comparability.rank_runs` in their order, with all metrics.

    `label` is a name that is unique among the runs in `stored`, by default in `metrics`; `place`
    the row in `metrics`.
    """
    about = metrics.with_row_index("place").rows_by_key("run_id", named=True, unique=True)
    known = unique_names(metrics if stored is None else stored)
    rows = [
        {
            **about[row["run_id"]],
            **row,
            "label": known[row["run_id"]],
            "bridges": bridges.get(row["run_id"], []),
        }
        for row in comparison.to_dicts()
    ]
    return cast(list[ComparisonRow], rows)


def ranked_groups(rows: Sequence[ComparisonRow]) -> list[list[ComparisonRow]]:
    """Return groups of like-for-like runs, best first; a group begins with its rank 1."""
    several: list[list[ComparisonRow]] = []
    for row in rows:
        if row["rank"] == 1:
            several.append([])
        if row["rank"] is not None:
            several[-1].append(row)
    return several


def group_verdict(group: Sequence[ComparisonRow], style: Style = PLAIN_STYLE) -> Verdict:
    """Return the verdict on one group of like-for-like runs."""
    speaker = _Speaker(group, style)
    notes = (
        speaker.phases(),
        speaker.noise(),
        speaker.logs(),
        speaker.utilisation(),
        speaker.losses(),
        speaker.cost(),
        speaker.nearest(),
    )
    told = tuple(note for note in notes if note)
    return Verdict(str(group[0]["group"]), speaker.says(), told, speaker.not_the_same())


def pair_verdict(
    run: ComparisonRow, other_run: ComparisonRow, style: Style = PLAIN_STYLE
) -> Verdict:
    """Return the verdict on two runs that are not like for like."""
    found = compare_pair(run, other_run)
    if has_step_ratio(run, other_run):
        return _step_verdict(run, other_run, found, style)
    both = f"{style.name(run)} and {style.name(other_run)}"
    why = style.plain("; ".join(found.obstacles)).removesuffix(".")
    says = f"{both} are {style.strong('not comparable')}, so no winner is claimed: {why}."
    if found.verdict != "not comparable":
        says = (
            f"{both} train the same model, but {style.strong('are not ranked')}: different "
            f"{style.plain('; '.join(found.differences))}. No winner is claimed."
        )
    notes = []
    if run["tgs"] and other_run["tgs"]:
        notes.append(
            f"They run at {run['tgs']:,.0f} and {other_run['tgs']:,.0f} tokens/s/GPU"
            f"{_rate_ratio(run, other_run, style) if _same_work(found, run, other_run) else ''}."
        )
    mine, theirs = run["tgs_at_equal_flops"], other_run["tgs_at_equal_flops"]
    if mine and theirs and run["equal_flops"] == other_run["equal_flops"]:
        notes.append(
            f"Scaled to equal FLOPs per token ({run['equal_flops']:.4g}): {mine:,.0f} and "
            f"{theirs:,.0f} tokens/s/GPU, {mine / theirs:.2f}x. This is the ratio of their MFU, "
            "not of their speed."
        )
    if found.verdict == "same model":
        slow, fast = sorted((run, other_run), key=lambda row: row["tgs"] or 0.0)
        notes += [said] if (said := gap_sentence(slow, fast, style)) else []
    context = [words for words in found.context if not words.startswith(STATED_BY_SOME)]
    if found.verdict == "not comparable":
        context = [*found.differences, *context] if _same_work(found, run, other_run) else []
    if context:
        notes.append(style.plain(f"Other differences: {'; '.join(context)}."))
    return Verdict("", says, tuple(notes))


def _step_verdict(
    run: ComparisonRow, other_run: ComparisonRow, pair: PairVerdict, style: Style
) -> Verdict:
    """Return the ratio of two runs without a TGS, then their facts and the reasons."""
    slow, fast = sorted((run, other_run), key=lambda row: -not_null(row["seconds_per_step"]))
    if slow["samples_per_second"] and fast["samples_per_second"]:
        slow, fast = sorted((run, other_run), key=lambda row: not_null(row["samples_per_second"]))
    ratio = step_ratio(fast, slow)
    ends, digits = "", 2
    if ratio.low is not None and ratio.high is not None:
        digits = _digits(ratio)
        ends = style.quiet(f" ({ratio.low:.{digits}f} to {ratio.high:.{digits}f})")
    speed = style.strong(f"{ratio.ratio:.{digits}f}x")
    says = (
        f"{style.name(fast)} has {speed}{ends} the {rate_unit(fast, slow)} of {style.name(slow)}: "
        f"{style.plain(rate_words(fast, slow))}. They are {style.strong('not comparable')}, so no "
        "winner is claimed: the work of a step may differ."
    )
    return Verdict("", says, tuple(map(style.plain, facts_of_pair(run, other_run, pair))))


def _same_work(pair: PairVerdict, run: ComparisonRow, other_run: ComparisonRow) -> bool:
    """Return whether two runs train one model and count the same tokens."""
    different = {"work", "token_group"} & {*pair.differing_columns}
    alike = all(run[name] == other_run[name] for name in ("model", "synthetic"))
    return alike and not different


def _rate_ratio(run: ComparisonRow, other_run: ComparisonRow, style: Style) -> str:
    """Return the ratio of two rates, as the end of a sentence.

    Not a verdict: with a fact that is unknown, the work per token may differ.
    """
    sides = [comparison_sides([row])[0] for row in (other_run, run)]
    gap = speed_ratio(*sides)
    if gap.low is None or gap.high is None:
        return f": {style.name(other_run)} has {gap.ratio:.2f}x the rate"
    digits = _digits(gap)
    ends = style.quiet(f"({gap.low:.{digits}f} to {gap.high:.{digits}f})")
    return f": {style.name(other_run)} has {gap.ratio:.{digits}f}x {ends} the rate"


def gap_sentence(slow: ComparisonRow, fast: ComparisonRow, style: Style = PLAIN_STYLE) -> str:
    """Return the phase that makes most of the gap between two runs; empty if unknown."""
    gap = phase_gap(slow, fast)
    if gap is None or gap.gap_s <= 0 or gap.share <= 0:
        return ""
    most = "Most" if gap.share > MAJORITY else "The largest part"
    per_step = f"{step_seconds(gap.seconds)} per step against {step_seconds(gap.baseline_seconds)}"
    work, unit = work_per_gpu(slow)
    equal = "" if work == work_per_gpu(fast)[0] else f", for equal {unit}"
    share = "all" if gap.share >= MIN_WHOLE_GAP else percent(gap.share)
    where = phase_label(gap.phase)
    if gap.phase == REST:
        where = f"outside all timed phases ({join_words([*map(phase_label, gap.timed)])})"
    return (
        f"{most} of the gap between {style.name(fast)} and {style.name(slow)} is "
        f"{where}: {per_step}{equal} ({share} of the difference)."
    )


MAJORITY: Final = 0.5
MIN_WHOLE_GAP: Final = 0.995
"""Least shares of a gap that are most of it, and all of it."""


def is_equally_fast(gap: SpeedRatio) -> bool:
    """Return whether a whole interval is near to 1 (MAX_EQUAL_DIFFERENCE)."""
    if gap.low is None or gap.high is None:
        return False
    return gap.low >= 1 - MAX_EQUAL_DIFFERENCE and gap.high <= 1 + MAX_EQUAL_DIFFERENCE


# --- one group ----------------------------------------------------------------------------


class _Speaker:
    """Sentences on one group."""

    def __init__(self, group: Sequence[ComparisonRow], style: Style) -> None:
        self.group, self.style = group, style
        self.sides = comparison_sides(group)
        self.best, self.others = self.sides[0], self.sides[1:]
        self.gaps = [speed_ratio(self.best, other) for other in self.others]

    def says(self) -> str:
        """Return who is faster, by how much, how sure, and the logs' answer."""
        if not self.others:
            return (
                f"{self._side(self.best)} runs at {self._rate(self.best)}; nothing else here is "
                "comparable."
            )
        pairs = list(zip(self.others, self.gaps, strict=True))
        equal = [(side, found) for side, found in pairs if is_equally_fast(found)]
        tied = [one for one in pairs if one[1].is_tied and one not in equal]
        slower = [one for one in pairs if one[1].is_tied is False and one not in equal]
        unsure = [(side, found) for side, found in pairs if found.is_tied is None]
        if not equal and not tied and not slower:
            return self._unsure()
        parts = [self._as_fast(equal)] if equal else []
        parts += [self._tied(tied)] if tied else []
        parts += [self._slower(slower)] if slower else []
        parts += map(self.style.aside, self._unknown(unsure))
        is_pair = len(self.sides) == 2  # noqa: PLR2004
        logs = self._logs_said() if (is_pair if tied else slower and not equal) else ""
        told = "; ".join(parts) + "." + self._basis() + logs
        return told + self._losses_apart() + self._doubts()

    def _basis(self) -> str:
        """Return sentences on the rate that ranks, where it is not TGS."""
        if self.best.unit == TOKEN_UNIT:
            return ""
        lacks = [name for row in self.group for name in explain_missing_rate(row)[1]]
        fact = next((FACT_WORDS[name] for name in FACT_WORDS if name in lacks), "no token count")
        several = len(self.group) > 2  # noqa: PLR2004 - a pair
        batch = not_null(self.group[0]["samples_per_update"])
        text = (
            f" Ranked by samples/s, because the logs state {fact}; {'all' if several else 'both'} "
            f"have a global batch of {batch:,.0f}."
        )
        first = self.group[0]
        guessed = {"packed"}.intersection(first["inferred"])
        unknown = [
            label
            for name, label in ASSUMED_EQUAL.items()
            if name in guessed or value_of(first, name) is None
        ]
        if unknown:
            text += f" This assumes equal {join_words(unknown)}, which the logs do not state."
        text += " Their losses agree at equal steps."
        return self.style.aside(self.style.plain(text))

    def _losses_apart(self) -> str:
        """Return a doubt to put beside the claim: a run that trains less can be faster."""
        if all(row["same_loss"] is not False for row in self.group):
            return ""
        doubt = self.style.strong("Their losses differ")
        return self.style.aside(f" {doubt}, so they may not have trained the same way.")

    def _doubts(self) -> str:
        """Return the doubts about the rates, beside the claim."""
        ratio = self.gaps[0].ratio if len(self.others) == 1 else None
        sides = [*self.others, self.best]
        told = rate_doubts(sides, ratio, self.style.name, self.style.plain)
        return self.style.aside(f" {told}") if told else ""

    def _unknown(self, unsure: Sequence[tuple[ComparisonSide, SpeedRatio]]) -> list[str]:
        """Return clauses on sides without an interval: those near to the best, and others."""
        near = [(side, found) for side, found in unsure if found.ratio < 1 + MAX_EQUAL_DIFFERENCE]
        far = [(side, found) for side, found in unsure if found.ratio >= 1 + MAX_EQUAL_DIFFERENCE]
        parts = []
        if near:
            verb, has = ("is", "has") if len(near) == 1 else ("are", "have")
            parts.append(
                f"{self._listed([side for side, _ in near])} {verb} within "
                f"{_small(1 - 1 / near[-1][1].ratio)} too, but {has} no interval: "
                f"{self._why(near[0][1])}"
            )
        if far:
            few = self._listed([side for side, _ in far])
            parts.append(f"no rank is claimed for {few}: {self._why(far[0][1])}")
        return parts

    def _unsure(self) -> str:
        """Return the sentence if no other side can be compared with an interval."""
        without = next((side for side in self.sides if side.estimate is None), self.best)
        why = f"{self._side(without)} has no 95 % interval ({self._why(self.gaps[0])})"
        apart = 1 - 1 / self.gaps[-1].ratio
        if apart < MAX_EQUAL_DIFFERENCE:
            return (
                f"{self._all(self.sides)} are {self.style.strong(f'within {_small(apart)}')}: "
                f"{self._rate(self.best)}{self._printed(self.sides)}; {why}."
            )
        told = [f"the {self.best.unit}", *["those"] * (MAX_NAMED_RUNS - 1)]
        times = [
            f"{found.ratio:.2f}x {the} of {self._side(side)}"
            for the, side, found in zip(told, self.others, self.gaps, strict=False)
        ]
        return (
            f"{self.style.strong('No winner is claimed')}, because {why}. "
            f"{self._side(self.best)} has {join_words(times)}.{self._logs_said()}"
        )

    def _why(self, gap: SpeedRatio) -> str:
        return self.style.plain(gap.no_interval_reason or "no interval")

    def _as_fast(self, equal: Sequence[tuple[ComparisonSide, SpeedRatio]]) -> str:
        """Return the clause on sides that are certainly as fast as the best."""
        among = [self.best, *(side for side, _ in equal)]
        apart = 1 - 1 / equal[-1][1].ratio
        text = f"{self._all(among)} are {self.style.strong('equally fast')}, within {_small(apart)}"
        return text + f": {self._rate(self.best)}" + self._printed(among)

    def _tied(self, tied: Sequence[tuple[ComparisonSide, SpeedRatio]]) -> str:
        """Return the clause on sides that the data cannot separate from the best."""
        apart = 1 - 1 / tied[-1][1].ratio
        whole = self._all([self.best, *(side for side, _ in tied)])
        shown = max(found.smallest_difference or 0.0 for _, found in tied)
        return (
            f"{whole} {self.style.strong('are not measurably different')} "
            f"(they are {_small(apart)} apart; their noise hides differences below {_small(shown)})"
        )

    def _slower(self, slower: Sequence[tuple[ComparisonSide, SpeedRatio]]) -> str:
        per_gpu = " per GPU" if self.best.unit == TOKEN_UNIT else ""
        gains = [
            self._gain(side, found, per_gpu if place == 0 else "")
            for place, (side, found) in enumerate(slower[:MAX_NAMED_RUNS])
        ]
        rest = len(slower) - MAX_NAMED_RUNS
        more = f" and {count_noun(rest, 'more')} below" if rest > 0 else ""
        told = join_words(gains) if not more else ", ".join(gains) + more
        return f"{self._side(self.best)} is {told}"

    def _gain(self, other: ComparisonSide, gap: SpeedRatio, unit: str) -> str:
        digits = _digits(gap)
        ratio = self.style.strong(f"{gap.ratio:.{digits}f}x")
        sure = self.style.quiet(f"({gap.low:.{digits}f} to {gap.high:.{digits}f})")
        return f"{ratio} {sure} as fast{unit} as {self._side(other)}"

    def _logs_said(self) -> str:
        """Return the logs' verdict on the best side, and why it differs from ours."""
        return self.style.aside(f" {told}.") if (told := self._of_the_logs()) else ""

    def _of_the_logs(self) -> str:
        if self.best.unit != TOKEN_UNIT:  # a note shows the logged samples/s
            return ""
        pair_only = len(self.sides) == 2  # noqa: PLR2004
        found = group_claims(self.group)
        if not pair_only and found is not None and found.spread > MIN_LOGGED_SPREAD:
            first = found.extremes[0]
            if not first["tied_with_best"] and first not in self.best.rows:
                fastest = self.style.strong("would be fastest")
                return f"By the logged figures, {self.style.name(first)} {fastest}"
        pairs = zip(self.others, self.gaps, strict=True)
        told = ((side, gap, *logged_ratio(self.best.rows, side.rows)) for side, gap in pairs)
        beside = [(side, gap, fig, ratio) for side, gap, fig, ratio in told if ratio is not None]
        if not beside:
            return "Their logs share no speed figure"
        other, ours, figure, ratio = beside[0]
        times = self.style.strong(f"{ratio:.2f}x")
        of = "" if pair_only else f" against {self._side(other)}"
        if abs(ratio / ours.ratio - 1) < MIN_CAUSE_EFFECT:
            return f"By the logged figures, it also has {times} the speed of {self._side(other)}"
        why = ratio_reasons(
            self.best.rows[0], other.rows[0], figure, self.style.name, self.style.plain
        )
        return f"The logs suggest {times}{of}{why}"

    def _printed(self, among: Sequence[ComparisonSide]) -> str:
        """Return a clause if the logs of equally fast sides print different speeds."""
        found = group_claims([row for side in among for row in side.rows])
        if found is None or found.spread <= MIN_LOGGED_SPREAD:
            return ""
        printed = f"{found.text_of(found.values)}{found.unit}"
        return f", although their logs print {self.style.strong(printed)}"

    def _rate(self, side: ComparisonSide) -> str:
        mfu = side.mfu
        given = any(row["flops_source"] for row in side.rows)
        by = "by given FLOPs" if given else "exact attention"
        by += implausible(side.rows)
        told = "" if mfu is None else f", MFU {mfu:.1%} ({by})".replace("%", " %")
        return f"{count(side.rate)} {side.unit}{told}"

    def _side(self, side: ComparisonSide) -> str:
        """Return the name of a run; of a setup, the framework and the number of runs.

        Of several setups of one framework, each has the shortest name of its runs.
        """
        if not side.has_run_interval:
            return self.style.name(side.rows[0])
        framework = side.rows[0]["framework"]
        alone = [s for s in self.sides if s.rows[0]["framework"] == framework]
        if len(alone) == 1:
            return self.style.plain(f"{framework} ({side.repeats} runs)")
        shortest = min(side.rows, key=lambda row: (len(row["label"]), row["label"]))
        return f"{self.style.name(shortest)}{self.style.plain(f' ({side.repeats} runs)')}"

    def _listed(self, among: Sequence[ComparisonSide]) -> str:
        names = [self._side(side) for side in among]
        if len(names) > MAX_NAMED_RUNS:
            names = [
                *names[: MAX_NAMED_RUNS - 1],
                count_noun(len(names) - MAX_NAMED_RUNS + 1, "more run"),
            ]
        return join_words(names)

    def _all(self, among: Sequence[ComparisonSide]) -> str:
        """Return `all 5 runs` for the whole group, else the names."""
        if len(among) > MAX_NAMED_RUNS and len(among) == len(self.sides):
            return f"all {len(among)} runs"
        return self._listed(among)

    # --- notes ---

    def phases(self) -> str:
        """Return the phase with most of the gap between the fastest and the slowest run."""
        if not self.others or is_equally_fast(self.gaps[-1]):
            return ""
        slow, fast = self.others[-1].rows[0], self.best.rows[0]
        return gap_sentence(slow, fast, self.style)

    def noise(self) -> str:
        """Return a note on the noise between runs."""
        if not self.others:
            return ""
        if not any(side.has_run_interval for side in self.sides):
            twice = sorted({str(s.rows[0]["setup"]) for s in self.sides if s.repeats > 1})
            if not twice:
                unknown = "No setup has a second run, so run-to-run noise is unknown."
                within = "Intervals cover variation within a run only."
                return f"{unknown} {within}{self._may_repeat(self.sides)}"
            return " ".join(map(self._two_repeats, twice))
        repeated = [self._side(side) for side in self.sides if side.has_run_interval]
        told = "s of {} cover" if len(repeated) > 1 else " of {} covers"
        parts = [f"The interval{told.format(join_words(repeated))} run-to-run noise"]
        once = [side for side in self.sides if not side.has_run_interval]
        if once:
            verb = "has" if len(once) == 1 else "have"
            parts.append(f"{self._listed(once)} {verb} too few runs to estimate it")
        return f"{'; '.join(parts)}.{self._may_repeat(once)}"

    def _two_repeats(self, setup: str) -> str:
        """Return a sentence on a setup with too few repeats for an interval between runs."""
        rows = [row for row in self.group if row["setup"] == setup]
        names = join_words(_some([self.style.name(row) for row in rows]))
        starts = max(side.repeats for side in self.sides if side.rows[0]["setup"] == setup)
        these = f"these are {starts}"
        if resumed := len(rows) - starts:
            verb = "resumes" if resumed == 1 else "resume"
            why = f"because {resumed} of them {verb} another"
            these = f"these {len(rows)} runs count as {starts}, {why}"
        return (
            f"{names} have the same setup. Run-to-run noise is unknown: it needs {MIN_REPEATS} "
            f"independent launches, and {these}."
        )

    def _may_repeat(self, once: Sequence[ComparisonSide]) -> str:
        """Return a note on runs that are no repeats only because logs omit facts."""
        rows = [row for side in once for row in side.rows]
        silent = [row for row in rows if any(row[name] is None for name in REPEAT_KEY_COLUMNS)]
        formats = [row["log_format"] for row in silent]
        unsure = [row for row in silent if formats.count(row["log_format"]) > 1]
        if not unsure:
            return ""
        unknown = [name for name in REPEAT_KEY_COLUMNS if any(row[name] is None for row in unsure)]
        lacks = f"{join_words([COLUMN_LABELS.get(name, name) for name in unknown])} unknown"
        how = " ".join(f"{name}=VALUE" for name in unknown)
        who = join_words(_some([self.style.name(row) for row in unsure]))
        who = "These runs" if len(unsure) == len(rows) else who
        return f" {who} are not treated as repeats: {lacks}. Fix: fairmfu set RUN {how}."

    def utilisation(self) -> str:
        """Return a note on the facts that runs without an MFU lack.

        Runs of a group share all inputs of MFU, so none of them has an MFU.
        """
        if self.best.unit != TOKEN_UNIT or any(row["mfu"] is not None for row in self.group):
            return ""
        lacks = list(dict.fromkeys(name for row in self.group for name in row["missing"]))
        if not lacks:
            return ""
        if lacks == ["peak_flops"]:
            row = self.group[0]
            return self.style.plain(
                f"No MFU: no {row['precision']} peak of {row['device']} is known. Fix: fairmfu set "
                "RUN peak_flops=N (dense FLOP/s in that precision)."
            )
        return f"No MFU: {join_words(lacks)} missing. Fix: fairmfu set RUN {lacks[0]}=VALUE."

    def logs(self) -> str:
        """Return a note on the logged figures beside ours, and the order by the logs."""
        if len(self.group) == 1:
            return ""
        found = group_claims(self.group)
        if found is None:
            return "No two logs print the same speed figure; the table shows what they print."
        text = f"Logged: {found.text_of(found.values)}{found.unit}. "
        ours = [value for value in found.ours if value is not None]
        if len(ours) == len(found.ours):
            by = "" if found.figure in RATE_FIGURES else " (exact attention)"
            text += f"Ours{by}: {found.text_of(ours)}{found.unit}. "
        silent = len(self.group) - len(found.rows)
        if silent:
            verb = "prints" if silent == 1 else "print"
            text += f"{count_noun(silent, 'log')} of {len(self.group)} {verb} none. "
        return (text + self._misled(found)).strip()

    def _misled(self, claims: Claims) -> str:
        """Return the wrong verdict that the logs alone suggest, if any, and why."""
        first, last = claims.extremes
        ours_apart = not_null(first["ranked_rate"]) / not_null(last["ranked_rate"])
        right = bool(first["tied_with_best"]) and last["tied_with_best"] is False
        right |= abs((1 + claims.spread) / ours_apart - 1) < MIN_CAUSE_EFFECT
        order = [
            row["label"]
            for row in sorted(claims.rows, key=lambda row: not_null(row["logged_rank"]))
        ]
        listing = self.style.plain(", ".join(order)) if len(order) <= 2 * MAX_NAMED_RUNS else ""
        if claims.spread <= MIN_LOGGED_SPREAD:
            return ""
        if right:
            other = listing and order != [row["label"] for row in claims.rows]
            return f"Order by logged figures: {listing}." if other else ""
        text = (
            f"By the logged figures alone, {self.style.name(first)} would seem "
            f"{1 + claims.spread:.2f}x as fast as {self.style.name(last)} (ours: {ours_apart:.2f}x)"
        )
        if len(self.sides) > 2 or self._equal():  # noqa: PLR2004 - of a pair the sentence says it
            text += ratio_reasons(first, last, claims.figure, self.style.name, self.style.plain)
        if listing and len(order) > 2:  # noqa: PLR2004 - two are said already
            text += f". Order by logged figures: {listing}"
        return f"{text}."

    def _equal(self) -> bool:
        return all(map(is_equally_fast, self.gaps))

    def losses(self) -> str:
        """Return a note on the losses at equal tokens, with a flag if they differ."""
        if len(self.group) == 1:
            return ""
        there = [row for row in self.group if row["loss_at_equal_tokens"] is not None]
        if len(there) < 2:  # noqa: PLR2004 - nothing to set side by side
            why = sorted({row["no_loss"] for row in self.group if row["no_loss"]})
            return f"Losses are not compared: {self.style.plain('; '.join(why))}." if why else ""
        losses = [f"{row['loss_at_equal_tokens']:#.4g}" for row in there]
        named = [f"{self.style.name(row)} {loss}" for row, loss in zip(there, losses, strict=True)]
        told = f"{losses[0]} each" if len(set(losses)) == 1 else ", ".join(_some(named))
        tokens = there[0]["equal_tokens"]
        when = "equal steps" if tokens is None else f"{tokens:,.0f} tokens"
        text = f"Loss at {when}: {told}"
        apart = [row for row in there if not row["same_loss"]]
        if not apart:
            return f"{text}. Equal within their noise."
        spread = max(not_null(row["loss_spread"]) for row in there)
        who = "they" if len(there) == 2 else join_words(_some([self.style.name(r) for r in apart]))  # noqa: PLR2004
        return (
            f"{text}. {self.style.strong('They differ')} by more than their noise "
            f"({spread:.2g}), so {who} may not have trained the same way."
        )

    def cost(self) -> str:
        """Return a note on GPU-hours, and money if priced, per 10^9 tokens.

        At steady speed. Of many sides only the table has it.
        """
        few = 1 < len(self.sides) <= MAX_NAMED_RUNS
        if not few or self.best.unit != TOKEN_UNIT:
            return ""
        hours = [_hours(1e9 / side.rate / SECONDS_PER_HOUR) for side in self.sides]
        text = f"1 billion tokens cost {_few(hours, ' GPU-hours')} at steady speed"
        price = self.group[0]["price_per_gpu_hour"]
        if price is not None:
            paid = [f"{side.rows[0]['cost_per_billion_tokens']:,.2f}" for side in self.sides]
            text += f", or {_few(paid)} at {price} per GPU-hour"
        order = ", best run first" if len(set(hours)) > 1 else ""
        return self.style.plain(f"{text}{order}.")

    def not_the_same(self) -> str:
        """Return the differences within a group, except the compared framework."""
        usual = ["framework:", STATED_BY_SOME]
        if len({row["framework"] for row in self.group}) > 1:
            usual += [f"{COLUMN_LABELS['framework_version']}:", f"{COLUMN_LABELS['time_basis']}:"]
        found = [words for words in self.group[0]["differs"] if not words.startswith(tuple(usual))]
        return self.style.plain(differences_text(found)) if found else ""

    def nearest(self) -> str:
        """Return a note on the nearest group of the same model, and its differences."""
        best = self.group[0]
        if best["nearest_group"] is None:
            return ""
        text = (
            f"Not ranked against {best['nearest_group']}: same model, different "
            f"{'; '.join(best['nearest_differs'])}."
        )
        return self.style.plain(text)


# --- words --------------------------------------------------------------------------------


def ratio_words(gap: SpeedRatio) -> str:
    """Return a ratio, with its interval if known: `1.034x (1.012 to 1.051)`."""
    if gap.low is None or gap.high is None:
        return f"{gap.ratio:.2f}x"
    digits = _digits(gap)
    return f"{gap.ratio:.{digits}f}x ({gap.low:.{digits}f} to {gap.high:.{digits}f})"


def price_words(gap: SpeedRatio) -> str:
    """Return the limits of prices between two speeds, if they surely differ."""
    if gap.low is None or gap.high is None or gap.is_tied:
        return ""
    low, high = (f"{end:.{_digits(gap)}f}x" for end in (gap.low, gap.high))
    return f"so it is cheaper per token below {low} the price, and dearer above {high}"


def _digits(gap: SpeedRatio) -> int:
    """Return the fewest decimals of a ratio that show its interval.

    If the interval excludes 1, the printed ends exclude 1 too.
    """
    for digits in range(3 if gap.ratio < MAX_THREE_DECIMAL_RATIO else 2, MAX_RATIO_DECIMALS):
        low, ratio, high = (f"{v:.{digits}f}" for v in (gap.low, gap.ratio, gap.high))
        reaches = any(float(told) == 1 != end for told, end in ((low, gap.low), (high, gap.high)))
        if low != ratio != high and not reaches:
            return digits
    return MAX_RATIO_DECIMALS


def _some(words: Sequence[str]) -> list[str]:
    """Return all of a few words; of many, the first and a count."""
    most = 2 * MAX_NAMED_RUNS
    return [*words] if len(words) <= most else [*words[: most - 1], f"{len(words) - most + 1} more"]


def _few(figures: Sequence[str], unit: str = "") -> str:
    """Return figures in the order of the runs; once if all read the same."""
    same = len(set(figures)) == 1
    return f"{figures[0]}{unit} each" if same else f"{join_words(_some(figures))}{unit}"


def _small(share: float) -> str:
    """Return 0.0132 as 1.3 %, and anything below 0.1 % as 0.1 %."""
    return f"{100 * share:.1f} %" if share >= 0.0005 else "0.1 %"  # noqa: PLR2004 - one decimal


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:#.3g}"  # noqa: PLR2004 - three digits
