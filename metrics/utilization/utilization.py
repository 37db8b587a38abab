"""Throughput x FLOPs / peaks: MFU and HFU of one run, or the missing facts.

    MFU = ideal time per token / actual time per token
        = TGS x sum over operators of F_o / P(dtype_o)

The framework's own figures are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT

from ..formula import flops, vision
from ..formula.accelerators import Accelerator, explain_missing_peak
from ..formula.flops import Operator
from ..formula.precision import BELOW_16_BITS, DtypeOf
from ..formula.terms import Recompute
from . import messages
from .formula_inputs import (
    FormulaInputs,
    Hardware,
    UtilizationResult,
    attention_pattern,
    canonical_model_name,
    describe_trainable,
    find_hardware,
    formula_inputs,
    integer_fact,
    operator_dtypes,
    recompute_fact,
    run_attended_pairs,
    text_fact,
    work_key,
)
from .given_flops import GivenFlops, difference_from_formula, find_given_flops
from .image_work import ImageWork

MAX_UTILIZATION: Final = 1.0
"""Largest published utilization; a larger figure is shown as `implied`."""


def score_utilization(
    facts: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Any],
    overlay: Sequence[Accelerator] = (),
) -> UtilizationResult:
    """Return MFU, HFU and related figures of one run.

    facts: resolved facts by name; rates: a row of metrics.throughput.throughput.summarise; overlay:
    a user's accelerators
    """
    out = UtilizationResult()
    given = find_given_flops(facts, rates, out)
    run = formula_inputs(facts, rates, out if given is None else UtilizationResult())
    hardware = find_hardware(facts, overlay, out)
    if given is not None:
        out.values |= given.columns(text_fact(facts, "trainable"))
    if run is not None:
        out.values |= {
            "model": canonical_model_name(run.shape, run.tower),
            "params_total": run.params_total,
            "work": work_key(run),
            "attention_pattern": attention_pattern(run),
            "attended_pairs": run_attended_pairs(run),
            "trained": describe_trainable(run),
        }
    if given is not None:
        _set_given_flops(given, run, out)
    elif run is not None:
        _set_flops(run, out)
    if hardware is None or rates["tgs"] is None or (run is None and given is None):
        return out
    try:
        if given is not None:
            _given_utilisations(given, hardware, facts, rates["tgs"], out)
        elif run is not None:
            _utilisations(run, hardware, facts, rates["tgs"], out)
    except ValueError as error:
        out.missing.append("peak_flops")
        reason = explain_missing_peak(error, out.values["device"], overlay)
        out.warnings.append(messages.PEAK_MISSING(error=reason))
    return out


def _set_flops(run: FormulaInputs, result: UtilizationResult) -> None:
    """Fill FLOPs per token by the formula."""
    whole = (None, messages.DOCUMENT_LENGTHS_UNKNOWN)
    if run.are_images_known and run.lengths_unknown_reason in whole:
        full = flops.flops_per_token(run.operators("full"))
        result.values["flops_per_token_full_attention"] = full
    if run.is_work_known:
        result.values["flops_per_token"] = flops.flops_per_token(run.operators())
    if run.lengths_unknown_reason is not None:
        result.missing.append("attended_pairs")


def _set_given_flops(
    given: GivenFlops, run: FormulaInputs | None, result: UtilizationResult
) -> None:
    """Fill FLOPs per token as given, with their source.

    They are compared with the formula's.

    run: inputs of the formula, if known
    """
    result.values["flops_per_token"] = given.flops_per_token
    result.values["flops_source"] = given.source
    if given.full is not None:
        full = flops.flops_per_token(given.full)
        result.values["flops_per_token_full_attention"] = full
    result.warnings.append(messages.FLOPS_GIVEN(flops=given.flops_per_token, source=given.source))
    ratio = difference_from_formula(given, run)
    if run is not None and ratio is not None:
        other = messages.OTHER_FLOPS(
            fact=given.fact, given=given.flops_per_token, ratio=ratio, model=run.shape.name
        )
        result.warnings.append(other)


def _given_utilisations(
    given: GivenFlops,
    hardware: Hardware,
    facts: Mapping[str, Mapping[str, Any]],
    tgs: float,
    result: UtilizationResult,
) -> None:
    """Add MFU by given FLOPs to the result; without HFU.

    Raises ValueError where a precision has no peak.
    """

    def mfu(ops: tuple[Operator, ...], of: DtypeOf = hardware.dtype_of) -> float:
        return tgs * flops.ideal_seconds_per_token(ops, of, hardware.peaks)

    fastest, values = hardware.fastest_dtype, dict[str, float | None]()
    if fastest not in BELOW_16_BITS.values() or given.has_formats:
        values["mfu"] = mfu(given.exact)
        values["mfu_full_attention"] = None if given.full is None else mfu(given.full)
        result.values["peak_flops"] = given.flops_per_token * tgs / (values["mfu"] or 1.0)
    else:
        values["mfu"] = None
        result.missing.append("operators")
        precision = facts["precision"]["value"]
        result.warnings.append(messages.FORMATS_UNKNOWN(fact=given.fact, precision=precision))
    if fastest in BELOW_16_BITS.values():
        values["mfu_conservative"] = mfu(given.exact, lambda *_: fastest)
    if "bf16" in hardware.peaks:
        values["mfu_bf16"] = mfu(given.exact, lambda *_: "bf16")
        if given.full is not None:
            values["mfu_bf16_full_attention"] = mfu(given.full, lambda *_: "bf16")
    shown = _possible(values, facts, result)
    result.values |= {name: value for name, value in shown.items() if value is not None}


OPERATOR_SCHEMA: Final = pl.Schema(
    {
        "operator": TEXT,
        "layers": INT,
        "dtype": TEXT,
        "forward_flops_per_token": FLOAT,
        "flops_per_token": FLOAT,
        "flops_per_token_full_attention": FLOAT,
        "share": FLOAT,
        "estimate": pl.Boolean(),
    }
)


def operator_table(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any]
) -> pl.DataFrame:
    """Return the formula of one run, a row per operator; empty if an input is missing.

    Columns of OPERATOR_SCHEMA; `flops_per_token` is forward and backward under exact attention,
    `share` is relative to their sum.

    facts: resolved facts by name (rows of metrics.throughput.resolved_facts.resolve_facts)
    rates: a row of metrics.throughput.throughput.summarise or of metrics.pipeline.analysis
    """
    out = UtilizationResult()
    given = find_given_flops(facts, rates, out)
    run = formula_inputs(facts, rates, out)
    if given is not None:
        exact, full = given.exact, given.full or (None,) * len(given.exact)
    elif run is not None and run.are_images_known:
        exact, full = run.operators(), run.operators("full")
    else:
        return OPERATOR_SCHEMA.to_frame()
    dtypes = operator_dtypes(facts, out)
    below_16_bits = dtypes is not None and dtypes[1] in BELOW_16_BITS.values()
    if given is not None and below_16_bits and not given.has_formats:
        dtypes = None
    total = flops.flops_per_token(exact)
    rows = [
        {
            "operator": op.name,
            "layers": op.layers,
            "dtype": dtypes[0](op, "forward") if dtypes else None,
            "forward_flops_per_token": op.forward,
            "flops_per_token": op.training,
            "flops_per_token_full_attention": None if whole is None else whole.training,
            "share": op.training / total if total else None,
            "estimate": op.estimate,
        }
        for op, whole in zip(exact, full, strict=True)
    ]
    return pl.DataFrame(rows, schema=OPERATOR_SCHEMA)


def _utilisations(
    run: FormulaInputs,
    hardware: Hardware,
    facts: Mapping[str, Mapping[str, Any]],
    tgs: float,
    result: UtilizationResult,
) -> None:
    """Add MFU under each convention and HFU to the result.

    Raises ValueError where a precision has no peak.
    """
    every = _under_each_convention(run, hardware, facts, tgs)
    result.values["peak_flops"] = (
        flops.flops_per_token(run.operators()) * tgs / (every["mfu"] or 1.0)
    )
    values: dict[str, float | None] = {**every}
    if run.lengths_unknown_reason is not None:
        bounds = _mfu_bounds(run, hardware, tgs, most=every["mfu"])
        result.warnings.append(run.lengths_unknown_reason(bounds=bounds))
        whole = ("mfu_full_attention", "mfu_bf16_full_attention")
        known = whole if run.lengths_unknown_reason == messages.DOCUMENT_LENGTHS_UNKNOWN else ()
        values = {"mfu": None, **{name: every.get(name) for name in known}}
    elif run.images is not None:
        values = _with_images(run, run.images, values, _MfuOf(hardware, tgs), result)
    shown = _possible(values, facts, result)
    result.values |= {name: value for name, value in shown.items() if value is not None}


class _MfuOf(NamedTuple):
    """MFU of any operators at the speed of a run."""

    hardware: Hardware
    tgs: float

    def __call__(self, *operators: Operator) -> float:
        """Return the MFU. Raises ValueError where a precision has no peak."""
        peaks, dtype_of = self.hardware.peaks, self.hardware.dtype_of
        return self.tgs * flops.ideal_seconds_per_token(operators, dtype_of, peaks)


def _with_images(
    run: FormulaInputs,
    images: ImageWork,
    values: dict[str, float | None],
    mfu: _MfuOf,
    result: UtilizationResult,
) -> dict[str, float | None]:
    """Return the figures of a run with a vision tower, and warn of doubts.

    `mfu`, HFU and their conventions count the tower, or are null; the figures of the language
    model never count it.
    """
    language = run.language_operators()
    alone: dict[str, float | None] = {"mfu_language_model": mfu(*language)}
    alone |= {name: values[name] for name in HFU_BOUNDS_OF_LANGUAGE if name in values}
    if images.contradiction is not None:
        return {"mfu": None, **alone}
    shown = [
        f"{mfu(*images.operators_of(counts), *language):.1%}"
        for counts in (images.least, images.most)
        if counts is not None
    ]
    if images.unknown_reason is not None:
        result.warnings.append(images.unknown_reason(bounds=" to ".join(shown)))
        return {"mfu": None, **alone}
    if images.least_of_videos is not None:
        least = mfu(*images.operators_of(images.least_of_videos), *language)
        if (values["mfu"] or 0.0) > least * (1 + MAX_VIDEO_DOUBT):
            result.warnings.append(messages.VIDEOS_POSSIBLE(least=least))
    return values | alone


MAX_VIDEO_DOUBT: Final = 0.01
"""Largest relative difference of MFU, between stills and videos, that needs no doubt."""


def _under_each_convention(
    run: FormulaInputs, hardware: Hardware, facts: Mapping[str, Mapping[str, Any]], tgs: float
) -> dict[str, float]:
    """Return MFU under each applicable attention and peak convention, and HFU.

    `mfu` is always included. Raises ValueError where a precision has no peak.
    """
    exact, full = run.operators(), run.operators("full")

    def mfu(ops: tuple[Operator, ...], of: DtypeOf = hardware.dtype_of) -> float:
        return tgs * flops.ideal_seconds_per_token(ops, of, hardware.peaks)

    values = {"mfu": mfu(exact), "mfu_full_attention": mfu(full)}
    if hardware.fastest_dtype in ("fp8", "fp4"):
        values["mfu_conservative"] = mfu(exact, lambda *_: hardware.fastest_dtype)
    if "bf16" in hardware.peaks:
        values["mfu_bf16"] = mfu(exact, lambda *_: "bf16")
        values["mfu_bf16_full_attention"] = mfu(full, lambda *_: "bf16")
    recompute = recompute_fact(facts)
    if recompute is not None and flops.hfu_unknown_reason(recompute, run.shape) is None:
        values |= _hfu(run, recompute, mfu)
    return values


def _hfu(
    run: FormulaInputs, recompute: Recompute, mfu: Callable[[tuple[Operator, ...]], float]
) -> dict[str, float]:
    """Return the bounds of HFU, with and without the vision tower, if there is one."""
    language = flops.hardware_operators(
        run.shape, run.seq_len, recompute, trainable=run.trainable, attended=run.attended_pairs
    )
    if run.images is None:
        return {name: mfu(ops) for name, ops in zip(HFU_BOUNDS, language, strict=True)}
    tower = vision.with_recomputation(run.images.operators(), recompute)
    alone = zip(HFU_BOUNDS_OF_LANGUAGE, language, strict=True)
    whole = zip(HFU_BOUNDS, language, tower, strict=True)
    return {name: mfu(ops) for name, ops in alone} | {
        name: mfu((*seen, *ops)) for name, ops, seen in whole
    }


HFU_BOUNDS: Final = ("hfu_low", "hfu_high")
HFU_BOUNDS_OF_LANGUAGE: Final = ("hfu_language_model_low", "hfu_language_model_high")


def _mfu_bounds(run: FormulaInputs, hardware: Hardware, tgs: float, *, most: float) -> str:
    """Describe the bounds of MFU where the lengths of documents are not known.

    most: MFU with the upper bound of the pairs
    """
    if run.min_attended_pairs is None:
        return f"at most {most:.1%}"
    fewest = replace(run, attended_pairs=run.min_attended_pairs).operators()
    least = tgs * flops.ideal_seconds_per_token(fewest, hardware.dtype_of, hardware.peaks)
    padded = run.lengths_unknown_reason == messages.PADDED_LENGTHS_UNKNOWN
    return f"{least:.1%}{' (all as long as the mean)' if padded else ''} to {most:.1%}"


def _possible(
    values: dict[str, float | None],
    facts: Mapping[str, Mapping[str, Any]],
    result: UtilizationResult,
) -> dict[str, float | None]:
    """Return the figures to publish; above 100 %, only MFU as `implied`.

    A warning gives the likely cause.
    """
    mfu = values["mfu"]
    if mfu is None or mfu <= MAX_UTILIZATION:
        above = _above(values, result)
        if mfu is not None and mfu > PLAUSIBLE_MFU_RANGE[1]:
            result.warnings.append(messages.MFU_IMPLAUSIBLE(mfu=mfu))
        return {name: value for name, value in values.items() if name not in above}
    likely = [why for why, factor in _unit_errors(facts) if _plausible(mfu / factor)]
    causes = f"likely {' or '.join(likely)}" if likely else "no usual unit error explains it"
    result.warnings.append(messages.MFU_IMPOSSIBLE(mfu=mfu, causes=causes))
    return {"implied": mfu}


def _above(values: Mapping[str, float | None], result: UtilizationResult) -> list[str]:
    """Return the figures above 100 % of a run with a possible MFU, and warn of causes."""
    bf16 = ("mfu_bf16", "mfu_bf16_full_attention")
    shares = {name: values.get(name) or 0.0 for name in ("mfu_full_attention", *bf16)}
    above = {name: share for name, share in shares.items() if share > MAX_UTILIZATION}
    if "mfu_full_attention" in above:
        full = above["mfu_full_attention"]
        result.warnings.append(messages.FULL_ATTENTION_HIDDEN(mfu=full))
    if "mfu_bf16" in above or list(above) == ["mfu_bf16_full_attention"]:
        convention = "BF16 peak" if "mfu_bf16" in above else "full attention, BF16 peak"
        highest = next(above[name] for name in bf16 if name in above)
        result.warnings.append(messages.BF16_HIDDEN(convention=convention, mfu=highest))
    return list(above)


PLAUSIBLE_MFU_RANGE: Final = (0.02, 0.8)
"""MFU of real training runs.

A single matmul at its best shape reaches 80 % of the dense peak of an H100, and 87 % of that of an
A100 (table of achievable matmul FLOPS in stas00/ml-engineering, compute/accelerator/README.md).
Training adds attention, optimizer and communication: dense runs publish 40 to 60 %.
"""


def _plausible(mfu: float) -> bool:
    return PLAUSIBLE_MFU_RANGE[0] <= mfu <= PLAUSIBLE_MFU_RANGE[1]


def _unit_errors(facts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Return the usual factors that make a rate too high, with a description."""
    known = (
        ("a rate of all GPUs read as that of one (x world size)", integer_fact(facts, "gpus")),
        ("accumulation counted twice", integer_fact(facts, "gradient_accumulation")),
        ("sequence-parallel ranks counted apart", integer_fact(facts, "context_parallel")),
        ("model-parallel ranks counted apart", integer_fact(facts, "tensor_parallel")),
        ("milliseconds read as seconds (x 1000)", 1000),
        ("activation checkpointing counted (x 4/3)", 4 / 3),
        ("half of the GPU's peak (x 2)", 2),
    )
    return [(why, float(factor)) for why, factor in known if factor is not None and factor > 1]
