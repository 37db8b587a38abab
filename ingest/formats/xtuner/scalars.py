"""XTuner 0.1 and 0.2: mmengine's scalars next to its text log, in full precision.

`vis_data/<stamp>.json` and `vis_data/scalars.json` have one JSON object per step line. If the
config asks for TensorBoard, event files have the same keys as tags, in single precision. Meanings
and the window of `time` are as in the text log (see `ingest.formats.xtuner.mmengine`). `step`
counts micro-steps over all epochs. The JSON has no time stamps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..spec import JSON_PAIRS, MIB, ColumnTarget, EventLine, FactLine, LogFormat, StepLine

VIS_BACKEND_SOURCE: Final = "open-mmlab/mmengine/mmengine/visualization/vis_backend.py@v0.10.7"

UNPREFIXED_COLUMNS: Final[Mapping[str, ColumnTarget]] = {
    "lr": "learning_rate",
    "time": "elapsed_s",
    "data_time": "data_s",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "tflops": "logged_tflops",
    "tokens_per_sec": "logged_tgs",
    "num_tokens": "sequence_length",  # labels.shape[1]: tokens of a row, for any number of rows
}
SCALAR_COLUMNS: Final[Mapping[str, ColumnTarget]] = {
    **UNPREFIXED_COLUMNS,
    **{f"train/{key}": target for key, target in UNPREFIXED_COLUMNS.items()},  # log_with_hierarchy
    "step": "step",
    "epoch": "epoch",
    "memory": ("peak_memory_bytes", MIB),
}
LEARNING_RATE_TAG: Final = r"(?:train/)?(?:\w+_)?lr"
"""The first key of every step."""

SCALAR_TAG_LINE: Final = re.compile(r'^\{"tag": "(?P<name>[^"]+)", "step": (?P<step>\d+), ')


def _whole_steps(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Join the tags of one training step: learning rate to `iter` or `memory`.

    Validation also writes `time` and `data_time`, for the same step.
    """
    first, parts, before, step = 0, list[str](), "", ""
    for number, text in lines:
        tag = SCALAR_TAG_LINE.match(text)
        name, its_step = (tag["name"], tag["step"]) if tag else ("", "")
        if parts and not (its_step == step and _follows(before, name)):
            yield first, len(parts), " ".join(parts)
            parts = []
        if not parts:
            first, step = number, its_step
        parts.append(text)
        inside = len(parts) > 1 or re.fullmatch(LEARNING_RATE_TAG, name) is not None
        before = name if inside else ""
    if parts:
        yield first, len(parts), " ".join(parts)


def _follows(before: str, name: str) -> bool:
    """Return whether tag `name` continues the step whose last tag was `before`.

    before: empty if no step is open.
    """
    if before in ("", "iter", "memory"):
        return before == "iter" and name == "memory"
    return not re.fullmatch(LEARNING_RATE_TAG, name) or bool(
        re.fullmatch(LEARNING_RATE_TAG, before)
    )


XTUNER_SCALARS: Final = LogFormat(
    name="xtuner-scalars",
    framework="xtuner",
    versions="0.1.0 … 0.2.0 (mmengine), vis_data/*.json",
    signature=r'^\{.*"(?:train/)?data_time": .*"iter": \d+.*"step": \d+\}\s*$',
    looks_like_step=rf'^\{{"{LEARNING_RATE_TAG}": |^\{{.*"iter": \d',
    evidence=("elapsed", "rate"),
    step_unit="micro_step",
    elapsed_covers="last_10",
    quirks=("wait_has_pauses",),
    rate_covers="step",
    file_names=("scalars.json", f"{'[0-9]' * 8}_{'[0-9]' * 6}.json"),
    steps=(
        StepLine(
            anchor='"iter": ',
            regex=r'^(?P<pairs>\{.*"iter": \d+.*\})\s*$',
            pair=JSON_PAIRS,
            columns=SCALAR_COLUMNS,
            example='{"lr": 0.0009999999999999998, "data_time": 0.0026114940643310546, '
            '"loss": 6.510884571075439, "time": 0.08413734436035156, '
            '"tflops": 0.050547630626109855, "tokens_per_sec": 7561.721895421325, '
            '"iter": 10, "step": 10}',
            printed_by=VIS_BACKEND_SOURCE,
        ),
    ),
    events=(
        EventLine(
            anchor='"step": ',
            regex=r'^\{(?!.*"iter": )(?=.*"(?:val/)?data_time": ).*"step": (?P<step>\d+)\}\s*$',
            kind="evaluation",
            example='{"accuracy": 0.5125, "data_time": 0.0021, "time": 0.0345, "step": 60}',
            printed_by="open-mmlab/mmengine/mmengine/hooks/logger_hook.py@v0.10.7",
            composed=True,
        ),
    ),
)

XTUNER_TENSORBOARD: Final = LogFormat(
    name="xtuner-tensorboard",
    framework="xtuner",
    versions="0.1.0 … 0.2.0 (mmengine), TensorBoard event files",
    signature=r'"tag": "(?:train/)?data_time"',
    looks_like_step=rf'^\{{"tag": "{LEARNING_RATE_TAG}"',
    clock=r'"wall_time": (?P<stamp>\d{10}(?:\.\d+)?)',
    evidence=("elapsed", "stamp", "rate"),
    utc=True,
    step_unit="micro_step",
    elapsed_covers="last_10",
    quirks=("wait_has_pauses",),
    rate_covers="step",
    join=_whole_steps,
    join_by_step=True,
    steps=(
        StepLine(
            anchor='"tag": "iter"',
            regex=rf'^(?P<pairs>\{{"tag": "{LEARNING_RATE_TAG}", "step": (?P<step>\d+), .*'
            r'\{"tag": "iter", .*\})\s*$',
            pair=r'\{"tag": "(?P<key>[^"]+)", "step": \d+, "wall_time": [\d.]+, '
            r'"value": (?P<value>[^{}]+)\}',
            columns=SCALAR_COLUMNS,
            example='{"tag": "lr", "step": 10, "wall_time": 1795188729.5, "value": 0.001} '
            '{"tag": "data_time", "step": 10, "wall_time": 1795188729.5, "value": 0.0093} '
            '{"tag": "loss", "step": 10, "wall_time": 1795188729.5, "value": 6.7261} '
            '{"tag": "time", "step": 10, "wall_time": 1795188729.5, "value": 0.2194} '
            '{"tag": "iter", "step": 10, "wall_time": 1795188729.5, "value": 10.0}',
            printed_by=VIS_BACKEND_SOURCE,
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor='{"tag": "',
            regex=r'^\{"tag": "(?:val/)?data_time", "step": (?P<step>\d+), ',
            kind="evaluation",
            example='{"tag": "data_time", "step": 60, "wall_time": 1795188740.1, "value": 0.0021}',
            printed_by="open-mmlab/mmengine/mmengine/hooks/logger_hook.py@v0.10.7",
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor='{"tag": "',
            regex=r'^\{"tag": "[^"]+", "step": \d+, ',
            example='{"tag": "config/text_summary", "step": 0, "wall_time": 1795188725.9, '
            '"kind": "text", "text": "batch_size = 2"}',
            printed_by=VIS_BACKEND_SOURCE,
            composed=True,
        ),
    ),
)
