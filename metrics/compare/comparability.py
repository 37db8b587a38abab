"""Comparability of runs, and the differences between them.

Any two runs are a `PairVerdict`: like for like, the same model with something else different, or
not comparable. Like for like is the same work per token on the same device: model, sequence length,
attention, trainable weights, precision, accelerator, and the counting of tokens. Everything else
(GPUs, recompute, batch, framework) is the subject of comparison, and is named. Runs whose tokens
are unknown compare by samples/s, if their global batch and GPUs are the same too. `rank_runs`
groups runs by the same verdict, and ranks within a group only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any, Final, Literal, cast

import numpy as np
import polars as pl
import polars.selectors as cs

from fairmfu.ingest.core.schema import row_dtypes

from ..audit.logged_figures import PER_GPU_FIGURES, SAMPLES_FIGURE
from ..core.arrays import IntArray
from ..core.messages import NOT_RANKED, as_clause
from ..core.run_table import METRICS, MetricsRow, metrics_rows, not_null, value_of
from ..core.run_words import EVIDENCE_LABELS
from ..throughput.resolved_facts import SETUP_FACTS
from . import cost, loss_parity, repeated_runs
from .comparison_row import COMPARABILITY_COLUMNS, STATED_BY_SOME, ComparisonColumns, ComparisonRow
from .messages import BATCH_UNKNOWN, SAMPLES_UNLIKE, WORK_UNCONFIRMED
from .missing_rate import NO_RATE_KINDS, explain_missing_rate

Verdict = Literal["like for like", "same model", "not comparable"]


SAMPLES_COLUMNS: Final = (
    *(name for name in COMPARABILITY_COLUMNS if name != "token_group"),
    *("model", "gpus", "samples_per_update", "packed", "log_format"),
)
"""Columns that must be equal, or unknown in all, to rank runs by samples/s."""

TOKEN_UNIT, SAMPLE_UNIT = "tokens/s/GPU", "samples/s"
"""Units of a ranked rate."""

MAX_FLOPS_DIFFERENCE: Final = 0.01
"""Largest relative difference of FLOPs per token within a group: vocabularies and the lengths of
packed documents differ a little.
"""

VARIABLE_COLUMNS: Final = (
    *SETUP_FACTS,
    "offload",
    "recompute",
    "packed",
    "compile",
    "attention",
    "quantization",
    "attended_pairs",
    "flops_per_token",
    "flops_source",
    "framework",
    "framework_version",
    "torch",
    "cuda",
    "nccl",
    "driver",
    "commit",
    "time_basis",
)
"""Columns that may differ between ranked runs: compared, or shown beside the comparison."""

WORDED_COLUMNS: Final = tuple(
    name for name in VARIABLE_COLUMNS if METRICS[name] in {pl.String(), pl.Boolean()}
)
"""Names of VARIABLE_COLUMNS that may hold true or false."""

MEASURED_COLUMNS: Final = ("attended_pairs", "flops_per_token")
"""Names of VARIABLE_COLUMNS that are measured if documents are masked, so that repeats may differ
in them.
"""

UNMEASURED_COLUMNS: Final = tuple(name for name in VARIABLE_COLUMNS if name not in MEASURED_COLUMNS)
"""Names of VARIABLE_COLUMNS that repeats have in common even if documents are masked."""

COLUMN_LABELS: Final = {
    "seq_len": "sequence length",
    "attention_pattern": "attention",
    "trained": "trainable",
    "precision": "precision",
    "token_group": "token basis",
    "flops_per_token": "FLOPs per token",
    "flops_source": "FLOPs from",
    "attended_pairs": "attention pairs per token",
    "work": "model",
    "device": "accelerator",
    "framework_version": "version",
    "torch": "PyTorch",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "packed": "packing",
    "attention": "attention kernel",
    "gpus": "GPUs",
    "global_batch_size": "global batch",
    "micro_batch_size": "micro batch",
    "gradient_accumulation": "gradient accumulation",
    "samples_per_update": "global batch",
    "log_format": "log format",
    "replicas": "data-parallel replicas",
    "replica_groups": "replica groups",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "context_parallel": "context parallel",
    "expert_parallel": "expert parallel",
    "zero_stage": "ZeRO stage",
    "time_basis": "source of the step times",
}

FACT_LABELS: Final = {
    "work": "model",
    "attention_pattern": "attention",
    "trained": "trainable",
    "device": "accelerator",
    "token_group": "token basis",
}
"""Names of unknown COMPARABILITY_COLUMNS, as `fairmfu set` accepts them where a fact decides."""

COMPARISON_COLUMNS: Final = (
    *("group", "rank", "run_id", "name", "framework", "setup", "repeats", "chain", "tgs"),
    *("tgs_low", "tgs_high", "ranked_rate", "ranked_low", "ranked_high", "ranked_unit"),
    *("no_interval", "relative_tgs", "relative_low", "relative_high"),
    *("seconds_per_step", "samples_per_second", "samples_per_update", "tokens_per_update"),
    *(
        "peak_memory_bytes",
        "smallest_difference",
        "tied_with_best",
        "tgs_end_to_end",
        "mfu",
        "mfu_full_attention",
    ),
    *("logged_tgs", "logged_tflops", "logged_mfu", "logged_rank", "logged_by", "tflops"),
    *("flops_per_token", "flops_source", "equal_flops", "tgs_at_equal_flops"),
    *("gpu_hours_per_billion_tokens", "gpu_hours_per_billion_tokens_end_to_end"),
    *("kwh_per_billion_tokens", "joules_per_token", "energy_source"),
    "price_per_gpu_hour",
    *("cost_per_billion_tokens", "cost_per_billion_tokens_end_to_end", "equal_tokens"),
    *("loss_at_equal_tokens", "loss_spread", "same_loss", "no_loss", "differs"),
    *("nearest_group", "nearest_differs", "not_ranked", "doubts", "synthetic"),
)

_DTYPES: Final = row_dtypes(MetricsRow) | row_dtypes(ComparisonColumns)
COMPARISON: Final = pl.Schema({name: _DTYPES[name] for name in COMPARISON_COLUMNS})


# --- two runs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Comparability of two runs.

    verdict: like for like, same model or not comparable
    differing_columns: names of COMPARABILITY_COLUMNS (or flops_per_token) that differ
    differences: these with both values, in words
    obstacles: obstacles to any comparison
    context: other differences that are no obstacle, with both values
    """

    verdict: Verdict
    differing_columns: tuple[str, ...]
    differences: tuple[str, ...]
    obstacles: tuple[str, ...]
    context: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Verdict in one line."""
        if self.verdict == "like for like":
            return "like for like"
        if self.verdict == "same model":
            return f"same model, different {'; '.join(self.differences)}"
        return f"not comparable: {'; '.join(self.obstacles)}"


def compare_pair(first: MetricsRow, second: MetricsRow) -> PairVerdict:
    """Return the verdict on two rows of METRICS, or of `rank_runs`."""
    both = (_keyed(first), _keyed(second))
    found = _pair(*both)
    if found.verdict == "like for like" and both[0]["ranked_unit"] == SAMPLE_UNIT:
        found = _with_rank((first, second), found)
    without = MEASURED_COLUMNS if found.differing_columns else ()
    return replace(found, context=tuple(_differences(both, without)))


def _with_rank(both: tuple[MetricsRow, MetricsRow], verdict: PairVerdict) -> PairVerdict:
    """Return the verdict on runs that samples/s may rank.

    Only `rank_runs` compares their losses.
    """
    rows = [cast(ComparisonRow, row) for row in both]
    if all(row.get("rank") for row in rows):
        return verdict
    told = [
        f"{row['name']}: {reason}"
        for row in rows
        for reason in row.get("not_ranked") or [_no_tgs(row)]
    ]
    return replace(verdict, verdict="not comparable", obstacles=tuple(dict.fromkeys(told)))


def _pair(first: ComparisonRow, second: ComparisonRow) -> PairVerdict:
    """Return the verdict on two rows of `_keyed`, without context."""
    both = (first, second)
    if SAMPLE_UNIT in (first["ranked_unit"], second["ranked_unit"]):
        return _pair_of_samples(first, second)
    values = {n: (first[n], second[n]) for n in COMPARABILITY_COLUMNS}
    different = [n for n, (a, b) in values.items() if a is not None and b is not None and a != b]
    if _same_source(first, second) and not _near(*(row["flops_per_token"] for row in both)):
        different.append("flops_per_token")
    listed = [
        f"{COLUMN_LABELS[name]} ({_both(name, both)})" for name in different if name != "work"
    ]
    why = [f"{run['name']}: {reason}" for run in both for reason in run["not_ranked"]]
    if first["synthetic"] != second["synthetic"]:
        why.append("one of the two is synthetic")
    if "work" in different:
        why.append(f"different models ({first['model']} vs {second['model']})")
    verdict: Verdict = "same model" if different else "like for like"
    return PairVerdict(
        verdict="not comparable" if why else verdict,
        differing_columns=tuple(different),
        differences=tuple(listed),
        obstacles=tuple(why),
    )


def _pair_of_samples(first: ComparisonRow, second: ComparisonRow) -> PairVerdict:
    """Return the verdict on two rows, at least one of which has samples/s and no TGS."""
    both = (first, second)
    different = tuple(n for n in SAMPLES_COLUMNS if value_of(first, n) != value_of(second, n))
    listed = tuple(
        SHAPE_WORDS if n == "work" else f"{COLUMN_LABELS.get(n, n)} ({_both(n, both)})"
        for n in different
        if n != "work" or "model" not in different
    )
    why = [f"{run['name']}: {reason}" for run in both for reason in run["not_ranked"]]
    if first["synthetic"] != second["synthetic"]:
        why.append("one of the two is synthetic")
    if first["ranked_unit"] != second["ranked_unit"] or different:
        why += [f"{run['name']}: {_no_tgs(run)}" for run in both if run["tgs"] is None]
    if first["ranked_unit"] == second["ranked_unit"] and different:
        unlike = SAMPLES_UNLIKE(other=second["name"], differences="; ".join(listed))
        why.append(as_clause(unlike))
    return PairVerdict(
        verdict="not comparable" if why else "like for like",
        differing_columns=different,
        differences=listed,
        obstacles=tuple(dict.fromkeys(why)),
    )


SHAPE_WORDS: Final = "model shape"
"""Name of a difference in `work`, whose values are hashes, between models of one name."""


def _both(name: str, rows: Sequence[ComparisonRow]) -> str:
    values = (value_of(row, name) for row in rows)
    return " vs ".join("unknown" if value is None else format_value(value) for value in values)


def _near(flops: float | None, other_flops: float | None) -> bool:
    return (
        flops is None
        or other_flops is None
        or max(flops, other_flops) <= min(flops, other_flops) * (1 + MAX_FLOPS_DIFFERENCE)
    )


def _same_source(first: MetricsRow, second: MetricsRow) -> bool:
    """Return whether both FLOPs are the formula's, or both given.

    Given FLOPs are no reason against a comparison of TGS: the work is equal by other columns.
    """
    return (first["flops_source"] is None) == (second["flops_source"] is None)


def _keyed(row: MetricsRow) -> ComparisonRow:
    """Return a row with its token basis, our TFLOP/s and obstacles to any ranking."""
    said = {name: plain_value(value_of(row, name)) for name in WORDED_COLUMNS}
    tgs, flops = row["tgs"], row["flops_per_token"]
    keyed = cast(ComparisonRow, {**row, **said})
    keyed["no_interval"] = row.get("no_interval")
    keyed["token_group"] = token_group(row)
    keyed["tflops"] = tgs * flops / 1e12 if tgs is not None and flops is not None else None
    keyed = cast(ComparisonRow, keyed | _ranked_rate(row))
    keyed["not_ranked"] = _obstacles(keyed)
    return keyed


def token_group(row: MetricsRow) -> str | None:
    """Return the token basis, with non-padding tokens counted as packed."""
    basis = row["token_basis"]
    return "packed" if basis == "non_padding" else basis


def _ranked_rate(row: MetricsRow) -> ComparisonColumns:
    """Return the rate that ranks a run, with its interval.

    It is TGS, or samples/s without tokens.
    """
    low, high = row["seconds_per_step_low"], row["seconds_per_step_high"]
    samples, seconds = row["samples_per_second"], row["seconds_per_step"]
    if row["tgs"] is not None or samples is None or seconds is None:
        unit = None if row["tgs"] is None else TOKEN_UNIT
        ends = (row["tgs"], row["tgs_low"], row["tgs_high"])
    else:
        unit = None if NO_RATE_KINDS.intersection(row["warning_kinds"] or ()) else SAMPLE_UNIT
        each = samples * seconds
        ends = (samples, high and each / high, low and each / low)
    names = ("ranked_rate", "ranked_low", "ranked_high")
    rates = dict(zip(names, ends if unit else (None,) * len(ends), strict=True))
    return cast(ComparisonColumns, {**rates, "ranked_unit": unit})


def _no_tgs(row: MetricsRow) -> str:
    return f"no TGS: {explain_missing_rate(row)[0]}"


def plain_value(value: object) -> object:
    """Return yes or no for any spelling of true or false, else the value."""
    if not isinstance(value, bool | str):
        return value
    return BOOL_WORDS.get(str(value).lower(), value)


BOOL_WORDS: Final = {"true": "yes", "false": "no"}


def _obstacles(row: ComparisonRow) -> list[str]:
    """Return the reasons why a run cannot be ranked."""
    reasons: list[str] = []
    doubts = [as_clause(said) for said in row["warnings"] if said.startswith(NOT_RANKED)]
    if row["ranked_unit"] == SAMPLE_UNIT:
        return [_no_tgs(row), *doubts] if doubts else []
    if row["tgs"] is None:
        untold = row["seconds_per_step"] is not None and row["samples_per_update"] is None
        return [_no_tgs(row), *([as_clause(BATCH_UNKNOWN())] if untold else [])]
    if unknown := _unknown_facts(row):
        reasons.append(f"unknown: {', '.join(unknown)}")
    elif row["flops_per_token"] is None:
        lacking = ", ".join(row["missing"]) or "those of the vision tower"
        reasons.append(f"unknown FLOPs per token: {lacking}")
    reasons += doubts
    if row["implied"] is not None:
        reasons.append(f"impossible: MFU would be {row['implied']:.0%}")
    return reasons


def _unknown_facts(row: ComparisonRow) -> list[str]:
    """Return the facts for which COMPARABILITY_COLUMNS of a run are empty.

    Model, attention and trainable are empty together if a fact about one of them is missing.
    """
    unknown = [name for name in COMPARABILITY_COLUMNS if row[name] is None]
    if "work" not in unknown:
        return [FACT_LABELS.get(name, name) for name in unknown]
    lacking = [name for name in row["missing"] or () if name in MODEL_FACTS]
    if not lacking and row["seq_len"] is not None:
        lacking = ["model"]
    own = [name for name in unknown if name not in ("work", "attention_pattern", "trained")]
    return [*lacking, *(FACT_LABELS.get(name, name) for name in own)]


MODEL_FACTS: Final = (
    *("model", "model_config", "mtp_modules", "trainable", "lora_rank", "lora_targets"),
    "frozen_parts",
)
"""Facts without which the model that ran is unknown."""


# --- groups -------------------------------------------------------------------------------


def rank_runs(
    metrics: pl.DataFrame,
    losses: pl.DataFrame | None = None,
    price: cost.Price | cost.Prices | None = None,
) -> pl.DataFrame:
    """Return groups of like-for-like runs, fastest first; unranked runs come last.

    metrics: as `metrics.pipeline.analysis.Analysis.metrics`; losses: of `loss_parity.loss_lines`,
        for the loss at equal tokens; price: of one GPU-hour.

    Columns of COMPARISON include

    setup: a letter; runs with the same letter have no known difference
    repeats: number of starts of the setup
    ranked_rate, ranked_low, ranked_high: TGS, or samples/s if tokens are unknown (ranked_unit)
    relative_tgs: ranked rate over the best; for repeats, over their mean
    relative_low, relative_high: its 95 % interval, over all runs of a setup with repeats
    tied_with_best: whether the interval contains 1; null without an interval (no_interval says why)
    smallest_difference: the smallest difference that the data usually reveals
    logged_rank: the rank by `logged_by`: TFLOP/s, MFU or TGS, the first that most logs print
    tflops: ours, TGS x FLOPs per token, per GPU
    tgs_at_equal_flops: TGS at the same utilisation with `equal_flops` FLOPs per token, for runs of
        one device and precision with other FLOPs per token; not ranked by
    equal_tokens and the loss columns: metrics.compare.loss_parity
    differs: differences within the group
    nearest_differs: differences of the group from the nearest group of the same model
    not_ranked: reasons why a run has no rank
    """
    rows = [_keyed(row) for row in metrics_rows(metrics.drop(DETAILS))]
    first = repeated_runs.first_launches(rows)
    prices = price if isinstance(price, cost.Prices) else cost.Prices(price)
    rows = [
        _with_costs(row, prices.of(row["device"])) | {"chain": first[row["run_id"]]} for row in rows
    ]
    groups = _groups(row for row in rows if not row["not_ranked"])
    groups = [group for group in groups if _stays_together(group, groups, losses)]
    apart = sorted((r for r in rows if r["not_ranked"]), key=lambda row: str(row["name"]))
    labels = Counter(_label(group[0]) for group in groups)
    found = [_ranked(group, twice=labels[_label(group[0])] > 1) for group in groups]
    found.sort(key=lambda group: str(group[0]["group"]))
    _set_at_equal_flops(found)
    _set_nearest(found)
    out = [row for group in found for row in group]
    out += [row | {"group": None, "differs": [], "nearest_differs": []} for row in apart]
    frame = pl.DataFrame([{n: row.get(n) for n in COMPARISON} for row in out], schema=COMPARISON)
    return frame if losses is None else _with_losses(frame, losses)


DETAILS: Final = cs.list(cs.struct())
"""Columns of METRICS with rows of their own, such as phases: nothing is compared by them."""


def _groups(rows: Iterable[ComparisonRow]) -> list[list[ComparisonRow]]:
    """Return groups of rows that are like for like with the first row of their group.

    The first row has the least FLOPs per token.
    """
    ordered = sorted(rows, key=lambda row: row["flops_per_token"] or 0.0)
    by_tokens = [row for row in ordered if row["ranked_unit"] != SAMPLE_UNIT]
    known = [n for n in COMPARABILITY_COLUMNS if all(row[n] is not None for row in by_tokens)]
    found: list[list[ComparisonRow]] = []
    of_key: dict[Hashable, list[list[ComparisonRow]]] = {}
    for row in ordered:
        by_samples = row["ranked_unit"] == SAMPLE_UNIT
        equal = SAMPLES_COLUMNS if by_samples else known
        key = by_samples, row["synthetic"], *(value_of(row, name) for name in equal)
        alike = of_key.setdefault(key, [])  # no other group can be like for like
        mine = (group for group in alike if _pair(group[0], row).verdict == "like for like")
        group = next(mine, None)
        if group is None:
            found.append([row])
            alike.append(found[-1])
        else:
            group.append(row)
    return found


def _stays_together(
    group: Sequence[ComparisonRow],
    groups: Sequence[Sequence[ComparisonRow]],
    losses: pl.DataFrame | None,
) -> bool:
    """Return whether a group is ranked; else say why in its rows.

    By samples/s a run alone has nothing to say. Equal tokens and models are not known, so losses at
    equal steps must agree.
    """
    first = group[0]
    if first["ranked_unit"] != SAMPLE_UNIT:
        return True
    unlike_losses = _unlike_losses(group, losses)
    if len(group) > 1 and unlike_losses is None:
        return True
    others = [other[0] for other in groups if other[0]["ranked_unit"] == SAMPLE_UNIT]
    pairs = [(other, _pair(first, other)) for other in others if other is not first]
    for row in group:
        row["not_ranked"] = [_no_tgs(row)]
        if len(group) > 1:
            row["not_ranked"].append(as_clause(WORK_UNCONFIRMED(losses=unlike_losses)))
        elif pairs:
            other, pair = min(pairs, key=lambda item: len(item[1].differing_columns))
            unlike = SAMPLES_UNLIKE(other=other["name"], differences="; ".join(pair.differences))
            row["not_ranked"].append(as_clause(unlike))
    return False


def _unlike_losses(group: Sequence[ComparisonRow], losses: pl.DataFrame | None) -> str | None:
    """Say that losses do not show runs of one model; None if they do."""
    if losses is None or len(group) == 1:
        return "their losses were not compared"
    ids = [row["run_id"] for row in group]
    compared = loss_parity.compare_losses(losses, [ids], by_steps=ids)
    if compared["same_loss"].null_count():
        return "their losses cannot be compared"
    return None if compared["same_loss"].all() else "their losses differ at equal steps"


TOKEN_GROUPS: Final = {
    "packed": "tokens without padding",
    "slots": "tokens including padding",
    "given": "tokens by a mean",
}
"""Values of `token_group` in a heading."""


def _label(row: ComparisonRow) -> str:
    if row["ranked_unit"] == SAMPLE_UNIT:
        return _label_of_samples(row)
    trained = "" if row["trained"] == "full" else f", {row['trained']}"
    pattern = not_null(row["attention_pattern"])
    masked = "" if pattern == "causal" else f", {pattern.removeprefix('causal, ')}"
    return (
        f"{row['model']}, {row['seq_len']:,} tokens{masked}, {row['precision']}{trained}, "
        f"{row['device']}, {TOKEN_GROUPS[not_null(row['token_group'])]}"
    )


def _label_of_samples(row: ComparisonRow) -> str:
    sizes = {"gpus": "GPUs", "seq_len": "tokens"}
    counted = [f"{value_of(row, n):,} {noun}" for n, noun in sizes.items() if value_of(row, n)]
    named = [str(value_of(row, n)) for n in ("precision", "device") if value_of(row, n)]
    batch = f"global batch {not_null(row['samples_per_update']):,.0f}"
    model = row["model"] or f"unnamed model ({row['log_format']})"
    return ", ".join([model, *counted, *named, batch, "by samples/s"])


def _ranked(group: Sequence[ComparisonRow], *, twice: bool) -> list[ComparisonRow]:
    """Return the rows of a group with ranks and relative speeds.

    twice: another group has the same label, so the label is extended
    """
    order = sorted(group, key=lambda row: -not_null(row["ranked_rate"]))
    best, label = order[0], _label(order[0])
    if twice:
        flops, work = best["flops_per_token"], best["work"]
        label += f", {flops:.5g} FLOPs/token" if flops is not None else ""
        label += f", model {work[:6]}" if work is not None else ""
        label += ", synthetic" if best["synthetic"] else ""
    letters = repeated_runs.setup_letters(order, setup_key)
    order = [row | {"setup": letter} for row, letter in zip(order, letters, strict=True)]
    differs = _differences(order)
    if best["ranked_unit"] == TOKEN_UNIT:
        differs += _formula_differences(group)
    sides = repeated_runs.comparison_sides(order)
    best_rate = sides[0].rate
    placed = [
        (row, to_best)
        for side in sides
        for to_best in [_relative_to_best(side, sides[0])]
        for row in side.rows
    ]
    logged_ranks = _logged_ranks([row for row, _ in placed])
    of_group = {"group": label, "differs": differs}
    ranked = []
    for rank, ((row, to_best), logged) in enumerate(zip(placed, logged_ranks, strict=True), 1):
        relative_tgs = not_null(row["ranked_rate"]) / best_rate
        own = {"rank": rank, "relative_tgs": relative_tgs}
        ranked.append(cast(ComparisonRow, {**row, **to_best, **logged, **of_group, **own}))
    return ranked


def setup_key(row: ComparisonRow) -> tuple[Any, ...]:
    """Return the key of a run's setup, unique for a run with unknown settings.

    Most logs leave some settings out, as no log names its nodes. But settings that decide speed
    must be known, or two experiments would pass for a repeated one. Base and head are two setups,
    even if no setting differs.
    """
    needed = (*REPEAT_KEY_COLUMNS, "tokens_per_gpu_step", "attention_pattern")
    if any(value_of(row, name) is None for name in needed):
        return (row["run_id"],)
    masked = not_null(row["attention_pattern"]).endswith(DOCUMENT_BORDERS)
    names = UNMEASURED_COLUMNS if masked else VARIABLE_COLUMNS
    values = ((name, value_of(row, name)) for name in names)
    known = (DEFAULT_SETUP_VALUES.get(n) if value is None else value for n, value in values)
    return (row.get("side"), *known)


REPEAT_KEY_COLUMNS: Final = ("gpus", "recompute", "framework_version")
"""Names of VARIABLE_COLUMNS that must be known for a run to be a repeat, in addition to its tokens
per step.
"""

DEFAULT_SETUP_VALUES: Final = {"replicas": 1, "replica_groups": 1}
"""Values assumed if unknown, as in stores written before these facts were read."""

DOCUMENT_BORDERS: Final = "document borders"


def _relative_to_best(
    side: repeated_runs.ComparisonSide, best: repeated_runs.ComparisonSide
) -> ComparisonColumns:
    """Return the columns of a side's speed relative to the best; the best is tied."""
    if side is best:
        return {"repeats": side.repeats, "tied_with_best": True}
    gap = repeated_runs.speed_ratio(side, best)
    return {
        "repeats": side.repeats,
        "relative_low": gap.low,
        "relative_high": gap.high,
        "smallest_difference": gap.smallest_difference,
        "tied_with_best": gap.is_tied,
    }


