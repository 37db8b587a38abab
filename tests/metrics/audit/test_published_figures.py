"""Published utilisations and rates, each under the convention that its source means.

The rows stand in golden/published.tsv, whose columns golden/published.md explains.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

import pytest

from fairmfu.metrics.audit import other_tools
from fairmfu.metrics.formula.flops import Operator, flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import (
    Attention,
    FeedForward,
    LayerGroup,
    ModelShape,
    find_model,
)
from fairmfu.metrics.formula.terms import AttentionConvention
from tests.support.each_case import each_case
from tests.support.folders import TESTS

GOLDEN = TESTS / "golden" / "published.tsv"
SECONDS_PER_DAY = 86400


@dataclass(frozen=True, kw_only=True)
class Row:
    source: str
    model: str
    seq_len: str
    devices: str
    measured: str
    unit: str
    basis: str
    peak: str
    metric: str
    published: str
    convention: str
    verdict: str
    tolerance: str
    why: str

    @property
    def dimensions(self) -> dict[str, str]:
        """`name key=value …`; a word without a value is a flag."""
        return dict(word.partition("=")[::2] for word in self.model.split()[1:])


def rows() -> list[Row]:
    with GOLDEN.open(newline="") as file:
        return [Row(**row) for row in csv.DictReader(file, delimiter="\t")]


def label(row: Row) -> str:
    words = (row.source, row.model.split()[0], row.seq_len, row.measured, row.convention)
    return "-".join((*words, row.published))


# --- models ---------------------------------------------------------------------------------


def shape_of(row: Row) -> ModelShape:
    dimensions = row.dimensions
    if "layers" not in dimensions:
        shape = find_model(row.model.split()[0])
        return replace(shape, mtp_modules=int(dimensions.get("mtp", "0")))
    return written_out(row.model.split()[0], dimensions)


def written_out(name: str, dimensions: Mapping[str, str]) -> ModelShape:
    """A GPT with biases and a plain FFN of 4d; or, `gated`, PaLM without biases."""
    hidden, heads = int(dimensions["hidden"]), int(dimensions["heads"])
    width = int(dimensions.get("head_dim", hidden // heads))
    gated = "gated" in dimensions
    attention = Attention(
        heads=heads,
        kv_heads=int(dimensions.get("kv_heads", heads)),
        qk_head_dim=width,
        v_head_dim=width,
        qkv_bias=not gated,
        output_bias=not gated,
    )
    ffn = FeedForward(width=int(dimensions.get("ffn", 4 * hidden)), gated=gated, bias=not gated)
    return ModelShape(
        name=name,
        hidden_size=hidden,
        vocab_size=int(dimensions["vocab"]),
        tied_embeddings=True,
        layers=(LayerGroup(count=int(dimensions["layers"]), attention=attention, ffn=ffn),),
        norm="rms" if gated else "layer",
        positions=int(dimensions.get("positions", "0")),
    )


# --- conventions: FLOPs per token of training -----------------------------------------------


def is_core(op: Operator) -> bool:
    return op.name.endswith("core attention")


def core(row: Row) -> float:
    return sum(op.training for op in ours(row, "full") if is_core(op))


def ours(row: Row, attention: AttentionConvention) -> tuple[Operator, ...]:
    return operators(shape_of(row), int(row.seq_len), attention=attention)


def full(row: Row) -> float:
    return flops_per_token(ours(row, "full"))


def half(row: Row) -> float:
    return full(row) - core(row) / 2


def router(row: Row) -> float:
    return sum(op.training for op in ours(row, "full") if op.name.endswith("router"))


def six_n(row: Row) -> float:
    printed = row.dimensions.get("params")
    return 6 * (float(printed) if printed else shape_of(row).params_total)


def layers_once_more(row: Row) -> float:
    return sum(op.forward for op in ours(row, "full") if op.name != "lm_head")


def other(
    formula: Callable[[other_tools.SimplifiedModel], float],
    row: Row,
    recompute: Literal["none", "full"] = "none",
) -> float:
    shape, T = shape_of(row), int(row.seq_len)  # noqa: N806
    return formula(
        other_tools.SimplifiedModel(shape=shape, T=T, recompute=recompute, intermediate_size=None)
    )


CONVENTIONS: dict[str, Callable[[Row], float]] = {
    "exact": lambda row: flops_per_token(ours(row, "exact")),
    "full": full,
    "half": half,
    "full without router": lambda row: full(row) - router(row),
    "half without router": lambda row: half(row) - router(row),
    "full + core attention once more": lambda row: full(row) + core(row) / 3,
    "full + core attention trained once more": lambda row: full(row) + core(row),
    "full + layers once more": lambda row: full(row) + layers_once_more(row),
    "6N": six_n,
    "6N + full attention": lambda row: six_n(row) + core(row),
    "6N + half attention": lambda row: six_n(row) + core(row) / 2,
    "parameters": lambda row: shape_of(row).params_total,
    "torchtitan": lambda row: other(other_tools.torchtitan, row),
    "torchtitan, half attention": lambda row: other(other_tools.torchtitan, row) - core(row) / 2,
    "InternEvo": lambda row: other(other_tools.internevo, row),
    "InternEvo, recomputing": lambda row: other(other_tools.internevo, row, "full"),
    "as measured": lambda _: 1.0,
}


# --- figures --------------------------------------------------------------------------------


def tokens_per_second(row: Row) -> float:
    """Of one device. A rate given in FLOPs is one under the convention `basis`."""
    measured, devices, basis = float(row.measured), float(row.devices), CONVENTIONS.get(row.basis)
    if row.unit.startswith("s/step of "):
        sequences = int(row.unit.removeprefix("s/step of "))
        return sequences * int(row.seq_len) / measured / devices
    if basis is not None:
        per_device = {"TFLOP/s/device": 1e12, "PFLOP/s": 1e15 / devices}
        return measured * per_device[row.unit] / basis(row)
    per_second = {
        "tok/s": 1 / devices,
        "tok/s/device": 1.0,
        "tok/day": 1 / devices / SECONDS_PER_DAY,
    }
    return measured * per_second[row.unit]


def computed(row: Row) -> float:
    counted = CONVENTIONS[row.convention](row)
    units = {"parameters/1e9": 1e9, "GFLOP/token": 1e9, "FLOP/token": 1.0}
    if row.metric in units:
        return counted / units[row.metric]
    rate = counted * tokens_per_second(row)
    return rate / 1e12 if row.metric == "TFLOP/s/device" else 100 * rate / float(row.peak)


def half_a_digit(printed: str) -> float:
    """Half a unit of the last printed digit: 0.05 of 41.5, 50 of 2383e2."""
    exponent = Decimal(printed).as_tuple().exponent
    assert isinstance(exponent, int)
    return 0.5 * 10.0**exponent


def tolerance(row: Row, figure: float) -> float:
    """What the printed digits leave: the figure's own, and in proportion those of the rate.

    A figure of ours comes from the printed rate as it stands, so only its own digits count.
    """
    own = half_a_digit(row.published)
    if row.verdict == "ours" or not row.measured:
        return own
    return own + figure * half_a_digit(row.measured) / float(row.measured)


# --- tests ----------------------------------------------------------------------------------


@each_case("row", rows(), ids=label)
def test_figure(row: Row) -> None:
    """A figure within its tolerance; one that is not reproduced stays outside, until it is."""
    off = abs(computed(row) - float(row.published))
    assert (off <= float(row.tolerance)) == (row.verdict != "not reproduced")


@each_case("row", rows(), ids=label)
def test_tolerance_is_what_the_printed_digits_leave(row: Row) -> None:
    assert float(row.tolerance) == pytest.approx(tolerance(row, computed(row)), rel=5e-3)


def test_every_row_says_its_verdict_and_why() -> None:
    assert {row.verdict for row in rows()} == {"reproduced", "not reproduced", "ours"}
    assert all(row.why and row.convention in CONVENTIONS for row in rows())


def shape_named(model: str) -> ModelShape:
    return next(shape_of(row) for row in rows() if row.model.startswith(model))


def test_the_dimensions_have_the_printed_parameters() -> None:
    assert round(shape_named("palm-540b").params_matmul / 1e9, 2) == 540.35
    assert round(shape_named("mt-nlg-530b").params_total / 1e9, 1) == 529.6


def test_llm_foundry_prints_our_parameter_count() -> None:
    printed = [row for row in rows() if row.model.startswith("mpt-")]
    assert len(printed) == 10
    for row in printed:
        assert shape_of(row).params_total == int(row.dimensions["params"])
