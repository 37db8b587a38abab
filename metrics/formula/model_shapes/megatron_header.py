"""Check that an `arguments` header of Megatron is complete and undamaged.

One changed character, or one line lost by a log collector, gives another model. Three checks reveal
this: a missing argument that its version prints together with others; two arguments that must be
equal; and the logged parameter count of a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .. import messages
from .shape import ModelShape

PRINTED_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "ffn_hidden_size": ("encoder_seq_length",),
    "kv_channels": ("encoder_seq_length",),
    "num_experts": ("topk", "expert_interval"),
    "swiglu": ("untie_embeddings_and_output_weights", "add_bias_linear"),
    "untie_embeddings_and_output_weights": ("swiglu", "add_bias_linear"),
    "num_key_value_heads": ("swiglu", "topk"),
    "group_query_attention": ("num_query_groups",),
}
"""Argument -> other arguments. Every version that prints all of these prints the argument too.

Megatron prints all of its arguments. They arrived with the T5 model (2021), with experts
(DeepSpeed, 2022), with megatron.core (2023), and with grouped queries (2023)."""

SAME_NUMBERS: Final = (
    ("num_layers", "encoder_num_layers"),
    ("seq_length", "encoder_seq_length"),
)
"""Arguments that Megatron sets to one number (megatron/arguments.py, validate_args)."""


def check_arguments(arguments: Mapping[str, str]) -> None:
    """Raise ShapeError where the header lacks a line, or lines contradict each other.

    arguments: as printed, by name
    """
    for name, others in PRINTED_WITH.items():
        if name not in arguments and all(other in arguments for other in others):
            raise messages.HEADER_LINE_LOST(name=name, others=" and ".join(others))
    for name, other in SAME_NUMBERS:
        value, same = (arguments.get(key, "").strip() for key in (name, other))
        if re.fullmatch(r"\d+", same) and value != same:
            raise messages.HEADER_LINE_DAMAGED(name=name, value=value, other=other, same=same)


RANK_PARAMS: Final = re.compile(r"\(?\d+(?:, (?P<stage>\d+))?\)?: (?P<count>\d+)")
"""Part of `number of parameters on (tensor, pipeline) model parallel rank (0, 0): 861859840`;
without the stage until 2021."""
MAX_COUNT_GAP: Final = 0.005
"""Largest relative gap of a rank's count. Norms and biases that every tensor-parallel rank holds in
full are counted as if they were split."""


def check_rank_params(
    shape: ModelShape, printed: str, tensor_parallel: int, pipeline_parallel: int, vocabulary: int
) -> None:
    """Raise ShapeError where a rank's parameters differ from the log's count.

    Models with experts are not checked: their shape lacks the number of experts per rank.

    printed: text for RANK_PARAMS
    vocabulary: rows of the token table, with padding
    """
    match = RANK_PARAMS.fullmatch(printed.strip())
    if match is None or shape.layer_count % pipeline_parallel or any(g.moe for g in shape.layers):
        return
    count = int(match["count"])
    ends = (0, pipeline_parallel // 2, pipeline_parallel - 1)
    stages = ends if match["stage"] is None else (int(match["stage"]),)
    held = [
        rank_params(shape, stage, tensor_parallel, pipeline_parallel, vocabulary)
        for stage in stages
    ]
    if all(abs(count / expected - 1) > MAX_COUNT_GAP for expected in held):
        raise messages.RANK_PARAMETERS_DIFFER(logged=count, own=held[0])


def rank_params(
    shape: ModelShape, stage: int, tensor_parallel: int, pipeline_parallel: int, vocabulary: int
) -> int:
    """Return the parameters of one rank: its share of the layers and the end tables.

    The last stage has a copy of a tied table. Every rank of the first stage has the whole table of
    positions.
    """
    first, last = stage == 0, stage == pipeline_parallel - 1
    head = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    split = (shape.params_total - shape.params_embedding - head) / pipeline_parallel
    copied = last and (bool(head) or not first)
    split += (first + copied) * vocabulary * shape.hidden_size
    whole = shape.positions * shape.hidden_size if first else 0
    return round(split / tensor_parallel) + whole
