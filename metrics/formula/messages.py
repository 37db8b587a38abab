"""Errors of models, accelerators and other inputs of the formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class ShapeError(FairmfuError, ValueError):
    """Configuration without a usable shape."""


class ImpossibleShapeError(ShapeError):
    """Configuration with an impossible dimension: a damaged configuration."""


class CountError(FairmfuError, ValueError):
    """A model that PyTorch cannot count."""


class UnknownModelError(ShapeError):
    """No known model has this name.

    name: the name as given
    nearest: similar known names, nearest first
    """

    name: str = ""
    nearest: Sequence[str] = ()


class UnknownAcceleratorError(FairmfuError, LookupError):
    """No accelerator has this name.

    name: the name as given
    nearest: known names similar to the name, nearest first; none of them was used
    """

    name: str = ""
    nearest: Sequence[str] = ()


class AmbiguousAcceleratorError(UnknownAcceleratorError):
    """A name that may mean several accelerators.

    nearest: names of these accelerators; none of them was used
    """


class OverlayError(FairmfuError, ValueError):
    """Invalid row of accelerators, mostly of a user's file; names the row and the key."""


class FormulaInputError(FairmfuError, ValueError):
    """Input of the formula that is impossible, unknown, or contradicts another input."""


GIVE_CONFIG: Final = "give model_config=PATH/config.json"
COUNT_IT: Final = (
    "count it with fairmfu flops PATH/config.json --seq-len N --count, or give flops_per_token=N"
)
GIVE_PEAK: Final = "give peak_flops=…, the dense peak for MFU"
GIVE_SHAPE: Final = f"{GIVE_CONFIG} or model=NAME"

# -- models by name, and their sizes -------------------------------------------------------------

UNKNOWN_MODEL: Final = ErrorKind(
    "unknown-model",
    "The model {name!r} is unknown, and its shape is never guessed from the name.{hint}",
    "A model is named that fairmfu does not know.",
    UnknownModelError,
    fix=f"{GIVE_CONFIG}, or a model=NAME of fairmfu models",
)
IMPOSSIBLE_DIMENSION: Final = ErrorKind(
    "impossible-dimension",
    "{source}: {key!r} is {value}, and no model has less than 0 or more than {most:,}.",
    "A dimension of a model is negative, or larger than that of any model.",
    ImpossibleShapeError,
    fix=GIVE_SHAPE,
)
IMPOSSIBLE_ATTENTION_SIZE: Final = ErrorKind(
    "impossible-attention-size",
    "Attention cannot have a {name} of {size:,}.",
    "A window, a chunk, or a head of a model has no size.",
    ImpossibleShapeError,
    fix=GIVE_SHAPE,
)
HEADS_INDIVISIBLE: Final = ErrorKind(
    "heads-indivisible",
    "{heads:,} query heads cannot share {kv_heads:,} key and value heads.",
    "The query heads of a model are no multiple of its key and value heads.",
    ImpossibleShapeError,
    fix=GIVE_SHAPE,
)
HIDDEN_SIZE_INDIVISIBLE: Final = ErrorKind(
    "hidden-size-indivisible",
    "{heads:,} attention heads cannot share a hidden size of {hidden:,}: one number is wrong, or "
    "head_dim is missing.",
    "The hidden size of a model is no multiple of its heads, and head_dim is missing.",
    ShapeError,
    fix=GIVE_SHAPE,
)
TOO_FEW_EXPERTS: Final = ErrorKind(
    "too-few-experts",
    "A token cannot pass {experts_per_token:,} of {experts:,} experts.",
    "A token passes more experts than a model has.",
    ShapeError,
    fix=GIVE_SHAPE,
)
EMPTY_LAYER: Final = ErrorKind(
    "empty-layer",
    "A layer has neither attention nor a feed-forward block.",
    "A layer of a model has no part.",
    ShapeError,
    fix="give attention, ffn or moe",
)
OTHER_PARAMETER_COUNT: Final = ErrorKind(
    "other-parameter-count",
    "{model} is not the model of this run: it has {own:,} parameters, and no vocabulary makes them "
    "{logged:,}.",
    "The logged number of parameters is of another model.",
    ShapeError,
    fix=f"{GIVE_CONFIG}{{alike}}",
)
UNKNOWN_LORA_TARGET: Final = ErrorKind(
    "unknown-lora-target",
    "{model} has no projection {target!r} for LoRA to adapt. It has {names}.",
    "A target of LoRA is no projection of the model.",
    ShapeError,
    fix="correct lora_targets",
)
LORA_EXPERTS_UNKNOWN: Final = ErrorKind(
    "lora-experts-unknown",
    "{model} has experts, and it is unknown whether LoRA trains them.",
    "LoRA trains every linear layer of a model with experts.",
    ShapeError,
    fix="give lora_targets",
)

