"""Overview of a report: failed and slowed runs, and facts that unlock others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any

import polars as pl

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.compare.comparability import COLUMN_LABELS, token_group
from fairmfu.metrics.compare.comparison_row import COMPARABILITY_COLUMNS, ComparisonRow
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.messages import as_clause
from fairmfu.metrics.core.run_table import short_doubt, value_of
from fairmfu.metrics.pipeline.analysis import Analysis, Tables
from fairmfu.metrics.pipeline.missing_facts import ask_facts
from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
from fairmfu.metrics.pipeline.run_needs import (
    ALTERNATIVES,
    CONDITIONS,
    AskedFacts,
    RunNeeds,
    need_rows,
    needs_of,
    unlocks,
)

from ..text.claims_text import join_words
from ..text.commands import with_store
from ..text.diagnosis import slow_down
from ..text.missing_facts import missing_facts, run_argument, values_to_give, with_own_name
from ..text.missing_text import OTHER_WORK
from ..text.run_head import doubts_and_notes, logged_lines, missing_sentence
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.tabular import percent

Json = dict[str, Any]

TEMPLATE_COMMANDS = (
    "fairmfu missing --write facts.toml",
    "fairmfu set --facts facts.toml",
)
"""Commands that write a file of all missing facts, and give its facts."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Facts that the runs of a report lack.

    by_run: of runs without an MFU, by run_id; store: for the commands; None for the usual store
    """

    by_run: Mapping[str, RunNeeds]
    store: str | None

    @classmethod
    def of(
        cls,
        analysis: Analysis | ReportedRuns,
        run_ids: Sequence[str],
        tables: Tables,
        store: str | None,
        asked: Mapping[str, AskedFacts],
    ) -> Needs:
        """Find all facts that these runs lack, also those that others hide.

        asked: kept answers by run_id; others are computed
        """
        chosen = pl.col("run_id").is_in(list(run_ids))
        rows = need_rows(analysis.metrics.filter(chosen))
        new = [row for row in rows if row["run_id"] not in asked]
        found = needs_of(rows, {**asked, **ask_facts(new, tables, analysis.overlay)})
        return cls({run.run_id: run for run in found}, store)

    def facts(self, row: ComparisonRow) -> list[str]:
        """Return the facts that complete a run: for its rank, and for its MFU."""
        needs = self.by_run.get(row["run_id"])
        hidden = needs.facts if needs is not None and needs.gain is not None else ()
        asked = dict.fromkeys([*missing_facts(row), *hidden])
        return [name for name in asked if name in FACT_NAMES]

    def command(self, rows: Sequence[ComparisonRow], given: str) -> str | None:
        """Return the command that gives runs these values; None without values."""
        if not given:
            return None
        names = " ".join(run_argument(row, row["label"]) for row in rows)
        return with_store(f"fairmfu set {names} {given}", self.store)


def run_needs(row: ComparisonRow, needs: Needs, meaning: Callable[[str], str]) -> Json:
    """Return the facts that complete a run, and the command that gives them."""
    facts = needs.facts(row)
    return {
        "complete_with": [{"name": name, "meaning": meaning(name)} for name in facts],
        "complete_command": needs.command([row], values_to_give(row, facts)),
    }


def head_words(row: ComparisonRow, needs: Needs) -> Json:
    """Return the first sentences on a run, without its diagnosis."""
    doubts, notes = doubts_and_notes(with_own_name(row, row["label"]))
    return {
        "logged": logged_lines(row["bridges"]),
        "doubts": [with_store(doubt, needs.store) for doubt in doubts],
        "notes": [with_store(note, needs.store) for note in notes],
        "missing": missing_sentence(row, needs.facts(row)),
    }


def unknown_because(row: ComparisonRow, needs: Needs) -> Json:
    """Return a sentence on why a run has no TGS, and one on its MFU; None if known."""
    return {
        "no_tgs": None if row["tgs"] is not None else _no_tgs(row),
        "no_mfu": None if row["mfu"] is not None else _no_mfu(row, needs),
    }


def _no_tgs(row: ComparisonRow) -> str:
    return f"No TGS: {_first_clause(explain_missing_rate(row)[0] or NO_RATE)}."


def _no_mfu(row: ComparisonRow, needs: Needs) -> str:
    """Return the reason against the formula, else the missing facts."""
    asked = needs.by_run.get(row["run_id"])
    against = [text for text in row["warnings"] or [] if text.startswith(OTHER_WORK)]
    if asked is not None and asked.gain is None:
        against.append(asked.reason)
    lacks = row["missing"] if asked is None else asked.facts
    reason = f"missing {', '.join(lacks)}" if lacks else NO_RATE
    if against:
        reason = _first_clause(against[0].removeprefix(OTHER_WORK))
    known = "" if row["mfu_full_attention"] is None else " (exact attention)"
    return f"No MFU{known}: {reason}."


NO_RATE = "no line gives a rate"


def _first_clause(text: str) -> str:
    """Return the first sentence of a message, to follow a colon, without its remedy."""
    return as_clause(text).partition(". ")[0].rstrip(".")


def missing(rows: Sequence[ComparisonRow], needs: Needs) -> Json:
    """Return what unlocks most, and a command per folder and set of facts."""
    gaining = [run for run in needs.by_run.values() if run.gain is not None]
    return {
        "runs": len(gaining),
        "unlocks": [
            {
                "facts": list(step.facts),
                "runs": step.runs,
                "gain": step.gain,
                "instead": _told(step.facts, ALTERNATIVES),
                "condition": _told(step.facts, CONDITIONS),
            }
            for step in unlocks(gaining)
        ],
        "commands": _commands(rows, needs),
        "template": [with_store(command, needs.store) for command in TEMPLATE_COMMANDS],
    }


def _told(facts: Iterable[str], texts: Mapping[str, str]) -> str | None:
    """Return what is known of these facts; None if nothing is."""
    return "; ".join(texts[name] for name in facts if name in texts) or None


def _commands(rows: Sequence[ComparisonRow], needs: Needs) -> list[Json]:
    """Return commands for runs without a rank, those for most runs first."""
    groups: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in rows:
        if row["rank"] is None and (facts := needs.facts(row)):
            folder = str(PurePath((row["sources"] or [""])[0]).parent)
            groups.setdefault((folder, values_to_give(row, facts)), []).append(row)
    largest_first = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        {
            "folder": folder,
            "facts": needs.facts(of_folder[0]),
            "runs": [row["run_id"] for row in of_folder],
            "command": needs.command(of_folder, given),
        }
        for (folder, given), of_folder in largest_first
    ]


def frameworks_apart(
    ranked: Sequence[Sequence[ComparisonRow]], rows: Iterable[ComparisonRow]
) -> str:
    """Return that no group ranks two frameworks, and why.

    Empty if a group does, if all runs are of one framework, or if no group has several runs: then
    the verdict says it.
    """
    others = {row["framework"] for row in rows}
    by_framework: dict[str, list[ComparisonRow]] = {}
    for row in chain.from_iterable(ranked):
        by_framework.setdefault(row["framework"], []).append(row)
    several = any(len({row["framework"] for row in group}) > 1 for group in ranked)
    if several or len(others) == 1 or all(len(group) == 1 for group in ranked):
        return ""
    names = join_words(sorted(by_framework))
    says = f"{NO_FRAMEWORKS_RANKED}: {_why_apart(by_framework, names)}"
    unranked = sorted(others - set(by_framework))
    rest = f" No run of {join_words(unranked, 'or')} is ranked yet." if unranked else ""
    return f"{says}.{rest}"


NO_FRAMEWORKS_RANKED = "No two frameworks are ranked against each other here"


def _why_apart(by_framework: Mapping[str, Sequence[ComparisonRow]], names: str) -> str:
    """Return why the ranked runs of frameworks share no group; names: the frameworks."""
    if len(by_framework) == 1:
        return f"all ranked runs are of {names}"
    differing = [
        COLUMN_LABELS[name]
        for name in COMPARABILITY_COLUMNS
        if _disjoint([{_compared(row, name) for row in ranked} for ranked in by_framework.values()])
    ]
    if differing:
        return f"the ranked runs of {names} differ in {join_words(differing)}"
    return f"no ranked runs of {names} agree on model, sequence length, precision and GPU at once"


def _disjoint(values: Sequence[set[Any]]) -> bool:
    return len(set().union(*values)) == sum(map(len, values))


def _compared(row: ComparisonRow, name: str) -> object:
    """Return the value of one of COMPARABILITY_COLUMNS."""
    return token_group(row) if name == "token_group" else value_of(row, name)


def reasons_apart(rows: Iterable[ComparisonRow]) -> list[Json]:
    """Return the reasons why runs have no rank, the most frequent first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row["rank"] is None:
            groups.setdefault(tuple(row["not_ranked"]), []).append(row["run_id"])
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [{"reasons": list(reasons), "runs": runs} for reasons, runs in ordered]


