"""Simulated nights: the logs of 20 series, run after run, of which the truth is known.

    plan = plan_of(seed=7)
    write_night(folder, night=1, plan=plan)     # 20 logs, and facts.toml beside each series

No such runs took place: every log says so in its first line. The lines have the form in which
each framework prints them, and its own figures are by its own formula.

Night 1 is `plan.first`. The rate of a run is that of its series, times the changes planted up to
that night, times a noise from run to run (lognormal, `plan.noise`); every hundredth run
(`plan.outliers`) is 5 to 30 % slower without a lasting cause. Within a run, steps differ by
`STEP_NOISE`, and the first ones are slower. All follows from (seed, series, night).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from fairmfu.ingest.store import transactions
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.formula.model_shapes import ModelShape, find_model
from fairmfu.reports.nightly import night_outputs, nightly

MARK: Final = "# synthetic log: a simulated night, no such run took place"
INTERVAL: Final = 10
"""Steps between two lines, of the frameworks that don't print each step."""
STEPS: Final = 400
STEPS_PRINTED: Final = 60
"""Of a run whose framework prints each step."""
STEP_NOISE: Final = 0.01
"""Standard deviation of single steps, as a fraction."""
FIRST_STEP_S: Final = 9.0
"""What the first step takes beyond the others."""
SLOW_STEPS: Final = 4
"""Further steps that take half as long again."""
SIZES: Final = (0.01, 0.02, 0.05, 0.10)
H100, H200, H800 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA H800"
A100, MI300X = "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One job that is run each night; `tgs` is its rate before any change, in tokens/s/GPU.

    named: the model as this framework's log, or the user's facts, call it; known: as
    metrics.formula.model_shapes does.
    """

    framework: str
    known: str
    named: str
    seq_len: int
    gpus: int
    device: str
    tgs: float
    precision: str = "bf16"
    recompute: str = "full"

    @property
    def name(self) -> str:
        """Of its folder and files."""
        device = self.device.split()[-1 if self.device in (H200, H800, MI300X) else 1]
        device = device.split("-")[0].lower()
        return f"{self.framework}-{self.known}-{self.seq_len}-{self.gpus}x{device}-{self.precision}"


SERIES: Final = (
    Series(
        framework="torchtitan",
        known="llama-3-8b",
        named="llama3 8B",
        seq_len=8192,
        gpus=8,
        device=H100,
        tgs=7000,
    ),
    Series(
        framework="torchtitan",
        known="llama-3-8b",
        named="llama3 8B",
        seq_len=8192,
        gpus=64,
        device=H100,
        tgs=6600,
    ),
    Series(
        framework="torchtitan",
        known="llama-3-8b",
        named="llama3 8B",
        seq_len=8192,
        gpus=8,
        device=H100,
        tgs=9100,
        precision="fp8",
    ),
    Series(
        framework="torchtitan",
        known="llama-3-8b",
        named="llama3 8B",
        seq_len=4096,
        gpus=16,
        device=A100,
        tgs=2900,
        recompute="selective",
    ),
    Series(
        framework="torchtitan",
        known="llama-3-70b",
        named="llama3 70B",
        seq_len=8192,
        gpus=512,
        device=H200,
        tgs=930,
    ),
    Series(
        framework="torchtitan",
        known="qwen3-8b",
        named="qwen3 8B",
        seq_len=4096,
        gpus=32,
        device=H100,
        tgs=7700,
        recompute="none",
    ),
    Series(
        framework="torchtitan",
        known="qwen3-1.7b",
        named="qwen3 1.7B",
        seq_len=4096,
        gpus=8,
        device=A100,
        tgs=4800,
        precision="fp32",
    ),
    Series(
        framework="megatron-deepspeed",
        known="llama-2-7b",
        named="",
        seq_len=4096,
        gpus=16,
        device=A100,
        tgs=3600,
    ),
    Series(
        framework="megatron-deepspeed",
        known="llama-2-13b",
        named="",
        seq_len=4096,
        gpus=32,
        device=A100,
        tgs=1900,
        precision="fp16",
    ),
    Series(
        framework="megatron-deepspeed",
        known="llama-3-8b",
        named="",
        seq_len=8192,
        gpus=64,
        device=H100,
        tgs=6900,
    ),
    Series(
        framework="megatron-deepspeed",
        known="llama-2-70b",
        named="",
        seq_len=4096,
        gpus=256,
        device=H800,
        tgs=960,
    ),
    Series(
        framework="megatron-deepspeed",
        known="yi-6b",
        named="",
        seq_len=4096,
        gpus=8,
        device=H200,
        tgs=9400,
        recompute="none",
    ),
    Series(
        framework="xtuner",
        known="llama-3-8b",
        named="meta-llama/Meta-Llama-3-8B",
        seq_len=8192,
        gpus=8,
        device=H100,
        tgs=6400,
    ),
    Series(
        framework="xtuner",
        known="qwen2.5-7b",
        named="Qwen/Qwen2.5-7B",
        seq_len=4096,
        gpus=8,
        device=A100,
        tgs=2800,
    ),
    Series(
        framework="xtuner",
        known="internlm2.5-7b",
        named="internlm/internlm2_5-7b",
        seq_len=8192,
        gpus=16,
        device=H800,
        tgs=6300,
        precision="fp16",
    ),
    Series(
        framework="xtuner",
        known="qwen2.5-14b",
        named="Qwen/Qwen2.5-14B",
        seq_len=4096,
        gpus=32,
        device=H800,
        tgs=3900,
    ),
    Series(
        framework="xtuner-v1",
        known="qwen3-8b",
        named="Qwen/Qwen3-8B",
        seq_len=16384,
        gpus=64,
        device=H200,
        tgs=6100,
    ),
    Series(
        framework="xtuner-v1",
        known="qwen3-30b-a3b",
        named="Qwen/Qwen3-30B-A3B",
        seq_len=8192,
        gpus=128,
        device=H200,
        tgs=9500,
    ),
    Series(
        framework="deepspeed",
        known="llama-3-8b",
        named="meta-llama/Meta-Llama-3-8B",
        seq_len=8192,
        gpus=8,
        device=H100,
        tgs=6100,
    ),
    Series(
        framework="deepspeed",
        known="qwen2.5-7b",
        named="Qwen/Qwen2.5-7B",
        seq_len=4096,
        gpus=16,
        device=MI300X,
        tgs=7200,
        precision="fp16",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """From `night` on, runs of a series are `factor` times as fast; 1.0 where nothing changes.

    upgrade: the framework has another version from that night on (of XTuner: PyTorch), printed
    where the format prints one.
    """

    night: int
    factor: float
    upgrade: bool = False


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Trouble of another kind in a series from `night` on.

    kind: of TROUBLES; size: relative, for growth inside a run; nights: of a crash or a gap. Others
    last
    """

    kind: str
    night: int
    size: float = 0.0
    nights: int = 1


