"""Logs that once gave a wrong figure, or would have ranked unlike runs; each says what is right."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product

import polars as pl
import pytest

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import TABLES, frame_schema
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.formats.deepspeed.engine import CURRICULUM_NOTE, DYNAMIC_BATCH_NOTE
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput import messages
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

RANK_SUM_DOUBTFUL = messages.RANK_SUM_DOUBTFUL()

TITAN = ROOT / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
ENGINE = "[{at:%Y-%m-%d %H:%M:%S},000] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, "
ENGINE += "skipped=0, lr=[0.001], mom=[(0.9, 0.95)]\n"


class InMemory:
    """What is read, where a store would cost more than all else here."""

    def __init__(self):
        self.tables = {name: frame_schema(name).to_frame() for name in TABLES}

    def table(self, name):
        return self.tables[name]


@pytest.fixture
def store():
    return InMemory()


@pytest.fixture
def ingest(store):
    """Read a log, or all of a folder that can be read."""

    def read(path, flag_facts=()):
        for one in sorted(path.iterdir()) if path.is_dir() else [path]:
            with suppress(FairmfuError):
                for name, table in read_log_tables(one, flag_facts=flag_facts).items():
                    store.tables[name] = pl.concat([store.tables[name], table])

    return read


def metrics(store):
    return analyse(store.tables).metrics


def titan_text() -> str:
    """The synthetic log as a real one: without its label."""
    return TITAN.read_text().split("\n", 1)[1]


def faster(text: str, factor: float, hours: int = 0) -> str:
    start = datetime(2026, 11, 2, 9)

    def stamp(match: re.Match[str]) -> str:
        past = datetime.strptime(match[0], "%Y-%m-%d %H:%M:%S,%f") - start
        moved = start + past / factor + timedelta(hours=hours)
        return moved.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]

    def rate(match: re.Match[str]) -> str:
        return f"tps: {round(int(match[1].replace(',', '')) * factor):,}"

    return re.sub(r"tps: ([\d,]+)", rate, re.sub(r"2026-11-02 \d\d:\d\d:\d\d,\d{3}", stamp, text))


def steps_only(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "step:" in line)


def test_a_deterministic_relaunch_is_a_launch_of_its_own(ingest, store, logs):
    text = titan_text()
    (logs / "two.log").write_text(text + steps_only(faster(text, 1.3, hours=2)))
    ingest(logs / "two.log")
    assert [round(tgs / 6398, 1) for tgs in metrics(store)["tgs"]] == [1.0, 1.3]


def test_an_engine_relaunch_is_not_folded_into_the_first(ingest, store, logs):
    lines = [
        ENGINE.format(at=datetime(2026, 1, 1, hour, 0, 0) + timedelta(seconds=step), step=step)
        for hour in (9, 10)
        for step in (5, 10, 15, 20)
    ]
    (logs / "two.log").write_text("".join(lines))
    facts = given.facts_from_flags(["seq_len=128", "gpus=1", "global_batch_size=8"])
    ingest(logs / "two.log", flag_facts=facts)
    assert metrics(store)["tgs"].to_list() == pytest.approx([1024.0, 1024.0])


def engine_steps(day: int = 1) -> str:
    """120 steps of a second each, every tenth printed."""
    at = datetime(2026, 1, day, 9)
    lines = (ENGINE.format(at=at + timedelta(seconds=n), step=n) for n in range(10, 130, 10))
    return "".join(lines)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("curriculum_enabled ........... True", False),
        ("curriculum_enabled_legacy .... True", False),
        ("curriculum_enabled_legacy .... False", True),
        (
            "data_efficiency_config ....... {'enabled': True, 'data_sampling': {'enabled': True, "
            "'curriculum_learning': {'enabled': True, 'curriculum_metrics': {'seqlen': {}}}}}",
            False,
        ),
        (
            "data_efficiency_config ....... {'enabled': True, 'data_sampling': {'enabled': True, "
            "'curriculum_learning': {'enabled': False}}, 'data_routing': {'enabled': True}}",
            True,
        ),
    ],
)
def test_samples_that_grow_by_a_curriculum_are_not_of_full_length(
    line, counts, ingest, store, logs
):
    """The engine counts samples: with its curriculum each was of seq_len from the first, ranked."""
    text = f"[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   {line}\n"
    (logs / "run.log").write_text(text + engine_steps())
    facts = given.facts_from_flags(["seq_len=512", "gpus=1", "global_batch_size=8"])
    ingest(logs / "run.log", flag_facts=facts)
    (warnings,) = metrics(store)["warnings"].to_list()
    assert warnings == (
        [] if counts else [messages.BATCH_CHANGES("unranked", changes=CURRICULUM_NOTE)]
    )


@pytest.mark.parametrize(
    ("dynamic", "counts"),
    [
        ("{'enabled': True, 'max_tokens': 4096, 'lr_scaling_method': 'linear'}", False),
        ("{'max_tokens': 4096, 'enabled': True, 'lr_scaling_method': 'linear'}", False),
        ("{'enabled': False, 'lr_scaling_method': 'linear', 'min_batch_size': 1}", True),
    ],
)
def test_batches_of_any_size_are_not_as_configured(dynamic, counts, ingest, store, logs):
    """Samples are put together up to so many tokens: each batch was the configured one, ranked."""
    (logs / "run.log").write_text(
        "[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   data_efficiency_config ....... "
        "{'enabled': True, 'seed': 1234, 'data_sampling': {'enabled': True, 'num_workers': 0, "
        f"'curriculum_learning': {{'enabled': False}}, 'dynamic_batching': {dynamic}}}, "
        f"'data_routing': {{'enabled': False}}}}\n{engine_steps()}"
    )
    facts = given.facts_from_flags(["seq_len=512", "gpus=1", "global_batch_size=8"])
    ingest(logs / "run.log", flag_facts=facts)
    (warnings,) = metrics(store)["warnings"].to_list()
    assert warnings == (
        [] if counts else [messages.BATCH_CHANGES("unranked", changes=DYNAMIC_BATCH_NOTE)]
    )


MEGATRON_HEADER = """\
using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 2
------------------------ arguments ------------------------
  bf16 ............................................ True
  data_parallel_size .............................. 2
  global_batch_size ............................... 8
  micro_batch_size ................................ 4
  pipeline_model_parallel_size .................... 2
  seq_length ...................................... 512
  tensor_model_parallel_size ...................... 2
  world_size ...................................... 8
