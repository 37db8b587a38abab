"""Which operators of a precision run in which format, and what a log leaves open."""

from __future__ import annotations

import pytest

from fairmfu.metrics.formula.flops import operators
from fairmfu.metrics.formula.model_shapes import find_model
from fairmfu.metrics.formula.precision import logged_quantization, operator_formats
from tests.support.error_kinds import of_kind


@pytest.mark.parametrize(
    ("precision", "low", "head"),
    [
        ("fp8", "fp8", "bf16"),
        ("fp8+lm_head", "fp8", "fp8"),
        ("mxfp8", "fp8", "bf16"),
        ("nvfp4", "fp4", "bf16"),
    ],
)
def test_only_linears_run_below_16_bits(precision: str, low: str, head: str) -> None:
    formats, fastest = operator_formats(precision)
    found = {op.name: formats(op, "forward") for op in operators(find_model("deepseek-v3"), 4096)}
    assert fastest == low
    assert found == {
        "query/key/value/output projections": low,
        "core attention": "bf16",
        "ffn": low,
        "router": "bf16",
        "routed experts": low,
        "shared experts": low,
        "lm_head": head,
    }


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_one_format_is_that_of_all(precision: str) -> None:
    formats, fastest = operator_formats(precision)
    ops = operators(find_model("qwen3-30b-a3b"), 4096)
    assert {fastest, *(formats(op, "weight_gradient") for op in ops)} == {precision}


def test_another_name_is_an_error() -> None:
    with pytest.raises(ValueError, check=of_kind("unknown-precision", "'int8'")):
        operator_formats("int8")


@pytest.mark.parametrize(
    ("facts", "left"),
    [
        ({"quantization": "NVFP4 recipe"}, {"nvfp4"}),
        ({"quantization": "Float8Linear"}, {"fp8", "fp8+lm_head", "mxfp8"}),
        ({"quantization": "dynamic mxfp8"}, {"fp8", "fp8+lm_head", "mxfp8"}),
        ({"quantization": "converted"}, {"fp8", "fp8+lm_head", "mxfp8", "nvfp4"}),
        ({"quantized": "true"}, {"fp8", "fp8+lm_head", "mxfp8", "nvfp4"}),
        ({"quantized": "true", "quantization": "nvfp4"}, {"nvfp4"}),
    ],
)
def test_a_quantised_log_leaves_formats_below_16_bits(
    facts: dict[str, str], left: set[str]
) -> None:
    found = logged_quantization(facts)
    assert found is not None
    said, precisions = found
    assert precisions == left
    assert all(repr(value) in said for value in facts.values())


def test_a_log_without_quantisation_leaves_all() -> None:
    assert logged_quantization({"precision": "fp8"}) is None
    found = logged_quantization({"quantization": "float8 " + "x" * 90})
    assert found is not None
    assert found[0] == repr("float8 " + "x" * 53)  # 60 characters are shown
