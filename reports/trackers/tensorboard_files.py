"""Runs as TensorBoard's event files: scalars, text of a run card, HParams.

Written by TensorBoard's own code, which is an extra; the same bytes each time. Facts become
HParams.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto

from fairmfu.ingest.core.schema import FACT_NAMES

from .tracker_record import RUN_PREFIX, TrackerRecord, fact_value, run_card_markdown


def write_event_file(run: TrackerRecord, folder: Path) -> None:
    """Write one event file in an existing folder. Raises OSError."""
    name = f"events.out.tfevents.{max(0, int(run.started_at)):010d}.fairmfu"
    with (folder / name).open("wb") as file:
        out = RecordWriter(file)
        for event in _events(run):
            out.write(event.SerializeToString())


def _events(run: TrackerRecord) -> Iterator[Event]:
    """Yield the events of a run; the values of a step are one event."""
    yield Event(wall_time=run.started_at, file_version="brain.Event:2")
    yield Event(wall_time=run.started_at, summary=Summary(value=[_facts(run), _text(run)]))
    tags = run.tags
    for step, at, *values in run.series.iter_rows():
        said = zip(tags, values, strict=True)
        scalars = [_scalar(tag, value) for tag, value in said if value is not None]
        yield Event(wall_time=at, step=step, summary=Summary(value=scalars))
    step, at = run.last
    figures = [_scalar(tag, value) for tag, value in run.figures.items()]
    yield Event(wall_time=at, step=step, summary=Summary(value=figures))


def _scalar(tag: str, value: float) -> Any:  # noqa: ANN401 - of modules without types
    return Summary.Value(tag=tag, simple_value=value)


def _text(run: TrackerRecord) -> Any:  # noqa: ANN401 - of modules without types
    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = make_tensor_proto([run_card_markdown(run).encode()])
    return Summary.Value(tag=f"{RUN_PREFIX}card", tensor=tensor, metadata=about)


PROTO_FIELDS: Final = {str: "string_value", bool: "bool_value"}
"""Fields of the HParams plugin for values that are no numbers."""


def _facts(run: TrackerRecord) -> Any:  # noqa: ANN401 - of modules without types
    """Return the session start of the HParams plugin.

    Configs of models are in the card only.
    """
    start = plugin_data_pb2.SessionStartInfo(group_name=run.name, start_time_secs=run.started_at)
    for name, value in run.facts.items():
        if name in FACT_NAMES and FACT_NAMES[name].kind == "json":
            continue
        fact = fact_value(name, value)
        kind = PROTO_FIELDS.get(type(fact), "number_value")
        setattr(start.hparams[name], kind, fact)
    data = plugin_data_pb2.HParamsPluginData(session_start_info=start)
    return Summary.Value(
        tag=metadata.SESSION_START_INFO_TAG, metadata=metadata.create_summary_metadata(data)
    )
