"""XTuner v1 (xtuner/v1/train/trainer.py): the text log.

Variants A0 (2025-07) to Q (2026-07). One line per optimizer step and rank. `time` excludes data
loading (in `data_time`) and checkpoints. `text_tokens` are this rank's tokens without padding,
images' included; `tgs` is text_tokens / time. The trainer also writes the same figures to
`tracker.jsonl` or to TensorBoard (XTUNER_V1_TRACKER, XTUNER_V1_TENSORBOARD), in full precision. The
first has no time of day; both lack the step count and the device.

The meaning of a key differs between variants, so the set of keys decides (`_complete`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..launch_view import Fact, LaunchView
from ..spec import (
    GIB,
    JSON_PAIRS,
    ColumnTarget,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    StepLine,
    parse_json_lines,
    parse_json_object,
)

XTUNER_TRAINER_SOURCE: Final = "InternLM/xtuner/xtuner/v1/train/trainer.py@b934f46"
XTUNER_ENGINE_SOURCE: Final = "InternLM/xtuner/xtuner/v1/engine/train_engine.py@b934f46"
DATASETS_SOURCE: Final = "InternLM/xtuner/xtuner/v1/datasets/__init__.py@b934f46"
PROFILE_SOURCE: Final = "InternLM/xtuner/xtuner/v1/utils/profile.py@1e2adc4"
JSONL_WRITER_SOURCE: Final = "InternLM/xtuner/xtuner/v1/_writer/jsonl_writer.py@7424a02"
TB_WRITER_SOURCE: Final = "InternLM/xtuner/xtuner/v1/_writer/tb_writer.py@65ad45d"

XTUNER_PREFIX: Final = r"\[XTuner\](?:\[RANK (?P<rank>\d{1,9})\])?(?:\[[^][]{0,199}\]){1,5} "
"""Rank (in stderr only), stamp, level and, in debug logs, the origin in the code."""

MTP_TRAINED_FACT: Final = ("mtp_trained", "true")
"""No line gives the number of modules of multi-token prediction (InternLM/xtuner@11f2848
MTPConfig).
"""

STEP_OF_TOTAL: Final = r"(?:Epoch (?P<epoch>\d+) )?Step (?P<step>\d+)/(?P<total>\d+) "
UNNAMED_STEP_PREFIX: Final = re.sub(r"\?P<\w+>", "?:", XTUNER_PREFIX + STEP_OF_TOTAL)

IMPLIED_FACTS: Final = {
    "document_mask": ("true", "XTuner v1 always gives attention the documents' cu_seqlens"),
}


def _compiled(_lines: Sequence[str]) -> dict[str, str]:
    return {"compile": "true"}


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill columns from counts whose meaning depends on the variant.

    total_consumed_tokens is this rank's in H to J. Next to a step_consumed_tokens (M to O) both are
    sums over all ranks. O prints step_consumed_tokens again for this rank; P and later print only
    that. reduced_consumed_tokens (K, L) is a sum over all ranks. P's
    approximate_total_consumed_tokens multiplies this rank's tokens by the ranks: no count of
    anything. reduced_llm_loss is a mean over ranks; total_loss (up to L) and local_loss are this
    rank's.

    efficient_attn_ratio was a sum of 32-bit squares until 8cad75e69: wrong for documents of 46,341
    tokens or more. A text log of O or later, where a count of this rank has 8 decimals, is newer
    than the fix. Older ratios stay among the fields without a column.

    img_tokens of Qwen's towers are patches since e968368a2 (2026-03-16), which prints
    img_efficient_attn_ratio as well. Before, they were tokens of the language model and two borders
    per image. The ratio divides by the squared image tokens of a pack. Until f15a2d5fa (2026-06-08)
    it divided by those of a sample, from which no sum of squares follows. Lines with seqlen_tokens
    (Q) are newer than that. Older figures stay among the fields without a column.

    A tracker's train_time starts with this process if exp_tgs is printed too. Before J it may
    include the launches that this one resumes.
    """
    values = {key.rpartition("/")[2]: value for key, value in printed.items()}
    step, total = values.get("step_consumed_tokens"), values.get("total_consumed_tokens")
    if step is not None and total is not None:
        row["step_tokens"], row["consumed_tokens"] = float(step), float(total)
    elif (reduced := values.get("reduced_consumed_tokens")) is not None:
        row["consumed_tokens"] = float(reduced)
    if row.get("rank_tokens") is None and step is not None and total is None:
        row["rank_tokens"] = float(step)
    of_rank = printed.get("step_consumed_tokens#2", printed.get("step_consumed_tokens", ""))
    if re.fullmatch(r"\d+\.\d{8}", of_rank) and (ratio := printed.get("efficient_attn_ratio")):
        row["attention_ratio"] = float(ratio)
    images, image_ratio = (printed.get(key) for key in ("img_tokens", "img_efficient_attn_ratio"))
    if images is not None and image_ratio is not None:
        row["image_tokens"] = float(images)
        if "seqlen_tokens" in printed:
            row["image_attention_ratio"] = float(image_ratio)
    if "exp_tgs" in values and "train_time" in values:
        row["since_start_s"] = float(values["train_time"])
    for key in ("local_loss", "total_loss"):
        if row.get("loss") is None and key in values:
            row["loss"] = float(values[key])


