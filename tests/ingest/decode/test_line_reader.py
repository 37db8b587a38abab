"""Bytes to numbered lines: nothing lost, nothing held that is not needed."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import UnknownFormatError, UnreadableSourceError
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.line_reader import (
    MAX_LINE_BYTES,
    STDIN_PATH,
    NumberedLine,
    Source,
    hash_content,
)
from tests.support.error_kinds import of_kind

Lines = Callable[[bytes], list[str]]


def peeked(source: Source) -> Iterator[NumberedLine]:
    return (line for chunk in source.peek() for line in chunk.lines())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


@pytest.fixture
def lines(path: Path) -> Lines:
    """The texts of a file with these bytes; their numbers count from 1."""

    def read(content: bytes) -> list[str]:
        path.write_bytes(content)
        found = list(Source(path).lines())
        assert [line.number for line in found] == list(range(1, len(found) + 1))
        return [line.text for line in found]

    return read


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"10%\r20%\rstep\nend\n", ["10%\r20%\rstep", "end"]),
        (b"10%\r20%\rstep\n", ["10%\r20%\rstep"]),
        (b"\n\nthree", ["", "", "three"]),
        (b"\0\0\0\0on\0\0e\n", ["one"]),
        ("one\ntwo".encode("utf-16-le"), ["one", "two"]),
        (b"caf\xe9 one\n", ["caf\ufffd one"]),
        ("no\u00a0break\n".encode(), ["no break"]),
        ("one\u2028still one\x0b\x0c\x85\ntwo".encode(), ["one\u2028still one\x0b\x0c\x85", "two"]),
    ],
    ids=["lf", "no-lf", "crlf", "cr", "one", "blank", "nul", "utf-16", "utf-8", "nbsp", "unicode"],
)
def test_a_line_ends_at_a_newline_only(content: bytes, texts: list[str], lines: Lines) -> None:
    assert lines(content) == texts


@pytest.mark.parametrize("packed", [gzip.compress, zstd, bytes], ids=["gz", "zst", "plain"])
@pytest.mark.parametrize("number", [3, 1_700], ids=["small", "large"])
def test_returns_end_the_lines_of_a_file_without_newlines(
    packed: Callable[[bytes], bytes],
    number: int,
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the old Macintosh, and of `tr`; they were one line, cut behind its beginning.

    The large one is of more than three blocks, packed of many reads.
    """
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 2 * MAX_LINE_BYTES)
    draw = Random(number)  # noqa: S311 - lines to read
    texts = [f"step {n} {draw.randbytes(500).hex()}" for n in range(number)]
    assert lines(packed("\r".join(texts).encode())) == texts
    assert lines(packed("\r".join([*texts, ""]).encode())) == texts


def test_a_first_line_that_is_too_long_has_the_lines_that_returns_part_it_in(lines: Lines) -> None:
    """What is behind it has the newlines that it has."""
    bars = [f"{n}%" for n in range(MAX_LINE_BYTES // 4)]
    content = "\r".join(bars) + "\n10%\r20%\nend\n"
    assert lines(content.encode()) == [*bars, "10%\r20%", "end"]


@pytest.mark.parametrize("packed", [gzip.compress, zstd, bytes], ids=["gz", "zst", "plain"])
def test_a_compressed_file_has_the_same_lines(
    packed: Callable[[bytes], bytes], lines: Lines
) -> None:
    texts = [f"step {number}" for number in range(50_000)]
    assert lines(packed("\n".join(texts).encode())) == texts


@pytest.mark.parametrize("packed", [gzip.compress, zstd, bytes], ids=["gz", "zst", "plain"])
def test_size_and_hash_are_those_of_the_file_as_it_is(
    packed: Callable[[bytes], bytes], path: Path
) -> None:
    path.write_bytes(packed(b"one\ntwo\n" * 9_999))
    source = Source(path)
    list(source.lines())
    assert (source.bytes, source.sha256) == (path.stat().st_size, hash_content(path))


def test_gzip_members_one_after_another_are_one_log(lines: Lines) -> None:
    assert lines(gzip.compress(b"one\n") + gzip.compress(b"two\n")) == ["one", "two"]


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gz", "zst"])
@pytest.mark.parametrize("kept", [0.05, 0.5, 0.99])
def test_a_compressed_file_that_breaks_off_is_an_error(
    packed: Callable[[bytes], bytes], kept: float, path: Path
) -> None:
    content = packed("".join(f"step {n * 7919}\n" for n in range(20_000)).encode())
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(
        UnreadableSourceError, match=r"run\.log: .* line \d", check=of_kind("damaged-file")
    ):
        list(Source(path).lines())


def test_a_damaged_compressed_file_is_an_error(path: Path) -> None:
    content = bytearray(gzip.compress(b"some step\n" * 9_999))
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(UnreadableSourceError, check=of_kind("damaged-file")):
        list(Source(path).lines())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty-file"),
        (gzip.compress(b""), "empty-file"),
        (bytes(range(32)) * 200, "binary-file"),
    ],
    ids=["nothing", "packed-nothing", "binary"],
)
def test_what_is_no_text_is_refused(content: bytes, kind: str, path: Path) -> None:
    path.write_bytes(content)
    errors = UnreadableSourceError, UnknownFormatError
    with pytest.raises(errors, match=r"run\.log: ", check=of_kind(kind)):
        list(Source(path).lines())


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(
        UnreadableSourceError, match=r"run\.log: .*No such file", check=of_kind("unreadable-file")
    ):
        list(Source(path).lines())


