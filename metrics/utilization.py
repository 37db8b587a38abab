"""Throughput x FLOPs / peaks: MFU and HFU of each run, or the name of what is missing.

    MFU = ideal time per token / actual time per token
        = TGS x sum over operators of F_o / P(dtype_o)

What a framework says of itself never enters. Frames in, frames out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, cast

import polars as pl

from ingest.schema import BOOL, FLOAT, INT, TEXT, TEXTS
from metrics import accelerators, flops, inputs, throughput, vision
from metrics.accelerators import Accelerator
from metrics.flops import FORMULA, Dtype, Operator, Recompute, Trainable
from metrics.model_shapes import (
    ModelShape,
    ShapeError,
    from_hugging_face,
    from_megatron,
    from_torchtitan,
    known,
    known_models,
    with_params_total,
)
from metrics.others import against_others
from metrics.precision import DtypeOf, number_formats

IMPOSSIBLE: Final = 1.0
"""A utilisation above this is shown as `implied`, never published."""

INTEGERS: Final = (
    "gpus",
    "seq_len",
    "global_batch_size",
    "micro_batch_size",
    "gradient_accumulation",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "zero_stage",
)
ASSUMED: Final = ("precision", "trainable", "packed", "document_mask", "gpus")
"""Facts that may follow from the framework or the numbers instead of being said; then marked."""

SHAPE_FACTS: Final = ("model_config", "megatron_arguments", "torchtitan_arguments", "model")


@dataclass(slots=True)
class Score:
    """What is known of one run's utilisation; figures are fractions, FLOPs are per token."""

    values: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The formula's inputs of one run, all known."""

    shape: ModelShape
    seq_len: int
    trainable: Trainable
    attended: float | None
    documents_known: bool

    def operators(self, convention: flops.Convention = "exact") -> tuple[Operator, ...]:
        """The run's operators under one attention convention."""
        return flops.operators(
            self.shape,
            self.seq_len,
            attention=convention,
            trainable=self.trainable,
            attended=self.attended,
        )


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that is computed of a store.

    metrics: one row per run, columns of METRICS; windows: metrics.throughput.windows; held:
    metrics.inputs.holding.
    """

    metrics: pl.DataFrame
    windows: pl.DataFrame
    held: pl.DataFrame

    def facts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The held facts of one run, by name."""
        mine = self.held.filter(pl.col("run_id") == run_id)
        return {fact["name"]: fact for fact in mine.iter_rows(named=True)}

    def operators(self, run_id: str) -> pl.DataFrame:
        """The formula of one run, a row per operator: `operator_table`."""
        row = self.metrics.row(by_predicate=pl.col("run_id") == run_id, named=True)
        return operator_table(self.facts(run_id), row)

    def others(self) -> dict[str, pl.DataFrame]:
        """What other tools' formulas make of each model and length: label to a table.

        Columns of metrics.others.Comparison, for full training; recomputation is work where a tool
        counts it and the model's first run recomputes. A formula that lacks an input is null.
        """
        found: dict[str, pl.DataFrame] = {}
        ranked = self.metrics.filter(pl.col("flops_per_token").is_not_null())
        for row in ranked.iter_rows(named=True):
            label = f"{row['model']}, {row['seq_len']:,} tokens"
            run = formula_inputs(self.facts(row["run_id"]), row, Score())
            if run is None or label in found:
                continue
            again: Literal["none", "full"] = "full" if row["recompute"] == "full" else "none"
            rows = against_others(run.shape, run.seq_len, recompute=again)
            found[label] = pl.DataFrame([asdict(other) for other in rows], schema=OTHERS)
        return found


OTHERS: Final = pl.Schema(
    {"name": TEXT, "flops_per_token": FLOAT, "ratio_to_ours": FLOAT, "why": TEXT}
)


