"""Figures of Torchtitan's oldest lines, its forks and its newest header, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.decode.line_reader import NumberedLine
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.formats.torchtitan.job_config import job_config_facts
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.messages import MANY_UNREAD_LINES, UNREAD_LINES
from fairmfu.metrics.throughput.messages import (
    PROFILED_WINDOWS,
    RATE_SKIPS_STEPS,
    SKIPPED_STEPS_DIFFER,
)
from fairmfu.metrics.utilization.messages import TF32_UNKNOWN
from tests.support.kinds import of_kind

GIVEN = ("seq_len=1000", "gpus=2", "global_batch_size=4")
"""2,000 tokens on each GPU and step."""


@pytest.fixture
def rates(logs: Any) -> Any:
    """The metrics of a log with these lines."""

    def read(lines: list[str], *flags: str) -> dict[str, Any]:
        (logs / "run.log").write_text("".join(f"{line}\n" for line in lines))
        facts = given.facts_from_flags(list(flags))
        tables = read_log_tables(logs / "run.log", flag_facts=facts)
        return analyse(tables).metrics.row(0, named=True)

    return read


@pytest.mark.parametrize("share", ["", " = 25.0000%"])
def test_a_step_line_of_a_fork_has_the_planned_steps(share: str, rates: Any) -> None:
    end = "memory: 30.02GiB(31.59%)  tps: 7,034  mfu: 41.19%"
    steps = [f"step: {step}/90{share}  loss:  2.0{step}00  {end}" for step in (10, 20, 30)]
    metrics = rates(steps, *GIVEN)
    assert (metrics["steps"], metrics["last_step"], metrics["total_steps"]) == (3, 30, 90)
    assert metrics["outcome"] == "incomplete"


@pytest.mark.parametrize(
    ("norms", "losses", "said"),
    [
        ("nan nan 1.5 nan", "2.4 2.3 2.2 2.1", "NaN in 3 of 4 steps"),
        ("1.5 inf 1.5 1.5", "2.4 2.3 2.2 2.1", None),  # a loss scale that was too high
        ("1.5 nan 1.5 1.5", "2.4 2.3 2.2 2.1", None),
        ("nan nan nan nan", "2.4 2.4 2.4 2.4", None),  # the outcome says it
    ],
)
@pytest.mark.parametrize("known", [GIVEN, ()])
def test_gradients_without_a_number_are_noted_beside_a_changing_loss(
    known: tuple[str, ...], norms: str, losses: str, said: str | None, rates: Any
) -> None:
    end = "memory: 30.02GiB(31.59%)  tps: 7,034  tflops: 9.10  mfu: 41.19%"
    figures = zip((10, 20, 30, 40), norms.split(), losses.split(), strict=True)
    steps = [f"step: {at}  loss: {loss}  grad_norm: {norm}  {end}" for at, norm, loss in figures]
    metrics = rates(steps, *known)
    noted = [text for text in metrics["warnings"] if "gradient norm is NaN" in text]
    assert [said in text for text in noted] == ([True] if said else [])


@pytest.mark.parametrize(
    ("end", "rate", "mfu"),
    [
        ("tps: 7,034  tflops: 407.37  mfu: 41.19%", 7034.0, 0.4119),
        ("tps: 7,034  tflops: 407.37  mfu: 4_1.19%", 7034.0, None),
        ("tps: 7,034  tflops: 407.37  mfu: 41.19%  lr: 1.5e-05", 7034.0, 0.4119),
        ("tps: 7,034  tflops: 407.37  mfu: 41.19%  lr: 1.5e-", 7034.0, 0.4119),
        ("tps: 7_034  tflops: 407.37  mfu: 41.19%", None, None),
        ("tps: 7_034", None, None),
        ("tps: 7e-", None, None),
    ],
)
def test_half_a_number_is_none(end: str, rate: float | None, mfu: float | None) -> None:
    line = f"step: 10  loss: 2.0000  memory: 30.02GiB(31.59%)  {end}"
    parsed = parse_lines([NumberedLine(1, f"[titan] {line}", cut=False)], TORCHTITAN)
    rows = [row for launch in parsed.launches for row in launch.rows]
    assert [row["logged_tgs"] for row in rows] == ([] if rate is None else [rate])
    assert [row.get("logged_mfu") for row in rows] == ([] if rate is None else [mfu])
    assert parsed.unread_lines == (rate is None)
    extra = json.loads(rows[0]["extra"] or "{}") if rows else {}
    assert extra.get("lr") == ("1.5e-05" if end.endswith("05") else None)


def test_iter_is_one_step_without_its_data(rates: Any) -> None:
    prefix = "2024-02-27 10:11:{:02},000 - root - INFO - step: {:2}  loss:  9.0  "
    lines = [
        (prefix + "iter:  {}  data: 0.1  lr: 0.0001").format(n, n, 3.9 if n == 1 else 0.9)
        for n in range(1, 6)
    ]
    row = rates(lines, *GIVEN)
    assert row["time_basis"] == "elapsed"
    assert row["tgs"] == pytest.approx(2000.0)
    assert row["evidence_gap"] == pytest.approx(0.0, abs=1e-9)


def test_lines_that_print_no_step_are_timed_by_their_stamps(rates: Any) -> None:
    lines = [f"2024-01-12 10:11:{n:02},000 - root - INFO - current loss: 9.5" for n in range(5)]
    row = rates(lines, *GIVEN)
    assert (row["time_basis"], row["steps"], row["windows"]) == ("stamp", 5, 4)
    assert row["tgs"] == pytest.approx(2000.0)


def test_end_to_end_of_a_key_value_line_is_no_time_of_a_step(rates: Any) -> None:
    """It divides every interval by log_freq: of nine steps at step 10 it says 0.9 of a step."""
    lines = [
        f"[2025-02-04 10:{n:02}:00][I][mmm/train:493:__main__] step={n} global_avg_loss=9.5 "
        f"throughput(tps)=500.0 mfu(%)=5.0 end_to_end(s)={2.0 if n > 10 else 1.8} "
        "data_loading(s)=0.001 data_loading(%)=0.1"
        for n in (1, 10, 20)
    ]
    row = rates(lines, *GIVEN)
    assert (row["time_basis"], row["windows"]) == ("rate", 1)
    assert row["tgs"] == pytest.approx(500.0)


def test_tokens_of_a_flame_step_follow_from_its_running_total(rates: Any) -> None:
    lines = [
        f"[titan] 2025-03-02 10:11:{n:02},000 - root - INFO - step: {n:8,} token: "
        f"{n * 6000.0:15,}  loss:  9.5  lr: 1.0000e-04 gnorm:  0.50 memory: 10.00GiB "
        "tgs:   3,000 mfu: 10.00% [ 0:00:01< 0:01:00]"
        for n in range(1, 5)
    ]
    row = rates(lines, "gpus=2")
    assert row["tokens_per_gpu_step"] == pytest.approx(3000.0)
    assert row["tgs"] == pytest.approx(3000.0)
    assert row["evidence_gap"] == pytest.approx(0.0, abs=1e-9)


def test_a_header_that_counts_tokens_gives_the_tokens_of_a_step(rates: Any, titan: Any) -> None:
    header = (
        "[titan] 2026-01-02 03:04:00,000 - root - INFO - Trainer is initialized with 16384 tokens "
        "per DP rank, 131072 tokens per train step, gradient accumulation steps 1, maximum context "
        "length 8192, total steps 3 (warmup 1)"
    )
    row = rates([header, *titan(tps=16384).splitlines()], "gpus=16")
    assert row["tokens_per_gpu_step"] == pytest.approx(131072 / 16)


@pytest.mark.parametrize(
    ("lines", "tflops", "mfu"),
    [
        (["tps: 883  tflops: 183.59", "mfu: 18.56%"], 183.59, 0.1856),
        (["tps: 883  tflops:", "183.59 mfu: 18.56%"], 183.59, 0.1856),
        (["tps: 883  tflops: 183.59", "Training completed"], 183.59, None),
        (["tps: 883", "Training completed"], None, None),
    ],
)
def test_a_step_line_that_is_wrapped_before_its_mfu_goes_on_in_the_next(
    parse: Any, lines: list[str], tflops: float | None, mfu: float | None
) -> None:
    """A squash merge wraps at 72 characters; what is no more of the step stays its own."""
    start = (
        "[rank0]:[titan] 2026-01-02 03:04:05,000 - root - INFO - step: 10 loss: 8.1 memory: 4.90"
    )
    first = f"{start}GiB(5.16%) {lines[0]}"
    parsed = parse("torchtitan", [first, *lines[1:], first.replace("10", "20")])
    rows = parsed.launches[0].rows
    assert [row["step"] for row in rows] == [10, 20]
    assert (rows[0].get("logged_tflops"), rows[0].get("logged_mfu")) == (
        tflops,
        None if mfu is None else pytest.approx(mfu),
    )
    assert rows[0]["logged_tgs"] == 883


def test_a_last_line_that_breaks_off_in_its_rate_is_not_read(titan: Any, tmp_path: Any) -> None:
    whole = titan(steps=3, tps=12345)
    log = tmp_path / "run.log"
    log.write_text(whole[: whole.rindex("tps: ") + len("tps: 12")])
    source = read_log_tables(log)["sources"].row(0, named=True)
    assert (source["step_lines"], source["unread_lines"]) == (2, 1)


ADAPTED = {"every-linear": 8 * 2 * 32 * 40_960 + 8 * (4096 + 128_256), "wq,wv": 8 * 32 * 13_312}
"""Parameters of rank 8 beside Llama 3 8B: r (in + out) of each matrix."""


@pytest.mark.parametrize(
    ("on", "targets"),
    [
        (" (all Linear layers)", "every-linear"),
        (", dropout=0.0", "every-linear"),
        ("", "every-linear"),
        (", target_modules=['wq', 'wv']", "wq,wv"),
    ],
)
def test_lora_trains_adapters_alone(rates: Any, on: str, targets: str) -> None:
    """The log counts them with the model; its own MFU has them and all else trained."""
    counted = 8_030_261_248 + ADAPTED[targets]
    own = 6 * (counted - 128_256 * 4096) + 12 * 32 * 4096 * 8192
    day = "[titan] 2026-04-02 10:11:"
    said = [
        f"{day}00,000 - root - INFO - Starting job: lora",
        f"{day}00,500 - root - INFO - LoRA training active with rank=8, alpha=16.0{on}",
        f"{day}01,000 - root - INFO - Model llama3 8B size: {counted:,} total parameters",
        f"{day}01,500 - root - INFO - Applied FSDP to the model",
    ]
    said += [
        f"{day}{n + 10},000 - root - INFO - step: {n:2}  loss: {9 - n / 10:8.5f}  grad_norm:  1.2  "
        f"memory:  1.50GiB(3.00%)  tps: 8,192  tflops: {own * 8192 / 1e12:.2f}  "
        f"mfu: {own * 8192 / 989e12:.2%}"
        for n in range(1, 9)
    ]
    row = rates(said, "seq_len=8192", "gpus=1", "global_batch_size=1", "accelerator=H100 SXM")
    assert row["trained"] == f"lora of rank 8 on {', '.join(targets.split(','))}"
    forward = 2 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096) + 4 * 32 * 4096 * (8192 + 1) / 2
    backward = forward + 4 * 32 * 4096 * (8192 + 1) / 2
    work = forward + backward + 6 * ADAPTED[targets]
    assert row["flops_per_token"] == pytest.approx(work, rel=1e-12)
    assert row["logged_reproduced"]


@pytest.mark.parametrize(
    ("on", "model"),
    [(" (all supported projection layers)", "llama3 8B"), ("", "qwen3 30B-A3B")],
    ids=["names no layers", "experts"],
)
def test_lora_on_layers_that_are_not_known_has_no_mfu(rates: Any, on: str, model: str) -> None:
    stamp = "[titan] 2026-04-02 10:11:"
    lines = [
        f"{stamp}00,500 - root - INFO - LoRA training active with rank=8, alpha=16.0{on}",
        f"{stamp}01,000 - root - INFO - Building device mesh with parallelism: dp_shard=1, cp=1, tp=1, ep=1",
        f"{stamp}01,500 - root - INFO - Applied FSDP to the model",
        *(
            f"{stamp}{n + 10},000 - root - INFO - step: {n:2}  loss: 9.0  memory:  1.50GiB(3.00%)  "
            "tps: 8,192  tflops: 300.00  mfu: 30.00%"
            for n in range(1, 9)
        ),
    ]
    facts = ("seq_len=8192", "gpus=1", "global_batch_size=1", "accelerator=H100 SXM")
    row = rates(lines, *facts, f"model={model}")
    assert row["mfu"] is None
    assert "lora_targets" in row["missing"]


def test_replicas_of_shards_are_another_setup(
    ingest: Any, store: Any, logs: Any, titan: Any
) -> None:
    """FSDP over 8 ranks and HSDP of 2 x 4 have as many data-parallel ranks, and are no repeats."""
    for name, replicas, shards, loss in (("fsdp", 1, 8, 5.0), ("hsdp", 2, 4, 6.0)):
        mesh = (
            "[titan] 2026-01-02 03:04:00,000 - root - INFO - Building device mesh with "
            f"parallelism: pp=1, dp_replicate={replicas}, dp_shard={shards}, cp=1, tp=1, ep=1\n"
        )
        (logs / f"{name}.log").write_text(mesh + titan(steps=9, loss=loss))
    ingest(logs)
    rows = analyse({name: store.table(name) for name in TABLES}).metrics.sort("name")
    assert rows["replicas"].to_list() == [1, 2]
    assert rows["gpus"].to_list() == [8, 8]


def test_a_mesh_of_one_device_that_is_built_late_begins_no_launch(parse: Any, titan: Any) -> None:
    first, *rest = titan(steps=7).splitlines()
    stamp = "[titan] 2026-01-02 03:04:01,900 - root - INFO - "
    late = f"{stamp}Building device mesh with parallelism: dp_shard=1, cp=1, tp=1, ep=1"
    (launch,) = parse("torchtitan", [first, late, *rest]).launches
    assert [row["step"] for row in launch.rows] == [*range(1, 8)]
    assert ("gpus", "1") in [(fact["name"], fact["value"]) for fact in launch.facts]


@pytest.mark.parametrize(
    "accumulation", ["gradient accumulation steps 2", "gradient_accumulation_steps: 2"]
)
def test_a_header_that_is_wrapped_before_its_last_number_states_the_others(
    parse: Any, titan: Any, accumulation: str
) -> None:
    header = [
        "[titan] 2026-02-11 01:21:06,678 - __main__ - INFO - Trainer is initialized with local "
        f"batch size 1, global batch size 48, {accumulation}, sequence length 4096,",
        "       total steps 10000 (warmup 200)",
    ]
    (launch,) = parse("torchtitan", [*header, *titan().splitlines()]).launches
    said = {fact["name"]: fact["value"] for fact in launch.facts}
    assert (said["seq_len"], said["micro_batch_size"]) == ("4096", "1")
    assert (said["global_batch_size"], said["gradient_accumulation"]) == ("48", "2")


@pytest.mark.parametrize(("unread", "ranked"), [(2, True), (12, False)])
def test_a_run_of_which_most_steps_are_unread_is_not_ranked(
    rates: Any, titan: Any, unread: int, *, ranked: bool
) -> None:
    """What could be read may be its start-up alone."""
    lines = titan(steps=30).splitlines()
    lines[10 : 10 + unread] = [
        line.replace("tps: 1,000", "tps: 1,0?0") for line in lines[10:][:unread]
    ]
    row = rates(lines, *GIVEN)
    (why,) = of_kind(row, UNREAD_LINES if ranked else MANY_UNREAD_LINES)
    assert (f"or too long): {unread}" if ranked else f"{unread} of 30 lines") in why
    assert why.startswith(NOT_RANKED) != ranked
    assert len(of_kind(row, UNREAD_LINES, MANY_UNREAD_LINES)) == 1


def test_a_mesh_of_one_device_begins_a_launch_behind_one_that_has_its_own(
    parse: Any, titan: Any
) -> None:
    """Of a log without its heads: else the first launch had the one GPU of the second."""
    stamp = "[titan] 2026-01-02 03:03:01,900 - root - INFO - "
    meshes = [
        f"{stamp}Building device mesh with parallelism: dp_shard={n}, cp=1, tp=1, ep=1"
        for n in (8, 1)
    ]
    lines = [meshes[0], *titan(steps=5).splitlines(), meshes[1], *titan(steps=5).splitlines()]
    launches = parse("torchtitan", lines).launches
    assert [one.last_value("gpus") for one in launches] == ["8", "1"]


CONFIG = (
    "Running with args: {'training': {'seq_len': 1000, 'mixed_precision_param': 'bfloat16'}, "
    "'parallelism': {'data_parallel_shard_degree': 1}}"
)
DDP = "Building 1-D device mesh with ['dp_replicate'], [2]", "Applied DDP to the model"


@pytest.mark.parametrize(
    ("header", "precision"),
    [
        pytest.param(DDP, "fp32", id="DDP"),
        pytest.param(DDP[1:], "fp32", id="DDP, its mesh not told"),
        pytest.param(["Building 0-D device mesh with [], []"], "fp32", id="one device"),
        pytest.param(["Building 1-D device mesh with ['tp'], [8]"], "fp32", id="TP alone"),
        pytest.param([*DDP, "Mixed precision training is handled by AMP"], "bf16", id="AMP"),
        pytest.param(
            ["Mixed precision training is handled by AMP", *DDP], "bf16", id="ranks out of order"
        ),
        pytest.param(
            ["Building 1-D device mesh with ['dp'], [2]", "Applied FSDP to the model"],
            "bf16",
            id="FSDP of 2024",
        ),
        pytest.param(
            ["Building 2-D device mesh with ['dp_shard', 'tp'], [2, 4]"], "bf16", id="FSDP"
        ),
        pytest.param(
            ["Building 2-D device mesh with ['dp_shard_mod_ep', 'dp_shard_in_ep'], [4, 2]"],
            "bf16",
            id="FSDP of experts",
        ),
        pytest.param(
            ["Building 1-D device mesh with ['cp'], [8]", "Applied FSDP to the model"],
            "bf16",
            id="CP",
        ),
        pytest.param(
            [DDP[0], "Applied Data Parallel (simple_fsdp) (dp mode=replicate) to the model"],
            "bf16",
            id="SimpleFSDP",
        ),
        pytest.param(
            ["Building 2-D device mesh with ['dp_replicate', 'fsdp'], [2, 4]"],
            "bf16",
            id="a name that may be FSDP's",
        ),
        pytest.param(
            [CONFIG.replace("{'seq_len'", "{'dtype': 'bfloat16', 'seq_len'"), *DDP],
            "bf16",
            id="weights of bf16",
        ),
        pytest.param([], "bf16", id="nothing told"),
    ],
)
def test_without_fsdp_nothing_was_cast_before_amp_came(
    header: Sequence[str], precision: str, rates: Any, titan: Any
) -> None:
    """The MFU of such a run was of the BF16 peak, and it stood among those of bf16."""
    said = [f"[titan] 2025-01-02 03:03:01,900 - root - INFO - {one}" for one in (CONFIG, *header)]
    lines = [*said, *titan(steps=5).splitlines()]
    facts = ("model=llama3-8b", "accelerator=NVIDIA H100 80GB HBM3", "gpus=2")
    row = rates(lines, *facts)
    if precision == "bf16":
        assert (row["precision"], row["missing"]) == ("bf16", [])
    else:
        assert (row["precision"], row["mfu"], row["missing"]) == (None, None, ["precision"])
        assert TF32_UNKNOWN() in row["warnings"]
        assert rates(lines, *facts, "precision=tf32")["precision"] == "tf32"


@pytest.mark.parametrize(
    ("mode", "ended"),
    [
        (" (dp mode=fully_shard)", "."),
        (" (dp mode=fully_shard)", " (18 mm ops found, 9 saved)"),
        ("", "."),
    ],
)
def test_the_graph_trainer_casts_and_recomputes_as_it_says(
    mode: str, ended: str, rates: Any, titan: Any
) -> None:
    """SimpleFSDP has the default of FSDP, and recomputes by a pass over the graph."""
    said = (
        f"Applied Data Parallel (simple_fsdp){mode} to the model",
        f"Applied selective activation checkpointing (SAC) graph pass{ended}",
        "  Layer 0: 11 MUST_SAVE, 42 RECOMPUTE",
    )
    lines = [f"[titan] 2026-05-02 03:03:01,900 - root - INFO - {one}" for one in said]
    row = rates([*lines, *titan(steps=5).splitlines()])
    assert (row["precision"], row["recompute"]) == ("bf16", "selective")
    assert "precision" in row["inferred"]


def test_ezpz_says_on_how_many_gpus_it_launches(parse: Any, titan: Any) -> None:
    """In a paste whose mesh is clipped; of two launches each has its own."""
    lines = [
        line
        for day, gpus in ((1, 24), (2, 12))
        for line in (
            f"[2026-02-0{day} 02:53:08,501612][I][ezpz/pbs:273:get_pbs_launch_cmd] ✅ Using "
            f"[{gpus}/24] GPUs [{gpus // 12} hosts] x [12 GPU/host]",
            "# ...clipped...",
            *titan(steps=5).splitlines(),
        )
    ]
    launches = parse("torchtitan", lines).launches
    gpus = [[fact["value"] for fact in one.facts if fact["name"] == "gpus"] for one in launches]
    assert gpus == [["24"], ["12"]]


def test_a_brace_in_a_text_that_is_cut_off_takes_no_time(parse: Any, titan: Any) -> None:
    block = ["[titan] 2026-01-02 03:03:01,900 - root - INFO - Building llama3 8B with {"]
    parse("torchtitan", [*block, '"a": "' + '\\"' * 50_000, "}", *titan().splitlines()])


def test_what_torchrun_writes_for_each_rank_is_one_run(
    ingest: Any, store: Any, logs: Any, titan: Any
) -> None:
    """`--log-dir` gives each a file without any sign of its rank but its folder."""
    for rank in range(2):
        log = logs / f"titan-8b/none_a1b2/attempt_0/{rank}/stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(titan(steps=5, tps=1000 + rank))
    outcomes = ingest(logs)
    assert [one.status for one in outcomes] == ["read"] * 2
    assert sorted(store.table("steps")["rank"]) == ["0"] * 5 + ["1"] * 5
    (run,) = analyse({name: store.table(name) for name in TABLES}).metrics.to_dicts()
    assert (run["name"], run["ranks"], run["steps"]) == ("titan-8b/none_a1b2", 2, 5)


def _validated(
    count: int = 60, slow: Collection[int] = (51, 52), *, old: bool = False
) -> list[str]:
    """Lines of steps of 1 s, 1,000 tokens each on a GPU, and 4 s of validation each 15 steps.

    slow: steps that take 3 s; old: in the words of 2025-07-09 to 15, when a validation did not
    start the rate anew.
    """
    lines, now, since, tokens = list[str](), 0.0, -20.0, 0
    prefix = "[titan] 2026-01-02 03:{:02.0f}:{:06.3f} - root - INFO - "

    def put(text: str) -> None:
        lines.append(prefix.format(now // 60, now % 60).replace(".", ",") + text)

    for step in range(1, count + 1):
        now, tokens = now + (3.0 if step in slow else 1.0), tokens + 1000
        if step == 1 or step % 10 == 0:
            rate, since, tokens = tokens / (now - since), now, 0
            put(f"step: {step:2}  loss:  8.1000  memory: 4.90GiB(5.16%)  tps: {rate:,.0f}")
        if step == 1 or step % 15 == 0:
            now += 4.0
            if old:
                put("Validation completed. Average loss: 8.1000 over 8 batches")
                continue
            rate, since, tokens = (tokens + 8000) / (now - since), now, 0
            put(f"validate step: {step:2}  loss: 8.1000  memory: 4.90GiB(5.16%)  tps: {rate:,.0f}")
    return lines


def test_the_rate_behind_a_validation_between_two_lines_is_of_the_steps_since(rates: Any) -> None:
    """Of 5 steps at step 20, behind 15, and at 50, behind 45; of ten, 4 s longer, at 60."""
    row = rates(_validated(), "seq_len=1000", "gpus=2", "global_batch_size=2")
    assert (row["time_basis"], row["windows"]) == ("rate", 5)
    assert row["tgs"] == pytest.approx(1000 * 40 / 44, rel=1e-3)
    (told,) = of_kind(row, RATE_SKIPS_STEPS)  # three windows tell too little of the others
    assert told.startswith("TGS leaves out 10 of 50 steps")
    assert of_kind(row, SKIPPED_STEPS_DIFFER) == []


def test_the_first_validations_are_in_the_rate_and_take_its_line_out(rates: Any) -> None:
    row = rates(_validated(old=True), "seq_len=1000", "gpus=2", "global_batch_size=2")
    assert (row["time_basis"], row["windows"]) == ("rate", 2)
    assert row["tgs"] == pytest.approx(1000 * 20 / 24, rel=1e-3)
    assert row["excluded_causes"] == ["start-up", "evaluation"]


@pytest.mark.parametrize(
    ("slow", "timed", "beyond"),
    [
        ((), 240.0, None),
        (range(11, 300, 30), 240.0, "20.0 s more"),
        (range(16, 300, 30), 260.0, "4.2 s less"),  # 50 steps at the pace of the others: 54.2 s
    ],
)
def test_slow_steps_that_no_rate_holds_show_in_the_stamps(
    rates: Any, slow: Collection[int], timed: float, beyond: str | None
) -> None:
    """Steps 11 to 15, 41 to 45, … are in no rate; a validation alone, as behind 30, takes 4 s."""
    row = rates(_validated(300, slow), "seq_len=1000", "gpus=2", "global_batch_size=2")
    (told,) = of_kind(row, RATE_SKIPS_STEPS, SKIPPED_STEPS_DIFFER)
    assert told.startswith(NOT_RANKED) == (beyond is not None)
    assert beyond is None or f"By time stamps they took {beyond} than as many others" in told
    assert row["tgs"] == pytest.approx(1000 * 240 / timed, rel=1e-3)


def profiled(log_freq: int, dump: str = "Dumping profiler traces") -> list[str]:
    """Forty steps of 1 s of 2,000 tokens; those from 17 to 20 take 2 s, the traces 3 s."""
    ends = [float(n + max(0, min(n, 20) - 16) + (3 if n > 20 else 0)) for n in range(41)]
    prefix = "[titan] 2026-03-02 10:11:{:06.3f} - root - INFO - "
    lines, last = [prefix.format(0) + "Training starts at step 1"], 0
    for n in range(1, 41):
        if n == 1 or not n % log_freq:
            tps = 2000 * (n - last) / (ends[n] - ends[last])
            lines.append(
                prefix.format(ends[n]) + f"step: {n:2}  loss:  9.0000  memory:  1.00GiB(1.00%)  "
                f"tps: {tps:,.0f}  tflops: 1.00  mfu: 1.00%"
            )
            last = n
        if n == 20:
            lines.append(prefix.format(ends[n]) + f"{dump} at step 20")
            lines.append(prefix.format(ends[n] + 3) + f"Finished {dump.lower()} in 3.00 seconds")
    return [line.replace(".", ",", 1) for line in lines]


@pytest.mark.parametrize(("log_freq", "windows"), [(1, 34), (2, 17), (10, 1)])
def test_steps_under_the_profiler_are_left_out_like_the_writing_of_its_traces(
    rates: Any, log_freq: int, windows: int
) -> None:
    """Traces of step 20 are of steps 17 to 20: the profiler warms up, then it records."""
    row = rates(profiled(log_freq), *GIVEN)
    assert row["windows"] == windows
    assert row["tgs"] == pytest.approx(2000.0)
    assert row["tgs_end_to_end"] == pytest.approx(2000 * 40 / 47, rel=1e-4)
    assert "profiler" in row["excluded_causes"]
    assert {lost["cause"] for lost in row["time_lost"]} >= {"profiler"}


def test_steps_under_the_profiler_count_where_there_are_no_others(rates: Any) -> None:
    """Each tenth step a line, each 20th the traces: start-up is not what is left."""
    seconds = (1.4 if n <= 10 else 2.0 if n % 20 == 1 else 1.0 for n in range(1, 101))
    ends = list(accumulate(seconds))
    prefix = "[titan] 2026-03-02 10:{:02.0f}:{:06.3f} - root - INFO - "
    lines, last, rated_from = [], 0, 0.0
    for n in (1, *range(10, 101, 10)):
        head = prefix.format(*divmod(ends[n - 1], 60)).replace(".", ",", 1)
        tps = 2000 * (n - last) / (ends[n - 1] - rated_from)
        lines.append(
            f"{head}step: {n:2}  loss:  9.0000  memory:  1.00GiB(1.00%)  tps: {tps:,.0f}  "
            "tflops: 1.00  mfu: 1.00%"
        )
        if n % 20 == 0:
            lines.append(f"{head}Dumping profiler traces at step {n}")
        last, rated_from = n, ends[n - 1]
    row = rates(lines, *GIVEN)
    assert (row["windows"], row["tgs"]) == (5, pytest.approx(2000, rel=1e-3))
    (told,) = of_kind(row, PROFILED_WINDOWS)
    assert "5 of 5 windows" in told
    assert told.startswith(NOT_RANKED)


def test_start_up_is_no_pace_where_all_else_is_spoiled(rates: Any) -> None:
    lines = profiled(10, "Dumping memory snapshot")
    dump = next(line for line in lines if "Dumping" in line)
    each = [part for line in lines if "ump" not in line for part in (line, dump)]
    assert rates(each, *GIVEN)["tgs"] is None


def test_how_many_steps_are_profiled_can_be_said(rates: Any) -> None:
    row = rates(profiled(1), *GIVEN, "profiled_steps=2")
    assert row["windows"] == 36
    assert row["tgs"] == pytest.approx(2000 * 36 / 38)


def test_a_snapshot_of_memory_is_of_no_step(rates: Any) -> None:
    row = rates(profiled(1, "Dumping memory snapshot"), *GIVEN)
    assert row["windows"] == 38
    assert row["tgs"] == pytest.approx(2000 * 38 / 42)


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        ({"enable_profiling": True, "profiler_warmup": 3, "profiler_active": 1}, "4"),
        ({"enable_profiling": True, "profiler_warmup": 0, "profiler_active": 10}, "10"),
        ({"enable_profiling": True, "profile_freq": 100}, None),
        ({"enable_profiling": True, "profiler_warmup": 0, "profiler_active": 0}, None),
        ({"enable_profiling": False, "profiler_warmup": 3, "profiler_active": 1}, None),
    ],
)
def test_the_job_config_says_how_many_steps_are_profiled(
    config: dict[str, Any], steps: str | None
) -> None:
    for section in ("profiling", "profiler"):  # the older name first
        assert job_config_facts({section: config}).get("profiled_steps") == steps


def test_the_first_steps_own_time_is_of_the_wall_time_where_tokens_are_by_rate_and_stamps(
    rates: Any,
) -> None:
    """Lines that were cut out of a log: 50 s of 300 tokens/s, then each 5 s at 3,000."""
    line = "2025-05-06 10:{:02}:{:02},250 - root - INFO - step: {:2}  loss:  9.{:02}  "
    lines = [
        (line + "memory: 40.00GiB(50.00%)  tps: {:,}  mfu: 9.00%").format(
            *divmod(5 * n, 60), n, n, 3000 if n > 1 else 300
        )
        for n in range(1, 31)
    ]
    row = rates(lines)
    assert row["tgs"] == pytest.approx(3000, rel=0.01)
    assert row["tgs_end_to_end"] == pytest.approx(30 * 15_000 / (50 + 29 * 5), rel=0.01)
    assert row["wall_s"] == pytest.approx(50 + 29 * 5, rel=0.01)
    lost = {cause["cause"]: cause["seconds"] for cause in row["time_lost"]}
    assert lost["start-up"] == pytest.approx(45, rel=0.02)


def test_a_replaced_data_loader_takes_back_what_the_text_data_set_implied(tmp_path: Path) -> None:
    """Its samples are shorter than the config's, and padded."""
    step = "step: {0:2}  loss:  5.0000  memory: 47.65GiB(50.16%)  tps: 5,760  mfu: 33.73%"
    mark = "[titan] 2026-11-20 11:07:1{} - root - INFO - "
    log = tmp_path / "run.log"
    log.write_text(
        f"{mark.format(1)}Preparing c4 dataset from allenai/c4\n"
        f"{mark.format(2)}Trainer is initialized with local batch size 160, global batch size 640, "
        "gradient accumulation steps 1, sequence length 260, total steps 100 (warmup 2)\n"
        f"{mark.format(3)}mm: replaced dataloader with LlavaPretrainDataset (N=558,128, "
        "dp_rank=0/4, local_bs=160, seq_len=258)\n"
        f"{mark.format(4)}{step.format(1)}\n{mark.format(5)}{step.format(2)}\n"
    )
    (run,) = analyse(read_logs(log)).metrics.to_dicts()
    assert (run["seq_len"], run["packed"]) == (258, "false")
