"""What the formula needs of one run, from its facts: bounds, words, and what is missing."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.formula.flops import Trainable, flops_per_token
from fairmfu.metrics.formula.model_shapes import find_model, from_megatron
from fairmfu.metrics.formula.model_shapes.megatron_header import rank_params
from fairmfu.metrics.utilization.formula_inputs import (
    FormulaInputs,
    UtilizationResult,
    accelerator_match_note,
    attention_pattern,
    canonical_model_name,
    count_adapter_params,
    describe_trainable,
    find_hardware,
    find_shape,
    formula_inputs,
    integer_fact,
    is_inferred,
    number_fact,
    operator_dtypes,
    recompute_fact,
    run_attended_pairs,
    unknown_name_errors,
    work_key,
)
from fairmfu.metrics.utilization.messages import (
    DOCUMENT_LENGTHS_UNKNOWN,
    PADDED_LENGTHS_UNKNOWN,
    PADDING_UNKNOWN,
    PRECISION_AGAINST_LOG,
    TOKEN_DROPPING,
    VOCABULARY_INFERRED,
)
from tests.metrics.formula.test_model_shapes import QWEN_7B

Facts = dict[str, dict[str, Any]]

LLAMA = {"model": "llama3-8b", "seq_len": "8192", "trainable": "full"}
OF_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def held(origin: str = "flag", line: int | None = None, /, **values: str) -> Facts:
    return {
        name: {"name": name, "value": value, "origin": origin, "line": line}
        for name, value in values.items()
    }


def inputs(facts: Facts, **rates: Any) -> tuple[FormulaInputs | None, UtilizationResult]:
    out = UtilizationResult()
    return formula_inputs(facts, {"tgs": 6400.0} | rates, out), out


def known(facts: Facts, **rates: Any) -> FormulaInputs:
    run, out = inputs(facts, **rates)
    assert run is not None, out
    return run


# --- lengths and attended pairs ---------------------------------------------------------------


def test_dropped_tokens_leave_no_inputs() -> None:
    run, out = inputs(held(**LLAMA | {"token_dropping": "true"}))
    assert run is None
    assert [one.kind for one in out.warnings] == [TOKEN_DROPPING.identifier]
    assert known(held(**LLAMA | {"token_dropping": "false"})).seq_len == 8192


@pytest.mark.parametrize(
    ("given_length", "logged", "length", "told"),
    [
        ("8192", 8192.4, 8192, False),  # rounds to what is given
        ("8192", 4096.0, 4096, True),
        (None, 4096.4, 4096, False),
        ("8192", 0.6, 1, True),
        ("8192", None, 8192, False),
    ],
)
def test_the_mean_length_of_the_steps_goes_before_the_given_one(
    given_length: str | None, logged: float | None, length: int, *, told: bool
) -> None:
    facts = held(**{name: value for name, value in LLAMA.items() if name != "seq_len"})
    facts |= {} if given_length is None else held(seq_len=given_length)
    run, out = inputs(facts, sequence_length=logged)
    assert run is not None
    assert (run.seq_len, bool(out.warnings)) == (length, told)


def test_a_mean_length_below_half_a_token_is_none() -> None:
    run, out = inputs(held(**LLAMA), sequence_length=0.4)
    assert (run, out.missing) == (None, ["seq_len"])


@pytest.mark.parametrize(("share", "is_doubted"), [(0.0049, False), (0.0051, True)])
def test_pairs_of_two_bounds_are_doubted_by_the_flops_that_lie_between(
    share: float, *, is_doubted: bool
) -> None:
    """32 layers of 6 x 2 x 4,096 FLOPs a pair; from half a percent of the FLOPs on it matters."""
    shape, low = find_model("llama3-8b"), 2048.0
    per_pair = 32 * 12 * 4096
    least = flops_per_token(known(held(**LLAMA, attended_pairs=str(low))).operators())
    high = low + share * least / per_pair
    run = known(held(**LLAMA), document_pairs=[low, high])
    assert run.shape.layers == shape.layers
    if is_doubted:
        assert (run.lengths_unknown_reason, run.min_attended_pairs) == (PADDING_UNKNOWN, low)
        assert run.attended_pairs == high
        assert run_attended_pairs(run) is None
    else:
        assert run.lengths_unknown_reason is None
        assert run.attended_pairs == pytest.approx((low + high) / 2)


def test_given_pairs_go_before_those_of_the_log() -> None:
    run = known(held(**LLAMA, attended_pairs="700"), document_pairs=[500.0, 2000.0])
    assert (run.attended_pairs, run.lengths_unknown_reason) == (700.0, None)


@pytest.mark.parametrize(("mean", "is_padded"), [(8109.0, True), (8111.0, False)])
def test_samples_of_nearly_the_whole_length_are_taken_for_full(
    mean: float, *, is_padded: bool
) -> None:
    """From 99 % of 8,192 tokens on, 8,110.08. 16 samples a step on 8 GPUs."""
    facts = held(**LLAMA, packed="false", gpus="8", global_batch_size="16")
    run = known(facts, tokens_per_gpu_step=mean * 16 / 8)
    if is_padded:
        assert run.lengths_unknown_reason == PADDED_LENGTHS_UNKNOWN
        assert run.min_attended_pairs == pytest.approx((mean + 1) / 2)
    else:
        assert (run.lengths_unknown_reason, run.min_attended_pairs) == (None, None)


@pytest.mark.parametrize("name", ["gpus", "global_batch_size"])
def test_without_the_mean_length_padded_samples_have_no_least_pairs(name: str) -> None:
    facts = held(**LLAMA, packed="false", gpus="8", global_batch_size="16")
    del facts[name]
    run = known(facts, tokens_per_gpu_step=1200.0)
    assert (run.lengths_unknown_reason, run.min_attended_pairs) == (PADDED_LENGTHS_UNKNOWN, None)


def test_padding_is_nothing_where_no_tokens_or_each_length_is_known() -> None:
    facts = held(**LLAMA, packed="false")
    assert known(facts, tgs=None).lengths_unknown_reason is None
    assert known(facts, sequence_length=8192.0).lengths_unknown_reason is None


def test_masked_documents_hide_the_pairs_of_one_sequence() -> None:
    whole, masked = known(held(**LLAMA)), known(held(**LLAMA, document_mask="true"))
    assert run_attended_pairs(whole) == 4096.5
    assert (masked.lengths_unknown_reason, run_attended_pairs(masked)) == (
        DOCUMENT_LENGTHS_UNKNOWN,
        None,
    )


# --- what of a run stands in words ------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "seq_len", "words"),
    [
        ("llama3-8b", "8192", "causal"),
        ("gpt-oss-20b", "4096", "causal, window of 128 in 12 of 24 layers"),
        ("gpt-oss-20b", "129", "causal, window of 128 in 12 of 24 layers"),
        ("gpt-oss-20b", "128", "causal"),  # a window as long as the sequence is none
    ],
)
def test_the_attention_pattern_names_windows_shorter_than_the_sequence(
    model: str, seq_len: str, words: str
) -> None:
    run = known(held(**LLAMA | {"model": model, "seq_len": seq_len}, document_mask="false"))
    assert attention_pattern(run) == words


@pytest.mark.parametrize(("pairs", "is_whole"), [(4055.3, False), (4055.7, True)])
def test_documents_nearly_as_long_as_their_pack_are_no_borders(
    pairs: float, *, is_whole: bool
) -> None:
    """99 % of (8,192 + 1) / 2 are 4,055.535 pairs."""
    words = attention_pattern(known(held(**LLAMA, attended_pairs=str(pairs))))
    assert words == ("causal" if is_whole else "causal, stops at document borders")


def test_unknown_lengths_stand_in_the_attention_pattern() -> None:
    masked = known(held(**LLAMA, document_mask="true"))
    assert attention_pattern(masked) == "causal, stops at document borders"
    padded = known(held(**LLAMA, packed="false"))
    assert attention_pattern(padded) == "causal, over padded samples"


def test_windows_of_several_lengths_are_each_counted() -> None:
    run = known(held(**LLAMA))
    (group,) = run.shape.layers
    layers = tuple(
        replace(group, count=count, attention=replace(group.attention, **changes))
        for count, changes in (
            (20, {}),
            (8, {"window": 512}),
            (3, {"window": 256}),
            (1, {"chunk": 1024, "causal": False}),
        )
    )
    words = attention_pattern(replace(run, shape=replace(run.shape, layers=layers)))
    assert words == (
        "not causal, window of 256 in 3 of 32 layers, window of 512 in 8 of 32 layers, "
        "chunk of 1,024 in 1 of 32 layers"
    )


@pytest.mark.parametrize(
    ("modules", "words"),
    [(0, "full"), (1, "full with 1 MTP module"), (2, "full with 2 MTP modules")],
)
def test_what_is_trained_counts_the_modules(modules: int, words: str) -> None:
    run = known(held(**LLAMA, mtp_modules=str(modules)))
    assert describe_trainable(run) == words


def test_what_is_trained_names_rank_and_targets() -> None:
    facts = held(**LLAMA | {"trainable": "lora"}, lora_rank="8", lora_targets="v_proj, q_proj")
    assert describe_trainable(known(facts)) == "lora of rank 8 on q_proj, v_proj"
    assert describe_trainable(known(held(**LLAMA | {"trainable": "frozen"}))) == "frozen"


def test_work_is_the_same_without_names_vocabulary_windows_and_mtp() -> None:
    run = known(held(**LLAMA))
    (group,) = run.shape.layers
    key, shape = work_key(run), run.shape
    windowed = replace(group, attention=replace(group.attention, window=512, fused=True))
    for same in (
        replace(shape, name="mine"),
        replace(shape, vocab_size=128_000),
        replace(shape, mtp_modules=1),
        replace(shape, layers=(windowed,)),
    ):
        assert work_key(replace(run, shape=same)) == key
    for other in (
        replace(shape, hidden_size=4097),
        replace(shape, layers=(replace(group, count=31),)),
    ):
        assert work_key(replace(run, shape=other)) != key


def test_the_key_of_a_model_stays_the_same_in_every_store() -> None:
    """Runs that were analysed before and today have to stand side by side."""
    assert work_key(known(held(**LLAMA))) == "12ab2177a1c2"


def test_a_known_shape_has_its_known_name() -> None:
    shape = find_model("llama3-8b")
    assert canonical_model_name(replace(shape, name="mine")) == canonical_model_name(shape)
    assert canonical_model_name(replace(shape, name="mine", hidden_size=4104)) == "mine"


# --- names and origins ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"model": "llama-9-8b"}, ["llama-9-8b"]),
        ({"model": "llama-9-8b", "model_config": "{}"}, []),
        ({"model": "llama3-8b"}, []),
        ({"accelerator": "H20Z"}, ["H20Z"]),
        ({"accelerator": "H20Z", "peak_flops": "5e14"}, []),
        ({"accelerator": "H100"}, []),
        ({"model": "llama-9-8b", "accelerator": "H20Z"}, ["llama-9-8b", "H20Z"]),
        ({"seq_len": "4096"}, []),
    ],
)
def test_names_that_nothing_else_explains_are_errors(
    facts: dict[str, str], named: list[str]
) -> None:
    errors = unknown_name_errors(facts)
    assert len(errors) == len(named)
    assert all(name in error for name, error in zip(named, errors, strict=True))


def test_a_name_that_is_taken_for_another_device_is_said() -> None:
    note = accelerator_match_note({"accelerator": "H100"})
    assert note == "H100 is treated as NVIDIA H100 SXM, 989.4 TFLOP/s dense in bf16"
    assert accelerator_match_note({"accelerator": "nvidia h100 SXM"}) is None
    assert accelerator_match_note({"accelerator": "H20Z"}) is None
    note = accelerator_match_note({"accelerator": "NVIDIA GB200"})
    assert note is not None
    assert note.startswith("NVIDIA GB200: Per B200 GPU. NVIDIA publishes two peaks: 2500")
    note = accelerator_match_note({"accelerator": "Gaudi-3"})
    assert note is not None
    assert note.startswith(
        "Gaudi-3 is treated as Intel Gaudi 3, 1,677.7 TFLOP/s dense in bf16. Intel"
    )
    assert accelerator_match_note({"accelerator": "V100"}) == "V100 is treated as NVIDIA V100 SXM"


def test_the_first_of_equal_origins_describes_the_model() -> None:
    """A whole config says more than a name; a better origin says more than both."""
    small = OF_8B | {"num_hidden_layers": 16}
    facts = held(model="llama3-8b", model_config=json.dumps(small))
    shape, why = find_shape(facts)
    assert shape is not None
    assert (sum(group.count for group in shape.layers), why) == (16, "")
    facts["model_config"]["origin"] = "companion:config.json"
    shape, _ = find_shape(facts)
    assert shape is not None
    assert sum(group.count for group in shape.layers) == 32
    assert find_shape({}) == (None, "no model is given")


@pytest.mark.parametrize(("layers", "is_refused"), [(14_000, False), (15_000, True)])
def test_a_model_of_more_parameters_than_any_is_refused(layers: int, *, is_refused: bool) -> None:
    """Layers of 4 x 65,536^2 + 3 x 65,536 x 262,144 = 6.87e10 parameters, of 1e15 at most."""
    wide = {"hidden_size": 65_536, "intermediate_size": 262_144, "num_hidden_layers": layers}
    heads = {"num_attention_heads": 64, "num_key_value_heads": 64}
    shape, why = find_shape(held("log", 7, model_config=json.dumps(OF_8B | wide | heads)))
    assert (shape is None) is is_refused
    assert why.startswith("No model has 1.03e+15 parameters (log, line 7). Fix:") is is_refused


@pytest.mark.parametrize(
    ("origin", "line", "where"),
    [
        ("log", 12, "(log, line 12)"),
        ("log:12", 12, "(log:12)"),
        ("companion:config.json", None, "(companion:config.json)"),
    ],
)
def test_an_impossible_shape_is_told_with_its_place(
    origin: str, line: int | None, where: str
) -> None:
    config = json.dumps(OF_8B | {"num_key_value_heads": 5})
    shape, why = find_shape(held(origin, line, model_config=config))
    assert shape is None
    assert f" {where}. Fix: fairmfu set RUN model_config=" in why


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("mine-4.1b", True),
        ("mine-3.9b", False),  # 8.03 billion are more than twice as many
        ("mine-16b", True),
        ("mine-17b", False),
        ("mine-2x4b", True),
        ("mine", True),
    ],
)
def test_a_name_may_be_off_its_models_size_by_less_than_two(name: str, *, fits: bool) -> None:
    facts = held("log:61", model=name)
    facts |= held("companion:config.json", model_config=json.dumps(OF_8B))
    shape, _ = find_shape(facts)
    assert (shape is not None) is fits


def test_of_several_descriptions_beside_the_log_the_config_holds() -> None:
    facts = held("log:61", model="../assets/mine")
    facts |= held("companion:config.json", model_config=json.dumps(OF_8B))
    facts |= held("companion:args.txt", megatron_arguments=json.dumps(QWEN_7B))
    assert find_shape(facts)[0] == find_shape(held(model_config=json.dumps(OF_8B)))[0]


def test_a_path_with_a_known_name_needs_no_config() -> None:
    facts = held("log:61", model="llama3-8b")
    facts |= held("companion:config.json", model_config=json.dumps(OF_8B))
    assert find_shape(facts) == find_shape(held(model="llama3-8b"))


def test_what_nobody_said_is_inferred() -> None:
    (fact,) = held("inferred: default", precision="bf16").values()
    assert is_inferred(fact)
    (fact,) = held("log:3", precision="inferred").values()
    assert not is_inferred(fact)


# --- the logged count of parameters -----------------------------------------------------------

WORD = 2 * 4096
"""Parameters that one more word of the vocabulary makes: input and output, 4,096 wide each."""
PARAMS = 8_030_261_248


@pytest.mark.parametrize(
    ("counted", "vocabulary"),
    [
        (PARAMS, 128_256),
        (PARAMS - 128_256 * 4096, 128_256),  # without the embedding
        (PARAMS - (128_256 - 32_000) * WORD, 32_000),
        (PARAMS + (128_815 - 128_256) * WORD, 128_815),
    ],
)
def test_a_count_of_parameters_gives_the_vocabulary(counted: int, vocabulary: int) -> None:
    facts = held(**LLAMA, params_total=str(counted))
    run, out = inputs(facts)
    assert run is not None
    assert run.shape.vocab_size == vocabulary
    assert bool(out.warnings) is (vocabulary != 128_256)
    if out.warnings:
        assert out.warnings[0].kind == VOCABULARY_INFERRED.identifier
        assert f"vocabulary of {vocabulary:,} is inferred" in out.warnings[0]
        assert f"the log counts {counted:,} parameters" in out.warnings[0]
        assert run.shape.name == f"llama-3-8b with a vocabulary of {vocabulary:,}"


VOCABULARIES = (
    *(2000, 2048, 2256),  # of tests
    *(32_000, 32_064, 32_768),  # Llama 2, Phi-3, Mistral v3
    *(50_257, 50_304),  # GPT-2, GPT-NeoX in whole 64s
    *(100_277, 100_352),  # cl100k, and in whole 128s
    *(102_400, 128_815, 129_280),  # DeepSeek V2, V3's tokenizer, V3
    128_256,  # Llama 3
    *(151_643, 151_646, 151_936, 152_064),  # Qwen 2: words, with control words, models
    *(201_088, 202_048),  # gpt-oss, Llama 4
)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_vocabulary_of_a_tokenizer_in_use_explains_a_count(vocabulary: int) -> None:
    facts = held(**LLAMA, params_total=str(PARAMS + (vocabulary - 128_256) * WORD))
    assert known(facts).shape.vocab_size == vocabulary


def test_the_tokenizer_of_another_model_explains_a_count_too() -> None:
    """Llama 2 7B, of 32,000 words, with Llama 3's."""
    counted = find_model("llama-2-7b").params_total + (128_256 - 32_000) * WORD
    facts = held(**LLAMA | {"model": "llama-2-7b"}, params_total=str(counted))
    assert known(facts).shape.vocab_size == 128_256


