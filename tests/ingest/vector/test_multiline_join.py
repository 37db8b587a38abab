"""Blocks of lines to which those beside them add something, against the join of each line."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.line_reader import Chunk, Source
from fairmfu.ingest.formats.hugging_face import progress_bars
from fairmfu.ingest.formats.hugging_face.trainer import HF_CONSOLE
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.parse.records import join_records
from fairmfu.ingest.vector import multiline_join
from fairmfu.ingest.vector.multiline_join import join_chunks
from tests.support.effort import THOROUGH

ADDITION = HF_CONSOLE.addition
BAR = b"  12%|#   | 5/40 [00:01<00:08,  4.1it/s]"
COPY = b" 10%|# | 4/40 [00:20<00:08,  5.1s/it]llamafactory.train.callbacks:143 >> {'loss': 2.5000, "
COPY += b"'epoch': 0.10}"
BARS = tuple(b" 9%%|#  | %d/40 [00:%d0<01:08, 10.0s/it]" % (n, n) for n in (1, 2, 3, 4, 5))
LINES = (
    *BARS,
    *(b"{'loss': 2.5, 'epoch': 0.%d}" % n for n in (1, 2, 3, 4, 5)),
    *(COPY, b"{'loss': 2.5, 'epoch': 0.1}"),
    *(b"{'loss': 6.947, 'epoch': 0.01}", b"{'loss': 6.947}", b"x {'loss': 1.0} {'loss': 2.0}"),
    b"\r" + BAR + b"\r{'loss': 2.5}",
    *(BAR, b"\r" + BAR, BAR + b"\r" + BAR, b"\r\r" + BAR + b"\r", b"Map: 3%|# | 1/9 [00:01<00:09]"),
    *(
        b"",
        b"  ",
        b"\r",
        b"\xc2\xa0",
        b"\xe3\x80\x80",
        b"\0",
        b"{'lo\0ss': 3.5}",
        b"{'loss':\xc2\xa01}",
    ),
    *(b"Overriding config: ", b"Model config A {", b"x Model config B {", b"\xff\xfe{'loss': 1}"),
    *(b"Generate instantiating a new config instance from x", b"other", b"%|", b"\xff" * 30),
)


DICTS = tuple(line for line in LINES if line.startswith(b"{'loss': "))


def text_of_a_log(draw: Random) -> bytes:
    dicts = draw.choice((0.0, 0.2, 0.8))
    lines = [
        draw.choice(DICTS) if draw.random() < dicts else draw.choice(LINES)
        for _ in range(draw.randrange(1, 40))
    ]
    if draw.random() < 0.4:  # a run whose bars stand on one side of its dicts
        each = [(BARS[n], LINES[len(BARS) + n]) for n in range(len(BARS))]
        between = draw.choice(((), (b"",), (b" ", b"\0")))
        lines += [line for bar, text in each for line in (bar, *between, text)]
    if draw.random() < 0.3:
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(LINES) + b"y" * 200)
    return b"\n".join(lines) + b"\n" * draw.choice((0, 1, 1, 2))


Records = list[tuple[int, str, bool, bool]]


def by_line(path: Path) -> Records:
    records = join_records(line_matcher(HF_CONSOLE, ()), Source(path).lines())
    return [(one.number, one.text, one.is_cut, one.is_ended) for one in records]


def by_block(path: Path) -> tuple[bool, list[tuple[object, ...]]]:
    """Return whether blocks have the additions, and their lines."""
    assert ADDITION is not None
    found, chunks = join_chunks(ADDITION, Source(path).chunks())
    return found, [tuple(line) for chunk in chunks for line in chunk.lines()]


@pytest.mark.parametrize("seed", range(300 if THOROUGH else 100))
def test_each_line_has_what_its_join_adds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", draw.choice((1, 7, 100, 1000)))
    longest, long = draw.choice(((180, 90), (100_000, 1000)))
    monkeypatch.setattr(
        line_reader, "MAX_PEEK_BYTES", draw.choice((0, 1_000_000))
    )  # where it is read to
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", longest)
    monkeypatch.setattr(multiline_join, "MAX_JOINED_LINE_BYTES", long)
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_CHARS", draw.choice((50, 400, 4_000)))
    path = tmp_path / "run.log"
    path.write_bytes(text_of_a_log(draw))
    own = [tuple(line) for line in Source(path).lines()]
    found, records = by_block(path)
    if found:
        assert records == by_line(path)
    else:
        assert records == own  # left to the join of each line
    dicts = [at for at, line in enumerate(own) if "{'loss': " in line[1]]
    texts = [line[1] for line in own[max(dicts[0] - 1, 0) :]] if dicts else []
    assert found == (len(dicts) > 1 and progress_bars.match_bars(texts) is not None)


def test_lines_of_several_writers_are_left_to_the_join_of_each_line() -> None:
    assert ADDITION is not None
    data = b"x\n0: " + BAR + b"\n0: {'loss': 2.5}\n1: {'loss': 2.5}\n0: " + BAR + b"\n"
    chunks = [Chunk(1, data), Chunk(6, BAR + b"\n")]
    restored, left = join_chunks(ADDITION, chunks)
    assert (restored, list(left)) == (False, chunks)
