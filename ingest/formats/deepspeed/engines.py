"""Which of DeepSpeed's engines a launch's lines are of, and how many ranks its batch counts.

A program with several models (a policy and its reference, actor and critic, teacher and student)
makes an engine of each, and each prints its configuration. Their lines look alike. Where their
batches differ, and what the timer counts may be of one of these alone, that one holds; else it is
not known which batch a step had (`batch_changes`).

Under AutoTP an engine makes its configuration before it groups the ranks: it calls all of them its
world, and its batch, and the rate of its timer, count a micro-batch once for each rank that shares
it (deepspeedai/DeepSpeed/deepspeed/runtime/engine.py@edaa722 _configure_tensor_parallel).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...core.numbers import parse_integer, parse_optional
from ...core.schema import NO_BATCH_CHANGES, RESTART_EVENT_KINDS
from ..launch_view import MAX_BATCH_RATIO, Finished, LaunchView
from ..spec import MODEL_PARALLEL_KEY, PROCESS_KEY

ACCUMULATION_FACT: Final = "gradient_accumulation"
BATCH_FACT: Final = "global_batch_size"
MICRO_BATCH_FACT: Final = "micro_batch_size"
WORLD_FACT: Final = "data_parallel"
_OF_DUMP: Final = {
    ACCUMULATION_FACT: "  gradient_accumulation_steps ",
    BATCH_FACT: "  train_batch_size ",
    MICRO_BATCH_FACT: "  train_micro_batch_size_per_gpu ",
    WORLD_FACT: "  world_size ",
}
"""Facts of an engine's configuration, and what stands in the lines that state them."""

RANKS_KEY: Final = "ranks"
MODELS_KEY: Final = "models"
SEQUENCES_KEY: Final = "sequences"
AUTOTP_KEY: Final = "autotp"
_BESIDE: Final = {
    RANKS_KEY: (WORLD_FACT, "self.dp_world_size"),
    SEQUENCES_KEY: ("context_parallel", "self.sequence_parallel_size"),
    AUTOTP_KEY: ("tensor_parallel", "autotp_size"),
}
"""What is printed of its groups before that, and of AutoTP: facts, and words of their lines."""
_FIRST: Final = (ACCUMULATION_FACT, RANKS_KEY, MODELS_KEY)
"""One of these, behind a configuration, is another engine's."""
PROCESS_BEGIN_KEY: Final = "begins"
AUTOTP_BATCH_NOTE: Final = (
    "DeepSpeed counts a micro-batch once for each of the {} ranks that share it (AutoTP) in its "
    "batch and its samples per second; here it counts once"
)

StatedValue = Mapping[str, Any]
"""A fact of a launch, or what stands in its place: it has a `value`."""
EngineValues = dict[str, StatedValue]
"""What an engine prints of itself, by the names above."""


