"""Comparison of runs in one call: the table, the sentences, and their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fairmfu.metrics.compare import comparability
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import Price
from fairmfu.metrics.core.run_selection import choose
from fairmfu.metrics.pipeline.analysis import Analysis

from .comparison_markdown import change_markdown, comparison_markdown
from .markdown import MARKDOWN_STYLE
from .speed_change import GateResult, SpeedChange, gate
from .summary import add_verdicts, comparison_rows, show_comparison, verdict_sentences
from .verdict import PLAIN_STYLE, Style


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of runs: who is faster, by how much, with what confidence.

    ranked: metrics.compare.comparability.rank_runs: groups of like-for-like runs, best first, then
        runs without a rank. rows: the same with all metrics of each run, the input of the
        sentences. change: from the first to the second run, if two were named.
    """

    ranked: pl.DataFrame
    rows: Sequence[ComparisonRow]
    change: SpeedChange | None = None

    @property
    def sentences(self) -> list[str]:
        """Sentence per group, or one for two runs of different groups."""
        return verdict_sentences(self.rows)

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
        if output != "markdown":
            return show_comparison(self.ranked, self.rows, output)
        return self.markdown()

    def gate(self, allowed: float, style: Style = PLAIN_STYLE) -> GateResult | None:
        """Return the result of reports.text.speed_change.gate; None but for two runs.

        allowed: slow-down of the second run [fraction]
        """
        return None if self.change is None else gate(self.change, allowed, style)

    def markdown(self, allowed: float | None = None) -> str:
        """Return the comparison as Markdown; allowed: as in `gate`, None without one."""
        if self.change is None:
            return comparison_markdown(self.ranked, self.rows)
        result = None if allowed is None else self.gate(allowed, MARKDOWN_STYLE)
        return change_markdown(self.change, result)

    def _repr_markdown_(self) -> str:
        """Return the comparison for a notebook."""
        return self.markdown()


def compare(analysis: Analysis, *names: str, price: Price | None = None) -> Comparison:
    """Return who is faster, by how much, how sure, and why the logs disagree.

    names: of runs, as for `choose`; all without any. price: of one GPU-hour, for the cost of 10^9
        tokens. Runs are ranked within groups of like-for-like runs; for two runs that are not, the
        result names the differences, and no winner.

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
        return Comparison(ranked, rows, SpeedChange.of(rows) if two else None)

    return analysis.present(choose(analysis.metrics, *names), side_by_side)
