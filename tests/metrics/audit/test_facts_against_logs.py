"""Facts that were given or inferred, against what the log itself says: the log's words win."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.parse.parser import ParsedSource
from fairmfu.metrics import analyse
from fairmfu.metrics.audit.eras.torchtitan import PEAK_ROWS, device_peak
from fairmfu.metrics.audit.formula_checks import era_peak, eras_of_format, formula_facts_of
from fairmfu.metrics.core.run_table import NOT_RANKED
from fairmfu.metrics.formula.precision import BELOW_16_BITS, QUANTIZATION_EVIDENCE
from fairmfu.metrics.utilization.formula_inputs import UtilizationResult, operator_dtypes

TITAN = "[rank0]:[titan] 2026-04-01 09:00:{:02},000 - root - INFO - "
HEADER = (
    "torchtitan version: 0.2.2 (0.0.0 means __version__ is not defined correctly).",
    "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, "
    "etp=1",
    "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
    "Model llama3 8B size: 8,030,261,248 total parameters",
    "Applied selective activation checkpointing to the model",
    "Applied fully_shard to the model",
    "Trainer is initialized with local batch size 1, global batch size 8, gradient accumulation "
    "steps 1, sequence length 8192, total steps 1000 (warmup 200)",
)
F_LLAMA = 57_914_449_920
"""FLOPs per token of Llama 3 8B at 8,192 tokens, as Torchtitan counts them."""


def titan(
    tmp_path: Path, *extra: str, mfu: str | None = None, header: tuple[str, ...] = HEADER
) -> Path:
    """A log of 15 steps of about one second; mfu: what it prints, else over 989 TFLOP/s."""
    lines = [TITAN.format(0) + text for text in (*header, *extra)]
    for step in range(1, 16):
        rate = 350 if step == 1 else 8400 + 37 * step % 60
        share = mfu or f"{100 * rate * F_LLAMA / 989e12:.2f}%"
        lines.append(
            f"{TITAN.format(20 + step)}step: {step:2}  loss: 11.95000  grad_norm:  1.2000  "
            f"memory: 44.21GiB(55.88%)  tps: {rate:,}  tflops: {rate * F_LLAMA / 1e12:,.2f}  "
            f"mfu: {share}"
        )
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def row_of(path: Path, **facts: object) -> dict[str, Any]:
    """The only run's row of metrics."""
    return analyse(read_logs(path, facts=facts)).metrics.row(0, named=True)


def said(row: dict[str, Any], *words: str) -> list[str]:
    """Warnings of a run that hold all of some words."""
    return [text for text in row["warnings"] if all(word in text for word in words)]


# --- precision ------------------------------------------------------------------------------

QUANTISED = (
    "Float8 training active with recipe rowwise",
    "Swapped to Float8Linear layers",
    "Swapped to MXLinear layers",
    "MX training active with recipe mxfp8_cublas",
    "MXFP8 MoE training enabled",
    "Converted Linear layers to NVFP4Linear",
    "Converted MoE to float8",
    "Converted GroupedExperts to use dynamic float8 rowwise quantization with scaled grouped GEMMs",
    "Converted modules to use dynamic mxfp8_rceil quantization for grouped_mm and linear ops",
)


@pytest.mark.parametrize("line", QUANTISED)
def test_a_line_that_says_what_was_converted_is_quantization(
    line: str, parse: Callable[..., ParsedSource]
) -> None:
    (launch,) = parse("torchtitan", [TITAN.format(0) + line]).launches
    assert {fact["name"]: fact["value"] for fact in launch.facts}["quantization"] == line


def test_bf16_is_not_inferred_of_a_log_that_says_what_it_converted(tmp_path: Path) -> None:
    line = QUANTISED[-1]
    row = row_of(titan(tmp_path, line))
    assert (row["precision"], row["mfu"], row["mfu_full_attention"]) == (None, None, None)
    assert "precision" in row["missing"]
    assert "precision" not in row["inferred"]
    assert said(row, line[:60], "--set precision=")


