"""Studies: one knob, several knobs, scale, accelerators, repeats, and what is confounded."""

from __future__ import annotations

import json
from math import log2
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.compare.comparability import (
    MEASURED_COLUMNS,
    VARIABLE_COLUMNS,
    compare_pair,
    rank_runs,
)
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import prices
from fairmfu.metrics.compare.scaling import batch_growth, one_doubling_ahead, scale_points
from fairmfu.metrics.compare.studies import (
    FACTS,
    Study,
    find_studies,
    settings_of,
)
from fairmfu.metrics.core.run_table import metrics_rows
from fairmfu.reports.comparison.study_text import study_frame, study_heading, study_sentence
from fairmfu.reports.text.verdict import group_verdict, join_comparison, ranked_groups

from .test_comparability import metrics

KNOB_VALUES: dict[str, list[Any]] = {
    "precision": ["bf16", "fp8", "fp8+lm_head"],
    "recompute": ["none", "selective", "full"],
    "compile": ["no", "yes"],
    "micro_batch_size": [1, 2, 4],
    "tensor_parallel": [1, 2, 4],
    "zero_stage": [1, 2, 3],
    "gpus": [8, 16],
    "device": ["NVIDIA H100 SXM", "NVIDIA A100 SXM 80GB"],
}


def rows_of(*changes: dict[str, Any]) -> list[ComparisonRow]:
    table = metrics(*({"log_format": "torchtitan", "doubts": []} | c for c in changes))
    return join_comparison(table, rank_runs(table), {})


def studies_of(*changes: dict[str, Any], **asked: Any) -> list[Study]:
    return find_studies(rows_of(*changes), **asked)


def rate(tgs: float, width: float = 0.002) -> dict[str, Any]:
    return {"tgs": tgs, "tgs_low": tgs * (1 - width), "tgs_high": tgs * (1 + width)}


def test_one_knob_is_an_effect_also_across_groups() -> None:
    (study,) = studies_of(rate(6000), rate(6300) | {"precision": "fp8"})
    assert (study.kind, study.by) == ("knobs", ("precision",))
    assert study.baseline.first["name"] == "r0"
    ratio = study.effects[1].ratio
    assert ratio is not None
    assert ratio.ratio == pytest.approx(1.05)
    assert study_sentence(study) == ("precision bf16 -> fp8: 1.050x (1.047 to 1.053) as fast.")


def test_a_ladder_names_the_effect_of_each_step() -> None:
    (study,) = studies_of(
        rate(5000) | {"recompute": "none"},
        rate(6000) | {"recompute": "none", "compile": "true"},
        rate(6600) | {"recompute": "none", "compile": "true", "precision": "fp8"},
    )
    assert [len(effect.changes) for effect in study.effects] == [0, 1, 2]
    last = study.effects[-1]
    assert last.step_change is not None
    assert last.step_ratio is not None
    assert last.step_change.name == "precision"
    assert last.step_ratio.ratio == pytest.approx(1.1)
    assert study.confounded == ()