def ranked_figures(row: ComparisonRow) -> tuple[str, ...]:
    """Return the logged figures to set beside a row's ranked rate, the best first."""
    return PER_GPU_FIGURES if row["ranked_unit"] == TOKEN_UNIT else (SAMPLES_FIGURE,)


def _logged_ranks(rows: Sequence[ComparisonRow]) -> list[ComparisonColumns]:
    """Return the rank by a logged figure: the first that more than half of them print."""
    figures = ranked_figures(rows[0])
    printed = {name: [value_of(row, name) for row in rows] for name in figures}
    counts = {name: len(list(filter(None, values))) for name, values in printed.items()}
    by_most = max(figures, key=lambda name: counts[name])
    name = next((name for name in figures if 2 * counts[name] > len(rows)), by_most)
    claims = sorted(filter(None, printed[name]))
    ranks = {figure: len(claims) - lower for lower, figure in enumerate(claims)}
    if len(claims) < 2:  # noqa: PLR2004 - one has no rank
        return [{} for _ in rows]
    return [
        {"logged_by": name, "logged_rank": ranks[figure]} if figure else {}
        for figure in printed[name]
    ]


def _with_costs(row: ComparisonRow, price: cost.Price | None) -> ComparisonRow:
    steady, whole = cost.gpu_hours(row["tgs"]), cost.gpu_hours(row["tgs_end_to_end"])
    return row | {
        "gpu_hours_per_billion_tokens": steady,
        "gpu_hours_per_billion_tokens_end_to_end": whole,
        "price_per_gpu_hour": None if price is None else str(price),
        "cost_per_billion_tokens": cost.cost_of_gpu_hours(steady, price),
        "cost_per_billion_tokens_end_to_end": cost.cost_of_gpu_hours(whole, price),
    }