def analyse(tables: Mapping[str, pl.DataFrame], overlay: Sequence[Accelerator] = ()) -> Analysis:
    """Everything of the tables `runs`, `facts`, `steps`, `events` and `sources` of ingest.schema.

    overlay: a user's accelerators, which go before the table's. Rates are tokens per second (per
    GPU for tgs), utilisations fractions, FLOPs per token. Runs are sorted by name.
    """
    held = inputs.holding(tables["facts"])
    facts = inputs.typed(held)
    runs = tables["runs"]
    windows = throughput.windows(tables["steps"], runs, facts, tables["events"])
    rates = throughput.summarise(windows, runs, facts)
    of_run = rates.rows_by_key("run_id", named=True, unique=True, include_key=True)
    differ = inputs.disagreements(tables["facts"]).rows_by_key("run_id", named=True)
    about = held.rows_by_key("run_id", named=True, include_key=True)
    sources = tables["sources"].rows_by_key("sha256", named=True, unique=True, include_key=True)
    rows = []
    for run in runs.iter_rows(named=True):
        run_id = run["run_id"]
        known_facts = {row["name"]: row for row in about.get(run_id, [])}
        warnings = [row["warning"] for row in differ.get(run_id, [])]
        scored = score(known_facts, of_run[run_id], overlay)
        rows.append(
            _row(run, of_run[run_id], known_facts, scored, warnings, sources[run["sha256"]])
        )
    metrics = pl.DataFrame(rows, schema=METRICS, strict=False).sort("name", "run_id")
    return Analysis(metrics, windows, held)


