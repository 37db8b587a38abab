"""What Unsloth and Axolotl print before the Hugging Face Trainer trains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import PROCESS_SUM_UNKNOWN
from tests.support.kinds import of_kind
from tests.support.one_log import tables_of

DEVICE = (
    "==((====))==  Unsloth 2025.5.7: Fast Llama patching. Transformers: 4.51.3.",
    "   \\\\   /|    NVIDIA H100 80GB HBM3. Num GPUs = 8. Max memory: 79.19 GB. Platform: Linux.",
    "O^O/ \\_/ \\    Torch: 2.7.0+cu126. CUDA: 9.0. CUDA Toolkit: 12.6. Triton: 3.3.0",
    "\\        /    Bfloat16 = TRUE. FA [Xformers = None. FA2 = True]",
    ' "-____-"     Free license: http://github.com/unslothai/unsloth',
)
OLD_DEVICE = (
    "==((====))==  Unsloth: Fast Llama patching release 2024.4",
    "   \\\\   /|    GPU: Tesla T4. Max memory: 14.748 GB. Platform = Linux.",
    "O^O/ \\_/ \\    Pytorch: 2.2.1+cu121. CUDA = 7.5. CUDA Toolkit = 12.1.",
    "\\        /    Bfloat16 = FALSE. Xformers = 0.0.25.post1. FA = False.",
    ' "-____-"     Free Apache license: http://github.com/unslothai/unsloth',
)


def begun(used: int, ranks: int, *, micro: int = 4, share: str = "1.18") -> tuple[str, ...]:
    """The banner of a training since March 2025."""
    whole = 1_562_179_072
    trained = whole if share == "100.00" else 18_464_768
    return (
        f"==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = {used}",
        "   \\\\   /|    Num examples = 1,600 | Num Epochs = 1 | Total steps = 40",
        f"O^O/ \\_/ \\    Batch size per device = {micro} | Gradient accumulation steps = 2",
        f"\\        /    Data Parallel GPUs = {ranks} | Total batch size ({micro} x 2 x {ranks}) = "
        f"{micro * 2 * ranks:,}",
        f' "-____-"     Trainable parameters = {trained:,} of {whole:,} ({share}% trained)',
    )


OLD_BEGUN = (
    "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 4",
    "    \\   /|    Num examples = 1,760 | Num Epochs = 1",
    "O^O/ \\_/ \\    Batch size per device = 5 | Gradient Accumulation steps = 8",
    "\\        /    Total batch size = 160 | Total steps = 11",
    ' "-____-"     Number of trainable parameters = 469,762,048',
)


def bar(step: int, seconds: int) -> str:
    clock = f"{seconds // 60:02}:{seconds % 60:02}"
    return f"{100 * step // 40:3}%|##   | {step}/40 [{clock}<00:10,  1.00s/it]"


def trained(count: str, each: int) -> list[str]:
    """Dicts of every fifth step of 4 s, with a count of tokens that grows by `each` a step."""
    line = (
        "{{'loss': 1.2, 'learning_rate': 2e-05, '{}': {}, 'mean_token_accuracy': 0.7, 'epoch': {}}}"
    )
    return [
        text
        for step in range(5, 41, 5)
        for text in (line.format(count, each * step, step / 40), bar(step, 4 * step))
    ]


def of(path: Path, lines: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Facts of the log, and metrics of its run."""
    path.write_text("\n".join(lines) + "\n")
    tables = tables_of(path)
    facts = dict(tables["facts"].select("name", "value").iter_rows())
    (row,) = analyse(tables).metrics.to_dicts()
    return facts, row


