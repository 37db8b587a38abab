"""Whose lines Megatron's are: NVIDIA's of 2021 to 2023 look like those of the forks on DeepSpeed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairmfu.ingest.pipeline.api import read_logs

ARGUMENTS = ("num_layers", "hidden_size", "num_attention_heads", "world_size")
STEP = (
    " iteration {0:8d}/     500 | consumed samples: {1:12d} |{2} elapsed time per iteration (ms): "
    "1501.0 | learning rate: 1.000E-04 | global batch size:    64 | lm loss: 8.900000E+00 |"
    " loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | number of nan "
    "iterations:   0 |"
)


def log(*arguments: str, field: str = "") -> str:
    header = [
        "-------- arguments --------",
        *(f"  {name} {'.' * (40 - len(name))} 8" for name in arguments),
        "---- end of arguments ----",
    ]
    steps = [STEP.format(n, n * 64, field) for n in range(10, 60, 10)]
    return "\n".join([*(header if arguments else []), *steps, ""])


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (log(*ARGUMENTS), "megatron-lm"),
        (log(*ARGUMENTS, "zero_stage"), "deepspeed"),
        (log(*ARGUMENTS, "deepspeed_config"), "deepspeed"),
        (log(), "megatron"),
        (log(field=" consumed tokens:       983040 |"), "deepspeed"),
    ],
    ids=["arguments of NVIDIA", "zero", "config", "no arguments", "a field of the forks"],
)
def test_the_log_says_whose_lines_they_are(text: str, framework: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    assert read_logs(path)["runs"]["framework"].to_list() == [framework]
