"""The calculator: FLOPs, rates and times of a model without a log."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.metrics.formula.model_shapes import find_model
from fairmfu.metrics.pipeline.calculator import (
    Question,
    answer,
    ask,
    compare_with_other_tools,
    parse_amount,
    parse_image_size,
    parse_lengths,
    parse_printed,
)
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

F = 51_471_187_968
CONFIG = ROOT / "sample_logs/genuine/xtuner-0.2.0/llama-1rank-fp32/config.json"


def asked(**more: object) -> dict:
    return answer(Question(shape=find_model("llama3-8b"), seq_len=8192, **more))


def command(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["flops", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_has_the_keys_of_the_contract() -> None:
    out = json.loads(command("llama3-8b", "--seq-len", 8192, "--format", "json"))
    assert out["model"] == "llama-3-8b"
    assert out["params_total"] == 8_030_261_248
    assert out["flops_per_token"] == F
    assert out["flops_per_token_full_attention"] == 57_912_852_480
    assert sum(row["forward_flops_per_token"] for row in out["operators"]) == F / 3
    assert sum(row["share"] for row in out["operators"]) == pytest.approx(1)
    assert {"name", "layers", "forward_flops_per_token", "share"} <= set(out["operators"][0])


def test_modules_add_up_to_the_parameters() -> None:
    out = asked()
    assert sum(row["params_total"] for row in out["modules"]) == out["params_total"]
    assert sum(row["params_matmul"] for row in out["modules"]) == out["params_matmul"]


def test_rate_and_utilisation_are_each_others_inverse() -> None:
    there = asked(accelerator="h100", tgs=6400.0)
    assert there["mfu"] == pytest.approx(6400 * F / 989.4e12)
    back = asked(accelerator="h100", mfu=there["mfu"])
    assert back["tgs"] == pytest.approx(6400)


def test_a_training_time_is_tokens_over_rate() -> None:
    out = asked(accelerator="h100", mfu=0.4, gpus=512, tokens=1e12)
    assert out["training_seconds"] == pytest.approx(1e12 * F / (0.4 * 989.4e12 * 512))
    assert out["gpu_hours"] == pytest.approx(out["training_seconds"] * 512 / 3600)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpus", "8"), "--gpus needs --time-for"),
        (("--recompute", "full"), "needs a peak"),
        (("--lora-rank", "8"), "give trainable lora"),
    ],
)
def test_an_option_that_would_say_nothing_is_refused(options: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(main, ["flops", "llama3-8b", "--seq-len", "8192", *options])
    assert found.exit_code != 0
    assert said in found.output


def test_modules_of_multi_token_prediction_are_trained_alone() -> None:
    """Megatron-Bridge's table of DeepSeek-V3 at 4,096 tokens: 1648 / 6338 = 260.0 GFLOPs."""
    options = ("deepseek-v3", "--seq-len", 4096, "--mtp-modules", 1)
    out = json.loads(command(*options, "--format", "json"))
    routers = sum(r["flops_per_token"] for r in out["operators"] if r["name"].endswith("router"))
    assert out["flops_per_token"] - routers == pytest.approx(260.0e9, rel=2e-4)
    found = CliRunner().invoke(main, ["flops", *map(str, options), "--phase", "decode"])
    assert "omit --phase" in found.output


def test_6n_leaves_attention_out() -> None:
    rule = next(rule for rule in asked()["rules"] if rule["rule"].startswith("6N"))
    attention = 3 * 32 * 4 * 4096 * 4096.5
    assert rule["flops_per_token"] == F - attention
    assert rule["exact"] == F


def test_decode_attends_to_the_whole_context() -> None:
    decode, prefill = asked(phase="decode"), asked(phase="prefill")
    extra = 32 * 4 * 4096 * (8192 - 4096.5)
    difference = decode["forward_flops_per_token"] - prefill["forward_flops_per_token"]
    assert difference == extra
    assert decode["kv_cache_bytes_per_token"] == 2 * 2 * 32 * 8 * 128


def test_a_config_file_is_a_model() -> None:
    out = json.loads(command(CONFIG, "--seq-len", 256, "--format", "json"))
    assert out["params_total"] == 1_049_728


