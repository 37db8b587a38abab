"""counters.py CONFIG SEQ_LEN LAYERS: one forward and backward pass of Hugging Face's Llama in bf16.

For `ncu --profile-from-start off --nvtx`: ranges "plain" (all activations kept), "recompute", and
"known", the product of two matrices of 7680 x 7680, which takes 2 * 7680^3 FLOPs.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

shape = json.loads(Path(sys.argv[1]).read_text()) | {"num_hidden_layers": int(sys.argv[3])}
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa", use_cache=False))
    ids = torch.randint(0, shape["vocab_size"], (2, int(sys.argv[2])))
    a, b = torch.randn(2, 7680, 7680)


def train() -> None:
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()


def counted(name: str, work: Callable[[], object]) -> None:
    """Once to warm up, once under the profiler."""
    work()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    with torch.cuda.nvtx.range(name):
        work()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


counted("known", lambda: a @ b)
model.train()
counted("plain", train)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
counted("recompute", train)
