"""Facts: which of several holds, what is refused, what follows from the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.core.errors import FactError, UnknownFormatError
from fairmfu.ingest.core.schema import FACT_NAMES, frame_schema
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.companion_files import facts_from_companions, shared_fact_files
from fairmfu.ingest.facts.facts import (
    facts_from_flags,
    facts_from_sidecars,
    facts_from_toml,
    infer_facts,
)
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.resolved_facts import (
    ORIGIN_PRECEDENCE,
    conflicting_facts,
    resolve_facts,
    typed_facts,
)
from tests.support.launches_by_hand import launch_of

FROM_EACH_ORIGIN = [
    ("flag", "flag"),
    ("sidecar", "sidecar:facts.toml"),
    ("log", "log:7"),
    ("companion", "companion:ds_config.json"),
    ("inferred", "inferred: samples/s x tokens per sample / tgs"),
]


def facts(*rows: tuple[str, str, str]) -> pl.DataFrame:
    """The facts of one run: name, value, origin, in this order."""
    named = [
        {"run_id": "a", "name": n, "value": v, "origin": o, "line": None, "sequence": i}
        for i, (n, v, o) in enumerate(rows)
    ]
    return pl.DataFrame(named, schema=frame_schema("facts"))


def given(found: list[dict]) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in found}


# -- which holds ---------------------------------------------------------------------------


def test_ingest_and_metrics_mean_the_same_order() -> None:
    assert tuple(kind for kind, _ in FROM_EACH_ORIGIN) == ORIGIN_PRECEDENCE


@pytest.mark.parametrize("best", range(len(ORIGIN_PRECEDENCE)))
@pytest.mark.parametrize("turn", [1, -1], ids=["in-order", "reversed"])
def test_the_better_origin_holds_whatever_comes_first(best: int, turn: int) -> None:
    rows = [("gpus", kind, origin) for kind, origin in FROM_EACH_ORIGIN[best:]]
    assert resolve_facts(facts(*rows[::turn]))["value"].to_list() == [ORIGIN_PRECEDENCE[best]]


def test_of_two_facts_of_one_kind_the_later_holds() -> None:
    held = resolve_facts(facts(("gpus", "8", "log:3"), ("gpus", "16", "log:1")))
    assert held["value"].to_list() == ["16"]


def test_all_origins_of_a_real_ingest_are_put_in_order(
    logs: Path, titan: Callable[..., str]
) -> None:
    """Each of the sources states one fact more than the one that holds over it."""
    log = logs / "run.log"
    header = (
        "Building device mesh with parallelism: dp_shard=4, cp=1, tp=1, ep=1\n"
        "Trainer is initialized with local batch size 2, sequence length 256, total steps 60\n"
        "Applied FSDP to the model\n"
    )
    log.write_text(header + titan())
    (logs / "ds_config.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 9, "train_batch_size": 36})
    )
    (logs / "facts.toml").write_text("seq_len = 512\ntotal_steps = 61\ngpus = 5\n")
    (logs / "run.log.facts.toml").write_text("seq_len = 513\ngpus = 6\n")
    tables = read_log_tables(log, flag_facts=facts_from_flags(["gpus=7"]))
    held = resolve_facts(tables["facts"])
    kinds = pl.col("origin").str.extract(r"^(\w+)")
    assert {
        name: (value, kind) for name, value, kind in held.select("name", "value", kinds).rows()
    } == {
        "gpus": ("7", "flag"),
        "seq_len": ("513", "sidecar"),
        "total_steps": ("61", "sidecar"),
        "micro_batch_size": ("2", "log"),
        "data_parallel": ("4", "log"),
        "replicas": ("1", "log"),
        "tensor_parallel": ("1", "log"),
        "pipeline_parallel": ("1", "log"),
        "context_parallel": ("1", "log"),
        "expert_parallel": ("1", "log"),
        "global_batch_size": ("36", "companion"),
        "mixed_precision": ("FSDP", "log"),
        "precision": ("bf16", "inferred"),
        "trainable": ("full", "inferred"),
    }


def test_a_log_of_several_models_is_not_ranked() -> None:
    student = {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "vocab_size": 9}
    teacher = student | {"num_hidden_layers": 28, "hidden_size": 3584}
    again = student | {"use_cache": False}
    for models, several in (((student, teacher), True), ((student, again), False)):
        rows = [("model_config", json.dumps(one), f"log:{i}") for i, one in enumerate(models)]
        warnings = [*chain(*conflicting_facts(facts(*rows)).values())]
        assert bool(warnings) is several
        assert all(warning.startswith(NOT_RANKED) for warning in warnings)
    given = ("model_config", json.dumps(teacher), "flag")
    rows = [("model_config", json.dumps(student), "log:1"), given]
    assert not conflicting_facts(facts(*rows))


def test_two_that_disagree_are_both_shown() -> None:
    said = facts(("gpus", "8", "log:3"), ("gpus", "16", "flag"), ("seq_len", "64", "log:4"))
    (found,) = conflicting_facts(said).values()
    assert found == ["gpus: 8 (log:3) against 16 (flag)."]


# -- what is given by hand -----------------------------------------------------------------


def test_flags_are_facts() -> None:
    found = facts_from_flags(
        ["gpus=8", " model = org/llama=3 ", "packed=true", "peak_flops=989.4e12"]
    )
    assert given(found) == {
        "gpus": "8",
        "model": "org/llama=3",
        "packed": "true",
        "peak_flops": "989.4e12",
    }
    assert {fact["origin"] for fact in found} == {"flag"}


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("gpu=8", "--set: no fact is called 'gpu'. Did you mean gpus"),
        ("seqlen=8", "Did you mean seq_len"),
        ("xyzzy=8", "--set: no fact is called 'xyzzy'.$"),
        ("gpus", "--set gpus gives no value. Fix: write NAME=VALUE"),
        ("gpus=many", "gpus='many' is not a number .accelerators."),
        ("gpus=", "gpus='' is not a number"),
        ("model=", "--set: model has no value"),
        ("gpus=2.5", "gpus=2.5 is not a whole number"),
        ("gpus=-8", "gpus=-8 is impossible"),
        ("gpus=0", "gpus=0 is impossible"),
        ("seq_len=nan", "seq_len=nan is impossible"),
        ("peak_flops=inf", "peak_flops=inf is impossible"),
        ("packed=yes", "packed='yes': write true or false"),
        ("precision=bf17", "precision='bf17': write one of fp32, tf32"),
        ("trainable=half", "trainable='half': write one of full, lora, frozen"),
        ("model_config=nowhere.json", "nowhere.json does not exist"),
        (f"model_config={5000 * '9'}", "File name too long"),
    ],
)
def test_a_wrong_flag_is_refused_and_says_why(assignment: str, says: str) -> None:
    with pytest.raises(FactError, match=says):
        facts_from_flags([assignment])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("precision=BF16", "bf16"),
        ("precision= Fp8+LM_head ", "fp8+lm_head"),
        ("precision=bfloat16", "bf16"),
        ("trainable=LoRA", "lora"),
        ("recompute=Full", "full"),
    ],
)
def test_a_choice_may_be_in_capitals(text: str, value: str) -> None:
    assert [fact["value"] for fact in facts_from_flags([text])] == [value]


def test_a_fact_without_a_value_takes_back_where_it_may() -> None:
    assert given(facts_from_flags(["gpus=", "model= "], allow_removal=True)) == {
        "gpus": None,
        "model": None,
    }
    with pytest.raises(FactError, match="Did you mean gpus"):
        facts_from_flags(["gpu="], allow_removal=True)


def test_a_file_named_by_hand_gives_facts_by_hand(logs: Path) -> None:
    (logs / "my.toml").write_text("gpus = 4")
    assert [fact["origin"] for fact in facts_from_toml(logs / "my.toml", "flag")] == [
        "flag:my.toml"
    ]


@pytest.mark.parametrize("text", ["8", "8.0", "8e0", "+8", "0_8", "\u0668"])
def test_a_number_that_is_accepted_is_read_by_metrics(text: str) -> None:
    (fact,) = facts_from_flags([f"gpus={text}"])
    assert typed_facts(facts(("gpus", fact["value"], "flag")))["gpus"].to_list() == [8]


def test_stage_zero_is_a_stage() -> None:
    assert given(facts_from_flags(["zero_stage=0"])) == {"zero_stage": "0"}


def test_a_model_config_is_read_from_beside_the_sidecar(logs: Path) -> None:
    (logs / "config.json").write_text('{"model_type": "llama"}')
    (logs / "facts.toml").write_text('model_config = "config.json"')
    (fact,) = facts_from_toml(logs / "facts.toml")
    assert json.loads(fact["value"]) == {"model_type": "llama"}


def test_toml_values_become_text_of_their_kind(logs: Path) -> None:
    (logs / "facts.toml").write_text(
        'gpus = 8\nseq_len = 8_192\npacked = true\nlora_targets = ["q_proj", "v_proj"]\n'
        "peak_flops = 9.894e14\n[model_config]\nhidden_size = 64\n"
    )
    assert given(facts_from_toml(logs / "facts.toml")) == {
        "gpus": "8",
        "seq_len": "8192",
        "packed": "true",
        "lora_targets": "q_proj,v_proj",
        "peak_flops": "989400000000000.0",
        "model_config": '{"hidden_size": 64}',
    }


@pytest.mark.parametrize(
    "text", ["gpus: 8", "gpus = 'many'", "gpu = 8", "gpus = ", "[gpus]\nx = 1", "\ud800"]
)
def test_a_wrong_sidecar_is_refused_by_name(text: str, logs: Path) -> None:
    path = logs / "run.log.facts.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(FactError, match=r"run\.log\.facts\.toml: "):
        facts_from_sidecars(logs / "run.log")


def test_the_sidecar_of_the_log_comes_behind_that_of_its_folder(logs: Path) -> None:
    (logs / "facts.toml").write_text("gpus = 4")
    (logs / "run.log.facts.toml").write_text("gpus = 8")
    found = facts_from_sidecars(logs / "run.log")
    assert [(f["value"], f["origin"]) for f in found] == [
        ("4", "sidecar:facts.toml"),
        ("8", "sidecar:run.log.facts.toml"),
    ]


@pytest.mark.parametrize("size", [240, 241, 242, 255])
def test_a_log_whose_sidecars_name_no_file_could_have_has_none(size: int, logs: Path) -> None:
    """Of 255 bytes, of which `.facts.toml` takes 11; that of the folder holds all the same."""
    (logs / "facts.toml").write_text("gpus = 4")
    log = logs / f"{'a' * (size - 4)}.log"
    log.touch()
    assert given(facts_from_sidecars(log)) == {"gpus": "4"}


# -- what stands beside the log ------------------------------------------------------------


def test_companions_state_what_is_a_number(logs: Path) -> None:
    config: dict[str, Any] = {"train_batch_size": 64, "gradient_accumulation_steps": "auto"}
    config |= {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "autotp_size": 0}}
    config |= {"sequence_parallel_size": 2, "tensor_parallel": {"autotp_size": 4}}
    (logs / "ds_config.json").write_text(json.dumps(config))
    (logs / "config.yaml").write_text("seq_len: {value: 512}\nlr: {value: 0.1}\n")
    assert given(facts_from_companions(logs / "run.log")) == {
        "global_batch_size": "64",
        "precision": "bf16",
        "zero_stage": "3",
        "offload": "none",
        "context_parallel": "2",
        "tensor_parallel": "4",
        "seq_len": "512",
    }


def test_ranks_that_share_a_micro_batch_are_not_counted_each(logs: Path) -> None:
    """DeepSpeed's AutoTP, told in the user's config alone, as the engine prints it."""
    stamp = "[2026-11-20 15:01:{:02d},512] [INFO] "
    config = ["json = {", '    "tensor_parallel": {', '        "autotp_size": 4', "    }", "}"]
    steps = [
        f"{stamp.format(step)}[logging.py:123:log_dist] [Rank 0] step={step}, skipped=0, "
        "lr=[0.0005], mom=[(0.9, 0.95)]"
        for step in range(1, 12)
    ]
    text = "\n".join([f"{stamp.format(0)}[config.py:664:print_user_config]   {config[0]}"])
    log = logs / "run.log"
    log.write_text("\n".join([text, *config[1:], *steps, ""]))
    flags = ["gpus=8", "seq_len=2048", "micro_batch_size=1", "gradient_accumulation=1"]
    metrics = analyse(
        read_log_tables(log, flag_facts=facts_from_flags([*flags, "packed=true"]))
    ).metrics
    assert metrics["tokens_per_gpu_step"].to_list() == [2048 / 4]


JOB: Final = {
    "training": {
        "local_batch_size": 4,
        "global_batch_size": -1,
        "seq_len": 4096,
        "steps": 1000,
        "mixed_precision_param": "bfloat16",
    },
    "optimizer": {"name": "AdamW"},
    "metrics": {"log_freq": 5},
    "parallelism": {
        "data_parallel_shard_degree": -1,
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 1,
        "context_parallel_degree": 1,
    },
    "activation_checkpoint": {"mode": "selective"},
    "compile": {"enable": True},
}
JOB_FACTS: Final = {
    "log_interval": "5",
    "seq_len": "4096",
    "micro_batch_size": "4",
    "total_steps": "1000",
    "tensor_parallel": "2",
    "pipeline_parallel": "1",
    "context_parallel": "1",
    "precision": "bf16",
    "recompute": "selective",
    "compile": "true",
}


@pytest.mark.parametrize(
    "name", ["config.yaml", "config.json", "wandb/run-20261120_153416-ab12cd34/files/config.yaml"]
)
def test_a_job_config_of_torchtitan_states_the_same_wherever_it_is_kept(
    name: str, logs: Path
) -> None:
    path = logs / name
    path.parent.mkdir(parents=True, exist_ok=True)
    logged = {key: {"value": value} for key, value in JOB.items()} | {"_wandb": {"value": {}}}
    path.write_text(json.dumps(JOB if name == "config.json" else logged))
    found = facts_from_companions(logs / "run.log")
    assert given(found) == JOB_FACTS
    assert {fact["origin"] for fact in found} == {f"companion:{name}"}


def test_the_toml_of_a_torchtitan_job_states_what_it_sets(logs: Path) -> None:
    (logs / "job.toml").write_text(
        '[job]\ndump_folder = "./outputs"\n[optimizer]\nname = "AdamW"\n'
        "[training]\nlocal_batch_size = 2\nseq_len = 256\nsteps = 30\n"
        '[activation_checkpoint]\nmode = "selective"\n'
    )
    # Degrees are not set, so a flag may have set them: the local batch is not one GPU's.
    assert given(facts_from_companions(logs / "run.log")) == {
        "seq_len": "256",
        "total_steps": "30",
        "recompute": "selective",
    }


def test_a_job_config_with_micro_steps_does_not_state_their_batch(logs: Path) -> None:
    training = {**JOB["training"], "global_batch_size": 64}
    (logs / "config.json").write_text(json.dumps({**JOB, "training": training}))
    facts = given(facts_from_companions(logs / "run.log"))
    assert facts["global_batch_size"] == "64"
    assert "micro_batch_size" not in facts


def test_of_two_runs_beside_a_log_neither_speaks_for_it(logs: Path) -> None:
    for run in ("run-20261120_153416-ab12cd34", "run-20261120_163416-ef56ab78"):
        path = logs / "wandb" / run / "files" / "config.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("seq_len: {value: 512}\n")
    assert facts_from_companions(logs / "run.log") == []


def test_the_last_values_of_wandb_are_no_facts(logs: Path) -> None:
    last = {"_step": 60, "_runtime": 43.1, "throughput(tps)": 1267.0, "n_tokens_seen": 61440}
    (logs / "wandb-summary.json").write_text(json.dumps(last))
    assert facts_from_companions(logs / "output.log") == []


@pytest.mark.parametrize(
    "name", ["config.json", "ds_config.json", "config.yaml", "job.toml", "vis_data/config.py"]
)
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b"{",
        b"null",
        b'{"model": 1}',
        b"seq_len: {value: null}",
        b"seq_len: {value: auto}",
        b'{"train_batch_size": -1, "bf16": 1}',
        b"[" * 3_000,
        b'{"training": {"seq_len": "auto", "steps": -1}, "optimizer": {}}',
        b"training: {value: {seq_len: -1}}\noptimizer: {value: {}}",
        b"[training]\nseq_len = 0\nsteps = 1.5\n[optimizer]\n",
    ],
    ids=range(13),
)
def test_a_companion_that_says_nothing_useful_harms_nothing(
    name: str, text: bytes, logs: Path
) -> None:
    (logs / name).parent.mkdir(exist_ok=True)
    (logs / name).write_bytes(text)
    assert facts_from_companions(logs / "run.log") == []


MMENGINE_CONFIG = """\
train_dataloader = dict(batch_size=2, dataset=dict(max_length=256, pack_to_max_length=True))
train_cfg = dict(max_iters=20)
log_processor = dict(window_size=5)
"""
MMENGINE_STEPS = "".join(
    f'{{"lr": 0.1, "data_time": 0.1, "loss": 1.5, "time": 0.5, "iter": {n}, "step": {n}}}\n'
    for n in (5, 10, 15, 20)
)


@pytest.mark.parametrize(
    ("log", "dump"),
    [("run.log", "vis_data/config.py"), ("vis_data/scalars.json", "vis_data/config.py")],
)
def test_xtuners_dump_of_its_config_is_a_companion(log: str, dump: str, logs: Path) -> None:
    for name, text in ((log, MMENGINE_STEPS), (dump, MMENGINE_CONFIG)):
        (logs / name).parent.mkdir(exist_ok=True)
        (logs / name).write_text(text)
    tables = read_log_tables(logs / log)
    assert given(tables["facts"].to_dicts()) == {
        "seq_len": "256",
        "packed": "True",
        "micro_batch_size": "2",
        "average_window": "5",
        "total_steps": "20",
    }
    assert set(tables["facts"]["origin"]) == {
        f"companion:{Path(dump).relative_to(Path(log).parent)}"
    }
    assert tables["runs"]["outcome"].to_list() == ["completed"]


def test_a_config_of_another_folder_is_no_companion(logs: Path) -> None:
    (logs / "config.py").write_text(MMENGINE_CONFIG)
    assert facts_from_companions(logs / "scalars.json") == []


def test_a_config_that_is_given_as_a_log_says_where_it_is_read(logs: Path) -> None:
    (logs / "config.py").write_text(MMENGINE_CONFIG)
    with pytest.raises(UnknownFormatError, match="dumped config gives facts to a log"):
        read_log_tables(logs / "config.py")


def test_files_that_give_facts_to_a_whole_folder_are_named(logs: Path) -> None:
    """Whoever watches a folder reads its logs again when one of these changes."""
    wandb = logs / "wandb" / "run-20261120_153416-ab12cd34" / "files" / "config.yaml"
    wandb.parent.mkdir(parents=True)
    wandb.touch()
    every = {"facts.toml", "config.json", "ds_config.json", "config.yaml", "job.toml"}
    every |= {"wandb-metadata.json", "args.json", "adapter_config.json", "trainer_state.json"}
    every |= {"all_results.json", "train_results.json", "wandb-summary.json"}
    assert {p.name for p in shared_fact_files(logs, None) if p.parent == logs} == every
    assert wandb in shared_fact_files(logs, None)
    assert shared_fact_files(logs, ["facts.toml", "run.log"]) == [logs / "facts.toml"]
    assert shared_fact_files(logs, ["wandb"]) == [wandb]
    dump = logs / "vis_data" / "config.py"
    assert shared_fact_files(dump.parent, ["config.py"]) == [dump]


# -- what follows --------------------------------------------------------------------------


MEGATRON = (
    " iteration {step}/ 9 | elapsed time per iteration (s): 2.0 | actual seqlen: 2048 | "
    "samples per second: {samples} | tokens per gpu per second (tgs): {tgs} | "
)


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ([(24, 3072), (12, 1536)], "16"),
        ([(24.01, 3072)], "16"),
        ([(24, 3072), (48, 3072)], None),
        ([(24, 0)], None),
        ([("inf", 3072)], None),
        ([("nan", 3072), (24, 3072)], "16"),
        ([(0, 3072), (24, 3072)], "16"),
        ([(0.01, 3072)], None),
    ],
)
def test_gpus_follow_from_rates_that_agree(
    lines: list[tuple[float | str, float]],
    gpus: str | None,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    text = [MEGATRON.format(step=n, samples=s, tgs=t) for n, (s, t) in enumerate(lines, 1)]
    (launch,) = parse("megatron-deepspeed", text).launches
    assert given(infer_facts(by_name["megatron-deepspeed"], [launch])[0]).get("gpus") == gpus


def test_a_line_without_tokens_tells_nothing_of_the_gpus(by_name: dict[str, LogFormat]) -> None:
    """24 samples/s x 2048 tokens / (3072 tokens/s/GPU) = 16 GPUs, but of a warm-up's line none."""
    rates = {"logged_samples_per_second": 24.0, "logged_tgs": 3072.0}
    rows = [
        {"line": n, "step": n, **rates, "sequence_length": length}
        for n, length in enumerate((0, 2048, 2048), 1)
    ]
    (found,) = infer_facts(by_name["megatron-deepspeed"], [launch_of(rows)])
    assert given(found)["gpus"] == "16"


