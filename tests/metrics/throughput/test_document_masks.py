"""What a log says, or its era implies, of masks, number formats and dropped tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.formula.model_shapes.printed import MEGATRON_SUPPORTED_VALUES
from fairmfu.metrics.throughput.resolved_facts import resolve_facts

Parse = Callable[..., ParsedSource]

TITAN = "[rank0]:[titan] 2026-11-20 15:14:04,329 - root - INFO - "
STEP = (
    f"{TITAN}step: 10  loss:  6.13817  grad_norm:  2.2073  memory:  0.76GiB(3.22%)  "
    "tps: 3,343  tflops: 0.13  mfu: 0.04%"
)
FSDP = f"{TITAN}Applied FSDP to the model"
SELECTIVE = f"{TITAN}Applied SelectiveAC activation checkpointing to the model"
CONFIG = {
    "model_spec": {
        "name": "llama3",
        "flavor": "debugmodel",
        "model": {
            "layers": [
                {"attention": {"inner_attention": {"block_size": 128, "kernel_options": {}}}}
            ]
        },
    },
    "metrics": {"log_freq": 10},
    "training": {
        "local_batch_size": 4,
        "global_batch_size": -1,
        "seq_len": 256,
        "steps": 60,
        "mixed_precision_param": "bfloat16",
    },
    "checkpoint": {"enable": True, "initial_load_in_hf_quantized": False},
    "activation_checkpoint": {"preserve_rng_state": True},
    "compile": {"enable": False, "components": ["model", "loss"]},
}
OLD = {
    "model": {"name": "llama3", "flavor": "8B", "converters": []},
    "metrics": {"log_freq": 5},
    "training": {
        "batch_size": 8,
        "seq_len": 8192,
        "mixed_precision_param": "bfloat16",
        "compile": True,
    },
    "activation_checkpoint": {"mode": "selective", "selective_ac_option": "op"},
}


def facts(parsed: ParsedSource, launch: int = 0) -> dict[str, tuple[str, str]]:
    """Value and kind of origin of every fact; of one name a stated one, then the later."""
    found: dict[str, tuple[str, str]] = {}
    for fact in parsed.launches[launch].stated:
        kind = "inferred" if fact["origin"].startswith("inferred") else "log"
        if kind == "log" or found.get(fact["name"], ("", ""))[1] != "log":
            found[fact["name"]] = fact["value"], kind
    return found


def dump(config: object) -> list[str]:
    first, *rest = json.dumps(config, indent=2).split("\n")
    return [f"{TITAN}Running with configs: {first}", *(f"[rank0]:{line}" for line in rest)]


def held(path: Path, *flags: str) -> dict[str, str]:
    table = resolve_facts(read_log_tables(path, flag_facts=facts_from_flags(flags))["facts"])
    return dict(table.select(pl.col("name"), pl.col("value")).iter_rows())


# -- document masks ------------------------------------------------------------------------


def test_xtuner_v1_masks_documents_unless_told_otherwise(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(
        "[XTuner][RANK 0][2026-11-20 11:30:15][INFO] Step 1/32 data_time: 0.0578 lr: 0.000020 "
        "time: 4.9770 text_tokens: 4008.0 total_loss: 1.722, reduced_llm_loss: 1.684 max_memory: "
        "15.90 GB reserved_memory: 17.87 GB grad_norm: 13.948 tgs: 805.3 e2e_tgs: 796.1 \n"
    )
    assert held(log)["document_mask"] == "true"
    assert held(log, "document_mask=false")["document_mask"] == "false"


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        (f"{TITAN}torchtitan version: 0.2.2 (0.0.0 means …", False),
        (f"{TITAN}torchtitan version: 0.1.0.dev20260518+cu130 (0.0.0 means …", False),
        (f"{TITAN}torchtitan version: 0.0.0+unknown (0.0.0 means …", False),
        (f"{TITAN}torchtitan version: 0.3.0 (0.0.0 means …", True),
        (f"{TITAN}torchtitan version: 0.3.1.dev20261001 (0.0.0 means …", True),
        (f"{TITAN}torchtitan version: 0.10.0 (0.0.0 means …", True),
        (f"{TITAN}torchtitan version: 1.0.0 (0.0.0 means …", True),
        (f"{TITAN}Applied selective activation checkpointing to the model", False),
        (f"{TITAN}Applied full activation checkpointing to the model", False),
        (SELECTIVE, True),
        (f"{TITAN}Applied FullAC activation checkpointing to the model", True),
    ],
)
def test_the_era_of_torchtitan_says_whether_documents_are_masked(
    parse: Parse, line: str, *, masked: bool
) -> None:
    found = facts(parse("torchtitan", [line, STEP]))
    assert found.get("document_mask") == (("true", "inferred") if masked else None)


@pytest.mark.parametrize(("mask", "masked"), [("causal", "false"), ("block_causal", "true")])
def test_a_printed_mask_beats_the_era(parse: Parse, mask: str, masked: str) -> None:
    built = [
        f"{TITAN}Building llama3 debugmodelwith {{",
        '[rank0]:  "layer": {"attention": {',
        '[rank0]:    "attn_backend": "flex",',
        f'[rank0]:    "attn_mask_type": "{mask}"',
        "[rank0]:  }}",
        "[rank0]:}",
    ]
    found = facts(parse("torchtitan", [*built, SELECTIVE, STEP]))
    assert found["document_mask"] == (masked, "log")
    assert found["attention"] == ("flex", "log")


def test_arguments_on_one_line_say_their_mask(parse: Parse) -> None:
    line = (
        f"{TITAN}Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32, "
        "use_flex_attn=False, attn_mask_type='causal', eos_id=0)"
    )
    found = facts(parse("torchtitan", [line, STEP]))
    assert found["document_mask"] == ("false", "log")
    assert found["attention"] == ("sdpa", "log")


def test_layers_that_differ_say_nothing_of_the_mask(parse: Parse) -> None:
    layers = [{"attention": {"attn_mask_type": kind}} for kind in ("causal", "block_causal")]
    config = CONFIG | {"model_spec": {"model": {"layers": layers}}}
    assert "document_mask" not in facts(parse("torchtitan", [*dump(config), STEP]))


def test_varlen_attention_masks_documents(parse: Parse) -> None:
    config = OLD | {"model": {"attn_backend": "varlen"}}
    assert facts(parse("torchtitan", [*dump(config), STEP]))["document_mask"] == ("true", "log")


def test_megatron_masks_documents_where_it_resets_the_mask(parse: Parse) -> None:
    def found(value: str) -> dict[str, tuple[str, str]]:
        return facts(parse("megatron-deepspeed", arguments(reset_attention_mask=value)))

    assert found("True")["document_mask"] == ("true", "log")
    assert "document_mask" not in found("False")
    assert json.loads(found("True")["megatron_arguments"][0])["reset_attention_mask"] == "True"


# -- Torchtitan's job config ---------------------------------------------------------------


def test_the_config_of_several_lines_is_read(parse: Parse) -> None:
    parsed = parse("torchtitan", [*dump(CONFIG), FSDP, STEP])
    found = facts(parsed)
    expected = {
        "log_interval": "10",
        "seq_len": "256",
        "micro_batch_size": "4",
        "total_steps": "60",
        "precision": "bf16",
        "compile": "false",
        "attention": "flex",
        "mixed_precision": "FSDP",
    }
    assert found == {name: (value, "log") for name, value in expected.items()}
    assert parsed.other_lines == 0


@pytest.mark.parametrize("head", ["Running with args: ", "Running with configs: "])
def test_the_config_on_one_line_is_read(parse: Parse, head: str) -> None:
    found = facts(parse("torchtitan", [f"{TITAN}{head}{OLD!r}", FSDP, STEP]))
    expected = {
        "log_interval": "5",
        "seq_len": "8192",
        "micro_batch_size": "8",
        "precision": "bf16",
        "recompute": "selective",
        "compile": "true",
        "mixed_precision": "FSDP",
    }
    assert found == {name: (value, "log") for name, value in expected.items()}


@pytest.mark.parametrize(
    ("dtype", "precision"), [("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32")]
)
def test_a_stated_precision_beats_the_inferred_one(
    tmp_path: Path, dtype: str, precision: str
) -> None:
    config = CONFIG | {"training": {"mixed_precision_param": dtype}}
    log = tmp_path / "run.log"
    log.write_text("\n".join([*dump(config), FSDP, STEP]) + "\n")
    assert held(log)["precision"] == precision


@pytest.mark.parametrize("converters", [["float8"], ["quantize.linear.mx"], "float8"])
def test_a_config_that_quantizes_states_no_precision(parse: Parse, converters: object) -> None:
    config = OLD | {"model": {"converters": converters}}
    found = facts(parse("torchtitan", [*dump(config), FSDP, STEP]))
    assert found["quantization"][0] in ("float8", "quantize.linear.mx")
    assert found["precision"] == ("bf16", "inferred")


def test_the_converters_of_early_2026_are_quantization(parse: Parse) -> None:
    listed = [{"enable_fsdp_float8_all_gather": True, "emulate": False}]
    config = OLD | {"model_converters": {"converters": listed}}
    found = facts(parse("torchtitan", [*dump(config), STEP]))
    assert found["quantization"][0] == "model_converters: enable_fsdp_float8_all_gather"
    none = facts(parse("torchtitan", [*dump(OLD | {"model_converters": {}}), STEP]))
    assert "quantization" not in none


@pytest.mark.parametrize(
    "text",
    [
        "Swapped to Float8Linear layers with enable_fsdp_float8_all_gather=True",
        "Swapped to dynamic float8 linear layers",
        "Float8 tensorwise scaled training active",
    ],
)
def test_float8_in_every_wording_is_quantization(parse: Parse, text: str) -> None:
    line = f"[rank0]:2024-06-01 12:00:00,123 - root - INFO - {text}"
    assert facts(parse("torchtitan", [line, STEP]))["quantization"] == (text, "log")


def test_float8_by_the_old_option_is_quantization(parse: Parse) -> None:
    config = OLD | {"float8": {"enable_float8_linear": True}}
    found = facts(parse("torchtitan", [*dump(config), STEP]))
    assert found["quantization"] == ("float8.enable_float8_linear", "log")
    assert "precision" not in found


@pytest.mark.parametrize(
    ("section", "recompute"),
    [({"mode": "none"}, "none"), (None, "none"), ({"mode": "full"}, "full")],
)
def test_activation_checkpointing_is_recompute(
    parse: Parse, section: object, recompute: str
) -> None:
    config = CONFIG | {"activation_checkpoint": section}
    assert facts(parse("torchtitan", [*dump(config), STEP]))["recompute"] == (recompute, "log")


def test_a_memory_budget_is_no_known_recompute(parse: Parse) -> None:
    config = CONFIG | {"activation_checkpoint": {"mode": "memory_budget"}}
    assert "recompute" not in facts(parse("torchtitan", [*dump(config), STEP]))


@pytest.mark.parametrize(
    "config",
    [
        "{'a': __import__('os').getcwd()}",
        "{'training': {'seq_len': 8",
        "{" * 5000 + "}",
        "{1, 2}",
        "{[]: 1}",
        "{'training': 3, 'metrics': None, 'model': [1]}",
        "{'training': {'seq_len': True, 'batch_size': 1.5, 'steps': -1}}",
    ],
)
def test_a_damaged_config_states_nothing(parse: Parse, config: str) -> None:
    parsed = parse("torchtitan", [f"{TITAN}Running with args: {config}", STEP])
    assert facts(parsed) == {}
    assert parsed.step_lines == 1


def test_a_config_that_is_cut_off_takes_no_other_line(parse: Parse) -> None:
    found = facts(parse("torchtitan", [*dump(CONFIG)[:9], FSDP, STEP]))
    assert found == {"precision": ("bf16", "inferred"), "mixed_precision": ("FSDP", "log")}


def test_version_and_config_belong_to_the_launch_that_they_begin(parse: Parse) -> None:
    version = f"{TITAN}torchtitan version: 0.3.0 (0.0.0 means …"
    mesh = f"{TITAN}Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=1"
    lines = [mesh, STEP, version, *dump(CONFIG), mesh, STEP.replace("step: 10", "step: 20")]
    parsed = parse("torchtitan", lines)
    assert [launch.first_line for launch in parsed.launches] == [1, 3]
    assert "seq_len" not in facts(parsed)
    assert facts(parsed, 1)["seq_len"] == ("256", "log")
    assert facts(parsed, 1)["framework_version"] == ("0.3.0", "log")


def test_without_mixed_precision_weights_stay_fp32(parse: Parse) -> None:
    lines = [*dump(CONFIG), f"{TITAN}Mixed precision training is disabled", STEP]
    assert facts(parse("torchtitan", lines))["precision"] == ("fp32", "log")


# -- random-LTD ----------------------------------------------------------------------------

DUMP = "[2026-11-20 15:01:54,755] [INFO] [config.py:678:print]   "
RANDOM_LTD = (
    "data_efficiency_config ....... {'enabled': False, 'seed': 1234, 'data_sampling': {'enabled': "
    "False, 'curriculum_learning': {'enabled': False}}, 'data_routing': {'enabled': False, "
    "'random_ltd': {'enabled': False, 'layer_token_lr_schedule': {'enabled': False}}}}"
)
ITERATION = (
    " iteration       10/  171661 | consumed samples:         2560 | elapsed time per iteration "
    "(ms): 810.1 | learning rate: 9.339E-08 | global batch size:   256 | lm loss: 1.078335E+01 | "
    "loss scale: 2048.0 | random ltd reserved length:   256 |"
)
ENGINE_STEP = (
    "[2026-11-20 15:01:57,144] [INFO] [logging.py:123:log_dist] [Rank 0] step=5, skipped=0, "
    "lr=[0.0005], mom=[(0.9, 0.95)]"
)


def arguments(**values: str) -> list[str]:
    lines = {"num_layers": "12", "seq_length": "2048", **values}
    return [
        "------------------------ arguments ------------------------",
        *(f"  {key} {'.' * (48 - len(key))} {value}" for key, value in sorted(lines.items())),
        "-------------------- end of arguments ---------------------",
        ITERATION,
    ]


@pytest.mark.parametrize("key", sorted(MEGATRON_SUPPORTED_VALUES))
def test_arguments_of_another_kind_of_model_are_kept(parse: Parse, key: str) -> None:
    other = {"tokenizer_type": "BertWordPieceCase", "kd": "True", "retro_add_retriever": "True"}
    value = other.get(key, "8")
    found = facts(parse("megatron-deepspeed", arguments(**{key: value})))
    assert json.loads(found["megatron_arguments"][0])[key] == value


@pytest.mark.parametrize(("value", "dropping"), [("True", "true"), ("False", "false")])
def test_megatron_says_whether_layers_drop_tokens(parse: Parse, value: str, dropping: str) -> None:
    found = facts(parse("megatron-deepspeed", arguments(random_ltd=value)))
    assert found["token_dropping"] == (dropping, "log")
    assert json.loads(found["megatron_arguments"][0])["random_ltd"] == value


def test_a_reserved_length_alone_is_no_proof(parse: Parse) -> None:
    assert "token_dropping" not in facts(parse("megatron-deepspeed", arguments()))


@pytest.mark.parametrize(
    ("config", "dropping"),
    [
        (RANDOM_LTD, None),
        (RANDOM_LTD.replace("'random_ltd': {'enabled': False", "'random_ltd': {'enabled': True"),
         ("true", "log")),
        ("dynamic_train_config ......... {'random_ltd': {'enabled': True, 'total_layer_num': 12}}",
         ("true", "log")),
        ("dynamic_train_config ......... {'random_ltd': {'enabled': False}}", None),
        (RANDOM_LTD.replace("'curriculum_learning': {'enabled': False",
                            "'curriculum_learning': {'enabled': True"), None),
    ],
)  # fmt: skip
def test_deepspeeds_config_says_that_layers_drop_tokens(
    parse: Parse, config: str, dropping: tuple[str, str] | None
) -> None:
    alone = facts(parse("deepspeed", [f"{DUMP}{config}", ENGINE_STEP]))
    beside = facts(parse("megatron-deepspeed", [f"{DUMP}{config}", ITERATION], ["deepspeed"]))
    assert alone.get("token_dropping") == beside.get("token_dropping") == dropping


def test_megatrons_own_word_on_dropping_holds(parse: Parse) -> None:
    config = RANDOM_LTD.replace("'random_ltd': {'enabled': False", "'random_ltd': {'enabled': True")
    lines = [f"{DUMP}{config}", *arguments(random_ltd="False")]
    found = facts(parse("megatron-deepspeed", lines, ["deepspeed"]))
    assert found["token_dropping"] == ("false", "log")


# -- DeepSpeed's launches ------------------------------------------------------------------


def test_an_engine_that_starts_anew_is_a_new_launch(parse: Parse) -> None:
    """No launcher, no step that goes back: the second engine resumed from a checkpoint."""
    version = (
        "[2026-11-20 15:39:23,799] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: "
        "version=0.16.9, git-hash=unknown, git-branch=unknown"
    )
    start = ENGINE_STEP.replace("15:01:57", "15:39:24").replace("step=5", "step=0")
    batch = f"{DUMP.replace('15:01', '15:39')}train_batch_size ............. 16"
    resumed = ENGINE_STEP.replace("15:01:57", "15:39:30").replace("step=5", "step=10")
    parsed = parse("deepspeed", [version, ENGINE_STEP, version, start, batch, resumed])
    assert [launch.first_line for launch in parsed.launches] == [1, 3]
    assert [event["kind"] for event in parsed.launches[1].events] == ["engine_start"]
    assert facts(parsed, 1)["global_batch_size"] == ("16", "log")
    assert "global_batch_size" not in facts(parsed)