def test_two_facts_at_once_are_confounded_by_name() -> None:
    (study,) = studies_of(rate(5000), rate(6600) | {"compile": "true", "precision": "fp8"})
    assert len(study.confounded) == 1
    told = "Confounded: precision bf16 -> fp8 and compile not stated -> yes change together"
    assert told in study_sentence(study)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_effect_of_several_facts_never_passes_for_one(data: st.DataObject) -> None:
    """Of any two runs: a change is told for each fact that differs, and for no other one."""
    draw = {name: st.sampled_from(values) for name, values in KNOB_VALUES.items()}
    one, two = data.draw(st.fixed_dictionaries(draw)), data.draw(st.fixed_dictionaries(draw))
    apart = {name for name in one if one[name] != two[name]}
    studies = studies_of(rate(5000) | one, rate(6000) | two)
    if not apart:
        assert studies == []
    for study in studies:
        assert {change.name for effect in study.effects for change in effect.changes} == apart
        assert bool(study.confounded) == (len(apart) > 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({n: st.sampled_from(v) for n, v in KNOB_VALUES.items()}),
        min_size=2,
        max_size=9,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_runs_changes_nothing(runs: list[dict[str, Any]], random: Any) -> None:
    rows = rows_of(*(rate(5000 + 37 * n) | run for n, run in enumerate(runs)))
    mixed = rows.copy()
    random.shuffle(mixed)

    def told(rows: list[ComparisonRow]) -> list[str]:
        return sorted(
            json.dumps([study_heading(s), study_sentence(s), study_frame(s).to_dicts()])
            for s in find_studies(rows)
        )

    assert told(rows) == told(mixed)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5),
    st.sampled_from(["micro_batch_size", "tensor_parallel", "zero_stage"]),
)
def test_effects_of_one_fact_are_the_ratios_of_the_rates(factors: list[float], name: str) -> None:
    runs = [rate(5000 * f) | {name: 2**n} for n, f in enumerate(factors)]
    (study,) = studies_of(*runs, by=name)
    assert study.by == (name,)
    for effect, factor in zip(study.effects[1:], factors[1:], strict=True):
        assert effect.ratio is not None
        assert effect.ratio.ratio == pytest.approx(factor / factors[0])
        assert effect.ratio.low is not None
        assert effect.ratio.high is not None
        assert effect.ratio.low < factor / factors[0] < effect.ratio.high


def test_the_global_batch_follows_from_the_gpus() -> None:
    runs = [rate(6000) | {"gpus": n, "samples_per_update": float(n)} for n in (8, 16, 32)]
    (study,) = studies_of(*runs)
    assert (study.kind, study.by) == ("scale", ("gpus",))
    assert batch_growth(study) == "weak"
    strong = [run | {"samples_per_update": 64.0} for run in runs]
    assert batch_growth(studies_of(*strong)[0]) == "strong"


def test_scale_is_in_the_order_of_gpus_with_what_each_doubling_keeps() -> None:
    kept = {8: 1.0, 128: 0.9, 16: 0.98, 32: 0.97}
    (study,) = studies_of(*(rate(6000 * e) | {"gpus": n} for n, e in kept.items()))
    points = scale_points(study)
    assert [point.gpus for point in points] == [8, 16, 32, 128]
    assert points[-1].per_doubling == pytest.approx((0.9 / 0.97) ** 0.5)
    assert points[-1].efficiency is not None
    assert points[-1].efficiency.ratio == pytest.approx(0.9)


@pytest.mark.parametrize("cost", ["logarithm", "root", "proportional", "power"])
def test_the_next_doubling_is_within_its_interval(cost: str) -> None:
    """Times per token that grow with the logarithm of the GPUs, their root, themselves."""
    growth = {
        "logarithm": lambda n: 0.02 * log2(n),
        "root": lambda n: 0.005 * n**0.5,
        "proportional": lambda n: 0.0003 * n,
        "power": lambda n: 0.002 * n**0.8,
    }[cost]
    hits = []
    for seed in range(100):
        noise = np.random.default_rng(seed).normal(1, 0.004, 6)
        sizes = [8, 16, 32, 64, 128, 256]
        rates = [6000 / (1 + growth(n)) * e for n, e in zip(sizes, noise, strict=True)]
        (study,) = studies_of(
            *(rate(r, 0.008) | {"gpus": n} for n, r in zip(sizes, rates, strict=True))
        )
        ahead = one_doubling_ahead(study)
        assert ahead is not None
        truth = 6000 / (1 + growth(512)) / rates[0]
        hits.append(ahead.low <= truth <= ahead.high)
    assert np.mean(hits) >= 0.9


def test_few_sizes_tell_nothing_of_the_next_one() -> None:
    (study,) = studies_of(*(rate(6000) | {"gpus": n} for n in (8, 16)))
    assert one_doubling_ahead(study) is None


