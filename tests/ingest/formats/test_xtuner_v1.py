"""XTuner v1: text log, tracker and TensorBoard of one run say the same; its config as facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.xtuner.v1 import CONFIG_EXAMPLE, FACT_BLOCKS
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.formula.model_shapes import find_model, from_hugging_face
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import PARTIAL_SEQUENCES
from tests.support.folders import TESTS
from tests.support.kinds import of_kind

Parse = Callable[..., ParsedSource]
Row = dict[str, Any]
VARIANTS = TESTS / "variants"


def body(variant: str) -> list[str]:
    return (VARIANTS / variant).read_text(encoding="utf-8").splitlines()[1:]


def rows(
    name: str, lines: list[str], parse: Parse, rank: str | None = None
) -> list[dict[str, Any]]:
    (launch,) = parse(name, lines).launches
    return [row for row in launch.rows if rank is None or row["rank"] == rank]


# -- one run, told three times -------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "precision"),
    [
        ("elapsed_s", 1e-9),
        ("data_s", 1e-9),
        ("rank_tokens", 0),
        ("rank_slots", 0),
        ("loss", 1e-6),
        ("grad_norm", 1e-6),
        ("learning_rate", 1e-9),
        ("attention_ratio", 1e-7),
        ("logged_tgs", 0.05),
        ("peak_memory_bytes", 0.005 * 2**30),
    ],
)
def test_text_and_tensorboard_of_one_rank_agree(
    column: str, precision: float, parse: Parse
) -> None:
    text = rows("xtuner-v1", body("xtuner-v1/Q.txt"), parse, rank="0")
    board = rows("xtuner-v1-tensorboard", body("xtuner-v1-tensorboard/Q.txt"), parse)
    assert [row["step"] for row in board] == [row["step"] for row in text[:2]] == [1, 2]
    for mine, theirs in zip(board, text, strict=False):
        assert mine[column] == pytest.approx(theirs[column], abs=precision, rel=0)


def test_tensorboard_counts_every_value_and_stamps_each_step(parse: Parse) -> None:
    parsed = parse("xtuner-v1-tensorboard", body("xtuner-v1-tensorboard/Q.txt"))
    assert parsed.step_lines == parsed.lines == 36
    (first, _) = parsed.launches[0].rows
    assert str(first["logged_at"]) == "2026-11-20 15:49:48.778053"


def test_values_of_other_kinds_stay_lines_of_their_own(parse: Parse) -> None:
    text = '{"tag": "notes", "step": 1, "wall_time": 1795190400.0, "kind": "text", "text": "a"}'
    lines = body("xtuner-v1-tensorboard/Q.txt")
    parsed = parse("xtuner-v1-tensorboard", [*lines[:9], text, *lines[9:18], "no json"])
    assert (parsed.lines, parsed.step_lines + parsed.other_lines) == (20, 20)
    assert len(parsed.launches[0].rows) == 1


# -- the tracker ---------------------------------------------------------------------------


def test_the_rank_of_a_tracker_is_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "exp_tracking" / "rank12"
    folder.mkdir(parents=True)
    (folder / "tracker.jsonl").write_text("\n".join(body("xtuner-v1-tracker/Q.txt")) + "\n")
    tables = read_log_tables(folder / "tracker.jsonl")
    assert set(tables["steps"]["rank"]) == {"12"}


def test_a_tracker_that_goes_on_after_a_resume_is_two_launches(parse: Parse) -> None:
    first, second = parse("xtuner-v1-tracker", body("xtuner-v1-tracker/P-resumed.txt")).launches
    assert [row["step"] for row in first.rows] == [1, 2, 3]
    assert [row["step"] for row in second.rows] == [2, 3, 4]


def test_single_scalars_in_a_tracker_are_no_steps(parse: Parse) -> None:
    parsed = parse("xtuner-v1-tracker", body("xtuner-v1-tracker/M.txt"))
    assert (parsed.step_lines, parsed.known_lines, len(parsed.launches)) == (3, 1, 1)


def test_a_tracker_cut_off_in_its_last_line_is_read_to_the_line_before(tmp_path: Path) -> None:
    log = tmp_path / "tracker.jsonl"
    log.write_text("\n".join(body("xtuner-v1-tracker/Q.txt"))[:-40])
    tables = read_log_tables(log)
    assert tables["steps"].height == 3
    assert tables["sources"]["unread_lines"][0] + tables["sources"]["other_lines"][0] == 1


# -- the text ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rank3.log", "rank_3.log", "rank3.log.gz"])
def test_the_rank_of_a_file_of_one_rank_is_in_its_name(name: str, tmp_path: Path) -> None:
    import gzip  # noqa: PLC0415 - one case

    lines = ("\n".join(body("xtuner-v1/P.txt")) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    assert set(read_log_tables(tmp_path / name)["steps"]["rank"]) == {"3"}


@pytest.mark.parametrize("tag", ["[default0]:", "[rank0]:", "0: "])
def test_the_trainers_own_rank_stands_before_the_launchers(tag: str, parse: Parse) -> None:
    line = tag + body("xtuner-v1/C.txt")[0].replace("[RANK 0]", "[RANK 8]")
    assert [row["rank"] for row in rows("xtuner-v1", [line], parse)] == ["8"]


@pytest.mark.parametrize("variant", ["G", "H", "L", "M", "N"])
def test_a_ratio_that_may_have_overflowed_is_kept_aside(variant: str, parse: Parse) -> None:
    for row in rows("xtuner-v1", body(f"xtuner-v1/{variant}.txt"), parse):
        assert row.get("attention_ratio") is None
        assert float(json.loads(row["extra"])["efficient_attn_ratio"]) > 0


def test_no_variant_takes_the_approximate_total_for_a_count(parse: Parse) -> None:
    for row in rows("xtuner-v1", body("xtuner-v1/P.txt"), parse):
        assert row.get("consumed_tokens") is row.get("step_tokens") is None


# -- the config ----------------------------------------------------------------------------


def facts(parse: Parse, *changes: tuple[str, str], lines: tuple[str, ...] = CONFIG_EXAMPLE) -> Any:
    text = "\n".join(lines)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {f["name"]: f["value"] for f in parse("xtuner-v1", text).launches[0].facts}


def test_the_config_of_a_known_model_gives_its_shape(parse: Parse) -> None:
    found = facts(parse, lines=tuple(body("xtuner-v1/Q-training-config.txt")))
    shape, published = (
        from_hugging_face(json.loads(found["model_config"])),
        find_model("qwen3-30b-a3b"),
    )
    assert shape.params_total == published.params_total
    assert shape.params_active == published.params_active


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"qk_norm": true', '"qk_norm": true, "with_gate": true'),
        ('"qk_norm": true', '"qk_norm": false'),
        ('"qkv_bias": false', '"qkv_bias": true'),
        ('"linear_attention": null', '"linear_attention": {"num_heads": 4}'),
        ('"linear_attention": null', '"mtp_config": {"num_layers": "?"}'),
        (
            '"linear_attention": null',
            '"mtp_config": {"num_layers": 1, "detach_mtp_lm_head_weight": true}',
        ),
        ('"linear_attention": null', '"n_routed_experts": 8'),
        ('"model_type": "qwen3"', '"model_type": "qwen3_5"'),
        ('"model_type": "qwen3"', '"model_type": "qwen3_moe"'),
    ],
)
def test_a_config_of_another_model_gives_no_shape(old: str, new: str, parse: Parse) -> None:
    assert {"model", "model_config"} <= facts(parse).keys()
    assert not {"model", "model_config"} & facts(parse, (old, new)).keys()


def test_a_config_made_in_python_is_a_qwen3_by_its_settings(parse: Parse) -> None:
    null = ('"model_type": "qwen3"', '"model_type": null')

    assert facts(parse, null)["model_config"] == facts(parse)["model_config"]
    for other in ('"qk_norm": false', '"qk_norm": true, "with_gate": true'):
        assert "model_config" not in facts(parse, null, ('"qk_norm": true', other))


def test_a_null_fsdp_cfg_is_the_default_precision(parse: Parse) -> None:
    null = ('"fsdp_cfg": {', '"fsdp_cfg": null, "other": {')
    float8 = ('"float8_cfg": null', '"float8_cfg": {"scaling_granularity_gemm": "TILEWISE"}')

    assert facts(parse, null)["precision"] == "bf16"
    assert "precision" not in facts(parse, null, float8)


def test_modules_of_multi_token_prediction_are_counted_beside_the_model(parse: Parse) -> None:
    found = facts(parse, ('"linear_attention": null', '"mtp_config": {"num_layers": 2}'))
    assert found["mtp_modules"] == "2"
    assert found["model_config"] == facts(parse)["model_config"]


@pytest.mark.parametrize(
    ("log_format", "loss"),
    [
        ("xtuner-v1", "reduced_llm_loss: 6.99893618, "),
        ("xtuner-v1-tracker", '"loss/reduced_llm_loss": 6.994091987609863, '),
    ],
)
def test_a_loss_of_multi_token_prediction_says_that_it_is_trained(
    log_format: str, loss: str, parse: Parse
) -> None:
    example = next(f for f in BUILT_IN_FORMATS if f.name == log_format).steps[0].example + "\n"
    assert loss in example
    stated = parse(log_format, example).launches[0].facts
    assert "mtp_trained" not in {fact["name"] for fact in stated}
    ahead = example.replace(loss, loss + loss.replace("llm", "mtp"))
    (fact,) = (f for f in parse(log_format, ahead).launches[0].facts if f["name"] == "mtp_trained")
    assert (fact["value"], fact["origin"]) == ("true", "log:1")


def test_a_model_with_a_vision_tower_is_not_named(parse: Parse) -> None:
    found = facts(parse, ('"linear_attention": null', '"vision_config": {"depth": 24}'))
    assert not {"model", "model_config"} & set(found)


@pytest.mark.parametrize(
    ("old", "new", "precision"),
    [
        ("torch.bfloat16", "torch.bfloat16", "bf16"),
        ('"lm_head_fp32": false', '"lm_head_fp32": true', None),
        ('"float8_cfg": null', '"float8_cfg": {"scaling_granularity_gemm": "tilewise"}', None),
        ("torch.bfloat16", "torch.float32", None),
    ],
)
def test_precision_is_that_of_fsdp_unless_something_else_is_set(
    old: str, new: str, precision: str | None, parse: Parse
) -> None:
    found = facts(parse, (old, new))
    assert found.get("precision") == precision
    assert ("quantization" in found) == ("tilewise" in new)


@pytest.mark.parametrize(
    ("new", "recompute"),
    [
        ("1.0", "full"),
        ("0.0", "none"),
        ("0.5", None),
        ('1.0, "recompute_cfg": ["save_attn"]', None),
    ],
)
def test_only_all_or_nothing_recomputed_is_a_fact(
    new: str, recompute: str | None, parse: Parse
) -> None:
    found = facts(parse, ('"recompute_ratio": 1.0', f'"recompute_ratio": {new}'))
    assert found.get("recompute") == recompute


def test_a_damaged_config_states_nothing(parse: Parse) -> None:
    assert facts(parse, ('"sp_size": 1,', '"sp_size":')) == {}


def test_a_record_of_another_rank_within_the_config_is_none_of_its_lines(parse: Any) -> None:
    """Its open brace would take all lines up to the first step."""
    block = next(b for b in FACT_BLOCKS if "Training config" in b.start)
    other = "[XTuner][2026-11-20 15:49:29][RANK 1][INFO] model cfg {"
    whole = parse("xtuner-v1", block.example).launches[0].facts
    for at in range(2, len(block.example)):
        lines = [*block.example[:at], other, *block.example[at:]]
        facts = parse("xtuner-v1", [*lines, "behind it"]).launches[0].facts
        assert [(f["name"], f["value"]) for f in facts] == [(f["name"], f["value"]) for f in whole]


def test_a_config_that_broke_off_ends_where_the_next_begins(parse: Any) -> None:
    block = next(b for b in FACT_BLOCKS if "Training config" in b.start)
    whole = parse("xtuner-v1", block.example).launches[0].facts
    facts = parse("xtuner-v1", [*block.example[:-4], *block.example]).launches[0].facts
    assert {f["name"] for f in whole} <= {f["name"] for f in facts}


def test_a_resumed_launch_says_the_step_that_it_goes_on_from(tmp_path: Path) -> None:
    """`ckpt-step-N`, or `snapshot-step-N` (Trainer._get_checkpoint_path)."""
    at = "[XTuner][2026-11-20 11:30:{:02}][INFO] "
    for name in ("ckpt-step-50", "snapshot-step-50/", "my-model"):
        log = tmp_path / "rank0.log"
        (step,) = [line for line in body("xtuner-v1/Q.txt") if " Step 1/" in line][:1]
        resumed = f"{at.format(0)}Resume from checkpoint: work/20261120112900/checkpoints/{name}"
        log.write_text(f"{resumed}\n{step.replace(' Step 1/', ' Step 51/')}\n")
        (said,) = read_log_tables(log)["events"].filter(kind="load").iter_rows(named=True)
        assert said["step"] == (None if name == "my-model" else 50)


def test_a_tracker_of_a_resumed_process_begins_where_its_clock_does(tmp_path: Path) -> None:
    """Its first line, of step 41, is all that the clock had counted: 20 s, of which 18 compiled."""
    record = json.loads(body("xtuner-v1-tracker/Q.txt")[0])
    times = {step: 20.0 if step == 41 else 2.0 for step in range(41, 101)}
    for begins, basis, seconds in ((41, "clock from start", 138.0), (51, "clock", 98.0)):
        lines = [
            record
            | {"step": step, "time/step_time": times[step] - 0.01, "time/data_time": 0.01}
            | {"time/train_time": 18.0 + 2 * (step - 40), "runtime_info/text_tokens": 1000}
            for step in range(begins, 101)
        ]
        path = tmp_path / f"{begins}" / "rank0" / "tracker.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (row,) = analyse(read_log_tables(path)).metrics.iter_rows(named=True)
        assert row["end_to_end_basis"] == basis
        steps = 100 - 40 if begins == 41 else 100 - 51
        assert row["tgs_end_to_end"] == pytest.approx(steps * 1000 / seconds)


def test_a_trackers_clock_is_of_this_process_only_beside_its_own_rate(parse: Parse) -> None:
    """Before exp_tgs, train_time may hold the launches before."""
    lines = body("xtuner-v1-tracker/Q.txt")
    record = json.loads(lines[0])
    (row, *_) = rows("xtuner-v1-tracker", lines, parse)
    assert row["since_start_s"] == record["time/train_time"]
    del record["runtime_info/exp_tgs"]
    (row, *_) = rows("xtuner-v1-tracker", [json.dumps(record)], parse)
    assert row.get("since_start_s") is None


# -- ranks that share a sequence -----------------------------------------------------------


def shared(ranks: tuple[int, ...], *, totals: str) -> list[str]:
    """20 steps of 2 s; two packs of 1,000 tokens in slices of 300 for four ranks each.

    totals: what stands behind text_tokens, of all ranks: with the number of the step, `{}`
    """
    slices = [300, 300, 300, 100] * 2
    return [
        f"[XTuner][RANK {rank}][2026-11-20 15:{step // 30:02}:{step * 2 % 60:02}][INFO] Epoch 1 "
        f"Step {step}/20 data_time: 0.0000 lr: 1.000000e-05 time: 2.0000 text_tokens: "
        f"{slices[rank]} {totals.format(total=step * 2000)}total_loss: 2.00000000, "
        "reduced_llm_loss: 2.00000000 grad_norm: 1.00000000 max_memory: 9.00 GB reserved_memory: "
        f"9.50 GB tgs: {slices[rank] / 2:.1f} exp_tgs: 120.0 e2e_tgs: 120.0 eta: 0:00:10 "
        for step in range(1, 21)
        for rank in ranks
    ]


ALL: tuple[int, ...] = tuple(range(8))
SUM = "step_consumed_tokens: 2000 total_consumed_tokens: {total} "
SINCE = "reduced_consumed_tokens: {total} "


@pytest.fixture
def metrics(logs: Any) -> Any:
    """The metrics of a log with these lines."""

    def read(lines: list[str], *flags: str) -> Row:
        (logs / "run.log").write_text("".join(f"{line}\n" for line in lines))
        facts = given.facts_from_flags(list(flags))
        tables = read_log_tables(logs / "run.log", flag_facts=facts)
        return analyse(tables).metrics.row(0, named=True)

    return read


@pytest.mark.parametrize("ranks", [ALL, (0, 1, 2, 3), (4, 5, 6, 7)])
def test_ranks_that_share_whole_sequences_are_a_sample_of_all(
    ranks: tuple[int, ...], metrics: Any
) -> None:
    row = metrics(shared(ranks, totals=""), "context_parallel=4")
    assert row["tgs"] == pytest.approx(125.0)
    assert of_kind(row, PARTIAL_SEQUENCES) == []


@pytest.mark.parametrize("totals", [SUM, SINCE])
def test_a_sum_over_all_ranks_counts_what_one_that_shares_a_sequence_does_not(
    totals: str, metrics: Any
) -> None:
    row = metrics(shared((0,), totals=totals), "context_parallel=4", "gpus=8")
    assert row["tgs"] == pytest.approx(125.0)
    assert not [text for text in row["warnings"] if NOT_RANKED in text]


@pytest.mark.parametrize(
    ("ranks", "totals", "mend"),
    [
        ((0,), "", "ingest the logs of all ranks"),
        ((0, 4), "", "ingest the logs of all ranks"),
        ((0, 1, 4, 5), "", "ingest the logs of all ranks"),
        ((0,), SUM, "fairmfu set RUN gpus=N, to use the sum over all ranks"),
    ],
)
def test_a_part_of_the_ranks_that_share_a_sequence_is_no_sample_of_its_tokens(
    ranks: tuple[int, ...], totals: str, mend: str, metrics: Any
) -> None:
    """Padding is at the end of a pack: the last rank has it, and the others more than the mean."""
    row = metrics(shared(ranks, totals=totals), "context_parallel=4")
    assert row["tgs"] == pytest.approx(150.0)
    (told,) = of_kind(row, PARTIAL_SEQUENCES)
    assert told.endswith(f"Fix: {mend}")
    assert "4 ranks share each sequence" in told
    assert told.startswith(NOT_RANKED)
