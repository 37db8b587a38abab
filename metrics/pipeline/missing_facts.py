"""Facts that runs need for TGS and MFU, asked in one round.

A fact that is missing may hide another: without tokens per step, nothing asks for the lengths of
documents. So each run is analysed again with stand-ins for the facts that it lacks, until it asks
for no more. Stand-ins never leave this module: only names of facts do. The answer depends on the
run alone, so a store keeps it with the metrics (`AskedFacts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

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
from .run_needs import (
    AskedFacts,
    Gain,
    RunNeeds,
    lacks_facts,
    members_of,
    need_rows,
    needs_of,
    rows_of,
)

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
    "tokens_per_step": "65536",
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


def find_needs(
    tables: Tables, overlay: Sequence[Accelerator] = (), run_ids: Sequence[str] | None = None
) -> list[RunNeeds]:
    """Return all facts that each run without an MFU needs.

    tables: of `Store.tables`. overlay: your accelerators. run_ids: of some runs only, default all
    """
    rows = need_rows(analyse(tables, overlay).metrics)
    return needs_of(rows, ask_facts(rows_of(rows, run_ids), tables, overlay))


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
