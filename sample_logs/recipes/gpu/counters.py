"""counters.py CONFIG SEQ_LEN LAYERS CASE: a forward and a backward pass of Hugging Face's model in bf16.

For `ncu --profile-from-start off`, which counts behind one such pass to warm up. CONFIG has a
model_type; 2 sequences. CASE is "plain" (all activations kept), "recompute" (none of a layer's),
"lora" (peft's adapters of rank 64 on all projections, everything else frozen), or "known": the
product of two matrices of 7680 x 7680, which takes 2 * 7680^3 FLOPs.

On standard output: a line for each layer of experts with the tokens that each of them was given.
"""

import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

config, seq_len, layers, case = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
shape = json.loads(config.read_text()) | {"num_hidden_layers": layers}
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**shape, use_cache=False), attn_implementation="sdpa"
    )
    ids = torch.randint(0, shape["vocab_size"], (2, seq_len))
    a, b = torch.randn(2, 7680, 7680)

model.train()
if case == "recompute":
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
if case == "lora":
    from peft import LoraConfig, get_peft_model

    adapters = LoraConfig(r=64, target_modules="all-linear")
    model = get_peft_model(model, adapters, autocast_adapter_dtype=False)


def tell(experts: nn.Module, given: tuple[Tensor, ...]) -> None:
    """given: hidden states, the experts of each token, their weights."""
    counts = torch.bincount(given[1].flatten(), minlength=experts.num_experts)
    print(*counts.tolist(), sep=",", flush=True)


def work() -> None:
    if case == "known":
        a @ b
    else:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    torch.cuda.synchronize()


work()
for module in model.modules():
    if type(module).__name__.endswith("Experts"):
        module.register_forward_pre_hook(tell)
torch.cuda.cudart().cudaProfilerStart()
work()
torch.cuda.cudart().cudaProfilerStop()
