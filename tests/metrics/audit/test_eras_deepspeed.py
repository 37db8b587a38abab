"""What DeepSpeed's kin print of their own speed: closed forms by hand, and every public line.

The models of the closed forms are small, and their numbers are worked out in the tests, letter by
letter as the code of each version has them. The lines are those of the public logs; where a log
has no header, its facts come from where its authors say them, by the way of `--set`.
"""

from __future__ import annotations

import json
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.audit.audit_results import Audit
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.audit.eras.deepspeed import ERA_ROWS
from fairmfu.metrics.audit.flops_profiler import FLOPS_FIGURE, SAMPLES_FIGURE
from fairmfu.metrics.audit.formula_checks import formula_facts_of
from fairmfu.metrics.audit.formula_era import GAP_CAUSES
from fairmfu.metrics.audit.messages import FORMULA_OF_ANOTHER_DATE
from fairmfu.metrics.formula.flops import flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import ModelShape, ShapeError, from_megatron
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from tests.support.each_case import each_case
from tests.support.error_kinds import of_kind as of_error_kind
from tests.support.folders import TESTS
from tests.support.kinds import of_kind
from tests.tools.corpus import CORPUS, GENERATED

NAMES = [row.keywords["name"] for row in ERA_ROWS]
VARIANTS = TESTS / "variants"

# --- closed forms by hand -------------------------------------------------------------------

d, L, H, G, f, T, V, padded = 64, 3, 8, 2, 160, 32, 1000, 1024
"""A small model, gated, with four query heads to a key/value head; its padded vocabulary."""


def megatron(**more: object) -> ModelShape:
    arguments = {
        "hidden_size": d,
        "num_layers": L,
        "num_attention_heads": H,
        "num_key_value_heads": G,
        "ffn_hidden_size": f,
        "swiglu": True,
        "add_bias_linear": False,
        "normalization": "rmsnorm",
        "position_embedding_type": "rotary",
        "untie_embeddings_and_output_weights": True,
    } | more
    return from_megatron({key: str(value) for key, value in arguments.items()}, V)


def seen(recompute: str | None = "none", **more: object) -> SimplifiedModel:
    shape = more.pop("shape", None) or megatron()
    rest = {"T": T, "intermediate_size": None, "padded_vocab": padded} | more
    return SimplifiedModel(shape=shape, recompute=recompute, **rest)  # type: ignore[arg-type]


def closed(name: str, case: SimplifiedModel, column: str = "logged_tflops") -> float:
    return ERAS_BY_NAME[name].flops(case, column)


@pytest.mark.parametrize(("recompute", "r"), [("none", 3), ("full", 4), ("selective", 4)])
@pytest.mark.parametrize("month", ["2022-07", "2022-08", "2022-12"])
def test_microsoft_of_2022(month: str, recompute: str, r: int) -> None:
    """24 r L d d + 4 r L d T + 1.5 r d V: 24 x 3 x 3 x 4096 = 884,736 and so on, for r = 3."""
    whole = r * (24 * L * d * d + 4 * L * d * T + 1.5 * d * padded)
    assert closed(f"megatron-deepspeed-{month}", seen(recompute)) == pytest.approx(whole, rel=1e-12)
    if r == 3:
        assert whole == 884_736 + 73_728 + 294_912


def test_microsoft_of_2024_drops_key_and_value_where_four_heads_share_them() -> None:
    """2 x (2 d d L + 2 d T L + 3 d f L + d V) forward: 2 // 4 is 0."""
    forward = 2 * (L * (2 * d * d + 2 * d * T + 3 * d * f) + d * padded)
    assert forward == 2 * (24_576 + 12_288 + 92_160 + 65_536)
    for month in ("2024-08", "2024-10"):
        name = f"megatron-deepspeed-{month}"
        assert closed(name, seen("none")) == 3 * forward
        assert closed(name, seen("full")) == 4 * forward
        assert closed(name, seen("selective")) == 3 * forward + 4 * L * d * T


@pytest.mark.parametrize(("kv_heads", "squares"), [(8, 4), (4, 3), (2, 2), (1, 2)])
def test_its_integer_division(kv_heads: int, squares: int) -> None:
    case = seen(shape=megatron(num_key_value_heads=kv_heads))
    per_layer = squares * d * d + 2 * d * T + 3 * d * f
    assert closed("megatron-deepspeed-2024-10", case) == 6 * (L * per_layer + d * padded)


def test_experts_count_k_times_in_every_layer_since_2024_10() -> None:
    shape = megatron(num_experts="[4]", expert_interval=3, topk=2)
    assert [(g.count, g.moe is not None) for g in shape.layers] == [(2, False), (1, True)]
    without = 6 * (L * (2 * d * d + 2 * d * T + 3 * d * f) + d * padded)
    assert closed("megatron-deepspeed-2024-08", seen(shape=shape)) == without
    more = 6 * L * 3 * d * f
    assert closed("megatron-deepspeed-2024-10", seen(shape=shape)) == without + more