# -- the header ----------------------------------------------------------------------------


def _training_config(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of the TrainerConfig that rank 0 dumps.

    Empty if the dump is incomplete.
    """
    config = _dumped(lines)
    model, fsdp = _section(config, "model_cfg"), _section(config, "fsdp_cfg")
    data = _section(config, "dataloader_cfg")
    expert = max([*_whole(fsdp, "ep_size"), *_whole(model, "ep_size")], default=None)
    sizes = {
        "context_parallel": _whole(config, "sp_size"),
        "tensor_parallel": _whole(fsdp, "tp_size"),
        "expert_parallel": [] if expert is None else [expert],
        "global_batch_size": _whole(config, "global_batch_size"),
        "micro_batch_size": _whole(config, "intra_layer_micro_batch"),
        "total_steps": _whole(config, "total_step"),
        "seq_len": _whole(data, "pack_max_length"),
        "mtp_modules": _mtp_modules(model),
    }
    facts = {name: str(value) for name, values in sizes.items() for value in values}
    described = _model(config, model) | _trained_parts(model)
    return facts | described | _numbers(model, fsdp) | _recompute(model, fsdp)


def _dumped(lines: Sequence[str]) -> dict[str, Any]:
    return parse_json_lines([line for line in lines if not line.startswith("[XTuner]")])


def _section(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _whole(config: Mapping[str, Any], key: str) -> list[int]:
    """Return the positive count of `key` in a list; empty if there is none."""
    value = config.get(key)
    return [value] if isinstance(value, int) and not isinstance(value, bool) and value > 0 else []


def _mtp_modules(model: Mapping[str, Any]) -> list[int]:
    """Return the number of passes through modules of multi-token prediction.

    All passes may share one module. Empty if the modules' inputs or head are detached, as some
    gradients are not computed then.
    """
    mtp = _section(model, "mtp_config")
    detached = any(mtp.get(key) for key in ("detach_mtp_inputs", "detach_mtp_lm_head_weight"))
    return [] if detached else _whole(mtp, "num_layers")


def _model(config: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, str]:
    """Return the model's path and config.

    Empty for a printed model that is not understood: it may have fewer layers than its path says.
    """
    seeing = "text_config" in model or "vision_config" in model
    path, hugging_face = config.get("load_from"), (_with_tower if seeing else _hugging_face)(model)
    if not hugging_face:
        return {}
    facts = {"model": path} if isinstance(path, str) and path else {}
    return facts | {"model_config": json.dumps(hugging_face)}


QWEN3_ATTENTION_KEYS: Final = frozenset(
    {"num_attention_heads", "num_key_value_heads", "head_dim", "qk_norm", "sliding_window"}
    | {"rms_norm_eps", "rms_norm_type", "causal", "attn_impl"}
)
"""Keys of an attention_cfg that is still the grouped-query attention of Qwen3."""

NON_QWEN3_KEYS: Final = (
    *("linear_attention", "mlp_bias", "gate_bias", "moe_bias"),
    *("n_shared_experts", "first_k_dense_replace"),
)
SHARED_CONFIG_KEYS: Final = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("tie_word_embeddings", "use_sliding_window", "max_window_layers"),
)
ATTENTION_KEYS: Final = ("num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window")
EXPERT_KEYS: Final = {
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "moe_intermediate_size": "moe_intermediate_size",
}


def _hugging_face(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Hugging Face config of a Qwen3, dense or with experts.

    The keys are those of `hf_config`. Empty for other models, and for any setting that those two
    lack. A config made in Python has no `model_type`; with these settings it is a Qwen3.
    """
    attention = _section(model, "attention")
    routed = "n_routed_experts" in model
    printed = model.get("model_type") or ("qwen3_moe" if routed else "qwen3")
    sparse = {"qwen3": False, "qwen3_moe": True}.get(str(printed))
    other = [key for key, value in attention.items() if value and key not in QWEN3_ATTENTION_KEYS]
    if sparse is None or other or attention.get("qk_norm") is not True:
        return {}
    if any(model.get(key) for key in NON_QWEN3_KEYS) or sparse != routed:
        return {}
    if model.get("mtp_config") and not _mtp_modules(model):
        return {}
    config = {key: model[key] for key in SHARED_CONFIG_KEYS if key in model}
    config["model_type"] = printed
    config |= {key: attention[key] for key in ATTENTION_KEYS if key in attention}
    return config | ({key: model.get(name) for key, name in EXPERT_KEYS.items()} if sparse else {})


QWEN3_VL_KEYS: Final = {
    "in_channels": "in_channels",
    "depth": "depth",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "patch_size": "patch_size",
    "spatial_merge_size": "spatial_merge_size",
    "temporal_patch_size": "temporal_patch_size",
    "num_position_embeddings": "num_position_embeddings",
    "deepstack_visual_indexes": "deepstack_visual_indexes",
}
"""Keys of Hugging Face's vision_config of a Qwen3-VL, and XTuner's
(xtuner/v1/model/compose/qwen3_vl/qwen3_vl_config.py)."""

INTERNVIT_KEYS: Final = (
    *("num_channels", "patch_size", "image_size", "hidden_size", "num_attention_heads"),
    *("intermediate_size", "use_qk_norm", "num_hidden_layers", "norm_type", "attention_bias"),
    "use_mean_pooling",
)
"""Keys of an InternViT's vision_config, the same in Hugging Face's config
(xtuner/v1/model/compose/internvl/internvl_config.py)."""

INTERNVL_KEYS: Final = ("vision_feature_layer", "downsample_ratio")


def _with_tower(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Hugging Face config of a Qwen3-VL, an InternVL 3.5 or an Intern-S1.

    Empty for other models, and where the projector's widths are not those of tower and text.
    """
    vision, projector = _section(model, "vision_config"), _section(model, "projector_config")
    text = _section(model, "text_config")
    kind = text.get("model_type") or ("qwen3_moe" if "n_routed_experts" in text else "qwen3")
    read = _hugging_face(text | {"model_type": kind})
    widths = (vision.get("hidden_size"), text.get("hidden_size"))
    if not read or widths != tuple(
        projector.get(key) for key in ("vision_hidden_size", "text_hidden_size")
    ):
        return {}
    if vision.keys() >= set(QWEN3_VL_KEYS.values()):
        tower = {key: vision[name] for key, name in QWEN3_VL_KEYS.items()}
        tower |= {"model_type": "qwen3_vl", "out_hidden_size": widths[1]}
        return {"model_type": "qwen3_vl", "vision_config": tower, "text_config": read}
    if vision.keys() >= set(INTERNVIT_KEYS) and model.keys() >= set(INTERNVL_KEYS):
        tower = {key: vision[key] for key in INTERNVIT_KEYS} | {"model_type": "internvl_vision"}
        own = {key: model[key] for key in INTERNVL_KEYS}
        return {"model_type": "internvl", "vision_config": tower, "text_config": read} | own
    return {}


FROZEN_PART_KEYS: Final = {
    "vision": "freeze_vision",
    "projector": "freeze_projector",
    "language": "freeze_language",
}


def _trained_parts(model: Mapping[str, Any]) -> dict[str, str]:
    """Return what is trained of a model with a vision tower; no part has adapters."""
    states = {part: model.get(key) for part, key in FROZEN_PART_KEYS.items()}
    if not all(isinstance(state, bool) for state in states.values()):
        return {}
    frozen = [part for part, state in states.items() if state]
    trainable = "frozen" if states["language"] else "full"
    return {"trainable": trainable, "frozen_parts": ",".join(frozen) or "none"}


def _frozen_parts(lines: Sequence[str]) -> dict[str, str]:
    """Return the parts of a model with a vision tower that the lines call frozen."""
    printed = {
        "Freeze vision tower": "vision",
        "Freeze multi modal projector": "projector",
        "Freeze language model": "language",
    }
    frozen = [part for text, part in printed.items() if any(text in line for line in lines)]
    return {"frozen_parts": ",".join(frozen)}


def _numbers(model: Mapping[str, Any], fsdp: Mapping[str, Any]) -> dict[str, str]:
    """Return the precision of the matmuls, or the float8 settings.

    FSDP's dtype is the precision, unless the head stays in fp32.
    """
    float8 = _section(model, "float8_cfg") or _section(_section(model, "text_config"), "float8_cfg")
    if any(float8.values()):
        return {"quantization": f"float8_cfg {json.dumps(float8)}"}
    in_fp32 = fsdp.get("lm_head_fp32") or fsdp.get("fp32_lm_head")
    plain = fsdp.get("param_dtype") == "torch.bfloat16" and not in_fp32
    return {"precision": "bf16"} if plain else {}


DEFAULT_FSDP_NOTE: Final = "fsdp_cfg null is XTuner's FSDPConfig(), whose param_dtype is bfloat16"


def _default_fsdp(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the precision where `fsdp_cfg` is null, and no float8 is set."""
    config = _dumped(lines)
    null = "fsdp_cfg" in config and config["fsdp_cfg"] is None
    if not null or "quantization" in _numbers(_section(config, "model_cfg"), {}):
        return {}
    return {"precision": ("bf16", DEFAULT_FSDP_NOTE)}


def _recompute(model: Mapping[str, Any], fsdp: Mapping[str, Any]) -> dict[str, str]:
    """Return full or none; empty for some layers, or parts: these have no closed form."""
    ratio = fsdp.get("recompute_ratio")
    parts = [v for k, v in [*model.items(), *fsdp.items()] if "recompute" in k and v != ratio]
    if isinstance(ratio, (int, float)) and ratio in (0, 1) and not any(parts):
        return {"recompute": "full" if ratio else "none"}
    return {}


def _architecture(lines: Sequence[str]) -> dict[str, str]:
    """Return `none` if the printed layers have no checkpoint wrapper.

    A wrapped layer may keep some activations (selective checkpointing), so a wrapper proves
    nothing.
    """
    layers = any("DecoderLayer(" in line for line in lines)
    wrapped = any("_checkpoint_wrapped_module" in line for line in lines)
    return {"recompute": "none"} if layers and not wrapped else {}


def _parameters(printed: Mapping[str, str]) -> dict[str, str]:
    """Return `full` if the trainable and the total count are equal."""
    return {"trainable": "full"} if printed["some"] == printed["all"] else {}


CONFIG_EXAMPLE: Final = (
    "[XTuner][2026-11-20 15:49:28][INFO] Training config: {",
    '  "model_cfg": {',
    '    "float8_cfg": null,',
    '    "vocab_size": 1024,',
    '    "num_hidden_layers": 4,',
    '    "hidden_size": 128,',
    '    "intermediate_size": 384,',
    '    "attention": {',
    '      "num_attention_heads": 4,',
    '      "head_dim": 32,',
    '      "qkv_bias": false,',
    '      "qk_norm": true,',
    '      "sliding_window": null,',
    '      "num_key_value_heads": 2',
    "    },",
    '    "linear_attention": null,',
    '    "tie_word_embeddings": false,',
    '    "model_type": "qwen3",',
    '    "use_sliding_window": false',
    "  },",
    '  "load_from": "models/tiny",',
    '  "fsdp_cfg": {',
    '    "tp_size": 1,',
    '    "ep_size": 1,',
    '    "recompute_ratio": 1.0,',
    '    "param_dtype": "torch.bfloat16",',
    '    "lm_head_fp32": false',
    "  },",
    '  "global_batch_size": 8,',
    '  "sp_size": 1,',
    '  "total_step": 20,',
    '  "intra_layer_micro_batch": 1',
    "}",
)
MODEL_EXAMPLE: Final = (
    "[XTuner][2026-11-20 15:50:18][INFO] FSDPQwen3Dense(",
    "  (norm): FSDPRMSNorm((128,), type=default, eps=1e-06)",
    "  (lm_head): FSDPLMHead(in_features=128, out_features=1024, bias=False)",
    "  (layers): ModuleDict(",
    "    (0): FSDPDenseDecoderLayer(",
    "      (self_attn): MultiHeadAttention(",
    "        (q_proj): _Linear(in_features=128, out_features=128, bias=False)",
    "      )",
    "    )",
    "  )",
    "  (rotary_emb): RotaryEmbedding()",
    ")",
)

FACT_BLOCKS: Final = (
    FactBlock(
        start=r"\] Training config: \{\s*$",
        end=r"\] Training config: \{\s*$",
        braces=True,
        others=r"\[XTuner\]",
        read=_training_config,
        infer=_default_fsdp,
        max_lines=20_000,
        printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer.from_config",
        example=CONFIG_EXAMPLE,
    ),
    FactBlock(
        start=r"\[XTuner\].*\] FSDP\w+\(\s*$",
        end=r"^\)",
        read=_architecture,
        include_end=True,
        max_lines=100_000,
        printed_by=f"{XTUNER_ENGINE_SOURCE} TrainEngine.build_model",
        example=MODEL_EXAMPLE,
    ),
    FactBlock(
        start=r"\] Freeze (?:vision tower|multi modal projector|language model)\s*$",
        end=r"^(?!.*\] Freeze (?:vision tower|multi modal projector|language model)\s*$)",
        read=_frozen_parts,
        include_start=True,
        printed_by="InternLM/xtuner/xtuner/v1/model/compose/base.py@b934f46 "
        "BaseComposeModel._freeze_modules",
        example=(
            "[XTuner][2026-11-20 15:50:18][INFO] Freeze vision tower",
            "[XTuner][2026-11-20 15:50:18][INFO] Freeze multi modal projector",
            "[XTuner][2026-11-20 15:50:19][INFO] XTUNER_GC_ENABLE: None",
        ),
    ),
    FactBlock(
        start=r"The `compile_cfg` of model is \{\s*$",
        end=r"The `compile_cfg` of model is \{\s*$",
        braces=True,
        others=r"\[XTuner\]",
        read=_compiled,
        printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer.build_engine",
        example=(
            "[XTuner][2026-11-20 15:49:29][INFO] The `compile_cfg` of model is {",
            '    "xtuner.v1.module.decoder_layer.dense_decoder_layer.DenseDecoderLayer.forward": {',
            '        "fullgraph": true',
            "    }",
            "}",
        ),
    ),
)


def _fact(anchor: str, regex: str, example: str, printed_by: str, **more: Any) -> FactLine:  # noqa: ANN401
    """Return a fact line. more: further fields of FactLine."""
    return FactLine(anchor=anchor, regex=regex, example=example, printed_by=printed_by, **more)


_AT: Final = "[XTuner][2026-11-20 15:49:29]"
FACT_LINES: Final = (
    _fact(
        "grad_accumulation_steps: ",
        r"grad_accumulation_steps: (?P<gradient_accumulation>\d+)",
        f"{_AT}[INFO] grad_accumulation_steps: 2",
        f"{XTUNER_ENGINE_SOURCE} TrainEngine.train_step",
    ),
    _fact(
        "Total trainable parameters: ",
        r"Total trainable parameters: (?P<some>[\d.]+)M, total parameters: (?P<all>[\d.]+)M",
        f"{_AT}[INFO] Total trainable parameters: 1.05M, total parameters: 1.05M",
        f"{XTUNER_ENGINE_SOURCE} TrainEngine.build_optimizer",
        read=_parameters,
    ),
    _fact(
        "`compile_cfg` of model is {}",
        r"The `compile_cfg` of model is \{\}",
        f"{_AT}[INFO] The `compile_cfg` of model is {{}}",
        f"{XTUNER_TRAINER_SOURCE} Trainer.build_engine",
        constants={"compile": "false"},
    ),
    _fact(
        "XTUNER_USE_FA3: 1",
        r"^XTUNER_USE_FA3: 1\s*$",
        "XTUNER_USE_FA3: 1",
        f"{XTUNER_TRAINER_SOURCE} Trainer._setup_env",
        constants={"attention": "flash_attention_3"},
        composed=True,
    ),
    _fact(
        "XTUNER_",
        r"^XTUNER_\w+: ",
        "XTUNER_GC_ENABLE: None",
        f"{XTUNER_TRAINER_SOURCE} Trainer._setup_env",
    ),
    _fact(
        "GROUPED_GEMM_",
        r"^GROUPED_GEMM_\w+: ",
        "GROUPED_GEMM_USE_CUTLASS: None",
        f"{XTUNER_TRAINER_SOURCE} Trainer._setup_env",
    ),
    _fact(
        "=====",
        r"^={20,}\s*$",
        "==================================================",
        f"{XTUNER_TRAINER_SOURCE} Trainer._setup_env",
    ),
    _fact(
        "[Dataset] ",
        r"\] \[Dataset\] (?:\(Original\)|\(Packed\)|Start (?:loading|packing))",
        f"{_AT}[INFO] [Dataset] (Packed) 350 samples.",
        DATASETS_SOURCE,
    ),
    _fact(
        "pack workers",
        r"\] Using \d+ pack workers for packing datasets",
        f"{_AT}[INFO] Using 1 pack workers for packing datasets.",
        DATASETS_SOURCE,
    ),
    _fact(
        "Start loading [",
        r"\] Start loading \[.*with sample_ratio=",
        f"{_AT}[INFO] Start loading [synthetic]data/openai.jsonl with sample_ratio=1.0.",
        DATASETS_SOURCE,
        composed=True,
    ),
    _fact(
        "Elapsed time",
        r"\[SUCCESS\].*Elapsed time",
        f"{_AT}[SUCCESS] [Build Datasets] Elapsed time 0.35 seconds",
        PROFILE_SOURCE,
    ),
    _fact(
        "rainable parameters names: ",
        r"\] (?:Untrainable|Trainable) parameters names: \[",
        f"{_AT}[INFO] Untrainable parameters names: []",
        f"{XTUNER_ENGINE_SOURCE} TrainEngine.build_optimizer",
    ),
    _fact(
        "No checkpoint to resume from",
        r"\] No checkpoint to resume from",
        f"{_AT}[INFO] No checkpoint to resume from.",
        f"{XTUNER_TRAINER_SOURCE} Trainer._load_checkpoint",
        composed=True,
    ),
    _fact(
        "Health check passed",
        r"\] Health check passed at step \d+",
        f"{_AT}[INFO] Health check passed at step 50",
        f"{XTUNER_TRAINER_SOURCE} Trainer._maybe_check_health",
        composed=True,
    ),
    _fact(
        "internal_metrics: ",
        UNNAMED_STEP_PREFIX + r"internal_metrics: ",
        f"{_AT}[INFO] Step 10/40 internal_metrics: layer_0/weight_rms: 0.0213",
        "InternLM/xtuner/xtuner/v1/train/trainer.py@a0eb348 Trainer._log_step",
        composed=True,
    ),
)

EVENT_LINES: Final = (
    EventLine(
        anchor="Load",
        regex=r"\[SUCCESS\](?:\[[^\]]*\]){0,9} \[?Load.*Elapsed time (?P<seconds>[\d.]+)",
        kind="load",
        example="[XTuner][2026-11-20 11:30:15][SUCCESS] [Load DCP Model from work/20261120112900/"
        "checkpoints/ckpt-step-50/model] Elapsed time 4.05 seconds, peak gpu memory 7.1G",
        printed_by=f"{XTUNER_ENGINE_SOURCE} TrainEngine.load_dcp",
        composed=True,
    ),
    EventLine(
        anchor="Resume from checkpoint: ",
        regex=r"\] Resume from checkpoint: (?P<path>\S+?(?:-step-(?P<step>\d{1,9}))?)/?(?:\s|$)",
        kind="load",
        example="[XTuner][2026-11-20 11:30:11][INFO] Resume from checkpoint: "
        "work/20261120112900/checkpoints/ckpt-step-50",
        printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer._load_checkpoint",
        composed=True,
    ),
    EventLine(
        anchor="Elapsed time",
        regex=r"\[SUCCESS\].*(?:[Cc]heckpoint|[Ss]av(?:e|ing)).*Elapsed time\D{0,99}"
        r"(?P<seconds>[\d.]+)",
        kind="checkpoint",
        example="[XTuner][2026-11-20 11:30:15][SUCCESS] [DCP Checkpoint to work/20261120112900/"
        "checkpoints/ckpt-step-50/model] Elapsed time 1.25 seconds, peak gpu memory 7.1G",
        printed_by=f"{XTUNER_ENGINE_SOURCE} TrainEngine.save_dcp",
        composed=True,
    ),
    EventLine(
        anchor="[DCP async_save for ",
        regex=r"\[DCP async_save for \S+\] finished in (?P<seconds>[\d.]+)s",
        kind="checkpoint",
        example="[XTuner][2026-11-20 11:30:15][INFO] [DCP async_save for work/20261120112900/"
        "checkpoints/ckpt-step-50/weights] finished in 14.20s",
        printed_by="InternLM/xtuner/xtuner/v1/engine/train_engine.py@03f91e0 "
        "TrainEngine.async_save_dcp",
        composed=True,
    ),
    EventLine(
        anchor="skipping optimizer step",
        regex=r"\] Gradient norm (?P<grad_norm>\S+) (?:is invalid|exceeds the threshold "
        r"(?P<threshold>[^,\s]+)), skipping optimizer step",
        kind="warning",
        example="[XTuner][2026-11-20 11:30:15][WARNING] Gradient norm nan is invalid, skipping "
        "optimizer step.",
        printed_by=f"{XTUNER_ENGINE_SOURCE} TrainEngine.step_optimizer",
        composed=True,
    ),
    EventLine(
        anchor="Training finished in",
        regex=r"\[XTuner\].* Training finished in (?P<seconds>[\d.]+) seconds",
        kind="end",
        example="[XTuner][2026-11-20 15:49:38][INFO] Training finished in 9.53 seconds",
        printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer.fit",
    ),
)

# -- the text log --------------------------------------------------------------------------

NO_CUT_FIELD: Final = r"(?!(?:(?:data_)?time|(?:text|seqlen)_tokens): {0,9}\S{0,40}$)"
"""Fields that never end a line in any version: a line that ends with one is cut, maybe in its
number.
"""
XTUNER_V1_PAIR: Final = (
    rf"(?<!\w){NO_CUT_FIELD}(?P<key>[A-Za-z_]\w*): *(?P<value>(?:\d+ days?, )?\d+:\d\d:\d\d"
    r"|[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|-inf)(?: GB)?(?=[,\s]|$)"
)
TEXT_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "rank": "rank",
    "epoch": "epoch",
    "step": "step",
    "lr": "learning_rate",
    "time": "elapsed_s",
    "data_time": "data_s",
    "text_tokens": "rank_tokens",
    "seqlen_tokens": "rank_slots",
    "reduced_llm_loss": "loss",
    "grad_norm": "grad_norm",
    "max_memory": ("peak_memory_bytes", GIB),
    "tgs": "logged_tgs",
}


def _infer_sizes(launches: Sequence[LaunchView]) -> list[list[Fact]]:
    """Call world_size.infer_sizes, imported on first use: it needs numpy and pyarrow."""
    from .world_size import infer_sizes  # noqa: PLC0415 - see above

    return infer_sizes(launches)


XTUNER_V1: Final = LogFormat(
    name="xtuner-v1",
    framework="xtuner",
    alone=True,
    versions="2025-07 … 1.0.1 and later (variants A0-Q)",
    signature=UNNAMED_STEP_PREFIX + r"(?!internal_metrics).*(?:text_tokens|total_loss): *[\d.]",
    looks_like_step=UNNAMED_STEP_PREFIX + r"(?!internal_metrics)",
    step_pieces=r"^(?!.*\[XTuner\]).*\b(?:text_tokens|reduced_llm_loss|reserved_memory|\w+_tgs):\W{0,9}\d",
    clock=r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]",
    launch=r"XTuner Training Environment|\] Training config: \{",
    evidence=("elapsed", "stamp"),
    elapsed_covers="step",
    elapsed_excludes_data=True,
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    implies=IMPLIED_FACTS,
    infer_sizes=_infer_sizes,
    rank_in_path=r"(?:^|/)rank_?(\d+)\.log(?:\.gz|\.zst)?$",
    rank_tag=r"\[XTuner\]\[RANK (?P<rank>\d{1,9})\]",
    steps=(
        StepLine(
            anchor="Step ",
            regex=XTUNER_PREFIX + STEP_OF_TOTAL + r"(?P<pairs>(?!internal_metrics)\S.*)",
            pair=XTUNER_V1_PAIR,
            columns=TEXT_COLUMNS,
            facts={"total": "total_steps"},
            tells={"reduced_mtp_loss": MTP_TRAINED_FACT},
            example="[XTuner][RANK 0][2026-11-20 15:49:49][INFO] Epoch 1 Step 2/20 data_time: "
            "0.0080 lr: 5.000000e-04 time: 0.7414 text_tokens: 1887 seqlen_tokens: 2048 "
            "img_tokens: 0.0 approximate_total_consumed_tokens: 7690 reduced_llm_loss: 6.99893618, "
            "local_loss: 6.99893665 step_consumed_tokens: 1887.00000000, step_seqlen_tokens: "
            "2048.00000000, step_consumed_img_tokens: 0.00000000, efficient_attn_ratio: "
            "0.21284676, img_efficient_attn_ratio: 0.00000000 local_base_loss: 3.6407 grad_norm: "
            "4.09568071 max_memory: 0.77 GB reserved_memory: 0.77 GB tgs: 2545.1 seqlen_tgs: "
            "2762.3 exp_tgs: 2418.8 eta: 0:00:13 ",
            printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer._log_step",
        ),
    ),
    events=EVENT_LINES,
    facts=FACT_LINES,
    blocks=FACT_BLOCKS,
)

