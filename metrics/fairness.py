"""Which runs may stand side by side, and what differs between those that do.

Runs are like for like when they do the same work per token on the same device: model, sequence
length, what is trained, number format, accelerator, and how their tokens are counted. Everything
else (GPUs, recompute, batch, framework) is what one compares, and is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, hypot, log
from typing import Any, Final

import polars as pl

from ingest.schema import BOOL, FLOAT, INT, TEXT, TEXTS
from metrics.inputs import SETUP

SAME_WORK: Final = (
    "work",
    "seq_len",
    "trainable",
    "precision",
    "device",
    "token_group",
    "synthetic",
)
"""Runs with one of these missing, or different, are never ranked against each other. `work` stands
for the model and what of it is trained: one framework's name for it need not be another's."""

ALIKE: Final = 0.01
"""FLOPs per token of one group differ by less: vocabularies, lengths of packed documents."""

MAY_DIFFER: Final = (
    *SETUP,
    "recompute",
    "compile",
    "flops_per_token",
    "framework",
    "framework_version",
    "time_basis",
)

LABELS: Final = {
    "seq_len": "sequence length",
    "token_group": "token basis",
    "flops_per_token": "FLOPs per token",
    "work": "model",
    "device": "accelerator",
    "framework_version": "version",
    "gpus": "GPUs",
    "global_batch_size": "global batch",
    "micro_batch_size": "micro batch",
    "gradient_accumulation": "accumulation",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "context_parallel": "context parallel",
    "expert_parallel": "expert parallel",
    "zero_stage": "ZeRO stage",
    "time_basis": "time evidence",
}

COMPARISON: Final = pl.Schema(
    {
        "group": TEXT,
        "rank": INT,
        "run_id": TEXT,
        "name": TEXT,
        "framework": TEXT,
        "tgs": FLOAT,
        "tgs_low": FLOAT,
        "tgs_high": FLOAT,
        "relative_tgs": FLOAT,
        "tied_with_best": BOOL,
        "mfu": FLOAT,
        "mfu_full_attention": FLOAT,
        "logged_tgs": FLOAT,
        "logged_tflops": FLOAT,
        "logged_mfu": FLOAT,
        "tflops": FLOAT,
        "differs": TEXTS,
        "not_ranked": TEXTS,
        "synthetic": BOOL,
    }
)


def compare(metrics: pl.DataFrame) -> pl.DataFrame:
    """Groups of like-for-like runs, best TGS first; runs that can't be ranked come last.

    metrics: as `metrics.utilization.run_metrics`. Columns of COMPARISON: `relative_tgs` is TGS over
    the group's best; `tied_with_best` where the 95 % intervals overlap; `differs` names what is
    not the same within the group; `not_ranked` says why a run has no rank. `tflops` is ours: TGS x
    FLOPs per token, per GPU.
    """
    keyed = metrics.with_columns(
        token_group=pl.col("token_basis").replace({"non_padding": "packed"}),
        tflops=pl.col("tgs") * pl.col("flops_per_token") / 1e12,
    )
    rows = [row | {"not_ranked": _obstacles(row)} for row in keyed.iter_rows(named=True)]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["flops_per_token"] or 0.0):
        key = () if row["not_ranked"] else tuple(row[name] for name in SAME_WORK)
        while key in groups and key and not _near(row, groups[key][0]):
            key = (*key, row["flops_per_token"])
        groups.setdefault(key, []).append(row)
    apart = sorted(groups.pop((), []), key=lambda row: str(row["name"]))
    labels = Counter(_label(group[0]) for group in groups.values())
    ranked = [_ranked(group, twice=labels[_label(group[0])] > 1) for group in groups.values()]
    ranked.sort(key=lambda group: str(group[0]["group"]))
    out = [row for group in ranked for row in group]
    out += [row | {"group": None, "differs": []} for row in apart]
    return pl.DataFrame([{n: row.get(n) for n in COMPARISON} for row in out], schema=COMPARISON)


def ratio_interval(best: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float] | None:
    """95 % interval of best's TGS over other's, from the two runs' own intervals.

    The two are independent, so distances to the bounds add in quadrature on the log scale (MOVER;
    Zou and Donner 2008). None where either run has no interval.
    """
    bounds = [run[f"tgs_{end}"] for run in (best, other) for end in ("low", "high")]
    if not all(bounds):
        return None
    best_low, best_high, other_low, other_high = (log(bound) for bound in bounds)
    above, below = log(best["tgs"]), log(other["tgs"])
    down = hypot(above - best_low, other_high - below)
    up = hypot(best_high - above, below - other_low)
    return exp(above - below - down), exp(above - below + up)


def _obstacles(row: dict[str, Any]) -> list[str]:
    """Why a run can't stand in any ranking."""
    reasons = []
    if row["tgs"] is None:
        missing = [] if row.get("steps") == 0 else row["missing"]
        needs = ", ".join(missing) or "; ".join(row["warnings"][:1])
        return [f"no TGS: {needs}"]
    unknown = [LABELS.get(name, name) for name in SAME_WORK if row[name] is None]
    if unknown:
        reasons.append(f"unknown: {', '.join(unknown)}")
    elif row["flops_per_token"] is None:
        reasons.append(f"unknown FLOPs per token: {', '.join(row['missing'])}")
    reasons += [warning for warning in row["warnings"] if warning.endswith("not ranked")]
    if row["implied"] is not None:
        reasons.append(f"impossible: MFU would be {row['implied']:.0%}")
    return reasons


