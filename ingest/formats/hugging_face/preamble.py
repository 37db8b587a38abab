"""Lines before training, of tools built on the Hugging Face Trainer.

Unsloth prints two banners: device and libraries when it loads a model, and the batch when training
begins, instead of the Trainer's own header. `Num GPUs used` are the devices of one process's model
(since March 2025), before that `Num GPUs` are the processes. Axolotl prints its config as JSON,
with filled-in values, without nulls. Accelerate's scripts without a Trainer (run_clm_no_trainer.py)
print the state of every process, then the Trainer's header and only a bar. LLaMA-Factory prints the
trained parts in single lines, and puts the whole model on one device per process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..spec import (
    PREFERENCE_OBJECTIVE,
    REINFORCEMENT_OBJECTIVE,
    FactBlock,
    FactLine,
    parse_json_lines,
)

UNSLOTH_SOURCE: Final = "unslothai/unsloth/unsloth/models"
ACCELERATE_SOURCE: Final = "huggingface/accelerate/src/accelerate/state.py@v1.10.0"
AXOLOTL_SOURCE: Final = "axolotl-ai-cloud/axolotl/src/axolotl/cli/config.py@00ce888"
LLAMA_FACTORY_SOURCE: Final = "hiyouga/LLaMA-Factory/src/llamafactory"

UNSLOTH_BANNER: Final = r"==\(\(====\)\)==  Unsloth - \d+x faster free finetuning \| Num GPUs"
"""Start of the banner of a training."""
UNSLOTH_BANNER_END: Final = r'"-____-"'
AXOLOTL_CONFIG_START: Final = (
    r"\[axolotl\.cli\.config(?:\.load_cfg:\d+)?\](?: \[PID:\d+\])?(?: \[RANK:\d+\])? config:\s*$"
)

_DEVICE: Final = re.compile(
    r"\\\\?   /\|    (?:GPU: )?(?P<accelerator>\S.*?)\. (?:Num GPUs|Max mem)"
)
_TORCH: Final = re.compile(r"O\^O/ \\_/ \\    (?:Py)?[Tt]orch: (?P<torch>[\w.+-]*\w)")
_VERSION: Final = re.compile(r"Transformers(?: =|:) ?(?P<framework_version>\d[\w.]*\w)")
_BATCH: Final = {
    "total_samples": r"Num examples = ([\d,]+)",
    "micro_batch_size": r"Batch size per device = ([\d,]+)",
    "gradient_accumulation": r"Gradient [Aa]ccumulation steps = ([\d,]+)",
    "global_batch_size": r"Total batch size(?: \([^)]*\))? = ([\d,]+)",
    "total_steps": r"Total steps = ([\d,]+)",
}
_PROCESSES: Final = re.compile(r"Num GPUs = (\d{1,9})\s|Data Parallel GPUs = (\d{1,9}) ")
_USED: Final = re.compile(r"Num GPUs used = (\d{1,9})\s")
_ALL: Final = re.compile(r"([\d,]+)(?: of |/)\1 \(")


def _unsloth_device(lines: Sequence[str]) -> dict[str, str]:
    text = "\n".join(lines)
    matches = (pattern.search(text) for pattern in (_DEVICE, _TORCH, _VERSION))
    return {name: value for match in matches if match for name, value in match.groupdict().items()}


def _unsloth_batch(lines: Sequence[str]) -> dict[str, str]:
    """Return batch and devices of a training.

    Full training if all parameters are trained. A process with the model on several devices is not
    a rank per device: ranks are left out then, or its tokens would count as shared.
    """
    text = "\n".join(lines)
    matches = {fact: re.search(pattern, text) for fact, pattern in _BATCH.items()}
    facts = {fact: match[1].replace(",", "") for fact, match in matches.items() if match}
    used = _USED.search(text)
    if processes := _PROCESSES.search(text):
        ranks, devices = int(processes[1] or processes[2]), int(used[1]) if used else 1
        facts["gpus"] = str(ranks * devices)
        facts |= {"data_parallel": str(ranks)} if devices == 1 else {}
    return facts | ({"trainable": "full"} if _ALL.search(text) else {})


def _accelerate(lines: Sequence[str]) -> dict[str, str]:
    """Return the processes, one device each, and the precision of the matmuls."""
    text = "\n".join(lines)
    processes = re.search(r"Num processes: (\d+)", text) if "Device: cpu" not in text else None
    cast = re.search(r"Mixed precision type: (bf16|fp16)\b", text)
    matches = {"gpus": processes, "precision": cast}
    return {fact: match[1] for fact, match in matches.items() if match}


_NUMBERS: Final = {
    "sequence_len": "seq_len",
    "micro_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation",
    "world_size": "gpus",
    "tensor_parallel_size": "tensor_parallel",
    "context_parallel_size": "context_parallel",
    "sequence_parallel_degree": "context_parallel",  # until the middle of 2025
    "expert_parallel_size": "expert_parallel",
    "logging_steps": "log_interval",
    "max_steps": "total_steps",
}
_ALIGNS: Final = {
    **dict.fromkeys(("dpo", "ipo", "orpo", "simpo", "kto"), PREFERENCE_OBJECTIVE),
    **dict.fromkeys(("grpo", "gdpo", "ebft"), REINFORCEMENT_OBJECTIVE),
}
"""Values of `rl`."""
_IN_PART: Final = ("unfrozen_parameters", "lisa_step_interval", "relora", "relora_steps")
"""Keys of full training that trains only some weights at a time, or adapters in turn."""


def _axolotl(lines: Sequence[str]) -> dict[str, str]:
    return axolotl_facts(parse_json_lines(lines[1:]))


def axolotl_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of axolotl's config, as printed or as a user wrote it."""
    facts = {
        fact: str(config[key])
        for key, fact in _NUMBERS.items()
        if isinstance(config.get(key), int)
        and not isinstance(config[key], bool)
        and config[key] > 0
    }
    facts |= {fact: config[key] for key, fact in _NAMES.items() if isinstance(config.get(key), str)}
    packs = {"document_mask": "true"} if config.get("sample_packing") is True else {}
    checkpoints = {"recompute": "full"} if config.get("gradient_checkpointing") else {}
    compiled = {"compile": "true"} if config.get("torch_compile") is True else {}
    aligns = [_ALIGNS[by]] if (by := str(config.get("rl"))) in _ALIGNS else []
    aligns += [PREFERENCE_OBJECTIVE] if config.get("reward_model") is True else []
    facts |= packs | checkpoints | compiled | dict(aligns)
    return facts | _batch(facts) | _trainable(config) | _precision(config)