@pytest.mark.parametrize(("used", "ranks", "gpus"), [(1, 1, 1), (1, 2, 2), (2, 1, 2)])
def test_unsloth_says_batch_and_devices(used: int, ranks: int, gpus: int, tmp_path: Path) -> None:
    """Devices that its process has the model on, or as many processes; not those of the machine."""
    lines = [*DEVICE, *begun(used, ranks), *trained("num_tokens", 1600)]
    facts, row = of(tmp_path / "run.log", lines)
    said = ("accelerator", "torch", "framework_version", "micro_batch_size", "global_batch_size")
    assert [facts[name] for name in said] == [
        *("NVIDIA H100 80GB HBM3", "2.7.0+cu126", "4.51.3", "4", str(8 * ranks))
    ]
    assert (row["gpus"], row["tgs"], row["tgs_end_to_end"]) == (gpus, 400 / gpus, 400 / gpus)
    assert "trainable" in row["missing"]


def test_unsloth_of_2024_says_them_otherwise(tmp_path: Path) -> None:
    facts, row = of(tmp_path / "run.log", [*OLD_DEVICE, *OLD_BEGUN, *trained("num_tokens", 1600)])
    said = ("gpus", "micro_batch_size", "gradient_accumulation", "global_batch_size")
    assert [facts[name] for name in said] == ["4", "5", "8", "160"]
    assert (facts["accelerator"], facts["torch"]) == ("Tesla T4", "2.2.1+cu121")
    assert row["tgs"] == 100


def test_all_parameters_are_trained_where_unsloth_counts_as_many(tmp_path: Path) -> None:
    lines = [*begun(1, 1, share="100.00"), *trained("num_tokens", 1600)]
    assert of(tmp_path / "run.log", lines)[0]["trainable"] == "full"


def test_a_smaller_batch_after_too_little_memory_is_the_one_that_was_trained(
    tmp_path: Path,
) -> None:
    """auto_find_batch_size begins anew in the same process, and Unsloth prints its banner again."""
    tried = [*DEVICE, *begun(1, 2, micro=16), "  0%|     | 0/20 [00:00<?, ?it/s]"]
    _, row = of(tmp_path / "run.log", [*tried, *begun(1, 2), *trained("num_tokens", 1600)])
    assert (row["global_batch_size"], row["micro_batch_size"], row["tgs"]) == (16, 4, 200)


def test_bars_alone_are_those_of_the_steps_that_unsloth_plans(tmp_path: Path) -> None:
    bars = [bar(step, 4 * step) for step in range(1, 41)]
    _, row = of(tmp_path / "run.log", [*begun(1, 2), *bars])
    assert row["steps"] == 40


CONFIG = {
    "base_model": "NousResearch/Meta-Llama-3-8B",
    "bf16": True,
    "capabilities": {"bf16": True, "n_gpu": 8},
    "gradient_accumulation_steps": 2,
    "gradient_checkpointing": True,
    "logging_steps": 5,
    "micro_batch_size": 2,
    "sequence_len": 4096,
    "world_size": 8,
}


def config(**more: object) -> list[str]:
    """Axolotl's config as it logs it."""
    head = "[2026-02-10 10:58:06,507] [INFO] [axolotl.cli.config.load_cfg:248] [PID:65] [RANK:0] "
    return [f"{head}config:", *json.dumps(CONFIG | more, indent=2, sort_keys=True).splitlines()]