def test_megatron_lm_in_argonnes_fork() -> None:
    """12 L d d (1 + 2/8 + 32/64 + 1.5 x 160/64 + 1024/(2 x 3 x 64)), recomputing or not."""
    whole = 12 * L * d * d * (1 + 0.25 + 0.5 + 3.75 + 1024 / 384)
    for policy in ("none", "full"):
        assert closed("argonne-2025", seen(policy)) == pytest.approx(whole, rel=1e-12)
        figure = closed("argonne-2024-06", seen(policy), "logged_lm_tflops")
        assert figure == pytest.approx(whole, rel=1e-12)
    microsoft = closed("megatron-deepspeed-2022-12", seen("full"))
    assert closed("argonne-2024-06", seen("full")) == microsoft


def test_bigscience_has_32_for_24_where_gated() -> None:
    gated, plain = seen("full"), seen("full", shape=megatron(swiglu=False))
    whole = 4 * (24 * L * d * d + 4 * L * d * T + 1.5 * d * padded)
    assert closed("bigscience-2022-02", gated) == pytest.approx(whole, rel=1e-12)
    assert closed("bigscience-2022-06", gated) == pytest.approx(whole * 4 / 3, rel=1e-12)
    assert closed("bigscience-2022-06", plain) == pytest.approx(whole, rel=1e-12)


def gpt() -> ModelShape:
    """With biases, LayerNorm, learned positions and a tied lm_head, as in 2021."""
    arguments = {
        "hidden_size": d,
        "num_layers": L,
        "num_attention_heads": H,
        "max_position_embeddings": T,
    }
    return from_megatron({key: str(value) for key, value in arguments.items()}, V)


LAYER = 12 * d * d + 13 * d
"""Of GPT: d x 3d, d x d, two of d x 4d; biases of 9d; two norms of 2d."""

COPIED = 6 * d
"""Of a layer, on each rank of tensor parallelism: the norms and the biases of the two outputs."""


def test_bigscience_by_parameters_without_embeddings() -> None:
    for tensor, stages in ((1, 1), (4, 1), (4, 3)):
        case = seen("full", shape=gpt(), tensor_parallel=tensor, pipeline_parallel=stages)
        P = L * (LAYER + (tensor - 1) * COPIED) + tensor * stages * 2 * d  # noqa: N806
        for month in ("2021-12", "2022-01", "2022-01-seconds"):
            assert closed(f"bigscience-{month}", case) == 8 * P
    assert closed("bigscience-2022-01", seen("none", shape=gpt())) == 6 * (L * LAYER + 2 * d)
    assert ERAS_BY_NAME["bigscience-2021-12"].unit_of(64) == 1000
    assert ERAS_BY_NAME["bigscience-2022-01"].unit_of(64) == 1


def test_bigscience_by_all_parameters() -> None:
    P = L * LAYER + 2 * d + (padded + T) * d  # noqa: N806 - tied: the table once
    assert closed("bigscience-2021-05", seen("none", shape=gpt())) == 8 * P
    copies = L * COPIED + 2 * d + T * d
    four = seen("full", shape=gpt(), tensor_parallel=4)
    assert closed("bigscience-2021-05", four) == 8 * (P + 3 * copies)


def test_gpt_neox_until_2023() -> None:
    """6 P + 60 L d T, two tables and a norm of d in each of 2L + 1 places."""
    layer = d * d + 2 * d * 16 + d * d + 3 * d * f
    P = L * layer + 2 * padded * d + (2 * L + 1) * d  # noqa: N806
    assert closed("gpt-neox-2021", seen("full")) == 6 * P + 60 * L * d * T
    two = closed("gpt-neox-2021", seen("full", tensor_parallel=2))
    assert two - closed("gpt-neox-2021", seen("full")) == 6 * (2 * L + 1) * d
    sparse = seen(shape=megatron(num_experts="[4]", expert_interval=1, topk=2))
    with pytest.raises(ShapeError, check=of_error_kind("era-without-experts")):
        closed("gpt-neox-2021", sparse)


def test_gpt_neox_since_2023() -> None:
    layers = 24 * L * d * d + 4 * L * d * T
    assert closed("gpt-neox-2023-09", seen("full")) == pytest.approx(4 * layers, rel=1e-12)
    head = 1.5 * d * padded
    full = seen("full")
    assert closed("gpt-neox-2023-12", full) == pytest.approx(4 * (layers + head), rel=1e-12)
    hfu, mfu = (closed("gpt-neox-2023-12", full, c) for c in ("logged_hfu", "logged_mfu"))
    assert (hfu, mfu) == (
        pytest.approx(4 * (layers + head), rel=1e-12),
        pytest.approx(3 * (layers + head), rel=1e-12),
    )