def test_bf16_is_not_inferred_where_the_mfu_is_not_available(tmp_path: Path) -> None:
    row = row_of(titan(tmp_path, mfu="N/A"))
    assert (row["precision"], row["mfu"]) == (None, None)
    assert said(row, "'mfu: N/A'", "quantised", "--set precision=fp8")
    assert row["tgs"] == pytest.approx(8430, rel=0.01)


def test_bf16_is_inferred_where_nothing_was_converted(tmp_path: Path) -> None:
    row = row_of(titan(tmp_path, "Converted HF modules to Module protocol"))
    assert (row["precision"], row["warnings"]) == ("bf16", [])
    assert "precision" in row["inferred"]


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_given_precision_that_the_log_excludes_is_used_and_costs_the_rank(
    tmp_path: Path, precision: str
) -> None:
    row = row_of(titan(tmp_path, mfu="N/A"), precision=precision)
    assert row["precision"] == precision
    assert bool(said(row, f"precision={precision} is given", NOT_RANKED)) == (precision == "bf16")
    assert row["mfu"] > 0


@pytest.mark.parametrize("precision", FACT_NAMES["precision"].choices)
@pytest.mark.parametrize(
    ("fact", "value", "fits"),
    [
        ("quantized", "mfu: N/A", set(BELOW_16_BITS)),
        ("quantization", QUANTISED[0], set(BELOW_16_BITS) - {"nvfp4"}),
        ("quantization", QUANTISED[4], set(BELOW_16_BITS) - {"nvfp4"}),
        ("quantization", QUANTISED[5], {"nvfp4"}),
        ("quantization", "float8_cfg {}", set(BELOW_16_BITS) - {"nvfp4"}),
        ("quantization", "Transformer Engine: te_layernorm_mlp", set(BELOW_16_BITS)),
        ("quantization", "fp8 hybrid", set(BELOW_16_BITS) - {"nvfp4"}),
    ],
)
def test_a_given_precision_is_held_against_every_evidence(
    precision: str, fact: str, value: str, fits: set[str]
) -> None:
    given = {"value": precision, "origin": "sidecar:facts.toml:3"}
    facts = {"precision": given, fact: {"value": value, "origin": "log:7"}}
    result = UtilizationResult()
    assert operator_dtypes(facts, result) is not None or precision == "fp32"
    assert bool(result.warnings) == (precision not in fits)


def test_every_evidence_is_a_fact_and_leaves_a_precision() -> None:
    for fact, _, left in QUANTIZATION_EVIDENCE:
        assert fact in FACT_NAMES
        assert left <= set(BELOW_16_BITS)
        assert left


# --- the card -------------------------------------------------------------------------------

NAMED = {row.name_part for row in PEAK_ROWS} - {"A6000"}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_the_case_of_a_cards_name_changes_no_peak_of_the_frameworks(name: str) -> None:
    run = {
        "log_format": "torchtitan",
        "started_at": None,
        "elapsed_covers": "step",
        "step_unit": "optimizer_step",
    }
    peaks = set()
    for spelling in (name, name.lower(), name.upper(), f"  {name.title()}"):
        fact = {"value": spelling.strip(), "origin": "flag"}
        known = formula_facts_of(run, {"accelerator": fact})  # type: ignore[arg-type]
        peaks.add(era_peak(eras_of_format("torchtitan")[-2], known))
    assert len(peaks) == 1


def test_a_printed_name_is_looked_up_as_the_framework_did() -> None:
    assert device_peak("NVIDIA L40S", None) == 312e12


@pytest.mark.parametrize("name", ["h100", "NVIDIA H100 80GB HBM3"])
def test_a_given_card_is_the_same_in_every_spelling(tmp_path: Path, name: str) -> None:
    header = tuple(line for line in HEADER if "capacity" not in line)
    row = row_of(titan(tmp_path, header=header), accelerator=name)
    assert (row["warnings"], row["logged_reproduced"]) == ([], True)
    assert row["mfu_full_attention"] == pytest.approx(8430 * F_LLAMA / 989.4e12, rel=0.01)