TROUBLES: Final = {
    "crash": "job-failed",
    "gap": "job-missing",
    "memory": "more-memory",
    "growth": "growing-memory",
    "loss": "worse-loss",
    "start": "slower-start",
}
"""Kinds of troubles, and the findings that tell them."""

START_S: Final = 20.0
START_NOISE: Final = 0.1
LOSS_NOISE: Final = 0.005
MEMORY_NOISE: Final = 0.001
"""Seconds from the first line to the training; standard deviations from run to run."""
CRASHED_AFTER: Final = 0.6
"""Share of its steps after which a run crashes."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Events by night: `changes` and `troubles` by the place of their series."""

    seed: int = 0
    first: date = date(2026, 1, 1)
    series: tuple[Series, ...] = SERIES
    changes: Mapping[int, tuple[Change, ...]] = field(default_factory=dict)
    troubles: Mapping[int, tuple[Trouble, ...]] = field(default_factory=dict)
    noise: float = 0.005
    """Standard deviation of the logarithm of a run's rate, from run to run."""
    outliers: float = 0.01
    """Share of runs that are 5 to 30 % slower."""

    def on(self, night: int) -> date:
        """The day of a night, from 1."""
        return self.first + timedelta(days=night - 1)

    def level(self, series: int, night: int) -> float:
        """The rate of a series in that night but for noise, in tokens/s/GPU."""
        return self.series[series].tgs * math.prod(c.factor for c in self._until(series, night))

    def upgrades(self, series: int, night: int) -> list[date]:
        """Days of the upgrades up to that night."""
        return [self.on(c.night) for c in self._until(series, night) if c.upgrade]

    def rate(self, series: int, night: int) -> float:
        """The steady rate of the run of that night, in tokens/s/GPU."""
        return self.level(series, night) * self._luck(self._random(series, night))

    def run(self, series: int, night: int) -> SimulatedRun:
        """The run of a series in one night."""
        random = self._random(series, night)
        what, luck = self.series[series], self._luck(random)
        steps = STEPS_PRINTED if what.framework == "xtuner-v1" else STEPS
        step_s = what.seq_len / (self.level(series, night) * luck)
        pace = step_s * np.exp(STEP_NOISE * random.standard_normal(steps))
        pace[1 : 1 + SLOW_STEPS] *= 1.5
        pace[0] += FIRST_STEP_S
        began = datetime.fromisoformat(f"{self.on(night)}T01:00:00") + timedelta(
            minutes=7 * series, seconds=float(random.uniform(0, 60))
        )
        losses = 2.2 + 9.8 * np.exp(-np.arange(1, steps + 1) / 60) + 0.02 * random.random(steps)
        luck_of = dict(zip(("start", "loss", "memory"), random.standard_normal(3), strict=True))
        growth = 1 + self.size("growth", series, night) * np.linspace(0, 1, steps)
        memory = self._other("memory", MEMORY_NOISE, luck_of, series, night)
        return SimulatedRun(
            of=what,
            began=began,
            pace=pace,
            losses=losses * self._other("loss", LOSS_NOISE, luck_of, series, night),
            upgrades=tuple(self.upgrades(series, night)),
            start_s=START_S * self._other("start", START_NOISE, luck_of, series, night),
            memory=44.21 * growth * memory,
            crashed=self.during("crash", series, night),
        )

    def size(self, kind: str, series: int, night: int) -> float:
        """The size of the last trouble of a kind up to that night; 0 without one."""
        sizes = [
            t.size
            for t in self.troubles.get(series, ())
            if (t.kind, t.night <= night) == (kind, True)
        ]
        return sizes[-1] if sizes else 0.0

    def during(self, kind: str, series: int, night: int) -> bool:
        """Return whether a night is one of a crash or a gap."""
        own = [t for t in self.troubles.get(series, ()) if t.kind == kind]
        return any(t.night <= night < t.night + t.nights for t in own)

    def ran(self, night: int) -> list[int]:
        """Places of the series that run in a night."""
        return [place for place in range(len(self.series)) if not self.during("gap", place, night)]

    def _other(
        self, kind: str, spread: float, luck_of: Mapping[str, float], series: int, night: int
    ) -> float:
        """Factor of another figure: its troubles, and its noise from run to run."""
        noise = spread * luck_of[kind] * (self.noise / Plan.noise)
        return float((1 + self.size(kind, series, night)) * np.exp(noise))

    def _until(self, series: int, night: int) -> list[Change]:
        return [c for c in self.changes.get(series, ()) if c.night <= night]

    def _random(self, series: int, night: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, series, night))

    def _luck(self, random: np.random.Generator) -> float:
        """What sets a run apart from its series; takes as many draws whatever they are."""
        normal, hit, share = random.standard_normal(), random.random(), random.uniform(0.05, 0.30)
        return float(np.exp(self.noise * normal) * (1 - share * (hit < self.outliers)))