def test_deepspeed_chat_divides_one_devices_work_by_the_world() -> None:
    era = ERAS_BY_NAME["deepspeed-chat-2023-08"]
    assert era.flops(seen("full")) == closed("gpt-neox-2023-12", seen("full"))
    assert era.unit_of(8) == 1 / 8
    whole = 24 * L * d * d + 4 * L * d * T + 1.5 * d * padded
    adapted = era.flops(seen("full", lora_rank=4))
    assert adapted == pytest.approx((4 - 1 + 8 / 64) * whole, rel=1e-12)


def test_the_trainer_counts_six_for_every_parameter_but_the_embedding() -> None:
    layer = 2 * d * d + 2 * d * 16 + 3 * d * f
    untied = L * layer + (2 * L + 1) * d + V * d
    assert closed("hf-trainer", seen(), "logged_total_flops") == 6 * untied
    tied = seen(shape=megatron(untie_embeddings_and_output_weights=False))
    assert closed("hf-trainer", tied, "logged_total_flops") == 6 * (untied - V * d)


# --- the path from our count ----------------------------------------------------------------

PATHS = [
    (row.keywords["name"], column)
    for row in ERA_ROWS
    for stages in [row.keywords.get("figure_stages", {})]
    for column in ("logged_tflops", "logged_mfu", *stages)
    if column in stages or row.keywords.get("stages")
]
CASES = {
    "plain": seen("full", shape=megatron(swiglu=False, num_key_value_heads=H, ffn_hidden_size=256)),
    "gated, grouped": seen("full"),
    "selective": seen("selective"),
    "tied": seen("none", shape=gpt()),
}


@each_case("case", CASES.values(), ids=CASES)
@each_case(("name", "column"), dict.fromkeys(PATHS))
def test_every_stage_is_a_count_and_the_last_is_the_closed_form(
    name: str, column: str, case: SimplifiedModel
) -> None:
    era = ERAS_BY_NAME[name]
    stages = era.stages_of(column)
    assert {stage.cause for stage in stages} <= set(GAP_CAUSES)
    counts = [stage.flops(case) for stage in stages]
    assert all(count > 0 for count in counts)
    assert counts[-1] == era.flops(case, column)


def changes(name: str, case: SimplifiedModel, column: str = "logged_tflops") -> dict[str, float]:
    """Cause to factor, of those that change anything."""
    before = flops_per_token(operators(case.shape, case.T))
    found: dict[str, float] = {}
    for stage in ERAS_BY_NAME[name].stages_of(column):
        after = stage.flops(case)
        if abs(after / before - 1) > 1e-12:
            found[stage.cause] = found.get(stage.cause, 1.0) * after / before
        before = after
    return found


def test_a_plain_model_differs_from_the_paper_in_attention_recompute_and_lm_head_only() -> None:
    plain = megatron(swiglu=False, num_key_value_heads=H, ffn_hidden_size=4 * d)
    case = seen("full", shape=plain, padded_vocab=None)
    name = "megatron-deepspeed-2022-12"
    assert set(changes(name, case)) == {"attention", "recompute"}  # at r = 4 the head is whole
    case = seen("none", shape=plain, padded_vocab=None)
    found = changes(name, case)
    assert set(found) == {"attention", "lm_head"}
    whole = 72 * L * d * d + 12 * L * d * T
    assert found["lm_head"] == pytest.approx((whole + 4.5 * d * V) / (whole + 6 * d * V), rel=1e-12)


def test_a_grouped_gated_model_differs_in_the_parts_that_equation_3_has_not() -> None:
    found = changes("megatron-deepspeed-2022-12", seen("none"))
    assert set(found) == {"attention", "kv_heads", "ffn", "vocabulary", "lm_head"}
    assert set(changes("megatron-deepspeed-2024-10", seen("full"))) == {
        *("attention", "kv_heads", "vocabulary", "recompute", "lm_head")
    }
    assert set(changes("argonne-2025", seen("full"))) == {"attention", "vocabulary"}
    wider = seen("none", shape=megatron(kv_channels=16))
    assert "head_size" in changes("megatron-deepspeed-2024-10", wider)
    sparse = seen("none", shape=megatron(num_experts="[4]", expert_interval=1, topk=2))
    assert "experts" in changes("megatron-deepspeed-2024-10", sparse)


def test_eras_have_names_of_their_own_and_follow_each_other() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for prefix in ("megatron-deepspeed-", "bigscience-", "gpt-neox-"):
        line = [ERAS_BY_NAME[name] for name in NAMES if name.startswith(prefix)]
        dated = [(era.since, era.until) for era in line]
        for (_, until), (since, _) in pairwise(dated):
            assert until is not None
            assert since is not None
            assert until <= since
    assert ERAS_BY_NAME["megatron-deepspeed-2022-12"].covers(date(2024, 3, 5))