# -- a model's configuration ---------------------------------------------------------------------

SHAPE_KEY_MISSING: Final = ErrorKind(
    "shape-key-missing",
    "{source}: {keys} is missing, and the model's shape needs it.",
    "A model's configuration or printed arguments lack a dimension.",
    ShapeError,
    fix=f"{GIVE_CONFIG} with this key, or model=NAME",
)
SHAPE_KEY_OMITTED: Final = ErrorKind(
    "shape-key-omitted",
    "{source}: {key!r} is missing, and implementations differ in its default.",
    "A model's configuration lacks a key for which null has a meaning.",
    ShapeError,
    fix="add it to config.json: a number, or null for {meaning}",
)
SHAPE_KEY_MALFORMED: Final = ErrorKind(
    "shape-key-malformed",
    "{source}: {key!r} is {value!r}, not {wanted}.",
    "A value of a model's configuration is of another kind than its key takes.",
    ShapeError,
    fix=f"{GIVE_CONFIG} with a correct value, or model=NAME",
)
SHAPE_KEY_TOO_SMALL: Final = ErrorKind(
    "shape-key-too-small",
    "{source}: {key!r} must be 1 or more, not {value}.",
    "A dimension of a model's configuration is below 1.",
    ShapeError,
    fix=f"{GIVE_CONFIG} with a correct value, or model=NAME",
)
SHAPE_KEY_UNREAD: Final = ErrorKind(
    "shape-key-unread",
    "{source}: {key!r} = {value} is unknown for this model_type, and may change FLOPs.",
    "A model's configuration has a key that other models read, and this one does not.",
    ShapeError,
    fix="if the training code ignores it, remove it from config.json",
)
LAYER_COUNT_DIFFERS: Final = ErrorKind(
    "layer-count-differs",
    "{source}: {key!r} has {entries:,} entries for {layers:,} layers.",
    "A list of a model's configuration does not have an entry for each layer.",
    ShapeError,
    fix=f"{GIVE_CONFIG} with a correct list",
)
UNKNOWN_LAYER_KIND: Final = ErrorKind(
    "unknown-layer-kind",
    "{source}: {key!r} has layers that the formula does not cover: {kinds}.",
    "A model has layers of a kind that the formula does not cover.",
    ShapeError,
    fix=COUNT_IT,
)
UNCOVERED_VARIANT: Final = ErrorKind(
    "uncovered-variant",
    "{source}: the formula does not cover {key!r} = {value}.",
    "A model's configuration switches on a variant that the formula does not cover.",
    ShapeError,
    fix=COUNT_IT,
)
UNKNOWN_MODEL_TYPE: Final = ErrorKind(
    "unknown-model-type",
    "model_type {model_type!r} is unknown, and the layers of another type may differ.{hint}",
    "A config.json is of a model_type that fairmfu does not read.",
    ShapeError,
    fix=f"{COUNT_IT}; or give a config.json with one of the model types in "
    "docs/reference/models.md, if the model is one of them under another name",
)
NO_DECODER: Final = ErrorKind(
    "no-decoder",
    "No MFU: {model} {kind_of_model}, and the formula is for causal decoders over their tokens "
    "alone.",
    "A config.json is of an encoder, an encoder-decoder, a vision or an audio model.",
    ShapeError,
    fix=COUNT_IT,
)
CLASS_CONTRADICTS: Final = ErrorKind(
    "class-contradicts-type",
    "{source} names the class {architecture}, and a config of {other} has other layers.",
    "The architectures of a config.json name a class with other layers.",
    ShapeError,
    fix="correct model_type or architectures",
)
ACTIVATION_CONTRADICTS: Final = ErrorKind(
    "activation-contradicts-type",
    "{source} has {key!r} = {value}, which contradicts the {block} feed-forward block of this "
    "model_type.",
    "The activation in a config.json belongs to another kind of feed-forward block.",
    ShapeError,
    fix="give the model_type of the model that was trained",
)
LAYER_PART_MISSING: Final = ErrorKind(
    "layer-part-missing",
    "A layer has no {part}, which all layers of this model_type have.",
    "A layer of a config.json lacks attention or experts that its model_type has.",
    ShapeError,
    fix=f"{GIVE_CONFIG} of the trained model",
)
UNEVEN_ROUTING: Final = ErrorKind(
    "uneven-routing",
    "{source}: the FLOPs of a token depend on the routing of the run. Even routing over {empty:,} "
    "empty experts gives no whole number of experts.",
    "A model has empty experts, whose share of the routing is no whole number.",
    ShapeError,
    fix="give flops_per_token=N",
)
OTHER_HEAD: Final = ErrorKind(
    "other-head",
    "No MFU: {architecture} has another head than lm_head, with unknown FLOPs.",
    "A config.json is of a model without lm_head, such as a reward model.",
    ShapeError,
    fix=COUNT_IT,
)
OTHER_PART: Final = ErrorKind(
    "other-part",
    "{model} has a part {part!r} with unknown FLOPs.",
    "A config.json has a part besides text and vision.",
    ShapeError,
    fix="if the run trains on text alone, give the text model's config as model_config; or "
    f"{COUNT_IT}",
)

