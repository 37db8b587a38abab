"""GPUs of a launch in which several share a micro-batch, from the engine's lines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ...core.schema import RESTART_EVENT_KINDS, TOKEN_SHARING_DEGREES
from ..launch_view import Fact, LaunchView, stated_size
from ..spec import MODEL_PARALLEL_KEY, PROCESS_KEY


def infer_sizes(launches: Sequence[LaunchView]) -> list[list[Fact]]:
    """Return `gpus` and `tensor_parallel` of the launches, if certain."""
    return [_shared_batches(launch) for launch in launches]


def _shared_batches(launch: LaunchView) -> list[Fact]:
    """Return the GPUs of a launch, also of ranks that share a micro-batch.

    DeepSpeed calls the data-parallel ranks its world. The code that groups the others (an `mpu`
    argument) prints nothing. But every process prints its start, and since 0.17 the engine prints
    how many ranks share a model, over all axes except data and sequence. If no more processes start
    than are known to train, the log may come from one node of several, and proves nothing. If the
    engine itself groups the ranks (AutoTP), its world by now means data-parallel ranks (see
    `engines`); two such numbers do not give the GPUs.
    """
    begun, models = _set_up(launch)
    shards = stated_size(launch, "data_parallel") if begun > 1 or models else None
    if shards is None:
        return []
    gpus = stated_size(launch, "gpus")
    degrees = {name: stated_size(launch, name) for name in TOKEN_SHARING_DEGREES}
    sharing = math.prod(degree or 1 for degree in degrees.values())
    if models > 1:
        sharing = models * (degrees["context_parallel"] or 1)
        every = shards * sharing
        why = f"{shards} data-parallel ranks, of which each is {sharing} GPUs"
    elif begun > shards * sharing and begun % shards == 0:
        every, why = begun, f"{begun} processes begin, for {shards} data-parallel ranks"
    elif models == 1 and sharing == (degrees["context_parallel"] or 1):
        every, why = shards * sharing, f"{shards} data-parallel ranks, and no rank shares a model"
    else:
        return []
    is_shared = every > shards * sharing or models > 1
    one_world = (is_shared and models == 1) or len(_stated_values(launch, "data_parallel")) == 1
    sizes = [("gpus", every)] if gpus is None and one_world else []
    unknown = not (degrees["tensor_parallel"] or degrees["pipeline_parallel"])
    if is_shared and unknown and (models > 1 or gpus == begun):
        sizes.append(("tensor_parallel", every // shards // (degrees["context_parallel"] or 1)))
    origin = f"inferred: {why}"
    return [{"name": n, "value": str(v), "origin": origin, "line": None} for n, v in sizes]


def _stated_values(launch: LaunchView, name: str) -> set[str]:
    """Return all values of a fact of a launch, from any format."""
    facts = (*launch.facts, *launch.companion_facts)
    return {fact["value"] for fact in facts if fact["name"] == name}


def _set_up(launch: LaunchView) -> tuple[int, int]:
    """Return the processes begun before the first step, and the ranks sharing a model.

    Of several attempts, only the last counts. All processes of an attempt start before its
    configuration, or its error, is printed; a second engine's configuration comes after the
    first's.
    """
    first = launch.rows.first_line
    ends = [f["line"] for f in launch.stated if f["name"] == "data_parallel" and f["line"]]
    ends += [event["line"] for event in launch.events.of_kinds(RESTART_EVENT_KINDS)]
    begun, models, last = 0, 0, 0
    for event in launch.events.of_kinds(["setup"]):
        if first is not None and event["line"] > first:
            break
        fields = json.loads(event["extra"] or "{}")
        models = int(fields.get(MODEL_PARALLEL_KEY, models))
        if PROCESS_KEY in fields:
            again = any(last < end < event["line"] for end in ends)
            begun, last = (0 if again else begun) + 1, event["line"]
    return begun, models
