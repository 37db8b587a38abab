"""Mixers without attention: Mamba, KDA, short convolutions and others."""

from __future__ import annotations

from .config import Config
from .shape import LinearAttention, StateMixer, Weight


def mamba(config: Config) -> StateMixer:
    """Return Mamba: a state for each inner channel (arXiv:2312.00752).

    Its step of time has a low rank; with `mamba_norms`, Jamba's norms of step, B and C.
    """
    hidden = config.number("hidden_size")
    inner = config.optional("mamba_intermediate_size") or config.number("expand") * hidden
    state, rank = config.number("state_size"), config.number("time_step_rank")
    kernel, bias = config.number("conv_kernel"), config.flag("use_bias", default=False)
    matrices = (
        Weight("in_proj", hidden, 2 * inner),
        Weight("x_proj", inner, rank + 2 * state),
        Weight("dt_proj", rank, inner),
        Weight("conv1d", kernel, inner),
        Weight("out_proj", inner, hidden),
    )
    params = inner * state + 2 * inner  # decay, skip, bias of the step
    params += inner if config.flag("use_conv_bias", default=True) else 0
    params += 2 * inner + hidden if bias else 0
    params += rank + 2 * state if config.flag("mamba_norms", default=False) else 0
    return StateMixer(
        kind="state space", matrices=matrices, state_size=inner * state, params=params
    )


def mamba2(config: Config) -> StateMixer:
    """Return Mamba-2: a matrix for each head (arXiv:2405.21060)."""
    hidden, heads = config.number("hidden_size"), config.number("mamba_num_heads")
    inner = heads * config.number("mamba_head_dim")
    state, groups = config.number("state_size"), config.number("n_groups")
    channels = inner + 2 * groups * state
    inputs = inner + channels + heads
    bias = config.flag("use_bias", default=False)
    params = 3 * heads  # decay, skip, bias of the step
    params += inner if config.flag("mamba_norm", default=True) else 0
    params += channels if config.flag("use_conv_bias", default=True) else 0
    params += inputs + hidden if bias else 0
    matrices = (
        Weight("in_proj", hidden, inputs),
        Weight("conv1d", config.number("conv_kernel"), channels),
        Weight("out_proj", inner, hidden),
    )
    return StateMixer(
        kind="state space", matrices=matrices, state_size=inner * state, params=params
    )


def lightning(config: Config) -> StateMixer:
    """Return lightning attention (MiniMax-01, arXiv:2501.08313)."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    head = config.optional("head_dim") or hidden // heads
    width = heads * head
    return StateMixer(
        kind="linear attention",
        matrices=(
            Weight("qkv_proj", hidden, 3 * width),
            Weight("output_gate", hidden, width),
            Weight("out_proj", width, hidden),
        ),
        state_size=heads * head * head,
        params=width,
    )


def short_convolution(config: Config) -> StateMixer:
    """Return the gated short convolution of LFM2."""
    hidden = config.number("hidden_size")
    return StateMixer(
        kind="convolution",
        matrices=(
            Weight("in_proj", hidden, 3 * hidden),
            Weight("conv1d", config.number("conv_L_cache"), hidden),
            Weight("out_proj", hidden, hidden),
        ),
        params=5 * hidden if config.flag("conv_bias", default=False) else 0,
    )


def gated_delta_net(config: Config) -> LinearAttention:
    """Return Gated DeltaNet with one weight for each projection."""
    return LinearAttention(
        key_heads=config.number("linear_num_key_heads"),
        value_heads=config.number("linear_num_value_heads"),
        key_head_dim=config.number("linear_key_head_dim"),
        value_head_dim=config.number("linear_value_head_dim"),
        conv_kernel=config.number("linear_conv_kernel_dim"),
    )


def no_mixer(_: Config) -> None:
    """Return no mixer, for layers that are a feed-forward block alone."""


def full_rank_kda(config: Config) -> StateMixer:
    """Return KDA (Kimi Linear, arXiv:2510.26692) whose gates have full rank."""
    hidden, heads = config.number("hidden_size"), config.number("linear_num_heads")
    head = config.number("linear_head_dim")
    width = heads * head
    projections = [Weight(f"{name}_proj", hidden, width) for name in ("q", "k", "v", "f", "g")]
    return StateMixer(
        kind="linear attention",
        matrices=(
            *projections,
            Weight("b_proj", hidden, heads),
            Weight("conv1d", config.number("linear_conv_kernel_dim"), 3 * width),
            Weight("o_proj", width, hidden),
        ),
        state_size=width * head,
        params=heads + width + head,
    )


def olmo_delta_net(config: Config) -> StateMixer:
    """Return OLMo Hybrid's Gated DeltaNet: one weight for each projection."""
    hidden = config.number("hidden_size")
    key_heads, heads = (
        config.number("linear_num_key_heads"),
        config.number("linear_num_value_heads"),
    )
    key_dim, value_dim = (
        config.number("linear_key_head_dim"),
        config.number("linear_value_head_dim"),
    )
    key, value = key_heads * key_dim, heads * value_dim
    widths = {"q": key, "k": key, "v": value, "a": heads, "b": heads, "g": value}
    return StateMixer(
        kind="linear attention",
        matrices=(
            *(Weight(f"{name}_proj", hidden, width) for name, width in widths.items()),
            Weight("conv1d", config.number("linear_conv_kernel_dim"), 2 * key + value),
            Weight("o_proj", value, hidden),
        ),
        state_size=value * key_dim,
        params=2 * heads + value_dim,
    )