def test_a_vocabulary_of_no_tokenizer_is_another_model() -> None:
    run, out = inputs(held(**LLAMA, params_total=str(PARAMS + WORD)))
    assert (run, out.missing) == (None, ["model_config"])
    assert "no common vocabulary explains it" in out.warnings[0]


def test_adapters_are_part_of_the_counted_parameters() -> None:
    """Rank 8 on q_proj: 32 layers of 8 x (4,096 in + 4,096 out)."""
    facts = held(**LLAMA | {"trainable": "lora"}, lora_rank="8", lora_targets="q_proj")
    adapters = 32 * 8 * (4096 + 4096)
    assert count_adapter_params(facts, find_model("llama3-8b")) == adapters
    run, out = inputs(facts | held(params_total=str(PARAMS + adapters)))
    assert run is not None
    assert out.warnings == []
    assert run.trainable == Trainable(kind="lora", lora_rank=8, lora_targets=("q_proj",))
    assert count_adapter_params(held(**LLAMA), find_model("llama3-8b")) == 0


def test_adapters_of_unknown_rank_leave_the_count_unchecked() -> None:
    facts = held(**LLAMA | {"trainable": "lora"}, lora_targets="q_proj")
    assert count_adapter_params(facts, find_model("llama3-8b")) is None
    shape, _ = find_shape(facts | held(params_total="8040000000"))
    assert shape is not None
    assert shape.vocab_size == 128_256


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"lora_rank": "8"}, ["lora_targets"]),
        ({"lora_targets": "q_proj"}, ["lora_rank"]),
        ({}, ["lora_rank", "lora_targets"]),
    ],
)
def test_each_fact_of_lora_that_is_missing_is_named(
    facts: dict[str, str], missing: list[str]
) -> None:
    run, out = inputs(held(**LLAMA | {"trainable": "lora"} | facts))
    assert (run, out.missing) == (None, missing)


