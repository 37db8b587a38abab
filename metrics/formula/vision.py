"""Vision towers: FLOPs per set of images, and per token of the same step.

Forward, per frame of h x w patches (letters as in metrics/formula/flops.py, P = hw, with a class
token hw + 1; m patches per side become one token of the language model):

    patch embedding            2 hw (channels x frames x side²) d
    projections, ffn           P times those of metrics.formula.flops
    core attention             2H(q + v) P²      bidirectional, never across images
      inside windows           2H(q + v) sum of (patches of a window)²
    projector                  hw/m² times 2 (in x out) of each of its layers

So the attention of several images is the sum of P_i², not (sum P)². With images of different
sizes, F differs from step to step: `per_token` divides by the tokens of the same step.

A log without grids is enough if it has two sums over the images: sum P_i and sum P_i²
(`counts_of_logged_images`), because F depends on the images only through `PatchCounts`.

Backward as in metrics/formula/flops.py. The factor of each part depends on the trained weights in
the part and upstream: `TrainedParts`. A trained patch embedding counts the gradient of the pixels
as well, like every trained weight in this formula. Training set-ups skip this gradient: below
0.1 % of a tower's training.

tests/metrics/formula/test_vision.py compares with PyTorch's FlopCounterMode. Left out: towers with
attention pooling (SigLIP's head, which multimodal models do not use) and resampling projectors
(Q-Former).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from . import messages
from .flops import (
    Operator,
    Trainable,
    adapter_flops,
    core_attention,
    ffn,
    make_operator,
    projections,
)
from .model_shapes import (
    Attention,
    Config,
    FeedForward,
    Weight,
    find_config,
    find_model,
    targeted_weights,
    text_config,
)
from .terms import Recompute

__all__ = [
    "Grid",
    "PatchCounts",
    "Projector",
    "TrainedParts",
    "VisionTower",
    "counted_operators",
    "counts_of_logged_images",
    "find_tower",
    "from_hugging_face",
    "image_unit",
    "per_token",
    "tower_operators",
]

_ALL: Final = Trainable()

Grid: TypeAlias = tuple[int, int, int]
"""Frames, patches in height, patches in width, as in Qwen's `image_grid_thw`."""

ModelPart = Literal["tower", "projector", "language model"]


