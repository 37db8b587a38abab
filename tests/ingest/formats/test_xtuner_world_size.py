"""The world size of an XTuner v1 run is stated only where its counts leave no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.facts.facts import infer_facts
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.formats.xtuner.world_size import FIRST_LOOK_ROWS
from fairmfu.ingest.parse.record_sink import ParsedSource

Facts = Callable[[Iterable[str]], dict[str, str]]


def line(step: int, counts: str, *, tokens: float = 8000, rank: int | None = 0) -> str:
    tag = "" if rank is None else f"[RANK {rank}]"
    return (
        f"[XTuner]{tag}[2026-01-02 03:04:{step:02}][INFO] Epoch 1 Step {step}/9 data_time: 0.0500 "
        f"lr: 1e-05 time: 3.9500 text_tokens: {tokens} {counts} reduced_llm_loss: 1.5, "
        "local_loss: 1.5 tgs: 2025.3 "
    )


@pytest.fixture
def facts(parse: Callable[..., ParsedSource], by_name: dict[str, LogFormat]) -> Facts:
    def read(lines: Iterable[str]) -> dict[str, str]:
        (launch,) = parse("xtuner-v1", list(lines)).launches
        found = infer_facts(by_name["xtuner-v1"], [launch])[0]
        return {fact["name"]: fact["value"] for fact in found}

    return read


def approximate(step: int, tokens: int, total: int, rank: int = 0) -> str:
    counts = f"approximate_total_consumed_tokens: {total}"
    return line(step, counts, tokens=tokens, rank=rank)


# -- since P: the total grows by world size x this rank's tokens ---------------------------


@given(
    tokens=st.lists(st.integers(0, 10**6), min_size=2, max_size=9).filter(lambda t: any(t[1:])),
    world=st.integers(1, 4096),
    before=st.integers(0, 10**12),
)
@settings(max_examples=50)
def test_any_world_size_comes_out_of_the_approximate_total_also_when_resumed(
    tokens: list[int],
    world: int,
    before: int,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    total, lines = before, []
    for step, mine in enumerate(tokens, start=20):
        total += world * mine
        lines.append(approximate(step, mine, total))
    (launch,) = parse("xtuner-v1", lines).launches
    found = {f["name"]: f["value"] for f in infer_facts(by_name["xtuner-v1"], [launch])[0]}
    assert found["gpus"] == str(world)


def test_a_total_that_does_not_grow_by_one_factor_gives_none(facts: Facts) -> None:
    assert facts([approximate(1, 100, 800), approximate(2, 100, 1600)])["gpus"] == "8"
    assert "gpus" not in facts([approximate(1, 100, 800), approximate(2, 100, 1700)])
    assert "gpus" not in facts([approximate(1, 100, 850), approximate(2, 100, 1700)])


def test_a_gap_in_the_steps_is_passed_over(facts: Facts) -> None:
    assert "gpus" not in facts([approximate(5, 100, 800), approximate(7, 100, 2400)])
    lines = [approximate(5, 100, 800), approximate(7, 100, 2400), approximate(8, 50, 2800)]
    assert facts(lines)["gpus"] == "8"


@pytest.mark.parametrize("before", [FIRST_LOOK_ROWS - 2, FIRST_LOOK_ROWS - 1, FIRST_LOOK_ROWS])
def test_a_short_launch_behind_a_long_one_tells_its_gpus(
    before: int, parse: Callable[..., ParsedSource], by_name: dict[str, LogFormat]
) -> None:
    """Two steps in a row suffice, wherever they lie among the rows that are looked at together."""
    long = [line(1 + 2 * n, "", tokens=100) for n in range(before)]
    short = [approximate(20, 100, 1600), approximate(21, 100, 2400)]
    both = [parse("xtuner-v1", lines).launches[0] for lines in (long, short)]
    found = infer_facts(by_name["xtuner-v1"], both)[1]
    assert {fact["name"]: fact["value"] for fact in found}["gpus"] == "8"


def test_ranks_of_one_node_are_not_the_world(facts: Facts) -> None:
    lines = [approximate(1, 100 + rank, 64 * (100 + rank), rank) for rank in range(8)]
    assert facts(lines)["gpus"] == "64"


def test_more_ranks_than_gpus_contradict(facts: Facts) -> None:
    lines = [approximate(1, 100, 400, rank) for rank in range(8)]
    assert "gpus" not in facts(lines)


# -- a tracker, whose names have a path before them ------------------------------------------


def tracked(step: int, tokens: int, counts: str) -> str:
    return (
        f'{{"lr": 1e-05, "time/step_time": 3.95, "runtime_info/text_tokens": {tokens}, {counts}, '
        f'"loss/reduced_llm_loss": 1.5, "step": {step}}}'
    )


TOTAL = "approximate_total_consumed_tokens"


@pytest.mark.parametrize(
    ("names", "gpus"),
    [
        (("runtime_info/{}",), "8"),
        (("{}",), "8"),
        (("mean_{}",), None),  # part of another name, which says something else
        (("x{}",), None),
        (("runtime_info/_{}",), None),
        (("mean_{}", "runtime_info/{}"), "8"),
        (("before/{}", "runtime_info/{}"), "8"),  # the last one counts
    ],
)
def test_the_total_of_a_tracker_is_found_by_its_whole_name(
    names: tuple[str, ...],
    gpus: str | None,
    parse: Callable[..., ParsedSource],
    by_name: dict[str, LogFormat],
) -> None:
    lines, total = [], 0
    for step in range(1, 9):
        total += 8 * (100 + step)
        each = zip(names, [*[3 * total] * (len(names) - 1), total], strict=True)
        counts = (f'"{name.format(TOTAL)}": {count}' for name, count in each)
        lines.append(tracked(step, 100 + step, ", ".join(counts)))
    lines.insert(4, tracked(99, 100, '"runtime_info/tgs": 5.0'))  # not every row has it
    lines.insert(6, tracked(98, 100, '"runtime_info/other": 5.0'))
    (launch,) = parse("xtuner-v1-tracker", lines).launches
    found = {f["name"]: f["value"] for f in infer_facts(by_name["xtuner-v1-tracker"], [launch])[0]}
    assert found.get("gpus") == gpus


# -- I to L: dp x this rank's tokens -------------------------------------------------------


def test_the_estimated_global_batch_gives_the_data_parallel_ranks_only(facts: Facts) -> None:
    lines = [
        line(n, f"est_global_batch_tokens: {16.0 * t}", tokens=t) for n, t in ((4, 90), (5, 70))
    ]
    assert facts(lines) | {"document_mask": ""} == {"document_mask": "", "data_parallel": "16"}
    odd = line(6, "est_global_batch_tokens: 100", tokens=7)
    assert "data_parallel" not in facts([*lines, odd])


def test_ranks_that_are_no_multiple_of_the_data_parallel_ranks_are_of_one_node(
    facts: Facts,
) -> None:
    lines = [line(4, "est_global_batch_tokens: 160000.0", tokens=10000, rank=r) for r in range(8)]
    assert not {"gpus", "data_parallel"} & set(facts(lines))


# -- K to O: the first step's tokens over all ranks ----------------------------------------


def first_step(total: int, world: int, *, key: str = "M", seconds: float = 4.0) -> str:
    rate = f"e2e_tgs: {total / world / seconds:.1f}"
    if key == "K":
        return f"reduced_consumed_tokens: {total}.0 {rate}"
    return f"step_consumed_tokens: {total} total_consumed_tokens: {total} {rate}"


@pytest.mark.parametrize("key", ["K", "M"])
@pytest.mark.parametrize("world", [1, 2, 3, 8, 16, 64])
def test_the_first_step_gives_the_world_size_whatever_this_rank_has(
    key: str, world: int, facts: Facts
) -> None:
    total = world * 7000  # this rank prints 8000: of a shard without padding
    assert facts([line(1, first_step(total, world, key=key))])["gpus"] == str(world)


@pytest.mark.parametrize("world", [1, 8, 64, 256, 1024, 4096])
@pytest.mark.parametrize("untimed", [0.0, 0.0004, 0.009])
def test_a_first_step_never_gives_a_wrong_world_size(
    world: int, untimed: float, facts: Facts
) -> None:
    printed = first_step(world * 7321, world, seconds=4.0 + untimed)
    assert facts([line(1, printed)]).get("gpus") in {None, str(world)}


@pytest.mark.parametrize("total", [10**9, 10**18, 2**63 - 1])
@pytest.mark.parametrize("rate", ["0.1", "0.001", f"0.{'0' * 300}1", f"{'9' * 300}.0"])
def test_however_many_sizes_a_first_step_allows_none_is_listed(
    total: int, rate: str, facts: Facts
) -> None:
    """A damaged rate allows billions of world sizes: a list of them would fill the memory."""
    said = f"step_consumed_tokens: {total} total_consumed_tokens: {total} e2e_tgs: {rate}"
    assert "gpus" not in facts([line(1, said)])


def test_a_later_step_does_not_give_it(facts: Facts) -> None:
    assert "gpus" not in facts([line(2, first_step(8 * 8000, 8))])


@pytest.mark.parametrize("bad", ["nan", "inf", "0.0", "-1.0"])
def test_a_rate_that_is_none_gives_no_world_size(bad: str, facts: Facts) -> None:
    printed = first_step(64000, 8).rpartition(" ")[0]
    assert "gpus" not in facts([line(1, f"{printed} {bad}")])


@pytest.mark.parametrize("tokens", ["2.2250738585072011e-308", "1e308", "nan", "inf", "0"])
@pytest.mark.parametrize("total", ["7111", "9" * 400, "nan", "-5"])
def test_counts_that_none_can_have_give_no_world_size(
    tokens: str, total: str, facts: Facts
) -> None:
    """Nor does a warning of numpy's come of them, which is an error here."""
    odd = (line(n, f"approximate_total_consumed_tokens: {total}") for n in range(1, 9))
    of_batch = (line(n, f"est_global_batch_tokens: {total}") for n in range(1, 9))
    for lines in (odd, of_batch):
        told = [one.replace("text_tokens: 8000", f"text_tokens: {tokens}") for one in lines]
        assert tokens in told[0]
        assert "gpus" not in facts(told)