# --- what the lines say, with no log of the public at hand ------------------------------------


def analysed(path: Path, *flags: str) -> Analysis:
    return analyse(read_log_tables(path, flag_facts=facts_from_flags(flags)))


def audits(path: Path, *flags: str) -> list[Audit]:
    """In the order of the launches."""
    found = analysed(path, *flags)
    ids = found.metrics.sort("launch")["run_id"]
    return [found.audits[run_id] for run_id in ids]


def header(**arguments: object) -> str:
    """`--set` of what a Megatron header would say."""
    return "megatron_arguments=" + json.dumps({k: str(v) for k, v in arguments.items()})


def test_the_padded_vocabulary_follows_from_its_multiple() -> None:
    path = VARIANTS / "megatron-deepspeed" / "alcf-2024-two-tflops.txt"
    small = {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "vocab_size": 32_000}
    small |= {"max_position_embeddings": 64}
    given = header(**small, make_vocab_size_divisible_by=128)
    damaged = header(**small, make_vocab_size_divisible_by="1" * 5000)
    for flags, rows in (
        ((given, "tensor_parallel=4"), 32_256),
        ((given,), None),
        ((damaged, "tensor_parallel=4"), None),
        ((given, "tensor_parallel=4", "padded_vocab_size=33000"), 33_000),
    ):
        tables = read_log_tables(path, flag_facts=facts_from_flags(flags))
        run = tables["runs"].row(0, named=True)
        facts = {f["name"]: f for f in tables["facts"].iter_rows(named=True)}
        assert formula_facts_of(run, facts).padded_vocab == rows


STAMP = (
    "[{day} 10:00:00,000] [INFO] [logging.py:69:log_dist] [Rank 0] step=1, skipped=0, lr=[0.1], "
)
SMALL = {
    "hidden_size": 1024,
    "num_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 50_304,
    "max_position_embeddings": 2048,
}
FACTS = (header(**SMALL), "seq_len=2048", "gpus=8", "global_batch_size=64", "recompute=full")


def composed(folder: Path, day: str, lines: list[str], *flags: str) -> Audit:
    """What comes of a log of these lines, stamped on a day."""
    path = folder / "run.log"
    path.write_text(
        "\n".join([STAMP.format(day=day) + "lr=[0.1], mom=[(0.9, 0.95)]", *lines]) + "\n"
    )
    return audits(path, *FACTS, *flags)[0]


def paper_by_hand(tokens_per_sequence: int) -> float:
    """24 x 4 L h h (1 + s/6h + V/16Lh) of SMALL."""
    whole = 1 + tokens_per_sequence / 6144 + 50_304 / 393_216
    return 96 * 24 * 1024 * 1024 * whole


def microsoft(iteration: int, ms: float, length: int, tflops: float) -> str:
    return (
        f" iteration {iteration:8d}/    1000 | consumed samples: {64 * iteration:12d} | elapsed "
        f"time per iteration (ms): {ms:.1f} | learning rate: 1.0E-04 | global batch size:    64 | "
        f"lm loss: 5.1E+00 | curriculum seqlen: {length:5d} | number of skipped iterations:   0 | "
        f"samples per second: {64_000 / ms:.3f} | TFLOPs: {tflops:.2f} |"
    )


def test_a_curriculums_steps_were_counted_as_long_as_configured(tmp_path: Path) -> None:
    """2022-08-08 to 2022-12-12: a step of 1,024 tokens a sequence prints as one of 2,048."""
    times = ((1, 2503.7, 512), (2, 3901.2, 1024), (3, 4002.6, 1024))
    configured = [
        microsoft(n, ms, length, paper_by_hand(2048) * 64 * 2048 / (ms / 1000 * 8 * 1e12))
        for n, ms, length in times
    ]
    own = [
        microsoft(n, ms, length, paper_by_hand(length) * 64 * length / (ms / 1000 * 8 * 1e12))
        for n, ms, length in times
    ]
    for day, lines, month in (
        ("2022-09-01", configured, "2022-08"),
        ("2022-09-01", own, "2022-07"),
        ("2023-02-01", own, "2022-12"),
        ("2023-02-01", configured, "2022-08"),
    ):
        audit = composed(tmp_path, day, lines)
        assert audit.reproduced
        assert audit.era is ERAS_BY_NAME[f"megatron-deepspeed-{month}"]
        assert audit.lines_by_column["logged_tflops"] == (3, 3)


