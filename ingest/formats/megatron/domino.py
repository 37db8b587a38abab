"""DeepSpeed-Domino: the trainer of its example, a part of Megatron.

`iteration time` covers one iteration between barriers, with data and checkpoint; it is no mean over
the log interval. Only the command has sequence length and batch.
"""

from __future__ import annotations

from typing import Final

from ..spec import MS, FactLine, LogFormat, StepLine

DOMINO_SOURCE: Final = (
    "deepspeedai/DeepSpeedExamples/training/DeepSpeed-Domino/domino/training.py@2d891a9"
)

DOMINO: Final = LogFormat(
    name="domino",
    framework="deepspeed",
    versions="DeepSpeed-Domino 2024-2026",
    signature=r"iteration: \d+ \| loss: \S+ \| iteration time \(ms\): ",
    looks_like_step=r"iteration: \d+ \| loss: .*iteration time",
    evidence=("elapsed",),
    elapsed_covers="step",
    implies={
        "trainable": ("full", "Domino trains every weight"),
        "packed": ("true", "Megatron's GPT data set fills every sample to seq_length"),
    },
    steps=(
        StepLine(
            anchor="| iteration time (ms): ",
            regex=r"iteration: (?P<step>\d+) \| loss: (?P<loss>\S+) \| iteration time \(ms\): "
            r"(?P<elapsed>[\d.]+)",
            columns={"step": "step", "loss": "loss", "elapsed": ("elapsed_s", MS)},
            example="iteration: 12 | loss: 9.875 | iteration time (ms): 412.25 ",
            printed_by=f"{DOMINO_SOURCE} train",
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor="training ...",
            regex=r"^(?:\S+: ?)?training \.\.\.\s*$",
            example="training ...",
            printed_by=f"{DOMINO_SOURCE} pretrain",
            composed=True,
        ),
    ),
)
