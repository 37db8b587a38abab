"""Messages against the MFU of a run, and reasons for a missing MFU."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind

from ..core.messages import MessageKind
from ..formula.messages import GIVE_CONFIG, GIVE_SHAPE, ImpossibleShapeError, ShapeError

TOKEN_DROPPING: Final = MessageKind(
    "token-dropping",
    "No MFU: some layers drop tokens (random-LTD), so the formula's FLOPs are not what ran",
    when="Layers skip tokens.",
    fix="if you know the FLOPs, fairmfu set RUN flops_per_token=N",
)
OTHER_OBJECTIVE: Final = MessageKind(
    "other-objective",
    "No MFU: with objective={objective}, the formula's FLOPs are not what ran",
    when="Steps do other work than one model's forward and backward pass.",
    fix="if you know the FLOPs, fairmfu set RUN flops_per_token=N",
)
ATTENDED_PAIRS_IMPOSSIBLE: Final = MessageKind(
    "attended-pairs-impossible",
    "attended_pairs={attended:,.6g} is impossible: it lies between 1 and the sequence length, "
    "{length:,}",
    when="The given attended_pairs is impossible.",
)
NO_MEAN_LENGTH: Final = MessageKind(
    "no-mean-length",
    "The logged mean sequence length, {logged:,.3g} tokens, is impossible",
    when="The mean of logged lengths is below one token.",
)
MEAN_LENGTH_USED: Final = MessageKind(
    "mean-length-used",
    "FLOPs use the mean sequence length, {logged:,.0f}: not all steps have seq_len={said:,}",
    when="Sequence length varies by step (a curriculum).",
)
MTP_MODULES_UNKNOWN: Final = MessageKind(
    "mtp-modules-unknown",
    "The log prints a loss of multi-token prediction, and neither log nor model gives the number "
    "of trained modules",
    when="A multi-token-prediction loss is logged, and the number of modules is unknown.",
    fix="fairmfu set RUN mtp_modules=N (usually 1)",
)
SHAPE_UNKNOWN: Final = MessageKind(
    "shape-unknown",
    "{error}",
    when="The model's name or configuration gives no shape.",
)
UNKNOWN_LOGGED_MODEL: Final = MessageKind(
    "unknown-logged-model",
    "The logged model name {name!r} is unknown, so the shape comes from {source} beside the "
    "log{own}",
    when="The log names an unknown model, and a file beside it gives the shape.",
)
VOCABULARY_INFERRED: Final = MessageKind(
    "vocabulary-inferred",
    "A vocabulary of {words:,} is inferred: the log counts {logged:,} parameters, and {shape} has "
    "{total:,}",
    when="The logged number of parameters implies another vocabulary.",
)
DOCUMENT_LENGTHS_UNKNOWN: Final = MessageKind(
    "document-lengths-unknown",
    "MFU is {bounds} (one document per pack): attention stops at document borders, and document "
    "lengths are not logged",
    when="Attention stops at document borders of unknown lengths.",
)
PADDED_LENGTHS_UNKNOWN: Final = MessageKind(
    "padded-lengths-unknown",
    "MFU is {bounds} (all as long as seq_len): samples are padded to the longest of their batch, "
    "and these lengths are not logged",
    when="Samples are padded to the longest of their batch.",
    fix="if every sample fills seq_len, fairmfu set RUN packed=true",
)
PADDING_UNKNOWN: Final = MessageKind(
    "padding-unknown",
    "MFU is {bounds}: the logged attention ratio includes padding, whose spread over the packs is "
    "not logged",
    when="The logged attention ratio contains padding.",
)
QUANTIZED_WEIGHTS: Final = MessageKind(
    "quantized-weights",
    "Precision is unknown, but below 16 bits in some matmuls: the log says {said}",
    when="The log shows quantized weights, and the precision is unknown.",
    fix="{choice}{none}",
)
PRECISION_AGAINST_LOG: Final = MessageKind(
    "precision-against-log",
    "precision={precision} is given, but the log says {said}: some matmuls use fewer bits, so MFU "
    "is too high unless no layer was converted",
    "unranked",
    when="A given precision contradicts the log.",
    fix="{choice}",
)
TF32_UNKNOWN: Final = MessageKind(
    "tf32-unknown",
    "Precision is unknown: the log says fp32, and not whether TF32 was on",
    when="The log says fp32 alone.",
    fix="fairmfu set RUN precision=fp32, or precision=tf32",
)
ACCELERATOR_UNKNOWN: Final = MessageKind(
    "accelerator-unknown",
    "{error}",
    when="No accelerator of this name is in the table.",
)
OTHER_PEAK: Final = MessageKind(
    "other-peak",
    "MFU uses the given peak_flops={given:,g} TFLOP/s, {ratio:.2f}x the dense {precision} peak of "
    "{accelerator} ({known:,g}). Sparse peaks are twice the dense one",
    "doubt",
    when="A given peak is not the dense one of the accelerator.",
    fix="fairmfu set RUN peak_flops= removes it",
)
PEAK_MISSING: Final = MessageKind(
    "peak-missing",
    "{error}",
    when="The accelerator has no peak for the run's precision.",
)
FLOPS_GIVEN: Final = MessageKind(
    "flops-given",
    "FLOPs per token are {flops:,.4g}, {source}, not the formula's: an MFU by them compares with "
    "no formula's MFU",
    when="FLOPs per token are given by hand.",
)
OTHER_FLOPS: Final = MessageKind(
    "other-flops",
    "MFU uses the given {fact}={given:,.4g} FLOPs per token, {ratio:.2f}x the formula's for "
    "{model}",
    "doubt",
    when="Given FLOPs per token are not those of the formula.",
    fix="fairmfu set RUN {fact}= removes it",
)
OPERATORS_OF_OTHER_WORK: Final = MessageKind(
    "operators-of-other-work",
    "The given operators are not used: {why}",
    "doubt",
    when="An operator list is of another length, or of other trainable weights.",
    fix="count them for this run, or give flops_per_token",
)
OPERATORS_INVALID: Final = MessageKind(
    "operators-invalid",
    "The given operators are not used: {why}",
    "doubt",
    when="A stored operator list cannot be read.",
    fix="fairmfu set RUN operators=PATH",
)
FORMATS_UNKNOWN: Final = MessageKind(
    "formats-unknown",
    "No MFU in mixed precision: {fact} does not say which operators run in {precision}",
    when="FLOPs per token are given, and a run computes below 16 bits.",
    fix="give operators with the names of fairmfu flops NAME --format json",
)
MFU_IMPLAUSIBLE: Final = MessageKind(
    "mfu-implausible",
    "MFU {mfu:.1%} is not plausible: a matmul alone reaches about 80 % of the peak",
    "doubt",
    when="MFU is above what a matmul alone reaches.",
    fix="check accelerator, model and seq_len",
)
MFU_IMPOSSIBLE: Final = MessageKind(
    "mfu-impossible",
    "MFU would be {mfu:.0%}, which is impossible: {causes}",
    when="MFU would be above 100 %.",
    fix="check accelerator, model and seq_len",
)
FULL_ATTENTION_HIDDEN: Final = MessageKind(
    "full-attention-hidden",
    "MFU (full attention) would be {mfu:.0%} and is hidden: it counts masked-out attention as work",
    when="MFU with full attention would be above 100 %.",
    fix="if no attention is masked, check accelerator, model and seq_len",
)
BF16_HIDDEN: Final = MessageKind(
    "bf16-hidden",
    "MFU ({convention}) would be {mfu:.0%} and is hidden: the run's own precision has a higher "
    "peak",
    when="MFU against the BF16 peak would be above 100 %.",
)

# -- vision towers -------------------------------------------------------------------------------

IMAGE_SIZES_UNKNOWN: Final = MessageKind(
    "image-sizes-unknown",
    "MFU is at least {bounds}: the tower's attention depends on the sizes of the images, which "
    "this log does not give. Before 2026-07, img_efficient_attn_ratio may be relative to samples",
    when="A log counts the image tokens of a vision tower, and not the images' sizes.",
)
IMAGE_SIZES_BOUNDED: Final = MessageKind(
    "image-sizes-bounded",
    "MFU is {bounds}: the log gives the image tokens of a step, and not their spread over its "
    "packs",
    when="Several packs a step leave the work of a vision tower in doubt.",
)
IMAGE_FIGURES_IMPOSSIBLE: Final = MessageKind(
    "image-figures-impossible",
    "No MFU: the image figures of {steps:,} steps contradict each other. No images have this "
    "img_tokens and this img_efficient_attn_ratio",
    "doubt",
    when="No set of images has the logged image tokens and attention ratio.",
)
MORE_IMAGES_THAN_TOKENS: Final = MessageKind(
    "more-images-than-tokens",
    "No MFU: {tower} would make {share:.2f} image tokens per token of the language model, so the "
    "log's img_tokens are of another tower",
    "doubt",
    when="A log counts more image tokens than tokens.",
    fix="give the config.json of the trained model as model_config",
)
NO_WHOLE_IMAGES: Final = MessageKind(
    "no-whole-images",
    "No MFU: the images of {tower} have multiples of {whole} image tokens, and the logged "
    "img_tokens are no such multiples, so they are of another tower",
    "doubt",
    when="The logged image tokens are no whole number of images of the model's tower.",
    fix="give the config.json of the trained model as model_config",
)
IMAGES_WITHOUT_TOWER: Final = MessageKind(
    "images-without-tower",
    "No MFU: the log counts image tokens, and {model} has no vision tower",
    "doubt",
    when="A log counts image tokens, and the given model is of text.",
    fix="give the config.json of the trained model as model_config",
)
TRAINED_PARTS_UNKNOWN: Final = MessageKind(
    "trained-parts-unknown",
    "No MFU: unknown whether vision tower and projector are trained",
    when="A model with a vision tower has adapters or unknown words in frozen_parts.",
    fix="fairmfu set RUN frozen_parts=vision,projector",
)
VIDEO_FRAMES_UNKNOWN: Final = MessageKind(
    "video-frames-unknown",
    "MFU is {bounds}: the tower's attention stops at the frames of a video, and the log does not "
    "count them",
    when="The images of a vision tower are videos.",
)
VIDEOS_POSSIBLE: Final = MessageKind(
    "videos-possible",
    "MFU counts every image as a still. For videos it would be {least:.1%} or more, because the "
    "tower's attention stops at their frames, and the log does not tell videos from stills",
    "doubt",
    when="A log gives the sizes of images, and would print the same for videos.",
    fix="fairmfu set RUN videos=false, or videos=true",
)

# -- errors: the text of shape-unknown -----------------------------------------------------------

TOO_MANY_PARAMETERS: Final = ErrorKind(
    "too-many-parameters",
    "No model has {total:.3g} parameters.",
    "The shape of a run has more parameters than any model.",
    ImpossibleShapeError,
    fix=GIVE_SHAPE,
)
CONFIG_OF_OTHER_SIZE: Final = ErrorKind(
    "config-of-other-size",
    "{name!r} does not match the {billions:,.3g} billion parameters of the config beside the log, "
    "which may belong to another model.",
    "The size in a model's name contradicts the config.json beside the log.",
    ShapeError,
    fix=GIVE_SHAPE,
)
AUDIO_TOWER: Final = ErrorKind(
    "audio-tower",
    "{model} has an audio tower, whose FLOPs are unknown.",
    "The model of a run has an audio tower.",
    ShapeError,
    fix="give flops_per_token=N",
)
VISION_TOWER: Final = ErrorKind(
    "vision-tower",
    "{model} has a vision tower, and its FLOPs are unknown: the log does not count the patches of "
    "its images.",
    "The model of a run has a vision tower.",
    ShapeError,
    fix="if the run trains on text alone, give the text_config as model_config",
)
NO_COMMON_VOCABULARY: Final = ErrorKind(
    "no-common-vocabulary",
    "The log counts {logged:,} parameters, {model} has {own:,}, and no common vocabulary explains "
    "it: the model is another one.",
    "The logged number of parameters needs a vocabulary of no known tokenizer.",
    ShapeError,
    fix=f"{GIVE_CONFIG}{{alike}}",
)
ENERGY_UNKNOWN: Final = MessageKind(
    "energy-doubtful",
    "Energy per token unknown or in doubt: {why}",
    when="A log, or a file beside it, has energy or power, and no certain joules per token.",
)
