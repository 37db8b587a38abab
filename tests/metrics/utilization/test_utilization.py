"""From facts and a rate to MFU, or to the name of what is missing."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.utilization.messages import (
    BF16_HIDDEN,
    FULL_ATTENTION_HIDDEN,
    MFU_IMPLAUSIBLE,
    MFU_IMPOSSIBLE,
    MTP_MODULES_UNKNOWN,
    OTHER_OBJECTIVE,
    OTHER_PEAK,
    SHAPE_UNKNOWN,
    UNKNOWN_LOGGED_MODEL,
)
from fairmfu.metrics.utilization.utilization import operator_table, score_utilization
from tests.metrics.utilization.test_formula_inputs import OF_8B

LLAMA = {
    "model": "llama3-8b",
    "seq_len": "8192",
    "trainable": "full",
    "precision": "bf16",
    "accelerator": "NVIDIA H100 80GB HBM3",
    "recompute": "full",
}
F = 51_471_187_968.0


def held(**changes: str | None) -> dict[str, dict[str, Any]]:
    values = {name: value for name, value in (LLAMA | changes).items() if value is not None}
    return {
        name: {"name": name, "value": value, "origin": "flag", "line": None}
        for name, value in values.items()
    }


def rate(tgs: float | None = 6400.0) -> dict[str, Any]:
    return {"tgs": tgs, "attention_ratio": None}


def test_mfu_is_tgs_times_flops_over_peak() -> None:
    out = score_utilization(held(), rate())
    assert out.missing == []
    assert out.values["mfu"] == pytest.approx(6400 * F / 989.4e12)
    assert out.values["peak_flops"] == pytest.approx(989.4e12)
    assert out.values["mfu"] < out.values["mfu_full_attention"]
    assert "mfu_conservative" not in out.values


@pytest.mark.parametrize("name", ["model", "seq_len", "trainable", "precision", "accelerator"])
def test_each_missing_fact_is_named_and_leaves_no_figure(name: str) -> None:
    out = score_utilization(held(**{name: None}), rate())
    assert name in out.missing
    assert "mfu" not in out.values


def test_an_unknown_device_gives_no_mfu_and_says_what_to_set() -> None:
    out = score_utilization(held(accelerator="NVIDIA H20Z"), rate())
    assert out.missing == ["peak_flops"]
    assert "peak_flops=" in out.warnings[0]
    assert out.values["flops_per_token"] == F
    assert "mfu" not in out.values


def test_a_peak_given_by_hand_serves_an_unknown_device() -> None:
    out = score_utilization(held(accelerator="NVIDIA H20Z", peak_flops="500e12"), rate())
    assert out.values["mfu"] == pytest.approx(6400 * F / 500e12)


def test_an_unknown_model_gives_no_flops_and_names_the_nearest() -> None:
    out = score_utilization(held(model="llama-9-8b"), rate())
    assert "flops_per_token" not in out.values
    assert "model_config" in out.missing
    assert "Nearest known" in out.warnings[0]


def test_another_objective_has_no_flops_by_the_formula() -> None:
    out = score_utilization(held(objective="preference"), rate())
    assert (out.missing, out.warnings[0].kind) == ([], OTHER_OBJECTIVE.identifier)
    assert "objective=preference" in out.warnings[0]
    assert not {"flops_per_token", "mfu"} & set(out.values)
    assert (
        score_utilization(held(objective="language_modeling"), rate()).values["flops_per_token"]
        == F
    )


def test_modules_of_multi_token_prediction_are_work() -> None:
    alone, ahead = (score_utilization(held(mtp_modules=n), rate()).values for n in ("0", "2"))
    d, vocabulary, layer = 4096, 128_256, (F - 6 * 4096 * 128_256) / 32
    assert alone["flops_per_token"] == F
    assert ahead["flops_per_token"] == F + 2 * (12 * d * d + layer + 6 * d * vocabulary)
    assert ahead["model"] == alone["model"]
    assert ahead["work"] == alone["work"]
    assert (alone["trained"], ahead["trained"]) == ("full", "full with 2 MTP modules")


def test_a_loss_of_unknown_modules_of_multi_token_prediction_leaves_no_flops() -> None:
    out = score_utilization(held(mtp_trained="true"), rate())
    assert out.missing == ["mtp_modules"]
    assert out.warnings[0].kind == MTP_MODULES_UNKNOWN.identifier
    assert "Fix: fairmfu set RUN mtp_modules=" in out.warnings[0]
    assert not {"flops_per_token", "mfu"} & set(out.values)
    assert score_utilization(held(mtp_trained="true", mtp_modules="1"), rate()).missing == []


def test_parameters_that_a_log_counts_hold_those_of_multi_token_prediction() -> None:
    d, layer = 4096, 218_112_000
    counted = str(8_030_261_248 + 2 * d * d + 3 * d + layer)
    assert score_utilization(held(params_total=counted, mtp_modules="1"), rate()).missing == []
    assert score_utilization(held(params_total=counted), rate()).missing == ["model_config"]


def test_more_than_training_is_known_to_reach_is_doubted() -> None:
    for tgs, doubted in ((16_500.0, True), (15_000.0, False)):
        out = score_utilization(held(), rate(tgs))
        assert out.values["mfu"] == pytest.approx(tgs * F / 989.4e12)
        told = [words for words in out.warnings if words.kind == MFU_IMPLAUSIBLE.identifier]
        assert bool(told) is doubted
        assert not told or f"MFU {out.values['mfu']:.1%} is not plausible" in told[0]
        assert {words.effect for words in told} <= {"doubt"}


def test_a_hidden_figure_of_full_attention_hides_no_doubt() -> None:
    """Long sequences: 90 % of the peak, and 121 % with all pairs, had a note on the pairs only."""
    long = held(seq_len="131072")
    for_one = score_utilization(long, rate(1000.0)).values["mfu"]
    out = score_utilization(long, rate(0.9 / for_one * 1000))
    assert "mfu_full_attention" not in out.values
    kinds = {words.kind for words in out.warnings}
    assert {MFU_IMPLAUSIBLE.identifier, FULL_ATTENTION_HIDDEN.identifier} <= kinds


def test_above_100_percent_is_implied_and_never_published() -> None:
    out = score_utilization(held(), rate(20_000.0))
    assert "mfu" not in out.values
    assert out.values["implied"] == pytest.approx(20_000 * F / 989.4e12)
    assert out.warnings[0].kind == MFU_IMPOSSIBLE.identifier
    assert "would be 104%" in out.warnings[0]


@pytest.mark.parametrize(
    ("tgs", "facts", "cause"),
    [
        (51_200.0, {"gpus": "8"}, "world size"),
        (6400.0 * 1000, {}, "x 1000"),
        (12_800.0 * 16, {"gradient_accumulation": "16"}, "accumulation"),
        (25_000.0, {}, "x 2"),
    ],
)
def test_the_likely_unit_error_is_named(tgs: float, facts: dict[str, str], cause: str) -> None:
    (warning,) = score_utilization(held(**facts), rate(tgs)).warnings
    assert "likely" in warning
    assert cause in warning


@pytest.mark.parametrize(
    ("mfu", "cause", "is_named"),
    [
        (1.06, "x 4/3", True),  # 0.795
        (1.07, "x 4/3", False),  # 0.8025
        (1.599, "x 2", True),
        (1.601, "x 2", False),
        (20.01, "x 1000", True),  # 0.02001: real runs reach 2 to 80 %
        (19.99, "x 1000", False),
        (799.9, "x 1000", True),
        (800.1, "x 1000", False),
        (1.59, "world size", True),
        (1.61, "world size", False),
    ],
)
def test_a_unit_error_is_likely_where_real_training_reaches_what_is_left(
    mfu: float, cause: str, *, is_named: bool
) -> None:
    out = score_utilization(held(gpus="2"), rate(mfu * 989.4e12 / F))
    assert out.values["implied"] == pytest.approx(mfu)
    assert (cause in out.warnings[0]) is is_named
    assert ("no usual unit error explains it" in out.warnings[0]) is (
        "likely" not in out.warnings[0]
    )


def test_a_rate_of_nothing_uses_nothing() -> None:
    assert score_utilization(held(), rate(0.0)).values["mfu"] == 0


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_linear_attention_leaves_no_hfu(recompute: str) -> None:
    """Its kernel decides what is executed."""
    values = score_utilization(
        held(model="qwen3-next-80b-a3b", recompute=recompute), rate(400.0)
    ).values
    assert values["mfu"] > 0
    assert not {"hfu_low", "hfu_high"} & values.keys()


def test_the_formula_is_shown_by_operator() -> None:
    table = operator_table(held(precision="fp8"), rate())
    assert table["flops_per_token"].sum() == pytest.approx(F)
    assert table["share"].sum() == pytest.approx(1)
    dtypes = dict(table.select("operator", "dtype").iter_rows())
    assert (dtypes["ffn"], dtypes["lm_head"]) == ("fp8", "bf16")
    assert operator_table(held(precision=None), rate())["dtype"].unique().to_list() == [None]
    assert operator_table(held(model=None), rate()).height == 0
    assert operator_table(held(model=None), rate()).columns == table.columns


def test_fp8_has_three_figures_and_the_weighted_one_lies_between() -> None:
    values = score_utilization(held(precision="fp8"), rate(9000.0)).values
    assert values["mfu_conservative"] < values["mfu"] < values["mfu_bf16"]
    assert values["mfu_bf16"] == pytest.approx(9000 * F / 989.4e12)
    # Core attention and lm_head stay in bf16.
    attention, head = 3 * 32 * 4 * 4096 * 4096.5, 3 * 2 * 4096 * 128256
    ideal = (F - attention - head) / 1978.9e12 + (attention + head) / 989.4e12
    assert values["mfu"] == pytest.approx(9000 * ideal, rel=1e-4)
    # Torchtitan's Float8 converts it too.
    values = score_utilization(held(precision="fp8+lm_head"), rate(9000.0)).values
    ideal += head / 1978.9e12 - head / 989.4e12
    assert values["mfu"] == pytest.approx(9000 * ideal, rel=1e-4)


PRECISIONS = ["fp32", "tf32", "fp16", "bf16", "fp8", "fp8+lm_head", "mxfp8"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-20b"])
def test_the_bf16_peak_is_one_yardstick_for_all_precisions(precision: str, model: str) -> None:
    """Both attentions are held against it, whatever the run's own number format."""
    values = score_utilization(held(precision=precision, model=model), rate(400.0)).values
    exact, full = values["flops_per_token"], values["flops_per_token_full_attention"]
    assert values["mfu_bf16"] == pytest.approx(400 * exact / 989.4e12)
    ratio = values["mfu_bf16_full_attention"] / values["mfu_bf16"]
    assert ratio == pytest.approx(full / exact, rel=1e-12)
    if precision == "bf16":
        assert values["mfu_bf16"] == values["mfu"]
        assert values["mfu_bf16_full_attention"] == values["mfu_full_attention"]


