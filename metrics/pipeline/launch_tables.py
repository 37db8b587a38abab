"""Tables of launches: sources merged, facts resolved, a window per logged step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import polars as pl

from ..core.impossible_values import refuse_impossible
from ..runs import same_run
from ..runs.replica_groups import groups_by_source
from ..throughput import resolved_facts
from ..throughput import windows as logged_windows


class LaunchTables:
    """All launches of some tables.

    tables: of ingest.core.schema, as for `metrics.pipeline.analysis.analyse`.
    single_sources: each launch is known to have one source, so that there is nothing to merge
    """

    def __init__(self, tables: Mapping[str, pl.DataFrame], *, single_sources: bool = False) -> None:
        """Drop impossible values."""
        self._possible = refuse_impossible(tables)
        self.by_source = self._possible.tables
        """Tables before sources were merged."""
        self._single_sources = single_sources

    @cached_property
    def merged(self) -> same_run.MergedLaunches:
        """Sources of one launch, merged: `same_run.merge_launches`."""
        return same_run.merge_launches(self.by_source)

    @cached_property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables with one run per launch."""
        if self._single_sources and not groups_by_source(self.by_source["facts"]):
            return self.by_source
        return self.merged.tables

    @cached_property
    def held_facts(self) -> pl.DataFrame:
        """Resolved facts: `resolved_facts.resolve_facts`."""
        return resolved_facts.resolve_facts(self.tables["facts"])

    @cached_property
    def facts(self) -> pl.DataFrame:
        """Resolved facts as typed columns: `resolved_facts.typed_facts`."""
        return resolved_facts.typed_facts(self.held_facts)

    @cached_property
    def unmarked_windows(self) -> pl.DataFrame:
        """Windows, a row per logged step: `windows.build_windows`."""
        tables = self.tables
        steps, events = tables["steps"], tables["events"]
        quoted = logged_windows.quoted_runs(steps, tables["facts"], events)
        return logged_windows.build_windows(steps, tables["runs"], self.facts, events, quoted)
