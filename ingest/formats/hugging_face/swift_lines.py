"""Lines of ms-swift before training: arguments, model, lengths of the data.

The arguments are those of the command with ms-swift's first defaults. A later line states what it
sets afterwards, such as max_length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..spec import FactBlock, FactLine, parse_json_lines
from .arguments import method_facts, python_literal

SWIFT_SOURCE: Final = "modelscope/ms-swift/swift"
_INFO: Final = r"\[INFO:swift\] "
_DTYPES: Final = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
SAMPLE_LENGTHS: Final = (
    r"(?P<mean_sample_length>\d+\.\d+)(?:±|\\u00b1)(?P<sample_length_deviation>\d+\.\d+), min="
)
"""Regex of the lengths of a data set, in tokens."""


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of `args: TrainArguments(`, a line for each argument."""
    pairs = (line.strip().removesuffix(",").partition("=") for line in lines)
    return method_facts({name: python_literal(text) for name, _, text in pairs if text})


def _world(printed: Mapping[str, str]) -> dict[str, str]:
    """Return the processes, one GPU each; a single one may have the model on several."""
    return {"gpus": printed["world"]} if int(printed["world"]) > 1 else {}


def _model_info(printed: Mapping[str, str]) -> dict[str, str]:
    """Return the model's folder, and the dtype of unquantized weights."""
    cast = _DTYPES.get(printed["dtype"])
    plain = cast is not None and printed["quantized"] == "None"
    return {"model": printed["model"]} | ({"precision": str(cast)} if plain else {})


def _config(lines: Sequence[str]) -> dict[str, str]:
    values = parse_json_lines(lines)
    return {"model_config": json.dumps(values)} if "model_type" in values else {}


def _trained(printed: Mapping[str, str]) -> dict[str, str]:
    return {"trainable": "full"} if float(printed["share"]) == 100 else {}  # noqa: PLR2004 - %


FACT_LINES: Final = (
    FactLine(
        anchor="world_size: ",
        regex=rf"{_INFO}rank: -?\d+, local_rank: -?\d+, world_size: (?P<world>\d{{1,7}})\b",
        read=_world,
        example="[INFO:swift] rank: 0, local_rank: 0, world_size: 4, local_world_size: 4",
        printed_by=f"{SWIFT_SOURCE}/llm/argument/base_args/base_args.py",
        composed=True,
    ),
    FactLine(
        anchor="ModelInfo(",
        regex=rf"{_INFO}model_info: ModelInfo\(model_type='[^']*', model_dir='(?P<model>[^']+)', "
        r"torch_dtype=(?P<dtype>[\w.]+),.*?quant_method=(?P<quantized>[^,]+),",
        read=_model_info,
        example="[INFO:swift] model_info: ModelInfo(model_type='qwen3', model_dir='/m/Qwen3-8B', "
        "torch_dtype=torch.bfloat16, max_model_len=40960, quant_method=None, quant_bits=None, "
        "config=None, task_type='causal_lm', num_labels=None)",
        printed_by=f"{SWIFT_SOURCE}/llm/argument/base_args/model_args.py",
        composed=True,
    ),
    FactLine(
        anchor="Setting args.gradient_accumulation_steps: ",
        regex=rf"{_INFO}Setting args\.gradient_accumulation_steps: (?P<gradient_accumulation>\d+)",
        example="[INFO:swift] Setting args.gradient_accumulation_steps: 16",
        printed_by=f"{SWIFT_SOURCE}/llm/argument/train_args.py",
        composed=True,
    ),
    FactLine(
        anchor="Dataset Token Length: ",
        regex=rf"{_INFO}Dataset Token Length: {SAMPLE_LENGTHS}",
        example="[INFO:swift] Dataset Token Length: 172.068281±93.875049, min=36.000000, "
        "max=866.000000, size=48330",
        printed_by=f"{SWIFT_SOURCE}/llm/train/sft.py SwiftSft._stat_dataset",
        composed=True,
    ),
    FactLine(
        anchor="model_parameter_info: ",
        regex=rf"{_INFO}model_parameter_info: \w+: [\d.]+M Params \([\d.]+M Trainable "
        r"\[(?P<share>\d{1,3}\.\d+)%\]",
        read=_trained,
        example="[INFO:swift] model_parameter_info: Qwen3ForCausalLM: 8190.7353M Params "
        "(8190.7353M Trainable [100.0000%]), 0.0001M Buffers.",
        printed_by=f"{SWIFT_SOURCE}/llm/train/sft.py SwiftSft.run",
        composed=True,
    ),
)

ARGUMENTS_BLOCK: Final = FactBlock(
    start=rf"{_INFO}args: \w+Arguments\(\s*$",
    end=r"^\)",
    include_end=True,
    read=_arguments,
    example=(
        "[INFO:swift] args: TrainArguments(",
        "bf16=True,",
        "gradient_accumulation_steps=None,",
        "lora_rank=8,",
        "max_length=2048,",
        "model=Qwen/Qwen3-8B,",
        "per_device_train_batch_size=2,",
        "target_modules=['all-linear'],",
        "train_type=lora,",
        ")",
    ),
    printed_by=f"{SWIFT_SOURCE}/llm/train/sft.py SwiftSft",
)


def _padded_arguments(lines: Sequence[str]) -> dict[str, str]:
    return _arguments(lines) | {"packed": "false"}


MEGATRON_SWIFT_BLOCK: Final = replace(
    ARGUMENTS_BLOCK,
    read=_padded_arguments,
    example=(
        "[INFO:swift] args: MegatronTrainArguments(",
        "max_length=2048,",
        "model=Qwen/Qwen3-8B,",
        "packing=True,",
        "train_type=full,",
        ")",
    ),
    printed_by="modelscope/ms-swift/swift/megatron/train/sft.py@067d536 MegatronSft",
)
"""Arguments of Megatron-SWIFT: Megatron prints its own too, but not the packing."""

FACT_BLOCKS: Final = (
    ARGUMENTS_BLOCK,
    FactBlock(
        start=rf"{_INFO}model_info: ModelInfo\(.* config=\w+ \{{\s*$",
        end=rf"{_INFO}",
        braces=True,
        read=_config,
        example=(
            "[INFO:swift] model_info: ModelInfo(model_type='qwen2_5', model_dir='/m/Qwen2.5-0.5B', "
            "torch_dtype=torch.bfloat16, quant_method=None, config=Qwen2Config {",
            '  "model_type": "qwen2",',
            '  "hidden_size": 896',
            "}",
        ),
        printed_by=f"{SWIFT_SOURCE}/llm/argument/base_args/model_args.py",
    ),
)