def test_axolotl_says_its_config_and_counts_tokens_of_all_ranks(tmp_path: Path) -> None:
    lines = [*config(), *trained("tokens/total", 131_072)]
    _, row = of(tmp_path / "run.log", lines)
    said = ("gpus", "seq_len", "micro_batch_size", "precision", "recompute", "trainable")
    assert [row[name] for name in said] == [8, 4096, 2, "bf16", "full", "full"]
    assert (row["tgs"], row["tgs_slots"], row["token_basis"]) == (4096, 4096, "slots")
    assert row["missing"] == ["accelerator"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"adapter": "qlora", "lora_r": 8, "lora_target_linear": True},
         {"trainable": "lora", "lora_rank": "8", "lora_targets": "all-linear"}),
        ({"adapter": "lora", "lora_r": 8, "lora_target_modules": ["q_proj", "v_proj"]},
         {"trainable": "lora", "lora_targets": "q_proj,v_proj"}),
        ({"adapter": "lora", "lora_modules_to_save": ["lm_head"]}, {"trainable": None}),
        ({"unfrozen_parameters": ["lm_head.*"]}, {"trainable": None}),
        ({"sample_packing": True}, {"document_mask": "true"}),
        ({"bf16": False, "fp16": True}, {"precision": "fp16"}),
        ({"fp8": True}, {"precision": None}),
        ({"rl": "dpo"}, {"objective": "preference"}),
        ({"rl": "grpo"}, {"objective": "reinforcement"}),
        ({"sequence_parallel_degree": 2}, {"context_parallel": "2", "global_batch_size": "16"}),
        ({"logging_steps": 0.1}, {"log_interval": None}),
        ({"rl": ["dpo"], "world_size": "8", "micro_batch_size": True, "lora_r": None},
         {"objective": None, "gpus": None, "micro_batch_size": None, "global_batch_size": None}),
    ],
)  # fmt: skip
def test_axolotl_says_what_is_trained_and_how(
    more: Mapping[str, object], told: Mapping[str, str | None], tmp_path: Path
) -> None:
    lines = [*config(**more), *trained("num_input_tokens_seen", 131_072)]
    facts, _ = of(tmp_path / "run.log", lines)
    assert {name: facts.get(name) for name in told} == told


def test_axolotls_count_over_ranks_that_share_a_sequence_gives_no_rate(tmp_path: Path) -> None:
    lines = [*config(context_parallel_size=2), *trained("tokens/total", 131_072)]
    _, row = of(tmp_path / "run.log", lines)
    assert row["tgs"] is None
    assert of_kind(row, PROCESS_SUM_UNKNOWN)


def state(process: int, *, device: str = "cuda", cast: str = "bf16") -> list[str]:
    """What each of Accelerate's processes says of itself."""
    return [
        "11/20/2026 15:06:01 - INFO - __main__ - Distributed environment: DEEPSPEED  Backend: nccl",
        "Num processes: 4",
        f"Process index: {process}",
        f"Local process index: {process}",
        f"Device: {device}:{process}" if device != "cpu" else "Device: cpu",
        "",
        f"Mixed precision type: {cast}",
    ]


@pytest.mark.parametrize(
    ("device", "cast", "told"),
    [("cuda", "bf16", ("4", "bf16")), ("npu", "no", ("4", None)), ("cpu", "fp8", (None, None))],
)
def test_accelerates_processes_and_precision_stand_before_a_bar_alone(
    device: str, cast: str, told: tuple[str | None, str | None], tmp_path: Path
) -> None:
    """run_clm_no_trainer.py; copies of the ranks stand line by line, or one after the other."""
    head = "11/20/2026 15:06:02 - INFO - __main__ - "
    header = (
        "***** Running training *****",
        "  Instantaneous batch size per device = 2",
        "  Total train batch size (w. parallel, distributed & accumulation) = 16",
        "  Gradient Accumulation steps = 2",
        "  Total optimization steps = 40",
    )
    said = [*(head + line for line in header), *(bar(step, 4 * step) for step in range(1, 41))]
    copies = [state(process, device=device, cast=cast) for process in range(4)]
    mixed = [line for lines in zip(*copies, strict=True) for line in lines]
    for states in (copies[0], [*copies[0], *copies[1]], mixed):
        facts, row = of(tmp_path / "run.log", [*states, *said])
        assert (facts.get("gpus"), facts.get("precision")) == told
        assert (row["steps"], row["global_batch_size"]) == (40, 16)


def factory(*said: str, name: str = "llamafactory", behind: str = ":143 >>") -> list[str]:
    """Lines of LLaMA-Factory's own loggers."""
    return [f"[INFO|2026-02-10 10:58:06] {name}.{text.replace('>>', behind, 1)}" for text in said]


def process(rank: int, more: str = "world size: 4, ", cast: str = "bfloat16") -> str:
    return (
        f"hparams.parser>> Process rank: {rank}, {more}device: cuda:{rank}, distributed training: "
        f"True, compute dtype: torch.{cast}"
    )


LOADED = (
    "model.model_utils.checkpointing>> Gradient checkpointing enabled.",
    "model.adapter>> Fine-tuning method: Full",
    "model.loader>> trainable params: 1,543,714,304 || all params: 1,543,714,304 || trainable%: "
    "100.0000",
)


