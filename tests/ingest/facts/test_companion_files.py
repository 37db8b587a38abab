"""Facts from files next to a log: each kind, whose file it is, and what contradicts the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.companion_files import (
    MAX_NAMED_FILES,
    MAX_YAML_BYTES,
    companion_problem,
    facts_from_companions,
    shared_fact_files,
    without_other_runs,
)
from fairmfu.ingest.facts.facts import MAX_COMPANION_BYTES
from fairmfu.ingest.formats.hugging_face.closing_dict import results_facts
from fairmfu.ingest.formats.job_scripts import JOB_SCRIPTS
from fairmfu.ingest.formats.launch_commands import options_of, world_size
from fairmfu.metrics.formula.model_shapes.hugging_face import from_hugging_face

SWIFT = {
    "swift_version": "4.0.0",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "bf16": True,
    "gradient_checkpointing": True,
    "tuner_type": "lora",
    "model": "Qwen/Qwen3-8B",
    "max_length": 1024,
    "packing": False,
    "target_modules": ["all-linear"],
    "lora_rank": 8,
    "rank": -1,
    "global_world_size": 4,
}
ADAPTER = {
    "peft_type": "LORA",
    "base_model_name_or_path": "Qwen/Qwen3-8B",
    "r": 16,
    "target_modules": ["q_proj", "v_proj"],
    "modules_to_save": [],
}
LLAMA_FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: all
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
logging_steps: 10
bf16: true
"""
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
datasets: [{path: a, type: b}]
"""
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nmixed_precision: bf16\n"
WANDB = {"gpu": "NVIDIA H100 80GB HBM3", "gpu_count": 8, "git": {"commit": "abc"}}
STATE = {
    "global_step": 20,
    "logging_steps": 10,
    "max_steps": 500,
    "train_batch_size": 4,
    "num_input_tokens_seen": 0,
    "log_history": [{"loss": 2.5, "step": 10}, {"loss": 2.4, "step": 20}],
}
SYSTEM = {
    "number_of_nodes": "2",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
}
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
# torchrun --nproc_per_node=2 train.py
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 \\
    -m torchtitan.train --training.seq_len 8192 \\
    --training.local_batch_size 1
"""


def text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def stated(log: Path) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in facts_from_companions(log)}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "args.json",
            SWIFT,
            {"model": "Qwen/Qwen3-8B", "seq_len": "1024", "precision": "bf16", "trainable": "lora"}
            | {"lora_rank": "8", "lora_targets": "all-linear", "gpus": "4", "recompute": "full"}
            | {"micro_batch_size": "2", "gradient_accumulation": "8", "global_batch_size": "64"},
        ),
        (
            "adapter_config.json",
            ADAPTER,
            {"model": "Qwen/Qwen3-8B", "trainable": "lora", "lora_rank": "16"}
            | {"lora_targets": "q_proj,v_proj"},
        ),
        (
            "llama3_lora_sft.yaml",
            LLAMA_FACTORY,
            {"model": "meta-llama/Meta-Llama-3-8B", "seq_len": "2048", "precision": "bf16"}
            | {"trainable": "lora", "lora_rank": "16", "lora_targets": "all-linear"},
        ),
        (
            "config.yml",
            AXOLOTL,
            {"model": "meta-llama/Llama-3.1-8B", "seq_len": "4096", "trainable": "full"},
        ),
        ("default_config.yaml", ACCELERATE, {"gpus": "8", "precision": "bf16"}),
        (
            "wandb-metadata.json",
            WANDB,
            {"accelerator": "NVIDIA H100 80GB HBM3", "gpus": "8", "commit": "abc"},
        ),
        (
            "run_system.json",
            SYSTEM,
            {"gpus": "16", "accelerator": "NVIDIA H100-SXM5-80GB"},
        ),
        ("job.sbatch", SCRIPT, {"gpus": "32", "seq_len": "8192"}),
        (
            "trainer_state.json",
            STATE,
            {"log_interval": "10", "total_steps": "500", "micro_batch_size": "4"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:20] else "",
)
def test_each_kind_of_file_gives_its_facts(
    name: str, content: Any, expected: dict[str, str], logs: Path
) -> None:
    (logs / name).write_text(text(content))
    found = stated(logs / "run.log")

    assert {key: found.get(key) for key in expected} == expected
    assert logs / name in shared_fact_files(logs, [name, "run.log"])


