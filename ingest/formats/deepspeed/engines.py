"""DeepSpeed's engines: find the engine of a launch's lines, and count its ranks.

A program with several models (a policy and its reference, actor and critic, teacher and student)
makes an engine per model, and all print their configurations. Their lines look alike. If the
batches differ, and only one engine fits the timer's counts, that engine is right. If not, the batch
of a step is unknown (`batch_changes`).

Under AutoTP an engine makes its configuration before grouping the ranks, and counts all of them as
its world. So the batch, and the rate of the timer, count a micro-batch once for every rank that
shares it (deepspeedai/DeepSpeed/deepspeed/runtime/engine.py@edaa722 _configure_tensor_parallel).
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
"""Facts of an engine's configuration, and texts of the lines that state them."""

RANKS_KEY: Final = "ranks"
MODELS_KEY: Final = "models"
SEQUENCES_KEY: Final = "sequences"
AUTOTP_KEY: Final = "autotp"
_BESIDE: Final = {
    RANKS_KEY: (WORLD_FACT, "self.dp_world_size"),
    SEQUENCES_KEY: ("context_parallel", "self.sequence_parallel_size"),
    AUTOTP_KEY: ("tensor_parallel", "autotp_size"),
}
"""Earlier prints of the engine's groups, and of AutoTP: facts, and words of their lines."""
_FIRST: Final = (ACCUMULATION_FACT, RANKS_KEY, MODELS_KEY)
"""After a configuration, one of these belongs to another engine."""
PROCESS_BEGIN_KEY: Final = "begins"
AUTOTP_BATCH_NOTE: Final = (
    "DeepSpeed counts a micro-batch once for each of the {} ranks that share it (AutoTP) in its "
    "batch and its samples per second; here it counts once"
)

StatedValue = Mapping[str, Any]
"""A fact of a launch, or a substitute: with a `value`."""
EngineValues = dict[str, StatedValue]
"""Values that an engine prints, by the names above."""


