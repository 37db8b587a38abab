"""What torchtitan needs on a CPU, for it expects a GPU: imported before it.

None of these shims touches logging code, but one feeds the `memory:` field of the step line (peak
resident memory of the process instead of device memory).
"""

import functools
import resource
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
