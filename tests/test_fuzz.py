"""Hostile inputs: a short run of the targets that `make fuzz` runs long, and what it found."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Final

import pytest
from fuzz_targets import BY_NAME, TARGETS, Target, mutated

INPUTS: Final = int(os.environ.get("FAIRMFU_FUZZ") or 100)
"""Of each target; those of `COSTLY` get fewer."""
COSTLY: Final = {"store": 5, "report": 5, "facts": 2, "events": 2}


def tried(target: Target, data: bytes, folder: Path) -> str:
    """What is wrong with an input, empty where nothing is."""
    finding = target.watched(data, folder).finding
    return f"{finding.kind}: {finding.text}\n{data[:2000]!r}" if finding else ""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_inputs_find_nothing(target: Target, tmp_path: Path) -> None:
    draw = Random(target.name)  # noqa: S311 - no secret
    seeds, words = target.seeds(), list(target.words())
    count = INPUTS // COSTLY.get(target.name, 1)
    for _ in range(count):
        data = mutated(draw.choice(seeds), draw, words)[: target.longest]
        assert tried(target, data, tmp_path) == ""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_find_nothing(target: Target, tmp_path: Path) -> None:
    """Nor is a check vain: they are what the program reads."""
    for seed in target.seeds()[:: COSTLY.get(target.name, 1)]:
        assert tried(target, seed, tmp_path) == ""


LONG: Final = b"9" * 5000
"""More digits than Python makes a number of, or prints of one."""
DEEP: Final = b"[" * 5000
OWN: Final = rb"""name = "own"
framework = "torchtitan"
looks_like_step = 'it \d+'
evidence = ["rate"]
rate_covers = "step"
[[steps]]
regex = '%s'
columns = { step = "step", tgs = "logged_tgs" }
example = "it 3 |tgs| 12.5"
"""
SHAPE: Final = b"""\0{"model_type": "%s", "hidden_size": 64, "num_hidden_layers": %s,
"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
"vocab_size": 100, "num_experts": 8, "num_experts_per_tok": %s, "moe_intermediate_size": 48,
"mlp_only_layers": %s, "tie_word_embeddings": false}"""
FOUND: Final = (
    # whole numbers that Python refuses to read or to print, tables in tables without an end
    *(("facts", beside + b"gpus = " + LONG) for beside in (b"\0", b"\1", b"\5")),
    ("facts", b"\0gpus = 0x" + b"f" * 5000),
    ("facts", b"\4seq_len: {value: " + LONG + b"}"),
    ("facts", b"\4seq_len: {value: 0x" + b"f" * 5000 + b"}"),
    ("facts", b"\0gpus = " + DEEP),
    *(("config", b"\0wait = " + value) for value in (LONG, b"0x" + b"f" * 5000, DEEP)),
    *(
        ("config", b"\1[[accelerator]]\nname = " + value)
        for value in (LONG, b"0x" + b"f" * 5000, DEEP)
    ),
    (
        "config",
        b'\1[[accelerator]]\nname = "a"\nunit = "b"\nsource = "c"\npeaks = { bf16 = 1%s }'
        % (b"0" * 400),
    ),
    ("formats", b"name = " + LONG),
    # what can be no path
    *(("config", b'\0store = "' + path + b'"') for path in (b"~nosuchuser/x", b"a\\u0000b")),
    *(("config", b'\0sources = ["' + path + b'"]') for path in (b"~nosuchuser/x", b"\\u0000*")),
    # patterns that do not stand beside others
    ("formats", OWN % rb"(?i)IT (?P<step>\d+) .tgs. (?P<tgs>[\d.]+)"),
    ("formats", OWN % rb"it (?P<step>\d+) (?P<q>.)tgs(?P=q) (?P<tgs>[\d.]+)"),
    ("formats", OWN.replace(rb"'it \d+'", rb"'(?i)it \d+'") % rb"it (?P<step>\d+) .+ (?P<tgs>\S+)"),
    # shapes of no model: layers by the billion, more experts for a token than there are
    *(("models", SHAPE % (b"qwen3", layers, b"2", b"[]")) for layers in (b"1000000000", b"1" * 60)),
    ("models", SHAPE % (b"qwen3_moe", b"6", b"1000000000", b"[]")),
    ("models", SHAPE % (b"qwen3_moe", b"6", b"2", b"[[5]]")),
    *(
        (
            "models",
            b'\2{"dim": 4, "n_layers": 2, "n_heads": 4, "vocab_size": 10, "multiple_of": 8, '
            b'"ffn_dim_multiplier": %s}' % factor,
        )
        for factor in (b"1e307", b"1e308")
    ),
    # a character that no SVG holds: the library that draws ended the process
    *(("report", text) for text in (b"\0\n\0\n\0\n\0", b"\x1b[0m\na\nb\nc", b"\xef\xbf\xbe")),
)


@pytest.mark.parametrize(
    ("name", "data"), FOUND, ids=[f"{n}-{i}" for i, (n, _) in enumerate(FOUND)]
)
def test_what_was_found_is_mended(name: str, data: bytes, tmp_path: Path) -> None:
    assert tried(BY_NAME[name], data, tmp_path) == ""
