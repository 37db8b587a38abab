"""make_llama.py CONFIG DIR: a random Llama of that shape, with the tokenizer that lies in DIR/../tiny_llama."""

import shutil
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config, folder = Path(sys.argv[1]), Path(sys.argv[2])
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = LlamaForCausalLM(LlamaConfig.from_json_file(config))
model.save_pretrained(folder)
for file in (folder.parent / "tiny_llama").glob("*token*"):
    shutil.copy(file, folder)
