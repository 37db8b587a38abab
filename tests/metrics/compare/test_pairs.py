"""Any two runs: like for like, the same model with something different, or not comparable.

Each run of the matrix is a composed log with facts beside it, read as a user's would be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare.comparability import compare_pair, rank_runs
from fairmfu.metrics.core.messages import NOT_RANKED, as_clause
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.pipeline.analysis import analyse
from sample_logs.make_synthetic import WRITERS, ImaginaryRun

Facts = dict[str, object]
Run = Callable[..., dict[str, Any]]

STEPS = ImaginaryRun(step_s=[9.6] + [2.58, 2.59, 2.57, 2.58] * 30)

# The DeepSpeed engine prints nothing of the model and the device, so each can be given.
KNOWN: Facts = {
    "accelerator": "NVIDIA H100 80GB HBM3",
    "model": "llama3-8b",
    "seq_len": 8192,
    "packed": True,
    "recompute": "full",
    "trainable": "full",
    "precision": "bf16",
}
LORA: Facts = {"trainable": "lora", "lora_rank": 16, "lora_targets": "all-linear"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The metrics of one composed log, computed once; `None` leaves a fact out."""
    folder = tmp_path_factory.mktemp("runs")
    computed: dict[tuple[str, str], dict[str, Any]] = {}

    def metrics(changes: Facts | None = None, log_format: str = "deepspeed") -> dict[str, Any]:
        facts = (KNOWN if log_format == "deepspeed" else {}) | (changes or {})
        toml = "".join(f"{k} = {_toml(v)}\n" for k, v in facts.items() if v is not None)
        if (log_format, toml) not in computed:
            log = folder / f"{log_format}-{len(computed)}" / "run.log"
            log.parent.mkdir()
            log.write_text("\n".join(WRITERS[log_format](STEPS)) + "\n", encoding="utf-8")
            log.with_name("facts.toml").write_text(toml, encoding="utf-8")
            row = analyse(read_log_tables(log)).metrics.row(0, named=True)
            computed[log_format, toml] = row | {"name": log_format}
        return dict(computed[log_format, toml])

    return metrics


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


LIKE = "like for like"
MODEL = "same model"

# name, changes of the one, changes of the other, verdict, what is listed
SAME_WORK: list[tuple[str, Facts, Facts, str, list[str]]] = [
    ("same", {}, {}, LIKE, []),
    (
        "other length",
        {},
        {"seq_len": 4096},
        MODEL,
        ["sequence length (8,192 vs 4,096)", "FLOPs per token (5.1471e+10 vs 4.825e+10)"],
    ),
    (
        "other GPU",
        {},
        {"accelerator": "NVIDIA A100-SXM4-80GB"},
        MODEL,
        ["accelerator (NVIDIA H100 SXM vs NVIDIA A100)"],
    ),
    (
        "other GPU of one name",
        {},
        {"accelerator": "NVIDIA H100 PCIe"},
        MODEL,
        ["accelerator (NVIDIA H100 SXM vs NVIDIA H100 PCIe)"],
    ),
    (
        "LoRA against full",
        {},
        LORA,
        MODEL,
        [
            "trainable (full vs lora of rank 16 on all-linear)",
            "FLOPs per token (5.1471e+10 vs 3.6714e+10)",
        ],
    ),
    (
        "LoRA of another rank",
        LORA | {"lora_rank": 8},
        LORA,
        MODEL,
        ["trainable (lora of rank 8 on all-linear vs lora of rank 16 on all-linear)"],
    ),
    (
        "LoRA of other targets",
        LORA,
        LORA | {"lora_targets": "q_proj, v_proj"},
        MODEL,
        ["trainable (lora of rank 16 on all-linear vs lora of rank 16 on q_proj, v_proj)"],
    ),
    (
        "FP8 against BF16",
        {"precision": "fp8"},
        {},
        MODEL,
        ["precision (fp8 vs bf16)"],
    ),
    (
        "documents masked against whole packs",
        {"document_mask": True, "attended_pairs": 700.5},
        {},
        MODEL,
        [
            "attention (causal, stops at document borders vs causal)",
            "FLOPs per token (4.613e+10 vs 5.1471e+10)",
        ],
    ),
    (
        "documents of another length",
        {"document_mask": True, "attended_pairs": 700.5},
        {"document_mask": True, "attended_pairs": 2100.5},
        MODEL,
        ["FLOPs per token (4.613e+10 vs 4.8332e+10)"],
    ),
    (
        "slots against packed samples",
        {"packed": None},
        {},
        MODEL,
        ["token basis (slots vs packed)"],
    ),
    ("masks that mask nothing", {"attended_pairs": 4096.5}, {}, LIKE, []),
    ("FLOPs of the formula against given ones", {"flops_per_token": 7e10}, {}, LIKE, []),
    ("two spellings of one device", {}, {"accelerator": "NVIDIA H100"}, LIKE, []),
]