@pytest.mark.parametrize(
    ("facts", "counted", "fits"),
    [
        ({}, (1, 1, 152_064), True),  # one rank holds all
        ({"tensor_parallel": "2"}, (2, 1, 152_064), True),
        ({"tensor_parallel": "2"}, (1, 1, 152_064), False),
        ({"pipeline_parallel": "4"}, (1, 4, 152_064), True),
        ({"pipeline_parallel": "4"}, (1, 1, 152_064), False),
        ({"padded_vocab_size": "200000"}, (1, 1, 200_000), True),
        ({"padded_vocab_size": "200000"}, (1, 1, 152_064), False),
        ({}, (2, 1, 152_064), False),
    ],
)
def test_a_rank_holds_as_many_parameters_as_the_log_counts(
    facts: dict[str, str], counted: tuple[int, int, int], *, fits: bool
) -> None:
    """The share of a rank of a layer, of a stage, and of the padded vocabulary."""
    model = from_megatron(QWEN_7B, 152_064)
    printed = f"(0, 0): {rank_params(model, 0, *counted)}"
    header = held("log:1", megatron_arguments=json.dumps(QWEN_7B), vocab_size="152064", **facts)
    shape, why = find_shape(header | held("log:2", rank_params=printed))
    assert (shape is not None) is fits
    assert ("parameters on a rank" in why) is not fits
    assert find_shape(header)[0] == model


