"""Replica groups of TorchFT: jobs that train a model together, a log per group.

A log counts the GPUs of its own group and the batch of all groups. Here the facts of a launch
become those of all groups with a source. If groups are missing, the facts cover the others alone,
and the launch is never ranked.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ..core.messages import Message
from ..throughput.resolved_facts import USER_ORIGIN_PATTERN, resolve_facts
from . import messages

GROUP_FACTS: Final = ("gpus", "data_parallel", "replicas")
"""Facts that a group's log states of that group alone."""

ALL_GROUPS_FACT: Final = "global_batch_size"
"""Fact of all groups, which have equal shares."""


@dataclass(frozen=True, slots=True)
class GroupedLaunch:
    """Replica groups of the sources of one launch.

    lead: run_id of the launch; groups: their numbers; sources: run_id of the first source of each
        group
    groups_in_one_log: numbers of groups in a single source; group_count: number of groups, if known
    """

    lead: str
    groups: Sequence[int]
    sources: Sequence[str]
    groups_in_one_log: Sequence[int]
    group_count: int | None

    @property
    def is_incomplete(self) -> bool:
        """True if groups are missing, or may be."""
        return self.group_count is None or len(self.groups) < self.group_count


def groups_by_source(facts: pl.DataFrame) -> dict[str, list[int]]:
    """Return the replica groups of each source by run_id: a single one, or several.

    facts: of all sources, as in ingest.core.schema. Several if a log contains several groups.
    """
    mine = facts.filter(pl.col("name") == "replica_group")
    if mine.is_empty():
        return {}
    said = mine.join(resolve_facts(mine).select("run_id", held="origin"), on="run_id")
    kind = r"^\w+"
    alike = pl.col("origin").str.extract(kind, 0) == pl.col("held").str.extract(kind, 0)
    groups = said.filter(alike).group_by("run_id").agg(_number().unique().sort().drop_nulls())
    return {run_id: numbers for run_id, numbers in groups.iter_rows() if numbers}


def _number() -> pl.Expr:
    return pl.col("value").cast(pl.Int64, strict=False)


