"""Event files of Megatron and of what came of it: which iterations are rows, their losses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse

Parse = Callable[..., ParsedSource]
Value = tuple[str, int, float, object]
"""Tag, x, wall time, and a number or a text."""

BEGAN = 1_795_188_324.0
BATCH, LENGTH, GPUS, STEP_S = 64, 2048, 8, 1.6
EVALUATED, EVALUATION_S = 30, 4.5
"""Behind this iteration, and how long; the time of the next log line holds it."""
ARGUMENTS = {
    "num_layers": "24",
    "hidden_size": "1024",
    "ffn_hidden_size": "4096",
    "num_attention_heads": "16",
    "padded_vocab_size": "50304",
    "max_position_embeddings": "2048",
    "seq_length": str(LENGTH),
    "world_size": str(GPUS),
    "data_parallel_size": str(GPUS),
    "micro_batch_size": "4",
    "global_batch_size": str(BATCH),
    "bf16": "True",
    "fp16": "False",
    "log_interval": "10",
    "train_iters": "60",
}


def losses(steps: int) -> list[float]:
    """In single precision, as they are written."""
    drawn = np.random.default_rng(5).normal(0, 0.05, steps)
    return [float(np.float32(9 - n / 20 + more)) for n, more in enumerate(drawn)]


def seconds(steps: int) -> list[float]:
    """Of each iteration."""
    took = [STEP_S + float(x) for x in np.random.default_rng(6).normal(0, 0.02, steps)]
    return [s + EVALUATION_S * (n == EVALUATED) for n, s in enumerate(took)]


def steady_rate() -> float:
    """Tokens/s/GPU of the log lines but the first, and but that which holds the evaluation."""
    took = seconds(60)
    return 40 * BATCH * LENGTH / GPUS / sum([*took[10:30], *took[40:]])


def written(  # noqa: PLR0913 - what launches differ in
    steps: int = 60,
    *,
    arguments: Mapping[str, str] = ARGUMENTS,
    grouped: bool = False,
    timed: bool = True,
    begin: int = 0,
    every: int = 1,
) -> list[Value]:
    """What a launch of Megatron writes: the tags in the order of `training_log`.

    grouped: as Megatron-DeepSpeed calls them; every: its tensorboard_log_interval.
    """
    at, since = BEGAN, BEGAN
    out: list[Value] = [(f"{k}/text_summary", begin, at, v) for k, v in arguments.items()]

    def put(name: str, n: int, value: float) -> None:
        loss = "lm-loss-training/lm loss" if grouped else "lm loss"
        tag = loss if name == "lm loss" else f"{name}/{name}" if grouped else name
        out.append((tag, n, at, value))
        out.append((f"{tag} vs samples", n * BATCH, at, value))
        if grouped:
            out.append((f"{tag} vs tokens", n * BATCH * LENGTH, at, value))

    for n, (loss, took) in enumerate(zip(losses(steps), seconds(steps), strict=True), 1):
        at += took
        if n <= begin:
            at = since = BEGAN
            continue
        if n % every == 0:
            put("learning-rate", n, 1e-4)
            put("batch-size", n, float(BATCH))
            put("lm loss", n, loss)
            put("world-size", n, float(GPUS))
            put("grad-norm", n, 1 + n / 1000)
            out.append(("mem-reserved-bytes", n, at, 2.0**31))
        if n % 10 == 0:
            if timed:
                name = "iteration-time/iteration-time" if grouped else "iteration-time"
                out.append((name, n, at, (at - since) / 10))
            since = at
        if n == EVALUATED:
            out.append(("lm loss validation", n, at + EVALUATION_S, 9.5))
            out.append(("lm loss validation vs samples", n * BATCH, at + EVALUATION_S, 9.5))
    return out


def event_file(folder: Path, values: list[Value]) -> Path:
    """As TensorBoard's own writer makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for tag, step, at, value in values:
        if isinstance(value, float):
            said = Summary.Value(tag=tag, simple_value=value)
        else:
            about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
            said = Summary.Value(tag=tag, tensor=make_tensor_proto([value]), metadata=about)
        writer.add_event(Event(step=step, wall_time=at, summary=Summary(value=[said])))
    writer.close()
    (path,) = folder.glob("*tfevents*")
    return path