def plan_of(  # noqa: PLR0913 - each says one thing of the plan
    seed: int = 0,
    *,
    nights: int = 365,
    spacing: int = 75,
    sizes: Sequence[float] = SIZES,
    still: int = 4,
    tail: int = 14,
) -> Plan:
    """Changes of all `sizes` in both directions; the last `still` series have none.

    Between two changes of a series, and before the first one, lie `spacing` nights, more or less a
    fifth; behind the last one lie `tail` nights at least, so that it can be found. Half of them
    come with an upgrade, and each series has an upgrade that changes nothing.
    """
    random = np.random.default_rng((seed, 0xFA))
    factors = _shuffled([1 + way * size for size in sizes for way in (-1, 1)], random)
    upgraded = _shuffled([True, False], random)
    jitter = max(1, spacing // 5)
    about = range(spacing, nights - tail - jitter + 1, spacing)
    changes: dict[int, tuple[Change, ...]] = {}
    for place in range(len(SERIES)):
        planted = [
            Change(
                night=night + int(random.integers(-jitter, jitter + 1)),
                factor=next(factors),
                upgrade=next(upgraded),
            )
            for night in (about if place < len(SERIES) - still else ())
        ]
        quiet = [
            night
            for night in range(5, nights + 1)
            if all(abs(night - change.night) > spacing // 4 for change in planted)
        ]
        idle = Change(night=int(random.choice(quiet)), factor=1.0, upgrade=True)
        changes[place] = tuple(sorted([*planted, idle], key=_night))
    return Plan(seed=seed, changes=changes)


def _shuffled(items: list[Any], random: np.random.Generator) -> Iterator[Any]:
    """All of them again and again, each time in another order."""
    while True:
        yield from (items[place] for place in random.permutation(len(items)))


def _night(change: Change) -> int:
    return change.night


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """One run: `pace` has the seconds of each step, the first included; one sequence per GPU.

    memory: peak so far at each step, in GiB; crashed: it ends after CRASHED_AFTER of its steps
    """

    of: Series
    began: datetime
    pace: NDArray[np.float64]
    losses: NDArray[np.float64]
    upgrades: tuple[date, ...] = ()
    start_s: float = START_S
    memory: NDArray[np.float64]
    crashed: bool = False

    @property
    def steps(self) -> int:
        return len(self.pace)

    @cached_property
    def shape(self) -> ModelShape:
        return find_model(self.of.known)

    @cached_property
    def ends(self) -> list[datetime]:
        """When each step ends; training begins `start_s` after the log."""
        after = (self.start_s + np.cumsum(self.pace)).tolist()
        return [self.began + timedelta(seconds=s) for s in after]

    @property
    def logged_steps(self) -> range:
        """Steps that a logger with this interval prints, without the first."""
        return range(INTERVAL, self.steps + 1, INTERVAL)

    def loss(self, step: int) -> float:
        return float(self.losses[step - 1])

    def gib(self, step: int) -> float:
        return float(self.memory[step - 1])

    def mean_s(self, first: int, last: int) -> float:
        """Mean seconds of the steps first to last, both included."""
        return float(self.pace[first - 1 : last].mean())

    def version(self, released: Sequence[str], nightly: str) -> str:
        """The version behind so many upgrades; when `released` are used up, nightly builds."""
        last = len(self.upgrades)
        return released[last] if last < len(released) else f"{nightly}{self.upgrades[-1]:%Y%m%d}"


def torchtitan(run: SimulatedRun) -> Iterator[str]:
    """Torchtitan 0.2: tflops of 6 (N - embedding) + 12 l h q T, mfu over the bf16 peak."""
    of, shape = run.of, run.shape
    attention = shape.layers[0].attention
    table = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    core = 12 * shape.layer_count * attention.heads * attention.qk_head_dim * of.seq_len
    flops = 6 * (shape.params_total - table) + core
    peak = 312e12 if of.device == A100 else 989e12

    def line(at: datetime, text: str) -> str:
        return f"[rank0]:[titan] {_milliseconds(at)} - root - INFO - {text}"

    begin = run.began
    version = run.version(("0.2.0", "0.2.1", "0.2.2"), "0.2.2.dev")
    batch = f"local batch size 1, global batch size {of.gpus}, gradient accumulation steps 1"
    in_fp32 = "Mixed precision training is disabled"
    heading = (
        f"torchtitan version: {version} (0.0.0 means __version__ is not defined correctly).",
        f"Starting job: {of.named} nightly",
        f"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard={of.gpus}, cp=1, "
        "tp=1, ep=1, etp=1",
        f"CUDA capacity: {of.device} with 79.11GiB memory",
        "Float8 tensorwise scaled training active" if of.precision == "fp8" else "",
        f"Model {of.named} size: {shape.params_total:,} total parameters",
        in_fp32 if of.precision == "fp32" else "",
        f"Applied {of.recompute} activation checkpointing to the model"
        if of.recompute != "none"
        else "",
        "Applied FSDP to the model" if of.precision != "fp32" else "Applied DDP to the model",
        f"Peak FLOPS used for computing MFU: {peak:.3e}",
        "Preparing c4 dataset from allenai/c4",
        f"Trainer is initialized with {batch}, sequence length {of.seq_len}, total steps "
        f"{run.steps} (warmup 40)",
        "Training starts at step 1",
    )
    for text in filter(None, heading):
        yield line(begin, text)
    before = 0
    for step in [1, *run.logged_steps]:
        tps = of.seq_len / run.mean_s(before + 1, step)
        yield line(
            run.ends[step - 1],
            f"step: {step:2}  loss: {run.loss(step):8.5f}  grad_norm: {0.9:7.4f}  memory: "
            f"{run.gib(step):5.2f}GiB({100 * run.gib(step) / 79.11:.2f}%)  tps: {round(tps):,}  "
            f"tflops: {flops * tps / 1e12:,.2f}  mfu: {100 * flops * tps / peak:.2f}%",
        )
        before = step
    yield line(run.ends[-1], "Training completed")


def xtuner(run: SimulatedRun) -> Iterator[str]:
    """XTuner 0.2.0 with ThroughputHook: recompute counted, causal halved, GQA taken for MHA."""
    of, shape = run.of, run.shape
    ratio = 1.5 * _width(shape) / shape.hidden_size
    layer = (8 + 4 * ratio) * shape.hidden_size**2 + 4 * of.seq_len * shape.hidden_size / 2
    passes = 4 if of.recompute == "full" else 3
    flops = passes * shape.layer_count * layer + 6 * shape.hidden_size * shape.vocab_size
    start = f"{run.began:%Y/%m/%d %H:%M:%S} - mmengine - INFO - "
    torch = run.version(("2.4.1+cu121", "2.5.1+cu124", "2.6.0+cu124", "2.7.1+cu126"), "2.9.0.dev")
    devices = ",".join(map(str, range(8)))
    yield start
    yield from f"""{"-" * 60}
System environment:
    sys.platform: linux
    CUDA available: True
    GPU {devices}: {of.device}
    PyTorch: {torch}
    MMEngine: 0.10.7

Runtime environment:
    launcher: pytorch
    Distributed launcher: pytorch
    Distributed training: True
    GPU number: {of.gpus}
{"-" * 60}
""".splitlines()
    yield f"{start}Config:"
    yield from f"""accumulative_counts = 1
batch_size = 1
default_hooks = dict(
    logger=dict(interval={INTERVAL}, type='mmengine.hooks.LoggerHook'))
log_processor = dict(by_epoch=False, window_size={INTERVAL})
max_length = {of.seq_len}
model = dict(
    llm=dict(
        pretrained_model_name_or_path='{of.named}',
        type='transformers.AutoModelForCausalLM.from_pretrained'),
    type='xtuner.model.SupervisedFinetune',
    use_activation_checkpointing={of.recompute == "full"},
    use_varlen_attn=False)
pack_to_max_length = True
strategy = dict(
    config=dict(
        bf16=dict(enabled={of.precision == "bf16"}),
        fp16=dict(enabled={of.precision == "fp16"}),
        zero_optimization=dict(stage=3)),
    gradient_accumulation_steps=1,
    sequence_parallel_size=1,
    type='xtuner.engine.DeepSpeedStrategy')
train_cfg = dict(max_iters={run.steps}, type='xtuner.engine.runner.TrainLoop')
train_dataloader = dict(
    batch_size=1,
    dataset=dict(max_length={of.seq_len}, pack_to_max_length=True, use_varlen_attn=False))
""".splitlines()
    yield f"{start}Checkpoints will be saved to work_dirs/{of.known}."
    for step in run.logged_steps:
        mean, last = run.mean_s(step - INTERVAL + 1, step), float(run.pace[step - 1])
        tgs = of.seq_len / last
        eta = str(timedelta(seconds=int(mean * (run.steps - step))))
        yield (
            f"{run.ends[step - 1]:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) "
            f"[{step:{len(str(run.steps))}d}/{run.steps}]  lr: {2e-5:.4e}  eta: {eta}  time: "
            f"{mean:.4f}  data_time: {0.0102:.4f}  memory: {run.gib(step) * 1024:.0f}  "
            f"loss: {run.loss(step):.4f}  "
            f"tflops: {flops * tgs / 1e12:.4f}  tokens_per_sec: {tgs:.4f}"
        )


def xtuner_v1(run: SimulatedRun) -> Iterator[str]:
    """XTuner v1, rank 0: every step; tgs leaves data loading out; neither FLOPs nor a version."""
    of, data_s = run.of, 0.01
    tokens = elapsed = 0.0
    for step, seconds in enumerate(run.pace.tolist(), start=1):
        tokens, elapsed = tokens + of.seq_len, elapsed + seconds
        loss = run.loss(step)
        yield (
            f"[XTuner][RANK 0][{run.ends[step - 1]:%Y-%m-%d %H:%M:%S}][INFO] Step "
            f"{step}/{run.steps} data_time: {data_s:.4f} lr: {2e-5:.6f} time: "
            f"{seconds - data_s:.4f} text_tokens: {of.seq_len:.1f} total_loss: {loss:.3f}, "
            f"reduced_llm_loss: {loss:.3f} max_memory: {run.gib(step):.2f} GB "
            f"reserved_memory: 57.02 GB grad_norm: 0.900 "
            f"tgs: {of.seq_len / (seconds - data_s):.1f} "
            f"e2e_tgs: {tokens / elapsed:.1f} "
        )


def deepspeed(run: SimulatedRun) -> Iterator[str]:
    """The DeepSpeed engine: samples per second over all GPUs, without data loading."""
    of, data_s = run.of, 0.01
    timed = np.cumsum(run.pace[2:] - data_s)
    for place, text in (
        ("launch.py:170:main", f"dist_world_size={of.gpus}"),
        _engine(run),
        ("config.py:1007:print", f"  bfloat16_enabled ............. {of.precision == 'bf16'}"),
        ("config.py:1007:print", f"  fp16_enabled ................. {of.precision == 'fp16'}"),
        ("config.py:1007:print", "  gradient_accumulation_steps .. 1"),
        ("config.py:1007:print", f"  steps_per_print .............. {INTERVAL}"),
        ("config.py:1007:print", f"  train_batch_size ............. {of.gpus}"),
        ("config.py:1007:print", "  train_micro_batch_size_per_gpu  1"),
        ("config.py:1007:print", f"  world_size ................... {of.gpus}"),
        ("config.py:1007:print", "  zero_optimization_stage ...... 3"),
        ("logging.py:107:log_dist", "[Rank 0] step=0, skipped=0, lr=[0], mom=[(0.9, 0.95)]"),
    ):
        yield _deepspeed_line(run.began, place, text)
    for step in run.logged_steps:
        average = of.gpus * (step - 2) / float(timed[step - 3])
        current = of.gpus / float(run.pace[step - 1] - data_s)
        yield _deepspeed_line(
            run.ends[step - 1],
            "logging.py:107:log_dist",
            f"[Rank 0] step={step}, skipped=0, lr=[2e-05], mom=[(0.9, 0.95)]",
        )
        yield _deepspeed_line(
            run.ends[step - 1],
            "timer.py:264:stop",
            f"epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={average!r}, "
            f"CurrSamplesPerSec={current!r}, MemAllocated=31.15GB, "
            f"MaxMemAllocated={run.gib(step):.2f}GB",
        )


def megatron_deepspeed(run: SimulatedRun) -> Iterator[str]:
    """Megatron-DeepSpeed after 2024-08: recompute counted, attention full, no K and V."""
    of, shape = run.of, run.shape
    attention = shape.layers[0].attention
    h, s, layers, ffn = shape.hidden_size, of.seq_len, shape.layer_count, _width(shape)
    groups = attention.heads // attention.kv_heads
    linear = layers * (1 + 2 // groups + 1) * h**2 + layers * 3 * ffn * h
    passes = 4 if of.recompute == "full" else 3
    per_token = 2 * passes * (linear + 2 * layers * h * s + shape.vocab_size * h)
    yield (
        f"using world size: {of.gpus}, data-parallel-size: {of.gpus}, sequence-parallel size: 1, "
        "tensor-model-parallel size: 1, pipeline-model-parallel size: 1 "
    )
    yield "------------------------ arguments ------------------------"
    arguments = {
        "add_bias_linear": False,
        "add_position_embedding": False,
        "bf16": of.precision == "bf16",
        "checkpoint_activations": False,
        "data_parallel_size": of.gpus,
        "ffn_hidden_size": ffn,
        "fp16": of.precision == "fp16",
        "global_batch_size": of.gpus,
        "hidden_size": h,
        "kv_channels": h // attention.heads,
        "log_interval": INTERVAL,
        "max_position_embeddings": s,
        "micro_batch_size": 1,
        "normalization": "rmsnorm",
        "num_attention_heads": attention.heads,
        "num_experts": [1],
        "num_key_value_heads": attention.kv_heads,
        "num_layers": layers,
        "pipeline_model_parallel_size": 1,
        "recompute_granularity": "full" if of.recompute == "full" else None,
        "seq_length": s,
        "swiglu": True,
        "tensor_model_parallel_size": 1,
        "topk": 1,
        "train_iters": run.steps,
        "untie_embeddings_and_output_weights": True,
        "use_rotary_position_embeddings": True,
        "vocab_size": None,
        "world_size": of.gpus,
        "zero_stage": 3.0,
    }
    for key, value in arguments.items():
        yield f"  {key} {'.' * (48 - len(key))} {value}"
    yield "-------------------- end of arguments ---------------------"
    vocab = shape.vocab_size
    yield f" > padded vocab (size: {vocab}) with 0 dummy tokens (new size: {vocab})"
    yield _deepspeed_line(run.began, *_engine(run))
    yield f"[before the start of training step] datetime: {run.began:%Y-%m-%d %H:%M:%S} "
    for step in run.logged_steps:
        mean = run.mean_s(step - INTERVAL + 1, step)
        yield (
            f" iteration {step:8d}/{run.steps:8d} | consumed samples: {step * of.gpus:12d} | "
            f"consumed tokens: {step * of.gpus * s:12d} | elapsed time per iteration (ms): "
            f"{mean * 1000:.1f} | learning rate: {2e-5:.3E} | global batch size: {of.gpus:5d} | "
            f"lm loss: {run.loss(step):.6E} | loss scale: 1.0 | grad norm: 0.900 | actual seqlen: "
            f"{s:5d} | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} | "
            f"samples per second: {of.gpus / mean:.3f} | tokens per gpu per second (tgs): "
            f"{s / mean:.3f} | TFLOPs: {per_token * s / mean / 1e12:.2f} |"
        )
    yield f"[after training is done] datetime: {run.ends[-1]:%Y-%m-%d %H:%M:%S} "


def _milliseconds(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"


def _engine(run: SimulatedRun) -> tuple[str, str]:
    version = run.version(("0.16.5", "0.16.9", "0.17.2", "0.17.6"), "0.18.0+nightly.")
    text = f"[Rank 0] DeepSpeed info: version={version}, git-hash=unknown, git-branch=unknown"
    return "logging.py:107:log_dist", text


def _deepspeed_line(at: datetime, place: str, text: str) -> str:
    return f"[{_milliseconds(at)}] [INFO] [{place}] {text}"


def _width(shape: ModelShape) -> int:
    """Of the feed-forward blocks."""
    ffn = shape.layers[0].ffn
    assert ffn is not None
    return ffn.width


WRITERS: Final[dict[str, Callable[[SimulatedRun], Iterator[str]]]] = {
    "torchtitan": torchtitan,
    "xtuner": xtuner,
    "xtuner-v1": xtuner_v1,
    "deepspeed": deepspeed,
    "megatron-deepspeed": megatron_deepspeed,
}


def facts_beside(series: Series) -> str:
    """What its logs leave out, as a user would write it beside them: TOML."""
    device = f'accelerator = "{series.device}"\n'
    if series.framework == "megatron-deepspeed":
        return device
    if series.framework == "deepspeed":
        return (
            f'{device}model = "{series.named}"\nseq_len = {series.seq_len}\npacked = true\n'
            f'recompute = "{series.recompute}"\ntrainable = "full"\n'
        )
    if series.framework == "xtuner-v1":
        return (
            f'{device}gpus = {series.gpus}\nmodel = "{series.named}"\nseq_len = {series.seq_len}\n'
            f'precision = "{series.precision}"\nrecompute = "{series.recompute}"\n'
            'trainable = "full"\ndocument_mask = false\n'
        )
    unsaid = {"fp8": "fp8", "fp32": "tf32"}.get(series.precision)  # the log leaves it open
    return f'precision = "{unsaid}"\n' if unsaid and series.framework == "torchtitan" else ""


CRASH: Final = (
    "Traceback (most recent call last):",
    '  File "train.py", line 88, in <module>',
    "    loss.backward()",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
)


def write_night(
    folder: Path, night: int, plan: Plan, *, only: Sequence[int] | None = None
) -> list[Path]:
    """The logs of one night, `folder/SERIES/SERIES-DATE.log`; one path for each series.

    Beside them stands facts.toml, where the framework's log leaves something out. only: places of
    the series that ran; all, if not given.
    """
    paths = []
    for place in range(len(plan.series)) if only is None else only:
        series = plan.series[place]
        path = folder / series.name / f"{series.name}-{plan.on(night)}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name("facts.toml")
        if (facts := facts_beside(series)) and not beside.exists():
            beside.write_text(facts, encoding="utf-8")
        run = plan.run(place, night)
        lines = [*WRITERS[series.framework](run)]
        if run.crashed:
            lines = [*lines[: int(CRASHED_AFTER * len(lines))], *CRASH]
        path.write_text("\n".join([MARK, *lines]) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


# --- the nightly over them --------------------------------------------------------------------


@contextmanager
def without_report() -> Iterator[None]:
    """All of a night but drawing and writing its pages."""
    with (
        mock.patch.object(nightly, "_write", return_value=None),
        mock.patch.object(nightly, "_full_report", return_value=None),
    ):
        yield


def quiet_night(logs: Path, into: Path, out: Path) -> dict[str, Any]:
    """One night of the nightly in this process, without its pages; what summary.json would say.

    Parts that were merged go at once: a night later they would, and nights are minutes apart here.
    """
    order = nightly.NightlyOrder(sources=[logs], store=Store(into), out=out)
    with without_report(), mock.patch.object(transactions, "MERGED_PART_GRACE", timedelta(0)):
        night, code = nightly.nightly(order)
    assert code in (0, 3, 5), night.notes
    return night_outputs.summary(night)


# --- what was told of the nights, against what was planted ------------------------------------


@dataclass(frozen=True, kw_only=True)
class Told:
    """A change that a nightly report told in a night, as new: of which series, and where."""

    night: int
    series: int
    """Place in Plan.series."""
    kind: str
    """regression or improvement"""
    since: int
    """The first night behind the change."""
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What came of the planted changes, and what was told besides.

    found: planted changes with the nights that they took, 1 for the night of the change itself;
    missed: those that were never told; false: what was told and was not planted; series_years:
    how long the series were watched
    """

    found: list[tuple[Change, int]]
    missed: list[Change]
    false: list[Told]
    series_years: float

    def nights(self, size: float) -> list[int]:
        """What changes of this size took to be found, in nights; upwards and downwards."""
        return sorted(took for change, took in self.found if _is_of(change, size))

    def lost(self, size: float) -> int:
        """How many changes of this size were never told."""
        return sum(_is_of(change, size) for change in self.missed)


def _is_of(change: Change, size: float) -> bool:
    return math.isclose(abs(change.factor - 1), size)


def judge(plan: Plan, told: Sequence[Told], nights: int) -> Judged:
    """Each planted change takes the first that was told of its series, its way, since then.

    It has to be told before the next change of the series comes.
    """
    left = sorted(told, key=lambda one: one.night)
    found, missed = [], []
    for place, changes in plan.changes.items():
        planted = [c for c in changes if c.factor != 1 and c.night <= nights]
        for number, change in enumerate(planted):
            until = planted[number + 1].night if number + 1 < len(planted) else nights + 1
            kind = "regression" if change.factor < 1 else "improvement"
            match = next(
                (
                    one
                    for one in left
                    if (one.series, one.kind) == (place, kind) and change.night <= one.night < until
                ),
                None,
            )
            if match is None:
                missed.append(change)
            else:
                left.remove(match)
                found.append((change, match.night - change.night + 1))
    years = len(plan.series) * nights / 365
    return Judged(found=found, missed=missed, false=left, series_years=years)


def troubled_plan(seed: int, nights: int, series: Sequence[Series] = SERIES[::2]) -> Plan:
    """Crashes, gaps, growing memory, more memory, higher losses and slow starts in each series.

    Each kind in each series that prints its figure, in a random order; 40 nights are before the
    first, and troubles are evenly apart.
    """
    random = np.random.default_rng((seed, 0xFB))
    sizes = {"memory": 0.05, "growth": 0.10, "loss": 0.05, "start": 1.5}
    troubles: dict[int, tuple[Trouble, ...]] = {}
    for place, one in enumerate(series):
        unsaid = {
            "megatron-deepspeed": {"memory", "growth", "start"},
            "xtuner-v1": {"start"},
            "deepspeed": {"loss"},
        }
        kinds = [kind for kind in TROUBLES if kind not in unsaid.get(one.framework, set())]
        starts = np.linspace(40, nights - 12, len(kinds)).astype(int) + random.integers(0, 6)
        troubles[place] = tuple(
            Trouble(
                kind=str(kind),
                night=int(night),
                size=sizes.get(str(kind), 0.0),
                nights=3 if kind == "gap" else 1,
            )
            for kind, night in zip(random.permutation(kinds), starts, strict=True)
        )
    return Plan(seed=seed, series=tuple(series), troubles=troubles)


def judge_troubles(
    plan: Plan, told: Sequence[tuple[int, dict[str, Any]]]
) -> tuple[list[tuple[Trouble, int]], list[Trouble], list[tuple[int, dict[str, Any]]]]:
    """Return troubles with the nights until they were told, those never told, and what else was.

    told: night and finding, of the findings that a night told as new
    """
    names = {one.name: place for place, one in enumerate(plan.series)}
    left = [(night, one) for night, one in told if one["id"] in (*TROUBLES.values(), *OTHER_ALARMS)]
    found, missed = [], []
    for place, troubles in plan.troubles.items():
        for trouble in troubles:
            match = next(
                (
                    (night, one)
                    for night, one in left
                    if night >= trouble.night
                    and one["id"] == TROUBLES[trouble.kind]
                    and names[one["job"].removesuffix(", synthetic")] == place
                ),
                None,
            )
            if match is None:
                missed.append(trouble)
            else:
                left.remove(match)
                found.append((trouble, match[0] - trouble.night + 1))
    return found, missed, left


OTHER_ALARMS: Final = ("slower-steps", "slower-end-to-end", "more-failed-launches", "regression")
"""Findings that no trouble of a plan explains."""


def place_of(plan: Plan, name: str) -> tuple[int, int]:
    """Series and night of a run by its name."""
    series, day = name[:-11], date.fromisoformat(name[-10:])
    places = {one.name: place for place, one in enumerate(plan.series)}
    return places[series], (day - plan.first).days + 1


WITHIN: Final = {0.10: 3, 0.05: 3, 0.02: 10}
"""Nights in which changes of a size have to be found, at a noise of 0.5 % from run to run."""
FALSE_PER_SERIES_YEAR: Final = 0.1


def shortcomings(judged: Judged) -> Iterator[str]:
    """What was not found in time, or told too often and not planted."""
    for size, within in WITHIN.items():
        late = [took for took in judged.nights(size) if took > within]
        if late or judged.lost(size):
            yield f"{size:.0%}: {judged.lost(size)} not found, others only after {late} nights"
    if len(judged.false) > FALSE_PER_SERIES_YEAR * judged.series_years:
        yield f"{len(judged.false)} false alarms in {judged.series_years:.1f} series-years"


def told_by(plan: Plan, night: int, changes: Iterable[Mapping[str, Any]]) -> list[Told]:
    """The new changes among those of a night's summary.json (regressions, improvements)."""
    found = []
    for change in changes:
        if change["new"] and change["against"] == "history":
            place, since = place_of(plan, change["run"])
            ratio, kind = change["ratio"], change["kind"]
            found.append(Told(night=night, series=place, kind=kind, since=since, ratio=ratio))
    return found