@pytest.mark.parametrize(
    ("lengths", "seq_len"),
    [([2048] * 3, "2048"), ([512, 2048, 2048], None), ([2048, 2048], None), ([], None)],
)
def test_the_sequence_length_follows_from_lines_that_all_print_it(
    lengths: list[int],
    seq_len: str | None,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    printed = [f"actual seqlen: {length} | " for length in lengths] or [""] * 3
    text = [
        MEGATRON.format(step=n, samples=24, tgs=3072).replace("actual seqlen: 2048 | ", said)
        for n, said in enumerate(printed, 1)
    ]
    (launch,) = parse("megatron-deepspeed", text).launches
    assert given(infer_facts(by_name["megatron-deepspeed"], [launch])[0]).get("seq_len") == seq_len


def stated(**values: int) -> list[dict[str, Any]]:
    """Facts of a log, each of a line of its own."""
    return [{"name": n, "value": str(v), "line": i} for i, (n, v) in enumerate(values.items(), 1)]


@pytest.mark.parametrize(
    ("batch", "more", "groups"),
    [
        (48, {}, "2"),  # 48 / (2 x 3 x 4)
        (24, {}, "1"),
        (12, {}, None),  # less than one group's: the sizes are not of one job
        (50, {}, None),
        (48, {"data_parallel": 0}, None),  # not known
        (48, {"replica_group": None}, None),
    ],
)
def test_replica_groups_follow_from_the_global_batch(
    batch: int, more: dict[str, Any], groups: str | None, by_name: dict[str, LogFormat]
) -> None:
    sizes = {"micro_batch_size": 2, "gradient_accumulation": 3, "data_parallel": 4}
    said = {"replica_group": 0, "global_batch_size": batch, **sizes, **more}
    launch = launch_of([{"line": 9, "step": 1}])
    launch.facts = stated(**{name: value for name, value in said.items() if value is not None})
    found = given(infer_facts(by_name["torchtitan"], [launch])[0])
    assert found.get("replica_groups") == groups


STAMP: Final = "[2026-05-01 10:00:00,000] [INFO] "
BEGINS: Final = f"{STAMP}[comm.py:652:init_distributed] cdb=None\n"
WORLD: Final = f"{STAMP}[config.py:1007:print]   world_size ................... {{}}\n"
LAUNCHED: Final = f"{STAMP}[launch.py:163:main] dist_world_size={{}}\n"
FAILED: Final = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nRuntimeError: no\n'
)
FIRST_STEP: Final = (
    f"{STAMP}[timer.py:264:stop] epoch=0/micro_step=1/global_step=1, RunningAvgSamplesPerSec=16.1, "
    "CurrSamplesPerSec=16.1, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
)