def lines(values: list[Value]) -> list[str]:
    return [
        json.dumps({"tag": tag, "step": step, "wall_time": at, "value": value})
        if isinstance(value, float)
        else json.dumps({"tag": tag, "step": step, "wall_time": at, "kind": "text", "text": value})
        for tag, step, at, value in values
    ]


def console(*, grouped: bool, steps: int = 60) -> str:
    """The console of the same launch: NVIDIA's has a stamp, Megatron-DeepSpeed's has none."""
    arguments = ARGUMENTS | ({"deepspeed": True} if grouped else {})
    names = (f"  {key} {'.' * (48 - len(key))} {value}" for key, value in arguments.items())
    head = ["---------- arguments ----------", *names, "------ end of arguments ------"]
    body, at = [], BEGAN
    for n in range(10, steps + 1, 10):
        took, mean = np.sum(seconds(steps)[n - 10 : n]), np.mean(losses(steps)[n - 10 : n])
        at += took
        stamp = np.datetime64(int(at), "s").astype(object).strftime("%Y-%m-%d %H:%M:%S")
        if n == EVALUATED + 10:
            body.append(f" validation loss at iteration {EVALUATED} | lm loss value: 9.5E+00 | ")
        body.append(
            f" {'' if grouped else f'[{stamp}] '}iteration {n:8d}/{steps:8d} | consumed samples: "
            f"{n * BATCH:12d} | elapsed time per iteration (ms): {took * 100:.1f} | learning rate: "
            f"1.000000E-04 | global batch size: {BATCH:5d} | lm loss: {mean:.6E} | loss scale: 1.0 "
            f"| grad norm: {1 + n / 1000:.3f} | number of skipped iterations:   0 | number of nan "
            "iterations:   0 |"
        )
    return "\n".join([*head, *body, ""])


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """Metrics; that samples are full Megatron-LM's own lines do not say either."""
    for place in {path.parent for path in folder.rglob("*") if path.is_file()}:
        (place / "facts.toml").write_text("packed = true\n")
    store = Store(folder / "store")
    outcomes = ingest_paths([folder], store)
    assert {o.status for o in outcomes} == {"read"}
    return list(analyse(store.tables()).metrics.iter_rows(named=True))


FORMATS = {False: "megatron-lm-tensorboard", True: "megatron-deepspeed-tensorboard"}


def rows_of(parse: Parse, values: list[Value], *, grouped: bool = False) -> list[dict[str, Any]]:
    parsed = parse(FORMATS[grouped], lines(values))
    assert parsed.unread == []
    counted = (parsed.step_lines, parsed.known_lines, parsed.companion_lines, parsed.other_lines)
    assert sum(counted) == parsed.lines == len(values)
    return [row for launch in parsed.launches for row in launch.rows]


# -- the rate --------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
def test_the_rate_is_that_of_the_iteration_times(tmp_path: Path, *, grouped: bool) -> None:
    event_file(tmp_path / "tb", written(grouped=grouped))
    (row,) = runs_of(tmp_path)
    assert row["tgs"] == pytest.approx(steady_rate(), rel=1e-6)
    assert (row["time_basis"], row["steps"], row["gpus"]) == ("elapsed", 6, GPUS)
    assert row["framework"] == ("deepspeed" if grouped else "megatron-lm")
    assert row["tokens_per_gpu_step"] == BATCH * LENGTH / GPUS


