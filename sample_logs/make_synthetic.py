"""Write one imaginary run as each framework would have logged it: sample_logs/synthetic/.

    python sample_logs/make_synthetic.py

Llama-3-8B on 8 H100, 8,192 tokens, bf16, full recompute: no GPU was at hand, so the run is made
up, and every file says `synthetic` in its first line. The lines have each framework's exact form,
and each figure in them is what that framework's own formula gives for this run. So the logs
disagree as real ones do, and fairmfu has to find one TGS and one MFU in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

MARK: Final = "# synthetic log: written by sample_logs/make_synthetic.py, no such run took place"
HERE: Final = Path(__file__).parent / "synthetic"


@dataclass(frozen=True, kw_only=True)
class ImaginaryRun:
    """One training run of Llama-3-8B; `step_s` has the seconds of each step, the first included."""

    step_s: Sequence[float]
    gpus: int = 8
    seq_len: int = 8192
    log_interval: int = 10
    started: datetime = datetime(2026, 11, 2, 9, 0, 0)  # noqa: DTZ001 - logs have no zone
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    ffn: int = 14336
    vocab: int = 128256
    params: int = 8_030_261_248
    accelerator: str = "NVIDIA H100 80GB HBM3"

    @property
    def steps(self) -> int:
        """Optimizer steps, each of one sequence per GPU."""
        return len(self.step_s)

    def loss(self, step: int) -> float:
        """A plausible loss."""
        return 2.2 + 9.8 * math.exp(-step / 60)

    def ends(self) -> list[datetime]:
        """When each step ends."""
        return [self.started + timedelta(seconds=s) for s in accumulate(self.step_s)]

    def logged_steps(self) -> list[int]:
        """Steps that a logger with this interval prints, without the first."""
        return list(range(self.log_interval, self.steps + 1, self.log_interval))

    def mean_s(self, first: int, last: int) -> float:
        """Mean seconds of the steps first to last, both included."""
        return sum(self.step_s[first - 1 : last]) / (last - first + 1)


def torchtitan(run: ImaginaryRun) -> Iterator[str]:
    """torchtitan 0.2.2 (S9): tflops of 6(N - embedding) + 12 l h q T, mfu over 989e12."""
    flops = 6 * (run.params - run.vocab * run.hidden) + 12 * run.layers * run.hidden * run.seq_len
    ends = run.ends()

    def line(at: datetime, text: str) -> str:
        stamp = at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03d}"
        return f"[rank0]:[titan] {stamp} - root - INFO - {text}"

    begin = run.started
    batch = f"local batch size 1, global batch size {run.gpus}, gradient accumulation steps 1"
    for text in (
        "torchtitan version: 0.2.2 (0.0.0 means __version__ is not defined correctly).",
        "Starting job: Llama 3 8B training",
        f"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard={run.gpus}, cp=1, "
        "tp=1, ep=1, etp=1",
        f"CUDA capacity: {run.accelerator} with 79.11GiB memory",
        f"Model llama3 8B size: {run.params:,} total parameters",
        "Applied full activation checkpointing to the model",
        "Applied FSDP to the model",
        "Peak FLOPS used for computing MFU: 9.890e+14",
        "Preparing c4 dataset from allenai/c4",
        f"Trainer is initialized with {batch}, sequence length {run.seq_len}, total steps "
        f"{run.steps} (warmup 40)",
        "Training starts at step 1",
    ):
        yield line(begin, text)
    before = 0
    for step in [1, *run.logged_steps()]:
        tps = run.seq_len / run.mean_s(before + 1, step)
        yield line(
            ends[step - 1],
            f"step: {step:2}  loss: {run.loss(step):8.5f}  grad_norm: {0.9:7.4f}  memory: "
            f"{44.21:5.2f}GiB({55.88:.2f}%)  tps: {round(tps):,}  tflops: {flops * tps / 1e12:,.2f}"
            f"  mfu: {100 * flops * tps / 989e12:.2f}%",
        )
        before = step
    yield line(ends[-1], "Training completed")


def xtuner(run: ImaginaryRun) -> Iterator[str]:
    """XTuner 0.2.0 with ThroughputHook: recompute counted, causal halved, GQA taken for MHA."""
    ratio = 1.5 * run.ffn / run.hidden
    layer = (8 + 4 * ratio) * run.hidden**2 + 4 * run.seq_len * run.hidden / 2
    flops = 4 * run.layers * layer + 6 * run.hidden * run.vocab
    start = run.started.strftime("%Y/%m/%d %H:%M:%S")
    devices = ",".join(map(str, range(run.gpus)))
    yield f"{start} - mmengine - INFO - "
    yield from f"""{"-" * 60}
