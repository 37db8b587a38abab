"""Run torchtitan's own main() on a CPU.

Torchtitan expects a GPU. The shims below give it what it asks for; none of them touches logging
code, but one feeds the `memory:` field of the step line (peak resident memory of the process
instead of device memory). Rank 0 writes the wall clock seconds of each step, taken outside the
framework, to $TRUTH. With $CRASH_IN_STEP, that step raises an exception before it has begun.
"""

import functools
import itertools
import json
import os
import resource
import time
import types

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

# Where torch finds no accelerator, torchtitan falls back to "cuda".
torch._utils._get_available_device_type = lambda: "cpu"


def from_proc(path: str, key: str) -> str:
    """The value of the first "key : value" line."""
    with open(path) as lines:
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))


def device_name(*_: object) -> str:
    return from_proc("/proc/cpuinfo", "model name")


def device_properties(*_: object) -> types.SimpleNamespace:
    kibibytes = int(from_proc("/proc/meminfo", "MemTotal").split()[0])
    return types.SimpleNamespace(total_memory=kibibytes * 1024, name=device_name())


def memory_stats(*_: object) -> dict[str, int]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "active_bytes.all.peak": peak,
        "reserved_bytes.all.peak": peak,
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


# torch.cpu lacks these members, which torchtitan expects of every device module.
torch.cpu.get_device_name = device_name
torch.cpu.get_device_properties = device_properties
torch.cpu.memory_stats = memory_stats
torch.cpu.reset_peak_memory_stats = lambda *_: None
torch.cpu.empty_cache = lambda: None
torch.cpu.current_device = lambda: 0

# gloo takes no device_ids.
real_barrier = dist.barrier


@functools.wraps(real_barrier)
def barrier(*args: object, device_ids: object = None, **kwargs: object) -> object:
    return real_barrier(*args, **kwargs)


dist.barrier = dist.distributed_c10d.barrier = barrier

# gloo cannot average: sum and divide, as FSDPModule.set_force_sum_reduction_for_comms(True) does.
real_divide_factors = _fsdp_collectives._get_gradient_divide_factors


def divide_factors(group, all_reduce_group, dtype, device="", factor=None, force_sum=False):
    return real_divide_factors(group, all_reduce_group, dtype, device, factor, True)


_fsdp_collectives._get_gradient_divide_factors = divide_factors

# torchtitan 0.3.0 calls this member of a torch nightly to shorten the timeout after step 1.
if not hasattr(dist, "set_timeout"):
    dist.set_timeout = lambda *_, **__: None

try:
    import torchtitan.models.common.attention as attention  # 0.3.0
except ImportError:
    pass  # 0.2.2 has plain SDPA
else:
    from torch.nn.attention.flex_attention import create_mask

    masks: dict[int, tuple[object, torch.Tensor]] = {}

    def dense_attention(q, k, v, *, block_mask=None, scale=None, enable_gqa=False, **_):
        """FlexAttention has no backward on CPU: the same block-causal mask through SDPA."""
        cached, mask = masks.get(id(block_mask), (None, None))
        if cached is not block_mask:
            masks.clear()
            mask = create_mask(
                block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device="cpu"
            )
            masks[id(block_mask)] = (block_mask, mask)
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )
        return out, None

    attention.FlexAttention._compiled_flex_attn = staticmethod(dense_attention)
    attention._compiled_create_block_mask = attention.create_block_mask

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