@pytest.mark.parametrize(
    "facts",
    [
        {"accelerator": "NVIDIA V100", "precision": "fp16"},
        {"peak_flops": "1e15", "precision": "fp16"},
    ],
)
def test_a_device_without_a_bf16_peak_has_none(facts: dict[str, str]) -> None:
    values = score_utilization(held(**facts), rate(400.0)).values
    assert values["mfu"] > 0
    assert not {"mfu_bf16", "mfu_bf16_full_attention"} & values.keys()


SHARES = ("mfu", "mfu_full_attention", "mfu_bf16", "mfu_bf16_full_attention", "mfu_conservative")


FACTS = st.fixed_dictionaries(
    {
        "precision": st.sampled_from(PRECISIONS),
        "accelerator": st.sampled_from(["H100", "A100", "H20", "MI300X"]),
        "model": st.sampled_from(["llama3-8b", "gpt-oss-20b"]),
        "document_mask": st.sampled_from(["true", "false"]),
        "attended_pairs": st.none() | st.floats(1, 4096).map(str),
    }
)


@given(tgs=st.floats(1, 1e5), facts=FACTS)
def test_nothing_above_100_percent_is_published(tgs: float, facts: dict[str, str | None]) -> None:
    out = score_utilization(held(**facts), rate(tgs))
    published = {name: out.values[name] for name in SHARES if name in out.values}
    assert all(0 < value <= 1 for value in published.values())
    if "mfu" in published and "peak_flops" not in out.missing and "mfu_bf16" not in published:
        hidden = [one for one in out.warnings if one.kind == BF16_HIDDEN.identifier]
        assert any(one.startswith("MFU (BF16 peak) would be ") for one in hidden)
    if "implied" in out.values:
        assert published == {}