-------------------- end of arguments ---------------------
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   gradient_accumulation_steps .. 1
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   train_batch_size ............. 8
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   train_micro_batch_size_per_gpu  4
"""


@pytest.mark.parametrize("launches", [1, 2])
def test_megatrons_header_counts_where_its_iterations_are_in_the_log_of_another_node(
    launches, ingest, store, logs
):
    """Its last rank prints these. A micro-batch was one GPU's, for 4 that train it: 4x, ranked."""
    text = ""
    for launch in range(launches):
        text += MEGATRON_HEADER + engine_steps(day=1 + launch)
    (logs / "node0.log").write_text(text)
    ingest(logs / "node0.log", flag_facts=given.facts_from_flags(["seq_len=512"]))
    rows = metrics(store)
    assert rows["tgs"].to_list() == pytest.approx([8 * 512 / 8] * launches)
    assert rows["warnings"].to_list() == [[]] * launches
    assert rows["gpus"].to_list() == [8] * launches


OWN_HEADING = """\
------------------------ arguments ------------------------
  batch_size ...................................... 4
  global_batch_size ............................... 64
  fp32 ............................................ True
"""
DUMP = """\
[2026-01-01 08:00:00,000] [INFO] [config.py:1003:print] DeepSpeedEngine configuration:
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   bfloat16_enabled ............. True
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   gradient_accumulation_steps .. 1
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   train_batch_size ............. 8
[2026-01-01 08:00:00,000] [INFO] [config.py:1007:print]   train_micro_batch_size_per_gpu  4
"""


@pytest.mark.parametrize("end", ["", "---------------- end of arguments ----------------\n"])
@pytest.mark.parametrize("before", [True, False])
def test_a_scripts_own_arguments_under_megatrons_heading_say_nothing(
    before, end, ingest, store, logs
):
    """Its words would go before the engine's, which a heading without an end would swallow."""
    heading = OWN_HEADING + end
    header = heading + DUMP if before else DUMP + heading
    (logs / "run.log").write_text(header + engine_steps())
    ingest(logs / "run.log", flag_facts=given.facts_from_flags(["seq_len=512", "gpus=2"]))
    row = metrics(store).row(0, named=True)
    assert row["tgs"] == pytest.approx(8 * 512 / 2)
    assert (row["precision"], row["warnings"]) == ("bf16", [])


TIMER = "[{at:%Y-%m-%d %H:%M:%S},001] [INFO] [timer.py:264:stop] epoch=0/micro_step={count}"
TIMER += "/global_step={count}, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=8.0\n"


def engine_lines(began: datetime, behind: int, steps: int) -> str:
    """Those of a process that goes on behind a step: a second a step, each tenth printed."""
    return "".join(
        form.format(at=began + timedelta(seconds=count), step=behind + count, count=count)
        for count in range(10, steps + 1, 10)
        for form in (ENGINE, TIMER)
    )


@pytest.mark.parametrize("behind", [130, 120, 100])
def test_the_first_step_behind_a_checkpoint_is_of_the_process_that_prints_it(
    behind, ingest, parse, store, logs
):
    """The timer starts again, the step goes on: that one was of the launch before, half an hour
    long, and of the one behind it (a third of the rate, ranked)."""
    began = datetime(2026, 1, 1, 8)
    text = engine_lines(began, 0, 130) + engine_lines(began + timedelta(hours=0.5), behind, 200)
    (logs / "run.log").write_text(text)
    ingest(
        logs / "run.log",
        flag_facts=given.facts_from_flags(["gpus=2", "seq_len=512", "global_batch_size=8"]),
    )
    first, second = metrics(store).sort("name").iter_rows(named=True)
    assert first["warnings"] == []
    assert (first["tgs"], second["tgs"]) == pytest.approx((2048, 2048))
    assert second["continues"] == first["run_id"]
    assert first["repeated_steps"] == (130 - behind) // 10
    launches = parse("deepspeed", text).launches
    assert [(one.first_line, one.last_line, len(one.rows)) for one in launches] == [
        (1, 26, 26),
        (27, 66, 40),
    ]
    assert [one.run_id for one in launches] == [first["run_id"], second["run_id"]]