@pytest.mark.parametrize(
    ("one", "other", "verdict", "listed"),
    [case[1:] for case in SAME_WORK],
    ids=[case[0] for case in SAME_WORK],
)
def test_what_has_to_be_the_same(
    run: Run, one: Facts, other: Facts, verdict: str, listed: list[str]
) -> None:
    found = compare_pair(run(one), run(other))
    assert (found.verdict, list(found.differences)) == (verdict, listed)
    assert found.obstacles == ()
    backwards = compare_pair(run(other), run(one))
    assert backwards.verdict == verdict
    assert backwards.differing_columns == found.differing_columns


@pytest.mark.parametrize(
    ("other", "context"),
    [
        ({"recompute": "none"}, "recompute: full vs none"),
        ({"framework_version": "0.15.1"}, "version: 0.16.9 vs 0.15.1"),
        ({"torch": "2.9.0"}, "Not compared, because not every log states them: PyTorch"),
        ({"zero_stage": 2}, "ZeRO stage: 3 vs 2"),
        ({"compile": True}, "Not compared, because not every log states them: compile"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_one_compares_is_no_obstacle_and_is_named(
    run: Run, other: Facts, context: str
) -> None:
    found = compare_pair(run({"recompute": "full"}), run(other))
    assert found.verdict == LIKE
    assert context in found.context


def test_another_batch_or_count_of_gpus_is_named(run: Run) -> None:
    found = compare_pair(run(), run() | {"global_batch_size": 64, "gpus": 64})
    assert found.verdict == LIKE
    assert found.context[:2] == ("GPUs: 8 vs 64", "global batch: 8 vs 64")
    found = compare_pair(run(), run() | {"gradient_accumulation": 4, "tensor_parallel": 2})
    assert found.verdict == LIKE
    assert found.context == (
        "gradient accumulation: 1 vs 4",
        "Not compared, because not every log states them: tensor parallel",
    )


@pytest.mark.parametrize("wrong", [{"gradient_accumulation": 4}, {"tensor_parallel": 2}])
def test_batch_sizes_that_the_lines_deny_are_no_ground_to_compare(run: Run, wrong: Facts) -> None:
    """The log's batch is 8 samples of 8 GPUs: 4 micro-steps, or shared samples, would be others."""
    one, denied = run(), run(wrong)
    found = compare_pair(one, denied)
    assert found.verdict == "not comparable"
    (said,) = (text for text in denied["warnings"] if text.startswith(NOT_RANKED))
    assert any(as_clause(said) in why for why in found.obstacles)
    assert not any(text.startswith(NOT_RANKED) for text in one["warnings"])


def test_two_torch_versions_are_named(run: Run) -> None:
    found = compare_pair(run({"torch": "2.8.0"}), run({"torch": "2.9.0"}))
    assert found.verdict == LIKE
    assert found.context == ("PyTorch: 2.8.0 vs 2.9.0",)


@pytest.mark.parametrize("log_format", [name for name in WRITERS if name != "deepspeed"])
def test_another_framework_is_like_for_like(run: Run, log_format: str) -> None:
    device = {"accelerator": "NVIDIA H100 80GB HBM3"}
    v1 = {k: v for k, v in KNOWN.items() if k != "packed"} | {"gpus": 8, "document_mask": False}
    found = compare_pair(run(), run(v1 if log_format == "xtuner-v1" else device, log_format))
    assert found.verdict == LIKE
    assert any(words.startswith("framework: ") for words in found.context) != (
        log_format == "megatron-deepspeed"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"accelerator": None}, "unknown: accelerator"),
        ({"trainable": None}, "unknown: trainable"),
        ({"model": None}, "unknown: model"),
        ({"trainable": "lora"}, "unknown: lora_rank, lora_targets"),
        ({"document_mask": True}, "unknown FLOPs per token: attended_pairs"),
        ({"seq_len": None}, "no TGS: missing seq_len"),
    ],
)
def test_what_is_unknown_is_never_the_same(run: Run, changes: Facts, why: str) -> None:
    """Not even of two runs that both do not say it."""
    for other in (run(), run(changes)):
        found = compare_pair(run(changes), other)
        assert found.verdict == "not comparable"
        assert any(reason.startswith(f"deepspeed: {why}") for reason in found.obstacles), (
            found.obstacles
        )
        assert found.sentence.startswith("not comparable: deepspeed: ")


def test_another_model_is_not_comparable(run: Run) -> None:
    found = compare_pair(run(), run({"model": "llama2-7b"}))
    assert found.verdict == "not comparable"
    assert found.sentence == "not comparable: different models (llama-3-8b vs llama-2-7b)"