def bigscience(iteration: int, ms: float, samples: float, tflops: float) -> str:
    return (
        f" iteration {iteration:8d}/    1000 | consumed samples: {64 * iteration:12d} | elapsed "
        f"time per iteration (ms): {ms:.1f} | learning rate: 1.0E-04 | global batch size:    64 | "
        "lm loss: 5.1E+00 | num zeros: 0.0 | number of skipped iterations:   0 | "
        f"samples per second: {samples:.3f} | TFLOPs: {tflops:.2f} |"
    )


def argonne(iteration: int, ms: float, lm: float, ds: float) -> str:
    return (
        f"[2024-11-20 10:00:01.000000][INFO][training_log:1] -  iteration={iteration:8d}/    1000 "
        f"| consumed_samples={64 * iteration:12d} | elapsed_time_per_iteration_ms={ms:.1f} | "
        "learning_rate=0.0001 | global_batch_size=   64 | lm loss=5.1 | actual_seqlen= 2048 |"
        f" samples_per_second={64_000 / ms:.3f} | tokens_per_gpu_per_second_tgs="
        f"{64_000 * 2048 / ms / 8:.3f} | [LM]TFLOPs={lm:.2f} | [DS]TFLOPs={ds:.2f} |"
    )


@pytest.mark.parametrize("era", ["argonne-2024-06", "argonne-2024-matmuls"])
def test_argonnes_second_spelling(era: str, tmp_path: Path) -> None:
    """Without the hyphen, of both of Microsoft's formulas; the model is plain, recomputing."""
    forward = 24 * (24 * 1024**2 + 4 * 1024 * 2048) + 2 * 1024 * 50_304
    microsoft = 4 * forward if era.endswith("matmuls") else paper_by_hand(2048)
    lines = [
        argonne(n, ms, *(f * 64 * 2048 / (ms / 1000 * 8 * 1e12) for f in (3 * forward, microsoft)))
        for n, ms in ((1, 2503.7), (2, 3901.2))
    ]
    audit = composed(tmp_path, "2024-11-20", lines)
    assert audit.reproduced
    assert (
        audit.lines_by_column["logged_lm_tflops"]
        == audit.lines_by_column["logged_tflops"]
        == (2, 2)
    )
    assert audit.era is ERAS_BY_NAME[era]


@pytest.mark.parametrize(
    ("day", "times", "month"), [("2021-12-20", 1000, "2021-12"), ("2022-01-10", 1, "2022-01")]
)
def test_bigsciences_thousands(day: str, times: int, month: str, tmp_path: Path) -> None:
    P = 24 * (12 * 1024**2 + 13 * 1024) + 2 * 1024  # noqa: N806
    lines = [
        bigscience(n, ms, 64 / ms, times * 8 * P * 64 * 2048 / (ms / 1000 * 8 * 1e12))
        for n, ms in ((1, 2503.7), (2, 3901.2))
    ]
    audit = composed(tmp_path, day, lines)
    assert audit.reproduced
    assert audit.era is ERAS_BY_NAME[f"bigscience-{month}"]
    assert audit.unit == times
    wrong = composed(tmp_path, day, lines, f"logged_formula=bigscience-{_other(month)}")
    assert wrong.reproduced is False
    assert wrong.hypothesis == f"the formula of bigscience-{month}"


def _other(month: str) -> str:
    return "2022-01" if month == "2021-12" else "2021-12"


def test_gpt_neox_prints_mfu_without_recomputation_and_hfu_with_it(tmp_path: Path) -> None:
    lines = []
    for n, ms in ((1, 2503.7), (2, 3901.2)):
        flops = paper_by_hand(2048) * 64 * 2048 / (ms / 1000 * 8)
        lines.append(
            f" samples/sec: {64_000 / ms:.3f} | iteration {n:8d}/    2000 | elapsed time per "
            f"iteration (ms): {ms:.1f} | learning rate: 1.0E-04 | approx flops per GPU: "
            f"{flops / 1e12:.1f}TFLOPS | MFU: {flops * 0.75 / 312e12:.2%} | HFU: "
            f"{flops / 312e12:.2%} | lm_loss: 5.1E+00 | number of skipped iterations:   0 |"
        )
    audit = composed(tmp_path, "2025-02-01", lines, "logged_peak_flops=312e12")
    assert audit.reproduced
    assert audit.era is ERAS_BY_NAME["gpt-neox-2023-12"]
    assert audit.lines_by_column == dict.fromkeys(
        ("logged_tflops", "logged_mfu", "logged_samples_per_second", "logged_hfu"), (2, 2)
    )
    wrong = composed(tmp_path, "2025-02-01", lines, "logged_peak_flops=989e12")
    assert (wrong.lines_by_column["logged_mfu"], wrong.lines_by_column["logged_tflops"]) == (
        (2, 0),
        (2, 2),
    )