def grouped_launches(
    source_groups: Mapping[str, Sequence[int]],
    facts: pl.DataFrame,
    members: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[GroupedLaunch]:
    """Return launches with a source of a replica group.

    source_groups: `groups_by_source` of the facts; members: as
        metrics.runs.same_run.MergedLaunches.members
    """
    if not source_groups:
        return []
    of = _numbers(facts, "replica_groups")
    found = []
    for lead, rows in members.items():
        ids = [row["run_id"] for row in rows if row["run_id"] in source_groups]
        first = {source_groups[run_id][-1]: run_id for run_id in reversed(ids)}
        several = next((source_groups[i] for i in ids if len(source_groups[i]) > 1), [])
        known = [number for run_id in ids if (number := of.get(run_id))]
        if ids:
            groups = sorted(first)
            sources = [first[group] for group in groups]
            found.append(GroupedLaunch(lead, groups, sources, several, max(known, default=None)))
    return found


def _numbers(facts: pl.DataFrame, name: str) -> dict[str, int | None]:
    """Return the value of a numeric fact by run_id."""
    held = resolve_facts(facts.filter(pl.col("name") == name))
    return dict(held.select("run_id", _number()).iter_rows())


def with_group_facts(
    facts: pl.DataFrame, pooled: pl.DataFrame, launches: Collection[GroupedLaunch]
) -> pl.DataFrame:
    """Return the facts of all launches, summed over replica groups.

    Facts given by a user are kept. facts: of all sources; pooled: of the launches, by the run_id of
    their leads
    """
    stated = facts.filter(~pl.col("origin").str.contains(USER_ORIGIN_PATTERN))
    values = {name: _numbers(stated, name) for name in (*GROUP_FACTS, ALL_GROUPS_FACT)}
    rows = [row for launch in launches for row in _of_launch(launch, values)]
    spoken = pl.DataFrame(rows, schema={"run_id": pl.String, "name": pl.String, **NEW_FACT_DTYPES})
    ours = spoken.select("run_id", "name", ours=True)
    kept = pooled.join(ours, on=["run_id", "name"], how="left", maintain_order="left").filter(
        pl.col("ours").is_null() | pl.col("origin").str.contains(USER_ORIGIN_PATTERN)
    )
    known = spoken.filter(pl.col("value").is_not_null())
    return pl.concat([kept.drop("ours"), known], how="diagonal")


NEW_FACT_DTYPES: Final = {"value": pl.String, "origin": pl.String, "sequence": pl.Int64}


def _of_launch(
    launch: GroupedLaunch, values: Mapping[str, Mapping[str, int | None]]
) -> list[dict[str, Any]]:
    """Return facts of a launch that replace its groups' facts; null: unknown.

    values: by name and source
    """
    if len(launch.groups) == 1 and not launch.groups_in_one_log:
        facts = dict[str, str | None]()
    else:
        facts = dict.fromkeys(("replica_group", *GROUP_FACTS))
    if len(launch.groups) > 1 and not launch.groups_in_one_log:
        facts |= {name: _sum([*map(values[name].get, launch.sources)]) for name in GROUP_FACTS}
    batch = values[ALL_GROUPS_FACT].get(launch.sources[0])
    if launch.group_count is not None and launch.is_incomplete and batch is not None:
        share, rest = divmod(batch * len(launch.groups), launch.group_count)
        facts[ALL_GROUPS_FACT] = None if rest else str(share)
    origin = f"log, of replica groups {_listed(launch.groups)} together"
    return [
        {"run_id": launch.lead, "name": name, "value": value, "origin": origin, "sequence": 0}
        for name, value in facts.items()
    ]


def _sum(numbers: Sequence[int | None]) -> str | None:
    known = [number for number in numbers if number is not None]
    return str(sum(known)) if len(known) == len(numbers) else None


def group_warnings(
    steps: pl.DataFrame, facts: pl.DataFrame, launches: Collection[GroupedLaunch]
) -> dict[str, list[Message]]:
    """Return by run_id the reasons why launches of replica groups are not ranked.

    steps: of the launches, with the group before the rank (ingest.core.schema); facts: of all
        sources
    """
    several = [launch.lead for launch in launches if len(launch.groups) > 1]
    mine = steps.filter(pl.col("run_id").is_in(several)).select(
        "run_id", "step", group=pl.col("rank").str.extract(r"^(\d+)").cast(pl.Int64)
    )
    there = mine.drop_nulls().unique()
    gpus = _numbers(facts, "gpus")
    found = {}
    for launch in launches:
        alike = len({*map(gpus.get, launch.sources)}) == 1
        reasons = (
            _in_one_log(launch),
            _missing_groups(launch),
            None if alike else messages.GROUPS_UNEQUAL(),
            _missing_steps(launch, there.filter(pl.col("run_id") == launch.lead)),
        )
        if known := [reason for reason in reasons if reason is not None]:
            found[launch.lead] = known
    return found


def _in_one_log(launch: GroupedLaunch) -> Message | None:
    if not launch.groups_in_one_log:
        return None
    return messages.GROUPS_IN_ONE_LOG(groups=_listed(launch.groups_in_one_log))


def _missing_groups(launch: GroupedLaunch) -> Message | None:
    if launch.groups_in_one_log or not launch.is_incomplete:
        return None
    of = "unknown" if launch.group_count is None else f"{launch.group_count}"
    return messages.GROUPS_MISSING(count=of, groups=_listed(launch.groups))


def _missing_steps(launch: GroupedLaunch, there: pl.DataFrame) -> Message | None:
    """Return a reason if groups lack steps before the last, which a cut log may lack."""
    before = there.filter(pl.col("step") < pl.col("step").max())
    steps = before["step"].n_unique()
    lacking = [
        f"group {group} lacks {steps - its} of {steps}"
        for group in (launch.groups if len(launch.groups) > 1 else ())
        if (its := before.filter(pl.col("group") == group).height) < steps
    ]
    if not lacking:
        return None
    return messages.GROUPS_LACK_STEPS(lacking=", ".join(lacking))


def _listed(groups: Sequence[int]) -> str:
    return ", ".join(map(str, groups))