def test_a_device_that_no_table_knows_is_the_same_only_as_itself(run: Run) -> None:
    unknown = {"accelerator": "Acme X1"}
    assert compare_pair(run(unknown), run(unknown)).verdict == LIKE
    found = compare_pair(run(unknown), run())
    assert found.sentence == ("same model, different accelerator (Acme X1 vs NVIDIA H100 SXM)")


def test_a_composed_log_is_not_compared_with_a_real_one(run: Run) -> None:
    found = compare_pair(run(), run() | {"synthetic": True})
    assert found.verdict == "not comparable"
    assert found.obstacles == ("one of the two is synthetic",)


def test_groups_are_the_pairs_that_are_like_for_like(run: Run) -> None:
    """One mechanism: two runs stand in one group exactly where their pair says so."""
    cases = [facts for case in SAME_WORK for facts in case[1:3]]
    rows = [run(facts) | {"run_id": f"r{i}"} for i, facts in enumerate(cases)]
    found = rank_runs(pl.DataFrame(rows, schema=METRICS, strict=False))
    group = dict(found.select("run_id", "group").iter_rows())
    for one in rows:
        for other in rows:
            together = group[one["run_id"]] == group[other["run_id"]]
            assert together == (compare_pair(one, other).verdict == LIKE)


# --- real logs ----------------------------------------------------------------------------

CORPUS = Path(os.environ.get("FAIRMFU_CORPUS", "no-corpus"))
V100: Facts = {"accelerator": "Tesla V100-SXM2-32GB"}
BF16: Facts = {"precision": "bf16"}


def real(tmp_path: Path, *logs: tuple[str, Facts]) -> list[dict[str, Any]]:
    """The fastest launch of each public log, with what its log does not say."""
    if not CORPUS.is_dir():
        pytest.skip("FAIRMFU_CORPUS names no folder of public logs: pairs of them are not tested")
    rows = []
    for place, (pattern, facts) in enumerate(logs):
        (path,) = CORPUS.glob(pattern)
        store = Store(tmp_path / f"store-{place}")
        ingest_paths(
            [path], store, flag_facts=facts_from_flags([f"{k}={v}" for k, v in facts.items()])
        )
        launches = analyse({name: store.table(name) for name in TABLES}).metrics
        rows.append(launches.sort("tgs").row(-1, named=True))
    return rows


def test_two_public_logs_of_one_model_are_like_for_like(tmp_path: Path) -> None:
    one, other = real(
        tmp_path,
        ("deepspeed/bigscience__meg_ds_3d_gpt2_perf_n16.out", V100),
        ("deepspeed/bigscience__meg_ds_zero_gpt2_perf_n16_nbs48_ms48.out", V100),
    )
    found = compare_pair(one, other)
    assert found.verdict == LIKE, found.sentence
    assert "ZeRO stage: 0 vs 3" in found.context


def test_two_public_logs_of_other_lengths(tmp_path: Path) -> None:
    one, other = real(
        tmp_path,
        ("torchtitan/pt_b200_qwen3-14b_run54*", BF16),
        ("torchtitan/pt_b200_qwen3-14b_run113*", BF16),
    )
    found = compare_pair(one, other)
    assert found.verdict == "same model", found.sentence
    assert found.differing_columns == ("seq_len", "flops_per_token")
    assert found.differences[0] == "sequence length (4,096 vs 128)"


def test_two_public_logs_of_other_number_formats(tmp_path: Path) -> None:
    one, other = real(
        tmp_path,
        ("torchtitan/pt_b200_qwen3-14b_run54*", BF16),
        ("torchtitan/pt_b200_qwen3-14b_run33*", {"precision": "fp8"}),
    )
    found = compare_pair(one, other)
    assert found.verdict == "same model", found.sentence
    assert found.differing_columns == ("precision",)


def test_two_public_logs_that_do_not_say_their_device(tmp_path: Path) -> None:
    logs = [("deepspeed/bigscience__meg_ds_3d_gpt2_perf_n16.out", {})] * 2
    found = compare_pair(*real(tmp_path, *logs))
    assert found.verdict == "not comparable"
    assert all(reason.endswith("unknown: accelerator") for reason in found.obstacles)


def test_two_public_logs_of_other_models(tmp_path: Path) -> None:
    one, other = real(
        tmp_path,
        ("deepspeed/summit__gpt3-megatron.3328593*", V100),
        ("deepspeed/summit__gpt3-megatron.3329260*", V100),
    )
    found = compare_pair(one, other)
    assert found.verdict == "not comparable"
    assert found.obstacles[-1] == "different models (megatron-24x2064 vs megatron-12x2048)"