PROFILE = """\
-------------------------- DeepSpeed Flops Profiler --------------------------
Profile Summary at step 6:
world size:                                                             2
batch size per GPU:                                                     4
fwd flops per GPU:                                                      1.07 G
fwd latency:                                                            12.84 ms
fwd FLOPS per GPU = fwd flops per GPU / fwd latency:                    83.71 GFLOPS
bwd latency:                                                            64.16 ms
bwd FLOPS per GPU = 3 * fwd flops per GPU / bwd latency:                50.25 GFLOPS
fwd+bwd FLOPS per GPU = 4 * fwd flops per GPU / (fwd+bwd latency):      55.82 GFLOPS
step latency:                                                           8.58 ms
iter latency:                                                           85.57 ms
FLOPS per GPU = 4 * fwd flops per GPU / iter latency:                   50.23 GFLOPS
samples/second:                                                         93.49
----------------------------- Aggregated Profile per GPU -----------------------------
------------------------------------------------------------------------------
[Rank 0] time (ms) | fwd: 12.84 | bwd: 64.16 | step: 8.58
"""


def test_the_flops_profilers_figures_follow_from_its_own(tmp_path: Path) -> None:
    """A generated profile, of a model that recomputes."""
    path = tmp_path / "run.log"
    path.write_text(PROFILE)
    audit = audits(path)[0]
    assert audit.lines_by_column == {FLOPS_FIGURE: (4, 4), SAMPLES_FIGURE: (1, 1)}
    path.write_text(PROFILE.replace("12.84 ms", "12840.00 us"))
    assert audits(path)[0].lines_by_column == audit.lines_by_column
    path.write_text(PROFILE.replace("50.25 GFLOPS", "50.55 GFLOPS").replace("93.49", "46.75"))
    assert audits(path)[0].lines_by_column == {FLOPS_FIGURE: (4, 3), SAMPLES_FIGURE: (1, 0)}
    path.write_text(PROFILE.replace("64.16 ms", "-64.16 ms"))  # timers of some accelerators fail
    assert audits(path)[0].lines_by_column[FLOPS_FIGURE] == (2, 2)


# --- every public line ------------------------------------------------------------------------

LOGS = CORPUS / "deepspeed"
public = pytest.mark.skipif(
    not LOGS.is_dir(), reason=f"NO REAL LOGS at {LOGS}: set FAIRMFU_CORPUS to their folder"
)

public_audits = cache(audits)
"""The same of logs that nobody changes: several tests look at one."""

BLOOM = (
    # bigscience-workshop/bigscience, train/tr11-176B-ml/README.md: 70 layers, 112 heads, 14336,
    # 250,680 tokens, an embedding of 250880 rows; "we use activation check-pointing"
    header(
        hidden_size=14336,
        num_layers=70,
        num_attention_heads=112,
        vocab_size=250_680,
        embed_layernorm=True,
        position_embedding_type="alibi",
    ),
    *("vocab_size=250680", "padded_vocab_size=250880", "seq_len=2048", "recompute=full"),
)
BLOOM_ERA = "bigscience-2022-06"  # undated, so the newest of two that count a plain FFN alike
BIG_104B = (
    # train/tr8b-104B/tr8b-104B-emb-norm-64n.slurm: 64 layers, 11600, 80 heads, 50,257 tokens, TP 4,
    # PP 32, 64 nodes of 4 GPUs, --checkpoint-activations, --embed-layernorm
    header(
        hidden_size=11600,
        num_layers=64,
        num_attention_heads=80,
        vocab_size=50_257,
        max_position_embeddings=2048,
        embed_layernorm=True,
    ),
    *("seq_len=2048", "recompute=full", "gpus=256", "tensor_parallel=4", "pipeline_parallel=32"),
)
ARGONNE = (
    # The same file: nl32_hs4096 in the first run's name; the second's command line has 8 key/value
    # heads, 11008 and checkpoint-activations; the tokenizer is Llama 2's
    header(
        hidden_size=4096,
        num_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        ffn_hidden_size=11008,
        swiglu=True,
        vocab_size=32_000,
        position_embedding_type="rotary",
    ),
    *("seq_len=4096", "recompute=full", "padded_vocab_size=32000"),
)

