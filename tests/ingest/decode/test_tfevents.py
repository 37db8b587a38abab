"""Event files read a window at once against TensorBoard's own loader, value by value."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util

from fairmfu.ingest.core.errors import UnreadableSourceError
from fairmfu.ingest.decode import tfevents
from tests.support.effort import THOROUGH

TAGS = ("loss", "lr", "train/loss", "train/größe", 'a"b\\', "x" * 150, "x" * 149 + "y", "")
VALUES = (0.0, -0.0, 1e-5, 1e-4, 9.9e15, 1e16, 3e38, 1e-45, math.nan, math.inf, -math.inf, 0.1)


def event_file(path: Path, draw: Random, count: int) -> bytes:
    """Mostly plain scalars, of steps and values of all sizes; tensors, texts and other fields."""
    with path.open("wb") as file:
        out = RecordWriter(file)
        out.write(Event(wall_time=1795188127.5, file_version="brain.Event:2").SerializeToString())
        for number in range(count):
            step = draw.choice((number, number, number, 0, -1, 2**40, 2**62))
            tag, value = draw.choice(TAGS), draw.choice((*VALUES, draw.gauss(0, 1)))
            said: dict[str, Any] = {"tag": tag, "simple_value": value}
            if draw.random() < 0.1:
                tensor = draw.choice(([1.5, 2.5], b"some text", 2.5, 7, True))
                said = {"tag": tag, "tensor": tensor_util.make_tensor_proto(tensor)}
            values = [Summary.Value(**said)] * draw.choice((1,) * 9 + (2,))
            at = draw.choice((1795188127.25 + number * draw.random(), 0.0, 1e-7, 1e17, math.nan))
            event = Event(wall_time=at, step=step, summary=Summary(value=values))
            if draw.random() < 0.05:
                event = Event(wall_time=at, file_version="brain.Event:2")
            out.write(event.SerializeToString())
    return path.read_bytes()


def slowly(path: Path) -> list[str]:
    """As TensorBoard's loader reads it, up to where it stops or raises."""
    lines = []
    with suppress(DecodeError):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                said = {"tag": value.tag, "step": event.step, "wall_time": event.wall_time}
                array = tensor_util.make_ndarray(value.tensor)
                lines.append(json.dumps(said | tfevents._value(array)))
        return lines
    return ["damaged"]


def quickly(path: Path) -> list[str]:
    with suppress(UnreadableSourceError):
        return [text for values in tfevents.read_event_values(path) for text in values.texts]
    return ["damaged"]


@pytest.mark.parametrize("window", [1, 100, 5_000, 1 << 20])
def test_all_values_are_those_of_tensorboard(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfevents, "READ_WINDOW_BYTES", window)
    path = tmp_path / "events.out.tfevents.1"
    event_file(path, Random(window), 1_500)  # noqa: S311 - no secret
    lines = slowly(path)
    assert quickly(path) == lines
    assert len(lines) > 1_000


@pytest.mark.parametrize("seed", range(40 if THOROUGH else 20))
def test_a_damaged_file_is_read_as_far_as_tensorboard_reads_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    monkeypatch.setattr(tfevents, "READ_WINDOW_BYTES", draw.choice((64, 1_000, 1 << 20)))
    path = tmp_path / "events.out.tfevents.1"
    data = bytearray(event_file(path, draw, 60))
    place = draw.randrange(40, len(data))
    if seed % 2:
        del data[place:]
    else:
        data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    assert quickly(path) == slowly(path)


def test_most_scalars_are_read_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tests above would say little."""
    alone: list[bytes] = []
    others = tfevents._others_reader()

    def counted() -> Any:
        return lambda record: alone.append(record) or others(record)

    monkeypatch.setattr(tfevents, "_others_reader", counted)
    path = tmp_path / "events.out.tfevents.1"
    with path.open("wb") as file:
        out = RecordWriter(file)
        for step in range(1, 1_000):
            for tag in TAGS[:4]:
                said = Summary(value=[Summary.Value(tag=tag, simple_value=step / 7)])
                out.write(Event(wall_time=1e9 + step, step=step, summary=said).SerializeToString())
    assert len(quickly(path)) == 4 * 999
    assert len(alone) <= 4 * 2