def _with_losses(frame: pl.DataFrame, losses: pl.DataFrame) -> pl.DataFrame:
    ranked = frame.filter(pl.col("rank").is_not_null())
    groups = ranked.group_by("group", maintain_order=True).agg("run_id")["run_id"].to_list()
    by_steps = ranked.filter(ranked_unit=SAMPLE_UNIT)["run_id"].to_list()
    compared = loss_parity.compare_losses(losses, groups, by_steps)
    names = [name for name in loss_parity.LOSS_PARITY_SCHEMA if name != "run_id"]
    joined = frame.drop(names).join(compared, on="run_id", how="left", maintain_order="left")
    return joined.select(COMPARISON.names())


# --- across groups ------------------------------------------------------------------------


def _set_at_equal_flops(groups: Sequence[Sequence[ComparisonRow]]) -> None:
    """Fill `tgs_at_equal_flops` for groups that differ in length or trainable alone.

    Such groups share model, device, precision and token basis, and differ in FLOPs per token. At
    the same utilisation the rate is inversely proportional to F / P, the ideal time per token. The
    reference is the group with the least FLOPs per token.
    """
    alike: dict[tuple[Any, ...], list[Sequence[ComparisonRow]]] = {}
    for group in groups:
        row = group[0]
        by_formula = row["flops_source"] is None
        if by_formula and row["peak_flops"] is not None and row["ranked_unit"] == TOKEN_UNIT:
            names = ("work", "device", "precision", "token_group", "synthetic")
            alike.setdefault(tuple(value_of(row, name) for name in names), []).append(group)
    for several in alike.values():
        reference = min(
            (group[0] for group in several), key=lambda row: not_null(row["flops_per_token"])
        )
        rows = [row for group in several if len(several) > 1 for row in group]
        for row in rows:
            if row["peak_flops"] is not None and row["peak_source"] == reference["peak_source"]:
                times = _ideal_seconds(row) / _ideal_seconds(reference)
                row["equal_flops"] = reference["flops_per_token"]
                row["tgs_at_equal_flops"] = not_null(row["tgs"]) * times