EVERY = [
    # file, facts, [(era, lines of TFLOP/s)] of each launch that prints any
    ("summit__gpt3-megatron.3328593.o", (), [("megatron-deepspeed-2022-12", 63)]),
    ("summit__gpt3-megatron.3329260.o", (), [("megatron-deepspeed-2022-12", 93)]),
    ("summit__gpt3-megatron.3351873.o", (), [("megatron-deepspeed-2022-12", 38)]),
    ("starksim__qwen7b_freq_500.log", (), [("megatron-deepspeed-2024-10", 500)]),
    ("starksim__tp1pp4dp4_static_seq_20260316.log", (), [("megatron-deepspeed-2024-10", 50)] * 3),
    (
        "starksim__ib_dual4_common_qwen3b_tp1pp2dp4_20260419_manifest_20260419_163606.txt",
        (),
        [("megatron-deepspeed-2024-10", 20)] * 4,
    ),
    ("xmoe__xmoe-base-v1-n8-EP8.log", (), [("megatron-deepspeed-2024-10", 48)]),
    ("neox__70M_0_59807588.out", (), [("gpt-neox-2023-09", 1024)]),
    ("neox__llemma-f-0.1-main_0_62635162.out", (), [("gpt-neox-2021", 2000)]),
    (
        "alcf__deprecated.md",
        ARGONNE,
        [("argonne-2024-06", 1), *[("megatron-deepspeed-2022-12", 2)] * 2],
    ),
    (
        "alcf__README_samanta.md",
        ARGONNE,
        [("argonne-2024-06", 1), *[("megatron-deepspeed-2022-12", n) for n in (2, 4)]],
    ),
    ("bigscience__meg_ds_zero_gpt2_perf_n16-1999616.out", (), [("bigscience-2021-05", 4)]),
    ("bigscience__meg_ds_zero_gpt2_perf_n16_nbs48_ms48.out", (), [("bigscience-2021-05", 3)]),
    ("bigscience__tr8b-104B__chronicles.md", BIG_104B, [("bigscience-2022-01", 11)]),
    (
        "bigscience__tr11-176B-ml__chronicles.md",
        (*BLOOM, "gpus=384"),
        [(BLOOM_ERA, 18)],
    ),
    ("bigscience__tr11-176B-ml__README.md", (*BLOOM, "gpus=384"), [(BLOOM_ERA, 1)]),
    (
        "dschat__step2_dpo_finetuning__opt-350M_globalBatchSize-32.log",
        ("model=opt-350m",),  # its launcher's line: --model_name_or_path facebook/opt-350m
        [("deepspeed-chat-2023-08", 4708)],
    ),
]


@public
@pytest.mark.parametrize(("name", "flags", "launches"), EVERY, ids=[row[0] for row in EVERY])
def test_every_line_is_reproduced(
    name: str, flags: tuple[str, ...], launches: list[tuple[str, int]]
) -> None:
    found = [
        audit
        for audit in public_audits(LOGS / name, *flags)
        if "logged_tflops" in audit.lines_by_column
    ]
    assert [(a.era and a.era.name, a.lines_by_column["logged_tflops"]) for a in found] == [
        (era, (lines, lines)) for era, lines in launches
    ]
    for audit in found:
        assert audit.reproduced
        assert all(ok == lines for lines, ok in audit.lines_by_column.values())
        assert audit.flops_low is not None
        assert audit.flops_high is not None
        assert (
            audit.flops_low <= (audit.flops_per_token or 0) <= audit.flops_high
        )  # of all lines together


@public
def test_argonnes_line_has_both_of_its_numbers() -> None:
    audit = public_audits(LOGS / "alcf__deprecated.md", *ARGONNE)[0]
    assert audit.lines_by_column["logged_lm_tflops"] == (1, 1)


@public
@pytest.mark.parametrize(("launch", "gpus"), [*enumerate((192, 192, 192, 192, 288, 288, 288))])
def test_bloom_on_other_numbers_of_nodes(launch: int, gpus: int) -> None:
    """Sections of its reshaping log: 24 nodes of 8 in four of them, 36 in three."""
    path = LOGS / "bigscience__tr11-176B-ml__reshaping-log.md"
    audit = public_audits(path, *BLOOM, f"gpus={gpus}")[launch]
    assert audit.reproduced
    assert audit.era is ERAS_BY_NAME[BLOOM_ERA]


@public
@pytest.mark.parametrize("launch", range(6))
def test_the_prequel_prints_by_parameters(launch: int) -> None:
    """2022-02-17, fp16 then bf16, each of 20B (8 layers, 8 GPUs) and 200B (80 layers, 80, 160)."""
    layers, heads, gpus, stages = ((8, 32, 8, 1), (80, 96, 80, 10), (80, 96, 160, 10))[launch % 3]
    model = header(
        hidden_size=14400,
        num_layers=layers,
        num_attention_heads=heads,
        vocab_size=250_000,
        embed_layernorm=True,
        position_embedding_type="alibi",
    )
    rest = (f"gpus={gpus}", f"pipeline_parallel={stages}", "tensor_parallel=8", "recompute=full")
    path = LOGS / "bigscience__tr11-176B-ml__chronicles-prequel.md"
    audit = public_audits(path, model, *rest, "seq_len=2048")[launch]
    assert audit.reproduced
    assert audit.era is ERAS_BY_NAME["bigscience-2022-01-seconds"]