@pytest.mark.parametrize(
    ("name", "content", "change", "absent"),
    [
        ("trainer_state.json", STATE, {"log_history": None}, "log_interval"),
        ("trainer_state.json", STATE, {"logging_steps": 0.1}, "log_interval"),
        ("trainer_state.json", STATE, {"train_batch_size": None}, "micro_batch_size"),
        ("args.json", SWIFT, {"modules_to_save": ["lm_head"]}, "trainable"),
        ("args.json", SWIFT, {"tuner_type": "longlora"}, "trainable"),
        ("args.json", SWIFT, {"tuner_type": "full", "freeze_parameters_ratio": 0.5}, "trainable"),
        ("args.json", SWIFT, {"max_length": -1}, "seq_len"),
        ("adapter_config.json", ADAPTER, {"peft_type": "IA3"}, "trainable"),
        ("adapter_config.json", ADAPTER, {"rank_pattern": {"q_proj": 4}}, "lora_rank"),
        ("wandb-metadata.json", WANDB, {"slurm": {"nnodes": "4"}}, "gpus"),
        ("run_system.json", SYSTEM, {"number_of_nodes": ""}, "gpus"),
    ],
)
def test_a_value_that_decides_nothing_gives_no_fact(
    name: str, content: dict[str, Any], change: dict[str, Any], absent: str, logs: Path
) -> None:
    (logs / name).write_text(json.dumps(content))
    assert absent in stated(logs / "run.log")
    (logs / name).write_text(json.dumps(content | change))
    assert absent not in stated(logs / "run.log")


def test_a_state_gives_itself_no_facts_and_a_log_of_other_steps_none(logs: Path) -> None:
    """The interval between dicts of standard output is in no other place."""
    state = logs / "trainer_state.json"
    state.write_text(json.dumps(STATE))
    assert facts_from_companions(state) == []
    facts = facts_from_companions(logs / "run.log")
    logged = {"name": "total_steps", "value": "400", "origin": "log:1", "line": 1}
    assert [f["name"] for f in without_other_runs(facts, [logged])] == ["total_steps"]
    assert without_other_runs(facts, [logged | {"value": "500"}]) == facts