def _ideal_seconds(row: ComparisonRow) -> float:
    return not_null(row["flops_per_token"]) / not_null(row["peak_flops"])


def _set_nearest(groups: Sequence[Sequence[ComparisonRow]]) -> None:
    """Fill `nearest_group`: the group of the same model with the fewest differences."""
    first = [group[0] for group in groups]
    for group, nearest in zip(groups, _nearest_of_same_model(first), strict=True):
        found = None if nearest is None else _pair(group[0], nearest)
        for row in group:
            row["nearest_differs"] = list(found.differences) if found is not None else []
            if nearest is not None:
                row["nearest_group"] = nearest["group"]


def _nearest_of_same_model(rows: Sequence[ComparisonRow]) -> list[ComparisonRow | None]:
    """Return for each row the row of the same model with the fewest differences.

    Counts the differing columns of `_pair` for whole columns at once: thousands of groups have
    millions of pairs.
    """
    by_tokens = np.array([row["ranked_unit"] != SAMPLE_UNIT for row in rows], np.bool_)
    made_up = np.array([row["synthetic"] for row in rows], np.bool_)
    given = np.array([row["flops_source"] is not None for row in rows], np.bool_)
    flops = np.array([row["flops_per_token"] for row in rows], np.float64)  # null is NaN
    codes = {name: _codes(row[name] for row in rows) for name in COMPARABILITY_COLUMNS}
    nearest: list[ComparisonRow | None] = []
    for place in range(len(rows)):
        least = np.minimum(flops, flops[place]) * (1 + MAX_FLOPS_DIFFERENCE)
        far = np.maximum(flops, flops[place]) > least
        count = (far & (given == given[place])).astype(np.int64)
        same = by_tokens & by_tokens[place] & (made_up == made_up[place])
        for name, code in codes.items():
            differs = (code != code[place]) & (code >= 0) & (code[place] >= 0)
            count += differs
            if name == "work":
                same &= ~differs
        count[~same | (count == 0)] = len(COMPARABILITY_COLUMNS) + 2
        best = int(count.argmin())
        nearest.append(rows[best] if count[best] <= len(COMPARABILITY_COLUMNS) + 1 else None)
    return nearest