def test_accelerators_are_offers_and_samples_count_at_equal_gpus_only() -> None:
    (study,) = studies_of(
        rate(6000), rate(2400) | {"device": "NVIDIA A100 SXM 80GB", "micro_batch_size": 2}
    )
    assert study.kind == "accelerators"
    assert study_sentence(study).startswith(
        "NVIDIA H100 SXM is 2.50x (2.49 to 2.51) as fast per GPU as NVIDIA A100 SXM 80GB, so it is "
        "cheaper per token below 2.49x the price, and dearer above 2.51x."
    )
    untold = {"tgs": None, "samples_per_second": 40.0, "seconds_per_step": 1.0, "gpus": None}
    assert studies_of(untold | {"zero_stage": 1}, untold | {"zero_stage": 2}) == []


A100 = {"device": "NVIDIA A100 SXM 80GB"}


@pytest.mark.parametrize(
    "unsure",
    [
        {"tgs_low": None, "tgs_high": None},
        {"tgs_low": 2300.0, "tgs_high": 9000.0},
        {"doubts": ["TGS is a mean of a drifting speed: it fell by 9.2% from first to last."]},
        {"compile": "true"},
    ],
)
def test_prices_need_an_interval_without_1_and_no_doubt(unsure: dict[str, Any]) -> None:
    (sure,), (doubtful,) = (
        studies_of(rate(6000) | more, rate(2400) | A100) for more in ({}, unsure)
    )
    assert "cheaper" in study_sentence(sure)
    assert "cheaper" not in study_sentence(doubtful)
    assert "as fast per GPU as" in study_sentence(doubtful)


@pytest.mark.parametrize(
    ("first", "second", "are_two"),
    [
        ("AMD EPYC 9654", "AMD EPYC 9654 @ 2.40GHz", False),
        ("NVIDIA A100", "NVIDIA A100 SXM 80GB", False),
        ("NVIDIA RTX 3090", "NVIDIA RTX 3090 Ti", True),
        ("NVIDIA L4", "NVIDIA L40", True),
    ],
)
def test_names_that_may_be_of_one_accelerator_are_no_comparison(
    first: str, second: str, *, are_two: bool
) -> None:
    runs = rate(6000) | {"device": first}, rate(2400) | {"device": second}
    assert [study.kind for study in studies_of(*runs)] == ["accelerators"] * are_two
    assert len(studies_of(*runs, by="device")) == are_two


SLOWED = [
    {"from_step": 5, "to_step": 90, "tgs": 5500.0, "ranked": False},
    {"from_step": 91, "to_step": 400, "tgs": 5000.0, "ranked": True},
]


def test_a_doubt_about_a_rate_is_beside_the_effect() -> None:
    """A speed that fell inside a run is no effect of its version."""
    slowed = {
        "doubts": ["Speed changed inside the run, and TGS is only of steps 91 to 400. Fix: x"]
    }
    runs = [
        rate(5000) | slowed | {"levels": SLOWED, "framework_version": "1"},
        rate(6000) | {"framework_version": "2"},
    ]
    (study,) = studies_of(*runs)
    assert study_sentence(study).endswith(
        "1.200x (1.197 to 1.203) as fast. Doubt about r0: Speed changed inside the run, and TGS is "
        "only of steps 91 to 400; by its speed at steps 5 to 90 the ratio is 1.09x. Options that "
        "fairmfu does not read may differ too."
    )
    (verdict,) = [group_verdict(group) for group in ranked_groups(rows_of(*runs))]
    assert verdict.sentence.endswith("; by its speed at steps 5 to 90 the ratio is 1.09x.")
    without = {"tgs_low": None, "tgs_high": None}
    (unsure,) = studies_of(runs[0] | without, runs[1])
    assert "Doubt" not in study_sentence(unsure)


