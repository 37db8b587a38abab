"""make_assets.py DIR [WORDS]: tiny random Llama and Qwen2, a tokenizer, synthetic Alpaca-style rows.

Answers have a sixth of WORDS (60) to all of them.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

folder, words_at_most = Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 60
folder.mkdir(parents=True, exist_ok=True)

chance = random.Random(0)
syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
words = [
    "".join(chance.choice(syllables) for _ in range(chance.randint(1, 4))) for _ in range(1500)
]
zipf = [1 / rank for rank in range(1, len(words) + 1)]


def phrase(shortest: int, longest: int) -> str:
    return " ".join(chance.choices(words, zipf, k=chance.randint(shortest, longest)))


rows = [
    {
        "instruction": phrase(4, 10) + "?",
        "input": "",
        "output": phrase(words_at_most // 6, words_at_most) + ".",
    }
    for _ in range(1500)
]
(folder / "train.json").write_text(json.dumps(rows))

bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.train_from_iterator(
    [row["instruction"] + row["output"] for row in rows],
    trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ),
)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
)

shape = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
torch.manual_seed(0)
for name, model in (
    ("tiny_llama", LlamaForCausalLM(LlamaConfig(**shape))),
    ("tiny_qwen2", Qwen2ForCausalLM(Qwen2Config(**shape))),
):
    model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)