# -- arguments that a framework prints -----------------------------------------------------------

HEADER_LINE_LOST: Final = ErrorKind(
    "header-line-lost",
    "The arguments header lacks {name}, which every version prints beside {others}: a line is lost "
    "or damaged.",
    "The arguments header of a log lacks a line.",
    ShapeError,
    fix=GIVE_SHAPE,
)
HEADER_LINE_DAMAGED: Final = ErrorKind(
    "header-line-damaged",
    "The arguments header says {name} {value} and {other} {same}, which must be equal: a line is "
    "damaged.",
    "Two lines of the arguments header of a log contradict each other.",
    ShapeError,
    fix=GIVE_SHAPE,
)
RANK_PARAMETERS_DIFFER: Final = ErrorKind(
    "rank-parameters-differ",
    "The log counts {logged:,} parameters on a rank, and the arguments header gives {own:,}: a "
    "line of the header is damaged or lost, or tensor_parallel or pipeline_parallel is wrong.",
    "The logged parameters of a rank do not follow from the arguments header.",
    ShapeError,
    fix=GIVE_SHAPE,
)
VOCABULARY_PADDED: Final = ErrorKind(
    "vocabulary-padded",
    "The arguments header has no vocab_size, and the padded size is not the model's.",
    "The arguments header of a log has only the padded size of the vocabulary.",
    ShapeError,
    fix="give vocab_size=N, the N of 'padded vocab (size: N)' in the same log",
)
UNCOVERED_ARGUMENT: Final = ErrorKind(
    "uncovered-argument",
    "{source}: the formula does not cover {key} {value!r}.",
    "A printed argument has a value that the formula does not cover.",
    ShapeError,
    fix=GIVE_CONFIG,
)
EXPERTS_DO_NOT_FIT: Final = ErrorKind(
    "experts-do-not-fit",
    "{source}: num_experts {experts} does not fit {layers} layers with an expert_interval of "
    "{interval}.",
    "The printed numbers of experts do not fit the layers.",
    ShapeError,
    fix=GIVE_CONFIG,
)
BLOCKS_UNCLEAR: Final = ErrorKind(
    "blocks-unclear",
    "{source}: use_flex_attn is {flex} and every_n_layers_nope {nope}, and versions of Torchtitan "
    "differ in whether such layers attend inside blocks.",
    "The printed arguments of a Llama 4 do not decide its attention.",
    ShapeError,
    fix=GIVE_CONFIG,
)
UNKNOWN_ARCHITECTURE: Final = ErrorKind(
    "unknown-architecture",
    "{source} match no known Torchtitan architecture (llama, llama4, qwen3, deepseek_v3, gpt_oss).",
    "Torchtitan prints the arguments of a model that fairmfu does not know.",
    ShapeError,
    fix=GIVE_CONFIG,
)