@pytest.mark.parametrize("end", [b"", b"\nafter\n"])
def test_a_line_of_three_megabytes_is_cut_and_the_next_number_is_right(
    end: bytes, path: Path
) -> None:
    path.write_bytes(b"before\n" + b"x" * 3_000_000 + end)
    found = list(Source(path).lines())
    assert [line.cut for line in found] == [False, True, False][: len(found)]
    assert [line.number for line in found] == [1, 2, 3][: len(found)]
    assert found[1].text == "x" * MAX_LINE_BYTES
    assert found[-1].text == ("after" if end else found[1].text)


def test_a_line_without_end_is_never_held_whole(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    assert [line.cut for line in Source(path).lines()] == [True]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * line_reader.READ_BLOCK_BYTES


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\ntwo")))
    assert [line.text for line in Source(STDIN_PATH).lines()] == ["one", "two"]


@pytest.mark.parametrize(
    "behind", [b"\0" * 1000, gzip.compress(b""), gzip.compress(b"two\n")], ids=["0", "empty", "two"]
)
def test_members_of_gzip_and_zeros_between_them_are_one_log(behind: bytes, lines: Lines) -> None:
    draw = Random(1)  # noqa: S311 - lines to read
    texts = [draw.randbytes(250).hex() for _ in range(3_000)]
    packed = gzip.compress("\n".join([*texts, ""]).encode())
    assert len(packed) > 2 * line_reader.GZIP_READ_BYTES
    found = lines(packed + behind + b"\0" * line_reader.GZIP_READ_BYTES)
    assert found[: len(texts)] == texts
    assert found[len(texts) :] == (["two"] if len(found) > len(texts) else [])


@pytest.mark.parametrize("place", [0.3, -6])
def test_damage_inside_a_gzip_file_is_told_behind_a_line(place: float, path: Path) -> None:
    content = bytearray(gzip.compress("".join(f"step {n * n}\n" for n in range(20_000)).encode()))
    content[int(len(content) * place) if place > 0 else int(place)] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(
        UnreadableSourceError, match=r"run\.log: .* line \d", check=of_kind("damaged-file")
    ):
        list(Source(path).lines())


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gz", "zst"])
def test_no_thread_is_left_where_reading_stops(
    packed: Callable[[bytes], bytes], path: Path
) -> None:
    path.write_bytes(packed(b"one\n" * 4_000_000))
    before = threading.active_count()
    source = Source(path)
    with source:
        assert next(peeked(source)).text == "one"
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    found = Source(path).chunks()
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableSourceError, check=of_kind("damaged-file")):
        list(Source(path).chunks())
    assert threading.active_count() == before