# --- precision and peaks ----------------------------------------------------------------------


def hardware(facts: Facts) -> UtilizationResult:
    out = UtilizationResult()
    find_hardware(facts, (), out)
    return out


def test_a_precision_given_against_the_log_is_doubted() -> None:
    told = held("log:3", quantization="Converted to Float8Linear")
    for given_one, doubted in (("bf16", True), ("nvfp4", True), ("fp8", False), ("mxfp8", False)):
        out = UtilizationResult()
        assert operator_dtypes(told | held(precision=given_one), out) is not None
        assert [one.kind for one in out.warnings] == [PRECISION_AGAINST_LOG.identifier] * doubted


def test_a_line_of_what_is_to_be_converted_may_leave_nothing() -> None:
    """Where weights are said to be quantised the log leaves no bf16; where a plan is, it may."""
    plan, done = UtilizationResult(), UtilizationResult()
    assert operator_dtypes(held("log:3", quantization="float8"), plan) is None
    assert operator_dtypes(held("log:3", quantization="float8", quantized="true"), done) is None
    assert plan.missing == done.missing == ["precision"]
    assert ", or bf16 if no layer was converted" in plan.warnings[0]
    assert "or bf16" not in done.warnings[0]
    choice = "fp8 (lm_head in bf16), fp8+lm_head (lm_head in fp8 too), mxfp8"
    assert f"fairmfu set RUN precision=P, with P one of: {choice}" in done.warnings[0]


