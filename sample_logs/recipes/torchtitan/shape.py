"""Torchtitan's Llama 3 in the shape of $MODEL_CONFIG, as flavor "custom" (0.2.2).

Given by --experimental.custom_import shape.
"""

import json
import os
from pathlib import Path

from torchtitan.models.llama3 import TransformerModelArgs, llama3_args

shape = json.loads(Path(os.environ["MODEL_CONFIG"]).read_text())
args = TransformerModelArgs(
    dim=shape["hidden_size"],
    n_layers=shape["num_hidden_layers"],
    n_heads=shape["num_attention_heads"],
    n_kv_heads=shape["num_key_value_heads"],
    vocab_size=shape["vocab_size"],
    rope_theta=shape["rope_theta"],
)
ffn = -(-(8 * args.dim // 3) // args.multiple_of) * args.multiple_of
assert ffn == shape["intermediate_size"], f"torchtitan rounds the feed-forward size to {ffn}"
llama3_args["custom"] = args