# -- vision --------------------------------------------------------------------------------------

UNKNOWN_TOWER: Final = ErrorKind(
    "unknown-tower",
    "vision_config of model_type {model_type!r} is unknown (known: {known}): its FLOPs are not in "
    "the formula.",
    "A multimodal model has a vision tower that fairmfu does not know.",
    ShapeError,
)
UNKNOWN_PROJECTOR: Final = ErrorKind(
    "unknown-projector",
    "The projector of model_type {model_type!r} is unknown (known: {known}): its FLOPs are not in "
    "the formula.",
    "A multimodal model has a projector that fairmfu does not know.",
    ShapeError,
)
UNCOVERED_VISION_KEY: Final = ErrorKind(
    "uncovered-vision-key",
    "{source}: {key!r} is {value!r}, and the formula covers only {covered}.",
    "A vision_config has a value that the formula does not cover.",
    ShapeError,
)
WINDOW_BELOW_PATCH: Final = ErrorKind(
    "window-below-patch",
    "{source}: 'window_size' is smaller than a merged patch.",
    "A vision_config has windows without a patch.",
    ShapeError,
)
TOKENS_DO_NOT_TILE: Final = ErrorKind(
    "tokens-do-not-tile",
    "{source}: {tokens} tokens per image do not tile {patches} x {patches} patches.",
    "The tokens of an image do not divide its patches.",
    ShapeError,
)
IMAGE_SIZE_INDIVISIBLE: Final = ErrorKind(
    "image-size-indivisible",
    "{model} takes sides that are multiples of {side} pixels, not {height} x {width}.",
    "The sides of an image are no multiples of a merged patch.",
    ShapeError,
    fix="give the size after resizing",
)
IMPOSSIBLE_GRID: Final = ErrorKind(
    "impossible-grid",
    "{model} takes no grid of {grid}: height and width are {allowed}.",
    "A grid of patches is impossible for a vision tower.",
    ShapeError,
)
PROJECTOR_WITH_LORA: Final = ErrorKind(
    "projector-with-lora",
    "LoRA on a projector is not in the formula.",
    "A Python call gives a projector LoRA adapters.",
    FormulaInputError,
    fix="make the projector full or frozen",
)
NOTHING_TRAINED: Final = ErrorKind(
    "nothing-trained",
    "Nothing is trained: tower, projector and language model are frozen.",
    "A Python call asks for the training of a model without a trainable part.",
    FormulaInputError,
    fix="for inference, use metrics.formula.flops.inference_operators",
)
NO_TOKENS_IN_STEP: Final = ErrorKind(
    "no-tokens-in-step",
    "A step has 1 token or more, not {tokens}.",
    "A Python call divides the FLOPs of a step by less than 1 token.",
    FormulaInputError,
)

# -- numbers of the formula ----------------------------------------------------------------------

