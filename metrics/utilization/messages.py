"""Messages against the MFU of a run, and reasons for a missing MFU."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

TOKEN_DROPPING: Final = MessageKind(
    "token-dropping",
    "some layers drop tokens (random-LTD), so the formula's FLOPs are not what ran: no MFU",
    when="Layers skip tokens.",
)
OTHER_OBJECTIVE: Final = MessageKind(
    "other-objective",
    "objective={objective}: the formula's FLOPs are not what ran: no MFU",
    when="Steps do other work than one model's forward and backward pass.",
)
ATTENDED_PAIRS_IMPOSSIBLE: Final = MessageKind(
    "attended-pairs-impossible",
    "attended pairs per token lie between 1 and the sequence length, {length:,}, not at "
    "{attended:,.6g}",
    when="The fact attended_pairs is out of its bounds.",
)
NO_MEAN_LENGTH: Final = MessageKind(
    "no-mean-length",
    "steps have a mean length of {logged:,.3g} tokens, which is none",
    when="The mean of logged lengths is below one token.",
)
MEAN_LENGTH_USED: Final = MessageKind(
    "mean-length-used",
    "steps are not all of seq_len={said:,}: FLOPs are of their mean length, {logged:,.0f}",
    when="Steps have lengths of their own (a curriculum).",
)
MTP_MODULES_UNKNOWN: Final = MessageKind(
    "mtp-modules-unknown",
    "the log prints a loss of multi-token prediction, not how many modules are trained for it, "
    "nor does the model say: --set mtp_modules=1, or as many as there are",
    when="A multi-token-prediction loss is logged, and the number of modules is unknown.",
)
SHAPE_UNKNOWN: Final = MessageKind(
    "shape-unknown",
    "{error}",
    when="The model's name or configuration gives no shape.",
)
UNKNOWN_LOGGED_MODEL: Final = MessageKind(
    "unknown-logged-model",
    "the log calls its model {name!r}, which is no known one: its shape is that of {source} "
    "beside it{own}",
    when="The log names an unknown model, and a file beside it gives the shape.",
)
VOCABULARY_INFERRED: Final = MessageKind(
    "vocabulary-inferred",
    "the log counts {logged:,} parameters, {shape} has {total:,}: a vocabulary of {words:,} "
    "(inferred) explains it",
    when="The logged number of parameters implies another vocabulary.",
)
DOCUMENT_LENGTHS_UNKNOWN: Final = MessageKind(
    "document-lengths-unknown",
    "attention stops at document borders and their lengths are not logged: MFU is {bounds} "
    "(one document per pack)",
    when="Attention stops at document borders of unknown lengths.",
)
PADDED_LENGTHS_UNKNOWN: Final = MessageKind(
    "padded-lengths-unknown",
    "samples are padded to the longest of their batch and those lengths are not logged: MFU is "
    "{bounds} (all as long as seq_len); where every sample is filled to it, --set packed=true",
    when="Samples are padded to the longest of their batch.",
)
PADDING_UNKNOWN: Final = MessageKind(
    "padding-unknown",
    "the log's attention ratio holds padding, and how that is spread over the packs is not "
    "logged: MFU is {bounds}",
    when="The logged attention ratio contains padding.",
)
QUANTIZED_WEIGHTS: Final = MessageKind(
    "quantized-weights",
    "the log says {said}: weights are quantised, and not all products are of 16 bits or more: "
    "{choice}{none}",
    when="The log shows quantized weights, and the precision is unknown.",
)
PRECISION_AGAINST_LOG: Final = MessageKind(
    "precision-against-log",
    "precision={precision} is given, and the log says {said}: weights are quantised, and not "
    "all products are of 16 bits or more, so MFU is too high unless no layer was converted: "
    "{choice}",
    "unranked",
    when="A given precision contradicts the log.",
)
TF32_UNKNOWN: Final = MessageKind(
    "tf32-unknown",
    "fp32, but not whether TF32 was on: --set precision=fp32 or tf32",
    when="The log says fp32 alone.",
)
ACCELERATOR_UNKNOWN: Final = MessageKind(
    "accelerator-unknown",
    "{error}",
    when="No accelerator of this name is in the table.",
)
OTHER_PEAK: Final = MessageKind(
    "other-peak",
    "peak_flops={given:,g} TFLOP/s is {ratio:.2f}x the dense {dtype} peak of {device}, "
    "{known:,g}. MFU is by the given one (sparse ones double it): fairmfu set RUN peak_flops= "
    "takes it back",
    "doubt",
    when="A given peak is not the dense one of the accelerator.",
)
PEAK_MISSING: Final = MessageKind(
    "peak-missing",
    "{error}",
    when="The accelerator has no peak for the run's precision.",
)
MFU_IMPLAUSIBLE: Final = MessageKind(
    "mfu-implausible",
    "MFU of {mfu:.0%} is more than training is known to reach: a wrong accelerator, model or "
    "seq_len",
    when="MFU is higher than training reaches.",
)
MFU_IMPOSSIBLE: Final = MessageKind(
    "mfu-impossible",
    "MFU would be {mfu:.0%}, which is impossible: {causes}; else a wrong accelerator, model or "
    "seq_len",
    when="MFU would be above 100 %.",
)
FULL_ATTENTION_HIDDEN: Final = MessageKind(
    "full-attention-hidden",
    "MFU (full attention) would be {mfu:.0%}, so it is not shown: it counts work that windows "
    "or document masks leave out; else a wrong accelerator, model or seq_len",
    when="MFU with full attention would be above 100 %.",
)
BF16_HIDDEN: Final = MessageKind(
    "bf16-hidden",
    "MFU ({convention}) would be {mfu:.0%}: the run's own number format has a higher peak, so "
    "it is not shown",
    when="MFU against the BF16 peak would be above 100 %.",
)
