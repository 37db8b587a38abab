"""Run torchtitan's own main(), on a CPU with what it needs there (cpu.py).

Rank 0 writes the wall clock seconds of each step, taken outside the framework, to $TRUTH. With
$CRASH_IN_STEP, that step raises an exception before it has begun.
"""

import functools
import itertools
import json
import os
import time

import torch

if not torch.cuda.is_available():
    import cpu  # noqa: F401 - before torchtitan

try:
    import torchtitan.trainer as titan  # 0.3.0
    from torchtitan.train import main
except ImportError:
    import torchtitan.train as titan  # 0.2.2

    main = functools.partial(titan.main, titan.Trainer)

moments: list[float] = []  # the start of the first step, then the end of each
first_step: list[int] = []
real_train_step, real_close = titan.Trainer.train_step, titan.Trainer.close


def timed_train_step(self: titan.Trainer, batches: object) -> object:
    if not moments:
        moments.append(time.perf_counter())
        first_step.append(self.step)
    if str(self.step) == os.environ.get("CRASH_IN_STEP"):
        raise RuntimeError(f"the recipe stops step {self.step}")
    result = real_train_step(self, batches)
    moments.append(time.perf_counter())
    return result


def close_and_write(self: titan.Trainer) -> None:
    if os.environ["RANK"] == "0" and moments:
        ranks = int(os.environ["WORLD_SIZE"])
        training = (self.config if hasattr(self, "config") else self.job_config).training
        accumulation = self.gradient_accumulation_steps
        truth = {
            "first_step": first_step[0],
            "steps": len(moments) - 1,
            "wall_s": [round(end - start, 6) for start, end in itertools.pairwise(moments)],
            "tokens_per_step": training.local_batch_size * accumulation * ranks * training.seq_len,
            "gpus": ranks,
            "seq_len": training.seq_len,
            "micro_batch": training.local_batch_size,
            "accumulation": accumulation,
        }
        with open(os.environ["TRUTH"], "w") as file:
            json.dump(truth, file, indent=1)
    real_close(self)


titan.Trainer.train_step, titan.Trainer.close = timed_train_step, close_and_write
main()
