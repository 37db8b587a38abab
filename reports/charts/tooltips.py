"""Figure card: the tooltip of every mark of a run, under each convention.

    attention   exact: pairs as masked; full: every token attends to the whole sequence
    peak        own: each operator at the peak of its own precision; bf16: all at the BF16 peak

A spec selects the convention by its params `attention` and `peak`, from the four figures of a card.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import altair as alt

from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.core.run_table import MetricsRow
from fairmfu.metrics.core.run_words import EVIDENCE_LABELS

from ..text.run_narrative import TOKEN_BASES, confidence_text
from .figure import Spec, chart_number

BF16_LIKE: Final = ("bf16", "fp16")
"""Precisions whose own peak is the BF16 peak."""

CONVENTIONS: Final = ("exact_own", "full_own", "exact_bf16", "full_bf16")
"""Attention and peak of an MFU; the page shows the first until the reader chooses another."""

Card = dict[str, Any]
"""Fields of a run in charts and tables, by name: see `run_cards`."""


def run_cards(rows: Iterable[ComparisonRow]) -> list[Card]:
    """Return cards of rows of reports.text.verdict.join_comparison, in their order.

    Unknown figures are null.

    `mfu_*` by `CONVENTIONS` (fractions), tflops_exact and tflops_full [TFLOP/s per GPU], tgs
    [tokens/s/GPU] with its 95 % interval, peak_own and peak_bf16 [dense TFLOP/s], the logged
    figures, fields to group and filter by, and the basis of each figure in words.
    """
    return [_card(row) for row in rows]


def chart_cards(rows: Iterable[ComparisonRow]) -> list[Card]:
    """Return cards with rounded numbers, for a spec."""
    return [{name: chart_number(value) for name, value in card.items()} for card in run_cards(rows)]


def accelerator_name(row: MetricsRow) -> str | None:
    """Return the accelerator's full name if known; runs are filtered by this name."""
    return row["device"] or row["accelerator"]


def _card(row: ComparisonRow) -> Card:
    mfu = _mfu(row)
    return {
        "run_id": row["run_id"],
        "run": f"{row['label']} (synthetic)" if row["synthetic"] else row["label"],
        "framework": row["framework"],
        "model": row["model"],
        "gpus": row["gpus"],
        "seq_len": row["seq_len"],
        "accelerator": accelerator_name(row),
        "precision": row["precision"],
        "recompute": row["recompute"],
        "tgs": row["tgs"],
        "tgs_low": row["tgs_low"],
        "tgs_high": row["tgs_high"],
        "interval": _interval(row),
        **{f"mfu_{name}": value for name, value in mfu.items()},
        "tflops_exact": _tflops(row, row["flops_per_token"]),
        "tflops_full": _tflops(row, row["flops_per_token_full_attention"]),
        "logged_tgs": row["logged_tgs"],
        "logged_tflops": row["logged_tflops"],
        "logged_mfu": row["logged_mfu"],
        "peak_own": _peak(row),
        "peak_bf16": _bf16_peak(row, mfu),
        "peak_source": row.get("peak_source"),
        "flops_source": row.get("flops_source"),
        "basis": _basis(row),
        "windows": confidence_text(row),
        "formula": row["formula"],
    }


def _mfu(row: MetricsRow) -> dict[str, float | None]:
    """Return the MFU of a run by each of CONVENTIONS."""
    own = {"exact": row["mfu"], "full": row["mfu_full_attention"]}
    bf16 = {"exact": row["mfu_bf16"], "full": row.get("mfu_bf16_full_attention")}
    if row["precision"] in BF16_LIKE:
        bf16 = {name: own[name] if value is None else value for name, value in bf16.items()}
    return {f"{name}_own": own[name] for name in own} | {f"{n}_bf16": bf16[n] for n in bf16}


def _tflops(row: MetricsRow, flops_per_token: float | None) -> float | None:
    if row["tgs"] is None or flops_per_token is None:
        return None
    return row["tgs"] * flops_per_token / 1e12


