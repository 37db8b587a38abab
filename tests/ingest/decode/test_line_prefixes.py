"""The rows of line_prefixes.toml, each against its own example."""

from __future__ import annotations

from itertools import pairwise

from fairmfu.ingest.decode.line_prefixes import (
    LinePrefix,
    few_hosts_match,
    line_prefixes,
    rising_numbers_match,
)
from fairmfu.ingest.decode.log_collectors import detect_line_envelope
from tests.support.each_case import each_case

GROUPS = {"at", "who", "number", "clock"}


@each_case("row", line_prefixes(), ids=lambda row: row.name)
def test_a_row_takes_its_example_and_no_more(row: LinePrefix) -> None:
    match = row.regex.match(row.example + b"line 1 says")
    assert match is not None, f"{row.name}: its pattern does not match its example"
    assert match[0] == row.example, f"{row.name}: its pattern takes {match[0]!r}"
    assert set(row.regex.groupindex) <= GROUPS, f"{row.name}: unknown groups"
    if row.names_hosts:
        assert "who" in row.regex.groupindex, f"{row.name}: names_hosts without a group `who`"


@each_case("row", line_prefixes(), ids=lambda row: row.name)
def test_lines_behind_an_example_are_unwrapped(row: LinePrefix) -> None:
    """By this row, or by one that is tried before it."""
    numbers = {rising_numbers_match: [*range(11, 21)], few_hosts_match: [1, 2] * 5}
    sevens = numbers.get(row.accepts, [7] * 10)
    prefixes = [row.example.replace(b"7", b"%d" % n) for n in sevens]
    texts = [b"line %d says" % n for n in range(10)]
    lines = [prefix + text for prefix, text in zip(prefixes, texts, strict=True)]
    make = detect_line_envelope(lines)
    assert make is not None, row.name
    unwrap = make()
    assert [piece.text for line in lines if (piece := unwrap(line))] == texts


def test_no_name_stands_twice() -> None:
    names = sorted(row.name for row in line_prefixes())
    assert all(one != other for one, other in pairwise(names))
