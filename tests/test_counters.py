"""The closed formula against what an H200's own counters saw its tensor cores compute.

sample_logs/h200/counters.csv: the kernels of one forward and backward pass of four layers, in their
order, 2 sequences of 4,096 tokens. The profiler was stopped behind the backward pass of the last
layer; the three before it have the same shapes.
"""

import csv
import json
from pathlib import Path

import pytest

from metrics.flops import Operator, flops_per_token, operators
from metrics.model_shapes import from_hugging_face

SAMPLES = Path(__file__).parents[1] / "sample_logs"
CONFIG = json.loads((SAMPLES / "recipes/gpu/config.json").read_text())
TOKENS, SEQ_LEN, LAYERS = 2 * 4096, 4096, 4
WIDTHS = {"q": 2048, "k": 256, "v": 256, "o": 2048, "gate": 5632, "up": 5632, "down": 5632}
"""Of each product; its other side is 2,048."""
FORWARD = ["q", "k", "v", "core attention", "o", "gate", "up", "down"]
BACKWARD = ["down", "up", "gate", "o", "core attention", "v", "k", "q"]
PROJECTIONS = "query/key/value/output projections"


def counted() -> list[int]:
    with (SAMPLES / "h200/counters.csv").open() as file:
        return [int(row["operations"]) for row in csv.DictReader(file)]


def formula(layers: int) -> dict[str, Operator]:
    """By name [FLOP per token]."""
    shape = from_hugging_face(CONFIG | {"num_hidden_layers": layers})
    return {op.name: op for op in operators(shape, SEQ_LEN)}


KNOWN, *REST = counted()
LAYER_FORWARD = [REST[n : n + len(FORWARD)] for n in range(0, LAYERS * len(FORWARD), len(FORWARD))]
HEAD, HEAD_WEIGHTS, HEAD_INPUTS, *LAST = REST[LAYERS * len(FORWARD) :]
"""LAST: backward of the last layer, gradients of weights and of inputs, but attention at once."""


def backward() -> dict[str, list[int]]:
    """Of the last layer, by product."""
    kernels = iter(LAST)
    found = {
        name: [next(kernels) for _ in range(1 if name == "core attention" else 2)]
        for name in BACKWARD
    }
    assert not list(kernels)
    return found


def test_one_multiplication_and_addition_are_two() -> None:
    assert KNOWN == 2 * 7680**3


def test_each_product_of_a_forward_pass_is_what_the_formula_says() -> None:
    for layer in LAYER_FORWARD:
        of = dict(zip(FORWARD, layer, strict=True))
        assert {n: of[n] for n in WIDTHS} == {n: 2 * TOKENS * 2048 * w for n, w in WIDTHS.items()}
    of = {name: op.forward * TOKENS for name, op in formula(1).items()}
    one = dict(zip(FORWARD, LAYER_FORWARD[0], strict=True))
    assert one["q"] + one["k"] + one["v"] + one["o"] == of[PROJECTIONS]
    assert one["gate"] + one["up"] + one["down"] == of["ffn"]
    assert of["lm_head"] == HEAD


def test_core_attention_is_the_causal_half_and_the_rest_of_blocks_of_128() -> None:
    """A query attends on average (T + 1)/2 keys; the kernel computes (T + 128)/2, and not T."""
    exact = TOKENS * formula(1)["core attention"].forward
    place = FORWARD.index("core attention")
    assert {layer[place] for layer in LAYER_FORWARD} == {exact * (SEQ_LEN + 128) / (SEQ_LEN + 1)}
    assert LAYER_FORWARD[0][place] / exact == pytest.approx(1.031, abs=5e-4)


def test_each_product_of_a_backward_pass_comes_twice() -> None:
    one = backward()
    for name, width in WIDTHS.items():
        assert one[name] == [2 * TOKENS * 2048 * width] * 2
    of = {name: op.backward * TOKENS for name, op in formula(1).items()}
    assert sum(one["q"] + one["k"] + one["v"] + one["o"]) == of[PROJECTIONS]
    assert sum(one["gate"] + one["up"] + one["down"]) == of["ffn"]
    assert of["lm_head"] == 2 * HEAD_INPUTS


def test_what_a_backward_pass_computes_beyond_is_not_the_models() -> None:
    """Five products of attention for four; tiles of 192 x 192, by twos, over 32,000 x 2,048."""
    (attention,) = backward()["core attention"]
    assert attention == 2.5 * LAYER_FORWARD[0][FORWARD.index("core attention")]
    exact = TOKENS * formula(1)["core attention"].backward
    assert attention / exact == pytest.approx(1.289, abs=5e-4)
    assert 2 * TOKENS * (168 * 192) * (11 * 192) == HEAD_WEIGHTS
    assert pytest.approx(1.020, abs=5e-4) == (HEAD_WEIGHTS + HEAD_INPUTS) / (2 * HEAD)


def test_all_of_a_model_with_22_layers() -> None:
    layer = sum(LAYER_FORWARD[0]) + sum(LAST)
    whole = 22 * layer + HEAD + HEAD_WEIGHTS + HEAD_INPUTS
    ours = TOKENS * flops_per_token(formula(22).values())
    assert whole / ours == pytest.approx(1.031, abs=5e-4)