def test_llama_factory_says_devices_and_what_it_trains(tmp_path: Path) -> None:
    lines = [*factory(process(2), process(0), *LOADED), *trained("num_input_tokens_seen", 8192)]
    _, row = of(tmp_path / "run.log", lines)
    said = ("gpus", "precision", "recompute", "trainable", "tgs")
    assert [row[name] for name in said] == [4, "bf16", "full", "full", 512]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([process(0, "", "float16").replace(", distributed", ", n_gpu: 1, distributed")],
         {"gpus": None, "precision": "fp16"}),
        ([process(0, "").replace("distributed training: True", "n_gpu: 1, distributed training: "
         "False")], {"gpus": "1", "precision": "bf16"}),
        ([process(0).replace("torch.bfloat16", "None")], {"gpus": "4", "precision": None}),
        (["model.adapter>> Fine-tuning method: LoRA",
          "model.model_utils.misc>> Found linear modules: q_proj,down_proj",
          "model.loader>> trainable params: 20,971,520 || all params: 8,051,232,768 || trainable%: "
          "0.2605"],
         {"trainable": "lora", "lora_targets": "q_proj,down_proj", "recompute": None}),
        (["model.adapter>> Fine-tuning method: Freeze",
          "model.loader>> trainable params: 400 || all params: 8,000 || trainable%: 5.0000"],
         {"trainable": None}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "behind"), [("llamafactory", ":423 >>"), ("llamafactory", " -"), ("llmtuner", " -")]
)
def test_llama_factory_is_taken_at_its_word_and_no_further(
    said: list[str], told: Mapping[str, str | None], name: str, behind: str, tmp_path: Path
) -> None:
    """What a process trains in part, or on devices that it does not count, is not known."""
    lines = [*factory(*said, name=name, behind=behind), *trained("num_input_tokens_seen", 8192)]
    facts, _ = of(tmp_path / "run.log", lines)
    assert {fact: facts.get(fact) for fact in told} == told


def test_llama_factory_in_fp8_does_not_say_which_layers(tmp_path: Path) -> None:
    """Its compute dtype is that of the rest, which would be held against half the peak."""
    fp8 = "train.fp8_utils>> Set ACCELERATE_MIXED_PRECISION=fp8"
    lines = [*factory(fp8, process(0), *LOADED), *trained("num_input_tokens_seen", 8192)]
    _, row = of(tmp_path / "run.log", lines)
    assert "precision" in row["missing"]
    assert any("ACCELERATE_MIXED_PRECISION=fp8" in warning for warning in row["warnings"])


def test_a_tool_that_names_another_module_says_the_same(tmp_path: Path) -> None:
    """Release 0.9.1 names the file of its own logging; forks have modules of their own."""
    log = tmp_path / "running_log.txt"
    log.write_text(
        "[INFO|2026-11-26 22:07:13] logging.py:157 >> Gradient checkpointing enabled.\n"
        "11/26/2026 22:07:13 - INFO - pet.core.adapter - Fine-tuning method: LoRA\n"
        "[INFO|2026-11-26 22:07:13] logging.py:157 >> Found linear modules: v_proj,q_proj\n"
        "{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
        "{'loss': 1.9, 'learning_rate': 1e-05, 'epoch': 0.2}\n"
    )
    facts = dict(tables_of(log)["facts"].select("name", "value").rows())
    said = {"recompute": "full", "trainable": "lora", "lora_targets": "v_proj,q_proj"}
    assert facts.items() >= said.items()


def test_llama_factory_names_only_the_file_in_one_release(tmp_path: Path) -> None:
    text = process(0, "").replace("hparams.parser>>", "parser.py:355 >>")
    lines = [f"[INFO|2024-11-26 22:07:06] {text}", *trained("num_input_tokens_seen", 8192)]
    _, row = of(tmp_path / "run.log", lines)
    assert (row["gpus"], row["precision"]) == (None, "bf16")