QWEN2_VL_2B = {
    "model_type": "qwen2_vl",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "vision_config": {
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "num_heads": 16,
        "in_chans": 3,
        "hidden_size": 1536,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}


def test_a_model_that_sees_needs_its_images(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(QWEN2_VL_2B), encoding="utf-8")
    blind = CliRunner().invoke(main, ["flops", str(config), "--seq-len", "2048"])
    assert blind.exit_code == 1
    assert "--image" in blind.stderr
    out = json.loads(command(config, "--seq-len", 2048, "--image", "448x448", "--format", "json"))
    assert out["params_total"] == 2_208_985_600  # as published
    patches, d = 32 * 32, 1280
    core = next(row for row in out["operators"] if row["name"] == "vision core attention")
    assert core["forward_flops_per_token"] == 32 * 4 * patches**2 * d / 2048


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_the_text_shows_each_part(phase: str) -> None:
    text = command("deepseek-v3", "--seq-len", 4096, "--phase", phase)
    for words in ("routed experts", "KV cache", "not counted", "37,552,282,624 active"):
        assert words in text


def test_other_formulas_stand_beside_ours() -> None:
    text = command("llama3-8b", "--seq-len", 8192, "--against-others")
    assert "torchtitan" in text
    assert "1.125x" in text


@pytest.mark.parametrize(
    ("text", "number"), [("1T", 1e12), ("300B", 3e11), ("15e12", 15e12), ("2.5 M", 2.5e6)]
)
def test_amounts_read_as_people_write_them(text: str, number: float) -> None:
    assert parse_amount(text) == number


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tgs", 100), "--accelerator"),
        (("--accelerator", "h100", "--mfu", 0.4, "--time-for", "1T"), "--gpus"),
        (("--accelerator", "h100", "--mfu", 0.4, "--tgs", 5), "--tgs and --mfu exclude each other"),
        (("--accelerator", "z9000", "--tgs", 5), "accelerator 'z9000' is unknown"),
        (("--trainable", "lora"), "rank"),
        (("--phase", "decode", "--tgs", 5, "--accelerator", "h100"), "--phase"),
        (("--time-for", "many", "--gpus", 1, "--accelerator", "h100", "--mfu", 0.4), "'many'"),
    ],
)
def test_a_question_without_an_answer_says_why(options: tuple, says: str) -> None:
    arguments = ["flops", "llama3-8b", "--seq-len", "8192", *map(str, options)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert says in result.stderr


# --- what contradicts itself, and the arithmetic ----------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"accelerator": "h100", "tgs": 1.0, "mfu": 0.4}, "two-speeds"),
        ({"accelerator": "h100", "hfu": 0.4, "tflops": 1.0}, "two-speeds"),
        ({"accelerator": "h100", "hfu": 0.4}, "hfu-without-recompute"),
        ({"accelerator": "h100", "peak_flops": 1e15}, "two-peaks"),
        ({"tflops": 400.0}, "speed-without-peak"),
        ({"tgs": 1.0}, "speed-without-peak"),
        ({"mfu": 0.4}, "speed-without-peak"),
        ({"phase": "decode", "documents": "4096"}, "inference-with-documents"),
        ({"documents": "4096,x"}, "not-a-length"),
        ({"tokens": 1e12, "accelerator": "h100", "tgs": 1.0}, "time-without-speed"),
        ({"tokens": 1e12, "accelerator": "h100", "gpus": 8}, "time-without-speed"),
        ({"images": ["28x28"]}, "no-vision-tower"),
        ({"phase": "decode", "accelerator": "h100", "tgs": 1.0}, "inference-with-rate"),
        ({"phase": "decode", "accelerator": "h100", "mfu": 0.4}, "inference-with-rate"),
        ({"phase": "decode", "accelerator": "h100", "tflops": 1.0}, "inference-with-rate"),
        ({"phase": "prefill", "trainable": "frozen"}, "inference-with-rate"),
        ({"phase": "prefill", "mtp_modules": 1}, "inference-with-mtp"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(options: dict[str, Any], kind: str) -> None:
    with pytest.raises(ValueError, check=of_kind(kind)):
        ask("llama3-8b", 8192, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"accelerator": "h100"},
        {"accelerator": "h100", "tgs": 1.0},
        {"accelerator": "h100", "mfu": 0.4, "tokens": "1T", "gpus": 8},
        {"accelerator": "h100", "tflops": 400.0, "tokens": "1T", "gpus": 8},
        {"accelerator": "h100", "hfu": 0.4, "recompute": "full"},
        {"peak_flops": 1e15, "tgs": 6400.0},
        {"documents": [4096, 4096]},
        {"phase": "decode"},
        {"mtp_modules": 1},
        {"trainable": "lora", "lora_rank": 8, "lora_targets": "q_proj,v_proj"},
    ],
)
def test_a_whole_question_is_answered(options: dict[str, Any]) -> None:
    assert answer(ask("llama3-8b", 8192, **options))["model"] == "llama-3-8b"


