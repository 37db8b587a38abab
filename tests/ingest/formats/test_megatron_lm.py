"""Whose lines Megatron's are: NVIDIA's of 2021 to 2023 look like those of the forks on DeepSpeed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
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


def facts_above_steps(path: Path, *lines: str) -> dict[str, str]:
    path.write_text("\n".join([*lines, log()]))
    facts = read_logs(path)["facts"].filter(pl.col("origin").str.starts_with("log"))
    stated = dict(facts.select("name", "value").iter_rows())
    return {name: value for name, value in stated.items() if name != "total_steps"}


SIZES = {"seq_len": "256", "tensor_parallel": "2", "micro_batch_size": "4"}
OPTIONS = (
    *("--seq-length 256", "--tensor-model-parallel-size 2", "--micro-batch-size=4", "--lr 1e-4"),
    "--bf16",
)


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        (["torchrun --nproc_per_node 8 pretrain_gpt.py " + " ".join(OPTIONS)], "8"),
        (["torchrun \\", "--nproc_per_node 8 \\", *(f"{o} \\" for o in OPTIONS), "x.py"], "8"),
        (["torchrun --nnodes $N --nproc_per_node 8 pretrain_gpt.py " + " ".join(OPTIONS)], None),
        (["ARGS=(", *(f"    {option}" for option in OPTIONS), ")"], None),
        (["MODEL_ARGS:", *(f"  {o.replace(' ', ': ')}" for o in OPTIONS)], None),
        (["TRAINING_ARGS: " + " ".join(OPTIONS)], None),
    ],
    ids=["a command", "several lines", "a variable", "Bash", "YAML", "a line"],
)
def test_arguments_of_a_command_or_a_list_are_read(
    lines: list[str], gpus: str | None, tmp_path: Path
) -> None:
    known = SIZES | {"precision": "bf16"} | ({"gpus": gpus} if gpus else {})
    assert facts_above_steps(tmp_path / "run.log", *lines) == known


@pytest.mark.parametrize(
    "line",
    [
        "With --seq-length 256 it runs out of memory, with others not.",
        "usage: [--seq-length SEQ_LENGTH] [--micro-batch-size N] [--bf16 B]",
        "  --lr 1 --seq-length $SEQ_LEN \\",
        "torchrun --nproc_per_node=4 prepare.py --seq-length 256 --workers 8",
        "torchrun --lr 1 --seq-length 256\ntorchrun --lr 1 --seq-length 512",
    ],
)
def test_an_option_among_words_or_of_another_program_is_no_fact(line: str, tmp_path: Path) -> None:
    assert "seq_len" not in facts_above_steps(tmp_path / "run.log", line)


def test_an_error_below_a_command_is_still_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    command = "torchrun --nproc_per_node 8 x.py --lr 1 --seq-length 256"
    error = "RuntimeError: use --no-overlap"
    path.write_text(f"{log()}\n{command}\n{error}\n")
    kinds = read_logs(path)["events"].filter(kind="error")["text"].to_list()
    assert any("--no-overlap" in text for text in kinds)


def test_arguments_together_need_no_header(tmp_path: Path) -> None:
    lines = [f"  {name} {'.' * (40 - len(name))} 8" for name in ("seq_length", "world_size")]
    path = tmp_path / "run.log"
    assert facts_above_steps(path, *lines) == {"seq_len": "8", "gpus": "8"}
    assert facts_above_steps(path, lines[0], "text", lines[1]) == {}