def test_all_figures_of_a_setting_are_of_the_same_runs() -> None:
    """A mean rate had the cost, time and memory of its fastest run beside it."""
    silent = {"recompute": None, "peak_memory_bytes": 2e9}
    runs = [
        rate(r) | silent | {"seconds_per_step": 8e4 / r, "tokens_per_update": 1e6, **more}
        for r, more in ((4000, {}), (9000, {"peak_memory_bytes": 3e9}), (6000, {}))
    ]
    (study,) = studies_of(*runs, rate(7000) | silent | {"compile": "true"})
    frame = study_frame(study)
    (pooled,) = frame.filter(runs=3).to_dicts()
    assert pooled["tgs"] == pytest.approx(6000)
    assert pooled["seconds_per_step"] == pytest.approx(8e4 / 6000)
    assert pooled["gpu_hours_per_billion_tokens"] == pytest.approx(1e9 / 6000 / 3600)
    assert (pooled["peak_memory_bytes"], pooled["tokens_per_update"]) == (3e9, 1e6)
    runs[0]["tokens_per_update"] = 5e5
    (study,) = studies_of(*runs, rate(7000) | silent | {"compile": "true"})
    assert study_frame(study).filter(runs=3)["tokens_per_update"].to_list() == [None]


def test_a_cell_never_pools_two_models_or_unknown_ones() -> None:
    unknown = {"model": None, "work": None}
    runs = rows_of(
        rate(5000), rate(6000) | {"model": "b", "work": "b"}, *(rate(7000) | unknown,) * 2
    )
    assert [len(setting.rows) for setting in settings_of(runs)] == [1, 1, 1, 1]


def test_a_run_out_of_memory_is_a_cell_with_its_outcome() -> None:
    (study,) = studies_of(
        rate(6000) | {"micro_batch_size": 1},
        rate(6600) | {"micro_batch_size": 2},
        {"tgs": None, "micro_batch_size": 4, "outcome": "out_of_memory"},
    )
    frame = study_frame(study)
    assert frame["outcome"].to_list() == [None, None, "out of memory"]
    assert frame["tgs"].to_list() == [6000.0, 6600.0, None]


def test_repeats_are_one_setting_with_their_spread() -> None:
    runs = [rate(r) for r in (5990, 6000, 6010)]
    (study,) = studies_of(*runs)
    assert (study.kind, study.baseline.first["tgs"]) == ("repeats", 6010)
    assert study_sentence(study).startswith("3 runs of one set-up have 6,000 (")
    assert study_sentence(study).endswith("differ by 0.33 %.")


def test_an_unstated_accelerator_does_not_hide_a_ratio() -> None:
    """Item of both logs that neither states: it is assumed to be equal, and said."""
    unknown = {"device": None, "peak_flops": None, "missing": ["accelerator"]}
    (study,) = studies_of(rate(6000) | unknown, rate(6600) | unknown | {"compile": "true"})
    assert study.effects[1].ratio is not None
    assert study_sentence(study).endswith("This assumes equal accelerator, which no log states.")


def test_a_doubted_rate_is_no_effect() -> None:
    doubted = {"warnings": ["Not ranked: tokens are counted twice."]}
    assert studies_of(rate(6000), rate(6600) | {"compile": "true"} | doubted) == []


def test_frameworks_are_never_a_knob() -> None:
    assert (
        studies_of(rate(6000), rate(5000) | {"log_format": "xtuner", "framework": "xtuner"}) == []
    )


def test_every_fact_is_a_column_of_metrics() -> None:
    row = cast(dict[str, Any], metrics_rows(metrics({}))[0])
    assert set(FACTS) <= set(row)


def test_prices_of_two_accelerators_say_which_tokens_are_cheaper() -> None:
    table = metrics(
        rate(6000) | {"log_format": "torchtitan", "doubts": []},
        rate(2400) | {"log_format": "torchtitan", "doubts": [], "device": "NVIDIA A100 SXM 80GB"},
    )
    ranked = rank_runs(table, price=prices(["H100=2.50", "A100=1.20"]))
    (study,) = find_studies(join_comparison(table, ranked, {}))
    assert (
        "1 billion tokens cost 138.89 on NVIDIA A100 SXM 80GB (at 1.20) and 115.74 on NVIDIA H100 "
        "SXM (at 2.50)."
    ) in study_sentence(study)


