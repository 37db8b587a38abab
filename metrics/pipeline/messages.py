"""Messages about whole runs, and errors of questions to the formula."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind

from ..core.messages import MessageKind
from ..formula.messages import FormulaInputError

UNREAD_LINES: Final = MessageKind(
    "unread-lines",
    "Lines of steps or facts were not read (cut off, damaged or too long): {unread}",
    when="A few lines that look like steps could not be read.",
)
MANY_UNREAD_LINES: Final = MessageKind(
    "many-unread-lines",
    "{unread} of {every} lines of steps or facts were not read (cut off, damaged or too long)",
    "unranked",
    when="More than a tenth of the lines that look like steps could not be read.",
    fix="ingest an undamaged copy of the log",
)
RATE_AGAINST_LOG: Final = MessageKind(
    "rate-against-log",
    "TGS is {times:.2f}x the logged rates, so tokens per step must be wrong",
    "unranked",
    when="Our rate and the logged ones cannot be of the same tokens.",
    fix="check micro_batch_size, seq_len, gpus and context_parallel",
)

# -- errors of questions to the formula ----------------------------------------------------------

TWO_SPEEDS: Final = ErrorKind(
    "two-speeds",
    "{options} exclude each other: each follows from the other.",
    "More than one speed is given: TGS, MFU, HFU or TFLOP/s.",
    FormulaInputError,
    fix="give only one of them",
)
TWO_PEAKS: Final = ErrorKind(
    "two-peaks",
    "--accelerator and --peak-flops exclude each other: both give a peak.",
    "Both an accelerator and its peak are given.",
    FormulaInputError,
    fix="omit one of them",
)
SPEED_WITHOUT_PEAK: Final = ErrorKind(
    "speed-without-peak",
    "MFU needs a peak.",
    "A speed is given without an accelerator or its peak.",
    FormulaInputError,
    fix="give --accelerator or --peak-flops",
)
HFU_WITHOUT_RECOMPUTE: Final = ErrorKind(
    "hfu-without-recompute",
    "An HFU needs executed FLOPs, which are unknown.",
    "HFU is given, and the executed FLOPs are unknown.",
    FormulaInputError,
    fix="give --recompute none, full or selective",
)
TIME_WITHOUT_SPEED: Final = ErrorKind(
    "time-without-speed",
    "A training time needs a number of GPUs and a speed.",
    "A training time is asked for without GPUs or speed.",
    FormulaInputError,
    fix="give --gpus, and --tgs, --mfu, --hfu or --tflops",
)
NO_VISION_TOWER: Final = ErrorKind(
    "no-vision-tower",
    "{model} has no vision tower.",
    "Images are given for a model of text.",
    FormulaInputError,
    fix="omit --image",
)
IMAGES_MISSING: Final = ErrorKind(
    "images-missing",
    "{model} has a vision tower, and no images are given.",
    "No images are given for a model with a vision tower.",
    FormulaInputError,
    fix="give --image HEIGHTxWIDTH for each image of a sequence, or only the text_config as the "
    "model",
)
IMAGES_WITHOUT_FULL_TRAINING: Final = ErrorKind(
    "images-without-full-training",
    "With images, only full training is covered.",
    "Images are given for inference or LoRA.",
    FormulaInputError,
)
INFERENCE_WITH_RATE: Final = ErrorKind(
    "inference-with-rate",
    "Rates, times and adapters need training.",
    "A rate, a training time or LoRA is asked for in inference.",
    FormulaInputError,
    fix="omit --phase",
)
INFERENCE_WITH_MTP: Final = ErrorKind(
    "inference-with-mtp",
    "Only training uses multi-token prediction modules.",
    "Multi-token prediction modules are asked for in inference.",
    FormulaInputError,
    fix="omit --phase",
)
INFERENCE_WITH_DOCUMENTS: Final = ErrorKind(
    "inference-with-documents",
    "Documents are packed in training only.",
    "Lengths of documents are given for inference.",
    FormulaInputError,
    fix="omit --documents or --phase",
)
PRINTED_WITHOUT_SPEED: Final = ErrorKind(
    "printed-without-speed",
    "A printed figure needs a speed to compare with.",
    "A figure of a log is given without a speed.",
    FormulaInputError,
    fix="give --tgs",
)
NOT_A_PRINTED_FIGURE: Final = ErrorKind(
    "not-a-printed-figure",
    "{text!r} is no printed figure.",
    "A printed figure cannot be parsed.",
    FormulaInputError,
    fix="write 418.2 for TFLOP/s, 41.3% for MFU",
)
NOT_A_LENGTH: Final = ErrorKind(
    "not-a-length",
    "{text!r} is no length of a document.",
    "The length of a document cannot be parsed.",
    FormulaInputError,
    fix="write 4096, or 4x1024 for four",
)
NOT_AN_AMOUNT: Final = ErrorKind(
    "not-an-amount",
    "{text!r} is no number of tokens.",
    "A number of training tokens cannot be parsed.",
    FormulaInputError,
    fix="write 1T, 300B or 15e12",
)
NOT_AN_IMAGE_SIZE: Final = ErrorKind(
    "not-an-image-size",
    "{text!r} is no size of an image.",
    "The size of an image cannot be parsed.",
    FormulaInputError,
    fix="write HEIGHTxWIDTH, such as 448x672",
)