RL_TRAINER_LINE: Final = (
    r"\bRank\d+ Rollout \d+ Step \d+: |\bTrain step \d+ finished and timing listed:",
    "the log of XTuner's RL trainer, which is not supported: rollout and training share each step, "
    "so no step line gives the time of training alone",
)
"""Source: InternLM/xtuner/xtuner/v1/train/rl_trainer.py."""

# -- trackers ------------------------------------------------------------------------------

TRACKER_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "step": "step",
    "lr": "learning_rate",
    "time/step_time": "elapsed_s",
    "time/data_time": "data_s",
    "runtime_info/text_tokens": "rank_tokens",
    "runtime_info/seqlen_tokens": "rank_slots",
    "runtime_info/tgs": "logged_tgs",
    "runtime_info/efficient_attn_ratio": "attention_ratio",  # since P; before, loss/efficient_…
    "memory/max_memory_GB": ("peak_memory_bytes", GIB),
    "loss/reduced_llm_loss": "loss",
    "grad_norm": "grad_norm",
}

XTUNER_V1_TRACKER: Final = LogFormat(
    name="xtuner-v1-tracker",
    framework="xtuner",
    versions="2025-09 … 1.0.1 and later (variants C-Q)",
    signature=r'^\{.*"time/step_time": .*"runtime_info/tgs": .*\}$',
    looks_like_step=r'^\{.*"time/step_time": ',
    evidence=("elapsed", "clock"),
    elapsed_covers="step",
    elapsed_excludes_data=True,
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    implies=IMPLIED_FACTS,
    infer_sizes=_infer_sizes,
    rank_in_path=r"(?:^|/)rank(\d+)/tracker\.jsonl(?:\.gz|\.zst)?$",
    file_names=("tracker.jsonl",),
    steps=(
        StepLine(
            anchor='"time/step_time": ',
            regex=r'^(?P<pairs>\{.*"time/step_time": .*\})$',
            pair=JSON_PAIRS,
            columns=TRACKER_COLUMNS,
            tells={"loss/reduced_mtp_loss": MTP_TRAINED_FACT},
            example='{"lr": 0.00025, "time/data_time": 0.0052, "time/step_time": 0.2522, '
            '"time/train_time": 0.6939, "time/eta_seconds": 9.8, "runtime_info/text_tokens": 911, '
            '"runtime_info/seqlen_tokens": 1024, '
            '"runtime_info/approximate_total_consumed_tokens": 1861, "runtime_info/tgs": '
            '3612.552230113529, "runtime_info/seqlen_tgs": 4060.651463925635, '
            '"runtime_info/exp_tgs": 2682.108103501832, "runtime_info/efficient_attn_ratio": '
            '0.21502304077148438, "runtime_info/img_efficient_attn_ratio": 0.0, '
            '"memory/max_memory_GB": 0.77, "memory/reserved_memory_GB": 0.77, "grad_norm": '
            '4.1782355308532715, "loss/reduced_llm_loss": 6.994091987609863, "loss/local_loss": '
            '6.994091987609863, "step": 2}',
            printed_by=f"{XTUNER_TRAINER_SOURCE} Trainer._log_step",
        ),
    ),
    facts=(
        _fact(
            '"step": ',
            r'^\{"[^"]+": [^,]+, "step": \d+\}$',
            '{"validation/accuracy": 0.71, "step": 20}',
            f"{JSONL_WRITER_SOURCE} JsonlWriter.add_scalar",
            composed=True,
        ),
    ),
)