def test_the_baseline_has_the_smallest_numbers_of_its_own() -> None:
    """The global batch follows from the layout, and is no reason for a baseline."""
    runs = [
        rate(5000 + tp) | {"tensor_parallel": tp, "samples_per_update": 8.0 / tp}
        for tp in (1, 2, 4)
    ]
    (study,) = studies_of(*runs)
    assert study.baseline.values["tensor_parallel"] == 1
    assert study.by == ("tensor_parallel",)


def test_an_unknown_quantized_precision_is_named_as_such() -> None:
    quantized = {"precision": None, "quantization": "Swapped to Float8Linear layers"}
    (study,) = studies_of(rate(6000), rate(6900) | quantized)
    assert study_sentence(study).startswith("precision bf16 -> fp8, recipe not stated: 1.150x (")


@pytest.mark.parametrize("precision", [None, "fp8+lm_head"])
def test_each_recipe_of_a_precision_is_a_setting(precision: str | None) -> None:
    """As in a table of tensorwise and rowwise scaling against bf16; pooled, both were lost."""
    said = (
        "Float8 tensorwise scaled training active",
        "Float8 training active with recipe rowwise",
    )
    runs = [{"precision": precision, "quantization": text} for text in said]
    (study,) = studies_of(rate(6019), rate(7190) | runs[0], rate(6649) | runs[1])
    words = study_sentence(study)
    assert f"-> {precision or 'fp8'} (tensorwise): 1.195x" in words
    assert "(rowwise): 1.105x" in words
    (alone,) = studies_of(rate(6019), rate(7190) | runs[0])
    assert ("(tensorwise)" in study_sentence(alone)) is (precision is None)


def by_samples(per_second: float, gpus: int, **facts: Any) -> dict[str, Any]:
    """A run of known batch and time, whose tokens and model the log does not state."""
    batch = facts.get("samples_per_update", 4.0 * gpus)
    seconds = batch / per_second
    ends = {"seconds_per_step_low": seconds * 0.999, "seconds_per_step_high": seconds * 1.001}
    unknown = dict.fromkeys(
        ("tgs", "tgs_low", "tgs_high", "seq_len", "model", "work", "token_basis")
    )
    rates = {"samples_per_second": per_second, "seconds_per_step": seconds}
    return {**unknown, **rates, **ends, "samples_per_update": batch, "gpus": gpus, **facts}


@given(st.floats(1, 1e4), st.floats(0.1, 4), st.integers(1, 64), st.integers(1, 8))
def test_scale_by_samples_is_per_gpu(
    per_second: float, efficiency: float, gpus: int, times: int
) -> None:
    """Chosen runs whose logs name no model are taken as runs of one, and the sentence says so."""
    more = gpus * (times + 1)
    runs = by_samples(per_second, gpus), by_samples(per_second * efficiency * more / gpus, more)
    assert studies_of(*runs) == studies_of(*runs, by="gpus") == []
    (study,) = studies_of(*runs, by="gpus", chosen=True)
    ratio = study.effects[1].ratio
    assert (study.kind, ratio and ratio.ratio) == ("scale", pytest.approx(efficiency))
    assert "This assumes equal model" in study_sentence(study)
    shown = study_frame(study)["samples_per_second"].to_list()
    assert shown == pytest.approx([per_second, per_second * efficiency * more / gpus])
    assert len(studies_of(*runs, chosen=True)) == 1


@pytest.mark.parametrize("unlike", [{"packed": "true"}, {"packed": "partly"}, {"seq_len": 4096}])
def test_samples_of_other_lengths_have_no_ratio(unlike: dict[str, Any]) -> None:
    """A pack of samples takes longer than a sample: 12 s against 10.2 s is no loss of speed."""
    runs = by_samples(1.57, 8, zero_stage=3), by_samples(1.33, 8, zero_stage=2) | unlike
    assert studies_of(*runs, chosen=True) == []
    plain, other = studies_of(*runs, by_samples(1.4, 8, zero_stage=1), chosen=True)[0].effects[1:]
    assert {plain.ratio is None, other.ratio is None} == {True, False}


