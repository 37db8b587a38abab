"""From a log's figure to ours: the factors multiply to the total, and none hides in another."""

from __future__ import annotations

import json
from itertools import accumulate
from math import prod
from operator import mul
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.audit.audit_results import Audit
from fairmfu.metrics.audit.bridge import _counts, build_bridges
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME, all_eras
from fairmfu.metrics.audit.eras import deepspeed, torchtitan, xtuner
from fairmfu.metrics.audit.fact_suggestions import propose_facts
from fairmfu.metrics.audit.formula_checks import FormulaFacts, era_flops
from fairmfu.metrics.audit.formula_era import GAP_CAUSES, Era
from fairmfu.metrics.audit.messages import FIGURES_DO_NOT_FOLLOW
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_table import METRICS, not_null
from fairmfu.metrics.formula.flops import Trainable, flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import (
    ModelShape,
    ShapeError,
    buildable_models,
    find_model,
)
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.utilization.formula_inputs import FormulaInputs
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

SHAPES = [shape for shape in buildable_models() if not shape.has_linear_attention]
ERA_ROWS = (*torchtitan.ERA_ROWS, *xtuner.ERA_ROWS, *deepspeed.ERA_ROWS)
COUNTING = [row.keywords["name"] for row in ERA_ROWS if row.keywords.get("stages")]

NOTHING_KNOWN = FormulaFacts(
    log_format="torchtitan",
    shape=None,
    T=None,
    recompute=None,
    intermediate_size=None,
    padded_vocab=None,
    gpus=None,
    batch=None,
    peak=None,
    device=None,
    day=None,
    era=None,
    version=None,
)


def of(model: str, T: int, **more: object) -> FormulaFacts:  # noqa: N803
    return NOTHING_KNOWN._replace(shape=find_model(model), T=T, **more)  # type: ignore[arg-type]


def era(name: str) -> Era:
    return ERAS_BY_NAME[name]


def counted(model: str, T: int, name: str, trainable: Trainable | None = None) -> dict[str, float]:  # noqa: N803
    run = FormulaInputs(
        find_model(model), T, trainable or Trainable(), None, lengths_unknown_reason=None
    )
    found = _counts(run, of(model, T, recompute="full"), era(name))
    return {factor.cause: factor.factor for factor in found}


# --- laws -----------------------------------------------------------------------------------


@given(
    st.sampled_from(SHAPES),
    st.sampled_from([256, 2048, 8192, 131_072]),
    st.sampled_from(COUNTING),
    st.sampled_from(["none", "full"]),
)
def test_the_factors_lead_from_their_count_to_ours(
    shape: ModelShape,
    length: int,
    own_name: str,
    recompute: str,
) -> None:
    own = ERAS_BY_NAME[own_name]
    known_of_it = of(shape.name, length, recompute=recompute)
    theirs = era_flops(own, known_of_it.simplified_model())
    run = FormulaInputs(shape, length, Trainable(), None, lengths_unknown_reason=None)
    factors = _counts(run, known_of_it, own)
    if theirs is None:
        assert factors == ()
        return
    ours = flops_per_token(run.operators())
    assert theirs * prod(f.factor for f in factors) == pytest.approx(ours, rel=1e-7)
    assert {f.cause for f in factors} <= set(GAP_CAUSES)
    assert all(f.factor > 0 for f in factors)


@each_case("name", COUNTING)
def test_each_factor_leads_to_the_count_of_a_stage(name: str) -> None:
    """In the order of the factors: a reader can multiply them one by one."""
    own, known_of_it = ERAS_BY_NAME[name], of("llama-2-7b", 2048, recompute="full")
    stages = own.stages_of("logged_tflops")
    if len({stage.cause for stage in stages}) < len(stages):
        return
    seen = not_null(known_of_it.simplified_model())
    run = FormulaInputs(
        find_model("llama-2-7b"), 2048, Trainable(), None, lengths_unknown_reason=None
    )
    counts = [*(stage.flops(seen) for stage in stages), flops_per_token(run.operators())]
    theirs = not_null(era_flops(own, seen))
    for count in accumulate(
        (f.factor for f in _counts(run, known_of_it, own)), mul, initial=theirs
    ):
        assert any(count == pytest.approx(known) for known in counts)


@each_case("name", COUNTING)
def test_every_stage_counts_something_of_a_usual_model(name: str) -> None:
    own = ERAS_BY_NAME[name]
    seen = SimplifiedModel(
        shape=find_model("llama3-8b"), T=4096, recompute="full", intermediate_size=None
    )
    assert all(stage.flops(seen) > 0 for stage in own.stages)
    assert {stage.cause for stage in own.stages} <= set(GAP_CAUSES)


