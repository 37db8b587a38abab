"""Logs of each text format by the gigabyte, with the rows that a reader has to find in them.

The lines are printed by the statements of the frameworks (the `printed_by` of `ingest/formats`),
values vary as in training, and between the steps stands what stands there in public logs: messages
of the framework and of libraries, progress bars, tracebacks, tables, blank lines. What a row has to
say is told from the printed text by `float` alone.
"""

from __future__ import annotations

import random as plain_random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

GIB: Final = 1024.0**3
MIB: Final = 1024.0**2
TOTAL: Final = 20_000_000
"""Steps that the runs are to take: more than any log here has."""
LINES_AT_ONCE: Final = 2_000
BEGAN: Final = np.datetime64("2026-12-31T23:40:00", "ms")
"""The first minutes end a day, a month and a year."""

ROWS: Final[dict[str, type[pl.DataType]]] = {
    "line": pl.Int64,
    "rank": pl.String,
    "step": pl.Int64,
    "epoch": pl.Int64,
    "elapsed_s": pl.Float64,
    "data_s": pl.Float64,
    "samples": pl.Int64,
    "sequence_length": pl.Int64,
    "rank_tokens": pl.Float64,
    "rank_slots": pl.Float64,
    "consumed_samples": pl.Int64,
    "consumed_tokens": pl.Float64,
    "attention_ratio": pl.Float64,
    "loss": pl.Float64,
    "grad_norm": pl.Float64,
    "learning_rate": pl.Float64,
    "loss_scale": pl.Float64,
    "skipped_steps": pl.Int64,
    "peak_memory_bytes": pl.Float64,
    "logged_tgs": pl.Float64,
    "logged_samples_per_second": pl.Float64,
    "logged_tflops": pl.Float64,
    "logged_mfu": pl.Float64,
}
SCHEMA: Final = pl.Schema([*ROWS.items(), ("logged_at", pl.Datetime("us"))])
"""Columns of the product's table `steps` that are told here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a log looks; ranks: how many print their steps, where their framework lets them."""

    ansi: bool = True
    ranks: int = 8


@dataclass(frozen=True, slots=True)
class Written:
    """Some lines in their order; `rows`: which of them are steps; by column what those say."""

    lines: list[str]
    rows: NDArray[np.int64]
    columns: Mapping[str, Any]