def test_without_iteration_times_it_is_that_of_the_stamps(tmp_path: Path) -> None:
    event_file(tmp_path / "tb", written(timed=False))
    (row,) = runs_of(tmp_path)
    assert row["time_basis"] == "stamp"
    assert row["tgs"] == pytest.approx(steady_rate(), rel=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_console_and_event_file_are_one_run(tmp_path: Path, *, grouped: bool, timed: bool) -> None:
    event_file(tmp_path / "tb", written(grouped=grouped, timed=timed))
    (tmp_path / "run.log").write_text(console(grouped=grouped))
    (row,) = runs_of(tmp_path)
    assert len(row["sources"]) == 2
    assert row["tgs"] == pytest.approx(steady_rate(), rel=1e-4)


def test_bare_tags_fit_the_console_of_the_first_megatron_deepspeed(tmp_path: Path) -> None:
    event_file(tmp_path / "tb", written())
    (tmp_path / "run.log").write_text(console(grouped=True))
    (row,) = runs_of(tmp_path)
    assert (len(row["sources"]), row["framework"]) == (2, "deepspeed")


def test_another_launch_of_the_same_losses_is_another_run(tmp_path: Path) -> None:
    event_file(tmp_path / "tb", written(grouped=True))
    log = console(grouped=True).splitlines()
    slower = [line.replace("iteration (ms): 1", "iteration (ms): 2") for line in log]
    (tmp_path / "run.log").write_text("\n".join([*slower, ""]))
    assert len(runs_of(tmp_path)) == 2


# -- GPT-NeoX ----------------------------------------------------------------------------------


def of_neox(steps: int = 60) -> list[Value]:
    """What GPT-NeoX writes of the same launch: no arguments, times at log lines."""
    at, since = BEGAN, BEGAN
    out: list[Value] = []
    for n, (loss, took) in enumerate(zip(losses(steps), seconds(steps), strict=True), 1):
        at += took
        out += [("train/learning_rate", n, at, 1e-4), ("train/lm_loss", n, at, loss)]
        if n % 10 == 0:
            mean, since = (at - since) / 10, at
            out.append(("runtime/samples_per_sec", n, at, BATCH / mean))
            out.append(("runtime/iteration_time", n, at, mean))
            out.append(("runtime/flops_per_sec_per_gpu", n, at, 1e14 / mean))
        if n == EVALUATED:
            out.append(("validation/lm_loss", n, at + EVALUATION_S, 9.5))
    return out


def neox_console(steps: int = 60) -> str:
    took, said = seconds(steps), losses(steps)
    body = []
    for n in range(10, steps + 1, 10):
        mean, loss = np.mean(took[n - 10 : n]), np.mean(said[n - 10 : n])
        if n == EVALUATED + 10:
            body.append(f" validation results at iteration {EVALUATED} | lm_loss value: 9.5E+00 | ")
        body.append(
            f" samples/sec: {BATCH / mean:.3f} | iteration {n:8d}/{steps:8d} | elapsed time per "
            f"iteration (ms): {1000 * mean:.1f} | learning rate: 1.000E-04 | approx flops per GPU: "
            f"{100 / mean:.1f}TFLOPS | lm_loss: {loss:.6E} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |"
        )
    return "\n".join([*body, ""])


@pytest.mark.parametrize("beside", [False, True])
def test_of_neox_the_rate_is_that_of_the_log_lines(tmp_path: Path, *, beside: bool) -> None:
    event_file(tmp_path / "tb", of_neox())
    facts = f"gpus = {GPUS}\nseq_len = {LENGTH}\nglobal_batch_size = {BATCH}\n"
    (tmp_path / "tb" / "facts.toml").write_text(facts)
    if beside:
        (tmp_path / "run.log").write_text(neox_console())
        (tmp_path / "facts.toml").write_text(facts)
    store = Store(tmp_path / "store")
    assert {o.status for o in ingest_paths([tmp_path], store)} == {"read"}
    (row,) = analyse(store.tables()).metrics.iter_rows(named=True)
    assert row["tgs"] == pytest.approx(steady_rate(), rel=1e-4)
    assert (row["framework"], row["steps"], len(row["sources"])) == ("deepspeed", 6, 1 + beside)
    assert row["time_basis"] == "elapsed"


def test_of_neox_iterations_between_log_lines_are_no_steps(parse: Parse) -> None:
    parsed = parse("gpt-neox-tensorboard", lines(of_neox(25)))
    rows = [row for launch in parsed.launches for row in launch.rows]
    assert [row["step"] for row in rows] == [10, 20]
    assert [row["logged_samples_per_second"] * row["elapsed_s"] for row in rows] == [
        pytest.approx(BATCH)
    ] * 2


# -- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
def test_a_row_is_that_of_a_log_line(parse: Parse, *, grouped: bool) -> None:
    rows = rows_of(parse, written(grouped=grouped), grouped=grouped)
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60]
    assert [row["consumed_samples"] for row in rows] == [n * BATCH for n in range(10, 61, 10)]
    means = [np.mean(losses(60)[n - 10 : n]) for n in range(10, 61, 10)]
    assert [row["loss"] for row in rows] == pytest.approx(means, rel=1e-7)
    assert {row["samples"] for row in rows} == {BATCH}
    tokens = [row.get("consumed_tokens") for row in rows]
    assert tokens == [n * BATCH * LENGTH if grouped else None for n in range(10, 61, 10)]