System environment:
    sys.platform: linux
    CUDA available: True
    GPU {devices}: {run.accelerator}
    PyTorch: 2.6.0+cu124
    MMEngine: 0.10.7

Runtime environment:
    launcher: pytorch
    Distributed launcher: pytorch
    Distributed training: True
    GPU number: {run.gpus}
{"-" * 60}
""".splitlines()
    yield f"{start} - mmengine - INFO - Config:"
    yield from f"""accumulative_counts = 1
batch_size = 1
default_hooks = dict(
    logger=dict(interval={run.log_interval}, type='mmengine.hooks.LoggerHook'))
log_processor = dict(by_epoch=False, window_size={run.log_interval})
max_length = {run.seq_len}
model = dict(
    llm=dict(
        pretrained_model_name_or_path='meta-llama/Meta-Llama-3-8B',
        type='transformers.AutoModelForCausalLM.from_pretrained'),
    type='xtuner.model.SupervisedFinetune',
    use_activation_checkpointing=True,
    use_varlen_attn=False)
pack_to_max_length = True
strategy = dict(
    config=dict(
        bf16=dict(enabled=True),
        fp16=dict(enabled=False),
        zero_optimization=dict(stage=3)),
    gradient_accumulation_steps=1,
    sequence_parallel_size=1,
    type='xtuner.engine.DeepSpeedStrategy')
train_cfg = dict(max_iters={run.steps}, type='xtuner.engine.runner.TrainLoop')
train_dataloader = dict(
    batch_size=1,
    dataset=dict(max_length={run.seq_len}, pack_to_max_length=True, use_varlen_attn=False))
