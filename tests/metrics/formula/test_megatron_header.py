"""A damaged `arguments` header is no model: one line lost, one character changed, another count."""

from __future__ import annotations

import pytest

from fairmfu.metrics.formula.model_shapes import ShapeError, from_megatron
from fairmfu.metrics.formula.model_shapes.megatron_header import (
    check_arguments,
    check_rank_params,
    rank_params,
)
from tests.metrics.formula.test_model_shapes import GPT, QWEN_7B
from tests.support.error_kinds import of_kind

HEADER = QWEN_7B | {
    "encoder_seq_length": "4096",
    "seq_length": "4096",
    "encoder_num_layers": "28",
}
SHAPE = from_megatron(HEADER, vocab_size=152064)
NEEDED = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "swiglu", "num_experts"),
    *("num_attention_heads", "num_key_value_heads", "kv_channels"),
    "untie_embeddings_and_output_weights",
)
"""Arguments without which the model is another one."""


def other_model(arguments: dict[str, str]) -> bool:
    try:
        return from_megatron(arguments, vocab_size=152064) != SHAPE
    except ShapeError:
        return False


@pytest.mark.parametrize("name", NEEDED)
def test_a_lost_line_gives_no_other_model(name: str) -> None:
    assert not other_model({key: value for key, value in HEADER.items() if key != name})


@pytest.mark.parametrize("name", NEEDED)
def test_a_damaged_name_gives_no_other_model(name: str) -> None:
    damaged = {key.replace(name, f"{name[:-1]}~"): value for key, value in HEADER.items()}
    assert not other_model(damaged)


@pytest.mark.parametrize(
    ("name", "value"), [("num_layers", "29"), ("seq_length", "4098"), ("encoder_num_layers", "20")]
)
def test_two_lines_of_one_number_that_differ_are_damaged(name: str, value: str) -> None:
    with pytest.raises(ShapeError, check=of_kind("header-line-damaged", f"{name} {value}")):
        check_arguments(HEADER | {name: value})


def test_heads_share_the_width_evenly() -> None:
    arguments = {key: value for key, value in GPT.items() if key != "kv_channels"}
    from_megatron(arguments, 50257)
    with pytest.raises(ShapeError, check=of_kind("hidden-size-indivisible", "19", "1,024")):
        from_megatron(arguments | {"num_attention_heads": "19"}, 50257)


def test_an_argument_that_came_later_is_no_gap() -> None:
    """Of 2021: no experts, no gated FFN, no grouped queries."""
    old = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")
    check_arguments({name: GPT[name] for name in old})


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize(
    ("name", "value"),
    [("num_layers", "48"), ("ffn_hidden_size", "18144"), ("num_key_value_heads", "7")],
)
def test_the_parameters_of_a_rank_tell_a_damaged_digit(
    stage: int, tensor: int, name: str, value: str
) -> None:
    """Of an argument that no other line repeats; stages have equal shares."""
    printed = f"(0, {stage}): {rank_params(SHAPE, stage, tensor, 4, 152064)}"
    check_rank_params(SHAPE, printed, tensor, 4, 152064)
    with pytest.raises(ShapeError, check=of_kind("rank-parameters-differ")):
        check_rank_params(
            from_megatron(QWEN_7B | {name: value}, 152064), printed, tensor, 4, 152064
        )


@pytest.mark.parametrize(
    ("printed", "tensor", "pipeline"),
    [("(0, 0): 1904025088", 4, 1), ("(1, 0): 1904025088", 4, 1), ("0: 1904025088", 4, 1)],
)
def test_the_count_of_a_real_run_fits(printed: str, tensor: int, pipeline: int) -> None:
    """A Qwen2.5-7B on four tensor-parallel ranks, with a table of 152,064 rows."""
    check_rank_params(SHAPE, printed, tensor, pipeline, 152064)


def test_another_degree_than_the_runs_is_told() -> None:
    with pytest.raises(ShapeError, check=of_kind("rank-parameters-differ")):
        check_rank_params(SHAPE, "(0, 0): 1904025088", 2, 1, 152064)