def settle_engines(launch: LaunchView) -> Finished:
    """Let the facts of a launch be of the engine whose lines it has, each sample counted once.

    Says by how much the rates of its timer are too high, or why it is not known which engine that
    is.
    """
    held = [fact for fact in launch.stated if fact["name"] == BATCH_FACT]
    if not held or _OF_DUMP[BATCH_FACT] not in held[-1]["text"]:
        return Finished()
    engines = _engines(launch)
    if not engines:
        return Finished()
    counts = [_counts(launch, engine) for engine in engines]
    fitting = _fitting(launch, engines) if len({*counts}) > 1 else [len(engines) - 1]
    between = _between_steps(launch, held)
    if len({counts[place] for place in fitting}) != 1 or between - {batch for batch, _ in counts}:
        return Finished(unsure=_unknown(between | {batch // times for batch, times in counts}))
    holds = fitting[-1]
    if held[-1] is not engines[holds][BATCH_FACT]:
        own = {id(fact) for name, fact in engines[holds].items() if name in _OF_DUMP}
        for facts in (launch.facts, launch.companion_facts):
            facts.sort(key=lambda fact: id(fact) in own)  # of several the last one holds
    _, times = counts[holds]
    if times > 1:
        for name in (BATCH_FACT, WORLD_FACT):
            _divide(engines[holds][name], times)
    if times == 1 or not any(form.counts for form in launch.rows.forms()):
        return Finished()
    why = AUTOTP_BATCH_NOTE.format(times)
    return Finished(factors={"logged_samples_per_second": 1 / times}, why=why)


def _engines(launch: LaunchView) -> list[EngineValues]:
    """Those of the processes that train, in their order, each with a batch."""
    engines: list[EngineValues] = [{}]
    for name, said in _in_order(launch):
        configured = any(ACCUMULATION_FACT in engine for engine in engines)
        if name == PROCESS_BEGIN_KEY and configured:
            engines = [{}]
        elif name in _FIRST and ACCUMULATION_FACT in engines[-1]:
            engines.append({})
        engines[-1][name] = said
    return [engine for engine in engines if _number(engine, BATCH_FACT)]


def _between_steps(launch: LaunchView, held: Sequence[StatedValue]) -> set[int]:
    """Batches that are configured between steps: of another engine, or of all steps from there on.

    What is configured behind the last step is of a training that has none.
    """
    first, last = launch.rows.first_line or 0, launch.rows.last_line
    said = (
        parse_optional(parse_integer, fact["value"]) for fact in held if first < fact["line"] < last
    )
    return {batch for batch in said if batch}


def _in_order(launch: LaunchView) -> Iterator[tuple[str, StatedValue]]:
    """What is said of engines before the first step, and that a process begins, or has failed."""
    first = launch.rows.first_line
    said = [(f["line"], name, f) for f in _facts(launch) if (name := _name(f)) is not None]
    for event in launch.events.of_kinds(["setup", *RESTART_EVENT_KINDS]):
        extra = json.loads(event["extra"] or "{}")
        if MODEL_PARALLEL_KEY in extra:
            said.append((event["line"], MODELS_KEY, {"value": extra[MODEL_PARALLEL_KEY]}))
        elif PROCESS_KEY in extra or event["kind"] in RESTART_EVENT_KINDS:
            said.append((event["line"], PROCESS_BEGIN_KEY, {"value": ""}))
    said.sort(key=lambda one: one[0])
    return ((name, fact) for line, name, fact in said if first is None or line < first)


def _facts(launch: LaunchView) -> list[dict[str, Any]]:
    return [fact for fact in (*launch.facts, *launch.companion_facts) if fact["line"]]


def _name(fact: StatedValue) -> str | None:
    """What a fact is of an engine; PROCESS_BEGIN_KEY where a launcher states it."""
    name, text = fact["name"], fact["text"]
    if name == "gpus" and "dist_world_size" in text:
        return PROCESS_BEGIN_KEY
    if name in _OF_DUMP and _OF_DUMP[name] in text:
        return str(name)
    return next((n for n, (of, word) in _BESIDE.items() if of == name and word in text), None)


def _number(engine: EngineValues, name: str, unsaid: int = 0) -> int:
    said = parse_optional(parse_integer, engine[name]["value"]) if name in engine else None
    return said or unsaid


def _counts(launch: LaunchView, engine: EngineValues) -> tuple[int, int]:
    """The batch that an engine has configured, and for how many ranks it counts each sample."""
    return _number(engine, BATCH_FACT), _counted_for_each(launch, engine)


def _fitting(launch: LaunchView, engines: Sequence[EngineValues]) -> list[int]:
    """Places of the engines that may have what the timer counts; none where it is of none.

    Its micro-steps are exact. Its samples are more than a step has where the run waits, as for what
    a model writes, so an engine of less may have them too, but none of more.
    """
    steps = [
        (_number(engine, ACCUMULATION_FACT), _number(engine, BATCH_FACT)) for engine in engines
    ]
    told = {each: launch.samples_per_step(each) or 0 for each, _ in steps}
    ratios = [told[each] / batch for each, batch in steps]
    able = [place for place, ratio in enumerate(ratios) if ratio > 1 / MAX_BATCH_RATIO]
    return able if all(ratios[place] < MAX_BATCH_RATIO for place in able) else []


def _unknown(batches: set[int]) -> str:
    listed = ", ".join(map(str, sorted(batches)))
    return (
        f"the log has the configurations of several engines, of {listed} samples a step, and its "
        f"lines do not tell of which they are; --set {BATCH_FACT}, {MICRO_BATCH_FACT} and "
        f"{ACCUMULATION_FACT} to what a step had, and batch_changes={NO_BATCH_CHANGES}"
    )


def _counted_for_each(launch: LaunchView, engine: EngineValues) -> int:
    """How many ranks share each micro-batch that the engine's batch counts for all of them.

    Its world is then the product of its groups, or as many as there are GPUs. Where it is handed
    a grouping, its world are data-parallel ranks alone.
    """
    world, models = _number(engine, WORLD_FACT), _number(engine, MODELS_KEY, 1)
    sharing = models if models > 1 else _number(engine, AUTOTP_KEY, 1)
    groups = _number(engine, RANKS_KEY) * sharing * _number(engine, SEQUENCES_KEY, 1)
    every = groups or parse_optional(parse_integer, launch.last_value("gpus")) or 0
    batch = world * _number(engine, MICRO_BATCH_FACT) * _number(engine, ACCUMULATION_FACT)
    known = world == every and batch == _number(engine, BATCH_FACT) and world % sharing == 0
    return sharing if known and world else 1


def _divide(fact: StatedValue, times: int) -> None:
    """Of all ranks what is of those that have a micro-batch of their own."""
    assert isinstance(fact, dict)  # noqa: S101 - of a launch
    each = int(fact["value"]) // times
    why = f"{fact['value']}, counted for each of {times} ranks that share a micro-batch"
    fact |= {"value": str(each), "origin": f"{fact['origin']}: {why}"}
