"""Facts that runs need for TGS and MFU, as kept with their metrics and shown.

metrics.pipeline.missing_facts finds them. Commands that only show them do not import it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, TypedDict

import polars as pl

from ..core.run_table import MetricsRow, metrics_rows

Gain = Literal["tgs", "mfu"]

ALTERNATIVES: Final[Mapping[str, str]] = {
    "accelerator": "peak_flops",
    "peak_flops": "accelerator",
    "model": "model_config, operators or flops_per_token",
    "model_config": "model, operators or flops_per_token",
    "mtp_modules": "flops_per_token",
    "attended_pairs": "flops_per_token",
    "seq_len": "tokens_per_step with flops_per_token",
    "global_batch_size": (
        "micro_batch_size, gradient_accumulation and data_parallel; or tokens_per_step"
    ),
    "micro_batch_size": "tokens_per_step and gradient_accumulation",
    "packed": "mean_sample_length or tokens_per_step",
    "tokens_per_step": "sequences_per_sample, with seq_len and packed",
    "mean_sample_length": "tokens_per_step; or packed=true, to count padding as tokens",
}
"""Other facts that may be given instead of a fact."""

CONDITIONS: Final[Mapping[str, str]] = {
    "trainable": "if lora: lora_rank and lora_targets too",
    "model": "if it has multi-token prediction: mtp_modules too",
    "packed": "if false: mean_sample_length and sample_length_deviation too",
}
"""Facts that a value of another fact asks for in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNeeds:
    """Facts that a run lacks.

    folder: of its log. facts: names in the order in which they are asked
    gain: what these facts give: a TGS and an MFU, an MFU, or only a TGS (`tgs`); None: nothing,
        because of the reason
    shares_name: whether another run of the store has the same name
    """

    run_id: str
    name: str
    folder: str
    facts: tuple[str, ...]
    gain: Gain | None
    reason: str = ""
    shares_name: bool = False


@dataclass(frozen=True, slots=True)
class Unlock:
    """Facts to give after all steps before, and the runs that gain from them."""

    facts: tuple[str, ...]
    runs: int
    gain: Gain


class AskedFacts(TypedDict):
    """Facts that a run asks for, as kept with its metrics.

    facts, gain: as in `RunNeeds`; obstacle: why no fact gives an MFU; None without such a reason
    """

    facts: list[str]
    gain: Gain | None
    obstacle: str | None


NEED_COLUMNS: Final = (
    *("run_id", "name", "members", "sources", "mfu", "tgs", "missing", "error"),
    *("warnings", "warning_kinds"),
)
"""Columns of metrics from which the needs of a run follow."""


def need_rows(metrics: pl.DataFrame) -> list[MetricsRow]:
    """Return the rows of metrics with NEED_COLUMNS only."""
    return metrics_rows(metrics.select(NEED_COLUMNS))


def rows_of(rows: Sequence[MetricsRow], run_ids: Collection[str] | None) -> list[MetricsRow]:
    """Return the rows of some runs, or of their sources; None chooses all."""
    chosen = None if run_ids is None else set(run_ids)
    return [row for row in rows if chosen is None or not chosen.isdisjoint(members_of(row))]


def lacks_facts(row: MetricsRow) -> bool:
    """Return whether a run has no MFU, though it could be computed."""
    return row["mfu"] is None and row["error"] is None


def members_of(row: MetricsRow) -> list[str]:
    """Return the run_id of all sources of a run."""
    return [row["run_id"], *(row["members"] or ())]


def needs_of(rows: Sequence[MetricsRow], asked: Mapping[str, AskedFacts]) -> list[RunNeeds]:
    """Return the needs of the runs of `asked`, in the order of the rows.

    rows: of the metrics of all runs; asked: by run_id, of `ask_facts`
    """
    names = Counter(row["name"] for row in rows)
    return [
        _needs(row, asked[row["run_id"]], shares_name=names[row["name"]] > 1)
        for row in rows
        if row["run_id"] in asked
    ]


def _needs(row: MetricsRow, asked: AskedFacts, *, shares_name: bool) -> RunNeeds:
    reasons = [asked["obstacle"], *(row["warnings"] or ()), "no line gives a rate"]
    return RunNeeds(
        run_id=row["run_id"],
        name=row["name"],
        folder=str(PurePath((row["sources"] or [""])[0]).parent),
        facts=tuple(asked["facts"]),
        gain=asked["gain"],
        reason="" if asked["gain"] else next(filter(None, reasons)),
        shares_name=shares_name,
    )


def unlocks(needs: Sequence[RunNeeds]) -> list[Unlock]:
    """Return the facts to give one after another, those that most runs wait for first."""
    left = [run for run in needs if run.gain is not None]
    given: set[str] = set()
    steps: list[Unlock] = []
    while left:
        wanted = Counter(tuple(sorted(set(run.facts) - given)) for run in left)
        facts = min(wanted, key=lambda names: (len(names), -wanted[names], names))
        given |= set(facts)
        gaining = [run for run in left if set(run.facts) <= given]
        left = [run for run in left if not set(run.facts) <= given]
        order = next(run.facts for run in gaining)
        steps.append(
            Unlock(
                tuple(name for name in order if name in facts),
                len(gaining),
                "mfu" if any(run.gain == "mfu" for run in gaining) else "tgs",
            )
        )
    return steps


def facts_by_folder(
    needs: Sequence[RunNeeds],
) -> Iterator[tuple[str, tuple[str, ...], list[RunNeeds]]]:
    """Yield folder, facts and runs, most runs first."""
    groups: dict[tuple[str, tuple[str, ...]], list[RunNeeds]] = {}
    for run in needs:
        if run.gain is not None:
            groups.setdefault((run.folder, run.facts), []).append(run)
    for (folder, facts), runs in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield folder, facts, runs
