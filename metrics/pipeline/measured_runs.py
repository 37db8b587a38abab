"""What is found of all runs of a store together, before each is scored.

Each property is one step of the analysis: it is taken when first asked for, from those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from fairmfu.ingest.core.schema import RunRow

from ..audit import audit as logged
from ..audit import sanity_checks
from ..audit.formula_checks import FigureLines
from ..core.impossible_values import refuse_impossible
from ..runs import same_run
from ..runs.goodput import goodput
from ..runs.resume_chains import link_resumes
from ..throughput import rank_skew, resolved_facts, throughput, warmup
from ..throughput import windows as logged_windows
from ..throughput.closing_figures import closing_figures
from ..throughput.end_to_end import launch_clocks
from ..utilization.formula_inputs import count_adapter_params, find_shape

RowsById = Mapping[str, list[dict[str, Any]]]
"""Rows of a table by their run_id."""


class MeasuredRuns:
    """All runs of some tables.

    tables: of ingest.core.schema, as `metrics.pipeline.analysis.analyse` has them
    """

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Values that no run can have are gone, and sources of one launch are one run."""
        self._possible = refuse_impossible(tables)
        self.by_source = self._possible.tables
        """The tables before sources were merged."""
        self.merged = same_run.merge_launches(self.by_source)
        self.tables = self.merged.tables

    # -- facts ------------------------------------------------------------------------------

    @cached_property
    def held_facts(self) -> pl.DataFrame:
        """Those that hold: `resolved_facts.resolve_facts`."""
        return resolved_facts.resolve_facts(self.tables["facts"])

    @cached_property
    def facts(self) -> pl.DataFrame:
        """The same in columns: `resolved_facts.typed_facts`."""
        return resolved_facts.typed_facts(self.held_facts)

    @cached_property
    def facts_by_run(self) -> RowsById:
        """The same by run."""
        return self.held_facts.rows_by_key("run_id", named=True, include_key=True)

    @cached_property
    def stated(self) -> Mapping[str, set[tuple[str, str]]]:
        """By run_id names and values of the facts that its log states."""
        return resolved_facts.logged_values(self.tables["facts"])

    @cached_property
    def sources(self) -> Mapping[str, dict[str, Any]]:
        """Rows of `sources` by their hash."""
        table = self.tables["sources"]
        return table.rows_by_key("sha256", named=True, unique=True, include_key=True)

    # -- time -------------------------------------------------------------------------------

    @cached_property
    def windows(self) -> pl.DataFrame:
        """A row per logged step: `warmup.mark_warm_up_and_stalls`."""
        tables = self.tables
        windows = logged_windows.build_windows(
            tables["steps"], tables["runs"], self.facts, tables["events"]
        )
        return warmup.mark_warm_up_and_stalls(windows, tables["runs"])

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """When each launch began and ended: `end_to_end.launch_clocks`."""
        events, runs = self.by_source["events"], self.tables["runs"]
        return launch_clocks(runs, self.windows, self.facts, events, self.merged.members)

    @cached_property
    def closing(self) -> pl.DataFrame:
        """What last lines sum up: `closing_figures.closing_figures`."""
        tables = self.tables
        stated = [run for run, said in self.stated.items() if "global_batch_size" in dict(said)]
        return closing_figures(
            tables["runs"], tables["steps"], tables["events"], self._flos_params, stated
        )

    def _flos_params(self, run_id: str) -> int | None:
        """Parameters whose FLOPs the Hugging Face Trainer counts; None without a known model."""
        facts = {row["name"]: row for row in self.facts_by_run.get(run_id, [])}
        shape, _ = find_shape(facts)
        if shape is None:
            return None
        adapters = count_adapter_params(facts, shape) or 0
        return shape.params_total - shape.params_embedding + adapters

    @cached_property
    def rates(self) -> pl.DataFrame:
        """`throughput.summarise`."""
        runs = self.tables["runs"]
        for more in (self.clocks, self.closing):
            runs = runs.join(more, on="run_id", how="left")
        return throughput.summarise(self.windows, runs, self.facts)

    @cached_property
    def rate_of_run(self) -> Mapping[str, throughput.RateSummary]:
        """The same by run."""
        return {row["run_id"]: row for row in throughput.rate_summaries(self.rates)}

    # -- launches and ranks -----------------------------------------------------------------

    @cached_property
    def resume_links(self) -> pl.DataFrame:
        """`resume_chains.link_resumes`."""
        return link_resumes(self.tables["runs"], self.windows, self.facts, self.clocks)

    @cached_property
    def chain_of_run(self) -> Mapping[str, dict[str, Any]]:
        """Columns of the launches that a run goes on from, and its goodput, by run."""
        links = self.resume_links
        good = goodput(self.tables["runs"], self.windows, links, self.clocks, self.rates)
        return links.join(good, on="run_id").rows_by_key("run_id", named=True, unique=True)

    @cached_property
    def rank_times(self) -> pl.DataFrame:
        """`rank_skew.measure_ranks`."""
        return rank_skew.measure_ranks(self.tables["steps"], self.windows)

    @cached_property
    def ranks_of_run(self) -> Mapping[str, dict[str, Any]]:
        """Columns that compare the ranks of a run, by run."""
        compared = rank_skew.compare_ranks(self.tables["steps"], self.rank_times)
        return compared.rows_by_key("run_id", named=True, unique=True)

    # -- the log's own words ----------------------------------------------------------------

    @cached_property
    def printed_lines(self) -> Mapping[str, FigureLines]:
        """Lines with figures of the log's own, by the run_id of each source."""
        return logged.lines_by_source(self.by_source["steps"], self.by_source["events"])

    def doubts_of_sources(self, run_id: str, facts: Mapping[str, Any]) -> list[str]:
        """Warnings of what the sources of a run say. facts: those that hold of it."""
        odd = {} if "mixed_writers" in facts else self._odd  # it says all
        members = [member["run_id"] for member in self.merged.members[run_id]]
        told = (self._possible.warnings, odd)
        return [
            *(row["warning"] for row in self._conflicts.get(run_id, [])),
            *self.merged.doubts.get(run_id, []),
            *(one for some in told for member in members for one in some.get(member, [])),
        ]

    @cached_property
    def _conflicts(self) -> RowsById:
        table = resolved_facts.conflicting_facts(self.tables["facts"])
        return table.rows_by_key("run_id", named=True)

    @cached_property
    def _odd(self) -> Mapping[str, list[str]]:
        return sanity_checks.sanity_warnings(self.by_source["steps"], self.by_source["runs"])

    def members(self, run: RunRow) -> Sequence[RunRow]:
        """The rows of `runs` of its sources."""
        return self.merged.members[run["run_id"]]

    def sources_of(self, run: RunRow) -> Sequence[dict[str, Any]]:
        """Rows of the table `sources` that tell of a run, each once."""
        hashes = dict.fromkeys(member["sha256"] for member in self.members(run))
        return [self.sources[sha256] for sha256 in hashes]