def settle_engines(launch: LaunchView) -> Finished:
    """Keep the facts of the engine that printed the lines; count samples once.

    Returns the factor by which the timer's rates are too high, or the reason why the engine is
    unknown.
    """
    stated = [fact for fact in launch.stated if fact["name"] == BATCH_FACT]
    if not stated or _OF_DUMP[BATCH_FACT] not in stated[-1]["text"]:
        return Finished()
    engines = _engines(launch)
    if not engines:
        return Finished()
    counts = [_counts(launch, engine) for engine in engines]
    fitting = _fitting(launch, engines) if len({*counts}) > 1 else [len(engines) - 1]
    between = _between_steps(launch, stated)
    if len({counts[index] for index in fitting}) != 1 or between - {batch for batch, _ in counts}:
        return Finished(unsure=_unknown(between | {batch // times for batch, times in counts}))
    index = fitting[-1]
    if stated[-1] is not engines[index][BATCH_FACT]:
        right = {id(fact) for name, fact in engines[index].items() if name in _OF_DUMP}
        for facts in (launch.facts, launch.companion_facts):
            facts.sort(key=lambda fact: id(fact) in right)  # the last of several counts
    _, times = counts[index]
    if times > 1:
        for name in (BATCH_FACT, WORLD_FACT):
            _divide(engines[index][name], times)
    if times == 1 or not any(form.counts for form in launch.rows.forms()):
        return Finished()
    why = AUTOTP_BATCH_NOTE.format(times)
    return Finished(factors={"logged_samples_per_second": 1 / times}, why=why)


def _engines(launch: LaunchView) -> list[EngineValues]:
    """Return the engines with a batch, in order, of the processes that train."""
    engines: list[EngineValues] = [{}]
    for name, value in _in_order(launch):
        configured = any(ACCUMULATION_FACT in engine for engine in engines)
        if name == PROCESS_BEGIN_KEY and configured:
            engines = [{}]
        elif name in _FIRST and ACCUMULATION_FACT in engines[-1]:
            engines.append({})
        engines[-1][name] = value
    return [engine for engine in engines if _number(engine, BATCH_FACT)]


def _between_steps(launch: LaunchView, stated: Sequence[StatedValue]) -> set[int]:
    """Return batches configured between steps.

    They belong to another engine, or to all later steps. A batch configured after the last step
    belongs to a training without steps.
    """
    first, last = launch.rows.first_line or 0, launch.rows.last_line
    batches = (
        parse_optional(parse_integer, fact["value"])
        for fact in stated
        if first < fact["line"] < last
    )
    return {batch for batch in batches if batch}


def _in_order(launch: LaunchView) -> Iterator[tuple[str, StatedValue]]:
    """Yield engines' values before the first step, and process starts and failures."""
    first = launch.rows.first_line
    values = [(f["line"], name, f) for f in _facts(launch) if (name := _name(f)) is not None]
    for event in launch.events.of_kinds(["setup", *RESTART_EVENT_KINDS]):
        extra = json.loads(event["extra"] or "{}")
        if MODEL_PARALLEL_KEY in extra:
            values.append((event["line"], MODELS_KEY, {"value": extra[MODEL_PARALLEL_KEY]}))
        elif PROCESS_KEY in extra or event["kind"] in RESTART_EVENT_KINDS:
            values.append((event["line"], PROCESS_BEGIN_KEY, {"value": ""}))
    values.sort(key=lambda value: value[0])
    return ((name, fact) for line, name, fact in values if first is None or line < first)


def _facts(launch: LaunchView) -> list[dict[str, Any]]:
    return [fact for fact in (*launch.facts, *launch.companion_facts) if fact["line"]]


def _name(fact: StatedValue) -> str | None:
    """Return the name of an engine's value.

    PROCESS_BEGIN_KEY if a launcher states the fact.
    """
    name, text = fact["name"], fact["text"]
    if name == "gpus" and "dist_world_size" in text:
        return PROCESS_BEGIN_KEY
    if name in _OF_DUMP and _OF_DUMP[name] in text:
        return str(name)
    return next((n for n, (of, word) in _BESIDE.items() if of == name and word in text), None)


def _number(engine: EngineValues, name: str, default: int = 0) -> int:
    number = parse_optional(parse_integer, engine[name]["value"]) if name in engine else None
    return number or default


def _counts(launch: LaunchView, engine: EngineValues) -> tuple[int, int]:
    """Return an engine's configured batch, and the number of ranks per sample in it."""
    return _number(engine, BATCH_FACT), _counted_for_each(launch, engine)


def _fitting(launch: LaunchView, engines: Sequence[EngineValues]) -> list[int]:
    """Return indices of the engines that fit the timer's counts; empty if none does.

    The timer's micro-steps are exact. Its samples exceed those of a step if the run waits, as for
    the output of a model. So an engine with fewer samples may fit too, but none with more.
    """
    steps = [
        (_number(engine, ACCUMULATION_FACT), _number(engine, BATCH_FACT)) for engine in engines
    ]
    timed = {micro_steps: launch.samples_per_step(micro_steps) or 0 for micro_steps, _ in steps}
    ratios = [timed[micro_steps] / batch for micro_steps, batch in steps]
    able = [index for index, ratio in enumerate(ratios) if ratio > 1 / MAX_BATCH_RATIO]
    return able if all(ratios[index] < MAX_BATCH_RATIO for index in able) else []


def _unknown(batches: set[int]) -> str:
    listed = ", ".join(map(str, sorted(batches)))
    return (
        f"The log has several engine configs ({listed} samples per step), and its lines do not name "
        f"their engine. Fix: fairmfu set RUN {BATCH_FACT}=… {MICRO_BATCH_FACT}=… "
        f"{ACCUMULATION_FACT}=… batch_changes={NO_BATCH_CHANGES}"
    )


def _counted_for_each(launch: LaunchView, engine: EngineValues) -> int:
    """Return the number of ranks that share a micro-batch and all count it.

    In this case the engine's world is the product of its groups, or the number of GPUs. For an
    engine that is given a grouping, the world is the data-parallel ranks alone.
    """
    world, models = _number(engine, WORLD_FACT), _number(engine, MODELS_KEY, 1)
    sharing = models if models > 1 else _number(engine, AUTOTP_KEY, 1)
    groups = _number(engine, RANKS_KEY) * sharing * _number(engine, SEQUENCES_KEY, 1)
    every = groups or parse_optional(parse_integer, launch.last_value("gpus")) or 0
    batch = world * _number(engine, MICRO_BATCH_FACT) * _number(engine, ACCUMULATION_FACT)
    counts_all = world == every and batch == _number(engine, BATCH_FACT) and world % sharing == 0
    return sharing if counts_all and world else 1


def _divide(fact: StatedValue, times: int) -> None:
    """Divide a count of all ranks by the ranks that share a micro-batch."""
    assert isinstance(fact, dict)  # noqa: S101 - of a launch
    count = int(fact["value"]) // times
    why = f"{fact['value']}, counted for each of {times} ranks that share a micro-batch"
    fact |= {"value": str(count), "origin": f"{fact['origin']}: {why}"}