def _by_step(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Join the adjacent values of one step into one record with the tracker's keys.

    A repeated tag begins another record; a line without tag, step and value stays a record of its
    own.
    """
    start, count, stamp, record = 0, 0, 0.0, dict[str, Any]()
    for number, text in lines:
        tag, scalar = _tagged(text)
        if count and (not tag or tag in record or scalar["step"] != record["step"]):
            yield start, count, f"{stamp} {json.dumps(record)}"
            count = 0
        if not tag:
            yield number, 1, text
            continue
        if not count:
            start, stamp, record = number, scalar["wall_time"], {"step": scalar["step"]}
        record[tag] = scalar["value"]
        count += 1
    if count:
        yield start, count, f"{stamp} {json.dumps(record)}"


def _tagged(text: str) -> tuple[str, dict[str, Any]]:
    """Return tag and fields of a scalar; an empty tag for anything else."""
    scalar = parse_json_object(text)
    whole = scalar.keys() >= {"tag", "step", "wall_time", "value"}
    return (str(scalar["tag"]), scalar) if whole else ("", {})


XTUNER_V1_TENSORBOARD: Final = LogFormat(
    name="xtuner-v1-tensorboard",
    framework="xtuner",
    versions="2025-09 … 1.0.1 and later (variants C-Q)",
    signature=r'^\{"tag": "(?:time/step_time|runtime_info/(?:tgs|text_tokens))", ',
    looks_like_step=r'"(?:tag": ")?time/step_time"',
    evidence=("elapsed", "stamp"),
    elapsed_covers="step",
    elapsed_excludes_data=True,
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    implies=IMPLIED_FACTS,
    infer_sizes=_infer_sizes,
    join=_by_step,
    join_by_step=True,
    clock=r"^(?P<stamp>\d+(?:\.\d+)?) \{",
    utc=True,
    rank_in_path=r"(?:^|/)rank(\d+)/[^/]*tfevents[^/]*$",
    file_names=("*tfevents*",),
    steps=(
        StepLine(
            anchor="time/step_time",
            regex=r'^(?:[\d.]+ )?(?P<pairs>\{.*"(?:tag": ")?time/step_time".*\})$',
            pair=JSON_PAIRS,
            columns=TRACKER_COLUMNS,
            tells={"loss/reduced_mtp_loss": MTP_TRAINED_FACT},
            example='{"tag": "time/step_time", "step": 2, "wall_time": 1795189789.3, '
            '"value": 0.7414}',
            printed_by=f"{TB_WRITER_SOURCE} TensorboardWriter.add_scalars",
        ),
    ),
)
