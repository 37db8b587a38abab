"""Event files with what is seen in real ones, and more: what a fast reader may trip over.

Each is told by its format and a seed: steps of the format's tags, of which some are left out,
repeated or elsewhere, with odd numbers, restarts, texts and other tags between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

DEEPSPEED: Final = "Train/Samples/"
TAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "torchtitan-tensorboard": (
        *("loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm"),
        *("throughput(tps)", "tflops", "mfu(%)", "time_metrics/end_to_end(s)", "n_tokens_seen"),
        *("memory/max_reserved(GiB)", "lr/AdamW", "lr/Muon"),
    ),
    "xtuner-tensorboard": (
        *("lr", "base_lr", "data_time", "loss", "time", "tflops", "tokens_per_sec", "iter"),
        "memory",
    ),
    "xtuner-v1-tensorboard": (
        *("lr", "time/data_time", "time/step_time", "runtime_info/text_tokens"),
        *("runtime_info/seqlen_tokens", "runtime_info/tgs", "memory/max_memory_GB", "grad_norm"),
        *("loss/reduced_llm_loss", "loss/local_loss", "runtime_info/total_consumed_tokens"),
    ),
    "hf-trainer-tensorboard": (
        *("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch"),
        "train/num_input_tokens_seen",
    ),
    **{
        name: (
            *(
                "learning-rate",
                "learning-rate vs samples",
                "batch-size",
                loss,
                f"{loss} vs samples",
            ),
            *("grad-norm", "iteration-time", "mem-reserved-bytes"),
        )
        for name, loss in {
            "megatron-deepspeed-tensorboard": "lm-loss-training/lm loss",
            "megatron-lm-tensorboard": "lm loss",
        }.items()
    },
    "gpt-neox-tensorboard": (
        *("train/learning_rate", "train/lm_loss", "runtime/samples_per_sec"),
        *("runtime/iteration_time", "runtime/flops_per_sec_per_gpu"),
    ),
    "deepspeed-tensorboard": (
        *(f"{DEEPSPEED}train_loss", f"{DEEPSPEED}lr", f"{DEEPSPEED}loss_scale"),
        *(f"{DEEPSPEED}elapsed_time_ms_{part}" for part in ("forward", "backward", "step")),
    ),
}
OTHER_TAGS: Final = (
    *(
        "validation_metrics/loss",
        "validation_metrics/throughput(tps)",
        "val/data_time",
        "eval/loss",
    ),
    *("eval/runtime", "train/train_loss", "fork/own", "größe", 'a"b\\', "", "iter", "loss", "step"),
    *("data_time", "time/step_time", "step: 3 loss: 2.5", "[rank3]: loss", f"{DEEPSPEED}eval_loss"),
)
ODD_VALUES: Final = (
    *(0.0, -0.0, 1e-5, 1e-4, 9.9e15, 1e16, 3e38, 1e-45, math.nan, math.inf, -math.inf, -1.5),
    *(0.12345678, 911.5, 1e-38, -3e-6, 16_777_215.0),
)
ODD_STEPS: Final = (0, -1, 2**31, 2**40, 2**55, 2**62)
ODD_TIMES: Final = (0.0, 1e-7, 1e9, 9_999_999_999.5, 1e10, 1e17, math.nan, -5.0)


def damaged_events(path: Path, log_format: str, seed: int, steps: int) -> None:
    """Write an event file; how often what is odd depends on the seed."""
    draw = Random(seed)  # noqa: S311 - no secret
    rate = draw.choice((0.0, 0.001, 0.01, 0.1))
    tags, step, at = TAGS[log_format], 0, 1_795_188_127.25
    stride = draw.choice((1, 1, 5, 64))
    with path.open("wb") as file:
        out = RecordWriter(file)
        out.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
        for _ in range(steps):
            step = step + stride if draw.random() >= rate / 4 else draw.randint(0, step + 9)
            here, at = _tags(draw, tags, rate), at + draw.random()
            for tag in here:
                at += draw.choice((0.0, 1e-4, 0.5))
                odd = draw.random() < rate / 4
                value = draw.choice(ODD_VALUES) if draw.random() < rate else _value(draw, tag)
                event = Event(
                    wall_time=draw.choice(ODD_TIMES) if odd else at,
                    step=draw.choice(ODD_STEPS) if draw.random() < rate / 8 else step,
                    summary=Summary(value=_values(draw, tag, value, rate)),
                )
                out.write(event.SerializeToString())


def _tags(draw: Random, tags: tuple[str, ...], rate: float) -> list[str]:
    """Those of one step."""
    here = list(tags)
    if draw.random() < rate:
        here.remove(draw.choice(here))
    if draw.random() < rate:
        here.insert(draw.randrange(len(here) + 1), draw.choice((*tags, *OTHER_TAGS)))
    if draw.random() < rate / 2:
        draw.shuffle(here)
    if draw.random() < rate / 2:
        here = [draw.choice(OTHER_TAGS) for _ in range(draw.randint(1, 3))]
    return here


def _value(draw: Random, tag: str) -> float:
    if "tokens" in tag or tag in ("iter", "memory", "batch-size"):
        return float(draw.randint(1, 60_000))
    return draw.choice((draw.gauss(5, 1), draw.random(), 10 ** draw.uniform(-6, 6)))


def _values(draw: Random, tag: str, value: float, rate: float) -> list[Any]:
    """What a record holds: mostly one plain scalar."""
    said: dict[str, Any] = {"tag": tag, "simple_value": value}
    if draw.random() < rate / 8:
        tensor = draw.choice(([1.5, 2.5], b"some text", 2.5, 7, True))
        said = {"tag": tag, "tensor": tensor_util.make_tensor_proto(tensor)}
    return [Summary.Value(**said)] * (2 if draw.random() < rate / 8 else 1)
