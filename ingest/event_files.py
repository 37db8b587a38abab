"""TensorBoard event files as lines of JSON, one for each value, in the order of the file.

    {"tag": "throughput(tps)", "step": 10, "wall_time": 1795188127.787, "value": 7034.0}

So an event file is a log like any other: its formats say which tag fills which column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingest.errors import UnreadableSourceError

FIRST_RECORD: Final = b"brain.Event:"
"""Every event file begins with a record of its version."""

LONGEST_TEXT: Final = 64 * 1024
"""Characters kept of a text value: a trainer's arguments, the config of its model."""


def is_event_file(head: bytes) -> bool:
    """Whether `head` (the first bytes of a file) begins an event file."""
    return FIRST_RECORD in head[:64]


def event_lines(path: Path) -> Iterator[str]:
    """One JSON object for each value of an event file, floats in their shortest form.

    Values that are no number keep their kind and, where they are text, the text. Raises
    UnreadableSourceError where the reader is not installed, or a record is none.
    """
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra
        from tensorboard.backend.event_processing.event_file_loader import (  # noqa: PLC0415 - an extra
            EventFileLoader,
        )
        from tensorboard.util import tensor_util  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnreadableSourceError(
            f"{path}: a TensorBoard event file; reading it needs an extra: "
            "pip install 'fairmfu[tensorboard]'."
        ) from error
    try:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                array = None
                with suppress(ValueError, TypeError):  # a type or shape that numpy has not
                    array = tensor_util.make_ndarray(value.tensor)
                said = {"tag": value.tag, "step": event.step, "wall_time": event.wall_time}
                yield json.dumps(said | _value(array))
    except DecodeError as error:
        raise UnreadableSourceError(
            f"{path}: a damaged TensorBoard event file ({error}). Nothing of it was stored; copy "
            "it again."
        ) from error


def _value(array: np.ndarray[Any, Any] | None) -> dict[str, object]:
    if array is None or array.dtype.kind not in "OSUfiu":
        return {"kind": "other"}
    if array.dtype.kind in "OSU":
        first = array.ravel()[0] if array.size else b""
        text = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
        return {"kind": "text", "text": text[:LONGEST_TEXT]}
    if array.size != 1:
        return {"kind": "array", "shape": list(array.shape)}
    return {"value": float(str(array.ravel()[0]))}
