"""Real runs, worked by hand; skipped where the corpus is not at hand."""

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.pipeline.analysis import analyse
from tests.tools.corpus import CORPUS

pytestmark = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"NO REAL LOGS at {CORPUS}: set FAIRMFU_CORPUS to their folder"
)


def metrics_of(name: str, *flags: str) -> pl.DataFrame:
    return analyse(read_log_tables(CORPUS / name, flag_facts=facts_from_flags(flags))).metrics


def test_torchtitan_llama3_8b_on_eight_h100() -> None:
    """msg_2025-07-01 (S7), first launch: 51 lines, steps 1 to 500, checkpoints at 1, 100, … 500.

    The logger divides 57,914,449,920 FLOPs (6 x (N - embedding), norms included, full attention) by
    989e12. Ours: 51,471,187,968 with exact attention over 989.4e12, so 0.888 of the logged MFU.
    """
    runs = metrics_of("torchtitan/msg_2025-07-01_c31ff8b053.txt")
    row = runs.filter(pl.col("name").str.ends_with("#1")).row(0, named=True)
    found = [row[key] for key in ("model", "gpus", "seq_len", "accelerator", "steps")]
    assert found == ["llama-3-8b", 8, 8192, "NVIDIA H100", 51]
    assert row["flops_per_token"] == 51_471_187_968
    ratio = (51_471_187_968 / 989.4e12) / (57_914_449_920 / 989e12)
    assert ratio == pytest.approx(0.8884, abs=5e-5)
    # A line's mfu is rounded to 0.01 % and its tps to 1, so 1e-3 holds the medians.
    ours, logged = row["mfu"] / row["tgs"], row["logged_mfu"] / row["logged_tgs"]
    assert ours == pytest.approx(ratio * logged, rel=1e-3)
    assert row["tgs"] == pytest.approx(5849.2, abs=0.1)
    assert row["mfu"] == pytest.approx(0.3043, abs=5e-5)
    assert row["logged_mfu"] == pytest.approx(0.3429, abs=5e-5)
    # Time stamps agree with the logged rate and the header's batch to 2 in 10,000.
    assert abs(row["evidence_gap"]) < 2e-4
    assert row["excluded_causes"] == ["start-up", "checkpoint", "profiler"]


def test_xtuner_llama3_8b_qlora_on_h800() -> None:
    """csg2008 throughput: a LoRA run is about 4N, not 6N, and the hook counts recomputation.

    By hand, per token at 4,096: projections 83,886,080 x 32, FFN 352,321,536 x 32, lm_head
    1,050,673,152: together 15,009,316,864 of weights, core attention 4 x 4096 x 2048.5 x 32.
    Frozen weights run 2x, core attention 3x, adapters (r = 64 on all linears, 167,772,160 weights)
    3 x 2 x N.
    """
    row = metrics_of(
        "xtuner/csg2008_llama3_8b_agentflan_qlora_throughput_20240504.log",
        "accelerator=NVIDIA H800",
        "model=meta-llama/Meta-Llama-3-8B",
        "seq_len=4096",
        "micro_batch_size=1",
        "packed=true",
        "gpus=1",
        "precision=bf16",
        "trainable=lora",
        "lora_rank=64",
        "lora_targets=all-linear",
        "recompute=full",
    ).row(0, named=True)
    weights = 32 * (83_886_080 + 352_321_536) + 1_050_673_152
    attention = 32 * 4 * 4096 * 2048.5
    adapters = 2 * 167_772_160
    assert row["flops_per_token"] == 2 * weights + 3 * attention + 3 * adapters
    full_training = 3 * (weights + attention)
    assert row["flops_per_token"] / full_training == pytest.approx(0.7098, abs=1e-4)  # 4N, not 6N
    # Micro-steps 11 to 100, times printed to 4 decimals: 0.8701 0.8603 … 0.8631.
    times = [0.8701, 0.8603, 0.8631, 0.8619, 0.8602, 0.8621, 0.8628, 0.8600, 0.8631]
    assert row["tgs"] == pytest.approx(4096 * 9 / sum(times), rel=1e-9)
    assert row["logged_tflops"] == pytest.approx(331.8, abs=0.3)
    ours = row["tgs"] * row["flops_per_token"] / 1e12
    assert row["logged_tflops"] / ours == pytest.approx(2.036, abs=0.005)
    assert row["mfu"] == pytest.approx(ours * 1e12 / 989.4e12, rel=1e-12)


def test_megatron_deepspeed_gpt_on_48_v100() -> None:
    """summit 3328593: TP 6 x PP 8, fp16, full recompute; iterations 40 to 630 of 10 each.

    The fork's TFLOPs: 96 B s L h^2 (1 + s/6h + V/16Lh), V padded to 50,688: recompute counted (96
    instead of 72), attention full, logits 6Vh. Ours: layers 3x forward with exact attention,
    V = 50,257. So its 7.16 are 5.09, a factor of 1.404.
    """
    row = metrics_of(
        "deepspeed/summit__gpt3-megatron.3328593.o", "accelerator=Tesla V100-SXM2-16GB"
    ).row(0, named=True)
    d, f, s, layers, vocab, padded = 2064, 8256, 2048, 24, 50257, 50688
    layer = 8 * d * d + 4 * d * (s + 1) / 2 + 4 * d * f
    flops = 3 * (layers * layer + 2 * d * vocab)
    theirs = 96 * layers * d * d * (1 + s / (6 * d) + padded / (16 * layers * d))
    assert row["flops_per_token"] == flops
    assert theirs / flops == pytest.approx(1.40422, abs=1e-5)
    assert row["logged_tgs"] * theirs / 1e12 == pytest.approx(row["logged_tflops"], abs=0.006)
    # 12 samples of 2,048 tokens on 48 GPUs: 512 tokens a GPU; elapsed is printed to 0.1 ms.
    assert row["tokens_per_gpu_step"] == 512
    # The windows of 20 and 30 (874.3 and 869.9 ms, then 861 to 865) are warm-up; with them 592.776.
    assert row["tgs"] == pytest.approx(592.968, abs=0.001)
    assert row["mfu"] == pytest.approx(592.968 * flops / 125e12, rel=1e-5)
    assert (row["windows"], row["steady_from"]) == (60, 30)


def test_bf16_on_a_v100_has_no_peak_and_says_so() -> None:
    """starksim qwen7b: bf16 on a card without bf16 tensor cores; no figure is made up."""
    row = metrics_of(
        "deepspeed/starksim__qwen7b_freq_500.log", "accelerator=Tesla V100-SXM2-32GB"
    ).row(0, named=True)
    assert row["mfu"] is None
    assert row["missing"] == ["peak_flops"]
    assert any("bf16" in words for words in row["warnings"])
    assert row["tgs"] == pytest.approx(row["logged_tgs"], rel=0.01)
