"""Run XTuner's own tools/train.py main(), on a CPU with what it needs there.

The shims touch no logging code. The wall clock seconds of each iteration, taken outside the
framework, go to truth.json. One Iter of XTuner is one micro-step: gradient accumulation does not
change what it counts.
"""

import itertools
import json
import os
import time
from pathlib import Path

import datasets
import mmengine.runner.loops as loops
import torch
from mmengine.model.wrappers import MMDistributedDataParallel

real_init = MMDistributedDataParallel.__init__


def init_on_cpu(self, module, device_ids=None, **kwargs):
    real_init(self, module, **kwargs)


if not torch.cuda.is_available():
    # XTuner asks its device module for these.
    torch.cpu.is_bf16_supported = lambda *_: True
    torch.cpu.empty_cache = lambda: None
    torch.cpu.reset_peak_memory_stats = lambda *_: None
    # mmengine calls this for every backend, and names a device of each rank; a CPU has none.
    torch.cuda.set_device = lambda *_: None
    MMDistributedDataParallel.__init__ = init_on_cpu


def in_this_process(method):
    """XTuner asks datasets for 32 worker processes."""
    return lambda self, *args, num_proc=None, **kwargs: method(self, *args, **kwargs)


for name in ("map", "filter", "flatten_indices"):
    setattr(datasets.Dataset, name, in_this_process(getattr(datasets.Dataset, name)))

moments: list[float] = []  # the start of the first iteration, then the end of each
shapes: list[tuple[int, ...]] = []  # samples and tokens of each, of every iteration
real_run_iter = loops.IterBasedTrainLoop.run_iter


def timed_run_iter(self: loops.IterBasedTrainLoop, batch: dict) -> None:
    if not moments:
        moments.append(time.perf_counter())
    shapes.append(tuple(batch["data"]["input_ids"].shape))
    real_run_iter(self, batch)
    moments.append(time.perf_counter())
    if len(moments) > self.max_iters:
        write_truth(self.runner.cfg.accumulative_counts)


def write_truth(accumulation: int) -> None:
    micro_batch, seq_len = shapes[0]
    tokens = [samples * length for samples, length in shapes]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    truth = {
        "steps": len(moments) - 1,
        "wall_s": [round(end - start, 6) for start, end in itertools.pairwise(moments)],
        "tokens_per_step": sum(tokens) / len(tokens) * ranks,  # an epoch may end with fewer
        "gpus": ranks,
        "seq_len": seq_len,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
    }
    if os.environ.get("RANK", "0") == "0":
        Path("truth.json").write_text(json.dumps(truth, indent=1))


loops.IterBasedTrainLoop.run_iter = timed_run_iter

from xtuner.tools import train  # noqa: E402

train.main()