def test_a_submission_has_its_systems_beside_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the layout: results/SYSTEM/BENCHMARK/result_N.txt and systems/SYSTEM.json."""
    systems = tmp_path / "systems"
    systems.mkdir()
    for nodes, name in enumerate(("dgx[h100]_n2", "other"), 2):
        (systems / f"{name}.json").write_text(json.dumps(SYSTEM | {"number_of_nodes": str(nodes)}))
    folder = tmp_path / "results" / "dgx[h100]_n2" / "llama2_70b_lora"
    folder.mkdir(parents=True)
    log = folder / "result_0.txt"
    log.write_text("")
    file = "../../../systems/dgx[h100]_n2.json"
    expected = {("gpus", "16"), ("accelerator", "NVIDIA H100-SXM5-80GB")}

    def found(path: Path) -> set[tuple[str, str, str]]:
        return {(f["name"], f["value"], f["origin"]) for f in facts_from_companions(path)}

    assert found(log) == {(*fact, f"companion:{file}") for fact in expected}
    assert folder / file in shared_fact_files(folder, ["result_0.txt"])
    logged = {"name": "gpus", "value": "8", "origin": "log:1", "line": 1}
    kept = without_other_runs(facts_from_companions(log), [logged])
    assert [(f["name"], f["value"]) for f in kept] == [("gpus", "16")]  # only the contradiction
    monkeypatch.chdir(folder)
    assert found(Path("result_0.txt")) == found(log)
    assert found(systems / "run.log") == set()


def test_gpus_of_one_machine_are_inferred_and_those_of_a_slurm_job_are_not(logs: Path) -> None:
    path = logs / "wandb-metadata.json"
    origins = []
    for slurm in ({}, {"slurm": {"nnodes": "4", "gpus_on_node": "8"}}):
        path.write_text(json.dumps(WANDB | slurm))
        (gpus,) = [f for f in facts_from_companions(logs / "run.log") if f["name"] == "gpus"]
        origins.append((gpus["value"], gpus["origin"].partition(":")[0]))

    assert origins == [("8", "inferred"), ("32", "companion")]


# -- whose file it is ----------------------------------------------------------------------


def test_a_file_with_another_logs_name_gives_nothing(logs: Path) -> None:
    for name in ("a.log", "b.log"):
        (logs / name).touch()
    (logs / "a.yaml").write_text(LLAMA_FACTORY)
    assert stated(logs / "a.log")["seq_len"] == "2048"
    assert stated(logs / "b.log") == {}


@pytest.mark.parametrize("other", ["a1.log", "a12.log", "ab.log", "ab-1.log"])
def test_a_file_is_not_of_a_log_whose_name_goes_on_with_a_letter_or_digit(
    other: str, logs: Path
) -> None:
    for name in ("a.log", other):
        (logs / name).touch()
    (logs / "a.yaml").write_text(LLAMA_FACTORY)
    assert stated(logs / other) == {}


def test_a_file_with_the_logs_name_holds_before_others(logs: Path) -> None:
    for name in ("a.log", "a_1.log", "a10.log"):
        (logs / name).touch()
    (logs / "a.yaml").write_text(LLAMA_FACTORY)
    (logs / "a_1.yaml").write_text(LLAMA_FACTORY.replace("2048", "512"))
    lengths = [stated(logs / name).get("seq_len") for name in ("a.log", "a_1.log", "a10.log")]
    assert lengths == ["2048", "512", None]


def test_of_two_files_of_one_kind_neither_speaks_for_a_log(logs: Path) -> None:
    (logs / "one.yaml").write_text(LLAMA_FACTORY)
    assert stated(logs / "run.log")["seq_len"] == "2048"
    (logs / "two.yaml").write_text(LLAMA_FACTORY)
    assert stated(logs / "run.log") == {}


def test_another_programs_files_do_not_matter(logs: Path) -> None:
    (logs / "one.yaml").write_text(LLAMA_FACTORY)
    for number in range(MAX_NAMED_FILES - 1):
        (logs / f"grafana{number}.yaml").write_text("panels: [1, 2]\n")
    assert stated(logs / "run.log")["seq_len"] == "2048"
    (logs / "more.yaml").write_text("panels: []\n")
    assert stated(logs / "run.log") == {}


@pytest.mark.parametrize(
    "content",
    [LLAMA_FACTORY + "x: " + "y" * MAX_YAML_BYTES, LLAMA_FACTORY + "a: &a 1\nb: *a\n", "[" * 5000],
    ids=["large", "alias", "deep"],
)
def test_a_yaml_that_costs_much_is_not_read(content: str, logs: Path) -> None:
    (logs / "one.yaml").write_text(content)
    assert stated(logs / "run.log") == {}


def test_a_json_file_of_more_than_4_mb_is_not_read_and_said(logs: Path) -> None:
    """Of one byte less it is read."""
    (logs / "args.json").write_text(json.dumps(SWIFT).ljust(MAX_COMPANION_BYTES))
    assert stated(logs / "run.log")["seq_len"] == "1024"
    (logs / "args.json").write_text(json.dumps(SWIFT).ljust(MAX_COMPANION_BYTES + 1))
    assert stated(logs / "run.log") == {}
    (logs / "config.json").write_text(
        json.dumps({"model_type": "llama"}).ljust(MAX_COMPANION_BYTES)
    )
    assert companion_problem(logs / "config.json") is None
    (logs / "config.json").write_text(" " * (MAX_COMPANION_BYTES + 1))
    assert companion_problem(logs / "config.json") == "larger than 4,194,304 bytes"


def test_a_file_that_contradicts_the_log_is_another_runs(
    logs: Path, titan: Callable[..., str]
) -> None:
    """Of its facts only the contradiction stays: it loses, and is reported."""
    log = logs / "run.log"
    header = "Trainer is initialized with local batch size 2, sequence length 256, total steps 60\n"
    log.write_text(header + titan())
    (logs / "args.json").write_text(json.dumps(SWIFT | {"max_length": 256}))
    agreeing = SWIFT | {"max_length": 256, "per_device_train_batch_size": 2}
    for content, wanted in ((SWIFT, {"seq_len"}), (agreeing, None)):
        (logs / "args.json").write_text(json.dumps(content))
        facts = read_log_tables(log)["facts"]
        found = set(facts.filter(pl.col("origin") == "companion:args.json")["name"])
        assert found == wanted if wanted else {"model", "gpus", "seq_len"} <= found


@pytest.mark.parametrize("gpus", [8, 4, 2])
def test_gpus_of_one_machine_of_several_are_none(
    gpus: int, logs: Path, titan: Callable[..., str]
) -> None:
    log = logs / "run.log"
    log.write_text(
        "batch: local batch size 2, global batch size 8, sequence length 256, total steps 60\n"
        + titan()
    )
    logged = {"name": "data_parallel", "value": "4", "origin": "log:1", "line": 1}
    (logs / "wandb-metadata.json").write_text(json.dumps(WANDB | {"gpu_count": gpus}))
    facts = without_other_runs(facts_from_companions(log), [logged])
    names = {fact["name"] for fact in facts}
    assert ("gpus" in names) is (gpus >= 4)
    assert "accelerator" in names  # of all machines alike
    (logs / "args.json").write_text(json.dumps(SWIFT | {"global_world_size": gpus}))
    facts = without_other_runs(facts_from_companions(log), [logged])
    assert ("seq_len" in {fact["name"] for fact in facts}) is (gpus == 4)


# -- commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("torchrun --nproc_per_node=8 train.py", "8"),
        ("torchrun --nproc-per-node 4 --nnodes 2 train.py", "8"),
        ("python -m torch.distributed.launch --nproc_per_node 4 --nnodes 4 run.py", "16"),
        ("torchrun --nproc_per_node=gpu train.py", None),
        ("torchrun --nproc_per_node=8 --nnodes=$N train.py", None),
        ("torchrun --nproc_per_node=8 --nnodes=1:4 train.py", None),
        ("accelerate launch --num_processes 16 train.py", "16"),
        ("accelerate launch --cpu --num_processes 16 train.py", None),
        ("deepspeed --num_gpus 4 --num_nodes 2 train.py", "8"),
        ("deepspeed main.py --num_gpus 4", None),
        ("python train.py --nproc_per_node=8", None),
    ],
)
def test_a_launcher_says_its_processes_in_literal_numbers(command: str, gpus: str | None) -> None:
    assert world_size(command).get("gpus") == gpus


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), st.integers(0, 10**6)))
def test_options_are_read_in_either_spelling(options: dict[str, int]) -> None:
    plain = {name: str(value) for name, value in options.items()}
    dashed = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())

    assert options_of("run " + " ".join(f"--{n}={v}" for n, v in options.items())) == plain
    assert options_of(f"run {dashed}") == plain


def read_script(script: str) -> dict[str, str]:
    return dict(JOB_SCRIPTS[0].read(script.splitlines()))


def test_a_script_says_what_all_its_commands_say() -> None:
    command = "torchrun --nproc_per_node 8 -m torchtitan.train --training.seq_len {}\n"
    assert read_script(command.format(4096) + command.format(8192)) == {"gpus": "8"}
    assert read_script(command.format(4096) * 2) == {"gpus": "8", "seq_len": "4096"}


@pytest.mark.parametrize(
    ("directives", "gpus"),
    [
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:h100:4\n", "8"),
        ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:4 # all of them\n", "8"),
        ("#SBATCH --nodes=2-4\n#SBATCH --gpus-per-node=4\n", None),
        ("#SBATCH --nodes=2\n#SBATCH --gres=lustre:1\n", None),
        ("#SBATCH --gpus-per-node=4\n", None),
    ],
)
def test_slurm_allocates_nodes_times_gpus(directives: str, gpus: str | None) -> None:
    assert read_script(directives).get("gpus") == gpus


# -- the last figures of the Trainer -------------------------------------------------------

RESULTS = {
    "epoch": 1.0,
    "num_input_tokens_seen": 20480,
    "total_flos": 96778321920.0,
    "train_loss": 6.839,
    "train_runtime": 5.1568,
    "train_samples_per_second": 31.027,
    "train_steps_per_second": 7.757,
}
SUMMARY = {"_step": 40, "_runtime": 6.1, "train/epoch": 1.0, "train/loss": 6.7} | {
    key: value for key, value in RESULTS.items() if key.startswith(("train_", "total"))
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_length": 20,
}
ARGUMENTS = {
    "output_dir": "out",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_steps": -1,
    "logging_steps": 5,
    "bf16": True,
    "run_name": "llama-sft",
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("all_results.json", RESULTS),
        ("train_results.json", RESULTS),
        ("wandb-summary.json", SUMMARY),
    ],
)
def test_results_give_the_planned_steps_and_their_figures(
    name: str, content: dict[str, float], logs: Path
) -> None:
    (logs / name).write_text(json.dumps(content))
    found = stated(logs / "run.log")
    assert found["total_steps"] == "40"
    figures = json.loads(found["closing_figures"])
    assert figures["train_samples_per_second"] == RESULTS["train_samples_per_second"]
    assert "train_loss" not in figures


@given(
    steps=st.integers(1, 10**6),
    seconds=st.floats(1, 1e6, allow_nan=False),
    digits=st.integers(1, 4),
)
def test_planned_steps_are_exact_or_unknown(steps: int, seconds: float, digits: int) -> None:
    values = {
        "train_runtime": round(seconds, 4),
        "train_samples_per_second": 1.0,
        "train_steps_per_second": round(steps / seconds, digits),
    }
    assert results_facts(values).get("total_steps", str(steps)) == str(steps)


@pytest.mark.parametrize("broken", [None, "x", float("nan"), -1, 0, True, [1], 10**400])
def test_results_without_a_rate_give_nothing(broken: object) -> None:
    assert results_facts(RESULTS | {"train_samples_per_second": broken}) == {}


def test_wandb_keeps_the_trainers_arguments_and_the_model(logs: Path) -> None:
    config = {key: {"value": value} for key, value in (LLAMA | ARGUMENTS).items()}
    (logs / "config.yaml").write_text(json.dumps(config))
    found = stated(logs / "run.log")
    assert {key: found.get(key) for key in ("micro_batch_size", "precision", "name")} == {
        "micro_batch_size": "4",
        "precision": "bf16",
        "name": "llama-sft",
    }
    assert "seq_len" not in found  # max_length is of the model's generation
    assert "total_steps" not in found
    shape, alone = (
        from_hugging_face(json.loads(text)) for text in (found["model_config"], json.dumps(LLAMA))
    )
    assert shape == alone
    adapters = {"peft_config": {"value": {"default": ADAPTER}}}
    (logs / "config.yaml").write_text(json.dumps(config | adapters))
    assert stated(logs / "run.log")["trainable"] == "lora"
