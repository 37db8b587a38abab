"""Facts that runs need for TGS and MFU, asked in one round.

A fact that is missing may hide another: without tokens per step, nothing asks for the lengths of
documents. So each run is analysed again with stand-ins for the facts that it lacks, until it asks
for no more. Stand-ins never leave this module: only names of facts do. The answer depends on the
run alone, so a store keeps it with the metrics (`AskedFacts`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, TypedDict

import polars as pl

from ..core.run_table import MetricsRow, metrics_rows
from ..formula.accelerators import Accelerator
from ..utilization.messages import (
    IMAGE_FIGURES_IMPOSSIBLE,
    IMAGE_SIZES_BOUNDED,
    IMAGE_SIZES_UNKNOWN,
    OTHER_OBJECTIVE,
    TOKEN_DROPPING,
    VIDEO_FRAMES_UNKNOWN,
)
from .analysis import Tables, analyse, tables_of_runs

__all__ = [
    "ALTERNATIVES",
    "CONDITIONS",
    "AskedFacts",
    "RunNeeds",
    "Unlock",
    "ask_facts",
    "facts_by_folder",
    "find_needs",
    "lacks_facts",
    "members_of",
    "needs_of",
    "rows_of",
    "unlocks",
]

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
    "mean_sample_length": "tokens_per_step; or packed=true, to count padding as tokens",
}
"""Other facts that may be given instead of a fact."""

CONDITIONS: Final[Mapping[str, str]] = {
    "trainable": "if lora: lora_rank and lora_targets too",
    "model": "if it has multi-token prediction: mtp_modules too",
    "packed": "if false: mean_sample_length and sample_length_deviation too",
}
"""Facts that a value of another fact asks for in addition."""

_STAND_INS: Final[Mapping[str, str]] = {
    "gpus": "8",
    "accelerator": "NVIDIA B200",
    "peak_flops": "1e15",
    "model": "llama-3-8b",
    "model_config": json.dumps(
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        }
    ),
    "seq_len": "4096",
    "precision": "bf16",
    "trainable": "full",
    "packed": "true",
    "mean_sample_length": "1000",
    "sample_length_deviation": "100",
    "micro_batch_size": "1",
    "global_batch_size": "8",
    "gradient_accumulation": "1",
    "data_parallel": "8",
    "log_interval": "1",
    "lora_rank": "16",
    "lora_targets": "all-linear",
    "frozen_parts": "vision,projector",
    "mtp_modules": "0",
    "attended_pairs": "1",
    "flops_per_token": "1e10",
    "recompute": "none",
}
"""Values that only let an analysis go on to its next question."""

_NO_MFU_KINDS: Final = tuple(
    kind.identifier for kind in (TOKEN_DROPPING, OTHER_OBJECTIVE, IMAGE_FIGURES_IMPOSSIBLE)
)
"""Warnings of runs that no fact gives an MFU."""

_BOUNDED_KINDS: Final[Mapping[str, str]] = {
    kind.identifier: kind.when
    for kind in (IMAGE_SIZES_UNKNOWN, IMAGE_SIZES_BOUNDED, VIDEO_FRAMES_UNKNOWN)
}
"""The same, with the situation: the text has bounds of the MFU, which stand-ins may have given."""

_MAX_ROUNDS: Final = 6
"""Most analyses with stand-ins; each must ask for a fact that none before asked for."""


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


def find_needs(
    tables: Tables, overlay: Sequence[Accelerator] = (), run_ids: Sequence[str] | None = None
) -> list[RunNeeds]:
    """Return all facts that each run without an MFU needs.

    tables: of `Store.tables`. overlay: your accelerators. run_ids: of some runs only, default all
    """
    rows = metrics_rows(analyse(tables, overlay).metrics)
    return needs_of(rows, ask_facts(rows_of(rows, run_ids), tables, overlay))


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


def ask_facts(
    rows: Sequence[MetricsRow], tables: Tables, overlay: Sequence[Accelerator] = ()
) -> dict[str, AskedFacts]:
    """Return the facts that these runs ask for, by run_id of each run that lacks some.

    rows: of the metrics; tables: of the store, at least of these runs
    """
    lacking = {row["run_id"]: row for row in rows if lacks_facts(row)}
    asked: dict[str, list[str]] = {run_id: list(row["missing"]) for run_id, row in lacking.items()}
    last, open_runs = dict(lacking), {run_id for run_id, facts in asked.items() if facts}
    for _ in range(_MAX_ROUNDS):
        if not open_runs:
            break
        given = {run_id: asked[run_id] for run_id in open_runs}
        again = _analysed_with_stand_ins(tables, overlay, lacking, given)
        last |= again
        open_runs = set()
        for run_id, row in again.items():
            new = [name for name in row["missing"] if name not in asked[run_id]]
            asked[run_id] += new
            if new:
                open_runs.add(run_id)
    return {
        run_id: _asked_facts(lacking[run_id], last[run_id], facts)
        for run_id, facts in asked.items()
    }


def _analysed_with_stand_ins(
    tables: Tables,
    overlay: Sequence[Accelerator],
    rows: Mapping[str, MetricsRow],
    names: Mapping[str, Sequence[str]],
) -> dict[str, MetricsRow]:
    """Return the rows of these runs, analysed as if stand-ins were given by hand."""
    owner = {member: run_id for run_id in names for member in members_of(rows[run_id])}
    of_runs = tables_of_runs(tables, owner)
    stand_ins = [
        {"run_id": member, "name": name, "value": _STAND_INS[name], "origin": "flag"}
        for member, run_id in owner.items()
        for name in names[run_id]
        if name in _STAND_INS
    ]
    facts = of_runs["facts"]
    given = pl.DataFrame(stand_ins, schema=facts.schema, strict=False)
    latest = int(facts["sequence"].max() or 0) + 1  # type: ignore[arg-type]
    given = given.with_columns(sequence=pl.lit(latest, facts.schema["sequence"]))
    analysis = analyse({**of_runs, "facts": pl.concat([facts, given])}, overlay)
    found = {row["run_id"]: row for row in metrics_rows(analysis.metrics)}
    return {owner.get(run_id, run_id): row for run_id, row in found.items()}


def _asked_facts(row: MetricsRow, last: MetricsRow, names: Sequence[str]) -> AskedFacts:
    """Return the facts that a run asks for, and what they give.

    row: as stored; last: with stand-ins, whose MFU may be impossible: that is no reason
    """
    warnings = dict(zip(last["warning_kinds"] or [], last["warnings"] or [], strict=True))
    told = {kind: warnings.get(kind) for kind in _NO_MFU_KINDS}
    told |= {kind: when for kind, when in _BOUNDED_KINDS.items() if kind in warnings}
    obstacle = next(filter(None, told.values()), None)
    gain: Gain | None = None
    if names and last["tgs"] is not None:
        gain = "mfu" if obstacle is None else "tgs" if row["tgs"] is None else None
    return {"facts": list(dict.fromkeys(names)), "gain": gain, "obstacle": obstacle}


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