def test_fp8_beyond_the_bf16_peak_is_said_and_not_shown() -> None:
    """Of FP8 the MFU is possible where that by the BF16 peak is not."""
    out = score_utilization(held(precision="fp8"), rate(21_000.0))
    assert 0.5 < out.values["mfu"] < 1
    assert not {"mfu_bf16", "mfu_bf16_full_attention"} & out.values.keys()
    (warning,) = (w for w in out.warnings if "BF16 peak" in w)
    assert warning == (
        "MFU (BF16 peak) would be 109% and is hidden: the run's own precision has a higher peak."
    )


def test_full_attention_alone_may_be_beyond_the_bf16_peak() -> None:
    out = score_utilization(held(precision="fp8"), rate(18_000.0))
    assert out.values["mfu_bf16"] < 1
    assert "mfu_bf16_full_attention" not in out.values
    assert [w for w in out.warnings if w.startswith("MFU (full attention, BF16 peak)")]


def test_masked_documents_of_unknown_length_leave_full_attention_on_both_peaks() -> None:
    values = score_utilization(held(document_mask="true", precision="fp8"), rate()).values
    assert not {"mfu", "mfu_bf16", "mfu_conservative"} & values.keys()
    assert 0 < values["mfu_full_attention"] < values["mfu_bf16_full_attention"] < 1


