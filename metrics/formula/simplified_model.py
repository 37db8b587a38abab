"""A model as seen by tools with one kind of layer: input of other code's formulas.

Most tools assume a head width of d // H, the feed-forward width named in the config, and no
windows, for any model. Letters as in metrics/formula/flops.py.
"""

from __future__ import annotations

from typing import NamedTuple

from . import messages
from .flops import Operator, flops_per_token, operators
from .model_shapes import Attention, MixtureOfExperts, ModelShape
from .terms import Recompute

__all__ = ["SimplifiedModel", "full_attention"]


class SimplifiedModel(NamedTuple):
    """A model as seen by a tool with one kind of layer.

    T: tokens of one sequence
    recompute: `full` where every layer is recomputed in the backward pass, `selective` where only
        core attention is; None: not known
    intermediate_size: the key of the model's config.json. The shape gives this width where a layer
        is dense, but a wholly sparse model's config may name a width that no layer has
    padded_vocab: rows of a lm_head padded for tensor parallelism
    tensor_parallel: ranks that count a full copy of the norms each
    pipeline_parallel: stages; the last stage has the final norm
    lora_rank: rank of the adapters; adapters: their parameters

    The properties raise ShapeError where the model has no such part, or the value is not known.
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
        """Work of a step in forwards, for tools with recomputation: 4 if `full`, else 3."""
        if self.recompute is None:
            raise messages.TOOL_NEEDS_RECOMPUTE()  # noqa: RSE102 - a kind
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
            kinds = " and ".join(self.shape.state_kinds) or "layers without attention"
            raise messages.TOOL_WITHOUT_MIXER(model=self.shape.name, kinds=kinds)
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
        """Head width as d // H; some models have another width (Qwen3, Gemma, MLA)."""
        return self.d // self.H

    @property
    def V(self) -> int:  # noqa: N802
        """Vocabulary."""
        return self.shape.vocab_size

    @property
    def moe(self) -> MixtureOfExperts | None:
        """Experts of the first sparse layer."""
        return next((group.moe for group in self.shape.layers if group.moe), None)

    @property
    def f(self) -> int:
        """FFN width: the config's intermediate_size."""
        if self.intermediate_size is not None:
            return self.intermediate_size
        dense = (group.ffn.width for group in self.shape.layers if group.ffn is not None)
        width = _INTERMEDIATE_SIZES.get(self.shape.name) or next(dense, None)
        if width is None:
            raise messages.TOOL_NEEDS_CONFIG(model=self.shape.name)
        return width

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward block: 3 if gated, else 2."""
        blocks = (block for group in self.shape.layers for _, block, _ in group.feed_forwards())
        return 3 if next(blocks).gated else 2

    @property
    def token_table(self) -> int:
        """Parameters of the token embedding."""
        return self.V * (self.shape.embedding_size or self.d)

    def full_attention_operators(self) -> tuple[Operator, ...]:
        """Return our operators with A = T."""
        return operators(self.shape, self.T, attention="full")


def full_attention(model: SimplifiedModel) -> float:
    """Return our FLOPs per token with A = T: the usual MFU numerator of papers."""
    return flops_per_token(model.full_attention_operators())


# intermediate_size of published configs without a dense layer of this width: Mixtral, OLMoE,
# gpt-oss and Llama 4 use the key for their experts; the Qwen models have no such layer at all.
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