@pytest.mark.parametrize("packed", [gzip.compress, zstd, bytes], ids=["gz", "zst", "plain"])
@pytest.mark.parametrize("seen", [1, 700, 2_000, 10_000])
def test_what_was_peeked_at_is_read_again_and_the_file_once(
    packed: Callable[[bytes], bytes], seen: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 1_000)
    monkeypatch.setattr(line_reader, "MAX_PEEK_BYTES", 10_000)
    texts = [f"step {number}" for number in range(3_000)]
    path.write_bytes(packed("\n".join(texts).encode()))
    opened: list[Path] = []
    opens = line_reader._open_file
    monkeypatch.setattr(line_reader, "_open_file", lambda p: [opened.append(p), opens(p)][1])
    with Source(path) as source:
        assert [line.text for line in islice(peeked(source), seen)] == texts[:seen]
        assert [line.text for line in source.lines()] == texts
        assert (source.bytes, source.sha256) == (path.stat().st_size, hash_content(path))
    kept = seen < 1_000
    assert len(opened) == 2 + (not kept) + 1  # for its first bytes, its lines, and the hash here


def test_standard_input_is_peeked_at_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 100)
    monkeypatch.setattr(line_reader, "MAX_PEEK_BYTES", 100)
    texts = [f"step {number}" for number in range(500)]
    content = "\n".join(texts).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with Source(STDIN_PATH) as source:
        assert [line.text for line in islice(peeked(source), 400)] == texts[:400]
        assert [line.text for line in source.lines()] == texts
        assert source.bytes == len(content)


@example(texts=[b"\0\0\r"], end=b"", block=1, longest=1)
@given(
    texts=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=8),
    end=st.sampled_from([b"", b"\n"]),
    block=st.integers(1, 20),
    longest=st.integers(1, 15),
)
def test_blocks_of_any_size_give_the_same_lines(
    texts: list[bytes], end: bytes, block: int, longest: int
) -> None:
    content = b"\n".join(texts) + end
    first, newline, behind = content.partition(b"\n")
    if not newline or len(first) > longest:
        first = first.replace(b"\r", b"\n")
    pieces = (first + newline + behind).split(b"\n")
    last = len(pieces) - 1
    expected = [
        (line_reader.decode_line(p[:longest]), len(p) > longest, n < last)
        for n, p in enumerate(pieces)
    ]
    if not pieces[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "READ_BLOCK_BYTES", block)
        patch.setattr(line_reader, "MAX_LINE_BYTES", longest)
        assert [
            (line.text, line.cut, line.ended)
            for chunk in line_reader._whole_lines(io.BytesIO(content), Path("any.log"))
            for line in chunk.lines()
        ] == expected


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1_000])
@pytest.mark.parametrize("packed", ["log", "gz", "zst"])
def test_blocks_may_end_anywhere(
    size: int, packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a large file are read to where they are looked at, between zeros."""
    draw = Random(size)  # noqa: S311 - lines to read
    lengths = [draw.choice((0, 1, 5, 20, 49, 50, 51, 300)) for _ in range(100)]
    lines = [bytes(draw.choices(b"abc \r0\xff", k=length)) for length in lengths]
    data, path = b"\n".join(lines), tmp_path / f"run.{packed}"
    path.write_bytes(compressed(data, packed))
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 50)
    monkeypatch.setattr(line_reader, "MAX_PEEK_BYTES", 0)
    with Source(path) as source:
        expected = list(source.lines())
        sha256 = source.sha256
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", size)
    with Source(path) as source:
        assert list(source.lines()) == expected
        assert (source.sha256, source.bytes) == (sha256, path.stat().st_size)
    with Source(path) as source:
        for chunk in source.chunks():
            assert bytes(chunk.view) == chunk.data
            sent = pickle.loads(pickle.dumps(chunk))  # noqa: S301 - ours
            assert (sent.number, sent.data, sent.room) == (chunk.number, chunk.data, None)
            if chunk.room is None:
                continue
            before, behind = (
                bytes(chunk.room)[: line_reader.BYTES_BEFORE_BLOCK],
                bytes(chunk.room)[line_reader.BYTES_BEFORE_BLOCK + len(chunk.data) :][
                    : line_reader.BYTES_AFTER_BLOCK
                ],
            )
            assert before == bytes(line_reader.BYTES_BEFORE_BLOCK)
            assert behind == bytes(line_reader.BYTES_AFTER_BLOCK)
            assert chunk.newlines.tolist() == [
                at for at, byte in enumerate(chunk.data) if byte == line_reader.NEWLINE
            ]


def compressed(data: bytes, how: str) -> bytes:
    if how == "gz":
        return gzip.compress(data)
    return pa.compress(data, "zstd", asbytes=True) if how == "zst" else data