def test_a_run_without_zero_is_another_setting() -> None:
    """Of runs with another accumulation, one had ZeRO 2: its effect was called accumulation's."""
    runs = [
        by_samples(1.47, 2, gradient_accumulation=1, samples_per_update=6.0),
        by_samples(1.32, 2, gradient_accumulation=4, samples_per_update=24.0),
        by_samples(0.88, 2, gradient_accumulation=4, samples_per_update=24.0, zero_stage=2),
    ]
    (study,) = studies_of(*runs, chosen=True)
    assert study.by == ("gradient_accumulation", "zero_stage")
    told = {tuple(change.name for change in effect.changes) for effect in study.effects}
    assert len(told) == 3
    told = study_sentence(study)
    against = "; at gradient accumulation 4, ZeRO stage 2 is "
    assert against in told
    offloaded = [*runs[:2], {**runs[2], "offload": "none"}]  # a log without ZeRO says nothing of it
    assert study_sentence(studies_of(*offloaded, chosen=True)[0]) == study_sentence(study)


def test_runs_of_unknown_settings_are_no_repeats() -> None:
    """Three excerpts that do not state recompute may be three experiments."""
    silent = {"recompute": None}
    assert studies_of(*(rate(r) | silent for r in (5990, 6000, 6010))) == []
    runs = [rate(r) | silent for r in (5900, 6000, 6100)]
    tuned = [rate(r) | silent | {"compile": "true"} for r in (6500, 6600, 6700)]
    (study,) = studies_of(*runs, *tuned)
    ratio = study.effects[1].ratio
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.low < 1.08
    side = study.baseline.side
    assert side is not None
    assert not side.has_run_interval


def test_runs_of_two_engines_differ_in_more_than_one_knob() -> None:
    """One format may have several engines below, and only one of them has ZeRO."""
    engine = {"framework": "deepspeed", "zero_stage": 3, "offload": "optimizer, parameters"}
    (study,) = studies_of(
        rate(5000) | {"framework": "transformers", "gradient_accumulation": 1, "offload": "none"},
        rate(6000) | engine | {"gradient_accumulation": 16},
    )
    (effect,) = study.confounded
    names = [change.name for change in effect.changes]
    assert names == ["framework", "gradient_accumulation", "offload"]
    assert "one fact only" not in study_sentence(study)


def test_a_fact_that_only_some_logs_state_is_named_beside_the_effect() -> None:
    (study,) = studies_of(
        rate(5000) | {"offload": "optimizer"},
        rate(6000) | {"precision": "fp8", "torch": "2.9"},
    )
    told = study_sentence(study)
    assert told.startswith("precision bf16 -> fp8: ")
    assert told.endswith(" Unknown for some, and may differ: offload and PyTorch.")


def test_what_a_comparison_lists_as_different_is_a_fact_of_studies() -> None:
    measured = {*MEASURED_COLUMNS, "flops_source", "time_basis"}
    same_by_another_name = {"global_batch_size", "quantization"}
    assert {*VARIABLE_COLUMNS} - {*FACTS} == measured | same_by_another_name


@pytest.mark.parametrize(
    ("work", "model", "words"),
    [
        ("9bb2d66c3feb", "opt-350m", "model (opt-350m vs facebook/opt-13b)"),
        ("9bb2d66c3feb", "facebook/opt-13b", "model shape"),
    ],
)
def test_a_difference_names_a_model_once_and_by_no_hash(work: str, model: str, words: str) -> None:
    first = by_samples(1.47, 2) | {"work": work, "model": model}
    second = by_samples(1.32, 2) | {"work": None, "model": "facebook/opt-13b"}
    pair = compare_pair(*rows_of(first, second))
    (told,) = [difference for difference in pair.differences if "model" in difference]
    assert told == words