# --- single causes by hand ------------------------------------------------------------------


def test_the_embedding_is_one_factor() -> None:
    shape = find_model("llama3-8b")
    factors = counted("llama3-8b", 8192, "torchtitan-2024-03")
    table = 6 * shape.vocab_size * shape.hidden_size
    assert 1 / factors["embedding"] == pytest.approx(1 + table / 57_914_449_920)
    assert set(factors) == {"embedding", "norms", "attention"}


def test_full_attention_is_one_factor() -> None:
    shape = find_model("llama3-8b")
    exact = flops_per_token(operators(shape, 8192))
    full = flops_per_token(operators(shape, 8192, attention="full"))
    factors = counted("llama3-8b", 8192, "torchtitan-2024-05")
    assert factors["attention"] == pytest.approx(exact / full)


def test_mla_heads_are_taken_for_d_by_h() -> None:
    """DeepSeek-V3: 672 FLOPs per head and token of the attention where 1,920 are."""
    before = counted("deepseek-v3", 4096, "torchtitan-2024-05")
    assert before["head_size"] > 1
    assert "head_size" not in counted("deepseek-v3", 4096, "torchtitan-2025-10")


def test_a_tied_lm_head_that_was_lost() -> None:
    shape = find_model("qwen3-0.6b")
    factors = counted("qwen3-0.6b", 4096, "torchtitan-2026-01")
    whole = era("torchtitan-2025-10").flops(of("qwen3-0.6b", 4096).simplified_model())  # type: ignore[arg-type]
    lost = 6 * shape.vocab_size * shape.hidden_size
    assert factors["lm_head"] == pytest.approx(whole / (whole - lost))
    assert "lm_head" not in counted("qwen3-0.6b", 4096, "torchtitan-2026-05")


def test_lora_counted_as_full_training() -> None:
    adapters = Trainable(kind="lora", lora_rank=16, lora_targets=("all-linear",))
    factors = counted("llama3-8b", 8192, "torchtitan-2024-05", adapters)
    assert 0.6 < factors["trained"] < 0.75


def test_windows_and_all_experts() -> None:
    """gpt-oss: before torchtitan #4300 its windows counted as the whole sequence."""
    wide = counted("gpt-oss-20b", 8192, "torchtitan-2026-05")["attention"]
    narrow = counted("gpt-oss-20b", 8192, "torchtitan-2026-08")["attention"]
    assert wide < narrow < 1
    assert counted("qwen3-30b-a3b", 4096, "torchtitan-2025-08-qwen3")["experts"] < 0.2


def test_closed_forms_that_torchtitan_printed() -> None:
    for model, T, name, flops in (  # noqa: N806
        ("llama3-8b", 8192, "torchtitan-2024-05", 57_914_449_920),
        ("gpt-oss-20b", 4096, "torchtitan-2026-05", 26_481_681_792),
        ("gpt-oss-20b", 4096, "torchtitan-2026-08", 24_141_260_160),
        ("gpt-oss-120b", 4096, "torchtitan-2026-08", 34_534_221_696),
        ("qwen3-30b-a3b", 8192, "torchtitan-2025-10", 37_578_559_488),
        ("qwen3-30b-a3b", 8192, "torchtitan-hf-backend", 192_856_412_160),
        ("deepseek-v2-lite", 4096, "torchtitan-2024-05", 17_426_519_040),
        ("deepseek-v2-lite", 4096, "torchtitan-2025-10", 18_105_996_288),
    ):
        assert era(name).flops(of(model, T).simplified_model()) == flops, (model, name)  # type: ignore[arg-type]


def test_linear_attention_that_an_era_lacks_is_no_factor() -> None:
    with pytest.raises(ShapeError):
        era("torchtitan-2024-05").flops(of("qwen3-next-80b-a3b", 4096).simplified_model())  # type: ignore[arg-type]


