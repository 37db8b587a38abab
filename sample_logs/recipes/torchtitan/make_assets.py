"""make_assets.py DIR: a byte-level BPE tokenizer and synthetic texts, so nothing is downloaded."""

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

folder = Path(sys.argv[1])
(folder / "tokenizer").mkdir(parents=True, exist_ok=True)
(folder / "corpus").mkdir(exist_ok=True)

chance = random.Random(0)
syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
words = [
    "".join(chance.choice(syllables) for _ in range(chance.randint(1, 4))) for _ in range(1500)
]
zipf = [1 / rank for rank in range(1, len(words) + 1)]


def sentence() -> str:
    return " ".join(chance.choices(words, zipf, k=chance.randint(5, 20))).capitalize() + "."


texts = [" ".join(sentence() for _ in range(chance.randint(5, 40))) for _ in range(2000)]
with open(folder / "corpus" / "data.json", "w") as corpus:
    corpus.writelines(json.dumps({"text": text}) + "\n" for text in texts)

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(
    texts,
    trainers.BpeTrainer(
        vocab_size=1900,  # below the 2048 of the debug models
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ),
)
tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
settings = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "add_bos_token": True,
    "add_eos_token": True,
    "tokenizer_class": "PreTrainedTokenizerFast",
}
(folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
