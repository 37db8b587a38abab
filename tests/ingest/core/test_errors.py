"""Why a write or a read failed, in words of whoever told of it, and what to do."""

from __future__ import annotations

import errno
import os
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import explain_read_error, explain_write_error
from fairmfu.ingest.core.messages import UNREADABLE_FILE

FULL = "the disk is full"
NO_ROOM = os.strerror(errno.ENOSPC)
DENIED = os.strerror(errno.EACCES)


@pytest.mark.parametrize(
    ("error", "why", "todo"),
    [
        (OSError(errno.ENOSPC, NO_ROOM), FULL, "free some space"),
        (RuntimeError(f"IO Error: could not write: {NO_ROOM}"), FULL, "free some space"),
        (OSError(errno.EACCES, DENIED), f"cannot be written to ({DENIED})", "give another --out"),
        (OSError(errno.EIO, "bad sector"), "cannot be written to (bad sector)", "check the disk"),
        (OSError("no words of a number"), "cannot be written to (no words of a number)", "again"),
        (RuntimeError("first\nsecond line"), "cannot be written to (first)", "run it again"),
        (RuntimeError(), "cannot be written to (RuntimeError)", "run it again"),
    ],
)
def test_a_failed_write_is_told_in_the_words_of_the_error(
    error: Exception, why: str, todo: str
) -> None:
    told = explain_write_error(error, "--out")
    assert told[0] == why
    assert todo in told[1]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(errno.EACCES, DENIED), f"{DENIED}. Fix: get read permission; "),
        (PermissionError(errno.EACCES, "the store says no"), "the store says no."),
        (OSError(errno.EIO, "bad sector"), "bad sector."),
        (OSError("gone"), "gone."),
    ],
)
def test_a_failed_read_is_told_in_the_words_of_the_error(error: OSError, told: str) -> None:
    found = explain_read_error(error)
    assert found.startswith(told)
    assert ("right to read" in found) == ("right to read" in told)


@example("\n")
@given(st.text())
def test_a_name_of_a_file_begins_no_line_of_a_message(name: str) -> None:
    fields = dict.fromkeys(re.findall(r"\w+(?=[!:}])", UNREADABLE_FILE.text), "a")
    words = UNREADABLE_FILE.words(**(fields | {"path": f"a{name}b"}))
    assert len(words.splitlines()) == len(UNREADABLE_FILE.words(**fields).splitlines())