@pytest.mark.parametrize(
    ("precision", "peaks"), [("bf16", "bf16 989.4"), ("fp8", "fp8 1,978.9 and bf16 989.4")]
)
def test_the_peak_says_where_it_is_from(precision: str, peaks: str) -> None:
    source = score_utilization(held(precision=precision), rate()).values["peak_source"]
    assert source == (
        f"NVIDIA H100 SXM: dense {peaks} TFLOP/s per GPU; confidence high; source: stas "
        "(github.com/stas00/ml-engineering@744d01e1 compute/accelerator/README.md, TFLOPS): "
        "132 SM x 4 tensor cores x 512 FMA x 2 x 1.83 GHz = 989.43; note: 1979 bf16 "
        "and 3958 fp8 are sparse. Meta's HBM2e board (95 GiB) is this one too"
    )


def test_a_peak_given_by_hand_says_so() -> None:
    values = score_utilization(held(peak_flops="500e12"), rate()).values
    assert values["peak_source"] == "given: peak_flops, dense bf16 500 TFLOP/s (flag)"


def test_a_given_peak_that_is_not_the_known_devices_is_doubted() -> None:
    sparse = score_utilization(held(peak_flops="1979e12"), rate())
    assert sparse.warnings[0].kind == OTHER_PEAK.identifier
    assert (
        "peak_flops=1,979 TFLOP/s, 2.00x the dense bf16 peak of NVIDIA H100 SXM (989.4)."
        in sparse.warnings[0]
    )
    assert score_utilization(held(peak_flops="990e12"), rate()).warnings == []
    assert (
        score_utilization(held(accelerator="NVIDIA H20Z", peak_flops="5e14"), rate()).warnings == []
    )


@pytest.mark.parametrize(
    "facts", [{"precision": None}, {"accelerator": None}, {"accelerator": "NVIDIA V100"}]
)
def test_an_unknown_peak_has_no_source(facts: dict[str, str | None]) -> None:
    assert score_utilization(held(**facts), rate()).values.get("peak_source") is None


def test_a_quantised_log_with_an_inferred_precision_is_asked_about() -> None:
    facts = held(quantization="Swapped to Float8Linear layers")
    facts["precision"]["origin"] = "inferred: default"
    out = score_utilization(facts, rate())
    assert out.missing == ["precision"]
    assert "mfu" not in out.values


def test_fp32_from_a_log_asks_whether_tf32_was_on() -> None:
    facts = held(precision="fp32")
    facts["precision"]["origin"] = "log:7"
    assert score_utilization(facts, rate()).missing == ["precision"]
    assert score_utilization(held(precision="fp32"), rate(100.0)).values["mfu"] > 0


def test_hfu_counts_recomputation_as_an_interval() -> None:
    full, none = (
        score_utilization(held(), rate()).values,
        score_utilization(held(recompute="none"), rate()).values,
    )
    assert full["mfu"] < full["hfu_low"] < full["hfu_high"] < full["mfu"] * 4 / 3
    assert none["hfu_low"] == none["hfu_high"] == pytest.approx(none["mfu"])
    assert "hfu_low" not in score_utilization(held(recompute="selective"), rate()).values


def test_masked_documents_of_unknown_length_bound_the_figure() -> None:
    out = score_utilization(held(document_mask="true"), rate())
    assert "mfu" not in out.values
    assert out.values["mfu_full_attention"] > 0
    assert "at most" in out.warnings[0]
    assert (
        score_utilization(held(document_mask="true", attended_pairs="500"), rate()).values["mfu"]
        > 0
    )


