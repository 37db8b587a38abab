"""Arguments of the Trainer and of tools around it mean the same, printed or in a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairmfu.ingest.formats.hugging_face.arguments import method_facts
from fairmfu.ingest.formats.hugging_face.command_line import command_facts
from fairmfu.ingest.formats.hugging_face.swift_lines import ARGUMENTS_BLOCK
from fairmfu.ingest.formats.hugging_face.trainer import python_arguments
from fairmfu.ingest.parse.record_sink import ParsedSource

Parse = Callable[..., ParsedSource]

PARTS = {"trainable": "full", "frozen_parts": "vision,projector"}
SEEN = "['model.vision_tower', 'model.audio_tower', 'model.embed_vision']"


@pytest.mark.parametrize(
    ("options", "arguments", "facts"),
    [
        (
            "--tuner_type full --packing true",
            {"tuner_type": "full", "packing": True},
            {"trainable": "full", "document_mask": "true"},
        ),
        (
            "--train_type full --freeze_vit true --freeze_aligner true",
            {"train_type": "full", "freeze_vit": True, "freeze_aligner": True},
            PARTS,
        ),
        (
            "--train_type full --freeze_llm true",
            {"train_type": "full", "freeze_llm": True},
            {"trainable": "frozen", "frozen_parts": "language"},
        ),
        (
            "--finetuning_type full --freeze_vision_tower False --packing True",
            {"finetuning_type": "full", "freeze_vision_tower": False, "packing": True},
            {"trainable": "full"},
        ),
        (
            "--train_type full --freeze_parameters_ratio 0.5",
            {"train_type": "full", "freeze_parameters_ratio": 0.5},
            {},
        ),
        (
            "--train_type full --freeze_parameters model.layers.0",
            {"train_type": "full", "freeze_parameters": ["model.layers.0"]},
            {},
        ),
        (
            "--train_type lora --lora_rank 8 --target_modules q_proj v_proj",
            {"train_type": "lora", "lora_rank": 8, "target_modules": ["q_proj", "v_proj"]},
            {"trainable": "lora", "lora_rank": "8", "lora_targets": "q_proj,v_proj"},
        ),
        (
            "--finetuning_type lora --lora_rank 8 --lora_target all --packing True",
            {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all", "packing": True},
            {"trainable": "lora", "lora_rank": "8", "lora_targets": "all-linear"},
        ),
        (
            "--fsdp 'full_shard auto_wrap offload' --attn_impl flash_attention_2",
            {"fsdp": "full_shard auto_wrap offload", "attn_impl": "flash_attention_2"},
            {"offload": "optimizer, parameters", "attention": "flash_attention_2"},
        ),
        (
            "--lora_enable True --lora_r 128",
            {"lora_enable": True, "lora_r": 128},
            {"trainable": "lora", "lora_rank": "128"},
        ),
        ("--lora_enable False --lora_r 128", {"lora_enable": False, "lora_r": 128}, {}),
        ("--fsdp cluster.json --flash_attn auto", {"fsdp": [], "flash_attn": "auto"}, {}),
        ("--packing true", {"packing": True}, {}),  # of TRL: its packs may share attention
    ],
)
def test_an_argument_means_the_same_in_a_command(
    options: str, arguments: dict[str, Any], facts: dict[str, str]
) -> None:
    micro = {"micro_batch_size": "2"}
    command = f"swift sft --per_device_train_batch_size 2 {options}"
    assert command_facts(command) == micro | facts
    assert method_facts({"per_device_train_batch_size": 2} | arguments) == micro | facts


@pytest.mark.parametrize(
    ("listed", "facts"),
    [
        (SEEN, PARTS),
        ("[]", {"trainable": "full"}),  # freeze_vit is set for models without images too
        (SEEN.replace("]", ", 'model.layers.0']"), {}),
    ],
)
def test_the_printed_parameters_show_which_parts_are_frozen(
    listed: str, facts: dict[str, str]
) -> None:
    lines = [
        "freeze_aligner=True,",
        "freeze_llm=False,",
        f"freeze_parameters={listed},",
        "freeze_parameters_ratio=0.0,",
        "freeze_parameters_regex=None,",
        "freeze_vit=True,",
        "trainable_parameters=[],",
        "tuner_type=full,",
    ]
    assert ARGUMENTS_BLOCK.read(lines) == facts


LAUNCHER = "python -u -m torch.distributed.launch --nproc_per_node 4 --nnodes 8 --master_port 6000"


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        (f"+ export 'LAUNCHER={LAUNCHER} '", "32"),
        (f"+ LAUNCHER='{LAUNCHER}     '", "32"),
        (f"+ {LAUNCHER} run_clm.py", "32"),
        ("+ srun --jobid 7 /opt/bin/torchrun --nproc-per-node=4 --nnodes=2 train.py", "8"),
        (f'LAUNCHER="{LAUNCHER} "', None),  # of a script that is echoed
        (f"export LAUNCHER='{LAUNCHER} '", None),
        ("+ torchrun --nproc_per_node gpu train.py", None),
        ("+ echo 'use torchrun --nproc_per_node 4 train.py'", None),
    ],
)
def test_a_traced_launcher_gives_the_gpus(line: str, gpus: str | None, parse: Parse) -> None:
    step = "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
    (launch,) = parse("hf-trainer", [line, step]).launches
    assert launch.last_value("gpus") == gpus


def test_each_launch_has_the_gpus_of_its_own_launcher(parse: Parse) -> None:
    steps = [
        "***** Running training *****",
        "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}",
        "{'train_runtime': 8.4, 'train_samples_per_second': 1.9, 'train_steps_per_second': 0.48, "
        "'train_loss': 2.5, 'epoch': 0.1}",
    ]
    more = f"+ LAUNCHER='{LAUNCHER} '".replace("--nnodes 8", "--nnodes 16")
    launches = parse("hf-trainer", [f"+ LAUNCHER='{LAUNCHER} '", *steps, more, *steps]).launches
    assert [launch.last_value("gpus") for launch in launches] == ["32", "64"]


def test_a_printed_engine_shows_its_sharding_offload_and_checkpointing() -> None:
    engine = (
        "{'zero_optimization': {'stage': 3, 'offload_param': {'device': 'cpu'}}, 'bf16': 'auto'}"
    )
    fsdp = "{'fsdp_version': 2, 'xla': {'on': False}, 'activation_checkpointing': True}"
    zero = {"zero_stage": "3", "offload": "parameters"}
    sharded = {"offload": "none", "recompute": "full"}
    for lines, facts in (
        ([f"deepspeed={engine},", "fsdp=[],", "fsdp_config=None,"], zero),
        (["deepspeed=None,", "fsdp=full_shard auto_wrap,", f"fsdp_config={fsdp},"], sharded),
    ):
        assert ARGUMENTS_BLOCK.read([*lines, "tuner_type=full,"]) == facts | {"trainable": "full"}
        assert python_arguments({"text": "\n".join(lines)}) == facts
        assert python_arguments({"text": " ".join(lines)}) == facts


def test_fsdp_may_be_printed_as_a_list_of_options() -> None:
    options = "<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.OFFLOAD: 'offload'>"
    assert python_arguments({"text": f"fsdp=[{options}],\nbf16=True,"}) == {
        "offload": "optimizer, parameters",
        "precision": "bf16",
    }