@pytest.mark.parametrize(("peak", "is_doubted"), [(1.019, False), (1.021, True), (0.979, True)])
def test_a_given_peak_may_be_rounded_by_two_percent(peak: float, *, is_doubted: bool) -> None:
    facts = held(precision="bf16", accelerator="H100", peak_flops=str(989.4e12 * peak))
    assert bool(hardware(facts).warnings) is is_doubted


def test_a_given_peak_is_no_other_accelerator() -> None:
    """An H100 and an H200 have one peak, and one card may be given two."""
    given_peak = held(precision="bf16", peak_flops="500e12")
    assert hardware(given_peak).values["device"] is None
    out = hardware(given_peak | held(accelerator="H20Z"))
    assert (out.values["device"], out.missing) == ("H20Z", [])
    for name in ("H100", "h100 80gb hbm3"):
        told = hardware(given_peak | held(accelerator=name)).values
        assert told["device"] == "NVIDIA H100 SXM"
        assert told["peak_source"].startswith("given: peak_flops, dense bf16 500 TFLOP/s")
    no_precision = hardware(held(peak_flops="500e12"))
    assert no_precision.missing == ["precision", "accelerator"]
    assert hardware(held(precision="bf16", accelerator="H100")).values["device"] == (
        "NVIDIA H100 SXM"
    )


