"""Reports as files, each put in place when it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.errors import FairmfuError, explain_write_error

from . import html_report, markdown_report
from .report_data import ReportContent, report_json

TEMPORARY_SUFFIX: Final = ".writing"
"""What the name of a file ends in while it is written."""
REPORT_FORMATS: Final = ("html", "md", "json")
"""What a report can be written as."""


class UnknownKindError(FairmfuError, ValueError):
    """No report is written so."""


def save_report(content: ReportContent, out: str | Path, kind: str | None = None) -> list[Path]:
    """Write a report; the files that were written, the report first, then its pictures.

    content: of `report`. kind: html, a page that needs no network; md, Markdown with charts as SVG
    in NAME_files/ beside it; json, all of it as data by docs/report.schema.json, units in the names
    of its keys or beside them ([tokens/s/GPU], [fraction], [s]). Without one, as `out` ends.

    What stood at `out` is replaced once the new one is whole. Raises UnknownKindError where `out`
    says none of these, FairmfuError where it cannot be written to.

    >>> save_report(report(tables), "report.html")
    """
    out = Path(out)
    kind = report_format(out, kind)
    if kind == "md":
        return _save_markdown(content, out)
    write_file(out, content.render(html_report.render_page if kind == "html" else _json).encode())
    return [out]


def report_format(out: Path, kind: str | None = None) -> str:
    """What a report is written as: `kind`, else as `out` ends. Raises UnknownKindError.

    A file that ends as another kind would be opened as that one.
    """
    end = out.suffix.removeprefix(".")
    if kind and end in REPORT_FORMATS and end != kind:
        raise UnknownKindError(f"{out}: ends as {end}, and --format says {kind}: leave one out")
    kind = kind or end
    if kind not in REPORT_FORMATS:
        ends = ", ".join(f".{one}" for one in REPORT_FORMATS)
        raise UnknownKindError(f"{out}: a report ends in one of {ends}; or say which: --format")
    return kind


def _json(content: ReportContent) -> str:
    return json.dumps(report_json(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _save_markdown(content: ReportContent, out: Path) -> list[Path]:
    """Pictures first, then what shows them, then those away that the report before had alone."""
    folder = out.with_name(f"{out.stem}_files")
    report = content.render(lambda one: markdown_report.markdown_report(one, folder.name))
    before = out.read_text(encoding="utf-8", errors="replace") if out.is_file() else ""
    for name, drawn in report.pictures.items():
        write_file(folder / name, drawn.encode())
    write_file(out, report.text.encode())
    for name in set(markdown_report.picture_names(before, folder.name)) - set(report.pictures):
        (folder / name).unlink(missing_ok=True)
    return [out, *(folder / name for name in report.pictures)]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file aside, then put it in its place: a reader never sees half a file."""
    aside = path.with_name(f"{path.name}{TEMPORARY_SUFFIX}")
    aside.write_bytes(data)
    aside.replace(path)


def write_file(out: Path, data: bytes) -> None:
    """Write a file and the folders above it. Raises FairmfuError where it can't be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, data)
    except OSError as error:
        why, todo = explain_write_error(error, "--out")
        raise FairmfuError(f"{out}: {why}; what stood there before is as it was. {todo}") from error