def _codes(values: Iterable[Hashable]) -> IntArray:
    """Return a number per value, equal for equal values; -1 for null."""
    numbers: dict[Hashable, int] = {}
    return np.array(
        [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values],
        np.int64,
    )


# --- within a group -----------------------------------------------------------------------


def varying_columns(group: Sequence[MetricsRow]) -> list[str]:
    """Return names of VARIABLE_COLUMNS that are known to differ within a group."""
    return [name for name in VARIABLE_COLUMNS if len(_known(name, group)) > 1]


def _known(name: str, group: Sequence[MetricsRow]) -> list[str]:
    """Return the different known values of a column, in the order of the runs."""
    values = dict.fromkeys(_value(row, name) for row in group)
    texts = dict.fromkeys(_whole(value) for value in values if value is not None)
    return [EVIDENCE_LABELS.get(t, t) for t in texts] if name == "time_basis" else list(texts)


def _value(row: MetricsRow, name: str) -> Any:  # noqa: ANN401 - any column
    """Return a value of a row; the formula as the source of FLOPs that are not given."""
    value = value_of(row, name)
    if name == "flops_source" and value is None and row["flops_per_token"] is not None:
        return FORMULA_SOURCE
    return value


FORMULA_SOURCE: Final = "the formula"


def format_value(value: object) -> str:
    """Return a value of COMPARABILITY_COLUMNS or VARIABLE_COLUMNS as short text."""
    return _whole(value)[:MAX_VALUE_LENGTH]