""".splitlines()
    yield f"{start} - mmengine - INFO - Checkpoints will be saved to work_dirs/llama3_8b."
    ends = run.ends()
    for step in run.logged_steps():
        mean, last = run.mean_s(step - run.log_interval + 1, step), run.step_s[step - 1]
        tgs = run.seq_len / last
        eta = str(timedelta(seconds=int(mean * (run.steps - step))))
        yield (
            f"{ends[step - 1].strftime('%Y/%m/%d %H:%M:%S')} - mmengine - INFO - Iter(train) "
            f"[{step:{len(str(run.steps))}d}/{run.steps}]  lr: {2e-5:.4e}  eta: {eta}  time: "
            f"{mean:.4f}  data_time: {0.0102:.4f}  memory: 45271  loss: {run.loss(step):.4f}  "
            f"tflops: {flops * tgs / 1e12:.4f}  tokens_per_sec: {tgs:.4f}"
        )


def xtuner_v1(run: ImaginaryRun) -> Iterator[str]:
    """XTuner v1 (variant C), rank 0: tgs leaves data loading out; no FLOPs at all."""
    data_s, tokens = 0.01, 0.0
    elapsed = 0.0
    for step, (seconds, end) in enumerate(zip(run.step_s, run.ends(), strict=True), start=1):
        tokens, elapsed = tokens + run.seq_len, elapsed + seconds
        loss = run.loss(step)
        yield (
            f"[XTuner][RANK 0][{end.strftime('%Y-%m-%d %H:%M:%S')}][INFO] Step {step}/{run.steps} "
            f"data_time: {data_s:.4f} lr: {2e-5:.6f} time: {seconds - data_s:.4f} text_tokens: "
            f"{run.seq_len:.1f} total_loss: {loss:.3f}, reduced_llm_loss: {loss:.3f} max_memory: "
            f"43.18 GB reserved_memory: 47.02 GB grad_norm: 0.900 tgs: "
            f"{run.seq_len / (seconds - data_s):.1f} e2e_tgs: {tokens / elapsed:.1f} "
        )


def _deepspeed_line(at: datetime, place: str, text: str) -> str:
    stamp = at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03d}"
    return f"[{stamp}] [INFO] [{place}] {text}"


def deepspeed(run: ImaginaryRun) -> Iterator[str]:
    """The DeepSpeed 0.16.9 engine: samples per second over all GPUs, without data loading."""
    data_s, ends = 0.01, run.ends()
    for place, text in (
        ("launch.py:170:main", f"dist_world_size={run.gpus}"),
        (
            "logging.py:107:log_dist",
            "[Rank 0] DeepSpeed info: version=0.16.9, git-hash=unknown, git-branch=unknown",
        ),
        ("config.py:1007:print", "  bfloat16_enabled ............. True"),
        ("config.py:1007:print", "  gradient_accumulation_steps .. 1"),
        ("config.py:1007:print", f"  steps_per_print .............. {run.log_interval}"),
        ("config.py:1007:print", f"  train_batch_size ............. {run.gpus}"),
        ("config.py:1007:print", "  train_micro_batch_size_per_gpu  1"),
        ("config.py:1007:print", f"  world_size ................... {run.gpus}"),
        ("config.py:1007:print", "  zero_optimization_stage ...... 3"),
        ("logging.py:107:log_dist", "[Rank 0] step=0, skipped=0, lr=[0], mom=[(0.9, 0.95)]"),
    ):
        yield _deepspeed_line(run.started, place, text)
    for step in run.logged_steps():
        timed = [seconds - data_s for seconds in run.step_s[2:step]]
        average, current = run.gpus * len(timed) / sum(timed), run.gpus / timed[-1]
        yield _deepspeed_line(
            ends[step - 1],
            "logging.py:107:log_dist",
            f"[Rank 0] step={step}, skipped=0, lr=[2e-05], mom=[(0.9, 0.95)]",
        )
        yield _deepspeed_line(
            ends[step - 1],
            "timer.py:264:stop",
            f"epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={average!r}, "
            f"CurrSamplesPerSec={current!r}, MemAllocated=31.15GB, MaxMemAllocated=43.18GB",
        )


def megatron_deepspeed(run: ImaginaryRun) -> Iterator[str]:
    """Megatron-DeepSpeed after 2024-08 (MSnew): recompute counted, attention full, no K and V."""
    h, s, groups = run.hidden, run.seq_len, run.heads // run.kv_heads
    linear = run.layers * (1 + 2 // groups + 1) * h**2 + run.layers * 3 * run.ffn * h
    per_token = 2 * 4 * (linear + 2 * run.layers * h * s + run.vocab * h)
    yield (
        f"using world size: {run.gpus}, data-parallel-size: {run.gpus}, sequence-parallel size: 1, "
        "tensor-model-parallel size: 1, pipeline-model-parallel size: 1 "
    )
    yield "------------------------ arguments ------------------------"
    arguments = {
        "add_bias_linear": False,
        "add_position_embedding": False,
        "bf16": True,
        "checkpoint_activations": False,
        "data_parallel_size": run.gpus,
        "ffn_hidden_size": run.ffn,
        "fp16": False,
        "global_batch_size": run.gpus,
        "hidden_size": h,
        "kv_channels": h // run.heads,
        "log_interval": run.log_interval,
        "max_position_embeddings": s,
        "micro_batch_size": 1,
        "normalization": "rmsnorm",
        "num_attention_heads": run.heads,
        "num_experts": [1],
        "num_key_value_heads": run.kv_heads,
        "num_layers": run.layers,
        "pipeline_model_parallel_size": 1,
        "recompute_granularity": "full",
        "seq_length": s,
        "swiglu": True,
        "tensor_model_parallel_size": 1,
        "topk": 1,
        "train_iters": run.steps,
        "untie_embeddings_and_output_weights": True,
        "use_rotary_position_embeddings": True,
        "vocab_size": None,
        "world_size": run.gpus,
        "zero_stage": 3.0,
    }
    for key, value in sorted(arguments.items()):
        yield f"  {key} {'.' * (48 - len(key))} {value}"
    yield "-------------------- end of arguments ---------------------"
    yield f" > padded vocab (size: {run.vocab}) with 0 dummy tokens (new size: {run.vocab})"
    for step in run.logged_steps():
        mean = run.mean_s(step - run.log_interval + 1, step)
        tgs = s / mean
        yield (
            f" iteration {step:8d}/{run.steps:8d} | consumed samples: {step * run.gpus:12d} | "
            f"consumed tokens: {step * run.gpus * s:12d} | elapsed time per iteration (ms): "
            f"{mean * 1000:.1f} | learning rate: {2e-5:.3E} | global batch size: {run.gpus:5d} | "
            f"lm loss: {run.loss(step):.6E} | loss scale: 1.0 | grad norm: 0.900 | actual seqlen: "
            f"{s:5d} | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} | "
            f"samples per second: {run.gpus / mean:.3f} | tokens per gpu per second (tgs): "
            f"{tgs:.3f} | TFLOPs: {per_token * tgs / 1e12:.2f} |"
        )


WRITERS: Final[dict[str, Callable[[ImaginaryRun], Iterator[str]]]] = {
    "torchtitan": torchtitan,
    "xtuner": xtuner,
    "xtuner-v1": xtuner_v1,
    "deepspeed": deepspeed,
    "megatron-deepspeed": megatron_deepspeed,
}

# What each format leaves out, as a user would write it beside the log.
SIDECARS: Final[dict[str, str]] = {
    "torchtitan": "",
    "xtuner": "",
    "xtuner-v1": """\