def _near(row: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    return bool(row["flops_per_token"] <= first["flops_per_token"] * (1 + ALIKE))


def _label(row: dict[str, Any]) -> str:
    trained = "" if row["trainable"] == "full" else f", {row['trainable']}"
    return (
        f"{row['model']}, {row['seq_len']:,} tokens, {row['precision']}{trained}, "
        f"{row['device']}, {row['token_group']} tokens"
    )


def _ranked(group: list[dict[str, Any]], *, twice: bool) -> list[dict[str, Any]]:
    """`twice`: another group has the same label, so what tells them apart is added."""
    order = sorted(group, key=lambda row: -row["tgs"])
    best, label = order[0], _label(order[0])
    if twice:
        label += f", {best['flops_per_token']:.5g} FLOPs/token, model {best['work'][:6]}"
        label += ", synthetic" if best["synthetic"] else ""
    differs = _differences(group)
    return [
        row
        | {
            "group": label,
            "rank": place,
            "relative_tgs": row["tgs"] / best["tgs"],
            "tied_with_best": _tied(row, best),
            "differs": differs,
        }
        for place, row in enumerate(order, start=1)
    ]


def _tied(row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether the intervals overlap; without an interval only equal figures tie."""
    high = row["tgs"] if row["tgs_high"] is None else row["tgs_high"]
    low = best["tgs"] if best["tgs_low"] is None else best["tgs_low"]
    return bool(high >= low)


def varying(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of MAY_DIFFER that are known to differ within a group."""
    return [name for name in MAY_DIFFER if len(_known(name, group)) > 1]


def _known(name: str, group: Sequence[Mapping[str, Any]]) -> set[str]:
    return {written(row[name]) for row in group if row[name] is not None}


def written(value: object) -> str:
    """A value of MAY_DIFFER as text."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _differences(group: list[dict[str, Any]]) -> list[str]:
    """What is known to differ within a group; then what only some of its runs say."""
    differs = [
        f"{LABELS.get(name, name)}: {' / '.join(sorted(_known(name, group)))}"
        for name in varying(group)
    ]
    partly = [
        LABELS.get(name, name)
        for name in MAY_DIFFER
        if len(_known(name, group)) == 1 and any(row[name] is None for row in group)
    ]
    if partly:
        differs.append(f"{SAID_BY_SOME}{', '.join(partly)}")
    return differs + _own_formulas(group)


def _own_formulas(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Frameworks whose runs print the same work on the same device differently.

    Of runs whose print is reproduced, so that their formula and peak are known.
    """
    found = []
    for framework in sorted({str(row["framework"]) for row in group}):
        mine = [r for r in group if r["framework"] == framework and r["logged_reproduced"]]
        counted = [r for r in mine if r["logged_flops_per_token"] and r["logged_tflops"]]
        ratios = [_theirs(row) / row["flops_per_token"] for row in counted]
        divided = sorted({row["logged_peak"] for row in mine if row["logged_mfu"]})
        if ratios and max(ratios) > min(ratios) * (1 + ONE_COUNT):
            eras = " / ".join(sorted({str(row["logged_formula"]) for row in counted}))
            found.append(
                f"own formula of {framework}: {eras}, which count {max(ratios) / min(ratios):.3f}x "
                "apart: their logged figures do not compare"
            )
        if len(divided) > 1:
            peaks = " / ".join(f"{peak / 1e12:,g}" for peak in divided)
            found.append(
                f"peak of {framework}: {peaks} TFLOP/s for one device: their logged MFU do not "
                "compare"
            )
    return found


def _theirs(row: Mapping[str, Any]) -> float:
    """FLOPs per token as printed, with whatever the print is multiplied by."""
    return float(row["logged_flops_per_token"] * row["logged_unit"])


ONE_COUNT: Final = 1e-4
"""Two logs of one framework count the same work alike within this."""


SAID_BY_SOME: Final = "said by some only: "