def _whole(value: object) -> str:
    value = plain_value(value)
    if isinstance(value, float):
        return f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


MAX_VALUE_LENGTH: Final = 60
"""Most characters of a value to show."""


def _differences(group: Sequence[MetricsRow], without: Sequence[str] = ()) -> list[str]:
    """Return known differences within a group, then columns that only some runs state."""
    known = {name: _known(name, group) for name in VARIABLE_COLUMNS}
    differs = [
        f"{COLUMN_LABELS.get(name, name)}: {' vs '.join(_shortened(values))}"
        for name, values in known.items()
        if len(values) > 1 and name not in without
    ]
    partly = [
        COLUMN_LABELS.get(name, name)
        for name, values in known.items()
        if len(values) == 1 and any(_value(row, name) is None for row in group)
    ]
    if partly:
        differs.append(f"{STATED_BY_SOME}{', '.join(partly)}")
    return differs


def head_differences(base: MetricsRow, head: MetricsRow) -> list[str]:
    """Return what differs of a head from its base, such as `PyTorch: 2.8 -> 2.9`.

    Values come first, then the columns that only one of the two states.
    """
    rows = (_keyed(base), _keyed(head))
    names = [name for name in (*COMPARABILITY_COLUMNS, *VARIABLE_COLUMNS) if name != "work"]
    found = [
        f"{COLUMN_LABELS.get(name, name)}: {' -> '.join(_shortened(values))}"
        for name in names
        if len(values := _known(name, rows)) > 1
    ]
    for side, run, other_run in (("base", *rows), ("head", *rows[::-1])):
        missing = [
            COLUMN_LABELS.get(name, name)
            for name in names
            if _value(run, name) is None and _value(other_run, name) is not None
        ]
        found += [f"unknown for {side}: {', '.join(missing)}"] if missing else []
    return found