def test_the_arguments_are_the_facts_and_where_training_begins(parse: Parse) -> None:
    parsed = parse(FORMATS[False], lines(written(begin=20)))
    (launch,) = parsed.launches
    facts = {fact["name"]: fact["value"] for fact in launch.facts}
    assert (facts["gpus"], facts["seq_len"], facts["global_batch_size"]) == ("8", "2048", "64")
    assert (facts["log_interval"], facts["precision"]) == ("10", "bf16")
    assert json.loads(facts["megatron_arguments"])["num_layers"] == "24"
    kinds = [(event["kind"], event["step"]) for event in launch.events]
    assert kinds[:2] == [("train_start", 21), ("evaluation", 30)]
    assert str(launch.events[0]["logged_at"]).startswith("2026-11-20 15:25:24")


def test_iteration_times_tell_rows_where_no_arguments_do(parse: Parse) -> None:
    rows = rows_of(parse, written(arguments={}))
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60]
    assert [row.get("loss") for row in rows] == [None] * 6  # whether any was skipped is not known


def test_each_iteration_is_a_row_where_nothing_tells(parse: Parse) -> None:
    rows = rows_of(parse, written(20, arguments={}, timed=False))
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert [row["loss"] for row in rows] == losses(20)


@pytest.mark.parametrize(
    ("changed", "every", "begin", "known"),
    [
        ({}, 1, 0, [True] * 6),
        ({"fp16": "True", "bf16": "False"}, 1, 0, [False] * 6),
        ({}, 2, 0, [False] * 6),  # half of the losses are not there
        ({}, 1, 15, [True] * 5),  # resumed within an interval
        ({"log_interval": "1", "fp16": "True"}, 1, 0, [True] * 60),
    ],
)
def test_a_mean_that_is_not_known_is_no_loss(
    changed: dict[str, str], every: int, begin: int, known: list[bool], parse: Parse
) -> None:
    rows = rows_of(parse, written(arguments=ARGUMENTS | changed, every=every, begin=begin))
    assert [row.get("loss") is not None for row in rows] == known


def test_an_iteration_without_a_norm_may_be_skipped(parse: Parse) -> None:
    values = [one for one in written() if not (one[0] == "grad-norm" and one[1] == 13)]
    rows = rows_of(parse, values)
    assert [row.get("loss") is None for row in rows] == [False, True, *[False] * 4]


def test_values_over_another_axis_are_no_steps(parse: Parse) -> None:
    values = [one for one in written() if " vs " in one[0]]
    assert rows_of(parse, values) == []
    other = [("optimizer/weight_l2 vs tokens", 77, BEGAN, 1.0), ("loss vs gigaflos", 3, BEGAN, 1.0)]
    steps = [row["step"] for row in rows_of(parse, [*other, *written(), *other])]
    assert steps == [10, 20, 30, 40, 50, 60]


def test_a_file_that_is_cut_anywhere_loses_no_line(parse: Parse) -> None:
    values = written(20, arguments={"log_interval": "10", "fp16": "False"})
    for begin in range(40):
        for end in (len(values) - 7, len(values)):
            rows_of(parse, values[begin:end])
    parsed = parse(FORMATS[False], [*lines(values), "junk", '{"tag": "lm loss", "step"'])
    assert parsed.other_lines + parsed.known_lines + parsed.step_lines == len(values) + 2