# --- shapes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Projector:
    """Linear layers from merged patches to the width of the language model.

    widths: input widths of the layers, then the output width: (in, out) is one layer, (in, mid,
        out) two
    norm_params: parameters of the norm at the input
    """

    widths: tuple[int, ...]
    bias: bool = True
    norm_params: int = 0

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Weight matrices, named linear_1, linear_2, … as in LLaVA."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return tuple(Weight(f"linear_{i}", a, b) for i, (a, b) in enumerate(pairs, 1))

    @property
    def params_total(self) -> int:
        """All parameters, norm and biases included."""
        biases = sum(self.widths[1:]) if self.bias else 0
        return self.norm_params + biases + sum(w.rows * w.columns for w in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """Dimensions of a vision transformer and of the projector after it.

    depth: layers that the language model's input depends on
    unused_layers: layers after `depth` (LLaVA reads the last but one): parameters without FLOPs
    patch: inputs of the patch embedding: channels x frames x side²
    patch_side: side of a patch in pixels
    merge: patches per side that become one token of the language model
    grid: patches of an image, where all images have the same; None: sizes vary
    class_token: whether a frame has one token besides its patches
    window: patches per side of the attention windows; None: no windows
    full_layers: layers without windows, where there are windows
    projectors: each sees every merged patch; Qwen3-VL has one, plus those of its deepstack
    positions: rows of the position table
    norm_params, layer_params: parameters of the norms outside the layers; of norms and scales of
        one layer
    """

    name: str
    hidden_size: int
    depth: int
    attention: Attention
    ffn: FeedForward
    patch: int
    patch_side: int
    patch_bias: bool = True
    merge: int = 1
    grid: tuple[int, int] | None = None
    class_token: bool = False
    window: int | None = None
    full_layers: int = 0
    projectors: tuple[Projector, ...] = ()
    unused_layers: int = 0
    positions: int = 0
    norm_params: int = 0
    layer_params: int = 0

    @property
    def params_total(self) -> int:
        """All parameters of tower and projectors, norms and biases included."""
        return self.params_tower + sum(projector.params_total for projector in self.projectors)

    @property
    def params_tower(self) -> int:
        """Parameters without those of the projectors."""
        d = self.hidden_size
        matrices = sum(w.rows * w.columns for w in self._layer_weights())
        layer = matrices + self.attention.vector_params(d) + self.ffn.bias_params(d)
        embedding = self.patch * d + d * (self.patch_bias + self.class_token + self.positions)
        layers = (self.depth + self.unused_layers) * (layer + self.layer_params)
        return embedding + layers + self.norm_params

    def weights(self) -> tuple[tuple[int, Weight], ...]:
        """Return (layers, weight) that LoRA can adapt: attention and ffn projections."""
        return tuple((self.depth, weight) for weight in self._layer_weights())

    def grid_of(self, height: int, width: int) -> Grid:
        """Return the grid of a still image, from its size after resizing [pixels].

        Raises ShapeError where the sides are no multiple of merged patches.
        """
        side = self.patch_side * self.merge
        if height % side or width % side:
            raise messages.IMAGE_SIZE_INDIVISIBLE(
                model=self.name, side=side, height=height, width=width
            )
        return self._checked((1, height // self.patch_side, width // self.patch_side))

    def tokens(self, grids: Sequence[Grid]) -> int:
        """Return the number of tokens that the images become in the language model."""
        return sum(t * h * w for t, h, w in map(self._checked, grids)) // self.merge**2

    def _checked(self, grid: Grid) -> Grid:
        """Return the grid; raise ShapeError if impossible for this tower."""
        frames, height, width = grid
        fits = height % self.merge == 0 and width % self.merge == 0
        if min(grid) < 1 or not fits or self.grid not in (None, (height, width)):
            allowed = self.grid or f"multiples of {self.merge}"
            raise messages.IMPOSSIBLE_GRID(model=self.name, grid=grid, allowed=allowed)
        return frames, height, width

    def _layer_weights(self) -> tuple[Weight, ...]:
        d = self.hidden_size
        return (*self.attention.weights(d), *self.ffn.weights(d))


# --- trained parts --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedParts:
    """Trained weights of each part, in the order of the forward pass; default: all.

    A `frozen` part with nothing trained upstream runs forward only (`trainable_of`). Where only the
    projector is trained, the tower counts 1x, the projector 3x, the language model 2x.

    Raises ValueError where nothing at all is trained: that would be inference.
    """

    tower: Trainable = _ALL
    projector: Trainable = _ALL
    language_model: Trainable = _ALL

    def __post_init__(self) -> None:
        if self.projector.kind == "lora":
            raise messages.PROJECTOR_WITH_LORA()  # noqa: RSE102 - a kind
        if all(kind in ("frozen", "upstream") for _, kind in self._kinds()):
            raise messages.NOTHING_TRAINED()  # noqa: RSE102 - a kind

    def trainable_of(self, part: ModelPart) -> Trainable:
        """Return the trained weights of a part.

        `upstream` where the part is frozen and no gradient passes through.
        """
        kinds = dict(self._kinds())
        before = list(kinds)[: list(kinds).index(part)]
        reached = any(kinds[earlier] in ("full", "lora") for earlier in before)
        trainable = {
            "tower": self.tower,
            "projector": self.projector,
            "language model": self.language_model,
        }[part]
        if trainable.kind in ("frozen", "upstream"):
            return Trainable(kind="frozen" if reached else "upstream")
        return trainable

    def _kinds(self) -> tuple[tuple[ModelPart, str], ...]:
        return (
            ("tower", self.tower.kind),
            ("projector", self.projector.kind),
            ("language model", self.language_model.kind),
        )


# --- operators ------------------------------------------------------------------------------


def tower_operators(
    tower: VisionTower, grids: Sequence[Grid], *, trained_parts: TrainedParts | None = None
) -> tuple[Operator, ...]:
    """Return the operators of tower and projector over a set of images [FLOP per set].

    grids: of each image or video (still image: `VisionTower.grid_of`); without any, all FLOPs are 0
    trained_parts: default everything

    Raises ShapeError for a grid that the tower does not accept, and for unknown LoRA targets.
    """
    frames = [(h, w) for t, h, w in map(tower._checked, grids) for _ in range(t)]  # noqa: SLF001
    patches = sum(h * w for h, w in frames)
    counts = PatchCounts(
        patches=patches,
        positions=patches + len(frames) * tower.class_token,
        pairs=_pairs(tower, frames),
    )
    return counted_operators(tower, counts, trained_parts=trained_parts)


@dataclass(frozen=True, slots=True)
class PatchCounts:
    """Sums over a set of images that fix the FLOPs of a tower.

    patches: patches of all frames; positions: the same with class tokens; pairs: query-key pairs
        of all layers
    """

    patches: float
    positions: float
    pairs: float


def counted_operators(
    tower: VisionTower, counts: PatchCounts, *, trained_parts: TrainedParts | None = None
) -> tuple[Operator, ...]:
    """Return the operators of tower and projector from sums over images [FLOP].

    Raises ShapeError for unknown LoRA targets.
    """
    parts = trained_parts or TrainedParts()
    inside, after = parts.trainable_of("tower"), parts.trainable_of("projector")
    stem = Trainable(kind="upstream") if inside.kind == "lora" else inside
    body = [make_operator(*_patch_embedding(tower, counts), stem)]
    body += [make_operator(*term, inside) for term in _layer_terms(tower, counts)]
    if inside.kind == "lora":
        weights = targeted_weights(tower.weights(), inside.lora_targets, tower.name)
        adapters = adapter_flops(weights, inside) * counts.positions
        body.append(make_operator("vision lora adapters", tower.depth, adapters, Trainable()))
    head = [make_operator(*term, after) for term in _projector_terms(tower, counts)]
    return (*body, *head)


def with_recomputation(
    ops: Iterable[Operator], recompute: Recompute
) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """Return a tower's operators with recomputation: lower and upper bound.

    The policy is that of the language model. The tower may have another one, so the lower bound
    recomputes nothing of it, and the upper bound another forward of each layer: both nothing for
    the policy none. A frozen tower has no backward pass, so nothing runs twice.
    """
    low = tuple(ops)
    high = tuple(
        replace(op, recomputed=op.forward) if _is_recomputed(op, recompute) else op for op in low
    )
    return low, high


def _is_recomputed(op: Operator, recompute: Recompute) -> bool:
    outside = op.name in (PATCH_EMBEDDING, PROJECTOR)
    return recompute != "none" and not outside and op.backward > 0


def image_unit(tower: VisionTower) -> int:
    """Return the logged image tokens that become one token of the language model.

    XTuner v1 logs patches for towers that keep an image's size (merge² of them become one token),
    and tokens of the language model for towers that see tiles of one size.
    """
    return tower.merge**2 if tower.grid is None else 1


def counts_of_logged_images(
    tower: VisionTower, image_tokens: float, squares: tuple[float, float]
) -> tuple[PatchCounts, PatchCounts]:
    """Return the least and the most work of images of which a log has two sums.

    XTuner v1 logs N = sum n_i over the images of a step, and a ratio from which Q = sum n_i²
    follows (metrics.throughput.image_counts). See `image_unit` for the unit of n.

    Tiles: every tile has g² patches and (g/m)² tokens, so N (m/g)² tiles, N m² patches, and
    (g² + c)² pairs per tile and layer, with c class tokens: exact, without Q.

    Patches: an image of n_i patches has n_i² pairs in a full layer, so Q pairs, known as well as Q.
    In a layer with windows of w x w patches, a patch sees the w² patches of its window; at the
    edge fewer, but never less than the m² that are merged: m² N to w² N pairs.

    Frames of a video count as one image in Q, although attention never leaves a frame. So for
    videos, Q is an upper bound.

    image_tokens: N; squares: lower and upper bound of Q, used for patches only. Both may be per
    token of the language model.
    """
    if tower.grid is not None:
        side = tower.grid[0] * tower.grid[1]
        patches = image_tokens * tower.merge**2
        tiles = patches / side
        one = PatchCounts(
            patches=patches,
            positions=patches + tiles * tower.class_token,
            pairs=tower.depth * tiles * (side + tower.class_token) ** 2,
        )
        return one, one
    full = tower.depth if tower.window is None else tower.full_layers
    seen = (tower.merge**2, tower.window**2) if tower.window else (0, 0)
    least, most = (
        PatchCounts(
            patches=image_tokens,
            positions=image_tokens,
            pairs=full * of_full + (tower.depth - full) * of_window * image_tokens,
        )
        for of_full, of_window in zip(squares, seen, strict=True)
    )
    return least, most


def per_token(ops: Iterable[Operator], tokens: int) -> tuple[Operator, ...]:
    """Spread operators of a set of images over the tokens of a step [FLOP per token].

    The result adds to `metrics.formula.flops.operators` of the language model.

    tokens: of the language model's sequences in the same step, as TGS counts them (images'
        positions included)

    Raises ValueError for less than one token.
    """
    if tokens < 1:
        raise messages.NO_TOKENS_IN_STEP(tokens=tokens)
    return tuple(
        replace(op, forward=op.forward / tokens, backward=op.backward / tokens) for op in ops
    )


PATCH_EMBEDDING: Final = "vision patch embedding"
PROJECTOR: Final = "vision projector"
"""Operators outside of a tower's layers."""


def _patch_embedding(tower: VisionTower, counts: PatchCounts) -> tuple[str, int, float]:
    flops = 2 * counts.patches * tower.patch * tower.hidden_size
    return PATCH_EMBEDDING, 1, flops


def _layer_terms(tower: VisionTower, counts: PatchCounts) -> Iterator[tuple[str, int, float]]:
    """Yield (name, layers, forward FLOPs of all frames)."""
    d, depth = tower.hidden_size, tower.depth
    flops = depth * counts.positions * projections(d, tower.attention)
    yield "vision query/key/value/output projections", depth, flops
    yield "vision core attention", depth, core_attention(tower.attention, counts.pairs)
    yield "vision ffn", depth, depth * counts.positions * ffn(d, tower.ffn)


def _projector_terms(tower: VisionTower, counts: PatchCounts) -> Iterator[tuple[str, int, float]]:
    if tower.projectors:
        merged = counts.patches / tower.merge**2
        weights = [w.rows * w.columns for p in tower.projectors for w in p.weights]
        yield PROJECTOR, len(tower.projectors), merged * 2 * sum(weights)


Frame: TypeAlias = tuple[int, int]


def _pairs(tower: VisionTower, frames: Sequence[Frame]) -> int:
    """Return the query-key pairs of all layers: every pair of a frame, or of a window."""
    whole = sum((h * w + tower.class_token) ** 2 for h, w in frames)
    if tower.window is None:
        return tower.depth * whole
    inside = sum(_squares(h, tower.window) * _squares(w, tower.window) for h, w in frames)
    return tower.full_layers * whole + (tower.depth - tower.full_layers) * inside


def _squares(side: int, window: int) -> int:
    """Return the sum of a side's squared window lengths; the last may be shorter."""
    whole, rest = divmod(side, window)
    return whole * window**2 + rest**2


# --- Hugging Face config.json ---------------------------------------------------------------


def find_tower(name: str) -> VisionTower | None:
    """Return the tower of a model known by name; None for a model of text.

    Raises UnknownModelError.
    """
    config = find_config(name)
    if "vision_config" not in config:
        return None
    tower = from_hugging_face(config)
    return (
        None
        if tower is None
        else replace(tower, name=f"the vision tower of {find_model(name).name}")
    )


def from_hugging_face(config: Mapping[str, object]) -> VisionTower | None:
    """Return tower and projector of a Hugging Face `config.json`; None if text only.

    A `vision_config` is saved without its class's defaults, so missing keys get the defaults of
    transformers 5.23.0. A vision_config on its own gives a tower without projector (Qwen's mergers
    are part of the tower and always included).

    Raises ShapeError for an unknown kind of tower, and for a malformed key.
    """
    inner = config.get("vision_config")
    model_type = str(config.get("model_type"))
    if not isinstance(inner, Mapping):
        if model_type not in _TOWERS:
            return None
        return _named(config, _TOWERS[model_type](Config(config, f"the {model_type} config")))
    kind = str(inner.get("model_type") or model_type)
    if kind not in _TOWERS:
        raise messages.UNKNOWN_TOWER(model_type=kind, known=", ".join(sorted(_TOWERS)))
    tower = _TOWERS[kind](Config(inner, f"vision_config of the {model_type} config"))
    if not tower.projectors:
        tower = _projected(tower, config)
    return _named(config, tower)


def _named(config: Mapping[str, object], tower: VisionTower) -> VisionTower:
    name = config.get("_name_or_path") or config.get("model_type")
    return replace(tower, name=f"the vision tower of {name}")


def _projected(tower: VisionTower, config: Mapping[str, object]) -> VisionTower:
    """Return the tower with the projector of its multimodal model."""
    model_type = str(config.get("model_type"))
    if model_type not in _PROJECTORS:
        known = ", ".join(sorted(_PROJECTORS))
        raise messages.UNKNOWN_PROJECTOR(model_type=model_type, known=known)
    text = Config(text_config(config), f"the text model of the {model_type} config")
    outer = Config(config, f"the {model_type} config")
    return _PROJECTORS[model_type](tower, outer, text.number("hidden_size", "n_embd"))


def _transformer(d: int, heads: int, *, qkv_bias: bool = True, fused: bool = False) -> Attention:
    """Return the bidirectional attention of a vision transformer."""
    width = d // heads
    return Attention(
        heads=heads,
        kv_heads=heads,
        qk_head_dim=width,
        v_head_dim=width,
        causal=False,
        fused=fused,
        qkv_bias=qkv_bias,
        output_bias=True,
    )


def _completed(config: Config, defaults: Mapping[str, object]) -> Config:
    """Return the configuration, with its class's defaults for absent and null keys."""
    given = {key: value for key, value in config.values.items() if value is not None}
    return Config({**defaults, **given}, config.source)


def _side(config: Config, key: str) -> int:
    """Return a side in pixels or frames: one number, or a pair of equal numbers."""
    value = config.values.get(key)
    if isinstance(value, list | tuple):
        if len(value) != 2 or value[0] != value[1]:  # noqa: PLR2004 (height and width)
            raise messages.UNCOVERED_VISION_KEY(
                source=config.source, key=key, value=value, covered="squares"
            )
        return Config({key: value[0]}, config.source).number(key)
    return config.number(key)


_VIT: Final[Mapping[str, object]] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
}


def _vit(config: Config) -> VisionTower:
    """Return a plain vision transformer for images of one size."""
    d, side = config.number("hidden_size"), _side(config, "patch_size")
    patches = _side(config, "image_size") // side
    return VisionTower(
        name="",
        hidden_size=d,
        depth=config.number("num_hidden_layers"),
        attention=_transformer(d, config.number("num_attention_heads")),
        ffn=FeedForward(width=config.number("intermediate_size"), gated=False, bias=True),
        patch=config.number("num_channels") * side**2,
        patch_side=side,
        grid=(patches, patches),
        positions=patches**2,
        layer_params=2 * 2 * d,
        norm_params=2 * d,
    )


def _clip(config: Config) -> VisionTower:
    """CLIP (arXiv:2103.00020): a class token, norms at both ends, no patch bias."""
    tower = _vit(_completed(config, {**_VIT, "patch_size": 32}))
    return replace(
        tower,
        class_token=True,
        patch_bias=False,
        positions=tower.positions + 1,
        norm_params=2 * 2 * tower.hidden_size,
    )


def _siglip(config: Config) -> VisionTower:
    """SigLIP (arXiv:2303.15343), without its attention-pooling head."""
    return _vit(_completed(config, {**_VIT, "patch_size": 16}))


_INTERNVIT: Final[Mapping[str, object]] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
}


def _internvit(config: Config) -> VisionTower:
    """InternViT: a class token, a scale after each block.

    Reads the keys of OpenGVLab's configs and of the -hf configs.
    """
    tower = _vit(_completed(config, _INTERNVIT))
    d = tower.hidden_size
    rms = config.choice("norm_type", "layer_norm", "rms_norm", default="layer_norm") == "rms_norm"
    native = config.values.get("model_type") == "internvl_vision"
    bias = config.flag("attention_bias" if native else "qkv_bias", default=not native)
    normed = config.flag("use_qk_norm" if native else "qk_normalization", default=False)
    attention = _transformer(d, tower.attention.heads, qkv_bias=bias, fused=not native)
    pooled = config.flag("use_mean_pooling", default=True)  # then there is no norm after the tower
    return replace(
        tower,
        attention=replace(attention, qk_norm="all" if normed else "none"),
        class_token=True,
        positions=tower.positions + 1,
        layer_params=2 * d * (1 if rms else 2) + 2 * d,
        norm_params=0 if pooled or not native else 2 * d,
    )


_QWEN: Final[Mapping[str, object]] = {
    "depth": 32,
    "num_heads": 16,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}


def _qwen(config: Config, d: int, feed_forward: FeedForward) -> VisionTower:
    """Common parts of Qwen's towers: images of any size, mergers, rotary positions."""
    side, frames = _side(config, "patch_size"), _side(config, "temporal_patch_size")
    return VisionTower(
        name="",
        hidden_size=d,
        depth=config.number("depth"),
        attention=_transformer(d, config.number("num_heads"), fused=True),
        ffn=feed_forward,
        patch=config.number("in_channels", "in_chans", default=3) * frames * side**2,
        patch_side=side,
        merge=config.number("spatial_merge_size"),
    )


def _merger(tower: VisionTower, out: int, norm_params: int) -> Projector:
    """Qwen's merger: neighbouring patches side by side, two layers."""
    width = tower.hidden_size * tower.merge**2
    return Projector(widths=(width, width, out), norm_params=norm_params)


def _qwen2_vl(config: Config) -> VisionTower:
    """Qwen2-VL (arXiv:2409.12191)."""
    d = config.number("embed_dim", default=1280)
    width = d * config.number("mlp_ratio", default=4)
    feed_forward = FeedForward(width=width, gated=False, bias=True)
    tower = _qwen(_completed(config, _QWEN), d, feed_forward)
    merger = _merger(tower, config.number("hidden_size", default=3584), 2 * d)
    return replace(tower, patch_bias=False, layer_params=2 * 2 * d, projectors=(merger,))


def _qwen2_5_vl(config: Config) -> VisionTower:
    """Qwen2.5-VL (arXiv:2502.13923): gated ffn, windows in all but a few layers."""
    d = config.number("hidden_size", default=3584)
    width = config.number("intermediate_size", default=3420)
    tower = _qwen(_completed(config, _QWEN), d, FeedForward(width=width, bias=True))
    full = config.items("fullatt_block_indexes")
    if config.values.get("fullatt_block_indexes") is None:
        full = [7, 15, 23, 31]
    merged = config.number("window_size", default=112) // tower.merge // tower.patch_side
    if not merged:
        raise messages.WINDOW_BELOW_PATCH(source=config.source)
    return replace(
        tower,
        patch_bias=False,
        layer_params=2 * d,
        window=merged * tower.merge,
        full_layers=len({i for i in full if isinstance(i, int) and i < tower.depth}),
        projectors=(_merger(tower, config.number("out_hidden_size", default=3584), d),),
    )


def _qwen3_vl(config: Config, *, deepstack: Sequence[int] = (8, 16, 24)) -> VisionTower:
    """Qwen3-VL: a learned position table, and a merger per layer of the deepstack."""
    d = config.number("hidden_size", default=1152)
    width = config.number("intermediate_size", default=4304)
    values = _completed(config, {**_QWEN, "depth": 27, "patch_size": 16})
    tower = _qwen(values, d, FeedForward(width=width, gated=False, bias=True))
    out = config.number("out_hidden_size", default=3584)
    given = "deepstack_visual_indexes" in config.values
    deep = config.items("deepstack_visual_indexes") if given else deepstack
    merged = 2 * d * tower.merge**2
    return replace(
        tower,
        layer_params=2 * 2 * d,
        positions=config.number("num_position_embeddings", default=2304),
        projectors=(_merger(tower, out, 2 * d), *(_merger(tower, out, merged) for _ in deep)),
    )


def _qwen3_5(config: Config) -> VisionTower:
    """Qwen3.5's tower: Qwen3-VL's without the deepstack."""
    return _qwen3_vl(config, deepstack=())


_TOWERS: Final[Mapping[str, Callable[[Config], VisionTower]]] = {
    "clip_vision_model": _clip,
    "intern_vit_6b": _internvit,
    "internvl_vision": _internvit,
    "qwen2_5_vl": _qwen2_5_vl,  # as in published configs
    "qwen2_5_vl_vision": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen2_vl_vision": _qwen2_vl,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "qwen3_5_moe_vision": _qwen3_5,
    "qwen3_5_vision": _qwen3_5,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_vl_moe_vision": _qwen3_vl,
    "qwen3_vl_vision": _qwen3_vl,
    "siglip_vision_model": _siglip,
}


def _llava(tower: VisionTower, config: Config, out: int) -> VisionTower:
    """LLaVA 1.5 (arXiv:2310.03744): two layers on one feature layer, no class token."""
    layer = config.values.get("vision_feature_layer", -2)
    if not isinstance(layer, int) or not -tower.depth - 1 <= layer <= tower.depth:
        raise messages.UNCOVERED_VISION_KEY(
            source=config.source,
            key="vision_feature_layer",
            value=layer,
            covered=f"one layer, {-tower.depth - 1} to {tower.depth}",
        )
    # Entry 0 of the hidden states is the embedding, the last entry is the last layer's output.
    used = layer if layer >= 0 else tower.depth + 1 + layer
    config.choice("vision_feature_select_strategy", "default", default="default")
    bias = config.flag("multimodal_projector_bias", default=True)
    projector = Projector(widths=(tower.hidden_size, out, out), bias=bias)
    return replace(tower, depth=used, unused_layers=tower.depth - used, projectors=(projector,))


def _internvl(tower: VisionTower, config: Config, out: int) -> VisionTower:
    """InternVL (arXiv:2404.16821): 2 x 2 patches side by side, a norm, two layers."""
    key = "vision_feature_layer" if config.values["model_type"] == "internvl" else "select_layer"
    for name, covered in (("downsample_ratio", 0.5), (key, -1)):  # half of each side; the last
        if (value := config.values.get(name, covered)) != covered:
            raise messages.UNCOVERED_VISION_KEY(
                source=config.source, key=name, value=value, covered=covered
            )
    width = 4 * tower.hidden_size
    projector = Projector(widths=(width, out, out), norm_params=2 * width)
    return replace(tower, merge=2, projectors=(projector,))


def _gemma3(tower: VisionTower, config: Config, out: int) -> VisionTower:
    """Gemma 3 (arXiv:2503.19786): patches averaged to mm_tokens_per_image, one layer.

    In the language model, the tokens of one image attend to each other both ways: 256 * 255 / 2
    pairs per image that `metrics.formula.flops.attended_pairs` does not count.
    """
    tokens = config.number("mm_tokens_per_image", default=256)
    side = round(tokens**0.5)
    patches = tower.grid[0] if tower.grid else 0
    if side**2 != tokens or patches % side:
        raise messages.TOKENS_DO_NOT_TILE(source=config.source, tokens=tokens, patches=patches)
    d = tower.hidden_size
    projector = Projector(widths=(d, out), bias=False, norm_params=d)
    return replace(tower, merge=patches // side, projectors=(projector,))


def _paligemma(tower: VisionTower, config: Config, out: int) -> VisionTower:
    """PaliGemma (arXiv:2407.07726): one layer, a token per patch."""
    width = config.number("projection_dim", default=out)
    return replace(tower, projectors=(Projector(widths=(tower.hidden_size, width)),))


_PROJECTORS: Final[Mapping[str, Callable[[VisionTower, Config, int], VisionTower]]] = {
    "gemma3": _gemma3,
    "internvl": _internvl,
    "internvl_chat": _internvl,
    "llava": _llava,
    "paligemma": _paligemma,
}
