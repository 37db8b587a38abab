"""Measurements of all runs of a store together, before single runs are scored.

A property is a step of the analysis, computed on first access from earlier steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import RunRow

from ..audit import audit as logged
from ..audit import sanity_checks
from ..audit.formula_checks import FigureLines
from ..core.messages import Message
from ..core.run_arrays import RunArrays
from ..core.run_table import SlowRanks
from ..diagnosis.phases import PhaseTable, phase_table
from ..diagnosis.slow_ranks import judge_ranks
from ..diagnosis.timer_readings import Reading, timer_readings
from ..runs.goodput import goodput
from ..runs.resume_chains import link_resumes
from ..throughput import rank_skew, resolved_facts, throughput, warmup
from ..throughput.closing_figures import (
    ResultsFile,
    RunKnowledge,
    closing_figures,
    results_file,
)
from ..throughput.end_to_end import launch_clocks
from ..utilization.formula_inputs import count_adapter_params, find_shape
from .launch_tables import LaunchTables

RowsById = Mapping[str, list[dict[str, Any]]]
"""Rows of a table, by run_id."""


class MeasuredRuns(LaunchTables):
    """All runs of some tables, measured together."""

    # -- facts ------------------------------------------------------------------------------

    @cached_property
    def facts_by_run(self) -> RowsById:
        """Resolved facts, by run_id."""
        return self.held_facts.rows_by_key("run_id", named=True, include_key=True)

    @cached_property
    def stated(self) -> Mapping[str, set[tuple[str, str]]]:
        """Names and values of facts stated in the log, by run_id."""
        return resolved_facts.logged_values(self.tables["facts"])

    @cached_property
    def sources(self) -> Mapping[str, dict[str, Any]]:
        """Rows of `sources`, by sha256."""
        table = self.tables["sources"]
        return table.rows_by_key("sha256", named=True, unique=True, include_key=True)

    # -- time -------------------------------------------------------------------------------

    @cached_property
    def windows(self) -> pl.DataFrame:
        """Windows with marks: `warmup.mark_warm_up_and_stalls`."""
        return warmup.mark_warm_up_and_stalls(self.unmarked_windows, self.tables["runs"])

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """Start and end of all launches: `end_to_end.launch_clocks`."""
        events, runs = self.by_source["events"], self.tables["runs"]
        return launch_clocks(runs, self.windows, self.facts, events, self.merged.members)

    @cached_property
    def closing(self) -> pl.DataFrame:
        """Totals printed in the last lines: `closing_figures.closing_figures`."""
        tables = self.tables
        stated = [run for run, values in self.stated.items() if "global_batch_size" in dict(values)]
        return closing_figures(
            *(tables["runs"], tables["steps"], tables["events"], self._flos_params),
            RunKnowledge(stated, self._results_files),
        )

    @cached_property
    def _results_files(self) -> Mapping[str, ResultsFile]:
        """Results beside the logs, by run_id; of a log with several launches none."""
        launches = Counter(self.tables["runs"]["sha256"])
        given = set(self.held_facts.filter(pl.col("name") == "closing_figures")["run_id"])
        found = {}
        for run_id, sha256 in self.tables["runs"].select("run_id", "sha256").iter_rows():
            if launches[sha256] > 1 or run_id not in given:
                continue
            facts = {row["name"]: row for row in self.facts_by_run.get(run_id, [])}
            if (file := results_file(facts)) is not None:
                found[run_id] = file
        return found

    def _flos_params(self, run_id: str) -> int | None:
        """Return the parameters in the HF Trainer's FLOPs, None for an unknown model."""
        facts = {row["name"]: row for row in self.facts_by_run.get(run_id, [])}
        shape, _ = find_shape(facts)
        if shape is None:
            return None
        adapters = count_adapter_params(facts, shape) or 0
        return shape.params_total - shape.params_embedding + adapters

    @cached_property
    def rates(self) -> pl.DataFrame:
        """Rates per run: `throughput.summarise`."""
        runs = self.tables["runs"]
        for more in (self.clocks, self.closing):
            runs = runs.join(more, on="run_id", how="left")
        return throughput.summarise(self.windows, runs, self.facts)

    @cached_property
    def rate_of_run(self) -> Mapping[str, throughput.RateSummary]:
        """Rates by run_id."""
        return {row["run_id"]: row for row in throughput.rate_summaries(self.rates)}

    # -- launches and ranks -----------------------------------------------------------------

    @cached_property
    def resume_links(self) -> pl.DataFrame:
        """Launches with the launch before in their chain: `resume_chains.link_resumes`."""
        return link_resumes(self.tables["runs"], self.windows, self.facts, self.clocks)

    @cached_property
    def chain_of_run(self) -> Mapping[str, dict[str, Any]]:
        """Columns on earlier launches of the chain, and on goodput, by run_id."""
        links = self.resume_links
        good = goodput(self.tables["runs"], self.windows, links, self.clocks, self.rates)
        return links.join(good, on="run_id").rows_by_key("run_id", named=True, unique=True)

    @cached_property
    def rank_times(self) -> pl.DataFrame:
        """Step times of ranks: `rank_skew.measure_ranks`."""
        return rank_skew.measure_ranks(self.tables["steps"], self.windows)

    @cached_property
    def ranks_of_run(self) -> Mapping[str, dict[str, Any]]:
        """Comparison of the ranks of a run, by run_id."""
        compared = rank_skew.compare_ranks(self.tables["steps"], self.rank_times)
        return compared.rows_by_key("run_id", named=True, unique=True)

    # -- diagnosis ---------------------------------------------------------------------------

    @cached_property
    def timer_readings(self) -> Mapping[str, list[Reading]]:
        """Values of printed timers, by run_id: `timer_readings.timer_readings`."""
        lead_of = {
            member["run_id"]: lead
            for lead, members in self.merged.members.items()
            for member in members
        }
        return timer_readings(self.by_source, lead_of)

    @cached_property
    def windows_of_run(self) -> Mapping[str, RunArrays]:
        """Windows as arrays, by run_id."""
        return RunArrays(self.windows).by_run()

    @cached_property
    def typed_facts_of_run(self) -> Mapping[str, dict[str, Any]]:
        """Resolved facts as typed values, by run_id."""
        return self.facts.rows_by_key("run_id", named=True, unique=True)

    def phases(self, run: RunRow, level: int | None = None) -> PhaseTable:
        """Return the phases of a step of one run, or of one level of its speed."""
        run_id = run["run_id"]
        windows = self.windows_of_run.get(run_id)
        if windows is not None and level is not None:
            windows = windows.with_values(off_level=(windows["level"] != level).astype(np.float64))
        return phase_table(
            windows,
            run,
            self.rate_of_run[run_id],
            self.timer_readings.get(run_id, []),
            self.typed_facts_of_run.get(run_id, {}),
        )

    @cached_property
    def slow_ranks(self) -> Mapping[str, list[SlowRanks]]:
        """Ranks that others waited for, of runs with times of several ranks, by run_id."""
        judged = judge_ranks(self.tables["steps"], self.tables["runs"], self.windows)
        gpus = dict(self.facts.select("run_id", "gpus").iter_rows())
        return {
            run_id: ranks.rows(gpus.get(run_id), self._paths_of_ranks(run_id) if ranks.late else {})
            for run_id, ranks in judged.items()
        }

    def _paths_of_ranks(self, run_id: str) -> dict[str, str]:
        """Return the file with the lines of each rank of a run."""
        return {
            rank: self.sources[member["sha256"]]["path"]
            for member in self.merged.members[run_id]
            for rank in self._ranks_of_source.get(member["run_id"], ())
        }

    @cached_property
    def _ranks_of_source(self) -> Mapping[str, list[str]]:
        """Ranks that print steps in each source, by its run_id."""
        steps = self.by_source["steps"].filter(pl.col("rank").is_not_null())
        return dict(steps.group_by("run_id").agg(pl.col("rank").unique()).iter_rows())

    # -- the log's own figures --------------------------------------------------------------

    @cached_property
    def printed_lines(self) -> Mapping[str, FigureLines]:
        """Lines with speed figures printed by the log, by run_id of the source."""
        return logged.lines_by_source(self.by_source["steps"], self.by_source["events"])

    def doubts_of_sources(self, run_id: str, facts: Mapping[str, Any]) -> list[Message]:
        """Return warnings about the sources of a run; facts: of this run."""
        odd = {} if "mixed_writers" in facts else self._odd  # covers these warnings
        members = [member["run_id"] for member in self.merged.members[run_id]]
        warnings_by_source = (self._possible.warnings, odd)
        return [
            *self._conflicts.get(run_id, []),
            *self.merged.doubts.get(run_id, []),
            *(
                warning
                for some in warnings_by_source
                for member in members
                for warning in some.get(member, [])
            ),
        ]

    @cached_property
    def _conflicts(self) -> Mapping[str, list[Message]]:
        return resolved_facts.conflicting_facts(self.tables["facts"])

    @cached_property
    def _odd(self) -> Mapping[str, list[Message]]:
        return sanity_checks.sanity_warnings(self.by_source["steps"], self.by_source["runs"])

    def members(self, run: RunRow) -> Sequence[RunRow]:
        """Return the rows of `runs` for all sources of a run."""
        return self.merged.members[run["run_id"]]

    def sources_of(self, run: RunRow) -> Sequence[dict[str, Any]]:
        """Return the rows of `sources` for a run, without duplicates."""
        hashes = dict.fromkeys(member["sha256"] for member in self.members(run))
        return [self.sources[sha256] for sha256 in hashes]