@pytest.mark.parametrize("resumed", [*product([135, 130, 121], [1, 2])])
def test_so_are_its_lines_before_the_timers_whoever_prints_them(
    resumed, ingest, parse, store, logs
):
    """Resumed at a step that is no tenth one, the step is printed before the timer's tenth is."""
    behind, ranks = resumed
    text, hours = "", timedelta(hours=0.5)
    for began, first, steps in ((0 * hours, 0, 139), (hours, behind, 200)):
        for count in range(1, steps + 1):
            at = datetime(2026, 1, 1, 8) + began + timedelta(seconds=count)
            its = [ENGINE] * ((first + count) % 10 == 0) + [TIMER] * (count % 10 == 0)
            for form, rank in product(its, range(ranks)):
                tag = f"[rank{rank}]: " if ranks > 1 else ""
                text += tag + form.format(at=at, step=first + count, count=count)
    (logs / "run.log").write_text(text)
    facts = given.facts_from_flags(["gpus=2", "seq_len=512", "global_batch_size=8"])
    ingest(logs / "run.log", flag_facts=facts)
    rows = metrics(store).sort("name")
    assert rows["tgs"].to_list() == pytest.approx([2048, 2048], rel=1e-3)
    assert [len(one.rows) for one in parse("deepspeed", text).launches] == [
        26 * ranks,
        (20 + (behind + 200) // 10 - behind // 10) * ranks,
    ]


def test_pipeline_stages_without_prefix_are_one_launch(ingest, store, logs):
    lines = []
    for line in titan_text().replace("[rank0]:", "").splitlines():
        if "step:" in line:
            lines.append(re.sub(r"loss: +\S+", "loss: -1.00000", line))
        lines.append(line)
    (logs / "pp.log").write_text("\n".join(lines) + "\n")
    ingest(logs / "pp.log")
    assert metrics(store).height == 1


def test_float8_is_not_ranked_with_bf16(ingest, store, logs):
    text = titan_text()
    mark = "INFO - Applied FSDP"
    swapped = (
        "INFO - Swapped to Float8Linear layers with x\n[rank0]:[titan] 2026-11-02 09:00:00,000"
    )
    (logs / "bf16.log").write_text(text)
    (logs / "fp8.log").write_text(faster(text.replace(mark, f"{swapped} - root - {mark}"), 1.3))
    ingest(logs)
    ranked = rank_runs(metrics(store)).filter(name="fp8")
    assert ranked["group"].to_list() == [None]


def test_step_tokens_of_all_ranks_on_the_log_of_one_node(ingest, store, logs):
    lines = [
        f"[XTuner][RANK {rank}][2026-01-10 00:{step:02}:00][INFO] Epoch 1 Step {step}/30 "
        "data_time: 0.0 lr: 1.0e-05 time: 2.0 text_tokens: 8000 step_consumed_tokens: 128000 "
        f"total_consumed_tokens: {128000 * step} reduced_llm_loss: {9 - step / 100:.4f} "
        for step in range(1, 31)
        for rank in range(8)
    ]
    (logs / "node0.log").write_text("\n".join(lines) + "\n")
    ingest(logs / "node0.log")
    assert metrics(store)["tgs"].to_list() == pytest.approx([4000.0])


def test_start_up_stays_out_of_moving_means(ingest, store, logs):
    seconds = [61.0, *[1.0] * 199]
    now, lines = datetime(2026, 1, 1), []
    for i, s in enumerate(seconds, 1):
        now += timedelta(seconds=s)
        last = seconds[max(0, i - 10) : i]
        lines.append(
            f"{now:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [{i:>3}/200]  lr: 1.0e-05  "
            f"eta: 0:00:03  time: {sum(last) / len(last):.4f}  data_time: 0.0  loss: {9 - i / 99}"
        )
    (logs / "x.log").write_text("\n".join(lines) + "\n")
    words = ["seq_len=4096", "micro_batch_size=1", "packed=true", "gpus=1"]
    ingest(logs / "x.log", flag_facts=given.facts_from_flags(words))
    assert metrics(store)["tgs"].to_list() == pytest.approx([4096.0], rel=0.005)


def test_masked_documents_are_not_ranked_with_whole_packs(ingest, store, logs):
    for name, mark, loss in (("masked", "true", 9), ("whole", "false", 8)):
        (logs / f"{name}.log").write_text(
            "".join(
                f"2026/01/01 00:{i:02}:00 - mmengine - INFO - Iter(train) [{i}0/200]  lr: 1.0e-05  "
                f"eta: 0:00:03  time: 6.0000  data_time: 0.0029  loss: {loss - i / 99:.4f}\n"
                for i in range(1, 21)
            )
        )
        words = 'seq_len=32768\nmicro_batch_size=1\npacked=true\ngpus=1\nmodel="llama3-8b"\n'
        words += 'trainable="full"\nprecision="bf16"\naccelerator="NVIDIA H100"\n'
        (logs / f"{name}.log.facts.toml").write_text(f"{words}document_mask={mark}\n")
    ingest(logs)
    assert rank_runs(metrics(store))["group"].n_unique() == 2


@pytest.mark.parametrize(
    ("mark", "objective"),
    [
        ("", None),
        ("Beginning of Epoch 1/1, Total Generation Batches 478\n", "reinforcement"),
        ("Actor Model Parameters => 1.4 B, Critic Model Parameters => 0.3 B\n", "reinforcement"),
        ("***** Evaluating reward, Epoch 0/1 *****\n", "preference"),
    ],
)
def test_the_engine_under_deepspeed_chat_trains_no_language_model_alone(
    ingest, store, logs, mark, objective
):
    """Its iterations write answers on and train two models, or score pairs."""
    (logs / "chat.log").write_text(mark + engine_steps())
    stated = {"gpus": 1, "global_batch_size": 8, "seq_len": 512, "packed": "true"}
    more = {"model": "opt-1.3b", "trainable": "full", "precision": "bf16", "accelerator": "A100"}
    flags = [f"{name}={value}" for name, value in (stated | more).items()]
    ingest(logs / "chat.log", flag_facts=given.facts_from_flags(flags))
    (row,) = metrics(store).rows(named=True)
    assert row["tgs"] == (None if objective else pytest.approx(10 * 8 * 512 / 10))
    assert (row["mfu"] is None) is (objective is not None)


def test_lines_picked_out_of_a_log_that_prints_each_step_are_not_ranked(ingest, store, logs):
    line = "[titan] 2026-11-02 09:{:02}:00,000 - root - INFO - step: {:2}  loss: {}  "
    line += "memory:  1.00GiB(1.00%)  tps: {}\n"
    picked = [
        (1, 1, "9.0", 500),
        (8, 50, "8.0", 4100),
        (15, 100, "7.0", 990),
        (22, 150, "6.0", 5020),
    ]
    (logs / "picked.log").write_text("".join(line.format(*values) for values in picked))
    ingest(
        logs / "picked.log", flag_facts=given.facts_from_flags(["model=Llama-3-8B", "seq_len=8192"])
    )
    warning, _ = metrics(store)["warnings"][0]
    assert "no two of 3 windows agree" in warning
    assert warning.startswith(NOT_RANKED)


@pytest.mark.parametrize(
    ("before", "rate"),
    [
        ("6000.0/6100.0 | tokens per GPU (tokens/s/GPU): 10922.7/10743.6", ""),  # Primus
        ("6000.0", " tokens-per-second-per-gpu: 10922.7 |"),
    ],
)
def test_the_rate_that_a_megatron_line_prints_is_told_of_an_excerpt(
    before, rate, ingest, store, logs
):
    """Lines without their arguments had no TGS, though they print it."""
    stamp = "" if rate else "[2026-03-06 10:15:{0:02}] "
    line = (
        f"{stamp}iteration {{1}}/ 50 | consumed samples: {{2}} | elapsed time per iteration (ms): "
        f"{before} | learning rate: 3.0E-06 | global batch size: 128 | lm loss: 1.1E+01 |{rate}\n"
    )
    (logs / "p.log").write_text("".join(line.format(6 * n, n, 128 * n) for n in range(1, 9)))
    ingest(logs / "p.log")
    assert metrics(store)["tgs"].to_list() == pytest.approx([10922.7])


def test_end_to_end_of_an_excerpt_holds_its_evaluation(ingest, store, logs):
    """Without the batch it was that of the rates, which leave the evaluation out: 10,000."""
    line = "[titan] {:%Y-%m-%d %H:%M:%S},250 - root - INFO - {}step: {}  loss:  4.{}5  memory: "
    line += "9.00GiB(30.00%)  tps: {}  mfu: 20.00%\n"
    log = ""
    for step in (1, 10, 20, 30, 40):  # of 10,000 tokens and a second, but 10 s for the first
        at = datetime(2026, 10, 3, 14) + timedelta(seconds=step + 12 * (step > 20))
        log += line.format(at, "", step, step, "1,000" if step == 1 else "10,000")
        log += line.format(at, "validate ", step, step, "30,000") if step == 20 else ""
    (logs / "t.log").write_text(log)
    ingest(logs / "t.log")
    row = metrics(store).row(0, named=True)
    assert row["tgs"] == pytest.approx(10000)
    assert row["tgs_end_to_end"] == pytest.approx(40 * 10000 / (10 + 39 + 12))


def test_the_time_of_a_mindspeed_line_is_that_of_its_last_step(ingest, store, logs):
    """It was taken for the mean of ten steps, and the evaluation for time without a cause."""
    line = " [{:%Y-%m-%d %H:%M:%S}] iteration {:8d}/ 900 | consumed samples: {:12d} | elapsed time "
    line += (
        "per iteration (ms): {:.1f} | learning rate: 1.0E-05 | global batch size:    64 | loss: "
    )
    line += "1.5E+00 | grad norm: 1.000 |\n"
    evaluated = " [{:%Y-%m-%d %H:%M:%S}] ** validation after iteration {} ** | validation steps: 8 "
    evaluated += "| validation loss: 1.0E+00 |\n"
    log, at = "", datetime(2026, 5, 14, 8)
    for step in range(10, 310, 10):
        at += timedelta(seconds=20)
        log += line.format(at, step, 64 * step, 2000)
        if step % 100 == 0:
            at += timedelta(seconds=40)
            log += evaluated.format(at, step)
    (logs / "m.log").write_text(log)
    ingest(logs / "m.log", flag_facts=given.facts_from_flags(["gpus=16", "seq_len=2048"]))
    row = metrics(store).row(0, named=True)
    assert row["tgs"] == pytest.approx(4096)
    assert row["tgs_end_to_end"] == pytest.approx(290 * 8192 / (290 * 2 + 2 * 40), rel=0.02)
    assert row["packed"] is None
    assert row["warnings"] == []


@pytest.mark.parametrize("left", range(1, 10))
def test_of_a_megatron_line_that_is_cut_no_half_number_counts(left, ingest, store, logs):
    """`cut -c`, or `less -S`: of 1234.5 ms there were 12, which was 103 times too fast."""
    lines = [
        f" iteration {step:8d}/     500 | consumed samples: {step * 256:12d} | elapsed time per "
        f"iteration (ms): {1234.5 + step % 7} | learning rate: 1.000E-05 | lm loss: "
        f"{9 - step / 100:.6E} | loss scale: 1.0 |"
        for step in range(10, 60, 10)
    ]
    columns = lines[0].index("(ms): ") + len("(ms): ") + left
    (logs / "cut.log").write_text("".join(f"{line[:columns]}\n" for line in lines))
    ingest(logs)
    times = store.table("steps")["elapsed_s"].drop_nulls().to_list()
    whole = [(1234.5 + step % 7) / 1000 for step in range(10, 60, 10)]
    assert times == (whole if left >= len("1234.5 |") else [])


@pytest.mark.parametrize("log", ["llama3-8b-8xh100-xtuner", "llama3-8b-8xh100-xtuner-v1"])
def test_of_an_xtuner_line_that_is_cut_no_half_number_counts(log, ingest, store, logs):
    """Half of `text_tokens: 4096` was 57 tokens/s/GPU for 6,400, half of `time: 1.2804` 8,192."""
    (source,) = TITAN.parents[1].rglob(f"{log}.log")
    lines = source.read_text().splitlines()
    whole = next(line for line in reversed(lines) if " time: " in line)
    fields = [whole.index(key) + len(key) for key in (" time: ", " text_tokens: ") if key in whole]
    for columns in {begin + left for begin in fields for left in range(1, 7)}:
        (logs / f"{columns}.log").write_text("".join(f"{line[:columns]}\n" for line in lines))
    ingest(logs)
    told = metrics(store)["tgs"].drop_nulls()
    assert told.to_list() == pytest.approx([6398] * len(told), rel=0.01)


CUT_HEADERS = {
    "torchtitan": (
        "[titan] 2026-02-11 0{hour}:53:31,800 - root - INFO - Float8 training active with recipe "
        "{recipe}\n"
        "[titan] 2026-02-11 0{hour}:53:31,810 - root - INFO - CUDA capacity: NVIDIA {card} with "
        "63.98GiB memory\n"
        "[titan] 2026-02-11 0{hour}:53:31,856 - root - INFO - Model llama3 {model} size: {size} "
        "total parameters\n"
        "[titan] 2026-02-11 0{hour}:53:32,274 - root - INFO - Peak FLOPS used for computing MFU: "
        "9.890e+14\n",
        "[titan] 2026-02-11 0{hour}:54:{n:02},000 - root - INFO - step: {n:2}  loss:  9.10000  "
        "grad_norm:  2.1000  memory: 19.45GiB(30.39%)  tps: 5,900  tflops: 56.00  mfu: 5.66%\n",
        {"card": "H100", "model": "8B", "size": "8,030,261,248", "recipe": "rowwise"},
        {"card": "H200", "model": "70B", "size": "70,553,706,496", "recipe": "tensorwise"},
        {
            "accelerator": ["NVIDIA H100", "NVIDIA H200"],
            "model": ["llama3 8B", "llama3 70B"],
            "quantization": [
                "Float8 training active with recipe rowwise",
                "Float8 training active with recipe tensorwise",
            ],
        },
    ),
    "xtuner": (
        "2026/02/11 0{hour}:53:31 - mmengine - INFO - Config:\n"
        "batch_size = {size}\n"
        "max_length = {length}\n"
        "2026/02/11 0{hour}:53:32 - mmengine - WARNING - Failed to search registry\n",
        "2026/02/11 0{hour}:54:{n:02} - mmengine - INFO - Iter(train) [{n}0/900]  lr: 1.0000e-04  "
        "eta: 0:10:00  time: 0.1000  data_time: 0.0010  loss: 1.5000\n",
        {"size": "1", "length": "2048"},
        {"size": "4", "length": "8192"},
        {"micro_batch_size": ["1", "4"], "seq_len": ["2048", "8192"]},
    ),
}


@pytest.mark.parametrize("name", CUT_HEADERS)
def test_a_second_run_begins_with_whichever_line_of_its_header_comes_first(
    name, ingest, store, logs
):
    """Excerpts leave lines out: the second run's model and device had become the first one's."""
    header, step, *settings, stated = CUT_HEADERS[name]
    text = ""
    for hour, setting in enumerate(settings, 1):
        text += header.format(hour=hour, **setting)
        text += "".join(step.format(hour=hour, n=n) for n in range(20 * hour, 20 * hour + 20))
    (logs / "two.log").write_text(text)
    ingest(logs / "two.log")
    runs, facts = store.table("runs").sort("launch"), store.table("facts")
    for fact, values in stated.items():
        of_fact = facts.filter(facts["name"] == fact)
        mine = [of_fact.filter(of_fact["run_id"] == run)["value"] for run in runs["run_id"]]
        assert [found.unique().to_list() for found in mine] == [[value] for value in values]


def picked(paused_at: int, pause: float, first: float) -> str:
    """Torchtitan's lines of 200 steps of 2 s, 16,384 tokens each on one GPU, without a header.

    Behind `paused_at` nothing is trained for `pause` seconds. Then another process begins, whose
    own start is `first` seconds of its first line's time.
    """
    at, lines = datetime(2026, 3, 1, 9), []
    for step in range(10, 201, 10):
        anew = step == paused_at + 10
        seconds = 20 + first * anew
        at += timedelta(seconds=seconds + pause * anew)
        rate = f"{round(163840 / seconds):,}"
        stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"
        lines.append(
            f"[titan] {stamp} - root - INFO - step: {step:2}  loss:  9.10000  grad_norm:  2.1000  "
            f"memory: 19.45GiB(30.39%)  tps: {rate}\n"
        )
    return "".join(lines)


@pytest.mark.parametrize("flags", [(), ("gpus=8", "seq_len=8192", "global_batch_size=16")])
def test_the_first_line_of_a_process_that_began_between_lines_is_no_pace(
    flags, ingest, store, logs
):
    """A search for `step:` leaves the restart out, and its start-up had made steady 9 % slower."""
    (logs / "run.log").write_text(picked(100, pause=600, first=40))
    ingest(logs / "run.log", flag_facts=given.facts_from_flags(list(flags)))
    row = metrics(store).row(0, named=True)
    assert row["tgs"] == pytest.approx(8192, rel=1e-4)
    assert (row["steps"], row["windows"]) == (20, 18)
    assert "a rate that begins behind a pause" in row["excluded_causes"]
    (why,) = [one for one in row["warnings"] if "time stamps" in one]
    assert of_kind(row, messages.EVIDENCE_APART) == [why]
    assert "600.0 s more by time stamps in 1 of 19 windows (a restart" in why
    assert not why.startswith(NOT_RANKED)


def test_a_slow_stretch_that_the_rate_holds_is_part_of_the_pace(ingest, store, logs):
    (logs / "run.log").write_text(picked(100, pause=0, first=40))
    ingest(logs / "run.log")
    row = metrics(store).row(0, named=True)
    assert row["windows"] == 19
    assert row["tgs"] == pytest.approx(190 * 16384 / (380 + 40), rel=1e-4)


def test_pauses_between_many_lines_of_unknown_batches_cost_the_rank(ingest, store, logs):
    """As the batch that changed when the run went on: half of the lines had as many tokens more."""
    lines = picked(0, 0, 0).splitlines(keepends=True)
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    later = []
    for n, line in enumerate(lines):
        at = datetime.strptime(stamp.search(line)[0], "%Y-%m-%d %H:%M:%S")
        twice = at + timedelta(seconds=20 * max(0, n - 12))  # from the 13th on each takes 40 s
        later.append(line.replace(stamp.search(line)[0], f"{twice:%Y-%m-%d %H:%M:%S}"))
    (logs / "run.log").write_text("".join(later))
    ingest(logs / "run.log")
    row = metrics(store).row(0, named=True)
    (why,) = [one for one in row["warnings"] if "stamps" in one]
    assert of_kind(row, messages.EVIDENCE_APART) == [why]
    assert why.startswith(NOT_RANKED)
    assert why.endswith(": no known cause.")


def mindspeed_llm(path):
    """A log of which each sample holds 830 of 4,096 tokens."""
    line = "INFO [{:%Y-%m-%d %H:%M:%S}] >>  iteration {:8d}/     400 | consumed samples: {:10d} "
    line += "| consumed tokens: {:10d} | elapsed time per iteration (ms): 2000.00 | tokens/s: "
    line += "26560.00 | mfu: 20.50 | learning rate: 1.000000E-05 | global batch size:    64 | "
    line += "lm loss: {:.6E} | grad norm: 1.250 | max_memory_allocated(GB): 41.20 | "
    line += "max_memory_reserved(GB): 44.10 |\n"
    at = datetime(2026, 5, 14, 8)
    log = ""
    for step in range(10, 310, 10):
        at += timedelta(seconds=20)
        log += line.format(at, step, 64 * step, 53120 * step, 2 - step / 1000)
    path.write_text(log)


ALONE = ("context_parallel=1", "tensor_parallel=1")


def test_the_tokens_of_a_mindspeed_llm_line_are_without_padding(ingest, store, logs):
    """It was Megatron-DeepSpeed's, which fills every sample."""
    mindspeed_llm(logs / "m.log")
    ingest(logs / "m.log", flag_facts=given.facts_from_flags(["gpus=16", "seq_len=4096", *ALONE]))
    row = metrics(store).row(0, named=True)
    assert (row["framework"], row["packed"]) == ("mindspeed-llm", None)
    assert "trainable" in row["missing"]
    assert row["tgs"] == pytest.approx(53120 / 16 / 2)
    assert row["tgs_slots"] == pytest.approx(64 * 4096 / 16 / 2)
    assert row["logged_mfu"] == pytest.approx(0.205)
    assert row["warnings"] == []


@pytest.mark.parametrize(
    ("told", "tgs"),
    [
        ((), None),
        (ALONE[:1], None),
        (("data_parallel=16",), 1660),
        (("context_parallel=4", "tensor_parallel=2"), 207.5),
        (("data_parallel=2",), 207.5),
    ],
)
def test_ranks_that_share_a_sequence_count_it_each(told, tgs, ingest, store, logs):
    """With eight of them TGS was eight times too high, and MindSpeed-LLM's log says nothing."""
    mindspeed_llm(logs / "m.log")
    ingest(logs / "m.log", flag_facts=given.facts_from_flags(["gpus=16", "packed=false", *told]))
    row = metrics(store).row(0, named=True)
    assert row["warnings"] == ([RANK_SUM_DOUBTFUL] if tgs is None else [])
    assert (row["tgs"], row["tgs_end_to_end"]) == pytest.approx((tgs or 1660,) * 2)


@pytest.mark.parametrize(("red", "plain"), [("", ""), ("\x1b[36m", "\x1b[39m")])
def test_a_forks_evaluation_between_steps_is_no_step(red, plain, ingest, store, logs):
    """It has a step's own words, and was read as the same step trained again, twice as fast."""
    lines = picked(0, 0, 0).splitlines(keepends=True)
    of = "[titan] 2026-03-01 09:{}:07,000 - root - INFO - evaluation:  "
    for n in (15, 10, 5):
        lines.insert(
            n,
            f"{of.format(10 + n)}{red}step: {10 * n}  loss:  8.3000  memory: 30.00GiB(40.00%)  "
            f"tps: 24,576  mfu: 143.91%{plain}\n",
        )
    (logs / "run.log").write_text("".join(lines))
    ingest(logs / "run.log")
    row = metrics(store).row(0, named=True)
    assert row["tgs"] == pytest.approx(8192, rel=1e-4)
    assert row["logged_mfu"] is None
    assert row["steps"] == 20
    assert of_kind(row, messages.STEPS_PRINTED_TWICE) == []


@pytest.mark.parametrize(
    "names", ["['dp_shard', 'tp'], [4, 2]", "('dp', 'sp'), [4, 2]"], ids=["list", "tuple"]
)
def test_the_mesh_of_every_version_gives_the_gpus(names, ingest, store, logs):
    """Its names were a tuple at first; the GPUs were missing."""
    mesh = f"[titan] 2026-03-01 08:59:00,000 - root - INFO - Building 2-D device mesh with {names}"
    (logs / "run.log").write_text(f"{mesh}\n{picked(0, 0, 0)}")
    ingest(logs / "run.log")
    assert metrics(store).row(0, named=True)["gpus"] == 8


def scalars(every: int, accumulated: int, updating: float = 2.0, *, rated: bool = True) -> str:
    """What mmengine writes of 1,600 single micro-steps (window_size=1), the optimizer's longer."""
    lines = []
    for step in range(every, 1601, every):
        time = 0.5 + 0.001 * (step * 7 // 10 % 5) + updating * (step % accumulated == 0)
        rates = f'"tflops": {300 / time:.5f}, "tokens_per_sec": {2048 / time:.5f}, ' * rated
        lines.append(
            f'{{"lr": 2e-05, "data_time": 0.01, "loss": {3 - step / 1000:.5f}, "time": {time:.5f}, '
            f'{rates}"iter": {step}, "memory": 40123, "step": {step}}}\n'
        )
    return "".join(lines)


@pytest.mark.parametrize("words", [[], ["micro_batch_size=1", "packed=true"]])
@pytest.mark.parametrize("spacing", [(10, 16), (20, 20), (15, 16)])
def test_some_micro_steps_stand_for_all_where_it_is_known_how_many_are_accumulated(
    words, spacing, ingest, store, logs
):
    """Of each tenth one in eight is the optimizer's, of all one in 16: 17 % off, and ranked."""
    every, accumulated = spacing
    known = ["gpus=8", "seq_len=2048", "model=llama3-8b", "trainable=full", "precision=bf16"]
    known += ["accelerator=NVIDIA A100-SXM4-80GB", *words]
    (logs / "scalars.json").write_text(scalars(every, accumulated))
    ingest(logs / "scalars.json", flag_facts=given.facts_from_flags(known))
    row = metrics(store).row(0, named=True)
    assert row["windows"] == 1600 // every - 1
    (why,) = (told for told in row["warnings"] if told.startswith(NOT_RANKED))
    assert of_kind(row, messages.ACCUMULATION_UNKNOWN) == [why]
    assert f"Only {row['windows']} of ".lower() in why.lower()
    assert "fairmfu set RUN gradient_accumulation=N" in why
    assert rank_runs(metrics(store))["group"].to_list() == [None]


def test_optimizer_steps_of_which_some_take_long_beyond_their_share_are_told(ingest, store, logs):
    """By medians they take next to nothing, as most do; two of five take more than a micro-step."""
    lines = scalars(10, 8, updating=0.004).splitlines()
    for step in range(40, 1601, 40):
        if step // 40 % 5 < 2:
            line = json.loads(lines[step // 10 - 1])
            slow = line["time"] + 0.6
            line |= {"time": slow, "tflops": 300 / slow, "tokens_per_sec": 2048 / slow}
            lines[step // 10 - 1] = json.dumps(line)
    known = ["gpus=8", "seq_len=2048", "micro_batch_size=1", "packed=true"]
    (logs / "scalars.json").write_text("\n".join(lines) + "\n")
    ingest(
        logs / "scalars.json",
        flag_facts=given.facts_from_flags([*known, "gradient_accumulation=8"]),
    )
    row = metrics(store).row(0, named=True)
    told = [why for why in row["warnings"] if why.startswith(NOT_RANKED)]
    assert len(told) == 1
    assert of_kind(row, messages.UNFAIR_OPTIMIZER_STEPS) == told


@pytest.mark.parametrize(("every", "accumulation"), [(1, []), (10, ["gradient_accumulation=1"])])
def test_all_of_them_are_of_each_optimizer_step_as_many_as_there_are(
    every, accumulation, ingest, store, logs
):
    words = ["gpus=8", "seq_len=2048", "micro_batch_size=1", "packed=true", *accumulation]
    (logs / "scalars.json").write_text(scalars(every, 1 if accumulation else 16, updating=0.3))
    ingest(logs / "scalars.json", flag_facts=given.facts_from_flags(words))
    row = metrics(store).row(0, named=True)
    assert not [told for told in row["warnings"] if told.startswith(NOT_RANKED)]
    seconds = 0.802 if accumulation else 0.502 + 0.3 / 16
    assert row["tgs"] == pytest.approx(2048 / seconds, rel=0.001)


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ([], [messages.AVERAGE_WINDOW_UNKNOWN]),
        (["gradient_accumulation=4"], [messages.AVERAGE_WINDOW_UNKNOWN]),
        (["gradient_accumulation=1"], []),
        (["average_window=10"], []),
        (["average_window=1"], [messages.ACCUMULATION_UNKNOWN]),
    ],
)
def test_times_of_which_nothing_tells_how_many_steps_they_average(
    words, kinds, ingest, store, logs
):
    """Ten were taken for granted, and with them that no step is left out."""
    known = ["gpus=8", "seq_len=2048", "micro_batch_size=1", "packed=true", *words]
    (logs / "scalars.json").write_text(scalars(10, 4, rated=False))
    ingest(logs / "scalars.json", flag_facts=given.facts_from_flags(known))
    row = metrics(store).row(0, named=True)
    told = [why for why in row["warnings"] if why.startswith(NOT_RANKED)]
    assert len(told) == len(kinds)
    assert of_kind(row, *kinds) == told


def test_stamps_that_are_further_apart_than_1_percent_bear_nothing_out(ingest, store, logs):
    """Of eight lines four hold the optimizer's step, of all micro-steps one in eight: 17 % off."""
    now, lines = datetime(2026, 1, 1), []
    for step in range(1, 801):
        time = 0.5 + 0.3 * (step % 8 == 0)
        now += timedelta(seconds=time)
        stamp = f"{now:%Y/%m/%d %H:%M:%S} - mmengine - INFO - "
        if step % 50 == 0:
            lines.append(
                f"{stamp}Iter(train) [{step}/800]  lr: 1.0e-05  eta: 0:00:03  time: {time:.4f}  "
                f"data_time: 0.0029  loss: {3 - step / 1000:.4f}\n"
            )
        if step % 100 == 0:
            now += timedelta(seconds=15)
            lines.append(f"{stamp}after_train_iter in EvaluateChatHook.\n")
    words = ["gpus=1", "seq_len=2048", "micro_batch_size=1", "packed=true", "average_window=1"]
    (logs / "run.log").write_text("".join(lines))
    ingest(logs / "run.log", flag_facts=given.facts_from_flags(words))
    row = metrics(store).row(0, named=True)
    assert row["evidence_gap"] > 0.1
    (why,) = of_kind(row, messages.ACCUMULATION_UNKNOWN)
    assert why.startswith(NOT_RANKED)
