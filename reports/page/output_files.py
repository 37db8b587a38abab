"""Reports as files, each put in place when it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.errors import FairmfuError, not_written

from . import html_report, markdown_report
from .report_data import Content, as_json

ASIDE: Final = ".writing"
"""What the name of a file ends in while it is written."""
KINDS: Final = ("html", "md", "json")
"""What a report can be written as."""


class UnknownKindError(FairmfuError, ValueError):
    """No report is written so."""


def save_report(told: Content, out: str | Path, kind: str | None = None) -> list[Path]:
    """Write a report; the files that were written, the report first, then its pictures.

    told: of `report`. kind: html, a page that needs no network; md, Markdown with charts as SVG in
    NAME_files/ beside it; json, all of it as data by docs/report.schema.json, units in the names
    of its keys or beside them ([tokens/s/GPU], [fraction], [s]). Without one, as `out` ends.

    What stood at `out` is replaced once the new one is whole. Raises UnknownKindError where `out`
    says none of these, FairmfuError where it cannot be written to.

    >>> save_report(report(tables), "report.html")
    """
    out = Path(out)
    kind = kind_of(out, kind)
    if kind == "md":
        return _save_markdown(told, out)
    write(out, (html_report.render(told) if kind == "html" else _json(told)).encode())
    return [out]


def kind_of(out: Path, kind: str | None = None) -> str:
    """What a report is written as: `kind`, else as `out` ends. Raises UnknownKindError.

    A file that ends as another kind would be opened as that one.
    """
    end = out.suffix.removeprefix(".")
    if kind and end in KINDS and end != kind:
        raise UnknownKindError(f"{out}: ends as {end}, and --format says {kind}: leave one out")
    kind = kind or end
    if kind not in KINDS:
        ends = ", ".join(f".{one}" for one in KINDS)
        raise UnknownKindError(f"{out}: a report ends in one of {ends}; or say which: --format")
    return kind


def _json(told: Content) -> str:
    return json.dumps(as_json(told), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _save_markdown(told: Content, out: Path) -> list[Path]:
    """Pictures first, then what shows them, then those away that the report before had alone."""
    folder = out.with_name(f"{out.stem}_files")
    report = markdown_report.report(told, folder.name)
    before = out.read_text(encoding="utf-8", errors="replace") if out.is_file() else ""
    for name, drawn in report.pictures.items():
        write(folder / name, drawn.encode())
    write(out, report.text.encode())
    for name in set(markdown_report.links(before, folder.name)) - set(report.pictures):
        (folder / name).unlink(missing_ok=True)
    return [out, *(folder / name for name in report.pictures)]


def put(path: Path, data: bytes) -> None:
    """Write a file aside, then put it in its place: a reader never sees half a file."""
    aside = path.with_name(f"{path.name}{ASIDE}")
    aside.write_bytes(data)
    aside.replace(path)


def write(out: Path, data: bytes) -> None:
    """Write a file and the folders above it. Raises FairmfuError where it can't be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        put(out, data)
    except OSError as error:
        why, todo = not_written(error, "--out")
        raise FairmfuError(f"{out}: {why}; what stood there before is as it was. {todo}") from error