def repeat_differences(rows: Sequence[MetricsRow]) -> list[str]:
    """Return settings in which runs of one group differ: they are no repeats.

    Settings that no run states count as equal.
    """
    keyed = [_keyed(row) for row in rows]
    masked = all(str(row["attention_pattern"]).endswith(DOCUMENT_BORDERS) for row in rows)
    return _differences(keyed, MEASURED_COLUMNS if masked else ())


def _shortened(values: Sequence[str]) -> list[str]:
    """Return values as text; long values without their common beginning."""
    long = max(map(len, values)) > MAX_VALUE_LENGTH
    alike = len(commonprefix([*values])) if long else 0  # noqa: RUF071 - character by character
    return [f"{'…' if alike else ''}{value[alike:]}"[:MAX_VALUE_LENGTH] for value in values]


def _formula_differences(group: Sequence[MetricsRow]) -> list[str]:
    """Return frameworks whose runs print the same work on the same device differently.

    Only runs with reproduced figures, whose formula and peak are therefore known.
    """
    found = []
    for framework in sorted({str(row["framework"]) for row in group}):
        mine = [r for r in group if r["framework"] == framework and r["logged_reproduced"]]
        counted = [r for r in mine if r["logged_flops_per_token"] and r["logged_tflops"]]
        ratios = [_logged_flops(row) / not_null(row["flops_per_token"]) for row in counted]
        divided = sorted({not_null(row["logged_peak"]) for row in mine if row["logged_mfu"]})
        if ratios and max(ratios) > min(ratios) * (1 + MAX_COUNT_DIFFERENCE):
            eras = " vs ".join(sorted({str(row["logged_formula"]) for row in counted}))
            found.append(
                f"formulas of {framework}: {eras} count {max(ratios) / min(ratios):.3f}x apart, so "
                "logged figures are not comparable"
            )
        if len(divided) > 1:
            peaks = " vs ".join(f"{peak / 1e12:,g}" for peak in divided)
            found.append(
                f"peaks of {framework}: {peaks} TFLOP/s for the same GPU, so logged MFU is not "
                "comparable"
            )
    return found


def _logged_flops(row: MetricsRow) -> float:
    """Return FLOPs per token as printed, with the framework's factor."""
    return not_null(row["logged_flops_per_token"]) * not_null(row["logged_unit"])


MAX_COUNT_DIFFERENCE: Final = 1e-3
"""Largest relative difference of two counts of the same work to count as alike: a figure has 3 or 4
digits.
"""
