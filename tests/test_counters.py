"""The closed formula against what an H200's own counters saw its tensor cores compute.

sample_logs/h200/counters.csv: the kernels of one forward and backward pass of four layers, in their
order, 2 sequences of 4,096 tokens. The profiler was stopped behind the backward pass of the last
layer; the three before it have the same shapes.
"""

import csv
import json
from pathlib import Path

import pytest

from metrics.flops import Operator, operators
from metrics.model_shapes import from_hugging_face

SAMPLES = Path(__file__).parents[1] / "sample_logs"
TOKENS, SEQ_LEN, LAYERS = 2 * 4096, 4096, 4
PRODUCTS = ["q", "k", "v", "core attention", "o", "gate", "up", "down"]
BACKWARD = ["down", "up", "gate", "o", "core attention", "v", "k", "q"]
PROJECTIONS = "query/key/value/output projections"


def counted() -> list[int]:
    with (SAMPLES / "h200/counters.csv").open() as file:
        return [int(row["operations"]) for row in csv.DictReader(file)]


def formula() -> dict[str, Operator]:
    """By name, of four layers [FLOP per token]."""
    config = json.loads((SAMPLES / "recipes/gpu/config.json").read_text())
    shape = from_hugging_face(config | {"num_hidden_layers": LAYERS})
    return {op.name: op for op in operators(shape, SEQ_LEN)}


KNOWN, REST = counted()[0], counted()[1:]
FORWARD = REST[: LAYERS * len(PRODUCTS)]
HEAD, HEAD_WEIGHTS, HEAD_INPUTS = REST[len(FORWARD) :][:3]
LAST = REST[len(FORWARD) + 3 :]
"""Backward of the last layer: gradients of weights and of inputs, but attention at once."""


def forward(*names: str) -> int:
    """Operations of the products of these names in all layers."""
    return sum(n for i, n in enumerate(FORWARD) if PRODUCTS[i % len(PRODUCTS)] in names)


def backward() -> dict[str, list[int]]:
    """Of the last layer, by product."""
    kernels = iter(LAST)
    return {
        name: [next(kernels) for _ in range(1 if name == "core attention" else 2)]
        for name in BACKWARD
    }


def test_one_fused_multiply_add_counts_twice() -> None:
    assert KNOWN == 2 * 7680**3


def test_a_forward_pass_is_what_the_formula_says() -> None:
    of = formula()
    assert forward("q", "k", "v", "o") == TOKENS * of[PROJECTIONS].forward
    assert forward("gate", "up", "down") == TOKENS * of["ffn"].forward
    assert TOKENS * of["lm_head"].forward == HEAD


def test_core_attention_is_the_causal_half_and_the_rest_of_blocks_of_128() -> None:
    """A query attends on average (T + 1)/2 keys; the kernel computes (T + 128)/2, and not T."""
    exact = TOKENS * formula()["core attention"].forward
    assert forward("core attention") == exact * (SEQ_LEN + 128) / (SEQ_LEN + 1)
    assert forward("core attention") / exact == pytest.approx(1.031, abs=5e-4)


def test_a_backward_pass_is_two_forward_passes() -> None:
    one, of = backward(), formula()
    assert len(LAST) == sum(map(len, one.values()))
    layers = {name: sum(kernels) * LAYERS for name, kernels in one.items()}
    projections = layers["q"] + layers["k"] + layers["v"] + layers["o"]
    assert projections == TOKENS * of[PROJECTIONS].backward
    assert layers["gate"] + layers["up"] + layers["down"] == TOKENS * of["ffn"].backward
    assert TOKENS * of["lm_head"].backward / 2 == HEAD_INPUTS


def test_what_the_backward_pass_computes_beyond_it_is_not_the_models() -> None:
    """Scores are computed once more, and tiles of 192 are wider than 32,000 and 2,048."""
    (attention,) = backward()["core attention"]
    assert attention * LAYERS == 2.5 * forward("core attention")
    assert pytest.approx(168 * 192 / 32000 * 11 * 192 / 2048) == HEAD_WEIGHTS / HEAD_INPUTS