# --- facts as numbers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number", "whole"),
    [
        ("7", 7.0, 7),
        ("7.9", 7.9, 7),
        ("-3", -3.0, -3),
        ("nan", None, None),
        ("inf", None, None),
        ("seven", None, None),
        ("", None, None),
        (str(2.0**63), 2.0**63, None),
        (str(-(2.0**63)), -(2.0**63), None),
        (str(2.0**62), 2.0**62, 2**62),
    ],
)
def test_only_numbers_that_a_table_holds_are_read(
    text: str, number: float | None, whole: int | None
) -> None:
    facts = held(gpus=text)
    assert number_fact(facts, "gpus") == number
    assert integer_fact(facts, "gpus") == whole
    assert number_fact({}, "gpus") is None


@pytest.mark.parametrize(
    ("text", "counted"),
    [("none", "none"), ("full", "full"), ("selective_attention", "selective"), ("2", None)],
)
def test_recomputation_is_known_in_three_forms(text: str, counted: str | None) -> None:
    assert recompute_fact(held(recompute=text)) == counted
    assert recompute_fact({}) is None


# --- laws -------------------------------------------------------------------------------------


@given(st.integers(1, 2**17), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_flops_lie_between_those_of_the_bounds(seq_len: int, part: float) -> None:
    """More attended pairs are more FLOPs: one token each, up to one whole sequence."""
    facts = held(**LLAMA | {"seq_len": str(seq_len)})
    most = (seq_len + 1) / 2
    pairs = 1 + part * (most - 1)
    alone, some, whole = (
        flops_per_token(known(facts | held(attended_pairs=str(one))).operators())
        for one in (1.0, pairs, most)
    )
    assert alone <= some <= whole
    assert whole == pytest.approx(flops_per_token(known(facts).operators()))
