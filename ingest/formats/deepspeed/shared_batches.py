"""How many GPUs a launch has of which several share a micro-batch, by what its engine prints."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ...core.schema import RESTART_EVENT_KINDS, TOKEN_SHARING_DEGREES
from ..launch_view import Fact, LaunchView, stated_size
from ..spec import MODEL_PARALLEL_KEY, PROCESS_KEY


def infer_sizes(launches: Sequence[LaunchView]) -> list[list[Fact]]:
    """`gpus` and `tensor_parallel` of each launch, as far as they follow."""
    return [_shared_batches(launch) for launch in launches]


def _shared_batches(launch: LaunchView) -> list[Fact]:
    """GPUs of a launch of which several share a micro-batch by a grouping of the script's own.

    DeepSpeed calls the data-parallel ranks its world. What groups the others (an `mpu` that is
    handed to it) prints nothing, but each process tells that it begins, and since 0.17 the engine
    how many share a model, of all axes beside data and sequence. Where no more have begun than are
    known to train, the log may be of one node of several, and tells nothing. Where the engine
    groups them itself (AutoTP), its world is that of data-parallel ranks by now
    (see `engines`); two numbers of these tell no GPUs.
    """
    begun, models = _set_up(launch)
    each = stated_size(launch, "data_parallel") if begun > 1 or models > 1 else None
    if each is None:
        return []
    gpus = stated_size(launch, "gpus")
    degrees = {name: stated_size(launch, name) for name in TOKEN_SHARING_DEGREES}
    sharing = math.prod(degree or 1 for degree in degrees.values())
    if models > 1:
        sharing = models * (degrees["context_parallel"] or 1)
        every, why = each * sharing, f"{each} data-parallel ranks, of which each is {sharing} GPUs"
    elif begun > each * sharing and begun % each == 0:
        every, why = begun, f"{begun} processes begin, for {each} data-parallel ranks"
    else:
        return []
    one_world = models == 1 or len(_said(launch, "data_parallel")) == 1
    found = [("gpus", every)] if gpus is None and one_world else []
    unsaid = not (degrees["tensor_parallel"] or degrees["pipeline_parallel"])
    if unsaid and (models > 1 or gpus == begun):
        found.append(("tensor_parallel", every // each // (degrees["context_parallel"] or 1)))
    origin = f"inferred: {why}"
    return [{"name": n, "value": str(v), "origin": origin, "line": None} for n, v in found]


def _said(launch: LaunchView, name: str) -> set[str]:
    """All values of a fact of a launch, of whichever format."""
    facts = (*launch.facts, *launch.companion_facts)
    return {fact["value"] for fact in facts if fact["name"] == name}


def _set_up(launch: LaunchView) -> tuple[int, int]:
    """How many processes have begun before the first step, and how many share a model.

    Of several attempts those of the last one. All of one have begun before its configuration is
    printed, or its error; a second engine's stands behind that of the first.
    """
    first = launch.rows.first_line
    ends = [f["line"] for f in launch.stated if f["name"] == "data_parallel" and f["line"]]
    ends += [event["line"] for event in launch.events.of_kinds(RESTART_EVENT_KINDS)]
    begun, models, last = 0, 0, 0
    for event in launch.events.of_kinds(["setup"]):
        if first is not None and event["line"] > first:
            break
        said = json.loads(event["extra"] or "{}")
        models = int(said.get(MODEL_PARALLEL_KEY, models))
        if PROCESS_KEY in said:
            again = any(last < end < event["line"] for end in ends)
            begun, last = (0 if again else begun) + 1, event["line"]
    return begun, models
