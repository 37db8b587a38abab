"""A model as a tool sees it that knows one kind of layer: what formulas of other code read of it.

Most take a head width of d // H, the feed-forward width that the config names, and no windows,
whatever the model is. Letters as in metrics/formula/flops.py.
"""

from __future__ import annotations

from typing import NamedTuple

from .flops import Operator, Recompute, flops_per_token, operators
from .model_shapes import Attention, MixtureOfExperts, ModelShape, ShapeError

__all__ = ["SimplifiedModel", "full_attention"]


class SimplifiedModel(NamedTuple):
    """A model as a tool sees it that knows one kind of layer.

    T: tokens of one sequence
    recompute: `full_attention_operators` where every layer is recomputed in the backward pass,
    `selective` where core
        attention is; None: not known
    intermediate_size: the key of the model's config.json; the shape tells it where a layer is
        dense, but a wholly sparse model's config may name a width that no layer has
    padded_vocab: rows of a lm_head that is padded for tensor parallelism
    tensor_parallel: ranks that each hold a copy of the norms, and count it
    pipeline_parallel: stages, the last of which holds the final norm
    lora_rank: of adapters; adapters: their parameters

    Its properties raise ShapeError where the model has no such thing, or it is not known.
    """

    shape: ModelShape
    T: int
    recompute: Recompute | None
    intermediate_size: int | None
    padded_vocab: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    lora_rank: int | None = None
    adapters: int = 0

    @property
    def r(self) -> int:
        """Forwards that a tool counts which counts recomputation: 4 with it, else 3."""
        if self.recompute is None:
            raise ShapeError("What is recomputed is not known, and this tool counts it.")
        return 4 if self.recompute == "full" else 3

    @property
    def d(self) -> int:
        """Hidden size."""
        return self.shape.hidden_size

    @property
    def L(self) -> int:  # noqa: N802 - the papers' letters, here and below
        """Layers."""
        return self.shape.layer_count

    @property
    def attention(self) -> tuple[tuple[int, Attention], ...]:
        """(layers, their attention)."""
        groups = [(group.count, group.attention) for group in self.shape.layers]
        softmax = tuple((count, a) for count, a in groups if isinstance(a, Attention))
        if len(softmax) < len(groups):
            raise ShapeError(f"{self.shape.name} has linear attention, which this tool has not.")
        return softmax

    @property
    def H(self) -> int:  # noqa: N802
        """Query heads of the first layer."""
        return self.attention[0][1].heads

    @property
    def G(self) -> int:  # noqa: N802
        """Key/value heads of the first layer."""
        return self.attention[0][1].kv_heads

    @property
    def q(self) -> int:
        """Head width as d // H, which a model's own may contradict (Qwen3, Gemma, MLA)."""
        return self.d // self.H

    @property
    def V(self) -> int:  # noqa: N802
        """Vocabulary."""
        return self.shape.vocab_size

    @property
    def moe(self) -> MixtureOfExperts | None:
        """The experts of the first sparse layer."""
        return next((group.moe for group in self.shape.layers if group.moe), None)

    @property
    def f(self) -> int:
        """FFN width by the config's intermediate_size."""
        if self.intermediate_size is not None:
            return self.intermediate_size
        dense = (group.ffn.width for group in self.shape.layers if group.ffn is not None)
        width = _INTERMEDIATE_SIZES.get(self.shape.name) or next(dense, None)
        if width is None:
            raise ShapeError(
                f"{self.shape.name} has no dense layer, so its shape does not tell the"
                " intermediate_size of its config.json, which this tool reads: give the config."
            )
        return width

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward block: 3 where it is gated, else 2."""
        blocks = (block for group in self.shape.layers for _, block, _ in group.feed_forwards())
        return 3 if next(blocks).gated else 2

    @property
    def token_table(self) -> int:
        """Parameters of the token embedding."""
        return self.V * (self.shape.embedding_size or self.d)

    def full_attention_operators(self) -> tuple[Operator, ...]:
        """Our operators with A = T."""
        return operators(self.shape, self.T, attention="full")


def full_attention(model: SimplifiedModel) -> float:
    """Our operators with A = T: what most papers mean by MFU [FLOP per token]."""
    return flops_per_token(model.full_attention_operators())


# intermediate_size of published configs that is no dense layer's: Mixtral, OLMoE, gpt-oss, Llama 4
# use it for their experts; the Qwen ones name it and have no layer of that width.
_INTERMEDIATE_SIZES = {
    "mixtral-8x7b": 14336,
    "mixtral-8x22b": 16384,
    "mixtral-8x22b-instruct-v0.1": 16384,
    "olmoe-1b-7b": 1024,
    "llama-4-scout": 8192,
    "llama-4-maverick": 8192,
    "gpt-oss-20b": 2880,
    "gpt-oss-120b": 2880,
    "qwen1.5-moe-a2.7b": 5632,
    "qwen3-30b-a3b": 6144,
    "qwen3-235b-a22b": 12288,
    "qwen3-debugmodel-moe": 3072,
}