# XTuner v1 logs neither devices, model, length nor number format.
gpus = 8
accelerator = "NVIDIA H100 80GB HBM3"
model = "meta-llama/Meta-Llama-3-8B"
seq_len = 8192
precision = "bf16"
recompute = "full"
trainable = "full"
document_mask = false
""",
    "deepspeed": """\
# The engine knows samples: no tokens, no model, no device.
accelerator = "NVIDIA H100 80GB HBM3"
model = "meta-llama/Meta-Llama-3-8B"
seq_len = 8192
packed = true
recompute = "full"
trainable = "full"
""",
    "megatron-deepspeed": """\
# Megatron-DeepSpeed prints all but the device.
accelerator = "NVIDIA H100 80GB HBM3"
""",
}


def demo_run(decades: int = 20) -> ImaginaryRun:
    """200 steps of about 1.28 s; step 1 starts up, and the speed drifts by 1 % between decades.

    Formats leave out different parts of the first ten steps, so these run at the mean of the rest.
    Behind them single steps differ by up to 3 %, and each five of them by nothing.
    """
    drift = [1.28 * (1 + 0.01 * math.sin(1.7 * k)) for k in range(1, decades)]
    first = sum(drift) / len(drift)
    jitter = (0.03, -0.01, 0.02, -0.03, -0.01, 0.01, -0.02, 0.03, -0.02, 0.0)
    step_s = [first] * 10 + [seconds * (1 + j) for seconds in drift for j in jitter]
    return ImaginaryRun(step_s=[9.6, *step_s[1:]])


def write(run: ImaginaryRun, folder: Path) -> list[Path]:
    """One log and one sidecar per format; the paths of the logs."""
    paths = []
    for name, writer in WRITERS.items():
        path = folder / name / f"llama3-8b-8xh100-{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([MARK, *writer(run)]) + "\n", encoding="utf-8")
        if SIDECARS[name]:
            path.with_name("facts.toml").write_text(SIDECARS[name], encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write(demo_run(), HERE):
        print(written)