def run_metrics(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per run: what `fairmfu runs` shows."""
    return analyse(tables).metrics


METRICS: Final = pl.Schema(
    {
        "run_id": TEXT,
        "name": TEXT,
        "framework": TEXT,
        "log_format": TEXT,
        "framework_version": TEXT,
        "synthetic": BOOL,
        "model": TEXT,
        "accelerator": TEXT,
        "device": TEXT,
        "gpus": INT,
        "seq_len": INT,
        "global_batch_size": INT,
        "micro_batch_size": INT,
        "gradient_accumulation": INT,
        "tensor_parallel": INT,
        "pipeline_parallel": INT,
        "context_parallel": INT,
        "expert_parallel": INT,
        "zero_stage": INT,
        "compile": TEXT,
        "quantization": TEXT,
        "inferred": TEXTS,
        "precision": TEXT,
        "recompute": TEXT,
        "trainable": TEXT,
        "steps": INT,
        "tokens_per_second": FLOAT,
        "tgs": FLOAT,
        "tgs_low": FLOAT,
        "tgs_high": FLOAT,
        "tgs_slots": FLOAT,
        "tgs_end_to_end": FLOAT,
        "mfu": FLOAT,
        "mfu_full_attention": FLOAT,
        "mfu_conservative": FLOAT,
        "mfu_bf16": FLOAT,
        "hfu_low": FLOAT,
        "hfu_high": FLOAT,
        "implied": FLOAT,
        "params_total": INT,
        "work": TEXT,
        "flops_per_token": FLOAT,
        "flops_per_token_full_attention": FLOAT,
        "peak_flops": FLOAT,
        "token_basis": TEXT,
        "time_basis": TEXT,
        "end_to_end_basis": TEXT,
        "excluded_share": FLOAT,
        "excluded_causes": TEXTS,
        "windows": INT,
        "evidence_gap": FLOAT,
        "tokens_per_gpu_step": FLOAT,
        "attention_ratio": FLOAT,
        "formula": TEXT,
        "logged_tgs": FLOAT,
        "logged_tflops": FLOAT,
        "logged_mfu": FLOAT,
        "logged_reproduced": BOOL,
        "proven": TEXTS,
        "missing": TEXTS,
        "warnings": TEXTS,
        "sources": TEXTS,
    }
)


def _row(  # noqa: PLR0913, PLR0917 - one row from its parts
    run: dict[str, Any],
    rates: dict[str, Any],
    facts: dict[str, dict[str, Any]],
    scored: Score,
    differ: list[str],
    source: dict[str, Any],
) -> dict[str, Any]:
    warnings = [*rates["throughput_warnings"], *scored.warnings, *differ]
    if source["unread_lines"]:
        warnings.append(
            f"lines that look like steps and could not be read: {source['unread_lines']}"
        )
    plain = (
        "framework_version",
        "accelerator",
        "precision",
        "recompute",
        "trainable",
        "quantization",
        "compile",
    )
    values: dict[str, Any] = {name: _value(facts, name) for name in plain}
    values |= {name: _integer(facts, name) for name in INTEGERS}
    values["inferred"] = sorted(
        name for name in ASSUMED if name in facts and _is_inferred(facts[name])
    )
    if "precision" in scored.missing:
        values["precision"] = None  # what the log says contradicts what follows from the framework
    values |= {name: rates[name] for name in throughput.SUMMARY if name in METRICS}
    values |= {
        name: run[name] for name in ("run_id", "name", "framework", "log_format", "synthetic")
    }
    missing = list(dict.fromkeys([*rates["throughput_missing"], *scored.missing]))
    return (
        values
        | {
            "model": _value(facts, "model"),
            "formula": FORMULA,
            "logged_reproduced": None,
            "proven": [],
            "missing": missing,
            "warnings": warnings,
            "sources": [source["path"]],
        }
        | {name: value for name, value in scored.values.items() if value is not None}
    )


def score(
    facts: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Any],
    overlay: Sequence[Accelerator] = (),
) -> Score:
    """MFU and its kin of one run from its held facts (by name) and its rates."""
    out = Score()
    run = formula_inputs(facts, rates, out)
    hardware = _hardware(facts, overlay, out)
    if run is None:
        return out
    exact, full = run.operators(), run.operators("full")
    out.values |= {
        "model": canonical_name(run.shape),
        "params_total": run.shape.params_total,
        "work": _work(run),
        "flops_per_token_full_attention": flops.flops_per_token(full),
    }
    if run.documents_known:
        out.values["flops_per_token"] = flops.flops_per_token(exact)
    if hardware is None or rates["tgs"] is None:
        return out
    try:
        _utilisations(run, hardware, facts, rates["tgs"], out)
    except ValueError as error:
        out.missing.append("peak_flops")
        out.warnings.append(str(error))
    return out


OPERATORS: Final = pl.Schema(
    {
        "operator": TEXT,
        "layers": INT,
        "dtype": TEXT,
        "forward_flops_per_token": FLOAT,
        "flops_per_token": FLOAT,
        "flops_per_token_full_attention": FLOAT,
        "share": FLOAT,
    }
)


def operator_table(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any]
) -> pl.DataFrame:
    """The formula of one run, a row per operator; empty where an input is missing.

    facts: held facts by name (rows of metrics.inputs.holding); rates: a row of
    metrics.throughput.summarise or of `run_metrics`. Columns of OPERATORS; `flops_per_token` is
    forward and backward under exact attention, `share` is of their sum.
    """
    out = Score()
    run = formula_inputs(facts, rates, out)
    if run is None:
        return OPERATORS.to_frame()
    dtypes = _dtypes(facts, out)
    exact, full = run.operators(), run.operators("full")
    total = flops.flops_per_token(exact)
    rows = [
        {
            "operator": op.name,
            "layers": op.layers,
            "dtype": dtypes[0](op, "forward") if dtypes else None,
            "forward_flops_per_token": op.forward,
            "flops_per_token": op.training,
            "flops_per_token_full_attention": whole.training,
            "share": op.training / total,
        }
        for op, whole in zip(exact, full, strict=True)
    ]
    return pl.DataFrame(rows, schema=OPERATORS)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The number format of each operator, the fastest of them, and the device's dense peaks."""

    dtype_of: DtypeOf
    fastest: Dtype
    peaks: Mapping[Dtype, float]


def _hardware(
    facts: Mapping[str, Mapping[str, Any]], overlay: Sequence[Accelerator], out: Score
) -> Hardware | None:
    dtypes = _dtypes(facts, out)
    peaks = _peaks(facts, dtypes, overlay, out)
    return None if dtypes is None or peaks is None else Hardware(*dtypes, peaks)


def _utilisations(
    run: Inputs,
    hardware: Hardware,
    facts: Mapping[str, Mapping[str, Any]],
    tgs: float,
    out: Score,
) -> None:
    """MFU under each convention and HFU; raises ValueError where a format has no peak."""
    exact = run.operators()

    def mfu(ops: tuple[Operator, ...], of: DtypeOf = hardware.dtype_of) -> float:
        return tgs * flops.ideal_seconds_per_token(ops, of, hardware.peaks)

    values: dict[str, float | None] = {
        "mfu": mfu(exact),
        "mfu_full_attention": mfu(run.operators("full")),
    }
    if hardware.fastest in ("fp8", "fp4"):
        values["mfu_conservative"] = mfu(exact, lambda *_: hardware.fastest)
        values["mfu_bf16"] = mfu(exact, lambda *_: "bf16")
    recompute = _hfu_policy(_value(facts, "recompute"))
    if recompute is not None and flops.hardware_unknown(recompute, run.shape) is None:
        low, high = flops.hardware_operators(
            run.shape, run.seq_len, recompute, trainable=run.trainable, attended=run.attended
        )
        values |= {"hfu_low": mfu(low), "hfu_high": mfu(high)}
    out.values["peak_flops"] = flops.flops_per_token(exact) * tgs / (values["mfu"] or 1.0)
    if not run.documents_known:
        out.warnings.append(
            f"attention stops at document borders and their lengths are not logged: MFU is at most "
            f"{values['mfu']:.1%} (one document per pack)"
        )
        out.missing.append("attended_pairs")
        values = {"mfu": None, "mfu_full_attention": values["mfu_full_attention"]}
    shown = _possible(values, facts, out)
    out.values |= {name: value for name, value in shown.items() if value is not None}


def _possible(
    values: dict[str, float | None], facts: Mapping[str, Mapping[str, Any]], out: Score
) -> dict[str, float | None]:
    """Above 100 % nothing is published: the figure becomes `implied`, with its likely cause."""
    mfu, full = values["mfu"], values["mfu_full_attention"] or 0.0
    if mfu is None or mfu <= IMPOSSIBLE:
        if full <= IMPOSSIBLE:
            return values
        out.warnings.append(
            f"MFU (full attention) would be {full:.0%}: it counts work that windows or document "
            "masks leave out, so it is not shown"
        )
        return values | {"mfu_full_attention": None}
    likely = [why for why, factor in _unit_errors(facts) if _plausible(mfu / factor)]
    causes = f"likely {' or '.join(likely)}" if likely else "no usual unit error explains it"
    out.warnings.append(
        f"MFU would be {mfu:.0%}, which is impossible: {causes}; else a wrong accelerator, "
        "model or seq_len"
    )
    return {"implied": mfu}


PLAUSIBLE: Final = (0.02, 0.8)
"""MFU that real training reaches."""


def _plausible(mfu: float) -> bool:
    return PLAUSIBLE[0] <= mfu <= PLAUSIBLE[1]


def _unit_errors(facts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Usual factors by which a rate is too high, with what they are."""
    known = (
        ("a rate of all GPUs taken for one (x world size)", _integer(facts, "gpus")),
        ("accumulation counted twice", _integer(facts, "gradient_accumulation")),
        ("sequence-parallel ranks counted apart", _integer(facts, "context_parallel")),
        ("model-parallel ranks counted apart", _integer(facts, "tensor_parallel")),
        ("milliseconds taken for seconds (x 1000)", 1000),
        ("recomputation counted (x 4/3)", 4 / 3),
        ("half a device's peak (x 2)", 2),
    )
    return [(why, float(factor)) for why, factor in known if factor is not None and factor > 1]


def _hfu_policy(recompute: str | None) -> Recompute | None:
    named = {"none": "none", "full": "full", "selective_attention": "selective"}
    return cast("Recompute | None", named.get(recompute or ""))


# --- the formula's inputs -------------------------------------------------------------------


def formula_inputs(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], out: Score
) -> Inputs | None:
    """Shape, length, what is trained and attended pairs; or None with `out.missing` filled."""
    shape = _shape(facts, out)
    seq_len = _integer(facts, "seq_len")
    trainable = _trainable(facts, out)
    if seq_len is None:
        out.missing.append("seq_len")
    if (_value(facts, "token_dropping") or "").lower() == "true":
        out.warnings.append(
            "some layers drop tokens (random-LTD), so the formula's FLOPs are not what ran: no MFU"
        )
        return None
    if shape is None or seq_len is None or trainable is None:
        return None
    seq_len = _mean_length(seq_len, rates, out)
    attended, documents_known = _attended(facts, rates, seq_len)
    return Inputs(shape, seq_len, trainable, attended, documents_known)


def _mean_length(seq_len: int, rates: Mapping[str, Any], out: Score) -> int:
    """The mean length over the tokens, where lines print one of their own (a curriculum)."""
    logged = rates.get("sequence_length")
    if logged is None or round(logged) == seq_len:
        return seq_len
    out.warnings.append(
        f"steps are not all of seq_len={seq_len:,}: FLOPs are of their mean length, {logged:,.0f}"
    )
    return round(float(logged))


def _shape(facts: Mapping[str, Mapping[str, Any]], out: Score) -> ModelShape | None:
    """The shape by the fact of the best origin; checked against the logged parameter count."""
    given = [name for name in SHAPE_FACTS if name in facts]
    if not given:
        out.missing.append("model")
        return None
    best = min(given, key=lambda name: (_rank(facts[name]), SHAPE_FACTS.index(name)))
    try:
        return _checked(_build(best, facts), facts, out)
    except ShapeError as error:
        out.missing.append("model_config")
        out.warnings.append(str(error))
        return None


def _work(run: Inputs) -> str:
    """A key of the work that a run does: layers, width and what is trained.

    Without names, and without the vocabulary, which frameworks pad or crop by less than 1 %.
    """
    layers = replace(_same_work(run.shape), vocab_size=1)
    masked = "masked" if run.attended is not None or not run.documents_known else "whole"
    text = f"{layers} {run.trainable} {masked}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def canonical_name(shape: ModelShape) -> str:
    """The known name of a shape that some framework named otherwise; else its own."""
    wanted = _same_work(shape)
    return next((m.name for m in known_models() if _same_work(m) == wanted), shape.name)


def _same_work(shape: ModelShape) -> ModelShape:
    """The shape without its name and without how an implementation fuses its matmuls."""
    layers = tuple(
        replace(
            group,
            attention=replace(group.attention, fused=False),
            ffn=None if group.ffn is None else replace(group.ffn, fused=False),
        )
        for group in shape.layers
    )
    return replace(shape, name="", layers=layers)


def _build(name: str, facts: Mapping[str, Mapping[str, Any]]) -> ModelShape:
    value = str(facts[name]["value"])
    if name == "model_config":
        return _text_only(json.loads(value))
    if name == "megatron_arguments":
        return from_megatron(json.loads(value), _integer(facts, "vocab_size"))
    if name == "torchtitan_arguments":
        return from_torchtitan(_value(facts, "model") or "torchtitan", json.loads(value))
    return known(value)


def _text_only(config: Mapping[str, object]) -> ModelShape:
    """The language model of a config; one that sees needs images per step, which no log has."""
    shape = from_hugging_face(config)
    if vision.from_hugging_face(config) is not None:
        raise ShapeError(
            f"{shape.name} has a vision tower, and how many patches a step holds is not logged: "
            "its FLOPs are not known. For text alone give the text_config as model_config"
        )
    return shape


def _checked(shape: ModelShape, facts: Mapping[str, Mapping[str, Any]], out: Score) -> ModelShape:
    """The shape whose parameters are those that the log counts, where it counts them."""
    logged = _integer(facts, "params_total")
    if logged is None or logged in (
        shape.params_total,
        shape.params_total - shape.params_embedding,  # tied weights counted once, then subtracted
    ):
        return shape
    fitted = with_params_total(shape, logged)
    if fitted.vocab_size not in TOKENIZERS:
        raise ShapeError(
            f"the log counts {logged:,} parameters, {shape.name} has {shape.params_total:,}, and "
            "no tokenizer in use explains it: it is another model. --set model_config=PATH"
        )
    out.warnings.append(
        f"the log counts {logged:,} parameters, {shape.name} has {shape.params_total:,}: "
        f"a vocabulary of {fitted.vocab_size:,} (inferred) explains it"
    )
    return replace(fitted, name=f"{shape.name} with {fitted.vocab_size:,} words")


TOKENIZERS: Final = frozenset(
    {2000, 2048, 2256, 32_000, 32_064, 32_768, 50_257, 50_304, 100_277, 100_352, 102_400}
    | {128_256, 128_815, 129_280, 151_643, 151_646, 151_936, 152_064, 201_088, 202_048}
)
"""Vocabularies of tokenizers that Torchtitan's recipes use; it took them from the tokenizer."""


def _is_inferred(fact: Mapping[str, Any]) -> bool:
    return str(fact["origin"]).startswith("inferred")


def _rank(fact: Mapping[str, Any]) -> int:
    kind = str(fact["origin"]).split(":")[0]
    return inputs.PRECEDENCE.index(kind)


def _trainable(facts: Mapping[str, Mapping[str, Any]], out: Score) -> Trainable | None:
    kind = _value(facts, "trainable")
    if kind is None:
        out.missing.append("trainable")
        return None
    if kind != "lora":
        return Trainable(kind="frozen" if kind == "frozen" else "full")
    rank, targets = _integer(facts, "lora_rank"), _value(facts, "lora_targets")
    if rank is None or targets is None:
        out.missing += [n for n in ("lora_rank", "lora_targets") if n not in facts]
        return None
    names = tuple(name.strip() for name in targets.split(","))
    return Trainable(kind="lora", lora_rank=rank, lora_targets=names)


def _attended(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], seq_len: int
) -> tuple[float | None, bool]:
    """Attended pairs per token where documents are masked, and whether they are known.

    XTuner v1 logs sum n_i^2 / sum P^2 over packs of P tokens, so A = (ratio P + 1) / 2.
    """
    if (pairs := _value(facts, "attended_pairs")) is not None:
        return float(pairs), True
    if rates.get("attention_ratio") is not None:
        return (rates["attention_ratio"] * seq_len + 1) / 2, True
    masked = (_value(facts, "document_mask") or "").lower() == "true"
    return None, not masked


def _dtypes(facts: Mapping[str, Mapping[str, Any]], out: Score) -> tuple[DtypeOf, Dtype] | None:
    """The number format of each operator, and the fastest of them."""
    fact = facts.get("precision")
    if fact is None:
        out.missing.append("precision")
        return None
    precision = str(fact["value"])
    if "quantization" in facts and str(fact["origin"]).startswith("inferred"):
        out.missing.append("precision")
        out.warnings.append(
            f"the log says {str(facts['quantization']['value'])[:60]!r}, not which layers it "
            "converted: --set precision=fp8, or bf16 where it converted none"
        )
        return None
    if precision == "fp32" and not str(fact["origin"]).startswith(("flag", "sidecar")):
        out.missing.append("precision")
        out.warnings.append("fp32, but not whether TF32 was on: --set precision=fp32 or tf32")
        return None
    return number_formats(precision)


def _peaks(
    facts: Mapping[str, Mapping[str, Any]],
    dtypes: tuple[DtypeOf, Dtype] | None,
    overlay: Sequence[Accelerator],
    out: Score,
) -> Mapping[Dtype, float] | None:
    """Dense peaks of the device by number format: given by hand, or from the table.

    `device` becomes the one name of all the spellings that frameworks print.
    """
    name = _value(facts, "accelerator")
    out.values["device"] = name
    if (given := facts.get("peak_flops")) is not None and dtypes is not None:
        peak = float(given["value"])
        out.values["device"] = f"{name or 'device'} at {peak / 1e12:,g} TFLOP/s"
        return {dtypes[1]: peak}
    if name is None:
        out.missing.append("accelerator")
        return None
    try:
        device = accelerators.find(name, overlay)
    except accelerators.UnknownAcceleratorError as error:
        out.missing.append("peak_flops")
        out.warnings.append(str(error))
        return None
    out.values["device"] = device.name
    return device.peaks


def _value(facts: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    return str(facts[name]["value"]) if name in facts else None


def _integer(facts: Mapping[str, Mapping[str, Any]], name: str) -> int | None:
    value = _value(facts, name)
    try:
        return None if value is None else int(float(value))
    except ValueError:
        return None