def peaks(rows: Iterable[ComparisonRow]) -> list[Json]:
    """Return the peaks that runs are compared with, in words, with the runs."""
    by_source: dict[str, list[str]] = {}
    for row in rows:
        if row["peak_flops"] is not None and row["peak_source"] is not None:
            by_source.setdefault(row["peak_source"], []).append(row["run_id"])
    return [{"source": source, "runs": by_source[source]} for source in sorted(by_source)]


def counts(rows: Sequence[ComparisonRow]) -> Json:
    """Return how many runs are ranked, have failed, or slowed down inside."""
    return {
        "ranked": sum(row["rank"] is not None for row in rows),
        "failed": len(failed(rows)),
        "slowed": len(slowed(rows)),
    }


def failed(rows: Iterable[ComparisonRow]) -> list[str]:
    """Return the run_id of runs that ended badly, by outcome, the most frequent first."""
    by_outcome: dict[str, list[str]] = {}
    for row in rows:
        if row["outcome"] in BAD_OUTCOMES:
            by_outcome.setdefault(row["outcome"], []).append(row["run_id"])
    groups = sorted(by_outcome.values(), key=len, reverse=True)
    return [run_id for run_ids in groups for run_id in run_ids]


def slowed(rows: Iterable[ComparisonRow]) -> list[str]:
    """Return the run_id of runs that slowed down inside, the largest loss first."""
    losses = [(row["run_id"], loss[0]) for row in rows if (loss := slow_down(row)) is not None]
    return [run_id for run_id, _ in sorted(losses, key=lambda one: -one[1])]


def findings(row: ComparisonRow) -> list[str]:
    """Return what is remarkable about a run, in a few words each, the worst first."""
    found = [OUTCOME_LABELS[row["outcome"]]] if row["outcome"] in BAD_OUTCOMES else []
    if (loss := slow_down(row)) is not None:
        found.append(f"slowed down by {percent(loss[0])} {loss[1]}")
    doubts = (short_doubt([doubt]) for doubt in row["doubts"] or [])
    return [*found, *dict.fromkeys(doubt for doubt in doubts if doubt)]