def test_padded_samples_of_unknown_length_bound_the_figure() -> None:
    facts = held(packed="false", gpus="8", global_batch_size="16")
    mean = score_utilization(held(seq_len="600"), rate()).values["mfu"]
    most = score_utilization(held(), rate()).values["mfu"]
    of_600 = rate() | {"tokens_per_gpu_step": 600 * 16 / 8}
    out = score_utilization(facts, of_600)
    assert out.missing == ["attended_pairs"]
    assert not {"mfu", "mfu_full_attention", "hfu_low"} & out.values.keys()
    assert f"{mean:.1%} (all as long as the mean) to {most:.1%}" in out.warnings[0]
    filled = rate() | {"tokens_per_gpu_step": 8192 * 16 / 8}
    for said in (
        score_utilization(facts, filled),
        score_utilization(facts | held(packed="true"), of_600),
    ):
        assert said.values["mfu"] == most
    uncounted = score_utilization(held(packed="false"), rate())
    assert f"at most {most:.1%}" in uncounted.warnings[0]
    printed = score_utilization(facts, of_600 | {"sequence_length": 600.0}).values["mfu"]
    assert printed == pytest.approx(mean)


def test_the_pairs_of_documents_give_the_flops() -> None:
    whole = score_utilization(held(document_mask="true"), of_documents(4096.5)).values
    halves = score_utilization(held(document_mask="true"), of_documents(2048.5)).values
    assert whole["flops_per_token"] == F
    # Two documents of 4,096 in each pack: (4096 + 1) / 2 pairs instead of (8192 + 1) / 2.
    assert F - halves["flops_per_token"] == pytest.approx(3 * 32 * 4 * 4096 * 2048)


def test_pairs_between_bounds_that_lie_apart_give_bounds_of_the_mfu() -> None:
    near = score_utilization(held(), of_documents(2000.0, 2010.0)).values
    between = score_utilization(held(), of_documents(2005.0)).values
    assert near["mfu"] == between["mfu"]
    apart = score_utilization(held(), of_documents(500.0, 2048.5))
    assert "mfu" not in apart.values
    assert apart.missing == ["attended_pairs"]
    least, most = (
        score_utilization(held(), of_documents(pairs)).values["mfu"] for pairs in (500.0, 2048.5)
    )
    assert f"MFU is {least:.1%} to {most:.1%}" in apart.warnings[0]


def of_documents(*pairs: float) -> dict[str, Any]:
    return rate() | {"document_pairs": [pairs[0], pairs[-1]]}


@pytest.mark.parametrize(
    ("facts", "pairs", "missing"),
    [
        ({"attended_pairs": "99999"}, None, ["attended_pairs"]),
        ({"attended_pairs": "0.1"}, None, ["attended_pairs"]),
        ({"document_mask": "true"}, 8193.0, ["attended_pairs"]),
        ({"document_mask": "true"}, math.nan, ["attended_pairs"]),
        ({"attended_pairs": "1"}, None, []),
        ({"attended_pairs": "8192"}, None, []),
    ],
)
def test_pairs_that_no_pack_has_give_no_flops(
    facts: dict[str, str], pairs: float | None, missing: list[str]
) -> None:
    known = {} if pairs is None else of_documents(pairs)
    out = score_utilization(held(**facts), rate() | known)
    assert out.missing == missing
    assert ("flops_per_token" in out.values) is not bool(missing)


@pytest.mark.parametrize(
    ("flavour", "masked"),
    [
        ("llama3 8B_varlen", True),
        ("llama3 8B-flex", True),
        ("llama3 8B", False),
        ("llama4 17bx16e", True),
    ],
)
def test_a_flavour_that_masks_documents_leaves_their_lengths_open(
    flavour: str, *, masked: bool
) -> None:
    out = score_utilization(held(model=flavour), rate())
    assert any("at most" in warning for warning in out.warnings) is masked
    said = score_utilization(held(model=flavour, document_mask="false"), rate())
    assert not any("at most" in warning for warning in said.warnings)