def _batch(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the batch of a step over all ranks; a degree missing in the config is 1."""
    if not {"gpus", "micro_batch_size", "gradient_accumulation"} <= facts.keys():
        return {}
    sharing = (int(facts.get(name, 1)) for name in ("tensor_parallel", "context_parallel"))
    ranks, rest = divmod(int(facts["gpus"]), math.prod(sharing))
    local = int(facts["micro_batch_size"]) * int(facts["gradient_accumulation"])
    return {} if rest else {"data_parallel": str(ranks), "global_batch_size": str(local * ranks)}


_NAMES: Final = {"base_model": "model", "optimizer": "optimizer"}


def _precision(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the precision of the matmuls.

    Empty under FP8, as the config names no layers.
    """
    kinds = {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16", "float16")}
    chosen = [kind for kind, keys in kinds.items() if any(config.get(k) is True for k in keys)]
    return {"precision": chosen[0]} if len(chosen) == 1 and not config.get("fp8") else {}


def _trainable(config: Mapping[str, Any]) -> dict[str, str]:
    """Return adapters, or full if the config names neither adapters nor a part.

    Modules trained whole next to adapters are neither.
    """
    if config.get("adapter") is None:
        return {} if any(config.get(key) for key in _IN_PART) else {"trainable": "full"}
    if config["adapter"] not in ("lora", "qlora") or config.get("lora_modules_to_save"):
        return {}
    named, rank = config.get("lora_target_modules"), config.get("lora_r")
    facts = {"trainable": "lora"} | ({"lora_rank": str(rank)} if isinstance(rank, int) else {})
    if config.get("lora_target_linear") is True:
        return facts | {"lora_targets": "all-linear"}
    return facts | ({"lora_targets": ",".join(map(str, named))} if isinstance(named, list) else {})


FACT_BLOCKS: Final = (
    FactBlock(
        start=r"Distributed environment: [\w.]+(?:  Backend: \w+)?\s*$",
        end=r"Mixed precision type: \w+\s*$",
        include_start=True,
        include_end=True,
        max_lines=200,  # copies of several ranks, interleaved
        read=_accelerate,
        example=(
            "11/20/2026 15:06:01 - INFO - __main__ - Distributed environment: DEEPSPEED  Backend: "
            "nccl",
            "Num processes: 8",
            "Process index: 0",
            "Local process index: 0",
            "Device: cuda:0",
            "",
            "Mixed precision type: bf16",
        ),
        printed_by=f"{ACCELERATE_SOURCE} AcceleratorState.__repr__",
    ),
    FactBlock(
        start=r"==\(\(====\)\)==  Unsloth(?: [\d.]+)?: Fast ",
        end=UNSLOTH_BANNER_END,
        include_start=True,
        max_lines=60,  # copies of several ranks, interleaved
        read=_unsloth_device,
        example=(
            "==((====))==  Unsloth 2026.2.1: Fast Llama patching. Transformers: 4.57.6.",
            "   \\\\   /|    NVIDIA H100 80GB HBM3. Num GPUs = 8. Max memory: 79.19 GB. "
            "Platform: Linux.",
            "O^O/ \\_/ \\    Torch: 2.10.0+cu128. CUDA: 9.0. CUDA Toolkit: 12.8. Triton: 3.6.0",
            "\\        /    Bfloat16 = TRUE. FA [Xformers = None. FA2 = True]",
            ' "-____-"     Free license: http://github.com/unslothai/unsloth',
        ),
        printed_by=f"{UNSLOTH_SOURCE}/llama.py FastLlamaModel.from_pretrained",
    ),
    FactBlock(
        start=UNSLOTH_BANNER,
        end=UNSLOTH_BANNER_END,
        include_start=True,
        include_end=True,
        kind="train_start",
        max_lines=60,
        read=_unsloth_batch,
        example=(
            "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1",
            "   \\\\   /|    Num examples = 4,096 | Num Epochs = 1 | Total steps = 40",
            "O^O/ \\_/ \\    Batch size per device = 4 | Gradient accumulation steps = 2",
            "\\        /    Data Parallel GPUs = 2 | Total batch size (4 x 2 x 2) = 16",
            ' "-____-"     Trainable parameters = 1,049,728 of 102,049,728 (1.03% trained)',
        ),
        printed_by=f"{UNSLOTH_SOURCE}/llama.py patch_peft_model, _fast_inner_training_loop",
    ),
    FactBlock(
        start=AXOLOTL_CONFIG_START,
        end=AXOLOTL_CONFIG_START,
        braces=True,
        others=r"\[axolotl\.",
        read=_axolotl,
        example=(
            "[2026-11-20 15:01:22,512] [INFO] [axolotl.cli.config.load_cfg:248] [PID:512] "
            "[RANK:0] config:",
            "{",
            '  "base_model": "meta-llama/Llama-3.1-8B",',
            '  "bf16": true,',
            '  "gradient_accumulation_steps": 2,',
            '  "micro_batch_size": 4,',
            '  "sample_packing": true,',
            '  "sequence_len": 8192,',
            '  "world_size": 8',
            "}",
        ),
        printed_by=f"{AXOLOTL_SOURCE} load_cfg",
    ),
)

_OF_LLAMA_FACTORY: Final = (
    r"(?:(?:llamafactory|llmtuner)\.[\w.]{0,99}|(?<!\S)(?:logging|parser)\.py)(?::\d+ >>| -) "
)
"""Module that printed a line; release 0.9.1 names a file instead, often of its own `logging`."""
_CASTS: Final = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
"""With other dtypes, LLaMA-Factory does not print the dtype of the loaded weights."""


def _process(printed: Mapping[str, str]) -> dict[str, str]:
    """Return the devices of all processes, and the precision of the matmuls.

    Until the end of 2024 the line has only the devices of its own process, one if there are
    several.
    """
    alone = printed.get("each") if printed["distributed"] == "False" else None
    gpus, cast = printed.get("world") or alone, _CASTS.get(printed["dtype"])
    return ({"gpus": gpus} if gpus else {}) | ({"precision": cast} if cast else {})


def _all_trained(printed: Mapping[str, str]) -> dict[str, str]:
    """Return full if all parameters are trained; fewer may be adapters, or a part."""
    return {"trainable": "full"} if printed["trained"] == printed["all"] else {}


FACT_LINES: Final = (
    FactLine(
        anchor="Process rank: ",
        regex=rf"{_OF_LLAMA_FACTORY}Process rank: \d+,(?: world size: (?P<world>\d+),)? device: "
        r"[\w:]+,(?: n_gpu: (?P<each>\d+),)? distributed training: (?P<distributed>\w+), compute "
        r"dtype: (?P<dtype>[\w.]+)",
        read=_process,
        example="[INFO|2026-11-20 15:06:01] llamafactory.hparams.parser:423 >> Process rank: 0, "
        "world size: 8, device: cuda:0, distributed training: True, compute dtype: torch.bfloat16",
        printed_by=f"{LLAMA_FACTORY_SOURCE}/hparams/parser.py get_train_args",
        composed=True,
    ),
    FactLine(
        anchor="Set ACCELERATE_MIXED_PRECISION=",
        regex=rf"{_OF_LLAMA_FACTORY}Set (?P<quantization>ACCELERATE_MIXED_PRECISION=fp8)",
        example="[INFO|2026-11-20 15:06:01] llamafactory.train.fp8_utils:143 >> Set "
        "ACCELERATE_MIXED_PRECISION=fp8",
        printed_by=f"{LLAMA_FACTORY_SOURCE}/train/fp8_utils.py configure_fp8_environment",
        composed=True,
    ),
    FactLine(
        anchor="Gradient checkpointing enabled.",
        regex=rf"{_OF_LLAMA_FACTORY}Gradient checkpointing enabled\.",
        constants={"recompute": "full"},
        example="[INFO|2026-11-20 15:06:04] llamafactory.model.model_utils.checkpointing:143 >> "
        "Gradient checkpointing enabled.",
        printed_by=f"{LLAMA_FACTORY_SOURCE}/model/model_utils/checkpointing.py prepare_model_for_training",
        composed=True,
    ),
    FactLine(
        anchor="Fine-tuning method: LoRA",
        regex=r"(?:>>|-) Fine-tuning method: LoRA\s*$",
        constants={"trainable": "lora"},
        example="[INFO|2026-11-20 15:06:04] llamafactory.model.adapter:143 >> Fine-tuning method: "
        "LoRA",
        printed_by=f"{LLAMA_FACTORY_SOURCE}/model/adapter.py _setup_lora_tuning",
        composed=True,
    ),
    FactLine(
        anchor="Found linear modules: ",
        regex=rf"{_OF_LLAMA_FACTORY}Found linear modules: (?P<lora_targets>\w[\w.]*(?:,\w[\w.]*)*)\s*$",
        example="[INFO|2026-11-20 15:06:04] llamafactory.model.model_utils.misc:143 >> Found linear "
        "modules: q_proj,v_proj",
        printed_by=f"{LLAMA_FACTORY_SOURCE}/model/model_utils/misc.py find_all_linear_modules",
        composed=True,
    ),
    FactLine(
        anchor="trainable params: ",
        regex=r"trainable params: (?P<trained>[\d,]+) \|\| all params: (?P<all>[\d,]+) \|\| "
        r"trainable%: ",
        read=_all_trained,
        example="trainable params: 102,049,728 || all params: 102,049,728 || trainable%: 100.0000",
        printed_by="huggingface/peft/src/peft/peft_model.py PeftModel.print_trainable_parameters; "
        f"{LLAMA_FACTORY_SOURCE}/model/loader.py load_model",
        composed=True,
    ),
)