Draw = np.random.Generator
Print = Callable[[range, Style, Draw], Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One text format: `prefix` stands before its framework's own messages."""

    log_format: str
    steps: Print
    header: Sequence[str]
    prefix: Callable[[plain_random.Random, Style], str]


# -- what is printed ------------------------------------------------------------------------


def _texts(form: str, values: NDArray[Any]) -> list[str]:
    return [form % value for value in values.tolist()]


def _numbers(texts: Sequence[str]) -> NDArray[np.float64]:
    return np.array([float(text) for text in texts])


def _stamps(at: NDArray[np.datetime64], form: str) -> list[str]:
    """The times as printed; form: of the date, the time of day and its milliseconds."""
    texts = np.datetime_as_string(at, unit="ms").tolist()
    return [form.format(t[:10], t[11:19], t[20:], slashed=t[:10].replace("-", "/")) for t in texts]


def _whole_seconds(at: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    return at.astype("datetime64[s]").astype("datetime64[us]")


@dataclass(frozen=True, slots=True)
class _Course:
    """How a training goes: of each line its step, rank, time and figures."""

    step: NDArray[np.int64]
    rank: NDArray[np.int64]
    at: NDArray[np.datetime64]
    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    norm: NDArray[np.float64]

    @classmethod
    def of(cls, steps: range, ranks: int, draw: Draw) -> _Course:
        step = np.repeat(np.arange(steps.start, steps.stop), ranks)
        count = len(step)
        late = draw.integers(0, 200, count)
        return cls(
            step=step,
            rank=np.tile(np.arange(ranks), len(steps)),
            at=BEGAN + (step * 740 + late).astype("timedelta64[ms]"),
            seconds=0.74 * np.exp(0.01 * draw.standard_normal(count)),
            loss=2.1 + 9.9 * np.exp(-step / 900) + 0.05 * draw.standard_normal(count),
            norm=np.exp(0.3 * draw.standard_normal(count)),
        )

    def __len__(self) -> int:
        return len(self.step)

    def every_line(self) -> NDArray[np.int64]:
        return np.arange(len(self))


COLOURS: Final = ("\x1b[31m", "\x1b[32m", "\x1b[38;2;180;60;0m", "\x1b[38;2;54;234;195m")
MORE_COLOURS: Final = ("\x1b[34m", "\x1b[36m", "\x1b[35m", "\x1b[39m")


def torchtitan(steps: range, style: Style, draw: Draw) -> Written:
    """Torchtitan 0.2 and 0.3: `MetricsProcessor.log`, in colours or not, each rank tagged."""
    of = _Course.of(steps, style.ranks, draw)
    count = len(of)
    tps = np.rint(8192 / of.seconds).astype(int)
    loss, norm = _texts("%8.5f", of.loss), _texts("%7.4f", of.norm)
    memory = _texts("%5.2f", 44.21 + draw.standard_normal(count).round(2) / 10)
    share, tflops = _texts("%.2f", 55.9 + draw.random(count)), 0.4523 * tps / 10
    work, mfu = [f"{value:,.2f}" for value in tflops.tolist()], _texts("%.2f", tflops / 9.89)
    red, green, brown, teal = COLOURS if style.ansi else ("",) * 4
    blue, cyan, violet, end = MORE_COLOURS if style.ansi else ("",) * 4
    lines = [
        f"[rank{rank}]:[titan] {stamp} - root - INFO - {red}step: {step:2}  {green}loss: {a}  "
        f"{brown}grad_norm: {b}  {teal}memory: {c}GiB({d}%)  {blue}tps: {e:,}  {cyan}tflops: {f}"
        f"  {violet}mfu: {g}%{end}"
        for rank, stamp, step, a, b, c, d, e, f, g in zip(
            of.rank.tolist(),
            _stamps(of.at, "{} {},{}"),
            of.step.tolist(),
            *(loss, norm, memory, share, tps.tolist(), work, mfu),
            strict=True,
        )
    ]
    columns = {
        "rank": [str(rank) for rank in of.rank.tolist()],
        "step": of.step,
        "logged_at": of.at.astype("datetime64[us]"),
        "loss": _numbers(loss),
        "grad_norm": _numbers(norm),
        "peak_memory_bytes": _numbers(memory) * GIB,
        "logged_tgs": tps.astype(float),
        "logged_tflops": _numbers([text.replace(",", "") for text in work]),
        "logged_mfu": _numbers(mfu) * 0.01,
    }
    return Written(lines, of.every_line(), columns)


def xtuner(steps: range, _style: Style, draw: Draw) -> Written:
    """XTuner 0.2 with ThroughputHook: mmengine's `LoggerHook.after_train_iter`."""
    of = _Course.of(steps, 1, draw)
    count = len(of)
    lr = _texts("%.4e", 2e-5 * (1 + np.cos(of.step / 7e5)) / 2)
    time, data = _texts("%.4f", of.seconds), _texts("%.4f", 0.002 + draw.random(count) / 500)
    memory = 45_271 + draw.integers(0, 9, count)
    loss, norm = _texts("%.4f", of.loss), _texts("%.4f", of.norm)
    tgs = _texts("%.4f", 8192 / of.seconds)
    tflops = _texts("%.4f", 474.2 * 0.74 / of.seconds)
    left = [
        str(timedelta(seconds=int((TOTAL - step) * 0.02) % 300_000)) for step in of.step.tolist()
    ]
    width = len(str(TOTAL))
    lines = [
        f"{stamp} - mmengine - INFO - Iter(train) [{step:{width}d}/{TOTAL}]  lr: {a}  eta: {eta}  "
        f"time: {b}  data_time: {c}  memory: {d}  loss: {e}  grad_norm: {f}  tflops: {g}  "
        f"tokens_per_sec: {h}"
        for stamp, step, eta, a, b, c, d, e, f, g, h in zip(
            _stamps(of.at, "{slashed} {1}"),
            of.step.tolist(),
            left,
            *(lr, time, data, memory.tolist(), loss, norm, tflops, tgs),
            strict=True,
        )
    ]
    columns = {
        "step": of.step,
        "logged_at": _whole_seconds(of.at),
        "learning_rate": _numbers(lr),
        "elapsed_s": _numbers(time),
        "data_s": _numbers(data),
        "peak_memory_bytes": memory * MIB,
        "loss": _numbers(loss),
        "grad_norm": _numbers(norm),
        "logged_tflops": _numbers(tflops),
        "logged_tgs": _numbers(tgs),
    }
    return Written(lines, of.every_line(), columns)


def xtuner_v1(steps: range, style: Style, draw: Draw) -> Written:
    """XTuner v1 of 2026: `Trainer._log_step`, each rank into its own file or all on stdout."""
    of = _Course.of(steps, style.ranks, draw)
    count = len(of)
    tokens = draw.integers(7_000, 8_193, count)
    lr, time = _texts("%.6e", 2e-5 * (1 + np.cos(of.step / 7e5)) / 2), _texts("%.4f", of.seconds)
    data, norm = _texts("%.4f", 0.002 + draw.random(count) / 500), _texts("%.8f", of.norm)
    loss, local = _texts("%.8f", of.loss), _texts("%.8f", of.loss + 0.01)
    step_tokens = _texts("%.8f", tokens.astype(float))
    ratio, base = _texts("%.8f", 0.2 + draw.random(count) / 20), _texts("%.4f", of.loss + 0.02)
    memory = _texts("%.2f", 43.1 + draw.random(count) / 10)
    tgs, slots = _texts("%.1f", tokens / of.seconds), _texts("%.1f", 8192 / of.seconds)
    left = [str(timedelta(seconds=int(9e5 - step * 0.04))) for step in of.step.tolist()]
    lines = [
        f"[XTuner][RANK {rank}]{stamp}[INFO] Epoch 1 Step {step}/{TOTAL} data_time: {a} lr: {b} "
        f"time: {c} text_tokens: {n} seqlen_tokens: 8192 img_tokens: 0.0 "
        f"approximate_total_consumed_tokens: {n * step} reduced_llm_loss: {d}, local_loss: {e} "
        f"step_consumed_tokens: {f}, step_seqlen_tokens: 8192.00000000, "
        f"step_consumed_img_tokens: 0.00000000, efficient_attn_ratio: {g}, "
        f"img_efficient_attn_ratio: 0.00000000 local_base_loss: {h} grad_norm: {i} "
        f"max_memory: {j} GB reserved_memory: 47.02 GB tgs: {k} seqlen_tgs: {m} exp_tgs: {m} "
        f"eta: {eta} "
        for rank, stamp, step, n, eta, a, b, c, d, e, f, g, h, i, j, k, m in zip(
            of.rank.tolist(),
            _stamps(of.at, "[{} {}]"),
            of.step.tolist(),
            tokens.tolist(),
            left,
            *(data, lr, time, loss, local, step_tokens, ratio, base, norm, memory, tgs, slots),
            strict=True,
        )
    ]
    columns = {
        "rank": [str(rank) for rank in of.rank.tolist()],
        "step": of.step,
        "epoch": np.ones(count, int),
        "logged_at": _whole_seconds(of.at),
        "learning_rate": _numbers(lr),
        "elapsed_s": _numbers(time),
        "data_s": _numbers(data),
        "rank_tokens": tokens.astype(float),
        "rank_slots": np.full(count, 8192.0),
        "attention_ratio": _numbers(ratio),
        "peak_memory_bytes": _numbers(memory) * GIB,
        "loss": _numbers(loss),
        "grad_norm": _numbers(norm),
        "logged_tgs": _numbers(tgs),
    }
    return Written(lines, of.every_line(), columns)


STEP_PLACE: Final = "[INFO] [logging.py:123:log_dist] [Rank 0]"


def _engine_line(stamp: str, step: int, lr: float) -> str:
    return f"{stamp} {STEP_PLACE} step={step}, skipped=0, lr=[{lr!r}], mom=[(0.9, 0.95)]"


def megatron_deepspeed(steps: range, _style: Style, draw: Draw) -> Written:
    """Megatron-DeepSpeed: `training_log`; at each tenth step the engine prints beside it."""
    of = _Course.of(steps, 1, draw)
    count = len(of)
    ms = _texts("%.1f", 1000 * of.seconds)
    lr, loss = _texts("%.3E", 3e-4 * (1 + np.cos(of.step / 7e5)) / 2), _texts("%.6E", of.loss)
    norm, scale = _texts("%.3f", of.norm), _texts("%.1f", 2.0 ** draw.integers(10, 17, count))
    rate, tgs = _texts("%.3f", 512 / of.seconds), _texts("%.3f", 2048 * 8 / of.seconds)
    tflops = _texts("%.2f", 149.9 / of.seconds)
    lines, rows = list[str](), list[int]()
    for stamp, step, a, b, c, d, e, f, g, h in zip(
        _stamps(of.at, "[{} {},{}]"),
        of.step.tolist(),
        *(ms, lr, loss, scale, norm, rate, tgs, tflops),
        strict=True,
    ):
        if step % 10 == 0:
            lines.append(_engine_line(stamp, step, float(b)))
        rows.append(len(lines))
        lines.append(
            f" iteration {step:8d}/{TOTAL:8d} | consumed samples: {step * 512:12d} | consumed "
            f"tokens: {step * 512 * 2048:12d} | elapsed time per iteration (ms): {a} | "
            f"learning rate: {b} | global batch size: {512:5d} | lm loss: {c} | loss scale: {d} | "
            f"grad norm: {e} | actual seqlen: {2048:5d} | number of skipped iterations: {0:3d} | "
            f"number of nan iterations: {0:3d} | samples per second: {f} | "
            f"tokens per gpu per second (tgs): {g} | TFLOPs: {h} |"
        )
    columns = {
        "step": of.step,
        "elapsed_s": _numbers(ms) * 0.001,
        "samples": np.full(count, 512),
        "sequence_length": np.full(count, 2048),
        "consumed_samples": of.step * 512,
        "consumed_tokens": (of.step * 512 * 2048).astype(float),
        "learning_rate": _numbers(lr),
        "loss": _numbers(loss),
        "loss_scale": _numbers(scale),
        "grad_norm": _numbers(norm),
        "skipped_steps": np.zeros(count, int),
        "logged_samples_per_second": _numbers(rate),
        "logged_tgs": _numbers(tgs),
        "logged_tflops": _numbers(tflops),
    }
    return Written(lines, np.array(rows), columns)


def deepspeed(steps: range, _style: Style, draw: Draw) -> Written:
    """The DeepSpeed engine: `_report_progress` and, 5 ms later, `ThroughputTimer.stop`."""
    of = _Course.of(steps, 1, draw)
    lr = (2e-5 * (1 + np.cos(of.step / 7e5)) / 2).tolist()
    mean, now = (64 / 0.74 + 1 / of.step).tolist(), (64 / of.seconds).tolist()
    peak = _texts("%.2f", 43.18 + draw.random(len(of)) / 100)
    later = of.at + np.timedelta64(5, "ms")
    lines = []
    for stamp, stopped, step, rate, average, current, gb in zip(
        _stamps(of.at, "[{} {},{}]"),
        _stamps(later, "[{} {},{}]"),
        of.step.tolist(),
        *(lr, mean, now, peak),
        strict=True,
    ):
        lines += [
            _engine_line(stamp, step, rate),
            f"{stopped} [INFO] [timer.py:264:stop] epoch=0/micro_step={4 * step}/global_step="
            f"{step}, RunningAvgSamplesPerSec={average!r}, CurrSamplesPerSec={current!r}, "
            f"MemAllocated=31.15GB, MaxMemAllocated={gb}GB",
        ]
    nothing = [None] * len(of)
    columns = {
        "step": np.repeat(of.step, 2),
        "epoch": _woven(nothing, [0] * len(of)),
        "logged_at": np.stack([of.at, later], axis=1).ravel().astype("datetime64[us]"),
        "skipped_steps": _woven([0] * len(of), nothing),
        "learning_rate": _woven(lr, nothing),
        "logged_samples_per_second": _woven(nothing, now),
        "peak_memory_bytes": _woven(nothing, (_numbers(peak) * GIB).tolist()),
    }
    return Written(lines, np.arange(2 * len(of)), columns)


def _woven(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [value for pair in zip(first, second, strict=True) for value in pair]


# -- what stands between --------------------------------------------------------------------

WORDS: Final = (
    *("shard", "tokenizer", "bucket", "gradient", "prefetch", "worker", "cache", "stream"),
    *("embed", "router", "expert", "mesh", "fallback", "kernel", "allocator", "pinned"),
    *("dataset", "manifest", "epoch", "batch", "layout", "planner", "dtype", "handle"),
    *("timeout", "heartbeat", "endpoint", "collective", "barrier", "warmup", "graph", "guard"),
)

MESSAGES: Final = (
    (30, "Loaded {path} in {f:.2f}s ({n} samples)"),
    (20, "{w} {w} took {f:.3f} ms, {n} bytes"),
    (20, "Compiled {w}_{n} with {w} guards: {f:.4f}"),
    (15, "fetched {path}: {n} rows, {w}={f:.5f}"),
    (10, "{w} loss scale unchanged; step function of {w} reused"),
    (10, "Prefetching {w} {n}/{n}"),
    (5, "lr scheduler: next change in {n} updates"),
)
"""Of the framework's own logger; with how often they come."""

RAW: Final = (
    (20, "gpu{n}:{n}:{n} [{d}] NCCL INFO Channel {d}/0 : {d}[{d}] -> {d}[{d}] via P2P/IPC"),
    (8, "gpu{n}:{n}:{n} [{d}] NCCL WARN NET/IB : {w} {w} timed out after {n} ms"),
    (15, "Processed {n} documents ({f:.13f} docs/s, {f:.13f} MB/s)."),
    (10, "\rTraining:  {d}%|##        | {n}/{n} [00:{d:02}<01:{d:02}, {f:.2f}it/s]"),
    (10, "Generating train split: {n} examples [00:0{d}, {f:.2f} examples/s]"),
    (6, "/opt/conda/lib/python3.11/site-packages/{w}/{w}.py:{n}: UserWarning: {w} is deprecated"),
    (6, "  warnings.warn("),
    (6, ""),
    (4, "[W{n} 11:0{d}:14.482957301 ProcessGroupNCCL.cpp:{n}] {w} {w} {w} (function operator())"),
    (4, "|   {d}  NVIDIA H100 80GB HBM3      On  | 00000000:0{d}:00.0 Off |             {n} |"),
    (3, "wandb: Synced {n} W&B file(s), {n} media file(s), {d} artifact file(s)"),
    (3, "W1231 23:5{d}:13.678000 {n} torch/utils/_pytree.py:{n}] {w} is an Enum subclass"),
    (3, '  File "/opt/conda/lib/python3.11/site-packages/{w}/{w}.py", line {n}, in {w}'),
    (2, "    return {w}({w}, {w}={f:.3f})"),
    (2, "hôte-{d}: données prêtes : {w} ✓"),
)  # fmt: skip
"""Of other programs; a progress bar has its carriage return before it."""

NOISE_LINES: Final = 20_000
RARE: Final = 2_000
"""Of so many lines between the steps one is the failure of a worker that is started anew."""


def _message(form: str, draw: plain_random.Random) -> str:
    fields = {"path": f"/data/{draw.choice(WORDS)}/part-{draw.randrange(99999):05}-of-99999.jsonl"}
    out = form.format(
        w="\0",
        n=draw.randrange(10 ** draw.randrange(1, 7)),
        d=draw.randrange(8),
        f=draw.random() * 10 ** draw.randrange(4),
        **fields,
    )
    while "\0" in out:
        out = out.replace("\0", draw.choice(WORDS), 1)
    return out


@cache
def noise(kind: Kind, style: Style, seed: int, count: int = NOISE_LINES) -> list[str]:
    """Lines that are no steps, of many kinds."""
    draw = plain_random.Random(seed)  # noqa: S311 - no secret
    own = draw.choices([m for _, m in MESSAGES], [n for n, _ in MESSAGES], k=count)
    raw = draw.choices([m for _, m in RAW], [n for n, _ in RAW], k=count)
    out = []
    for mine, other in zip(own, raw, strict=True):
        if draw.randrange(RARE) == 0:
            out.append(f"[rank{draw.randrange(8)}]: ValueError: {_message('{w} {w} {n}', draw)}")
        elif draw.random() < 0.5:
            out.append(kind.prefix(draw, style) + _message(mine, draw))
        else:
            tag = f"[rank{draw.randrange(8)}]:" if style.ranks > 1 and draw.random() < 0.5 else ""
            out.append(tag + _message(other, draw))
    return out


def _of_day(draw: plain_random.Random) -> str:
    return f"{draw.randrange(24):02}:{draw.randrange(60):02}:{draw.randrange(60):02}"


def _titan_prefix(draw: plain_random.Random, style: Style) -> str:
    stamp = f"2027-01-02 {_of_day(draw)},{draw.randrange(1000):03}"
    return f"[rank{draw.randrange(style.ranks)}]:[titan] {stamp} - root - INFO - "


def _mmengine_prefix(draw: plain_random.Random, _style: Style) -> str:
    return f"2027/01/02 {_of_day(draw)} - mmengine - INFO - "


def _v1_prefix(draw: plain_random.Random, style: Style) -> str:
    return f"[XTuner][RANK {draw.randrange(style.ranks)}][2027-01-02 {_of_day(draw)}][INFO] "


def _engine_prefix(draw: plain_random.Random, _style: Style) -> str:
    return f"[2027-01-02 {_of_day(draw)},{draw.randrange(1000):03}] [INFO] [data.py:77:fetch] "


TITAN: Final = "[rank0]:[titan] 2026-12-31 23:39:58,100 - root - INFO - "
ENGINE: Final = "[2026-12-31 23:39:58,100] [INFO] "
KINDS: Final = (
    Kind(
        log_format="torchtitan",
        steps=torchtitan,
        prefix=_titan_prefix,
        header=(
            f"{TITAN}torchtitan version: 0.2.2 (0.0.0 means __version__ is not defined correctly).",
            f"{TITAN}Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, "
            "cp=1, tp=1, ep=1, etp=1",
            f"{TITAN}Model llama3 8B size: 8,030,261,248 total parameters",
            f"{TITAN}Training starts at step 1",
        ),
    ),
    Kind(
        log_format="xtuner",
        steps=xtuner,
        prefix=_mmengine_prefix,
        header=(
            "2026/12/31 23:39:58 - mmengine - INFO - ",
            "-" * 60,
            "System environment:",
            "    sys.platform: linux",
            "    GPU 0,1,2,3,4,5,6,7: NVIDIA H100 80GB HBM3",
            "    GPU number: 8",
            "-" * 60,
        ),
    ),
    Kind(
        log_format="xtuner-v1",
        steps=xtuner_v1,
        prefix=_v1_prefix,
        header=("[XTuner][RANK 0][2026-12-31 23:39:58][INFO] grad_accumulation_steps: 1",),
    ),
    Kind(
        log_format="megatron-deepspeed",
        steps=megatron_deepspeed,
        prefix=_engine_prefix,
        header=(
            "using world size: 64, data-parallel-size: 64, sequence-parallel size: 1, "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1 ",
        ),
    ),
    Kind(
        log_format="deepspeed",
        steps=deepspeed,
        prefix=_engine_prefix,
        header=(
            f"{ENGINE}[launch.py:170:main] dist_world_size=8",
            f"{ENGINE}[config.py:1007:print]   gradient_accumulation_steps .. 4",
            f"{ENGINE}[config.py:1007:print]   train_micro_batch_size_per_gpu  2",
            f"{ENGINE}[config.py:1007:print]   train_batch_size ............. 64",
        ),
    ),
)
BY_NAME: Final = {kind.log_format: kind for kind in KINDS}


# -- whole logs -----------------------------------------------------------------------------


def blocks(  # noqa: PLR0913 - each says one thing of the log
    kind: Kind,
    *,
    density: float = 0.5,
    style: Style | None = None,
    seed: int = 0,
    between: Sequence[str] | None = None,
    at_once: int = LINES_AT_ONCE,
) -> Iterator[tuple[list[str], pl.DataFrame]]:
    """A log without an end: its lines, some thousands at once, and the rows of its steps.

    density: the share of its lines that are printed at each step. between: the others.
    at_once: about how many lines of steps a block has.
    """
    style = style or Style()
    draw = np.random.default_rng(seed)
    between = noise(kind, style, seed) if between is None else between
    lines, first, number = list(kind.header), 1, 1
    yield lines, pl.DataFrame(schema=SCHEMA)
    number += len(lines)
    while True:
        written = kind.steps(range(first, first + at_once // style.ranks), style, draw)
        first += at_once // style.ranks
        count = len(written.lines)
        total = round(count / density)
        here = np.sort(draw.choice(total, count, replace=False))
        lines = [between[place] for place in draw.integers(0, len(between), total).tolist()]
        for place, line in zip(here.tolist(), written.lines, strict=True):
            lines[place] = line
        said = {**written.columns, "line": here[written.rows] + number}
        empty = [None] * len(written.rows)
        rows = pl.DataFrame({name: said.get(name, empty) for name in SCHEMA}, SCHEMA)
        yield lines, rows
        number += total


def write_log(  # noqa: PLR0913 - each says one thing of the log
    path: Path,
    kind: Kind,
    size: int,
    *,
    truth: Path | None = None,
    density: float = 0.5,
    style: Style | None = None,
    seed: int = 0,
    between: Sequence[str] | None = None,
    at_once: int = LINES_AT_ONCE,
) -> int:
    """Write a log of about so many bytes, and its rows as Parquet at `truth`; how many rows."""
    written = count = 0
    parts: pq.ParquetWriter | None = None
    with path.open("wb") as log:
        made = blocks(
            kind, density=density, style=style, seed=seed, between=between, at_once=at_once
        )
        for lines, rows in made:
            text = "\n".join(lines).encode() + b"\n"
            if count and written + len(text) > size + len(text) // 2:
                break
            log.write(text)
            written, count = written + len(text), count + rows.height
            if truth is not None:
                table = rows.to_arrow()
                parts = parts or pq.ParquetWriter(truth, table.schema)
                parts.write_table(table)
    if parts is not None:
        parts.close()
    return count
