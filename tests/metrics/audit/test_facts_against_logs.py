"""Facts that were given or inferred, against what the log itself says: the log's words win."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics import analyse
from fairmfu.metrics.audit.era_lookup import eras_of_format
from fairmfu.metrics.audit.eras.torchtitan import PEAK_ROWS, device_peak
from fairmfu.metrics.audit.formula_checks import era_peak, formula_facts_of
from fairmfu.metrics.audit.messages import FIGURES_DO_NOT_FOLLOW
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.formula.precision import BELOW_16_BITS, QUANTIZATION_EVIDENCE
from fairmfu.metrics.utilization.formula_inputs import UtilizationResult, operator_dtypes
from fairmfu.metrics.utilization.messages import PRECISION_AGAINST_LOG, QUANTIZED_WEIGHTS
from tests.support.each_case import each_case
from tests.support.kinds import of_kind
from tests.support.one_log import tables_of

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
    return analyse(tables_of(path, facts=facts)).metrics.row(0, named=True)


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
    (words,) = of_kind(row, QUANTIZED_WEIGHTS)
    assert line[:60] in words
    assert "Fix: fairmfu set RUN precision=" in words


def test_bf16_is_not_inferred_where_the_mfu_is_not_available(tmp_path: Path) -> None:
    row = row_of(titan(tmp_path, mfu="N/A"))
    assert (row["precision"], row["mfu"]) == (None, None)
    (words,) = of_kind(row, QUANTIZED_WEIGHTS)
    assert "'mfu: N/A'" in words
    assert "Fix: fairmfu set RUN precision=P, with P one of: fp8 " in words
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
    told = of_kind(row, PRECISION_AGAINST_LOG)
    words = f"{NOT_RANKED}precision={precision} is given, but the log says 'mfu: N/A'"
    assert [one.startswith(words) for one in told] == [True] * (precision == "bf16")
    assert row["mfu"] > 0


@each_case("precision", FACT_NAMES["precision"].choices)
@each_case(
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


# --- what nothing says of a run ---------------------------------------------------------------

GPT2 = {"d": 5120, "layers": 40, "T": 2048}


def megatron(
    tmp_path: Path, forwards: int = 3, vocab: int = 50_257, gpus: int = 64, *, tgs: bool = True
) -> Path:
    """Twelve iterations, TFLOPs by equation 3 of arXiv:2104.04473; tgs: with tokens/s beside it."""
    d, layers, length = GPT2["d"], GPT2["layers"], GPT2["T"]
    flops = 24 * forwards * layers * d**2 * (1 + length / (6 * d) + vocab / (16 * layers * d))
    lines = []
    for n in range(1, 13):
        ms = 20_000 + 12.5 * n
        rate = 512 * length / (ms / 1000) / gpus
        lines.append(
            f" iteration {n:8}/     100 | consumed samples: {512 * n:12} | elapsed time per "
            f"iteration (ms): {ms:.4f} | learning rate: 1.000E-05 | global batch size:   512 | "
            f"lm loss: {10 - n / 10:.6E} | loss scale: 1.0 | grad norm: 1.000 | number of skipped "
            f"iterations:   0 | number of nan iterations:   0 | samples per second: "
            f"{512 / (ms / 1000):.3f} |"
            + (f" tokens per gpu per second (tgs): {rate:.3f} |" if tgs else "")
            + f" TFLOPs: {flops * rate / 1e12:.2f} |"
        )
    config = {"model_type": "gpt2", "n_embd": d, "n_layer": layers, "n_head": 40}
    config |= {"n_positions": length, "n_ctx": length, "vocab_size": 50_257}
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines) + "\n")
    return path


KNOWN: dict[str, object] = {"seq_len": 2048, "packed": "true", "trainable": "full", "gpus": 64}
ERA = {"logged_formula": "megatron-deepspeed-2022-12"}


@pytest.mark.parametrize(("forwards", "policy"), [(3, "none"), (4, None)])
def test_the_one_recomputation_that_fits_is_inferred(
    tmp_path: Path, forwards: int, policy: str | None
) -> None:
    """Of four forwards full recomputation and that of core attention alone print the same."""
    row = row_of(megatron(tmp_path, forwards), **KNOWN, **ERA)
    assert (row["logged_reproduced"], row["recompute"]) == (True, policy)
    assert ("recompute" in row["inferred"]) == (policy is not None)
    assert policy is not None or "recompute" not in row["proven"]


@pytest.mark.parametrize("gpus", [16, 128])
def test_wrong_gpus_are_told_whatever_is_recomputed(tmp_path: Path, gpus: int) -> None:
    row = row_of(megatron(tmp_path, tgs=False), **KNOWN | {"gpus": gpus}, **ERA)
    assert row["logged_reproduced"] is False
    (words,) = of_kind(row, FIGURES_DO_NOT_FOLLOW)
    assert words.startswith(NOT_RANKED)
    assert " under any recompute: " in words
    assert words.endswith(". With gpus=64 it reproduces all.")


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("known", [True, False])
def test_the_vocabulary_is_padded_for_the_ranks_of_a_layer(
    tmp_path: Path, ranks: int, *, known: bool
) -> None:
    step = 128 * ranks
    log = megatron(tmp_path, vocab=-(-50_257 // step) * step)
    facts = KNOWN | {"recompute": "none"} | ({"tensor_parallel": ranks} if known else {})
    row = row_of(log, **facts)
    assert (row["logged_reproduced"], row["logged_formula"]) == (True, "megatron-deepspeed-2022-12")
    assert not said(row, NOT_RANKED)


# --- hints and proofs -------------------------------------------------------------------------

BACKEND = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 32768,
    "tie_word_embeddings": True,
    "head_dim": 64,
    "hidden_act": "silu",
}
N_BACKEND, TABLE = 1_040_254_976, 32_768 * 2048


def backend(tmp_path: Path, flops: float) -> Path:
    """A log that states a length of 8,192, and prints TFLOP/s of these FLOPs per token."""
    stamp = "[titan] 2026-01-09 09:{:02}:{:02},000 - root - INFO - "
    lines = [
        stamp.format(0, 0) + text
        for text in (
            "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.18GiB memory",
            "Model mine llama_1b size: 1,040,254,976 total parameters",
            "Applied FSDP to the model",
            "Peak FLOPS used for computing MFU: 9.890e+14",
            "Trainer is initialized with local batch size 6, global batch size 12, gradient "
            "accumulation steps 1, sequence length 8192, total steps 1000 (warmup 100)",
        )
    ]
    for n in range(1, 13):
        rate, at = 55_000 + 61 * n % 271, 44.6 * n
        lines.append(
            f"{stamp.format(int(at) // 60, int(at) % 60)}step: {50 * n}  loss:  9.0000  grad_norm: "
            f" 2.1000  memory: 72.82GiB(91.97%)  tps: {rate:,}  tflops: {flops * rate / 1e12:.2f}"
            f"  mfu: {100 * flops * rate / 989e12:.2f}%"
        )
    (tmp_path / "config.json").write_text(json.dumps(BACKEND))
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def half_attention(length: int) -> int:
    return 6 * 16 * 32 * 64 * length


def test_half_of_the_attention_without_the_embedding_is_reproduced(tmp_path: Path) -> None:
    row = row_of(backend(tmp_path, 6 * (N_BACKEND - TABLE) + half_attention(8192)))
    assert row["logged_formula"] == "torchtitan-hf-backend-own-embedding"
    assert row["logged_reproduced"] is True
    assert not said(row, "seq_len")


@pytest.mark.parametrize("length", [1024, 3072, 4096, 12_288, 16_384])
def test_no_hint_names_another_length_than_the_log(tmp_path: Path, length: int) -> None:
    """The main line's formula at some usual length, which the log's own line excludes."""
    row = row_of(backend(tmp_path, 6 * N_BACKEND + 2 * half_attention(length)))
    assert row["logged_reproduced"] is not True or row["logged_formula"].startswith(
        "torchtitan-hf-backend"
    )
    assert not said(row, f"seq_len={length:,}")


def test_the_logs_own_length_is_a_hint_against_a_given_one(tmp_path: Path) -> None:
    log = backend(tmp_path, 6 * N_BACKEND + 2 * half_attention(8192))
    row = row_of(log, seq_len=4096)
    (words,) = of_kind(row, FIGURES_DO_NOT_FOLLOW)
    assert words.startswith(NOT_RANKED)
    assert words.endswith(". With seq_len=8,192 it reproduces all.")


def test_a_length_is_not_proven_where_the_logs_own_fits_another_reading(tmp_path: Path) -> None:
    log = backend(tmp_path, 6 * (N_BACKEND - TABLE) + half_attention(8192))
    analysis = analyse(tables_of(log, facts={"seq_len": 3072}))
    row = analysis.metrics.row(0, named=True)
    (audit,) = analysis.audits.values()
    assert row["logged_reproduced"] is True  # 6 V d = 12 L d 1024, by chance
    assert "seq_len" not in row["proven"]
    assert audit.fitting["seq_len"].startswith("seq_len=8,192 with half of its attention")


def test_a_length_that_no_line_states_fits_and_is_not_proven(tmp_path: Path) -> None:
    log = backend(tmp_path, 6 * N_BACKEND + 2 * half_attention(8192))
    lines = [line for line in log.read_text().splitlines() if "sequence length" not in line]
    log.write_text("\n".join(lines) + "\n")
    unsaid = row_of(log, seq_len=8192)
    assert unsaid["logged_reproduced"] is True
    assert "seq_len" not in unsaid["proven"]  # twice as many, of which half are attended


def test_a_fork_does_not_excuse_a_wrong_length(tmp_path: Path) -> None:
    """Half of the attention at 16,384 is all of it at 8,192, of an untied model."""
    header = tuple(line for line in HEADER if "sequence length" not in line)
    row = row_of(titan(tmp_path, header=header), seq_len=16_384)
    (words,) = of_kind(row, FIGURES_DO_NOT_FOLLOW)
    assert words.startswith(NOT_RANKED)
    assert "With seq_len=8,192, or by the formula of torchtitan-hf-backend" in words
