"""What else may be true of a run: hypotheses, what is proven, and what contradicts the log."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.audit.explanations import (
    COMMON_LENGTHS,
    ChangedFact,
    Hypothesis,
    alternatives,
    best_hypothesis,
    contradicts_log,
    hypothesis_from_case,
    list_hypotheses,
    matching_models,
    mean_rate_note,
    other_readings,
    proven_facts,
    scales_differently,
)
from fairmfu.metrics.audit.formula_checks import (
    FormulaCheck,
    FormulaFacts,
    LineBounds,
    check_formulas,
)
from fairmfu.metrics.audit.formula_era import Era
from fairmfu.metrics.formula.model_shapes import find_model
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from tests.support.figures import LLAMA, known, lines

TITAN = ERAS_BY_NAME["torchtitan-2025-10"]
XTUNER = ERAS_BY_NAME["xtuner-0.1.16"]


def flops(era: Era, facts: FormulaFacts) -> float:
    return era.flops(cast(SimplifiedModel, facts.simplified_model()))


def titan_lines(facts: FormulaFacts, times: float = 1.0) -> Any:
    """Three lines of Torchtitan whose TFLOP/s are `times` those of the facts."""
    rates = [6000.0, 6100.0, 5900.0]
    per_token = flops(TITAN, facts) * times
    return lines(
        logged_tgs=rates, logged_tflops=[round(rate * per_token / 1e12, 2) for rate in rates]
    )


def titan(truth: FormulaFacts, taken: FormulaFacts, times: float = 1.0) -> Any:
    """Hypotheses and checks of lines that are true of one configuration, read with another."""
    checks = check_formulas(titan_lines(truth, times), TITAN, taken)
    return list_hypotheses(TITAN, taken, checks, (TITAN,)), checks


# --- hypotheses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "text", "fact"),
    [
        (known(T=8192), "seq_len=8,192", "seq_len"),
        (known(shape=find_model("qwen3-8b")), "model=qwen3-8b", "model"),
    ],
)
def test_a_wrong_fact_is_found_by_the_figures(truth: FormulaFacts, text: str, fact: str) -> None:
    hypotheses, checks = titan(truth, known())
    assert not any(check.reproduced for check in checks)
    assert best_hypothesis(hypotheses, checks, known()) == (text, fact)


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (1000.0, "the logged value is 1,000 times too high"),
        (0.001, "the logged value is 1,000 times too low"),
        (2.0, "the logged value is doubled"),
        (0.5, "the logged value is halved"),
        (4 / 3, "activation checkpointing counted (x 4/3)"),
        (3 / 4, "activation checkpointing not counted (x 3/4)"),
        (8.0, "the sum over 8 GPUs, not one's"),
        (1 / 8, "divided by the 8 GPUs twice"),
    ],
)
def test_a_wrong_unit_is_found_by_the_figures(times: float, text: str) -> None:
    hypotheses, checks = titan(known(), known(), times)
    fitting = {h.text: h.fact for h in hypotheses if h.reproduces(checks)}
    assert fitting[text] == "unit"


def test_one_gpu_is_no_world() -> None:
    hypotheses, _ = titan(known(gpus=1), known(gpus=1))
    assert not [h for h in hypotheses if "GPUs" in h.text]


def test_what_no_hypothesis_reproduces_has_no_explanation() -> None:
    hypotheses, checks = titan(known(), known(), 1.0371)
    assert best_hypothesis(hypotheses, checks, known()) == (None, None)


def test_a_hypothesis_against_the_log_is_no_explanation() -> None:
    taken = known(logged_values=frozenset({("seq_len", "4096")}))
    hypotheses, checks = titan(known(T=8192), taken)
    assert best_hypothesis(hypotheses, checks, taken)[1] != "seq_len"


def check(column: str, *pairs: tuple[float, float], depends_on: str = "model") -> FormulaCheck:
    low, high = zip(*pairs, strict=True)
    return FormulaCheck(
        column, LineBounds(np.array(low), np.array(high)), frozenset(depends_on.split())
    )


def test_a_hypothesis_has_to_reproduce_every_line_of_every_column() -> None:
    both = [
        check("logged_tflops", (1.9, 2.1), (1.95, 2.2)),
        check("logged_tgs", (0.9, 1.1)),
    ]
    assert Hypothesis("seq_len", "", {"logged_tflops": 2.0}).reproduces(both)
    assert not Hypothesis("seq_len", "", {"logged_tflops": 1.92}).reproduces(both)
    assert not Hypothesis("gpus", "", {"logged_tflops": 2.0, "logged_tgs": 2.0}).reproduces(both)
    # 2 against 2.0375, the median of the middles, and 1 against 1
    near = Hypothesis("seq_len", "", {"logged_tflops": 2.0}).off_centre(both)
    assert near == pytest.approx(1 - 2 / 2.0375)


def test_of_several_the_first_kind_and_of_these_the_nearest_is_best() -> None:
    found = [check("logged_tflops", (1.9, 2.1))]
    listed = [
        Hypothesis("model", "near", {"logged_tflops": 2.01}, "llama3-8b"),
        Hypothesis("model", "nearer", {"logged_tflops": 2.0}, "llama3-8b"),
        Hypothesis("unit", "exact", {"logged_tflops": 2.0}),
    ]
    assert best_hypothesis(listed, found, known()) == ("nearer", "model")
    assert best_hypothesis(listed[::-1], found, known()) == ("exact", "unit")


# --- what contradicts the log -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fact", "value", "stated", "is_against"),
    [
        ("gpus", 16, {}, False),
        ("gpus", 16, {("gpus", "8")}, True),
        ("gpus", 8, {("gpus", "8.0")}, False),
        ("gpus", 16, {("gpus", "8"), ("gpus", "16")}, False),  # the log says both
        ("gpus", None, {("gpus", "8")}, True),
        ("recompute", "full", {("recompute", "none")}, True),
        ("recompute", "none", {("recompute", "none")}, False),
        ("seq_len", 4096, {("gpus", "8")}, False),
        ("model", "llama3-8b", {("model", "llama-3-8b")}, False),
        ("model", "llama3-8b", {("model", "qwen3-8b")}, True),
        ("model", "llama3-8b", {("model", "../my/path")}, True),
        ("model", "llama3-8b", {("seq_len", "4096")}, False),
    ],
)
def test_a_stated_fact_is_not_named_otherwise(
    fact: str, value: Any, stated: set[tuple[str, str]], *, is_against: bool
) -> None:
    facts = known(logged_values=frozenset(stated))
    assert contradicts_log(fact, value, facts) is is_against


def test_the_length_of_every_line_is_the_length() -> None:
    facts = known(line_length=2048, logged_values=frozenset({("seq_len", "4096")}))
    assert not contradicts_log("seq_len", 2048, facts)
    assert contradicts_log("seq_len", 4096, facts)


@pytest.mark.parametrize(
    ("params", "is_against"),
    [
        (LLAMA.params_total, False),
        (LLAMA.params_total - LLAMA.params_embedding, False),
        (LLAMA.params_total - 1, True),
    ],
)
def test_a_model_has_as_many_parameters_as_the_log_counts(params: int, *, is_against: bool) -> None:
    assert contradicts_log("model", "llama3-8b", known(params=params)) is is_against


# --- what is proven ---------------------------------------------------------------------------


def test_figures_prove_what_no_other_value_reproduces() -> None:
    hypotheses, checks = titan(known(), known())
    proven, open_ = proven_facts(hypotheses, checks, known())
    assert {"seq_len", "model"} <= set(proven)
    assert open_ == {}


def test_coarse_figures_prove_nothing() -> None:
    """TFLOP/s of 1 %, tokens/s of 1 %: other lengths fit, and are named."""
    near = [check("logged_tflops", (0.97, 1.03))]
    listed = [
        Hypothesis("seq_len", "seq_len=4,608", {"logged_tflops": 1.02}, 4608),
        Hypothesis("model", "model=other", {"logged_tflops": 1.5}, "llama3-8b"),
        Hypothesis("unit", "half", {"logged_tflops": 1.0}),
    ]
    proven, open_ = proven_facts(listed, near, known())
    assert (proven, open_) == ((), {"seq_len": "seq_len=4,608"})
    stated = known(logged_values=frozenset({("seq_len", "4096")}))
    assert proven_facts(listed, near, stated) == ((), {})
    fine = [check("logged_tflops", (0.996, 1.005))]  # open by less than 1 %
    assert proven_facts(listed, fine, known())[0] == ("seq_len", "model")
    wide = [check("logged_tflops", (0.995, 1.006))]
    assert proven_facts(listed, wide, known())[0] == ()


def test_counts_of_which_only_a_product_is_known_are_not_proven() -> None:
    """Tokens/s from batch over GPUs: both may be wrong together; one alone is proven."""
    of_both = [check("logged_tgs", (0.999, 1.001), depends_on="gpus global_batch_size")]
    listed = [
        Hypothesis("gpus", "gpus=16", {"logged_tgs": 0.5}, 16),
        Hypothesis("global_batch_size", "batch=32", {"logged_tgs": 2.0}, 32),
    ]
    assert proven_facts(listed, of_both, known()) == ((), {})
    alone = [check("logged_samples_per_second", (0.999, 1.001), depends_on="global_batch_size")]
    both = [*of_both, *alone]
    listed[1] = listed[1]._replace(factors={"logged_tgs": 2.0, "logged_samples_per_second": 2.0})
    assert set(proven_facts(listed, both, known())[0]) == {"gpus", "global_batch_size"}


def test_a_peak_is_proven_by_a_coarse_figure() -> None:
    """Few peaks exist, and all of them were tried."""
    wide = [check("logged_mfu", (0.9, 1.1), depends_on="model peak")]
    listed = [Hypothesis("logged_peak_flops", "a peak of 312", {"logged_mfu": 3.17}, 312e12)]
    assert proven_facts(listed, wide, known())[0] == ("logged_peak_flops",)
    assert proven_facts([], wide, known())[0] == ()


# --- other readings ---------------------------------------------------------------------------


def test_a_length_with_half_of_the_attention_may_be_twice_the_length() -> None:
    """F = linear + slope x T: twice the length at half the attention is the same."""
    facts = known()
    checks = check_formulas(titan_lines(facts), TITAN, facts)
    found = other_readings(TITAN, facts, checks, (TITAN,))
    assert "seq_len=8,192 with half of its attention (causal)" in found
    assert "seq_len=2,048 with twice its attention" in found
    assert not [text for text in found if text.startswith("seq_len=4,096")]
    stated = known(logged_values=frozenset({("seq_len", "8192.0"), ("seq_len", "unknown")}))
    assert other_readings(TITAN, stated, checks, (TITAN,)) == [
        "seq_len=8,192 with half of its attention (causal)"
    ]
    same = known(logged_values=frozenset({("seq_len", "4096")}))
    assert other_readings(TITAN, same, checks, (TITAN,)) == []
    assert other_readings(TITAN, facts, [check("logged_tgs", (0.9, 1.1))], (TITAN,)) == []


def test_an_embedding_may_be_read_into_a_length() -> None:
    """One more table of 6 x 128,256 x 4,096 FLOPs."""
    facts = known()
    table = 6 * 128_256 * 4096
    truth = flops(TITAN, facts._replace(T=8192)) + table
    times = truth / flops(TITAN, facts)
    checks = check_formulas(titan_lines(facts, times), TITAN, facts)
    found = other_readings(TITAN, facts, checks, (TITAN,))
    assert "seq_len=8,192 with the embedding counted" in found


def test_models_that_give_the_same_flops() -> None:
    per_token = flops(TITAN, known())
    bounds = (per_token * 0.9999, per_token * 1.0001)
    found = matching_models(TITAN, known(), *bounds)
    names = {(shape.params_total, length) for shape, length in found}
    assert (LLAMA.params_total, 4096) in names
    assert all(shape.name == "" for shape, _ in found)
    counted = matching_models(TITAN, known(params=LLAMA.params_total), *bounds)
    assert {(shape.params_total, length) for shape, length in counted} == {
        (LLAMA.params_total, 4096)
    }
    other = matching_models(TITAN, known(line_length=2048), *bounds)
    assert (LLAMA.params_total, 4096) not in {(s.params_total, n) for s, n in other}
    read = matching_models(TITAN, known(params=LLAMA.params_total), *bounds, however_read=True)
    lengths = {length for _, length in read}
    assert {4096, 8192, 2048} <= lengths
    assert matching_models(TITAN, known(), 1.0, 2.0) == set()


def test_lengths_that_people_train_with() -> None:
    assert {64, 96, 512, 768, 1472, 2560, 4096, 8192, 131_072, 1_048_576} <= set(COMMON_LENGTHS)
    assert len(COMMON_LENGTHS) == 32
    assert sorted(COMMON_LENGTHS) == [*COMMON_LENGTHS]


def test_formulas_of_another_slope_scale_differently() -> None:
    """XTuner 0.1.16 halves what 0.1.14 counts of attention."""
    facts = known(log_format="xtuner")
    older = ERAS_BY_NAME["xtuner-0.1.14"]
    assert scales_differently(XTUNER, older, facts)
    assert not scales_differently(older, ERAS_BY_NAME["xtuner-0.1.10"], facts)
    assert not scales_differently(XTUNER, ERAS_BY_NAME["deepspeed-engine"], facts)


# --- means beside last values -----------------------------------------------------------------


def test_tflops_that_follow_the_mean_time_are_a_mean() -> None:
    """Times of 2 s within 1 %, tokens/s that swing by 20 %, TFLOP/s that go with the times."""
    times = [2.0, 2.2, 1.8, 2.0]
    of_mean = {"elapsed_s": times, "logged_tflops": [round(600 / t, 4) for t in times]}
    swinging = [6000.0, 7200.0, 4800.0, 6000.0]
    note = mean_rate_note(lines(logged_tgs=swinging, **of_mean), known(own_time=False))
    assert note is not None
    assert note.startswith("tflops a mean over several steps")
    assert mean_rate_note(lines(logged_tgs=swinging, **of_mean), known()) is None
    alike = [12_000 / t for t in times]  # tokens/s fit as well
    assert mean_rate_note(lines(logged_tgs=alike, **of_mean), known(own_time=False)) is None
    two = {name: values[:2] for name, values in of_mean.items()}
    assert mean_rate_note(lines(logged_tgs=swinging[:2], **two), known(own_time=False)) is None
    off = of_mean | {"logged_tflops": [300.0, 280.0, 330.0, 306.0]}
    assert mean_rate_note(lines(logged_tgs=swinging, **off), known(own_time=False)) is None


# --- what is tried ----------------------------------------------------------------------------


def tried(era: Era, facts: FormulaFacts, *eras: Era) -> dict[str, list[Any]]:
    """Values of each fact that is changed alone."""
    values: dict[str, list[Any]] = {}
    for case in alternatives(era, facts, eras):
        values.setdefault(case.fact, []).append(case.value)
    return values


def test_counts_are_tried_by_usual_factors() -> None:
    """48 times 1/16 to 16, and 2/3 and 3/2; of 8 only whole ones."""
    found = tried(TITAN, known(gpus=48, batch=48, micro_batch=8))
    by_factor = [3, 6, 12, 16, 24, 32, 72, 96, 144, 192, 384, 768]
    assert found["gpus"] == found["global_batch_size"] == by_factor
    assert found["micro_batch_size"] == [1, 2, 4, 12, 16, 24, 32, 64, 128]
    assert found["context_parallel"] == [2, 3, 4, 8, 16]
    unknown = tried(TITAN, known(gpus=None, batch=None))
    assert not {"gpus", "global_batch_size", "micro_batch_size"} & unknown.keys()


def test_every_peak_length_and_policy_is_tried() -> None:
    found = tried(TITAN, known())
    assert found["logged_peak_flops"] == sorted(set(TITAN.peak_values))
    assert found["seq_len"] == [*COMMON_LENGTHS]
    assert "recompute" not in found  # Torchtitan counts none
    assert tried(XTUNER, known(log_format="xtuner"))["recompute"] == ["none", "full"]


def test_two_facts_are_tried_where_another_formula_sees_the_length_otherwise() -> None:
    older, facts = ERAS_BY_NAME["xtuner-0.1.14"], known(log_format="xtuner")
    assert tried(XTUNER, facts, older)["seq_len"] == [*COMMON_LENGTHS, *COMMON_LENGTHS]
    texts = [case.text for case in alternatives(XTUNER, facts, (older,))]
    assert "seq_len=8,192 by the formula of xtuner-0.1.14" in texts
    given = known(log_format="xtuner", era=XTUNER.name)
    assert tried(XTUNER, given, older)["seq_len"] == [*COMMON_LENGTHS]
    first = next(iter(alternatives(XTUNER, given, (older,))))
    assert (first.fact, first.value) == ("logged_formula", older.name)


def test_a_case_is_the_factor_by_which_it_changes_a_prediction() -> None:
    facts = known()
    checks = check_formulas(titan_lines(facts), TITAN, facts)
    longer = known(T=8192)
    found = hypothesis_from_case(
        ChangedFact("seq_len", "long", TITAN, longer), TITAN, facts, checks
    )
    assert found is not None
    assert (found.fact, found.text, found.value) == ("seq_len", "long", 8192)
    assert found.factors == {"logged_tflops": flops(TITAN, longer) / flops(TITAN, facts)}
    nothing = ChangedFact("model", "none", TITAN, known(shape=None))
    assert hypothesis_from_case(nothing, TITAN, facts, checks) is None


def test_half_and_twice_an_unusual_length_are_tried_too() -> None:
    facts = known(T=5000)
    checks = check_formulas(titan_lines(facts), TITAN, facts)
    found = other_readings(TITAN, facts, checks, (TITAN,))
    assert "seq_len=10,000 with half of its attention (causal)" in found
    assert "seq_len=2,500 with twice its attention" in found
    per_token = flops(TITAN, facts)
    models = matching_models(TITAN, facts, per_token * 0.999999, per_token * 1.000001)
    assert (LLAMA.params_total, 5000) in {(shape.params_total, n) for shape, n in models}


def test_another_known_model_may_give_the_same_flops() -> None:
    """Where the log counts no parameters; those that it counts are of the given model."""
    other = find_model("qwen3-8b")
    per_token = flops(TITAN, known(shape=other))
    bounds = (per_token * 0.999999, per_token * 1.000001)
    found = matching_models(TITAN, known(), *bounds)
    assert (other.params_total, 4096) in {(shape.params_total, n) for shape, n in found}
    counted = matching_models(TITAN, known(params=LLAMA.params_total), *bounds)
    assert other.params_total not in {shape.params_total for shape, _ in counted}


def test_readings_of_an_mfu_are_by_the_peak() -> None:
    facts = known(device="NVIDIA H100")
    rates = [6000.0, 6100.0]
    figures = [round(rate * flops(TITAN, facts) / 989e12, 4) for rate in rates]
    checks = check_formulas(lines(logged_tgs=rates, logged_mfu=figures), TITAN, facts)
    found = other_readings(TITAN, facts, checks, (TITAN,))
    assert "seq_len=8,192 with half of its attention (causal)" in found
