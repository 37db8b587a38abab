"""Runs that one RUN of a command names: one run, or repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from fairmfu.metrics.compare.comparability import (
    COLUMN_LABELS,
    REPEAT_KEY_COLUMNS,
    compare_pair,
    repeat_differences,
)
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.repeated_runs import (
    MIN_REPEATS,
    ComparisonSide,
    comparison_sides,
    pooled_side,
)
from fairmfu.metrics.core.run_table import value_of

from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.tabular import count_noun
from ..text.verdict import PLAIN_STYLE, Style


@dataclass(frozen=True, slots=True)
class RunSet:
    """Base or head of a comparison.

    rows: its runs, at least one. word: as the command names them
    """

    rows: tuple[ComparisonRow, ...]
    word: str = ""

    @property
    def is_single(self) -> bool:
        """True for one run."""
        return len(self.rows) == 1

    def name(self, style: Style = PLAIN_STYLE) -> str:
        """Return the name of the run, or the word with the number of runs."""
        if self.is_single:
            return style.name(self.rows[0])
        return style.name({"label": f"{self.word} with {count_noun(len(self.rows), 'run')}"})

    @property
    def failed(self) -> list[ComparisonRow]:
        """Runs that crashed, or ended in another bad way."""
        return [row for row in self.rows if row["outcome"] in BAD_OUTCOMES]

    def failure(self, style: Style = PLAIN_STYLE) -> str:
        """Return the outcomes of failed runs: `out of memory`, or `crashed (1 of 4 runs)`."""
        counts = Counter(OUTCOME_LABELS[row["outcome"] or ""] for row in self.failed)
        if self.is_single:
            return style.plain("".join(counts))
        of = count_noun(len(self.rows), "run")
        return style.plain(", ".join(f"{said} ({n} of {of})" for said, n in counts.items()))

    @property
    def counted(self) -> Sequence[ComparisonRow]:
        """Runs that give the rate: of several, those that did not fail."""
        return [row for row in self.rows if self.is_single or row not in self.failed]

    @property
    def left_out(self) -> str:
        """Sentence on failed runs that do not give the rate; empty without any."""
        lost = len(self.rows) - len(self.counted)
        return f"Failed runs of {self.word} are left out: {lost}." if lost else ""

    def side(self) -> ComparisonSide | None:
        """Return the rate of the run, or of all repeats; None with too few repeats."""
        if self.is_single:
            return comparison_sides(self.rows)[0]
        return pooled_side(self.counted)

    def obstacle(self) -> str:
        """Return why the runs have no common rate, in a clause; else nothing."""
        rows = self.counted
        starts = len({row["chain"] for row in rows})
        for row in rows:
            if row["group"] is None:
                return f"{row['label']} is not ranked: {'; '.join(row['not_ranked'])}"
        if starts < MIN_REPEATS:
            return f"{self._word} has {starts} of the {MIN_REPEATS} repeats that it needs"
        for row in rows[1:]:
            if row["group"] != rows[0]["group"]:
                found = compare_pair(rows[0], row)
                return "; ".join(found.obstacles) or _unlike(self.word, found.differences)
        differences = repeat_differences(rows)
        return _unlike(self.word, differences) if differences else ""

    @property
    def _word(self) -> str:
        return self.name() if self.is_single else self.word

    @property
    def unstated(self) -> list[str]:
        """Settings that decide speed and that no run states."""
        names = [
            n for n in REPEAT_KEY_COLUMNS if all(value_of(row, n) is None for row in self.rows)
        ]
        return [COLUMN_LABELS.get(name, name) for name in names]


def mark_sides(metrics: pl.DataFrame, sides: Mapping[str, Collection[str]]) -> pl.DataFrame:
    """Return the metrics with the column `side`: base and head are setups apart.

    sides: ids of runs by the word that names them. Single runs and failed runs have no side.
    """
    word_of = {run_id: word for word, ids in sides.items() if len(ids) > 1 for run_id in ids}
    failed = pl.col("outcome").is_in(BAD_OUTCOMES).fill_null(value=False)
    word = pl.col("run_id").replace_strict(word_of, default=None, return_dtype=pl.String)
    return metrics.with_columns(side=pl.when(~failed).then(word))


def _unlike(word: str, differences: Sequence[str]) -> str:
    return f"the runs of {word} are no repeats: they differ in {'; '.join(differences)}"