def groups(model: int, sequence: int = 1) -> str:
    """What the engine prints of its groups: how many GPUs share a model, and a sequence."""
    sizes = {"dp_world_size": 2, "mp_world_size": model}
    sizes |= {"seq_dp_world_size": 2, "sequence_parallel_size": sequence}
    return "".join(f"\t self.{name}={size}\n" for name, size in sizes.items())


@pytest.mark.parametrize(
    ("text", "gpus", "tensor"),
    [
        pytest.param(BEGINS * 8 + WORLD.format(2), "8", None, id="one node of several?"),
        pytest.param(BEGINS * 2 + WORLD.format(1), "2", None, id="two of one rank"),
        pytest.param(BEGINS * 2 + WORLD.format(2), None, None, id="each a rank"),
        pytest.param(BEGINS * 7 + WORLD.format(2), None, None, id="no multiple"),
        pytest.param(BEGINS + WORLD.format(2), None, None, id="fewer"),
        pytest.param(LAUNCHED.format(8) + BEGINS * 8 + WORLD.format(2), None, "4", id="launcher"),
        pytest.param(LAUNCHED.format(16) + BEGINS * 8 + WORLD.format(2), None, None, id="node"),
        pytest.param(BEGINS * 8 + FAILED + BEGINS * 8 + WORLD.format(2), "8", None, id="again"),
        pytest.param(BEGINS * 8 + WORLD.format(2) + FIRST_STEP + BEGINS, "8", None, id="later"),
        pytest.param(groups(1) + WORLD.format(2), "2", None, id="a model each"),
        pytest.param(groups(2) + WORLD.format(2), "4", "2", id="models of two"),
        pytest.param(BEGINS + groups(4) + WORLD.format(2), "8", "4", id="models of four"),
        pytest.param(groups(4, 2) + WORLD.format(2), "16", "4", id="sequences of two"),
        pytest.param(LAUNCHED.format(8) + groups(4) + WORLD.format(2), None, "4", id="both"),
        pytest.param(groups(4) + WORLD.format(2) + WORLD.format(8), None, "4", id="two worlds"),
        pytest.param(BEGINS * 8 + WORLD.format(2) + WORLD.format(4), None, None, id="and none"),
        pytest.param(
            BEGINS * 8 + groups(1) + WORLD.format(2) + WORLD.format(4), "8", None, id="of one GPU"
        ),
    ],
)
def test_gpus_follow_from_data_parallel_ranks_of_several_gpus(
    text: str,
    gpus: str | None,
    tensor: str | None,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    """GPUs = data-parallel ranks x GPUs of a model x GPUs of a sequence, of 2 ranks."""
    (launch,) = parse("deepspeed", text + FIRST_STEP.replace("=1,", "=2,")).launches
    found = given(infer_facts(by_name["deepspeed"], [launch])[0])
    assert (found.get("gpus"), found.get("tensor_parallel")) == (gpus, tensor)


@pytest.mark.parametrize(
    ("ranks", "gpus"), [((0, 1, 2, 3), "4"), ((0,), None), ((0, 2), None), ((1,), None)]
)
def test_gpus_follow_from_the_ranks_of_xtuner_v1(
    ranks: tuple[int, ...],
    gpus: str | None,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    example = by_name["xtuner-v1"].steps[0].example
    lines = [example.replace("[RANK 0]", f"[RANK {rank}]") for rank in ranks]
    (launch,) = parse("xtuner-v1", lines).launches
    assert given(infer_facts(by_name["xtuner-v1"], [launch])[0]).get("gpus") == gpus


def test_ranks_of_nodes_do_not_count_the_gpus_of_xtuner_v1(
    parse: Callable[..., ParsedSource], by_name: dict[str, LogFormat]
) -> None:
    example = by_name["xtuner-v1"].steps[0].example.replace("[RANK 0]", "")
    lines = [f"{node}: [rank{rank}]:{example}" for node in (0, 1) for rank in (0, 1)]
    (launch,) = parse("xtuner-v1", lines).launches
    assert {row["rank"] for row in launch.rows} == {"0:0", "0:1", "1:0", "1:1"}
    assert "gpus" not in given(infer_facts(by_name["xtuner-v1"], [launch])[0])


@pytest.mark.parametrize(
    ("primary", "companion", "packed"),
    [
        ("deepspeed", "deepspeed-chat", "false"),
        ("deepspeed", "hf-trainer", None),  # another framework's
        ("deepspeed", None, None),
    ],
)
def test_a_script_next_to_its_engine_implies_its_own_facts(
    primary: str, companion: str | None, packed: str | None, by_name: dict[str, LogFormat]
) -> None:
    companions = [by_name[companion]] if companion else []
    (found,) = infer_facts(by_name[primary], [launch_of([])], companions)
    assert given(found).get("packed") == packed


@pytest.mark.parametrize(
    ("exp_name", "stamps", "dates"),
    [
        ("cfg_20240504_152410", ["05/04", "05/05"], ["2024-05-04", "2024-05-05"]),
        ("cfg_20241231_235900", ["12/31", "01/01"], ["2024-12-31", "2025-01-01"]),
        ("cfg_20230228_120000", ["02/28", "02/29"], ["2023-02-28", None]),
        ("no_stamp", ["05/04", "05/05"], ["2000-05-04", "2000-05-05"]),
    ],
    ids=["year", "new-year", "no-such-day", "unknown"],
)
def test_stamps_without_a_year_take_it_from_the_name_of_the_experiment(
    exp_name: str, stamps: list[str], dates: list[str | None], logs: Path
) -> None:
    steps = [
        f"{stamp} 10:00:00 - mmengine - INFO - Iter(train) [{n}/2]  time: 0.5  loss: 1.5\n"
        for n, stamp in enumerate(stamps, 1)
    ]
    named = f"{stamps[0]} 09:00:00 - mmengine - INFO - Exp name: {exp_name}\n"
    (logs / "run.log").write_text(named + "".join(steps))
    tables = read_log_tables(logs / "run.log")
    found = tables["steps"]["logged_at"].dt.strftime("%Y-%m-%d").to_list()
    assert found == dates
    started = tables["runs"]["started_at"].dt.strftime("%Y-%m-%d").to_list()
    assert started == [None if exp_name == "no_stamp" else dates[0]]


def test_every_inferred_fact_says_from_what(
    parse: Callable[..., ParsedSource], by_name: dict[str, LogFormat]
) -> None:
    for name, log_format in by_name.items():
        (launch,) = parse(name, [log_format.steps[0].example]).launches
        for fact in infer_facts(log_format, [launch])[0]:
            assert fact["name"] in FACT_NAMES
            assert len(fact["origin"]) > len("inferred: ")
            assert fact["origin"].startswith("inferred: ")


# -- as a user gives them ------------------------------------------------------------------


def test_facts_are_given_and_taken_back_on_the_command_line(
    tmp_path: Path, logs: Path, titan: Callable[..., str]
) -> None:
    def run(*words: object) -> Result:
        return CliRunner().invoke(main, [*map(str, words), "--store", str(tmp_path / "store")])

    def seq_len() -> int | None:
        return json.loads(run("runs", "--format", "json").stdout)[0]["seq_len"]

    (logs / "a.log").write_text(titan())
    (logs / "my.toml").write_text("seq_len = 64")
    run("ingest", logs / "a.log", "--facts", logs / "my.toml")
    (logs / "a.log").write_text(titan(5))
    run("ingest", logs / "a.log")
    assert seq_len() == 64
    assert run("set", "a", "seq_len=128").stderr == "Set 1 fact on 1 run\n"
    assert seq_len() == 128
    run("set", "a", "seq_len=")
    assert seq_len() is None
    assert run("set", "a", "seq_len=").stderr == "Nothing changed on 1 run\n"
    (logs / "a.log").write_text(titan(5, loss=9.0))
    said = run("ingest", logs / "a.log").stderr
    assert said.endswith("a.log: has another run now; the earlier one is kept\n1 read\n")


def test_a_config_of_aliases_within_aliases_is_not_read(tmp_path: Path) -> None:
    """Eight lines that stand for 43 million values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 8)]
    lines += ["training: {value: {x: *a7}}", "optimizer: {value: {}}", "seq_len: {value: 4096}"]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    assert facts_from_companions(tmp_path / "run.log") == []
    (tmp_path / "config.yaml").write_text("\n".join(lines[-2:]))
    assert [fact["value"] for fact in facts_from_companions(tmp_path / "run.log")] == ["4096"]


def test_a_number_that_cannot_be_printed_ends_no_reading(tmp_path: Path) -> None:
    (tmp_path / "vis_data").mkdir()
    (tmp_path / "vis_data" / "config.py").write_text(f"batch_size = 0x{'f' * 5000}\n")
    assert facts_from_companions(tmp_path / "run.log") == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["model=llama3-9b"], ["The model 'llama3-9b' is unknown", "llama3-8b"]),
        (["accelerator=H1000"], ["The accelerator 'H1000' is unknown", "H100"]),
        (["accelerator=H1000", "peak_flops=1e15"], []),
        (["model=llama3-8b", "accelerator=h100"], []),
        (["accelerator=ACME X1"], []),
        (["model="], []),
    ],
)
def test_a_name_that_nothing_is_known_of_is_taken_and_said(
    given: list[str], says: list[str], tmp_path: Path, logs: Path, titan: Callable[..., str]
) -> None:
    (logs / "a.log").write_text(titan())
    (tmp_path / "mine.toml").write_text(
        '[[accelerator]]\nname = "ACME X1"\nunit = "GPU"\nsource = "sheet"\npeaks = {bf16 = 8e14}\n'
    )
    overlay = ["--accelerators", str(tmp_path / "mine.toml")]
    store = ["--store", str(tmp_path / "store")]

    def told(*words: str) -> list[str]:
        result = CliRunner().invoke(main, [*overlay, *words, *store])
        assert result.exit_code == 0, result.output
        return [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]

    flags = [word for one in given for word in ("--set", one)] if given != ["model="] else []
    for found in (told("ingest", str(logs / "a.log"), *flags), told("set", "a", *given)):
        assert len(found) == bool(says)
        assert all(words in found[0] for words in says)


def test_errors_name_what_took_the_fact(tmp_path: Path) -> None:
    wrong = CliRunner().invoke(main, ["set", "a", "seq_len=x", "--store", str(tmp_path / "none")])
    assert wrong.stderr == "Error: fairmfu set: seq_len='x' is not a number [tokens].\n"


def test_two_names_of_one_device_are_no_disagreement() -> None:
    def said(*values: str) -> list[str]:
        rows = [
            {"run_id": "a", "name": "accelerator", "value": v, "origin": o, "sequence": n}
            for n, (v, o) in enumerate(zip(values, ("log", "flag"), strict=True))
        ]
        return [*chain(*conflicting_facts(pl.DataFrame(rows)).values())]

    assert said("NVIDIA H100 80GB HBM3", "h100") == []
    assert said("ACME X1", "acme x1") == []
    assert said("NVIDIA H100 80GB HBM3", "H200") == [
        "accelerator: NVIDIA H100 80GB HBM3 (log) against H200 (flag)."
    ]


BIGSCIENCE = (
    " iteration {:8}/   10000 | consumed samples: {:12} | consumed tokens: {:12} | elapsed time "
    "per iteration (ms): 5000.0 | learning rate: 1.000E-05 | global batch size:    64 | lm loss: "
    "5.000000E+00 | loss scale: 1.0 | grad norm: 1.000 | num zeros: 0.0 | number of skipped "
    "iterations:   0 | number of nan iterations:   0 | samples per second: 12.8 | TFLOPs: 150.0 |"
)


@pytest.mark.parametrize(
    ("lengths", "known"),
    [
        ((2048, 2048, 2048), "2048"),
        ((1024, 1024, 1024), "1024"),  # whatever was consumed before
        ((2048, 2048, 1024), None),
        ((2048,), None),  # by chance
        ((100.5, 100.5, 100.5), None),
    ],
)
def test_the_length_of_samples_follows_from_tokens_and_samples(
    lengths: tuple[float, ...], known: str | None, tmp_path: Path
) -> None:
    """Part of a log, without Megatron's arguments: its MFU lacked the length of samples alone."""
    tokens, lines = 64 * 2048 * 100, []
    for step, length in enumerate((0, *lengths), 100):
        tokens += int(64 * length)
        lines.append(BIGSCIENCE.format(step, 64 * step, tokens))
    (tmp_path / "run.log").write_text("\n".join([*lines, ""]))
    facts = read_log_tables(tmp_path / "run.log")["facts"].filter(name="seq_len")
    assert facts["value"].to_list() == ([] if known is None else [known])
    assert all(origin.startswith("inferred: ") for origin in facts["origin"])
