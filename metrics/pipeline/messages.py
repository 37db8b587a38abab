"""Messages about whole runs, and errors of questions to the formula."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind

from ..core.messages import MessageKind
from ..formula.messages import FormulaInputError

UNREAD_LINES: Final = MessageKind(
    "unread-lines",
    "Cut-off or damaged lines of steps or facts were not read: {unread}",
    when="A few lines that look like steps could not be read.",
)
MANY_UNREAD_LINES: Final = MessageKind(
    "many-unread-lines",
    "{unread} of {every} lines of steps or facts are cut off or damaged and were not read",
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
    "--tgs and --mfu exclude each other: each follows from the other.",
    "Both TGS and MFU are given.",
    FormulaInputError,
    fix="omit one of them",
)
SPEED_WITHOUT_PEAK: Final = ErrorKind(
    "speed-without-peak",
    "MFU needs a peak.",
    "TGS or MFU is given without an accelerator.",
    FormulaInputError,
    fix="give --accelerator",
)
TIME_WITHOUT_SPEED: Final = ErrorKind(
    "time-without-speed",
    "A training time needs a number of GPUs and a speed.",
    "A training time is asked for without GPUs or speed.",
    FormulaInputError,
    fix="give --gpus, and --tgs or --mfu",
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
    "With images, only full training without activation checkpointing is covered.",
    "Images are given for inference, LoRA or activation checkpointing.",
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
