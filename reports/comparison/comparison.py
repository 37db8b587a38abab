"""Comparison of runs in one call: the table, the sentences, and their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from fairmfu.metrics.compare import comparability
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import Price, Prices
from fairmfu.metrics.compare.studies import Study, find_studies
from fairmfu.metrics.core.run_selection import choose, choose_one
from fairmfu.metrics.pipeline.analysis import Analysis

from ..text.markdown import MARKDOWN_STYLE
from ..text.summary import (
    add_verdicts,
    comparison_rows,
    show_comparison,
    unranked_pair,
    verdict_sentences,
)
from ..text.verdict import PLAIN_STYLE, Style, count_noun, ranked_groups
from .comparison_markdown import change_markdown, comparison_markdown
from .matrix import matrix_text
from .speed_change import GateResult, SpeedChange, gate
from .study_text import (
    STUDY_SCHEMA,
    shown_studies,
    study_frame,
    study_heading,
    study_markdown,
    study_sentence,
    study_text,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of runs: who is faster, by how much, with what confidence.

    ranked: metrics.compare.comparability.rank_runs: groups of like-for-like runs, best first, then
        runs without a rank. rows: the same with all metrics of each run, the input of the
        sentences. change: from the first to the second run, if two were named. studies: of one
        fact or several (metrics.compare.studies); they replace the groups that they hold. asked:
        a fact or a baseline was named, and only studies are shown.
    """

    ranked: pl.DataFrame
    rows: Sequence[ComparisonRow]
    change: SpeedChange | None = None
    studies: Sequence[Study] = ()
    asked: bool = False

    @property
    def sentences(self) -> list[str]:
        """Sentence per study, then per group, or one for two runs of different groups."""
        told = [f"{study_heading(study)}: {study_sentence(study)}" for study in self.studies]
        if self.asked:
            return told
        if unranked_pair(self.rows) is not None:
            return [*told, *verdict_sentences(self.rows)]
        left = [row for row in self.rows if row["run_id"] in self._left]
        if self.studies and not ranked_groups(left):
            return told
        return [*told, *verdict_sentences(left)]

    @property
    def effects(self) -> pl.DataFrame:
        """Row per setting of each study, with the columns of STUDY_SCHEMA."""
        return pl.concat([STUDY_SCHEMA.to_frame(), *map(study_frame, self.studies)])

    @property
    def _left(self) -> set[str]:
        """Ids of the runs of groups that no study holds, and of other runs in no study."""
        if self.asked:
            return set()
        studied = {run_id for study in self.studies for run_id in study.run_ids}
        open_groups = {row["group"] for row in self.rows if row["run_id"] not in studied}
        return {
            row["run_id"]
            for row in self.rows
            if row["run_id"] not in studied or (row["rank"] and row["group"] in open_groups)
        }

    @property
    def table(self) -> pl.DataFrame:
        """Row per run: `ranked` with the group's sentence as `verdict`, and `notes`.

        tgs, tgs_low, tgs_high [tokens/s/GPU]; relative_tgs, relative_low, relative_high [ratio to
        the best]; logged_tflops, tflops [TFLOP/s/GPU]; gpu_hours_* [GPU-hours per 10^9 tokens].
        """
        return add_verdicts(self.ranked, self.rows)

    def text(self, output: str = "table") -> str:
        """Return tables and notes of each group, as in a terminal.

        output: table, or markdown: with the verdicts, of two named runs the change from base to
            head
        """
        if output == "markdown":
            return self.markdown()
        left, ranked = self._unstudied()
        several = len(self.studies) + bool(left) > 1
        tables = [study_text(study, output, headed=several) for study in self.studies]
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
        """Sentences of the largest studies and groups, and counts of the rest."""
        left = [row for row in self.rows if row["run_id"] in self._left]
        groups = ranked_groups(left)
        several = [group for group in groups if len(group) > 1]
        told = [f"{study_heading(study)}: {study_sentence(study)}" for study in self.studies]
        told += verdict_sentences([row for group in several for row in group]) if several else []
        shown = told[:MAX_SENTENCES]
        return [*shown, *_rest(len(told) - len(shown), len(groups) - len(several), left)]

    def _unstudied(self) -> tuple[list[ComparisonRow], pl.DataFrame]:
        """Return `rows` and `ranked` without the runs of studies alone."""
        left = [row for row in self.rows if row["run_id"] in self._left]
        return left, self.ranked.filter(pl.col("run_id").is_in([row["run_id"] for row in left]))

    def gate(self, allowed: float, style: Style = PLAIN_STYLE) -> GateResult | None:
        """Return the result of `speed_change.gate`; None but for two runs.

        allowed: slow-down of the second run [fraction]
        """
        return None if self.change is None else gate(self.change, allowed, style)

    def markdown(self, allowed: float | None = None) -> str:
        """Return the comparison as Markdown; allowed: as in `gate`, None without one."""
        if self.change is None:
            left, ranked = self._unstudied()
            parts = [*map(study_markdown, self.studies)]
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
MAX_REASONS: Final = 3


def _rest(sentences: int, alone: int, rows: Sequence[ComparisonRow]) -> list[str]:
    """Return what the brief answer leaves out, in counts."""
    apart = [row["not_ranked"][0] for row in rows if row["not_ranked"]]
    common = Counter(apart).most_common(MAX_REASONS)
    reasons = "; ".join(f"{why} ({count_noun(n, 'run')})" for why, n in common)
    counts = (
        f"{count_noun(sentences, 'more comparison')}" if sentences > 0 else "",
        f"{count_noun(alone, 'run')} with nothing comparable" if alone else "",
        f"{count_noun(len(apart), 'run')} not ranked, mostly: {reasons}" if apart else "",
    )
    told = "; ".join(filter(None, counts))
    return [f"Not shown: {told}."] if told else []


def compare(
    analysis: Analysis,
    *names: str,
    price: Price | Prices | None = None,
    by: str | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Return who is faster, by how much, how sure, and why the logs disagree.

    names: of runs, as for `choose`; all without any
    price: of one GPU-hour, or of each accelerator's, for the cost of 10^9 tokens
    by: a fact (metrics.compare.studies.FACTS) of which to show the effect
    baseline: the run to compare with

    Runs are ranked within groups of like-for-like runs; for two runs that are not, the result names
    the differences, and no winner.

    `sentences` has the verdicts; `table` has tgs, tgs_low, tgs_high [tokens/s/GPU, 95 % interval],
    relative_tgs [ratio to the best], gpu_hours_per_billion_tokens [GPU-hours],
    loss_at_equal_tokens; a notebook shows both.

    Raises RunNameError if no run has one of the names.

    >>> compare(analysis, "titan-8b", "xtuner-8b").sentences
    """

    def side_by_side(analysis: Analysis, chosen: pl.DataFrame) -> Comparison:
        ranked = comparability.rank_runs(chosen, analysis.windows, price)
        rows = comparison_rows(analysis, chosen, ranked)
        two = len(names) == 2  # noqa: PLR2004 - a base and a head
        base = None if baseline is None else choose_one(chosen, baseline)["run_id"]
        asked = by is not None or base is not None
        found = find_studies(rows, by, chosen["run_id"][0] if two and base is None else base)
        studies = found if asked else shown_studies(rows, found)
        change = SpeedChange.of(rows) if two else None
        return Comparison(ranked, rows, change, studies, asked=asked)

    return analysis.present(choose(analysis.metrics, *names), side_by_side)