def test_a_model_that_sees_needs_images_and_full_training() -> None:
    with pytest.raises(ValueError, check=of_kind("images-missing")):
        ask(QWEN2_VL_2B, 1024)
    for more in ({"phase": "prefill"}, {"trainable": "frozen"}):
        with pytest.raises(ValueError, check=of_kind("images-without-full-training")):
            ask(QWEN2_VL_2B, 1024, images=["448x672"], **more)  # type: ignore[arg-type]
    out = answer(ask(QWEN2_VL_2B, 1024, images=["448x672"]))
    text = {name: value for name, value in QWEN2_VL_2B.items() if name != "vision_config"}
    alone = answer(ask(text | {"model_type": "qwen2"}, 1024))
    assert out["params_total"] > alone["params_total"]
    assert out["params_active"] - alone["params_active"] == (
        out["params_total"] - alone["params_total"]
    )
    assert out["flops_per_token"] > alone["flops_per_token"]
    assert out["rules"][2]["exact"] is None


@settings(max_examples=20)
@given(
    policy=st.sampled_from(["none", "selective", "full"]),
    side=st.sampled_from([224, 448, 672]),
    tgs=st.floats(1, 1e5),
)
def test_hfu_with_a_tower_lies_above_that_without_it(policy: Any, side: int, tgs: float) -> None:
    """The tower adds its work once, and at most one more forward of its layers."""
    out = answer(
        ask(
            QWEN2_VL_2B, 1024, images=[f"{side}x{side}"], recompute=policy, peak_flops=1e15, tgs=tgs
        )
    )
    low, high = out["hardware_flops_per_token"]
    alone = out["hardware_flops_per_token_language_model"]
    plain = answer(ask(QWEN2_VL_2B, 1024, images=[f"{side}x{side}"], recompute="none"))
    seen = plain["flops_per_token"] - plain["hardware_flops_per_token_language_model"][0]
    assert low == pytest.approx(alone[0] + seen)
    assert high - alone[1] <= seen * 4 / 3
    assert (high == pytest.approx(alone[1] + seen)) is (policy == "none")
    assert out["hfu"] == pytest.approx([low * tgs / 1e15, high * tgs / 1e15])
    assert out["hfu_language_model"] == pytest.approx([n * tgs / 1e15 for n in alone])


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1T", 1e12), ("300B", 3e11), ("2.5M", 2.5e6), ("8K", 8e3), ("15e12", 15e12), (" 7 ", 7.0)],
)
def test_an_amount_as_people_write_it(text: str, amount: float) -> None:
    assert parse_amount(text) == amount


