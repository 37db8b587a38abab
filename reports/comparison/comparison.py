"""Comparison of runs in one call: the table, the sentences, and their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from fairmfu.ingest.core.progress import note_progress
from fairmfu.metrics.compare import comparability
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import Price, Prices
from fairmfu.metrics.compare.studies import Study, find_studies
from fairmfu.metrics.core.run_filter import filter_runs, sort_runs
from fairmfu.metrics.core.run_selection import choose, choose_one

from ..text.markdown import MARKDOWN_STYLE
from ..text.summary import (
    add_verdicts,
    comparison_rows,
    show_comparison,
    unranked_pair,
    verdict_sentences,
)
from ..text.tabular import count_noun, printable
from ..text.verdict import PLAIN_STYLE, Style, ranked_groups
from .comparison_markdown import change_heading, change_markdown, comparison_markdown
from .matrix import matrix_text
from .run_set import mark_sides
from .speed_change import GateResult, SpeedChange, gate, named_change
from .study_text import (
    STUDY_SCHEMA,
    Order,
    shown_studies,
    study_frame,
    study_heading,
    study_markdown,
    study_sentence,
    study_text,
)

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.compared_runs import ComparedRuns


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of runs: who is faster, by how much, with what confidence.

    ranked: metrics.compare.comparability.rank_runs: groups of like-for-like runs, best first, then
        runs without a rank. rows: the same with all metrics of each run, the input of the
        sentences. change: from the first to the second run, or set of runs, if two were named.
        studies: of one fact or several (metrics.compare.studies); they replace the groups that they
        hold. asked: a fact or a baseline was named, and only studies are shown. order: of the runs
        in tables.
    """

    ranked: pl.DataFrame
    rows: Sequence[ComparisonRow]
    change: SpeedChange | None = None
    studies: Sequence[Study] = ()
    asked: bool = False
    order: Order = None

    @property
    def sentences(self) -> list[str]:
        """Sentence per study, then per group, or one for two runs of different groups."""
        told = self._study_sentences
        if self.asked:
            return told
        if self._repeated is not None and self._repeated.gap is not None:
            says = f"{self._repeated.sentence()}. {self._repeated.notes}".rstrip()
            told = [printable(says), *told]
        if unranked_pair(self.rows) is not None:
            priced = any(study.kind == "accelerators" for study in self.studies)
            return told if priced else [*told, *verdict_sentences(self.rows)]
        left, _ = self._unstudied()
        if ranked_groups(left):
            return [*told, *verdict_sentences(left), *_left_apart(left, len(self.rows))]
        return told if self.studies else [*told, *verdict_sentences(left)]

    @property
    def _study_sentences(self) -> list[str]:
        return [f"{study_heading(study)}: {study_sentence(study)}" for study in self.studies]

    @property
    def _repeated(self) -> SpeedChange | None:
        """Change between repeats; None between two runs."""
        return None if self.change is None or self.change.is_pair else self.change

    @property
    def effects(self) -> pl.DataFrame:
        """Row per setting of each study, with the columns of STUDY_SCHEMA."""
        frames = (study_frame(study, self.order) for study in self.studies)
        return pl.concat([STUDY_SCHEMA.to_frame(), *frames])

    @property
    def table(self) -> pl.DataFrame:
        """Row per run: `ranked` with the group's sentence as `verdict`, and `notes`.

        tgs, tgs_low, tgs_high [tokens/s/GPU]; relative_tgs, relative_low, relative_high [ratio to
        the best]; logged_tflops, tflops [TFLOP/s/GPU]; gpu_hours_* [GPU-hours per 10^9 tokens].
        """
        return self._in_order(add_verdicts(self.ranked, self.rows))

    def text(self, output: str = "table") -> str:
        """Return tables and notes of each group, as in a terminal.

        output: table, or markdown: with the verdicts, of two named runs the change from base to
            head
        """
        if output == "markdown":
            return self.markdown()
        left, ranked = self._unstudied()
        several = len(self.studies) + bool(left) > 1
        tables = [study_text(s, output, self.order, headed=several) for s in self.studies]
        return "\n\n".join([*tables, *([show_comparison(ranked, left, output)] if left else [])])

    def matrix(self, by_row: str, by_column: str, output: str = "table") -> str:
        """Return a table of one fact by another (reports.comparison.matrix.MATRIX_FACTS).

        output: table, markdown, csv or json; the last two have a row per cell
        """
        return matrix_text(self.rows, by_row, by_column, output)

    @property
    def is_long(self) -> bool:
        """True if all tables together are more than a person reads."""
        return not self.asked and self.ranked.height > MAX_SHOWN_RUNS

    @property
    def brief(self) -> list[str]:
        """Say who has no rank, who is faster, and what settings do; count the rest."""
        left, _ = self._unstudied()
        groups = ranked_groups(left)
        several = [group for group in groups if len(group) > 1]
        verdicts = verdict_sentences([row for group in several for row in group]) if several else []
        told = [*verdicts[:MAX_VERDICTS], *self._study_sentences, *verdicts[MAX_VERDICTS:]]
        shown = told[:MAX_SENTENCES]
        return [
            *_left_apart(self.rows, len(self.rows), MAX_REASONS),
            *shown,
            *_rest(len(told) - len(shown), len(groups) - len(several)),
        ]

    def _unstudied(self) -> tuple[list[ComparisonRow], pl.DataFrame]:
        """Return `rows` and `ranked` of what no study holds.

        A group stays whole if one of its runs is in no study.
        """
        if self.asked:
            return [], self.ranked.clear()
        studied = {run_id for study in self.studies for run_id in study.run_ids}
        open_groups = {row["group"] for row in self.rows if row["run_id"] not in studied}
        left = [
            row
            for row in self.rows
            if row["run_id"] not in studied or (row["rank"] and row["group"] in open_groups)
        ]
        ranked = self.ranked.filter(pl.col("run_id").is_in([row["run_id"] for row in left]))
        return left, self._in_order(ranked)

    def _in_order(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return rows of runs in the order of tables."""
        if self.order is None:
            return runs
        return runs.sort(pl.col("run_id").replace_strict(self.order), maintain_order=True)

    def gate(self, allowed: float, style: Style = PLAIN_STYLE) -> GateResult | None:
        """Return the result of `speed_change.gate`; None but for two runs.

        allowed: slow-down of the second run [fraction]
        """
        return None if self.change is None else gate(self.change, allowed, style)

    def markdown(self, allowed: float | None = None) -> str:
        """Return the comparison as Markdown; allowed: as in `gate`, None without one."""
        if self.change is None or self._repeated is not None:
            left, ranked = self._unstudied()
            parts = [study_markdown(study, self.order) for study in self.studies]
            if self._repeated is not None and (allowed is not None or self._repeated.gap):
                result = None if allowed is None else self.gate(allowed, MARKDOWN_STYLE)
                parts.insert(0, change_heading(self._repeated, result))
            return "\n\n".join([*parts, *([comparison_markdown(ranked, left)] if left else [])])
        result = None if allowed is None else self.gate(allowed, MARKDOWN_STYLE)
        return change_markdown(self.change, result)

    def _repr_markdown_(self) -> str:
        """Return the comparison for a notebook."""
        return self.markdown()


MAX_SHOWN_RUNS: Final = 40
"""Most runs of which the terminal shows all tables unasked."""
MAX_SENTENCES: Final = 10
"""Most sentences on more runs."""
MAX_VERDICTS: Final = 5
"""Most rankings of like-for-like runs before the effects of settings."""
MAX_REASONS: Final = 3


def _left_apart(rows: Sequence[ComparisonRow], count: int, most: int = 1) -> list[str]:
    """Return how many runs have no rank, with the commonest reasons.

    count: of all runs; most: of reasons
    """
    reasons = _reasons(rows)
    if not reasons:
        return []
    whole = reasons.total()
    told = [
        why if times == whole else f"{why} ({count_noun(times, 'run')})"
        for why, times in reasons.most_common(most)
    ]
    return [f"{whole:,} of {count_noun(count, 'run')} not ranked: {'; '.join(told)}."]


def _reasons(rows: Sequence[ComparisonRow]) -> Counter[str]:
    """Return the first reasons of runs without a rank, with the number of their runs."""
    return Counter(row["not_ranked"][0] for row in rows if row["not_ranked"])


def _rest(sentences: int, alone: int) -> list[str]:
    """Return what the brief answer leaves out, in counts."""
    counts = (
        f"{count_noun(sentences, 'more comparison')}" if sentences > 0 else "",
        f"{count_noun(alone, 'run')} with nothing comparable" if alone else "",
    )
    told = "; ".join(filter(None, counts))
    return [f"Not shown: {told}."] if told else []


def _named_sides(metrics: pl.DataFrame, names: Sequence[str]) -> dict[str, set[str]]:
    """Return the ids of base and head by their names.

    Nothing unless there are two names without a common run.
    """
    ids = {name: set(choose(metrics, name)["run_id"]) for name in names}
    two = len(names) == len(ids) == 2  # noqa: PLR2004 - a base and a head
    return ids if two and not set.intersection(*ids.values()) else {}


def compare(  # noqa: PLR0913 - each narrows the question or orders the answer
    analysis: Analysis | ComparedRuns,
    *names: str,
    price: Price | Prices | None = None,
    by: str | None = None,
    baseline: str | None = None,
    where: str | None = None,
    sort: str | None = None,
) -> Comparison:
    """Return who is faster, by how much, how sure, and why the logs disagree.

    names: of runs, as for `choose`; all without any
    price: of one GPU-hour, or of each accelerator's, for the cost of 10^9 tokens
    by: a fact (metrics.compare.studies.FACTS) of which to show the effect
    baseline: the run to compare with
    where: SQL condition on columns of metrics, as for `filter_runs`
    sort: column of metrics by which tables are sorted, as for `sort_runs`; ranks stay

    Runs are ranked within groups of like-for-like runs; for two runs that are not, the result names
    the differences, and no winner.

    `sentences` has the verdicts; `table` has tgs, tgs_low, tgs_high [tokens/s/GPU, 95 % interval],
    relative_tgs [ratio to the best], gpu_hours_per_billion_tokens [GPU-hours],
    loss_at_equal_tokens; a notebook shows both.

    Raises RunNameError if no run has one of the names, RunFilterError for a wrong condition or
    column.

    >>> compare(analysis, "titan-8b", "xtuner-8b").sentences
    """

    def side_by_side(analysis: Analysis | ComparedRuns, chosen: pl.DataFrame) -> Comparison:
        note_progress("Comparing runs")
        sides = _named_sides(analysis.metrics, names)
        marked = mark_sides(chosen, sides) if sides else chosen
        ranked = comparability.rank_runs(marked, analysis.loss_lines, price)
        rows = comparison_rows(analysis, chosen, ranked)
        two = len(names) == 2  # noqa: PLR2004 - a base and a head
        base = None if baseline is None else choose_one(chosen, baseline)["run_id"]
        asked = by is not None or base is not None
        first = next(iter(chosen["run_id"]), None) if two else None
        found = find_studies(rows, by, base or first, chosen=bool(names))
        studies = found if asked else shown_studies(rows, found)
        change = named_change(sides, rows)
        sorted_ids = None if sort is None else sort_runs(chosen, sort)["run_id"]
        order = None if sorted_ids is None else {name: n for n, name in enumerate(sorted_ids)}
        return Comparison(ranked, rows, change, studies, asked=asked, order=order)

    return analysis.present(filter_runs(choose(analysis.metrics, *names), where), side_by_side)