def rwkv(config: Config) -> StateMixer:
    """Return RWKV-4 (arXiv:2305.13048): a running average for each channel."""
    hidden = config.number("hidden_size")
    width = config.number("attention_hidden_size", default=hidden)
    inputs = tuple(Weight(name, hidden, width) for name in ("key", "value", "receptance"))
    return StateMixer(
        kind="linear attention",
        matrices=(*inputs, Weight("output", width, hidden)),
        state_size=width,
        params=2 * width + 3 * hidden,
    )


def gated_recurrence(config: Config) -> StateMixer:
    """Return RecurrentGemma's gated recurrence (arXiv:2404.07839)."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    width = config.number("lru_width", default=hidden)
    block = width // heads
    gates = tuple(
        Weight(name, block, block, copies=heads, per_token=heads)
        for name in ("input_gate", "recurrent_gate")
    )
    return StateMixer(
        kind="state space",
        matrices=(
            Weight("linear_y", hidden, width),
            Weight("linear_x", hidden, width),
            Weight("linear_out", width, hidden),
            Weight("conv1d", config.number("conv1d_width"), width),
            *gates,
        ),
        state_size=width,
        params=3 * width + hidden + 3 * width,  # biases, recurrence and biases of its gates
    )


def matrix_lstm(config: Config) -> StateMixer:
    """Return xLSTM's mLSTM (arXiv:2405.04517): a matrix for each head."""
    hidden, heads = config.number("hidden_size"), config.number("num_heads")
    key, value = config.number("qk_dim"), config.number("v_dim")
    names = {"q": key, "k": key, "v": value, "ogate": value, "igate": heads, "fgate": heads}
    bias = config.flag("use_bias", default=False)
    biases = sum(names.values()) + hidden if bias else 2 * heads
    return StateMixer(
        kind="linear attention",
        matrices=(
            *(Weight(name, hidden, width) for name, width in names.items()),
            Weight("out_proj", value, hidden),
        ),
        state_size=key * value // heads,
        params=biases + value,
    )


def headed_mamba(config: Config) -> StateMixer:
    """Return Zamba's Mamba, whose step, B and C are made by each head for itself."""
    hidden, heads = config.number("hidden_size"), config.number("n_mamba_heads")
    inner = config.number("mamba_expand") * hidden
    state, rank = config.number("mamba_d_state"), config.number("mamba_dt_rank")
    each, bias = inner // heads, config.flag("mamba_proj_bias", default=False)
    params = inner * state + 2 * inner
    params += inner if config.flag("mamba_conv_bias", default=True) else 0
    params += 2 * inner + hidden if bias else 0
    return StateMixer(
        kind="state space",
        matrices=(
            Weight("in_proj", hidden, 2 * inner),
            Weight("x_proj", each, rank + 2 * state, copies=heads, per_token=heads),
            Weight("dt_proj", rank, each, copies=heads, per_token=heads),
            Weight("conv1d", config.number("mamba_d_conv"), inner),
            Weight("out_proj", inner, hidden),
        ),
        state_size=inner * state,
        params=params,
    )