@public
def test_llemma_is_warned_of_and_pythia_is_not() -> None:
    """A checkout of 2023 that ran in 2024."""
    found = analysed(LOGS / "neox__llemma-f-0.1-main_0_62635162.out").metrics
    assert of_kind(found.row(0, named=True), FORMULA_OF_ANOTHER_DATE) == [
        "The logged figures match the formula of gpt-neox-2021 (? to 2023-09-27), but the log is "
        "from 2024-02-11."
    ]
    dated = analysed(LOGS / "neox__70M_0_59807588.out").metrics
    assert not of_kind(dated.row(0, named=True), FORMULA_OF_ANOTHER_DATE)


@public
def test_the_pipeline_engine_and_the_timer() -> None:
    pipeline = public_audits(LOGS / "seekpoint__pipeline_alexnet.log")[0]
    assert pipeline.lines_by_column == {"logged_samples_per_second": (20, 20)}
    timer = public_audits(
        LOGS / "dschat__step1_supervised_finetuning__opt-1.3b-globalBatchSize128.log"
    )[0]
    assert timer.lines_by_column == {}
    assert timer.reproduced is None
    assert "does not print the time that it divides by" in timer.not_compared_reason


WRONG = [
    # a wrong fact, and what must be named in its place
    ("summit__gpt3-megatron.3328593.o", "recompute=none", "recompute=full"),
    ("neox__70M_0_59807588.out", "seq_len=1024", "seq_len=2,048"),
    ("starksim__qwen7b_freq_500.log", "gpus=8", None),
    ("neox__70M_0_59807588.out", "logged_formula=gpt-neox-2021", "the formula of gpt-neox-2023-09"),
    (
        "neox__llemma-f-0.1-main_0_62635162.out",
        "logged_formula=gpt-neox-2023-12",
        "the formula of gpt-neox-2021",
    ),
    ("starksim__qwen7b_freq_500.log", "padded_vocab_size=151643", None),
]


@public
@pytest.mark.parametrize(("name", "flag", "hypothesis"), WRONG)
def test_a_wrong_fact_fails_and_the_right_one_is_named(
    name: str, flag: str, hypothesis: str | None
) -> None:
    audit = public_audits(LOGS / name, flag)[0]
    assert audit.reproduced is False
    if hypothesis is not None:
        assert audit.hypothesis == hypothesis


@public
def test_a_length_that_the_lines_contradict_is_not_proven() -> None:
    path = LOGS / "summit__gpt3-megatron.3328593.o"
    right, wrong = public_audits(path)[0], public_audits(path, "seq_len=1024")[0]
    assert right.reproduced
    assert wrong.reproduced  # by the length that the lines print
    assert set(right.proven) - set(wrong.proven) == {"seq_len"}


# --- the Trainer's total_flos -----------------------------------------------------------------

TINY = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}


def test_total_flos_is_compared_where_the_tokens_are_printed(tmp_path: Path) -> None:
    """6 x 20,480 tokens x 918,656 parameters without the embedding."""
    history = [
        {"step": 35, "epoch": 0.1, "loss": 6.1, "num_input_tokens_seen": 17_920},
        {"step": 40, "epoch": 0.2, "loss": 6.0, "num_input_tokens_seen": 20_480},
        {
            "step": 40,
            "epoch": 0.2,
            "total_flos": 6.0 * 20_480 * 918_656,
            "train_loss": 6.5,
            "train_runtime": 4.1,
            "train_samples_per_second": 31.0,
        },
    ]
    path = tmp_path / "trainer_state.json"
    config = f"model_config={json.dumps(TINY)}"
    path.write_text(json.dumps({"log_history": history, "max_steps": 40}, indent=2))
    audit = audits(path, config)[0]
    assert audit.lines_by_column == {"logged_total_flops": (1, 1)}
    assert audit.reproduced
    history[-1]["total_flos"] *= 4 / 3
    path.write_text(json.dumps({"log_history": history, "max_steps": 40}, indent=2))
    assert audits(path, config)[0].reproduced is False
    for entry in history:
        entry.pop("num_input_tokens_seen", None)
    path.write_text(json.dumps({"log_history": history, "max_steps": 40}, indent=2))
    assert audits(path, config)[0].not_compared_reason.endswith(
        "not compared: tokens since the start"
    )


@pytest.mark.skipif(not GENERATED.is_dir(), reason=f"NO GENERATED LOGS at {GENERATED}")
def test_under_zero_3_the_trainer_counts_what_is_not_partitioned() -> None:
    """lm_head has 131,072 elements, above ZeRO-3's threshold of 100,000: there it has none."""
    path = GENERATED / "deepspeed/hf_np1_s3_recompute_tokens/hf_out/trainer_state.json"
    audit = audits(path, f"model_config={json.dumps(TINY)}")[0]
    assert audit.lines_by_column == {"logged_total_flops": (1, 0)}
    assert audit.unexplained == pytest.approx((918_656 - 131_072) / 918_656, rel=1e-9)