def test_a_model_that_hears_has_no_flops_of_its_text() -> None:
    config = {"model_type": "qwen2_audio", "audio_config": {"d_model": 1280}}
    text = {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "vocab_size": 9999}
    text |= {"num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864}
    for one, known in ((text, True), (text | config | {"model_type": "qwen2"}, False)):
        out = score_utilization(held(model=None, model_config=json.dumps(one)), rate())
        assert ("flops_per_token" in out.values) is known


def test_the_mean_length_of_steps_is_enough_for_flops() -> None:
    printed = rate() | {"sequence_length": 4096.2}
    known, unsaid = (score_utilization(held(seq_len=length), printed) for length in ("4096", None))
    assert not unsaid.missing
    assert unsaid.values["flops_per_token"] == known.values["flops_per_token"]


def test_steps_without_length_give_no_flops() -> None:
    out = score_utilization(held(), rate() | {"sequence_length": 0.0})
    assert out.missing == ["seq_len"]
    assert "flops_per_token" not in out.values


def test_targets_that_the_model_has_not_are_missing_and_named() -> None:
    out = score_utilization(
        held(trainable="lora", lora_rank="16", lora_targets="q_proj, c_attn_9"), rate()
    )
    assert out.missing == ["lora_targets"]
    assert "no projection 'c_attn_9'" in out.warnings[0]
    assert "mfu" not in out.values


def test_lora_needs_its_rank_and_costs_less_than_full_training() -> None:
    assert score_utilization(held(trainable="lora"), rate()).missing == [
        "lora_rank",
        "lora_targets",
    ]
    lora = score_utilization(
        held(trainable="lora", lora_rank="16", lora_targets="q_proj, v_proj"), rate()
    )
    assert lora.values["flops_per_token"] / F == pytest.approx(0.70, abs=0.03)


def test_the_logged_parameter_count_checks_the_model() -> None:
    assert score_utilization(held(params_total="8030261248"), rate()).warnings == []
    wrong = score_utilization(held(params_total="7000000000"), rate())
    assert "mfu" not in wrong.values
    assert wrong.missing == ["model_config"]
    assert "or model=" not in " ".join(wrong.warnings)
    other = score_utilization(held(params_total="6738415616"), rate())
    assert ", or model=llama-2-7b or llama-7b (same number of parameters)" in " ".join(
        other.warnings
    )


def test_the_best_origin_decides_between_two_descriptions_of_the_model() -> None:
    facts = held(model_config='{"model_type": "llama"}')
    facts["model_config"]["origin"] = "companion:config.json"
    assert score_utilization(facts, rate()).values["flops_per_token"] == F


def test_a_name_that_is_not_known_leaves_the_model_to_a_config_beside_the_log() -> None:
    """XTuner and the Trainer print the path that a model was loaded from."""
    facts = held(model="../assets/my-llama", model_config=json.dumps(OF_8B))
    facts["model"]["origin"], facts["model_config"]["origin"] = "log:61", "companion:config.json"
    out = score_utilization(facts, rate())
    assert out.values["flops_per_token"] == F
    assert out.warnings == [
        "The logged model name '../assets/my-llama' is unknown, so the shape comes from "
        "config.json beside the log."
    ]
    facts["model"]["origin"] = "flag"  # a typo of the user's is none of the log's business
    out = score_utilization(facts, rate())
    assert out.missing == ["model_config"]
    assert "The model '../assets/my-llama' is unknown" in out.warnings[0]
    broken = held(model="../assets/my-llama", model_config='{"model_type": "llama"}')
    broken["model"]["origin"] = "log:61"
    broken["model_config"]["origin"] = "companion:config.json"
    unknown = score_utilization(broken, rate()).warnings[-1]
    assert unknown.kind == SHAPE_UNKNOWN.identifier
    assert "The llama config: 'num_attention_heads' is missing" in unknown


@pytest.mark.parametrize(
    ("name", "is_other"),
    [
        ("/data/my-8b-sft", False),
        ("/data/72b/mine", False),  # a folder of others
        ("Qwen2.5-72B-mine/", True),
        ("mine-8x7B", True),
        ("mine-350m", True),
        ("mine-72b-draft-8b", False),
        ("mine-v8.2b1", False),
    ],
)
def test_a_config_of_another_size_than_the_name_says_is_another_models(
    name: str, *, is_other: bool
) -> None:
    """One config.json lies beside the logs of many models."""
    config = OF_8B | {"_name_or_path": "meta-llama/Meta-Llama-3-8B"}
    facts = held(model=name, model_config=json.dumps(config))
    facts["model"]["origin"], facts["model_config"]["origin"] = "log:61", "companion:config.json"
    out = score_utilization(facts, rate())
    assert out.warnings[0].kind == UNKNOWN_LOGGED_MODEL.identifier
    assert f"name {name!r} is unknown" in out.warnings[0]
    assert out.warnings[0].endswith("beside the log, which calls it 'meta-llama/Meta-Llama-3-8B'.")
    assert out.missing == (["model_config"] if is_other else [])
    assert ("may belong to another model" in out.warnings[-1]) is is_other