@pytest.mark.parametrize("text", ["", "1 TB", "many", "-1T", "1t"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, check=of_kind("not-an-amount")):
        parse_amount(text)


def test_an_image_is_height_by_width() -> None:
    assert parse_image_size(" 448x672") == (448, 672)
    for text in ("448", "448x", "448x672x3", "1234567x1"):
        with pytest.raises(ValueError, check=of_kind("not-an-image-size")):
            parse_image_size(text)


@pytest.mark.parametrize(
    ("precision", "bytes_"),
    [("fp32", 4), ("tf32", 4), ("fp16", 2), ("bf16", 2), ("fp8", 1), ("mxfp8", 1), ("nvfp4", 0.5)],
)
def test_a_cache_has_the_bytes_of_its_format(precision: str, bytes_: float) -> None:
    """Keys and values of 32 layers, 8 heads of 128."""
    assert asked(precision=precision)["kv_cache_bytes_per_token"] == bytes_ * 2 * 32 * 8 * 128


def test_a_run_in_days_and_flops() -> None:
    """1e9 tokens at 1,000 tokens/s/GPU are 1e6 GPU-seconds, on 8 GPUs 125,000 s."""
    out = asked(accelerator="h100", tgs=1000.0, gpus=8, tokens=1e9)
    assert out["training_seconds"] == 125_000
    assert out["training_days"] == 125_000 / 86_400
    assert out["gpu_hours"] == pytest.approx(1e6 / 3600)
    assert out["training_flops"] == 1e9 * F
    assert out["tgs_at_peak"] == pytest.approx(989.4e12 / F)
    assert out["peak_flops"] == 989.4e12
    assert "training_seconds" not in asked(accelerator="h100", tgs=1000.0, gpus=8)
    assert "tgs" not in asked(accelerator="h100")
    assert "accelerator" not in asked()


def test_rules_of_thumb_count_the_weights_that_multiply() -> None:
    """N = 8.03e9 less the embedding of 128,256 x 4,096; norms multiply nothing."""
    out = asked(recompute="full")
    weights = out["params_matmul"]
    assert [rule["flops_per_token"] / weights for rule in out["rules"]] == [2, 6, 8]
    assert [rule["exact"] for rule in out["rules"]][:2] == [F / 3, F]
    low, high = out["hardware_flops_per_token"]
    assert F < low < high == out["rules"][2]["exact"] < F * 4 / 3
    assert asked(recompute="none")["hardware_flops_per_token"] == [F, F]
    assert asked()["hardware_flops_per_token"] is None


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_shares_of_operators_are_of_what_the_phase_does(phase: str) -> None:
    rows = asked(phase=phase)["operators"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(("flops_per_token" in row) is (phase == "train") for row in rows)
    total = sum(row["forward_flops_per_token"] for row in rows)
    for row in rows:  # each is trained alike, so shares are those of the forward
        assert row["share"] == pytest.approx(row["forward_flops_per_token"] / total)


def test_other_tools_count_with_recomputation_where_it_is_asked() -> None:
    plain = {row["name"]: row for row in compare_with_other_tools(ask("llama3-8b", 8192))}
    again = ask("llama3-8b", 8192, recompute="full")
    assert {row["name"] for row in compare_with_other_tools(again)} <= plain.keys()
    assert [row for row in compare_with_other_tools(again) if row != plain[row["name"]]]


# --- speeds, documents, cache -----------------------------------------------------------------


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_every_kind_of_speed_gives_the_others(recompute: str) -> None:
    base = asked(accelerator="h100", tgs=6400.0, recompute=recompute)
    assert base["tflops"] == pytest.approx(6400 * F / 1e12)
    assert base["hfu"][0] >= base["mfu"]
    for name, value in (("mfu", base["mfu"]), ("tflops", base["tflops"]), ("hfu", base["hfu"][1])):
        other = asked(accelerator="h100", recompute=recompute, **{name: value})
        assert other["tgs"] == pytest.approx(6400)
        assert other["hfu"] == pytest.approx(base["hfu"])
    low, high = asked(accelerator="h100", recompute=recompute, hfu=0.4)["tgs_range"]
    assert low <= high
    assert asked(accelerator="h100", recompute=recompute, tgs=high)["hfu"][0] == pytest.approx(0.4)
    assert asked(accelerator="h100", tgs=6400.0)["hfu"] is None


def test_a_peak_may_be_given_instead_of_a_device() -> None:
    given = asked(peak_flops=989.4e12, tgs=6400.0)
    known = asked(accelerator="h100", tgs=6400.0)
    assert given["mfu"] == known["mfu"]
    assert "source: --peak-flops" in given["peak_source"]
    assert "1979 bf16" in known["peak_source"]


@given(
    lengths=st.lists(st.integers(1, 2048), min_size=1, max_size=6),
    name=st.sampled_from(["llama3-8b", "gemma-3-27b", "llama-4-scout", "deepseek-v3"]),
)
def test_documents_are_counted_one_by_one(lengths: list[int], name: str) -> None:
    """A pack has the FLOPs of its documents, each as a sequence of its own; windows too."""
    shape = find_model(name)
    whole = answer(Question(shape=shape, seq_len=12_288, documents=tuple(lengths)))
    parts = [
        length * answer(Question(shape=shape, seq_len=length))["flops_per_token"]
        for length in lengths
    ]
    assert whole["flops_per_token"] * sum(lengths) == pytest.approx(sum(parts))
    assert whole["flops_per_token_full_attention"] > whole["flops_per_token"]


def test_documents_read_as_people_write_them() -> None:
    assert parse_lengths("4x1024, 4096") == (1024, 1024, 1024, 1024, 4096)
    whole, cut = asked(), asked(documents=(4096, 4096))
    by_name = {row["name"]: row for row in cut["operators"]}
    core = by_name["core attention"]["forward_flops_per_token"]
    assert core == 32 * 4 * 4096 * 2048.5
    assert cut["uncounted"][0]["forward"] == 5 * 32 * 32 * 2048.5
    assert cut["flops_per_token"] < whole["flops_per_token"]
    with pytest.raises(ValueError, check=of_kind("document-too-long")):
        asked(documents=(9000,))


def test_the_cache_of_windowed_layers_stops_growing() -> None:
    """Gemma 3: 10 full layers, 52 with a window of 1,024; 16 heads of 128, keys and values."""
    out = answer(ask("gemma-3-27b", 131_072, batch=4))
    assert out["kv_cache_bytes_per_token"] == 85_248
    assert out["kv_cache_bytes"] == 85_248 * 131_072 * 4
    assert out["batch"] == 4
    token = 62 * 2 * 16 * 128 * 2
    assert answer(ask("gemma-3-27b", 1024))["kv_cache_bytes_per_token"] == token == 507_904


def test_the_softmax_of_decoding_is_of_all_cached_keys() -> None:
    decode, prefill = asked(phase="decode"), asked(phase="prefill")
    scores = [out["uncounted"][0]["forward"] / (5 * 32 * 32) for out in (decode, prefill)]
    assert scores == [8192, 4096.5]
    windowed = answer(ask("gemma-3-27b", 131_072, phase="decode"))["uncounted"][0]["forward"]
    assert windowed == 5 * 32 * (10 * 131_072 + 52 * 1024)


# --- against other tools, with a speed --------------------------------------------------------


def against(*options: object) -> dict:
    return json.loads(
        command("llama3-8b", "--seq-len", 8192, "--against-others", "--format", "json", *options)
    )


def test_every_convention_has_its_rates() -> None:
    out = against("--accelerator", "h100", "--tgs", 6400, "--printed", "370.6 TFLOP/s")
    assert out["ours"]["tflops"] == pytest.approx(6400 * F / 1e12)
    assert out["ours"]["matches_printed"] is False
    for row in out["others"]:
        assert row["tflops"] == pytest.approx(6400 * row["flops_per_token"] / 1e12)
        assert row["mfu"] == pytest.approx(row["tflops"] * 1e12 / 989.4e12)
        assert row["matches_printed"] is (abs(row["tflops"] - 370.6) <= 0.05 + 5e-4 * 370.6)
    assert any("torchtitan" in row["name"] for row in out["others"] if row["matches_printed"])


@pytest.mark.parametrize("printed", ["33.3%", "0.333", "329.4"])
def test_a_printed_figure_may_be_ours(printed: str) -> None:
    options = ("--accelerator", "h100", "--tgs", 6400, "--printed", printed)
    assert against(*options)["ours"]["matches_printed"] is True
    assert f"{printed} is the figure of: ours, exact attention; Megatron-LM" in command(
        "llama3-8b", "--seq-len", 8192, "--against-others", *options
    )


def test_a_figure_of_no_formula_names_the_nearest() -> None:
    text = command(
        *("llama3-8b", "--seq-len", 8192, "--against-others", "--accelerator", "h100"),
        *("--tgs", 6400, "--printed", "500"),
    )
    assert "No formula gives 500. Nearest: InternEvo" in text


def test_each_option_changes_what_it_says() -> None:
    plain = against()
    assert "tflops" not in plain["others"][0]
    lora = against("--trainable", "lora", "--lora-rank", 16, "--lora-targets", "all-linear")
    assert lora["trainable"] == "lora"
    assert lora["ours"]["flops_per_token"] < plain["ours"]["flops_per_token"]
    decode = against("--phase", "decode")
    assert decode["phase"] == "decode"
    for row, other in zip(decode["others"], plain["others"], strict=True):
        assert row["flops_per_token"] == pytest.approx(other["flops_per_token"] / 3)
        assert row["ratio_to_ours"] == row["flops_per_token"] / decode["ours"]["flops_per_token"]
    fp8 = against("--accelerator", "h100", "--tgs", 6400, "--dtype", "FP8")
    assert fp8["others"][0]["mfu"] == pytest.approx(fp8["others"][0]["tflops"] / 1978.9)
    timed = against("--accelerator", "h100", "--mfu", 0.4, "--gpus", 64, "--time-for", "1T")
    assert timed["ours"]["mfu"] == pytest.approx(0.4)
    assert timed["ours"]["training_days"] > 0


@pytest.mark.parametrize("text", ["", "many", "0", "-3", "41,3%", "1e3"])
def test_what_is_no_printed_figure(text: str) -> None:
    with pytest.raises(ValueError, check=of_kind("not-a-printed-figure")):
        parse_printed(text)


def test_a_printed_figure_needs_a_speed() -> None:
    with pytest.raises(ValueError, check=of_kind("printed-without-speed")):
        compare_with_other_tools(ask("llama3-8b", 8192), "370.6")