LORA_NOT_TRAINED: Final = ErrorKind(
    "lora-not-trained",
    "LoRA rank or targets are given, but {trainable!r} is trained.",
    "LoRA rank or targets are given for training without LoRA.",
    FormulaInputError,
    fix="give trainable lora, or omit rank and targets",
)
LORA_RANK_MISSING: Final = ErrorKind(
    "lora-rank-missing",
    "LoRA needs a rank of at least 1, not {rank}.",
    "LoRA is asked for without a rank.",
    FormulaInputError,
    fix="give the LoRA rank",
)
LORA_TARGETS_MISSING: Final = ErrorKind(
    "lora-targets-missing",
    "LoRA needs its targets.",
    "LoRA is asked for without targets.",
    FormulaInputError,
    fix="give LoRA targets: all-linear, or names of projections",
)
WINDOW_NOT_CAUSAL: Final = ErrorKind(
    "window-not-causal",
    "A window or chunk of a bidirectional mask is not in the formula.",
    "A Python call gives a window or a chunk without a causal mask.",
    FormulaInputError,
)
IMPOSSIBLE_LENGTHS: Final = ErrorKind(
    "impossible-lengths",
    "Lengths are whole tokens, 1 or more: seq_len={seq_len}, documents={documents}, sizes={sizes}.",
    "A Python call gives a length below 1 token.",
    FormulaInputError,
)
DOCUMENT_TOO_LONG: Final = ErrorKind(
    "document-too-long",
    "A document of {longest} tokens does not fit a pack of {seq_len}.",
    "A Python call gives a document that is longer than its pack.",
    FormulaInputError,
)
ATTENDED_OUT_OF_RANGE: Final = ErrorKind(
    "attended-out-of-range",
    "Attended pairs per token lie in (0, {seq_len}], the sequence length: {attended}.",
    "A Python call gives more attended pairs per token than the sequence has tokens.",
    FormulaInputError,
)
UNKNOWN_PHASE: Final = ErrorKind(
    "unknown-phase",
    "Inference has the phases prefill and decode, not {phase!r}.",
    "A Python call asks for an unknown phase of inference.",
    FormulaInputError,
)
NO_HFU: Final = ErrorKind(
    "no-hfu",
    "No HFU: {reason}.",
    "HFU is asked for, and the executed FLOPs are unknown.",
    FormulaInputError,
)
OPERATOR_WITHOUT_PRECISION: Final = ErrorKind(
    "operator-without-precision",
    "No precision is given for operator {operator!r}, only for {operators}.",
    "A Python call gives precisions by operator, and one is missing.",
    FormulaInputError,
)
NO_PEAK: Final = ErrorKind(
    "no-peak",
    "This accelerator has no {precision} peak for {operator} (it has peaks for {known}).",
    "An accelerator has no peak for the precision of an operator.",
    FormulaInputError,
    fix=GIVE_PEAK,
)
NO_PUBLISHED_PEAK: Final = ErrorKind(
    "no-published-peak",
    "{reason} {note}.",
    "An accelerator has no peak for a precision, and a note says why.",
    FormulaInputError,
    fix=GIVE_PEAK,
)
UNKNOWN_PRECISION: Final = ErrorKind(
    "unknown-precision",
    "{precision!r} is no precision.",
    "A Python call gives an unknown precision.",
    FormulaInputError,
    fix="give one of {choices}",
)
IMPOSSIBLE_VALUE_SIZE: Final = ErrorKind(
    "impossible-value-size",
    "A value of the cache takes more than 0 bytes, not {bytes_per_value}.",
    "A Python call gives values of a cache without bytes.",
    FormulaInputError,
)
IMPOSSIBLE_CONTEXT: Final = ErrorKind(
    "impossible-context",
    "A cache holds 1 token or more, not {context_len}.",
    "A Python call gives a cache without tokens.",
    FormulaInputError,
)

# -- formulas of other tools ---------------------------------------------------------------------

TOOL_NEEDS_RECOMPUTE: Final = ErrorKind(
    "tool-needs-recompute",
    "recompute is unknown, and this tool counts activation checkpointing.",
    "Another tool's formula depends on activation checkpointing, which is unknown.",
    ShapeError,
)
TOOL_WITHOUT_MIXER: Final = ErrorKind(
    "tool-without-mixer",
    "{model} has {kinds}, which this tool does not cover.",
    "Another tool's formula does not cover layers without softmax attention.",
    ShapeError,
)
TOOL_NEEDS_CONFIG: Final = ErrorKind(
    "tool-needs-config",
    "{model} has no dense layer, so the intermediate_size that this tool reads is unknown.",
    "Another tool's formula reads a key that does not follow from the shape.",
    ShapeError,
    fix="give the config.json",
)