# --- whole runs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples") / "store"
    logs = ROOT / "sample_logs" / "synthetic"
    result = CliRunner().invoke(main, ["ingest", str(logs), "--store", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def explained(store: Path, run: str) -> dict[str, object]:
    result = CliRunner().invoke(main, ["explain", run, "--format", "json", "--store", str(store)])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_the_bridge_of_a_sample_closes(store: Path) -> None:
    whole = explained(store, "llama3-8b-8xh100-torchtitan")
    found = {bridge["figure"]: bridge for bridge in whole["bridges"]}  # type: ignore[index, attr-defined]
    assert set(found) == {"logged_mfu", "logged_tflops"}
    for bridge in found.values():
        product = prod(factor["factor"] for factor in bridge["factors"])
        assert bridge["logged"] / bridge["unexplained"] * product == pytest.approx(bridge["ours"])
        assert bridge["low"] <= 1 <= bridge["high"]
        assert bridge["high"] - bridge["low"] < 1e-3
    causes = [factor["cause"] for factor in found["logged_mfu"]["factors"]]
    assert causes[-2:] == ["peak", "window"]
    assert {"attention", "peak", "window"} <= set(causes)
    run = whole["run"]
    assert run["logged_reproduced"] is True  # type: ignore[index]
    assert {"seq_len", "model"} <= set(run["proven"])  # type: ignore[index]


def test_explain_says_it_in_words(store: Path) -> None:
    result = CliRunner().invoke(
        main, ["explain", "llama3-8b-8xh100-torchtitan", "--store", str(store)]
    )
    assert "reproduced: all 21 lines, to the last logged digit; this confirms" in result.output
    assert "From logged MFU to ours" in result.output
    assert "rounding of the logged figure (" in result.output


def test_a_wrong_fact_costs_the_rank_and_is_named(store: Path) -> None:
    run = "llama3-8b-8xh100-torchtitan"
    runner = CliRunner()
    runner.invoke(main, ["set", run, "seq_len=4096", "--store", str(store)])
    try:
        told = explained(store, run)["run"]
        assert told["logged_reproduced"] is False  # type: ignore[index]
        assert told["logged_hypothesis"] == "seq_len=8,192"  # type: ignore[index]
        (warning,) = of_kind(told, FIGURES_DO_NOT_FOLLOW)  # type: ignore[arg-type]
        assert warning.startswith(NOT_RANKED)
        assert warning.endswith(" reproduces 0 of 21 lines. With seq_len=8,192 it reproduces all.")
    finally:
        runner.invoke(main, ["set", run, "seq_len=", "--store", str(store)])
    assert explained(store, run)["run"]["logged_reproduced"] is True  # type: ignore[index]


def test_propose_finds_the_model_without_being_told(store: Path) -> None:
    """The synthetic log names its model; the proposal has only the print, over all known models."""
    opened = Store(store)
    analysis = analyse({name: opened.table(name) for name in TABLES})
    run = analysis.metrics.filter(name="llama3-8b-8xh100-torchtitan")["run_id"].item()
    blind = analysis.formula_facts[run]._replace(shape=None, T=None)
    first = propose_facts(analysis.logged_lines[run], blind)[0]
    assert (first.model, first.seq_len) == ("llama-3-8b", 8192)
    result = CliRunner().invoke(main, ["explain", run, "--propose", "--store", str(store)])
    assert "Proposals: not needed." in result.output


@pytest.mark.parametrize(
    ("rate", "rounding", "explained"),
    [(1000.0, {}, True), (1001.0, {}, False), (1000.4, {"logged_tgs": 0.5}, True)],
)
def test_a_rate_is_explained_as_far_as_its_digits_go(
    rate: float, rounding: dict[str, float], *, explained: bool
) -> None:
    """A printed 1,000; without a word of its rounding it is as exact as it stands."""
    row = dict.fromkeys(METRICS) | {"tgs": rate, "logged_tgs": 1000.0}
    (bridge,) = build_bridges(row, {}, NOTHING_KNOWN, Audit(rounding=rounding), rate)
    off = sum(rounding.values()) / 1000.0
    assert (bridge.low, bridge.high) == pytest.approx((1000 / rate - off, 1000 / rate + off))
    assert bridge.explained is explained


def test_no_figure_no_bridge() -> None:
    row = dict.fromkeys(("tgs", "logged_tgs", "logged_tflops", "logged_mfu"))
    assert build_bridges(row, {}, NOTHING_KNOWN, Audit(), 1.0) == []


def test_the_eras_are_a_table() -> None:
    result = CliRunner().invoke(main, ["formats", "--eras", "--format", "json"])
    rows = json.loads(result.stdout)
    assert [row["own formula"] for row in rows] == [own.name for own in all_eras()]
    assert all(row["FLOPs per token"] and row["source"] for row in rows)


def test_the_docs_list_every_era() -> None:
    result = CliRunner().invoke(main, ["formats", "--eras", "--format", "markdown"])
    assert result.stdout.strip() in (ROOT / "docs" / "own-formulas.md").read_text(encoding="utf-8")