def test_mean_tokens_over_ranks_are_not_divided_by_this_ranks(facts: Facts) -> None:
    printed = "step_consumed_tokens: 64000 total_consumed_tokens: 640000"
    assert "gpus" not in facts([line(n, printed) for n in range(10, 20)])


# -- the config that rank 0 prints ---------------------------------------------------------


def config(**changes: object) -> list[str]:
    said = {"global_batch_size": 64, "sp_size": 4, "intra_layer_micro_batch": 2} | changes
    pairs = [f'  "{key}": {value},' for key, value in said.items()]
    head = "[XTuner][2026-01-02 03:00:00][INFO] "
    section = '  "fsdp_cfg": {"tp_size": 1, "ep_size": 8}'
    return [f"{head}Training config: {{", *pairs, section, "}", f"{head}grad_accumulation_steps: 1"]


def slots(step: int, count: int) -> str:
    return line(step, f"seqlen_tokens: {count}")


def test_batches_and_degrees_of_the_config_give_the_world_size(facts: Facts) -> None:
    found = facts([*config(), line(5, "")])
    assert (found["data_parallel"], found["gpus"]) == ("32", "128")
    assert "gpus" not in facts([*config(global_batch_size=63), line(5, "")])
    assert "gpus" not in facts([*config(sp_size="null"), line(5, "")])


@pytest.mark.parametrize("name", ["global_batch_size", "sp_size", "intra_layer_micro_batch"])
def test_a_number_beyond_all_bounds_tells_nothing(name: str, facts: Facts) -> None:
    steps = [slots(5, 8192), slots(6, 8192)]
    assert "gpus" not in facts([*config(**{name: 10**400}), *steps])


def test_two_ways_of_counting_that_differ_give_none(facts: Facts) -> None:
    assert facts([*config(), approximate(1, 100, 12800)])["gpus"] == "128"
    assert "gpus" not in facts([*config(), approximate(1, 100, 6400)])


def test_equal_slots_of_every_step_give_the_length_of_a_pack(facts: Facts) -> None:
    assert facts([*config(), slots(5, 8192), slots(6, 8192)])["seq_len"] == "16384"
    assert "seq_len" not in facts([*config(), slots(5, 8192), slots(6, 8064)])
    assert "seq_len" not in facts([*config(), slots(5, 8192)])
    assert "seq_len" not in facts([slots(5, 8192), slots(6, 8192)])