# -- accelerators --------------------------------------------------------------------------------

UNKNOWN_ACCELERATOR: Final = ErrorKind(
    "unknown-accelerator",
    "The accelerator {name!r} is unknown, and its peak is never guessed.{hint}",
    "An accelerator is named that fairmfu does not know.",
    UnknownAcceleratorError,
    fix="give its dense FLOP/s, such as peak_flops=989.4e12, or an accelerator=NAME of fairmfu "
    "accelerators",
)
AMBIGUOUS_ACCELERATOR: Final = ErrorKind(
    "ambiguous-accelerator",
    "The accelerator {name!r} is ambiguous, and its peak is never guessed. It may be: {names}.",
    "The name of an accelerator may mean several.",
    AmbiguousAcceleratorError,
    fix="give accelerator=NAME with one of these names, or its dense FLOP/s, such as "
    "peak_flops=989.4e12",
)
ACCELERATORS_NOT_TOML: Final = ErrorKind(
    "accelerators-not-toml",
    "The accelerators file is not TOML: {error}.",
    "The file of --accelerators is not TOML.",
    OverlayError,
)
NO_ACCELERATOR_TABLE: Final = ErrorKind(
    "no-accelerator-table",
    "The accelerators file has no [[accelerator]] table.",
    "The file of --accelerators has no accelerator.",
    OverlayError,
    fix="add one for each accelerator",
)
ACCELERATOR_NAME_TAKEN: Final = ErrorKind(
    "accelerator-name-taken",
    "{name} and {other} have the name {shared!r} both.",
    "Two accelerators of a file share a name.",
    OverlayError,
    fix="remove it from one of them",
)
ACCELERATOR_KEY_MISSING: Final = ErrorKind(
    "accelerator-key-missing",
    "{where}: {key!r} is missing.",
    "An accelerator of a file lacks a key.",
    OverlayError,
    fix="write {example}",
)
ACCELERATOR_KEY_MALFORMED: Final = ErrorKind(
    "accelerator-key-malformed",
    "{where}: {key!r} is {value!r}, not {wanted}.",
    "A value of an accelerator of a file is of another kind than its key takes.",
    OverlayError,
)
ACCELERATOR_KEY_UNKNOWN: Final = ErrorKind(
    "accelerator-key-unknown",
    "{where}: {key!r} is unknown.{hint}",
    "An accelerator of a file has a key that fairmfu does not read.",
    OverlayError,
    fix="use {keys}",
)
IMPOSSIBLE_PEAK: Final = ErrorKind(
    "impossible-peak",
    "{where}: the peak of {precision} is {peak:g} FLOP/s, which no accelerator has.",
    "A peak of an accelerator of a file is far too small or too large.",
    OverlayError,
    fix="write FLOP/s: 989.4 TFLOP/s is 989.4e12",
)

# -- counts of FlopCounterMode -------------------------------------------------------------------

GIVE_FLOPS: Final = "give flops_per_token=N, or operators=PATH/operators.json"

COUNT_EXTRA_MISSING: Final = ErrorKind(
    "count-extra-missing",
    "A count needs torch and transformers, which are not installed.",
    "A model is to be counted, and torch or transformers is not installed.",
    CountError,
    fix="{hint}",
)
COUNT_TYPE_UNKNOWN: Final = ErrorKind(
    "count-type-unknown",
    "{programs} cannot build model_type {model_type!r}: it is not one of transformers.",
    "The installed transformers does not know the model_type of a config.json.",
    CountError,
    fix=f"install a later transformers, or {GIVE_FLOPS}",
)
COUNT_IMPOSSIBLE: Final = ErrorKind(
    "count-impossible",
    "{programs} cannot count {model_type} without data: {why}.",
    "The installed transformers cannot build or run a config.json without data.",
    CountError,
    fix=f"correct config.json, or {GIVE_FLOPS}",
)
COUNT_TOO_LARGE: Final = ErrorKind(
    "count-too-large",
    "Too large to count: {what}.",
    "A config.json or a sequence is larger than any model's.",
    CountError,
    fix="correct config.json or --seq-len",
)