def _peak(row: MetricsRow) -> float | None:
    """Return the peak of the run's precisions, weighted by their work [TFLOP/s]."""
    return None if row["peak_flops"] is None else float(row["peak_flops"]) / 1e12


def _bf16_peak(row: MetricsRow, mfu: dict[str, float | None]) -> float | None:
    own, by_own, by_bf16 = _peak(row), mfu["exact_own"], mfu["exact_bf16"]
    return own * by_own / by_bf16 if own and by_own and by_bf16 else None


def _interval(row: MetricsRow) -> str | None:
    """Return the 95 % interval of TGS as text; None without an interval."""
    low, high = row["tgs_low"], row["tgs_high"]
    return None if low is None or high is None else f"{low:,.0f}\N{EN DASH}{high:,.0f}"


def _basis(row: MetricsRow) -> str | None:
    if row["token_basis"] is None or row["time_basis"] is None:
        return None
    return f"{TOKEN_BASES[row['token_basis']]}, timed by {EVIDENCE_LABELS[row['time_basis']]}"


# --- in a spec ----------------------------------------------------------------------------

TGS: Final = "TGS [tokens/s/GPU]"
BY_PARAMS: Final = "datum['mfu_' + attention + '_' + peak]"
PEAK_EXPRESSION: Final = "(peak == 'own' ? 'peak in the precision of each operator' : 'BF16 peak')"
"""Peak in words, as a Vega expression."""
CONVENTION_EXPRESSION: Final = f"attention + ' attention, ' + {PEAK_EXPRESSION}"
"""Convention in words, as a Vega expression."""
FILTER_EXPRESSION: Final = (
    "(framework == '' || datum.framework == framework) && "
    "(model == '' || datum.model == model) && "
    "(accelerator == '' || datum.accelerator == accelerator)"
)
"""Vega expression: whether the filters include a run."""
STATISTIC: Final = "'total tokens / total time of the steady windows'"


def _row(title: str, field: str, form: str = "") -> str:
    """Return a row of a tooltip as a Vega expression; no row for an unknown value."""
    shown = f"format(datum.{field}, '{form}')" if form else f"datum.{field}"
    return f"isValid(datum.{field}) && {{'{title}': {shown}}}"


_CARD: Final = (
    _row("framework", "framework"),
    _row(TGS, "tgs", ",.1f"),
    _row("95 % interval", "interval"),
    _row("confidence", "windows"),
    _row("MFU", "mfu", ".1%"),
    _row("TFLOP/s per GPU", "tflops", ",.1f"),
    _row("convention", "convention"),
    _row("formula", "formula"),
    _row("dense peak [TFLOP/s]", "peak_tflops", ",.1f"),
    _row("peak source", "peak_source"),
    _row("basis", "basis"),
    _row("statistic", "statistic"),
)

TRANSFORM: Final[tuple[Spec, ...]] = (
    {"filter": FILTER_EXPRESSION},
    {"calculate": BY_PARAMS, "as": "mfu"},
    {"calculate": "datum['tflops_' + attention]", "as": "tflops"},
    {"calculate": "datum['peak_' + peak]", "as": "peak_tflops"},
    {"calculate": CONVENTION_EXPRESSION, "as": "convention"},
    {"calculate": STATISTIC, "as": "statistic"},
    {"calculate": f"merge({', '.join(_CARD)})", "as": "card"},
)
"""Filter runs and add `mfu`, `tflops` and `peak_tflops` of the convention.

`card` is the tooltip, written once for all marks: a list of its fields in the encoding would be
compiled into each mark twice, and would be most of a chart with many layers.
"""


def card_tooltip(*leading_rows: tuple[str, str, str]) -> Any:  # noqa: ANN401 - Altair's value has no public type
    """Return the card as a tooltip, after the mark's own rows.

    leading_rows: title, field, format
    """
    rows = (_row("run", "run"), *(_row(*one) for one in leading_rows), "datum.card")
    return alt.value(alt.ExprRef(f"merge({', '.join(rows)})"))
